"""What a restarter has recorded of its program's end decides where the program itself has no record of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.events.telemetry import DeathRecord, LaunchRecord
from supervisor_core.metrics.page import run_status
from supervisor_core.metrics.table import RUN_METRICS
from supervisor_core.run.judge.counters import failures, unplanned_ends
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.judge.history import history
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun

RunOf = Callable[..., Run]
T0 = 1_700_000_000.0
ERROR_INFO = next(metric for metric in RUN_METRICS if metric.name == "supervisor_run_error_info")


@pytest.fixture
def launches(events_file: Any) -> Callable[..., Any]:
    """Returns a function for the restarter's events file: launches, one after the other, each with begin and end.

    Of each it takes the time of its begin, how long it lasted, and fields of its end; no fields: it still runs."""

    def file(*given: tuple[float, float, dict[str, Any] | None]) -> Any:
        made = events_file("restarter", created_at=given[0][0])
        for attempt, (began, secs, end) in enumerate(given, 1):
            about = {"launch": f"l{attempt}", "attempt": attempt, "started_at": began}
            made.record(LaunchRecord(state="begin", **about), 0, began)
            if end is not None:
                made.record(LaunchRecord(state="end", **{"action": "end", **about, **end}), 0, began + secs)
        return made

    return file


GIVEN_UP = {
    "cause": "error",
    "error": "ImportError at train.py:3 in <module>",
    "reason": "ImportError before the first step",
}


def test_a_program_that_never_wrote_an_event_has_failed_by_its_restarter(launches: Any, run_of: RunOf) -> None:
    """With its reason, in the metrics too. Until the restarter has given up, and where it was another process that
    trained, the state is unknown."""
    run = run_of(launches((T0, 5.0, {**GIVEN_UP, "action": "restart"}), (T0 + 6.0, 5.0, GIVEN_UP)), now=T0 + 12.0)
    assert (run.state, run.sessions) == ("failed", ())
    reason = (
        "given up by tb-supervisor: ImportError at train.py:3 in <module>; attempt 2; ImportError before the first step"
    )
    assert run.failure == reason
    status = run_status(run, T0 + 12.0)
    assert (status.state, status.active) == ("failed", False)
    assert [sample.labels["error"] for sample in ERROR_INFO.read(status, 0.0)] == ["ImportError"]
    for end in ({**GIVEN_UP, "action": "restart"}, None, {**GIVEN_UP, "cause": "in_use"}):
        waiting = run_of(launches((T0, 5.0, end)), now=T0 + 12.0)
        assert (waiting.state, waiting.failure) == ("unknown", None)
    for cause, state in (("completed", "completed"), ("stopped", "stopped")):
        assert run_of(launches((T0, 5.0, {"cause": cause})), now=T0 + 12.0).state == state


@pytest.mark.parametrize("node", ["", " on node 1"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_failed_is_named(trainer: Any, launches: Any, run_of: RunOf, rank: int, node: str) -> None:
    """And not the error of the first rank, which has lost it; that one's own error is in its session, with its text."""
    error = "RanksError: another rank has ended"
    session = trainer("a", T0 + 2.0).spend(3).ready().train(20).stop("error", error=error)
    end = {"cause": "error", "error": f"SIGKILL on rank {rank}{node}", "session": "a", "reason": "3 identical failures"}
    run = run_of(session, launches((T0, session.now - T0, end)), now=session.now + 1.0)
    named = f"given up by tb-supervisor: SIGKILL on rank 1{node}; attempt 1; 3 identical failures"
    assert (run.state, run.failure) == ("failed", named if rank else error)
    assert run.failure_error == (f"SIGKILL on rank 1{node}" if rank else error)


@pytest.mark.parametrize(
    ("end", "state", "outcome"),
    [
        ({"cause": "signal", "signal": "SIGKILL", "reason": "3 launches without progress"}, "failed", "lost"),
        ({"cause": "signal", "signal": "SIGKILL", "action": "restart"}, "unknown", "lost"),
        ({"cause": "completed"}, "completed", "completed"),
        ({"cause": "stopped", "signal": "SIGTERM"}, "stopped", "signal"),
        ({"cause": "in_use"}, "running", "running"),
        (None, "running", "running"),
    ],
)
def test_a_session_without_a_stop_record_has_ended_with_its_launch(
    trainer: Any, launches: Any, run_of: RunOf, end: dict[str, Any] | None, state: str, outcome: str
) -> None:
    """At once, and not when it has been silent for long; by its telemetry, or by the files of any other writer."""
    session = trainer("a", T0 + 2.0).spend(3).ready().train(20)
    run = run_of(session, launches((T0, session.now - T0 + 1.0, end)), now=session.now + 5.0)
    assert (run.state, run.sessions[-1].outcome) == (state, outcome)
    assert run.sessions[-1].gone is (state != "running")
    assert sum(run.goodput.secs.values()) == pytest.approx(run.goodput.wall_secs)


def test_the_files_of_another_writer_end_with_their_launch(events_file: Any, launches: Any, run_of: RunOf) -> None:
    """Their state is known then, though nothing in them says it."""
    other = events_file("other", created_at=T0 + 1.0).scalars("loss", range(30), T0 + 2.0)
    for cause, state in (("completed", "completed"), ("oom", "failed"), ("stopped", "stopped")):
        run = run_of(other, launches((T0, 33.0, {"cause": cause})), now=T0 + 40.0)
        assert (run.state, run.inferred, run.step) == (state, True, 29)
    later = events_file("other", created_at=T0 + 1.0).scalars("loss", range(60), T0 + 2.0)
    assert run_of(later, launches((T0, 33.0, {"cause": "oom"})), now=T0 + 62.0).state == "running"  # not of that launch


def test_a_program_without_telemetry_has_the_error_that_it_printed(
    events_file: Any, launches: Any, run_of: RunOf
) -> None:
    """Where a supervised session has its own. Not of one that goes on, nor of a later launch that wrote nothing."""
    end = {"cause": "error", "exit_code": 1, "error": "KeyError at a.py:3 in f", "stderr": "x\nKeyError: 'cat'\n \n"}
    other = events_file("other", created_at=T0 + 1.0).scalars("loss", range(30), T0 + 2.0)
    run = run_of(other, launches((T0, 33.0, end)), now=T0 + 40.0)
    assert (run.sessions[-1].error, run.failure) == ("KeyError: 'cat' at a.py:3 in f",) * 2
    assert run.sessions[-1].outcome == "error"
    assert run.failure_error == run.failure
    ranks = {
        "error": "KeyError at a.py:3 in f on rank 1",
        "stderr": "[rank1]: KeyError: 'cat'\n[rank0]: KeyError: 'dog'\n",
    }
    run = run_of(other, launches((T0, 33.0, {**end, **ranks})), now=T0 + 40.0)
    assert run.failure == "KeyError: 'cat' at a.py:3 in f on rank 1"
    handled = "AssertionError: old\n\nDuring handling of the above exception:\n\nAssertionError\n"
    without = {**end, "error": "AssertionError at a.py:3 in f", "stderr": handled}
    run = run_of(other, launches((T0, 33.0, without)), now=T0 + 40.0)
    assert (run.failure, run.failure_error) == ("AssertionError at a.py:3 in f",) * 2
    later = events_file("other", created_at=T0 + 1.0).scalars("loss", range(60), T0 + 2.0)
    assert run_of(later, launches((T0, 33.0, end)), now=T0 + 62.0).sessions[-1].error is None
    twice = launches((T0, 33.0, {**end, "action": "restart"}), (T0 + 40.0, 5.0, GIVEN_UP))
    run = run_of(other, twice, now=T0 + 50.0)
    assert (run.failure or "").startswith("given up by tb-supervisor: ImportError at train.py:3 in <module>; att")
    assert run.failure_error == "ImportError at train.py:3 in <module>"


def test_a_session_that_no_launch_started_is_left_alone(trainer: Any, launches: Any, run_of: RunOf) -> None:
    """It began before: somebody started it by hand, and a restarter beside it gives up. And one that began after a
    launch has ended is a new one."""
    session = trainer("a", T0).spend(3).ready().train(100)
    beside = launches((T0 + 50.0, 10.0, GIVEN_UP))
    assert run_of(session, beside, now=session.now + 1.0).state == "running"
    before = launches((T0 - 50.0, 10.0, GIVEN_UP))
    assert run_of(session, before, now=session.now + 1.0).state == "running"


def test_a_session_that_was_ended_because_it_hung_has_failed(trainer: Any, launches: Any, run_of: RunOf) -> None:
    """Its own stop record has only the signal. One that was preempted, and then could not be started, has failed too;
    one that was completed stays so."""
    session = trainer("a", T0 + 2.0).spend(3).ready().train(20).stop("signal")
    hung = {"cause": "hang", "decided_by": "watchdog", "session": "a", "error": "hang at train.py:8 in step"}
    run = run_of(session, launches((T0, session.now - T0, hung)), now=session.now + 1.0)
    given_up = "given up by tb-supervisor: hung at train.py:8 in step; attempt 1"
    assert (run.state, run.failure) == ("failed", given_up)
    assert run_of(session, launches((T0, 60.0, {**hung, "action": "restart"})), now=T0 + 61).state == "unknown"
    preempted = {"cause": "preempted", "action": "restart", "session": "a"}
    then = launches((T0, session.now - T0, preempted), (session.now + 1.0, 2.0, GIVEN_UP))
    run = run_of(session, then, now=session.now + 4.0)
    assert run.state == "failed" and "ImportError" in str(run.failure)
    done = trainer("a", T0 + 2.0).spend(3).ready().train(20).stop("completed")
    assert run_of(done, launches((T0, 60.0, None), (T0 + 61, 2.0, GIVEN_UP)), now=T0 + 64.0).state == "completed"


def test_who_reads_of_a_failure_reads_that_nobody_starts_it_again(trainer: Any, launches: Any, run_of: RunOf) -> None:
    """With the restarter's reason: else it may be taken for one that is restarted by itself."""
    session = trainer("a", T0 + 2.0).spend(3).ready().train(20).stop("error", error="ValueError: no")
    end = {"cause": "error", "session": "a", "error": "ValueError at train.py:8 in step"}
    run = run_of(session, launches((T0, 60.0, {**end, "reason": "3 identical failures"})), now=T0 + 61)
    (said,) = findings(WatchedRun(directory="/run", run=run, files=()), T0 + 61)
    expected = "The training has failed: ValueError: no. tb-supervisor does not start it again: 3 identical failures."
    assert (said.kind, said.text) == ("failed", expected)


def test_a_killed_run_is_not_lost_while_its_restarter_starts_it_again(
    trainer: Any, launches: Any, fold_of: Any
) -> None:
    """Nobody has to act, until the restarter is gone, or its wait has been over for long."""
    session = trainer("a", T0 + 2.0).spend(3).ready().train(20)
    end = {"cause": "oom", "session": "a", "backoff_secs": 60.0, "action": "restart"}
    fold = fold_of(session, launches((T0, session.now + 1.0 - T0, end)))
    for is_alive in (True, False):
        run = fold.run(session.now + 30.0, restarter_runs=lambda launch, found=is_alive: found)
        assert (run.state, run.restarting) == ("unknown" if is_alive else "lost", is_alive)
        assert run.sessions[-1].outcome == "lost" and run.at_risk is not None
    assert fold.run(session.now + 700.0, restarter_runs=lambda launch: True).state == "lost"


def test_nobody_starts_what_was_killed_a_moment_ago(trainer: Any, launches: Any, fold_of: Any) -> None:
    """The process is gone, and its restarter, which runs, has not recorded it yet: it is about to start it again. A
    restarter that is gone, or of which nothing is known, does not."""
    session = trainer("a", T0 + 2.0).spend(3).ready().train(20)
    fold = fold_of(session, launches((T0, 0.0, None)))
    fold.died(DeathRecord(session="a"))
    for is_alive in (True, False, None):
        run = fold.run(session.now + 1.0, restarter_runs=lambda launch, found=is_alive: found)
        assert (run.state, run.restarting) == ("unknown" if is_alive else "lost", is_alive is True)


@pytest.mark.parametrize(("ended", "state"), [("error", "failed"), ("signal", "stopped"), ("completed", "completed")])
def test_a_run_that_is_started_again_is_neither_failed_nor_stopped(
    trainer: Any, launches: Any, fold_of: Any, ended: str, state: str
) -> None:
    """While its restarter lives: in the backoff, and until the next launch has a session. Where that is unknown, for
    ten minutes. What it may lose is still shown."""
    session = (
        trainer("a", T0 + 2.0)
        .spend(3)
        .ready()
        .train(20)
        .stop(ended, error="ValueError: NaN" if ended == "error" else None)
    )
    end = {"cause": "error", "session": "a", "backoff_secs": 5.0, "action": "restart"}
    ended_at = session.now + 1.0
    first = (T0, ended_at - T0, end)
    again = state if state == "completed" else "unknown"
    for files, since in (
        (launches(first), ended_at + 5.0),
        (launches(first, (ended_at + 5.0, 0.0, None)), ended_at + 5.0),
    ):
        fold = fold_of(session, files)
        for is_alive, now, expected in (
            (True, since + 90.0, again),
            (True, since + 86400.0, again),
            (None, since + 90.0, again),
            (None, since + 600.5, state),
            (False, since, state),
        ):
            run = fold.run(now, restarter_runs=lambda launch, found=is_alive: found)
            assert (run.state, is_alive) == (expected, is_alive)
            assert run.restarting == (expected == "unknown")
            assert (run.failure is not None) == (run.state == "failed")
            assert run.sessions[-1].outcome == ended and (run.at_risk is not None) == (ended == "error")
    undecided = fold_of(session, launches((T0, 0.0, None)))
    assert undecided.run(ended_at, restarter_runs=lambda launch: True).state == state


def test_a_session_after_the_decision_counts_for_itself(trainer: Any, launches: Any, run_of: RunOf) -> None:
    """The next one failed, too: until the restarter has decided again, the run has failed."""
    session = trainer("a", T0 + 60.0).spend(3).ready().train(20).stop("error", error="ValueError: NaN")
    end = {"cause": "error", "action": "restart"}
    assert run_of(session, launches((T0, 50.0, end), (T0 + 59.0, 0.0, None))).state == "failed"
    assert run_of(session, launches((T0, 50.0, end))).state == "failed"


def test_a_program_without_telemetry_fails_once(events_file: Any, launches: Any, run_of: RunOf) -> None:
    """Its inferred session ends with its launch: one failure, one finding, by the launch's cause; also of the launch
    before, whose session nobody has seen end."""
    end = {"cause": "error", "exit_code": 1, "error": "KeyError at a.py:3 in f", "host": "node-1"}
    files = [
        events_file(f"other-{number}", created_at=began + 1.0).scalars("loss", range(30), began + 2.0)
        for number, began in enumerate((T0, T0 + 40.0))
    ]
    run = run_of(*files, launches((T0, 33.0, {**end, "action": "restart"}), (T0 + 40.0, 33.0, end)), now=T0 + 80.0)
    assert [session.inferred for session in run.sessions] == [True, True]
    assert failures(run, T0 + 80.0) == {("node-1", "error"): 2}
    found = [(item.kind, item.evidence["ended"], item.evidence["step"]) for item in history(run)]
    assert found == [("failed", "l1", 29), ("failed", "l2", 29)]
    assert unplanned_ends(run) == ["error", "error"]
    by_hand = run_of(files[0], launches((T0 + 40.0, 33.0, end)), now=T0 + 80.0)  # and then under a restarter
    assert (failures(by_hand, T0 + 80.0), unplanned_ends(by_hand)) == ({("node-1", "error"): 1}, [None])
    unsaid = run_of(files[0], launches((T0, 33.0, {**end, "cause": None})), now=T0 + 80.0)
    assert (failures(unsaid, T0 + 80.0), unplanned_ends(unsaid)) == ({("node-1", "lost"): 1}, ["lost"])
    planned = run_of(files[0], launches((T0, 33.0, {"cause": "completed"})), now=T0 + 80.0)
    assert (failures(planned, T0 + 80.0), unplanned_ends(planned)) == ({}, [None])
    later = run_of(files[1], launches((T0, 33.0, end)), now=T0 + 9_000.0)  # by hand, after the launch
    assert (failures(later, T0 + 9_000.0)["node-1", "error"], unplanned_ends(later)) == (1, [None])


@pytest.mark.parametrize("now", [T0 + 99.0, T0 + 3_000.0])
@pytest.mark.parametrize("second", [{"cause": "stopped"}, {"cause": None}, None])
def test_a_file_that_a_later_launch_goes_on_with(
    events_file: Any, launches: Any, run_of: RunOf, second: dict[str, Any] | None, now: float
) -> None:
    """Its session did not end with the launch that failed: one failure, at that launch's end, of an unknown step."""
    whole = events_file("whole", created_at=T0 + 1.0).scalars("loss", range(90), T0 + 2.0)
    failed = {
        "cause": "error",
        "exit_code": 1,
        "error": "KeyError at a.py:3 in f",
        "host": "node-1",
        "action": "restart",
    }
    run = run_of(whole, launches((T0, 40.0, failed), (T0 + 45.0, 50.0, second)), now=now)
    assert (failures(run, now)["node-1", "error"], unplanned_ends(run)) == (1, [None])
    (found,) = [item for item in history(run) if item.kind == "failed"]
    assert found.evidence["ended"] == "l1" and "step" not in found.evidence
