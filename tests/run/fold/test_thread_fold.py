"""A service thread over time, from the heartbeats."""

from __future__ import annotations

from typing import Any

from supervisor_core.events.telemetry import ThreadState, ThreadStatus
from supervisor_core.run.fold.session_fold import ThreadFold
from supervisor_core.run.model.run import ThreadHistory, ThreadSpan, ThreadTick
from tests.cases import each


def beat_of(state: ThreadState, ticks: int = 0, **more: Any) -> ThreadStatus:
    """Return a thread as a heartbeat reports it."""
    return ThreadStatus(name="summary", state=state, interval_secs=120, ticks=ticks, **more)


BEATS: list[tuple[float, ThreadStatus]] = [
    (10.0, beat_of("starting")),
    (20.0, beat_of("idle", 1, last_tick_at=12.5, last_tick_secs=0.5)),
    (30.0, beat_of("idle", 1, last_tick_at=12.5, last_tick_secs=0.5)),
    (40.0, beat_of("overdue", 1, last_tick_at=12.5, last_tick_secs=0.5, overdue_secs=4.0)),
    (50.0, beat_of("overdue", 1, last_tick_at=12.5, last_tick_secs=0.5, overdue_secs=14.0)),
    (
        60.0,
        beat_of("idle", 3, last_tick_at=58.0, last_tick_secs=3.0, failures=1, last_error="E: x", last_failure_at=57.99),
    ),
    (
        70.0,
        beat_of(
            "failed", 4, last_tick_at=69.0, last_tick_secs=1.0, failures=2, last_error="E: y", last_failure_at=69.0
        ),
    ),
]


def history(thread: ThreadFold) -> ThreadHistory:
    """Return the history up to 75 s."""
    found = thread.history("a", 75.0)
    assert found is not None
    return found


def test_spans_follow_the_states() -> None:
    """One span per stretch of one state, each from the first heartbeat that reports it to that of the next state; with
    the most by which it was late, and the error of what failed in it."""
    thread = ThreadFold("summary")
    for at, beat in BEATS:
        thread.beat(at, beat)
    found = history(thread)
    assert found.spans == (
        ThreadSpan(state="starting", since=10.0, until=20.0),
        ThreadSpan(state="idle", since=20.0, until=40.0),
        ThreadSpan(state="overdue", since=40.0, until=60.0, overdue_secs=14.0),
        ThreadSpan(state="idle", since=60.0, until=70.0, error="E: x"),
        ThreadSpan(state="failed", since=70.0, until=75.0, error="E: y"),
    )
    assert found.seen_ticks == (
        ThreadTick(at=12.5, secs=0.5, ok=True),
        ThreadTick(at=58.0, secs=3.0, ok=False),
        ThreadTick(at=69.0, secs=1.0, ok=False),
    )
    assert (found.ticks, found.failures, found.last_error, found.state) == (4, 2, "E: y", "failed")
    assert (found.last_tick_at, found.last_failure_at, found.interval_secs) == (69.0, 69.0, 120)


@each("cut", range(len(BEATS) + 1))
def test_two_files_give_the_same_as_one(cut: int) -> None:
    """A session that goes on in another file has the same spans and ticks, wherever it was cut."""
    whole, first, second = ThreadFold("summary"), ThreadFold("summary"), ThreadFold("summary")
    for index, (at, beat) in enumerate(BEATS):
        whole.beat(at, beat)
        (first if index < cut else second).beat(at, beat)
    joined = ThreadFold("summary")
    joined.absorb(first)
    joined.absorb(second)
    found, expected = history(joined), history(whole)
    assert found.seen_ticks == expected.seen_ticks
    assert [span.state for span in found.spans] == [span.state for span in expected.spans]
    assert [span.since for span in found.spans] == [span.since for span in expected.spans]
    assert found.last_failure_at == expected.last_failure_at
