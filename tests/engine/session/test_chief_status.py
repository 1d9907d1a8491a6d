"""What a worker knows of its chief: whether the run has finished, or has not yet begun."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import RunFinishedError
from supervisor_core.engine.chief_status import FINISHED, ChiefStatus
from supervisor_core.engine.liveness_writer import LivenessFile
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.run.watch.liveness import CHIEF as CHIEF_TASK

CHIEF = "6f1d3c0a9b7e4d21"


class Liveness:
    """What the chief's liveness file says: a record, nothing, or a fault."""

    def __init__(self) -> None:
        self.says: LivenessRecord | None = None
        self.fault: Exception | None = None

    def read(self, logdir: str | os.PathLike[str]) -> LivenessRecord | None:
        if self.fault is not None:
            raise self.fault
        return self.says

    def is_of(self, session: str, ended: str | None = None, **values: Any) -> None:
        """Have it say that this session is at work, or how it ended."""
        fields: dict[str, Any] = {"task": CHIEF_TASK, "host": "a", "pid": 7, "started_at": 1.6e9, "written_at": 1.7e9}
        fields |= {"beats": 1, "interval_secs": 10.0, "phase": "training", "ended": ended}
        self.says = LivenessRecord(session=session, **{**fields, **values})


@pytest.fixture
def hands(clock_at: Callable[[float], Any]) -> Any:
    """The time, moved by the test."""
    return clock_at(100.0)


@pytest.fixture
def liveness() -> Liveness:
    """The file, written by the test."""
    return Liveness()


@pytest.fixture
def watch(hands: Any, liveness: Liveness) -> ChiefStatus:
    """A worker's chief status, with a minute's wait for a finished run to be restarted."""
    return ChiefStatus("/runs/a", finished_wait_secs=60.0, read=liveness.read, clock=hands)


GOES_ON, WAITS, IS_OVER = "goes on", "waits", "is over"


@pytest.mark.parametrize(
    ("options", "story"),
    [
        # A chief at work, or an end that somebody is expected to mend, is waited for as long as it takes.
        *[({}, [(CHIEF, ended, 1e6, GOES_ON)] * 3) for ended in (None, "lost", "signal", "error")],
        # So is a run that has not begun.
        ({}, [(None, None, 1e6, GOES_ON)] * 3),
        # Whoever asks again when the wait is over hears the same again.
        ({}, [(CHIEF, "completed", 0, WAITS), *[(CHIEF, "completed", 60, IS_OVER)] * 2]),
        # Without a wait a finished run is the end at the first check.
        ({"finished_wait_secs": 0.0}, [(CHIEF, "completed", 0, IS_OVER)]),
        # A worker that had seen that chief at work need not wait, though the file could not be read in between ...
        ({}, [(CHIEF, None, 0, GOES_ON), (CHIEF, "completed", 0, IS_OVER)]),
        ({}, [(CHIEF, None, 0, GOES_ON), (None, None, 0, GOES_ON), (CHIEF, "exhausted", 0, IS_OVER)]),
        # ... but one that always waits, for a chief that restarts the run in time.
        ({"always_waits": True}, [(CHIEF, None, 0, GOES_ON), (CHIEF, "completed", 3600, WAITS),
                                  (CHIEF, "completed", 60, IS_OVER)]),
        # Another chief than the one that was seen at work may be restarted.
        ({}, [(CHIEF, None, 0, GOES_ON), ("another", "completed", 0, WAITS)]),
        # A run that is continued ends the wait, and a later wait is as long as the first.
        ({}, [(CHIEF, "completed", 0, WAITS), ("another", "signal", 59, GOES_ON), ("a third", "completed", 59, WAITS)]),
    ],
)  # fmt: skip
def test_what_a_worker_does_about_its_chief(
    liveness: Liveness, hands: Any, options: dict[str, Any], story: list[tuple[str | None, str | None, float, str]]
) -> None:
    """Each line of a story: the file's session, how it ended, after how many seconds, and what the worker does."""
    watch = ChiefStatus("/runs/a", **{"finished_wait_secs": 60.0, **options}, read=liveness.read, clock=hands)
    for session, ended, secs, expected in story:
        hands.now += secs
        liveness.says = None
        if session is not None:
            liveness.is_of(session, ended)
        if expected == IS_OVER:
            with pytest.raises(RunFinishedError):
                watch.check()
        else:
            assert (watch.check() is None) is (expected == GOES_ON)


@pytest.mark.parametrize("ended", FINISHED)
def test_a_finished_run_may_be_continued(watch: ChiefStatus, liveness: Liveness, hands: Any, ended: str) -> None:
    """A worker that finds it finished says so, and for how long it will wait; then there is nothing left to do."""
    liveness.is_of(CHIEF, ended, step=12345)
    assert watch.check() == (
        "a chief to continue the run, within 60 s: the run in /runs/a has finished: "
        "session 6f1d3c0a9b7e4d21 on a ended "
        f"({ended}) at step 12,345, 2023-11-14 22:13:20 UTC"
    )
    hands.now += 59.0
    waits_for = watch.check()
    assert waits_for is not None
    assert waits_for.startswith("a chief to continue the run, within 1 s: ")
    hands.now += 1.0
    with pytest.raises(
        RunFinishedError, match=r"There is nothing left to do here: the run in /runs/a has finished: .*\.$"
    ):
        watch.check()


def test_what_cannot_be_read_changes_nothing(
    watch: ChiefStatus, liveness: Liveness, hands: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A read error changes nothing, however often: one warning, and the wait continues."""
    liveness.is_of(CHIEF, "completed")
    assert watch.check() is not None
    liveness.fault = RuntimeError("the store is away")
    hands.now += 60.0
    assert (watch.check(), watch.check()) == (None, None)
    liveness.fault = None
    with pytest.raises(RunFinishedError):
        watch.check()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages == ["Cannot read whether the run in /runs/a has finished: the store is away"]


def test_the_file_of_a_real_logdir(tmp_path: Path, hands: Any, liveness: Liveness) -> None:
    """None, one at work, one that has finished; nonsense."""
    watch = ChiefStatus(tmp_path, finished_wait_secs=60.0, clock=hands)
    assert watch.check() is None
    file = LivenessFile(str(tmp_path), CHIEF_TASK, CHIEF)
    liveness.is_of(CHIEF)
    assert liveness.says is not None and file.write(liveness.says) is None
    assert watch.check() is None
    liveness.is_of(CHIEF, "completed", step=3)
    assert file.write(liveness.says) is None
    with pytest.raises(RunFinishedError, match=rf"session {CHIEF} on .* ended \(completed\) at step 3"):
        watch.check()
    (tmp_path / ".supervisor.live/chief.json").write_bytes(b'{"v":nonsense')
    assert watch.check() is None
