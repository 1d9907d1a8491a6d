"""What a worker knows of its chief: whether the run has finished, or has not yet begun."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.lease_file import LeaseRecord
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, LogdirLock
from supervisor_core.engine.chief_status import FINISHED, ChiefStatus
from supervisor_core.errors import RunFinishedError

CHIEF = "6f1d3c0a9b7e4d21"


class Lease:
    """What the logdir's lease says: a record, nothing, or a fault."""

    def __init__(self) -> None:
        self.says: LeaseRecord | None = None
        self.fault: Exception | None = None

    def read(self, logdir: str | os.PathLike[str]) -> LeaseRecord | None:
        if self.fault is not None:
            raise self.fault
        return self.says

    def is_of(self, session: str, ended: str | None = None, **values: Any) -> None:
        """Have it say that this session is at work, or how it ended."""
        fields: dict[str, Any] = {"attempt": 1, "host": "a", "boot": None, "pid": 7, "started_at": 1.6e9}
        fields |= {"first_started_at": 1.6e9, "renewed_at": 1.7e9, "ended": ended, "ended_at": ended and 1.7e9}
        self.says = LeaseRecord(session=session, **{**fields, **values})


@pytest.fixture
def hands(clock_at: Callable[[float], Any]) -> Any:
    """The time, moved by the test."""
    return clock_at(100.0)


@pytest.fixture
def lease() -> Lease:
    """The lease, written by the test."""
    return Lease()


@pytest.fixture
def watch(hands: Any, lease: Lease) -> ChiefStatus:
    """A worker's chief status, with a minute's wait for a finished run to be restarted."""
    return ChiefStatus("/runs/a", finished_wait_secs=60.0, read=lease.read, clock=hands)


@pytest.mark.parametrize("ended", [None, "lost", "signal", "error"])
def test_a_run_that_goes_on_is_waited_for(watch: ChiefStatus, lease: Lease, hands: Any, ended: str | None) -> None:
    """While its chief is at work, and after an end that somebody is expected to mend, for as long as it takes."""
    lease.is_of(CHIEF, ended)
    for _ in range(3):
        assert watch.check() is None
        hands.now += 1e6


def test_a_run_that_has_not_begun_is_waited_for(watch: ChiefStatus, hands: Any) -> None:
    """No lease, no chief yet: nothing speaks against waiting."""
    for _ in range(3):
        assert watch.check() is None
        hands.now += 1e6


@pytest.mark.parametrize("ended", FINISHED)
def test_a_finished_run_may_be_continued(watch: ChiefStatus, lease: Lease, hands: Any, ended: str) -> None:
    """A worker that finds it finished says so, and for how long it will wait; then there is nothing left to do."""
    lease.is_of(CHIEF, ended, last_step=12345)
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


def test_the_end_is_reported_at_every_look(watch: ChiefStatus, lease: Lease, hands: Any) -> None:
    """Who asks again hears the same again."""
    lease.is_of(CHIEF, "completed")
    watch.check()
    hands.now += 60.0
    for _ in range(2):
        with pytest.raises(RunFinishedError):
            watch.check()


def test_no_wait_is_no_wait(lease: Lease, hands: Any) -> None:
    """With ``finished_wait_secs=0`` a finished run is the end at the first look."""
    lease.is_of(CHIEF, "completed")
    with pytest.raises(RunFinishedError):
        ChiefStatus("/runs/a", finished_wait_secs=0.0, read=lease.read, clock=hands).check()


def test_a_worker_that_was_there_does_not_wait(watch: ChiefStatus, lease: Lease) -> None:
    """It had seen that chief at work: when it finishes, all is done, at once."""
    lease.is_of(CHIEF)
    assert watch.check() is None
    lease.is_of(CHIEF, "completed")
    with pytest.raises(RunFinishedError):
        watch.check()


def test_one_that_always_waits_gives_a_chief_time_for_its_next_session(hands: Any, lease: Lease) -> None:
    """Though it had seen the chief running: a run is over only if no chief restarts it in time."""
    watch = ChiefStatus("/runs/a", finished_wait_secs=60.0, always_waits=True, read=lease.read, clock=hands)
    lease.is_of(CHIEF)
    assert watch.check() is None
    lease.is_of(CHIEF, "completed")
    hands.now += 3600.0
    assert watch.check() is not None
    hands.now += 60.0
    with pytest.raises(RunFinishedError):
        watch.check()


def test_another_chief_than_the_one_seen_at_work_is_not_the_end(watch: ChiefStatus, lease: Lease) -> None:
    """One was seen running, and another has finished since: that one may be restarted."""
    lease.is_of(CHIEF)
    assert watch.check() is None
    lease.is_of("another", "completed")
    assert watch.check() is not None


def test_a_continued_run_ends_the_wait(watch: ChiefStatus, lease: Lease, hands: Any) -> None:
    """The wait is over, and a later one is as long as the first."""
    lease.is_of(CHIEF, "completed")
    assert watch.check() is not None
    hands.now += 59.0
    lease.is_of("another", "signal")
    assert watch.check() is None
    hands.now += 59.0
    lease.is_of("a third", "completed")
    assert watch.check() is not None


def test_what_cannot_be_read_changes_nothing(
    watch: ChiefStatus, lease: Lease, hands: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A read error changes nothing, however often: one warning, and the wait continues."""
    lease.is_of(CHIEF, "completed")
    assert watch.check() is not None
    lease.fault = RuntimeError("the store is away")
    hands.now += 60.0
    assert (watch.check(), watch.check()) == (None, None)
    lease.fault = None
    with pytest.raises(RunFinishedError):
        watch.check()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages == ["Cannot read whether the run in /runs/a has finished: the store is away"]


def test_a_chief_seen_at_work_stays_seen(watch: ChiefStatus, lease: Lease) -> None:
    """Though the lease could not be read in between."""
    lease.is_of(CHIEF)
    watch.check()
    lease.says = None
    assert watch.check() is None
    lease.is_of(CHIEF, "exhausted")
    with pytest.raises(RunFinishedError):
        watch.check()


def test_the_lease_of_a_real_logdir(tmp_path: Path, hands: Any) -> None:
    """Read from the directory, without taking it: none, nonsense, one at work, one that has finished."""
    watch = ChiefStatus(tmp_path, finished_wait_secs=60.0, clock=hands)
    assert watch.check() is None
    (tmp_path / LEASE_NAME).write_bytes(b'{"v":nonsense')
    assert watch.check() is None
    lease = LogdirLock(tmp_path)
    lease.acquire(CHIEF)
    assert watch.check() is None
    lease.release("completed", last_step=3)
    with pytest.raises(RunFinishedError, match=rf"session {CHIEF} on .* ended \(completed\) at step 3"):
        watch.check()
