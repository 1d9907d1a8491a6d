"""Waiting for the rest of a cluster: for how long, for whom, and what ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import RunFinishedError
from supervisor_core.tf1.cluster import wait as wait_module
from supervisor_core.tf1.cluster.wait import DeadlineWait, SessionContext


class Around(SessionContext):
    """Notes what is waited for; each wait moves the clock by what was asked, each look by a second."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.waits: list[float] = []
        self.reported: list[str | None] = []
        self.stops: Callable[[], bool] = lambda: False

    def wait(self, secs: float) -> bool:
        self.waits.append(secs)
        self.clock.now += secs or 1.0  # type: ignore[attr-defined]
        return self.stops()

    def waiting_for(self, what: str | None) -> None:
        self.reported.append(what)


class Blocked:
    """A call that blocks until the test, or the end of it, lets it go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.discarded: list[str] = []
        self.is_discarded = threading.Event()

    def __call__(self) -> str:
        assert self.let_go.wait(60.0)
        return "late"

    def discard(self, result: str) -> None:
        self.discarded.append(result)
        self.is_discarded.set()


@pytest.fixture
def context(clock_at: Callable[[float], Any]) -> Around:
    """The context of a test's wait."""
    return Around(clock_at(1000.0))


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A call that blocks; looked at without waiting, since the clock is the test's."""
    monkeypatch.setattr(wait_module, "CHECK_SECS", 0.0)
    monkeypatch.setattr(wait_module, "LEAST_SECS", 0.0)
    monkeypatch.setattr(wait_module, "NAME_SECS", 60.0)  # also real seconds, which a lookup has at the end of a wait
    call = Blocked()
    yield call
    call.let_go.set()


def never(*unexpected: object) -> str:
    """Fail: no probe and no discard are expected."""
    raise AssertionError(unexpected)


def test_a_long_wait_is_a_warning_once(context: Around, caplog: pytest.LogCaptureFixture) -> None:
    """Who has set up no logging still learns, after half a minute, for what a process waits."""
    deadline = DeadlineWait(None, 10.0, context)
    while context.clock.monotonic() < 1090.0:
        deadline.pause("the chief")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith("Waiting, for 3")
    assert warnings[0].endswith("s by now, for the chief")
    assert context.reported == ["the chief"]


def test_polls_are_frequent_at_first(context: Around) -> None:
    """Each wait is twice the one before, up to the longest; what is waited for is reported once."""
    deadline = DeadlineWait(None, 3.0, context)
    for _ in range(8):
        deadline.pause("the chief")
    assert context.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]
    assert context.reported == ["the chief"]


def test_a_wait_ends_when_it_has_lasted_long_enough(context: Around) -> None:
    """The last poll comes at the very end; the error says how long it was, and for what."""
    deadline = DeadlineWait(1.0, 30.0, context)
    for _ in range(4):
        deadline.pause("the chief")
    assert sum(context.waits) == pytest.approx(1.0)
    assert deadline.remaining_secs == 0.0
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        deadline.pause("the chief: weight is missing")
    assert str(raised.value) == ("Session was not ready after waiting 1 secs. Waited for the chief: weight is missing")


def test_a_stop_ends_a_wait(context: Around) -> None:
    """It is cancelled, and the error says what was waited for."""
    context.stops = lambda: True
    with pytest.raises(tf.errors.CancelledError, match="A stop was requested while waiting for the chief"):
        DeadlineWait(None, 1.0, context).pause("the chief")


def test_a_call_that_returns_is_not_waited_for(context: Around) -> None:
    """Its result is returned, without a report or a probe."""
    assert DeadlineWait(60.0, 1.0, context).call_blocking(lambda: "here", who=never, discard=never) == "here"
    assert context.reported == []


def test_a_call_that_blocks_is_outlasted(context: Around, blocked: Blocked) -> None:
    """Once the call has blocked for long enough, and then at intervals, the process that blocks it is looked up; a
    change is reported."""
    asked: list[float] = []
    names = iter(["ps:0", "ps:0", "ps:1"])

    def who() -> str:
        asked.append(context.clock.monotonic())
        if len(asked) > 3:
            blocked.let_go.set()
            return "none"
        return next(names)

    assert DeadlineWait(None, 1.0, context).call_blocking(blocked, who=who, discard=blocked.discard) == "late"
    assert context.reported[:2] == ["ps:0", "ps:1"]
    assert asked[0] >= 1000.0 + wait_module.NAME_SECS
    assert blocked.discarded == []


def test_a_stop_ends_a_blocked_call(context: Around, blocked: Blocked) -> None:
    """At the next look, and its result is discarded."""
    context.stops = lambda: len(context.waits) == 3
    with pytest.raises(tf.errors.CancelledError, match="while waiting for the cluster to answer"):
        DeadlineWait(None, 1.0, context).call_blocking(blocked, who=never, discard=blocked.discard)
    blocked.let_go.set()
    assert blocked.is_discarded.wait(60.0)


def test_an_interrupt_leaves_nothing_behind(context: Around, blocked: Blocked) -> None:
    """Ctrl-C in the middle of a wait is raised at once, and what the call returns later is discarded."""

    def interrupted() -> bool:
        raise KeyboardInterrupt

    context.stops = interrupted
    with pytest.raises(KeyboardInterrupt):
        DeadlineWait(None, 1.0, context).call_blocking(blocked, who=never, discard=blocked.discard)
    blocked.let_go.set()
    assert blocked.is_discarded.wait(60.0)
    assert blocked.discarded == ["late"]


def test_a_call_that_fails_fails_the_wait(context: Around) -> None:
    """With its very error."""

    def fail() -> str:
        raise tf.errors.InvalidArgumentError(None, None, "no such device")

    with pytest.raises(tf.errors.InvalidArgumentError, match="no such device"):
        DeadlineWait(60.0, 1.0, context).call_blocking(fail, who=never, discard=never)


def test_a_finished_run_ends_a_blocked_call(context: Around, blocked: Blocked) -> None:
    """Who asks for whom it waits hears that there is nothing left to do, and waits no longer."""

    def who() -> str:
        raise RunFinishedError("There is nothing left to do here.")

    with pytest.raises(RunFinishedError, match="nothing left"):
        DeadlineWait(None, 1.0, context).call_blocking(blocked, who=who, discard=blocked.discard)
    blocked.let_go.set()
    assert blocked.is_discarded.wait(60.0)


def test_a_call_that_returns_at_the_last_moment_is_in_time(context: Around, blocked: Blocked) -> None:
    """While it is found out who does not answer, it may yet."""
    threads: SimpleQueue[threading.Thread] = SimpleQueue()

    def call() -> str:
        threads.put(threading.current_thread())
        return blocked()

    def who() -> str:
        blocked.let_go.set()
        threads.get().join()
        return "ps:0"

    assert DeadlineWait(0.0, 1.0, context).call_blocking(call, who=who, discard=never) == "late"
