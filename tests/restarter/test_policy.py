"""Whether a training that has ended is started again: each rule."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.restarter.logdir_view import decode_state, encode_state
from supervisor_core.restarter.policy import (
    HOUR_SECS,
    ChildEnd,
    Decision,
    EndedLaunch,
    Failure,
    Limits,
    RestartState,
    decide,
    made_progress,
    next_step,
    reset,
)
from tests.cases import each

DEFECT = Failure(type="RuntimeError", where="train.py:88 in step", step=1000)


def ended(**given: Any) -> EndedLaunch:
    """A launch that failed with status 1, in a logdir that could be read, without a checkpoint and after a step."""
    values: dict[str, Any] = {
        "cause": "error",
        "is_known": True,
        "saved_step": 100,
        "has_stepped": True,
    }
    end = ChildEnd(
        exit_code=given.pop("exit_code", 1), signal=given.pop("signal", None), stderr=given.pop("stderr", "")
    )
    return EndedLaunch(end=end, ended_at=given.pop("at", 0.0), **{**values, **given})


def run(launches: list[EndedLaunch], limits: Limits | None = None, chance: float = 1.0) -> list[Decision]:
    """The decisions after launches in a row, up to one that ends it; the logdir had a checkpoint of step 100 before."""
    state, found = RestartState(best_saved_step=100), []
    for launch in launches:
        state, decision = decide(state, launch, limits or Limits(), chance=chance)
        found.append(decision)
        if decision.action == "end":
            break
    return found


@each(
    "given, status, signum",
    [
        ({"cause": "completed", "exit_code": 0}, 0, None),
        ({"cause": "stopped", "exit_code": None, "signal": 15}, 0, 15),
        ({"cause": "stopped", "exit_code": 3}, 3, None),
        ({"cause": "stopped", "exit_code": 0}, 0, None),
        ({"cause": "stopped", "exit_code": 0, "was_stopped": True}, 0, 15),
        ({"exit_code": 93}, 93, None),
        ({"exit_code": 17}, 93, None),
    ],
)
def test_some_ends_are_final(given: dict[str, Any], status: int, signum: int | None) -> None:
    """A program that is done; one that was asked to stop, with its own status or the signal, which a wrapper with
    status 0 does not hide where the record has it; 93 always, and the statuses that were given."""
    decision = run([ended(**given)], Limits(never=(93, 17)))[-1]
    assert (decision.action, decision.status, decision.signal) == ("end", status, signum)


UNKNOWN: dict[str, Any] = {"is_known": False, "saved_step": None}


@each(
    "launches, count, status, reason",
    [
        ([ended(failure=replace(DEFECT, step=n)) for n in (300, 200, 400)], 3, 93, "3 launches without progress"),
        (
            [ended(saved_step=900, failure=replace(DEFECT, step=n)) for n in (1000, 1001, 1000)],
            *(3, 93, "3 identical failures: RuntimeError at train.py:88 in step, step 1,000"),
        ),
        ([ended(at=60.0 * n, **UNKNOWN) for n in range(20)], 11, 94, "11 restarts within an hour"),
        ([ended(cause="preempted", at=60.0 * n, **UNKNOWN) for n in range(20)], 11, 94, "11 restarts within an hour"),
        ([ended(cause="preempted", exit_code=75, failure=DEFECT)] * 9, 3, 93, "3 launches without progress"),
        ([ended(cause="requested", exit_code=75, failure=DEFECT)] * 9, 3, 93, "3 launches without progress"),
    ],
)
def test_the_counts_end_it(launches: list[EndedLaunch], count: int, status: int, reason: str) -> None:
    """Each with its status, after a wait before each launch: failures that differ by their number; identical ones, by
    type, innermost frame and step, give or take one, though the first may have made progress; where progress is unknown
    the rate. Preemption is none of the program's failures."""
    decisions = run(launches)
    assert [item.action for item in decisions] == ["restart"] * (count - 1) + ["end"]
    assert (decisions[-1].status, decisions[-1].reason) == (status, reason)
    assert [item.delay_secs for item in decisions[:2]] == [1.0, 2.0]


@each(
    "launches",
    [
        [ended(at=HOUR_SECS / 9 * n, **UNKNOWN) for n in range(50)],
        [ended(exit_code=2)],
        [ended(failure=Failure(type="ImportError"))],
    ],
)
def test_other_launches_are_followed_by_another(launches: list[EndedLaunch]) -> None:
    """A mount that is gone for a minute may fail an import after days of training."""
    assert [item.action for item in run(launches)] == ["restart"] * len(launches)


def test_progress_resets_the_count_and_the_wait() -> None:
    """A verified checkpoint above the best ever is progress; the same checkpoint again is none."""
    decisions = run([ended(), ended(), ended(saved_step=200), ended(saved_step=200), ended(saved_step=200)])
    assert [item.delay_secs for item in decisions] == [1.0, 2.0, 1.0, 2.0, 4.0]
    assert [item.progress for item in decisions] == [False, False, True, False, False]


def test_a_run_that_progresses_is_never_given_up() -> None:
    """However often and however fast it fails, in the same way each time."""
    launches = [ended(at=float(n), saved_step=101 + n, failure=DEFECT) for n in range(2000)]
    decisions = run(launches)
    assert len(decisions) == 2000
    assert {item.action for item in decisions} == {"restart"}
    assert max(item.delay_secs for item in decisions) == 1.0


@each("other", [{"type": "ValueError"}, {"where": "train.py:89 in step"}, {"step": 1002}])
def test_another_failure_is_not_identical(other: dict[str, Any]) -> None:
    """Each of the three must agree."""
    assert not DEFECT.is_same(replace(DEFECT, **other))


def test_failures_at_an_unknown_step_are_identical_only_by_their_place() -> None:
    """Two kills without a traceback and a step have nothing in common but the signal."""
    assert replace(DEFECT, step=None).is_same(replace(DEFECT, step=None))
    assert not Failure(type="SIGKILL").is_same(Failure(type="SIGKILL"))


def test_workers_that_are_killed_alike_are_identical() -> None:
    """Their process ids are others each time."""
    killed = [
        replace(DEFECT, where=f"DataLoader worker (pid {pid}) was killed by {name}")
        for pid, name in ((12, "SIGKILL"), (13, "SIGKILL"), (13, "SIGSEGV"))
    ]
    assert killed[0].is_same(killed[1]) and not killed[1].is_same(killed[2])


def test_unknown_is_not_none() -> None:
    """A launch of which nothing is known neither counts as one without progress nor resets the count."""
    decisions = run([ended(), ended(is_known=False, saved_step=None), ended(), ended()])
    assert [item.action for item in decisions] == ["restart", "restart", "restart", "end"]
    assert decisions[1].progress is None and decisions[1].counted


def test_a_run_that_never_saved_is_judged_by_its_steps() -> None:
    """The highest step of the run has to rise; once there is a checkpoint, steps alone are no progress."""
    state = RestartState(best_reached_step=50)
    assert made_progress(state, ended(saved_step=None, reached_step=51)) is True
    assert made_progress(state, ended(saved_step=None, reached_step=50)) is False
    assert made_progress(state, ended(saved_step=None, reached_step=None)) is False
    saved = replace(state, best_saved_step=40)
    assert made_progress(saved, ended(saved_step=None, reached_step=90)) is False
    assert made_progress(saved, ended(saved_step=41, is_known=False)) is True


@each("cause", ["preempted", "requested"])
def test_preemption_with_progress_is_neither_counted_nor_delayed(cause: Any) -> None:
    """The program has saved before it ended: it goes on at once, however often."""
    decisions = run([ended(cause=cause, exit_code=75, at=float(n), saved_step=101 + n) for n in range(200)])
    assert len(decisions) == 200
    assert not any(item.counted or item.delay_secs for item in decisions)


def test_preemption_between_failures_hides_none_of_them() -> None:
    """Nor does it stand for one: the failures before and after it are alike, it is not."""
    preempted = ended(cause="preempted", failure=replace(DEFECT, type="SIGTERM"))
    launches = [ended(failure=DEFECT), preempted, ended(failure=DEFECT), preempted, ended(failure=DEFECT)]
    decisions = run(launches, Limits(no_progress_limit=100))
    assert len(decisions) == 5 and decisions[-1].reason.startswith("3 identical failures: RuntimeError")


def test_a_machine_that_was_lost_is_no_failure() -> None:
    """A spot machine may be taken away before the first checkpoint, again and again."""
    decisions = run([ended(cause="preempted", exit_code=None)] * 20)
    assert len(decisions) == 20 and not any(item.counted or item.delay_secs for item in decisions)


@each(
    "given",
    [
        {"exit_code": 2},
        {"failure": Failure(type="ModuleNotFoundError", where="train.py:3 in <module>")},
        {"failure": Failure(type="SyntaxError")},
        {"cause": "not_started", "exit_code": 127},
    ],
)
def test_a_program_that_cannot_work_is_not_started_again(given: dict[str, Any]) -> None:
    """Wrong arguments, a missing module, a syntax error: before the first step no restart helps."""
    assert run([ended(has_stepped=False, **given)])[-1].status == 93


def test_the_wait_doubles_up_to_a_limit_with_full_jitter() -> None:
    """Without jitter many runs that died together come back together."""
    limits = Limits(no_progress_limit=100, identical_limit=100, restarts_per_hour=100)
    most = [item.delay_secs for item in run([ended()] * 12, limits)]
    assert most[:4] == [1.0, 2.0, 4.0, 8.0] and most[-1] == 300.0
    assert [item.delay_secs for item in run([ended()] * 3, limits, chance=0.25)] == [0.25, 0.5, 1.0]


def test_the_state_survives_the_disk() -> None:
    """It is read back as it was written; what is no state is refused with the field's name."""
    state = RestartState(attempt=4, best_saved_step=7, failures=(DEFECT,), counted_at=(1.5,), without_progress=2)
    assert decode_state(encode_state(state)) == state
    for wrong in ({"attempt": -1}, {"best_saved_step": "x"}, {"failures": [1]}, {"counted_at": 3}, []):
        with pytest.raises(ValueError):
            decode_state(json.dumps({"v": 2, "state": wrong}).encode())


def test_a_logdir_in_use_is_waited_for() -> None:
    """However often, with backoff; who holds it is said, and nothing is counted as the program's own failure."""
    refused = "LogdirInUseError: The logdir /runs/a is in use by process 7 on b since now. Two chiefs would delete"
    launch = ended(cause="in_use", has_stepped=False, failure=Failure(type="LogdirInUseError"), stderr=refused)
    before = RestartState(best_saved_step=100, failures=(DEFECT, DEFECT))
    state, decision = decide(before, launch, Limits(), chance=1.0)
    assert (state.failures, state.without_progress, state.counted_at) == ((DEFECT, DEFECT), 0, ())
    assert decision.reason == "waiting until it is free: in use by process 7 on b since now"
    decisions = run([launch] * 100)
    assert {item.action for item in decisions} == {"restart"}
    assert [item.delay_secs for item in decisions[:3]] == [1.0, 2.0, 4.0]


@each(
    "launches, expected",
    [
        ([ended()] * 3, "Repair the cause, then give the same command with --reset; without it the counts go on (F)"),
        ([ended(saved_step=None, is_known=False)] * 11, "with --reset; without it the counts go on (F)"),
        ([ended(cause="preempted", exit_code=143)] * 3, "Find what sends SIGTERM to the program (a scheduler, a limit"),
        ([ended(cause="requested", exit_code=75)] * 3, "Find why the program ends with status 75 (start me again)"),
        ([ended(cause="refused", exit_code=93)], "Repair the cause, then give the same command"),
        ([ended(cause="not_started", exit_code=None)], "Repair the cause, then give the same command"),
    ],
)
def test_an_end_says_what_to_do_next(launches: list[EndedLaunch], expected: str) -> None:
    """Whether the counts have to be set back, and where they are; they are not mentioned where they decided nothing."""
    decision = run(launches)[-1]
    text = next_step(decision, launches[-1].cause, "F")
    assert decision.action == "end" and expected in text
    assert ("--reset" in text) is (decision.by_counts)
    assert next_step(run([ended(cause="completed", exit_code=0)])[-1], "completed", "F") == ""
    assert next_step(run([ended()])[-1], "error", "F") == ""


def test_a_reset_sets_the_counts_to_zero_and_forgets_nothing_else() -> None:
    """The next failure is the first one; launches are numbered on, and progress is what gets the run further."""
    state = RestartState(
        attempt=4, best_saved_step=7, best_reached_step=9, without_progress=3, backoffs=3, failures=(DEFECT,) * 3,
        counted_at=(1.5,),
    )  # fmt: skip
    assert reset(state) == RestartState(attempt=4, best_saved_step=7, best_reached_step=9)


def test_any_sequence_without_progress_comes_to_an_end() -> None:
    """Whatever the mixture of causes: 1,000 seeded sequences end within 100 launches."""
    causes: list[Any] = ["error", "signal", "oom", "hang", "preempted", "requested", "in_use", "lost"]
    for seed in range(1000):
        chance = random.Random(seed)
        launches = [
            ended(cause=chance.choice(causes), at=10.0 * n, is_known=chance.random() < 0.5, saved_step=None)
            for n in range(100)
        ]
        assert run(launches)[-1].action == "end"
