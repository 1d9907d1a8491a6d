"""A call that may never return: who waits for it gets its end, and who does not, leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from supervisor_core.engine.blocking_call import BlockingCall

SECS = 60.0


class Held:
    """Something to call that blocks until the test lets it go."""

    def __init__(self, end: Callable[[], str]) -> None:
        self.let_go = threading.Event()
        self.end = end
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        assert self.let_go.wait(SECS)
        return self.end()


def broken() -> str:
    """Fail."""
    raise OSError("gone")


def test_what_has_come_already_is_discarded_when_it_is_abandoned() -> None:
    """Once, at that moment, by who abandons it."""
    discarded: list[str] = []
    call = BlockingCall(lambda: "here", name="call", discard=discarded.append)
    assert call.wait(SECS)
    call.abandon()
    call.abandon()
    assert discarded == ["here"]


def test_a_result_that_cannot_be_discarded_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the thread of the call, which ends, nor who abandons it; it is logged."""
    held = Held(lambda: "late")
    calls = [BlockingCall(call, name="call", discard=lambda result: broken()) for call in (held, lambda: "here")]
    assert calls[1].wait(SECS)
    for call in calls:
        call.abandon()
    held.let_go.set()
    assert calls[0].wait(SECS)
    assert [record.getMessage() for record in caplog.records] == [
        "The result of an abandoned call could not be discarded"
    ] * 2


def test_an_abandoned_call_that_fails_raises_nowhere() -> None:
    """There is nothing to discard, and no caller to raise in."""
    held, discarded = Held(broken), []
    call = BlockingCall(held, name="call", discard=discarded.append)
    call.abandon()
    held.let_go.set()
    assert call.wait(SECS)
    assert discarded == []


def test_a_thread_that_cannot_be_started_is_an_error() -> None:
    """The call is never made, and who wants it hears of that at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no more threads")))
        with pytest.raises(RuntimeError, match="no more threads"):
            BlockingCall(lambda: "never", name="call")
