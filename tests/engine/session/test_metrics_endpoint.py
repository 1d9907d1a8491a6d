"""Whether and where metrics are served, and how long for."""

from __future__ import annotations

import socket
import urllib.request
from dataclasses import replace

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import Options
from supervisor_core.engine.environment import ADDRESS_VARIABLE, MetricsEndpoint
from supervisor_core.run.status import RunStatus
from tests.otlp_receiver import OtlpReceiver

STATUS = RunStatus(run="a", active=True)


def endpoint(options: Options) -> MetricsEndpoint:
    """An endpoint that serves one run."""
    return MetricsEndpoint(options, source=lambda: [STATUS], ready=lambda: True, session="3f2a")


def scrape(url: str) -> str:
    """What Prometheus gets."""
    with urllib.request.urlopen(url, timeout=100) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("how", ["option", "environment"])
def test_an_address_is_served(how: str, monkeypatch) -> None:
    """Whether the program names it or who starts the program."""
    monkeypatch.setenv(ADDRESS_VARIABLE, ":0" if how == "environment" else "not an address")
    served = endpoint(Options(metrics_address=":0" if how == "option" else None))
    assert served.url is not None
    assert 'supervisor_active{run="a"} 1.0' in scrape(served.url)
    assert "process_resident_memory_bytes " in scrape(served.url)
    served.close(0.0)
    assert served.url is None


def test_without_an_address_or_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is served unless asked for; the end does not wait for a Prometheus that was never there."""
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    assert endpoint(Options()).url is None
    served = endpoint(Options(metrics_address=":0"))
    served.close(1e6)
    assert served.url is None


def test_an_address_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error must not leave a run unwatched; the text names the variable."""
    monkeypatch.setenv("SUPERVISOR_METRICS_ADDRESS", "localhost")
    with pytest.raises(OptionsError, match=r"SUPERVISOR_METRICS_ADDRESS is 'localhost'; .* Add the port"):
        endpoint(Options())


def test_a_receiver_is_pushed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a reachable port: pushed when the session begins and when it ends, without a wait at the end."""
    now = [STATUS]
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("SUPERVISOR_OTLP_ENDPOINT", receiver.url)
        pushed = MetricsEndpoint(Options(), source=lambda: now, ready=lambda: True, session="3f2a")
        assert pushed.url is None
        (first,) = receiver.wait_for(lambda found: found)
        assert first.values()['supervisor_active{run="a"}'] == 1
        assert "process_resident_memory_bytes" in first.values()
        assert {each.labels["instance"] for each in first.samples} == {f"{socket.gethostname()}:3f2a"}
        now[:] = [replace(STATUS, active=False)]
        pushed.close(0.0)
        assert receiver.full[-1].values()['supervisor_active{run="a"}'] == 0
        pushed.close(0.0)
        assert len(receiver.full) == 2


def test_a_receiver_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an address that is none; its value may hold a token."""
    monkeypatch.setenv("SUPERVISOR_OTLP_ENDPOINT", "prometheus:9090/token")
    with pytest.raises(OptionsError, match=r"^SUPERVISOR_OTLP_ENDPOINT is not") as found:
        endpoint(Options())
    assert "token'" not in str(found.value) and "prometheus:" not in str(found.value)
