"""What the monitor writes and when, with a clock set by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine.monitor import SessionMonitor
from supervisor_core.engine.progress import Progress
from supervisor_core.engine.recorder import TelemetryRecorder
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    Record,
    SessionRecord,
    StallRecord,
    ThreadStatus,
    WorkerStatus,
)
from supervisor_core.process.stacks_file import StacksLook
from supervisor_core.run.fold.advice import Costs


class Heard(TelemetryRecorder):
    """Keeps the records instead of writing them."""

    fails = False

    def __init__(self) -> None:
        super().__init__(None)
        self.records: list[Record] = []

    def write(self, record: Record, step: int | None = None, **how: Any) -> bool:
        self.records.append(record)
        return not self.fails

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]


class Monitor(SessionMonitor):
    """Counts its ticks; a chief with one worker, which waits."""

    def __init__(self, record: SessionRecord, **given: Any) -> None:
        super().__init__(record, **given)
        self.ticked: list[int | None] = []

    def _workers(self) -> tuple[WorkerStatus, ...]:
        return (WorkerStatus(name="worker:1", state="waiting", waiting_for="the chief"),)

    def _ticked(self, step: int | None) -> None:
        self.ticked.append(step)


@pytest.fixture
def make(clock, monkeypatch):
    """Make a monitor over fakes; returns it with what it hears and its progress."""

    def make(options: Options | None = None, *, stacks: Any = None):
        if stacks is not None:
            monkeypatch.setattr("supervisor_core.engine.monitor.HangStacks", lambda *_, **__: stacks)
        heard = Heard()
        monitor = Monitor(
            SessionRecord(session="s1", attempt=1, run="a", started_at=clock.wall_now),
            options=options or Options(heartbeat_secs=10),
            recorder=heard,
            threads=lambda: (ThreadStatus(name="checkpoint", state="idle"),),
            clock=clock,
        )
        return monitor, heard, monitor.progress, monitor.ticked

    return make


def ticks(monitor: SessionMonitor, clock: Any, count: int) -> None:
    """Let a number of seconds pass, with a tick in each."""
    for _ in range(count):
        clock.advance(1)
        monitor.tick()


def train(progress: Progress, clock: Any, steps: int, secs: float = 0.1) -> None:
    """Do steps of equal duration."""
    for _ in range(steps):
        clock.advance(secs)
        progress.run_ended(True, clock.now - secs, clock.now)


@pytest.mark.parametrize(("heartbeat_secs", "beats"), [(10, 4), (0, 4), (3600, 4), (5, 7)])
def test_heartbeats_come_at_their_interval(make, clock, heartbeat_secs: float, beats: int) -> None:
    """One at once, then one in each interval, of ten seconds at most, however often the monitor ticks."""
    monitor, heard, _, ticked = make(Options(heartbeat_secs=heartbeat_secs))
    ticks(monitor, clock, 31)
    assert (len(heard.of(HeartbeatRecord)), len(ticked)) == (beats, 31)


def test_a_change_of_phase_is_said_at_once(make) -> None:
    """And a phase that is entered twice is said once."""
    monitor, heard, _, _ = make(Options(heartbeat_secs=0))
    monitor.enter("training")
    monitor.enter("training")
    with monitor.phase("evaluating"):
        pass
    assert [record.phase for record in heard.of(HeartbeatRecord)] == ["training", "evaluating", "training"]


def test_a_stall_is_said_when_it_begins_with_stacks_and_when_it_ends(make, clock) -> None:
    """The time without progress is booked as a stall, and the metrics show it while it lasts."""
    monitor, heard, progress, _ = make(Options(heartbeat_secs=0, hang_timeout_secs={"training": 30.0}))
    monitor.enter("training")
    clock.advance(31)
    monitor.tick()
    assert monitor.status().stalled
    assert (monitor.status().active, monitor.status().state) == (True, "stalled")
    ticks(monitor, clock, 8)
    train(progress, clock, 1, 1.0)
    monitor.tick()
    begin, end = heard.of(StallRecord)
    assert (begin.state, begin.secs, begin.timeout_secs) == ("begin", 31, 30.0)
    assert begin.stacks and begin.thread == "MainThread"
    assert begin.location in begin.stacks["MainThread"]
    assert (end.state, end.secs, end.stacks) == ("end", 40, {})
    assert not monitor.status().stalled
    assert progress.snapshot().activity_secs["stall"] == 40


def test_a_silence_is_recorded_at_once(make, clock) -> None:
    """The first look after a freeze beats, whenever the next heartbeat is due; and there is no stall."""
    monitor, heard, _, _ = make(Options(heartbeat_secs=3600, hang_timeout_secs={"training": 30.0}))
    monitor.enter("training")
    for _ in range(5):
        monitor.tick()
        clock.advance(1)
    before = len(heard.of(HeartbeatRecord))
    clock.advance(49)
    monitor.tick()
    monitor.tick()
    beats = heard.of(HeartbeatRecord)
    assert len(beats) == before + 1
    assert beats[-1].activity_secs["silent"] == 50
    assert heard.of(StallRecord) == []
    assert not monitor.status().stalled


@pytest.mark.parametrize(
    ("outcome", "state", "error"),
    [("exhausted", "completed", None), ("signal", "stopped", None), ("error", "failed", "ValueError: nan")],
)
def test_a_session_that_has_ended_is_not_active(make, clock, outcome, state, error) -> None:
    """Its state says how it ended, and it was last seen alive then. It has no speed any more: what is over would only
    seem to slow down."""
    monitor, _, progress, _ = make()
    monitor.enter("training")
    for _ in range(20):
        train(progress, clock, 1, 1.0)
        monitor.tick()
    assert (monitor.status().active, monitor.status().state) == (True, "running")
    assert monitor.status().steps_per_sec == pytest.approx(1.0)
    monitor.note_end(outcome, error)
    ended_at = clock.wall()
    clock.advance(5)
    assert (monitor.status().session_seen_at, monitor.status().steps_per_sec) == (ended_at, None)
    assert (monitor.status().active, monitor.status().state, monitor.status().error) == (False, state, error)


def test_the_interval_is_recommended_from_the_run_s_own_failures(make, clock) -> None:
    """It is Young's optimum by what all its sessions did; nothing before enough failures, nor where the
    liveness file does not know what the earlier sessions did, nor where most of them saved nothing."""
    earlier = Costs(trained_secs=29_000.0, saves=4, save_secs=3.0, blocked_secs=2.2)

    def recommended(lost: int, earlier: Costs | None) -> float | None:
        monitor, _, progress, _ = make()
        monitor._restarts, monitor._earlier_costs = {"lost": lost, "completed": 5}, earlier
        progress.enter("training")
        train(progress, clock, 10, 100.0)
        save = CheckpointRecord(session="s1", trigger="timer", path="p", step=1, bytes=1, secs=1.0, blocked_secs=0.3)
        monitor.saves.saved(save, clock.wall_now)
        return monitor.status().checkpoint.recommended_interval_secs

    assert recommended(3, earlier) == pytest.approx((2 * 0.5 * 10_000) ** 0.5)
    assert recommended(2, earlier) is None
    assert recommended(3, None) is None
    assert recommended(9, replace(earlier, saves=2)) is None


def test_in_a_cluster_training_keeps_its_default_hang_timeout(make, clock) -> None:
    """Another process that is started again keeps training waiting for longer than any step took."""
    monitor, _, progress, _ = make()
    monitor.enter("training")
    train(progress, clock, 30)
    monitor.tick()
    assert monitor.status().session.progress_timeout_secs == 300.0


def test_a_phase_that_another_one_has_ended_stays_ended(make) -> None:
    """The session is lost in an evaluation, and restored by another thread: the evaluation's end changes no phase."""
    monitor, heard, _, _ = make(Options(heartbeat_secs=0))
    monitor.enter("training")
    with monitor.phase("evaluating"):
        monitor.enter("restoring")
    with monitor.phase("evaluating"):
        monitor.enter("restoring")
        monitor.enter("training")
    phases = [record.phase for record in heard.of(HeartbeatRecord)]
    assert phases == ["training", "evaluating", "restoring", "evaluating", "restoring", "training"]


def test_the_watchdog_s_count_is_in_the_next_heartbeat(make, clock) -> None:
    """Written at once, and in the metrics: by default a stall beyond the default hang timeout is counted."""
    monitor, heard, progress, _ = make(Options(heartbeat_secs=0))
    monitor.enter("training")
    train(progress, clock, 30)
    monitor.tick()
    ticks(monitor, clock, 305)
    assert (monitor.status().stalled, monitor.status().session.beat.watchdog_would_act) == (True, 0)
    ticks(monitor, clock, 10)
    assert monitor.status().session.beat.watchdog_would_act == heard.of(HeartbeatRecord)[-1].watchdog_would_act == 1


class Timed:
    """Stands for the files of stacks; its timer fires when a test sets it."""

    def __init__(self) -> None:
        self.fired: StacksLook | None = None
        self.timeouts: list[float | None] = []
        self.titles: list[str] = []

    def by_timer(self) -> StacksLook | None:
        fired, self.fired = self.fired, None
        return fired

    def arm(self, hang_timeout_secs: float | None) -> None:
        self.timeouts.append(hang_timeout_secs)

    def add(self, title: str, stacks: Any) -> None:
        self.titles.append(title)


BLOCKED = StacksLook(title="Python could not run", at=None, stacks={"MainThread": ("/x/train.py:88 main",)})


def test_a_stall_while_python_could_not_run_has_the_stack_of_that_time(make, clock) -> None:
    """The monitor runs when it is over, and the threads have moved on: the timer's stack is that of the hang."""
    stacks = Timed()
    monitor, heard, progress, _ = make(Options(hang_timeout_secs={"training": 20.0}), stacks=stacks)
    progress.enter("training")
    for _ in range(20):
        monitor.tick()
        clock.advance(1)
    clock.advance(1)
    stacks.fired = BLOCKED
    monitor.tick()
    [begin] = heard.of(StallRecord)
    assert (begin.thread, begin.location) == ("MainThread", "/x/train.py:88 main")
    assert begin.stacks["MainThread"] == ("/x/train.py:88 main",)
    assert set(stacks.timeouts) == {21.0} and len(stacks.titles) == 1


def test_a_time_without_python_that_is_no_stall_is_logged_with_its_place(make, clock, caplog) -> None:
    """Shorter than the hang timeout: there is no record of a stall."""
    stacks = Timed()
    monitor, heard, progress, _ = make(Options(hang_timeout_secs={"training": 300.0}), stacks=stacks)
    progress.enter("training")
    monitor.tick()
    clock.advance(30)
    stacks.fired = BLOCKED
    monitor.tick()
    monitor.tick()
    assert heard.of(StallRecord) == []
    assert stacks.titles == ["Python could not run for a while; MainThread was at train.py:88 in main"]
    assert "train.py:88 in main" in caplog.text


def test_a_hang_in_which_the_monitor_could_not_run_is_recorded_afterwards(make, clock, monkeypatch) -> None:
    """Native code held the interpreter lock for longer than the hang timeout: a stall with its begin and end, and no
    silence; the next heartbeat says why nothing came."""
    ran = [0.0]
    monkeypatch.setattr("supervisor_core.engine.progress.main_thread_secs", lambda clock: ran[0])
    monitor, heard, progress, _ = make(Options(heartbeat_secs=3600, hang_timeout_secs={"training": 30.0}))
    monitor.enter("training")
    monitor.tick()
    started = clock.now
    clock.advance(40)
    ran[0] += 40.0
    progress.run_ended(True, started, clock.now)
    monitor.tick()
    begin, end = heard.of(StallRecord)
    assert (begin.state, begin.secs, begin.timeout_secs) == ("begin", 40, 30.0)
    assert (end.state, end.secs) == ("end", 40)
    beat = heard.of(HeartbeatRecord)[-1]
    assert (beat.pause.cause, beat.pause.secs, beat.activity_secs["silent"]) == ("interpreter_blocked", 40, 0)
    assert not monitor.status().stalled
