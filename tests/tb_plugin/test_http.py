from __future__ import annotations

import gzip
import logging
from collections.abc import Callable

import pytest

from supervisor_core.metrics.alerts_page import alerts_headers, alerts_page
from supervisor_core.metrics.listener import SECURITY_HEADERS
from tb_plugin.backend import ROUTES
from tests.cases import each
from tests.tb_plugin.conftest import Bench, FakeWatch, a_run

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
