"""What a restarter has recorded of a launch that runs decides the state of a run that has no telemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.events.telemetry import LaunchRecord, StallRecord
from supervisor_core.metrics.page import run_status
from supervisor_core.run.fold.end import LOST_SECS
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun

RunOf = Callable[..., Run]
T0 = 1_700_000_000.0
LAUNCH: dict[str, Any] = {"launch": "l1", "attempt": 1, "started_at": T0, "host": "node-3", "pid": 4711}
HANGS_AT = T0 + 100.0
TRAIN = "/x/train.py:5 step"


def stall(state: Any, secs: float, **more: Any) -> StallRecord:
    """What is recorded of a hang that began after thirty seconds."""
    return StallRecord(session="l1", state=state, since=T0 + 30.0, secs=secs, thread="MainThread", **more)


@pytest.fixture
def other(events_file: Any) -> Any:
    """The events of another writer, one a second for half a minute."""
    return events_file("other", created_at=T0 + 1.0).scalars("loss", range(30), T0 + 1.0)


@pytest.fixture
def records(events_file: Any) -> Callable[..., list[Any]]:
    """Returns a function for the files of a restarter: one with the begin of a launch, one with all that follows."""

    def files(*given: tuple[float, dict[str, Any]]) -> list[Any]:
        begun = events_file("restarter1", created_at=T0 - 1.0).record(LaunchRecord(state="begin", **LAUNCH), 0, T0)
        made = events_file("restarter2", created_at=T0 - 1.0)
        for at, fields in given:
            made.record(LaunchRecord(**{"state": "runs", **LAUNCH, **fields}), 0, at)
        return [made, begun]

    return files


SEEN = {"progress_timeout_secs": 3600.0}
BEGINS = {"stall": stall("begin", 70.0, location=TRAIN, stacks={"MainThread": (TRAIN,)})}
LASTS = {"stall": stall("lasts", 80.0, same_frames=True, activity="waits")}


@pytest.mark.parametrize("runs", [True, False, None], ids=["it runs", "it is gone", "another machine"])
def test_a_program_without_telemetry_runs_while_its_restarter_says_so(
    other: Any, records: Any, fold_of: Any, runs: bool | None
) -> None:
    """Though it is silent for longer than its rhythm allows. It is lost with its restarter: where that cannot be looked
    up, once it has recorded nothing for a while."""
    fold = fold_of(other, *records((T0 + 10.0, SEEN), (T0 + 1000.0, SEEN)))
    states = [fold.run(now, restarter_runs=lambda launch: runs).state for now in (T0 + 1001.0, T0 + 1001.0 + LOST_SECS)]
    assert states == {True: ["running"] * 2, False: ["lost"] * 2, None: ["running", "lost"]}[runs]
    status = run_status(fold.run(T0 + 1001.0, restarter_runs=lambda launch: runs), T0 + 1001.0)
    assert (status.active, status.stalled, status.session.progress_timeout_secs) == (runs is not False, False, 3600.0)
    assert status.session_seen_at == T0 + (1001.0 if runs else 1000.0)


def test_without_a_restarter_its_silence_says_nothing(other: Any, run_of: RunOf) -> None:
    """It may have ended."""
    run = run_of(other, now=T0 + 1001.0)
    assert run.state == "unknown" and run_status(run, T0 + 1001.0).active is None


def test_a_hang_that_the_restarter_sees_is_a_stall_of_the_run(other: Any, records: Any, run_of: RunOf) -> None:
    """From its first look until there is progress, or the launch is over; with the line, the stacks, the activity."""
    run = run_of(other, *records((T0 + 10.0, SEEN), (HANGS_AT, BEGINS), (HANGS_AT + 10.0, LASTS)), now=HANGS_AT + 11.0)
    (found,) = run.stalls
    assert (run.state, run.steps_per_sec, found.until, found.secs) == ("stalled", 0.0, None, 81.0)
    assert (found.session, found.location, found.activity) == ("inferred-1", TRAIN, "waits")
    assert found.stacks == {"MainThread": (TRAIN,)}
    (said,) = findings(WatchedRun(run=run, files=(), directory="/runs"), HANGS_AT + 11.0)
    assert said.kind == "stalled" and "MainThread waits at train.py:5 in step (process 4711 on node-3)" in said.text
    assert said.action == "tb-supervisor stacks -- /runs"
    again = (HANGS_AT + 20.0, {"stall": stall("end", 90.0)})
    run = run_of(other, *records((T0 + 10.0, SEEN), (HANGS_AT, BEGINS), again), now=HANGS_AT + 21.0)
    assert (run.state, run.stalls[0].until) == ("running", HANGS_AT + 20.0)
    ended = (HANGS_AT + 15.0, {"state": "end", "cause": "hang", "action": "restart"})
    for later, state in ((16.0, "unknown"), (700.0, "lost")):  # it is started again, and is not
        run = run_of(other, *records((T0 + 10.0, SEEN), (HANGS_AT, BEGINS), ended), now=HANGS_AT + later)
        assert (run.state, run.stalls[0].until, run.stalls[0].secs) == (state, HANGS_AT + 15.0, 85.0)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_hang_that_the_session_could_not_record_is_known_by_its_restarter(
    trainer: Any, records: Any, run_of: RunOf, is_recorded: bool
) -> None:
    """Of a program with telemetry: one that it has recorded itself is the same one, and counts as it says."""
    session = trainer("a", T0).spend(3).ready().train(27)
    if is_recorded:
        session.spend(10, moving=False).stall("begin", T0 + 30.0, location="/x/train.py:9 own")
    seen = {"stall": StallRecord(session="a", state="begin", since=T0 + 30.0, secs=70.0, location=TRAIN)}
    run = run_of(session, *records((HANGS_AT, seen)), now=session.now + 1.0)
    assert [each.location for each in run.stalls] == ["/x/train.py:9 own" if is_recorded else TRAIN]
    assert run.stalls[0].session == "a"
