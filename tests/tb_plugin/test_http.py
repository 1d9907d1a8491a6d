"""Answers of the tab as a whole: statuses, headers, packing, and what the exporter's routes serve."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from supervisor_core.metrics.alerts_page import alerts_headers, alerts_page
from supervisor_core.metrics.listener import SECURITY_HEADERS
from supervisor_core.run.model.snapshot import LogdirSnapshot
from tb_plugin.backend import ROUTES
from tests.cases import each
from tests.tb_plugin.conftest import LOGDIR, NOW, Bench, FakeWatch, a_rich_run, a_run, changed, watched

EVERYWHERE = [*ROUTES, "index.js", "nothing", "deeper/still"]


@each("route", EVERYWHERE)
def test_every_answer_is_guarded(bench: Callable[..., Bench], route: str) -> None:
    """Good or bad, no answer lets a browser guess its type, frame it or run anything in it, and data is never kept. The
    page of alerts may use its own style, and that is all."""
    answer = bench(a_run()).get(route, run="a")
    wanted = {**SECURITY_HEADERS, **(alerts_headers() if route == "alerts" else {})}
    assert [answer.headers.getlist(name) for name in wanted] == [[value] for value in wanted.values()]
    assert answer.headers["Cache-Control"] in ("no-store", "no-cache")
    assert "Expires" not in answer.headers


def test_a_fault_is_an_answer(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in the plugin costs one answer, says so, is logged whole, and TensorBoard never sees it."""
    tab = bench(a_run())

    def broken(wait_secs: float) -> None:
        raise ZeroDivisionError("what a pity")

    monkeypatch.setattr(tab.index, "view", broken)
    assert "what a pity" in tab.error("runs", 500)
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


def test_big_answers_are_packed_for_who_accepts_it(bench: Callable[..., Bench]) -> None:
    """JSON that fills more than a packet is gzipped, if the client can read that; small JSON and columns never are."""
    tab = bench(*(a_run(f"run {number}") for number in range(100)))
    packed = tab.get("runs", headers={"Accept-Encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    for refusing in ("", "br", "gzip;q=0", "identity"):
        plain = tab.get("runs", headers={"Accept-Encoding": refusing})
        assert "Content-Encoding" not in plain.headers
        assert plain.data == gzip.decompress(packed.data)
        assert int(plain.headers["Content-Length"]) == len(plain.data)
    for small in ("run", "checkpoint_marks"):
        assert "Content-Encoding" not in tab.get(small, headers={"Accept-Encoding": "gzip"}, run="run 1").headers


@each("route", sorted(set(ROUTES) - {"runs", "alerts"}))
def test_before_the_first_look_there_is_nothing_to_say(bench: Callable[..., Bench], route: str) -> None:
    """Until the logdir was read once, an unknown run may yet turn up: 503, and when to ask again."""
    answer = bench(FakeWatch(), read=False).get(route, run="a", tag="loss")
    assert answer.status_code == 503
    assert answer.get_json()["reason"] == "starting"
    assert answer.headers["Retry-After"] == "1"


def test_the_page_of_alerts_is_served_by_the_tab_itself(bench: Callable[..., Bench]) -> None:
    """It is the one that the exporter serves, and there before any run has been read: no other server is needed."""
    answer = bench(FakeWatch(), read=False).get("alerts")
    assert answer.content_type == "text/html; charset=utf-8"
    assert answer.text == alerts_page()
    assert 'id="supervisortrainingstalled"' in answer.text


PATIENCE_SECS = 30.0
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def value(text: str, name: str, **labels: str) -> float:
    """One sample's value."""
    (found,) = [
        sample.value
        for family in parse_text(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found


def test_the_exporters_metrics_are_served(bench: Callable[..., Bench]) -> None:
    """Each run's metrics by the names that the exporter serves, of the moment at which the logdir was read."""
    answer = bench(a_rich_run()).get("metrics")
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert value(answer.text, "supervisor_global_step", run="a") == 200
    assert value(answer.text, "supervisor_exporter_runs", logdir=LOGDIR) == 1
    assert value(answer.text, "supervisor_exporter_last_refresh_timestamp_seconds", logdir=LOGDIR) == NOW


def test_a_scrape_shows_the_latest_look(bench: Callable[..., Bench]) -> None:
    """What changed since the last scrape is in the next."""
    watch = FakeWatch(watched(a_run()))
    tab = bench(watch)
    assert "supervisor_global_step" not in tab.get("metrics").text
    watch.runs["a"] = changed(a_run(), step=7)
    tab.index.refresh()
    assert value(tab.get("metrics").text, "supervisor_global_step", run="a") == 7


class Faulty(FakeWatch):
    """A watch that raises while ``fault`` is set."""

    fault: Exception | None = RuntimeError("never thought of that")

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        if self.fault is not None:
            raise self.fault
        return super().refresh(on_progress)


def test_no_look_is_claimed_that_was_not_through(bench: Callable[..., Bench]) -> None:
    """Until every logdir has been looked at nothing is served, also where a first look broke off; then its age is."""
    faulty = Faulty(watched(a_run("b")), logdir="/y")
    tab = bench(FakeWatch(watched(a_run()), logdir="/x"), faulty, read=False)
    assert tab.get("metrics").status_code == 503
    tab.index.start()
    assert tab.index.view(PATIENCE_SECS).is_whole
    answer = tab.get("metrics")
    assert (answer.status_code, answer.json["reason"]) == (503, "starting")
    assert "never thought of that" in answer.json["error"]
    faulty.fault = None
    tab.index.close()
    tab.index.refresh()
    text = tab.get("metrics").text
    for logdir in ("/x", "/y"):
        assert value(text, "supervisor_exporter_last_refresh_timestamp_seconds", logdir=logdir) == NOW


@each("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
@each("route", EVERYWHERE)
def test_only_get_is_answered(bench: Callable[..., Bench], method: str, route: str) -> None:
    """Whatever is not a GET is refused with 405, whatever it asks for."""
    tab = bench(a_run())
    answer = tab.client.open(tab.address + (route), method=method)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET"
    assert answer.headers["Cache-Control"] == "no-store"
