"""The monitor of a chief whose workers make no progress either: the learned hang timeout counts, and one is named."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine.monitor import SessionMonitor
from supervisor_core.engine.progress import ProgressSnapshot
from supervisor_core.engine.recorder import TelemetryRecorder
from supervisor_core.events.telemetry import HeartbeatRecord, Place, Record, SessionRecord, StallRecord, WorkerStatus

STUCK = Place(digest="b", location="/home/me/train.py:14 stuck", frames=("/home/me/train.py:14 stuck",))
WAITS = Place(digest="a", location="/home/me/train.py:25 train", waits_in="backward")
VERDICT = "rank 2 hangs at train.py:14 in stuck; ranks 0 and 1 wait for it at train.py:25 (backward)"


class Records(TelemetryRecorder):
    """Keeps them."""

    def __init__(self) -> None:
        super().__init__(None)
        self.kept: list[Record] = []

    def write(self, record: Record, step: int | None = None, **how: Any) -> bool:
        self.kept.append(record)
        return True


class Training(SessionMonitor):
    """A chief and two workers, of which each test says what they do; steps of 0.1 s."""

    def __init__(self, clock: Any, options: Options | None = None) -> None:
        self.clock, self.records, self.hurried = clock, Records(), 0
        self.last_step_at = clock.wall()
        self.others: list[tuple[Place, dict[str, Any]]] = [(WAITS, {}), (STUCK, {})]
        self.published: list[Place | None] = []
        super().__init__(
            SessionRecord(session="s1", attempt=1, run="a", started_at=clock.wall()),
            options=options or Options(heartbeat_secs=10),
            recorder=self.records,
            threads=lambda: (),
            clock=clock,
        )
        self._places.look = self.look  # type: ignore[method-assign]

    def _hurry_workers(self) -> None:
        self.hurried += 1

    def _note_place(self, place: Place | None, progress: ProgressSnapshot) -> None:
        self.published.append(place)

    def look(self, progress: ProgressSnapshot) -> Place | None:
        return WAITS if progress.progress_age_secs > 6.0 else None

    def _workers(self) -> tuple[WorkerStatus, ...]:
        """They stand still since the chief does."""
        age = self.clock.wall() - self.last_step_at
        return tuple(
            replace(
                WorkerStatus(
                    name=f"rank:{rank}", state="running", phase="training", last_seen_at=self.clock.wall(),
                    progress_age_secs=age, hang_timeout_secs=6.0, place=place if age > 6.0 else None,
                ),
                **change,
            )
            for rank, (place, change) in enumerate(self.others, 1)
        )  # fmt: skip

    def trains(self) -> Training:
        """Thirty steps."""
        self.enter("training")
        for _ in range(30):
            self.clock.advance(0.1)
            self.progress.run_ended(True, self.clock.monotonic() - 0.1, self.clock.monotonic())
        self.last_step_at = self.clock.wall()
        self.tick()
        return self

    def ticks(self, count: int) -> list[StallRecord]:
        for _ in range(count):
            self.clock.advance(1)
            self.tick()
        return [record for record in self.records.kept if isinstance(record, StallRecord)]


@pytest.fixture
def training(clock: Any) -> Callable[..., Training]:
    """Makes one that has learned its hang timeout."""
    return lambda options=None: Training(clock, options).trains()


def test_the_learned_hang_timeout_counts_and_one_is_named(
    training: Callable[..., Training], caplog: pytest.LogCaptureFixture
) -> None:
    """After six seconds, not after five minutes: in record, log and status, with where the workers are."""
    caplog.set_level(logging.WARNING)
    found = training()
    assert found.ticks(6) == []
    [stall] = found.ticks(1)
    assert (stall.state, stall.verdict, stall.culprit) == ("begin", VERDICT, "rank 2")
    assert (stall.timeout_secs, stall.culprit_location) == (6.0, "train.py:14 in stuck")
    assert f"{VERDICT[0].upper()}{VERDICT[1:]}." in caplog.text
    status = found.status()
    assert status.stalled and status.stall is not None
    assert (status.stall.verdict, status.stall.culprit) == (VERDICT, "rank 2")
    beat = [record for record in found.records.kept if isinstance(record, HeartbeatRecord)][-1]
    assert beat.workers is not None
    assert [worker.place for worker in beat.workers] == [WAITS, STUCK]
    assert found.hurried and found.published[-1] == WAITS and found.published[0] is None


@pytest.mark.parametrize(
    "change", [{"phase": "evaluating", "hang_timeout_secs": 3600.0}, {"held": True, "hang_timeout_secs": 300.0}]
)
def test_while_another_one_still_has_time_there_is_no_stall(
    training: Callable[..., Training], change: dict[str, Any]
) -> None:
    """It evaluates, or waits for a save: the others wait in the next step. The default hang timeout counts."""
    found = training()
    found.others[1] = (STUCK, change)
    assert found.ticks(299) == []
    assert found.status().session.progress_timeout_secs == 300.0
    [stall] = found.ticks(3)[:1]
    assert stall.verdict is not None and stall.verdict.startswith("rank 2 ")


def test_one_that_takes_too_long_for_its_phase_hangs(training: Callable[..., Training]) -> None:
    """An evaluation that was given ten seconds."""
    found = training()
    found.others[1] = (STUCK, {"phase": "evaluating", "hang_timeout_secs": 10.0})
    assert found.ticks(10) == []
    [stall] = found.ticks(1)
    assert stall.verdict is not None
    assert stall.verdict.startswith("rank 2 hangs at train.py:14 in stuck in the phase evaluating; ranks 0 and 1 wait")


def test_a_save_of_the_chief_keeps_its_time(training: Callable[..., Training]) -> None:
    """The others wait for it."""
    found = training()
    with found.progress.held():
        assert found.ticks(100) == []


def test_another_verdict_is_written(training: Callable[..., Training]) -> None:
    """The place of a rank was not known at first; the second look and ten more seconds."""
    found = training()
    found.others[1] = (WAITS, {"place": None, "progress_age_secs": 0.1, "state": "lost", "last_seen_at": 0.0})
    [begin] = found.ticks(8)
    assert begin.verdict is not None and begin.verdict.startswith("rank 2 has written nothing for ")
    lasts = found.ticks(10)[1]
    assert lasts.state == "lasts" and lasts.culprit == "rank 2" and len(found.ticks(10)) == 2
    found.others[1] = (STUCK, {})
    another = found.ticks(1)[2]
    assert (another.state, another.verdict, another.same_frames) == ("lasts", VERDICT, lasts.same_frames)


def test_the_error_of_a_stop_names_it(training: Callable[..., Training], caplog: pytest.LogCaptureFixture) -> None:
    """The watchdog acts as late as ever, and says which rank it was."""
    found = training()
    found.ticks(299)
    assert "nothing is done about it" not in caplog.text
    found.ticks(5)
    [line] = [record.getMessage() for record in caplog.records if "nothing is done about it" in record.getMessage()]
    assert f"{VERDICT[0].upper()}{VERDICT[1:]}." in line
