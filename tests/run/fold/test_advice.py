"""How often to save, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.run.fold.advice import (
    LEAST_INTERVAL_SECS,
    MIN_FAILURES,
    Costs,
    advice,
    cost_ratio,
    present_interval,
    proposed_interval,
    recommended_interval,
)
from supervisor_core.run.model.run import Run
from tests.cases import each

COSTS = Costs(trained_secs=50_000.0, failures=5, saves=20, save_secs=100.0, blocked_secs=40.0)
"""A save costs 2 s and takes 5 s, and a session fails every 10,000 s."""


def test_it_is_the_minimum_of_what_saving_and_losing_cost() -> None:
    """No interval near it costs less: saving C every T, and half of T lost every M."""
    best = recommended_interval(COSTS)
    assert best == pytest.approx(200.0)
    overhead = lambda secs: 2.0 / secs + secs / (2 * 10_000.0)  # noqa: E731
    assert overhead(best) < min(overhead(best * 0.9), overhead(best * 1.1))
    assert cost_ratio(best, 2.0, 10_000.0) == overhead(best)


@each("unknown", [{"saves": 0, "blocked_secs": 0.0}, {"blocked_secs": 0.0}, {"trained_secs": 0.0}, {"failures": 0}])
def test_nothing_is_recommended_before_all_is_known(unknown: dict[str, Any]) -> None:
    """An unknown, or a cost of nothing, gives no advice."""
    assert recommended_interval(replace(COSTS, **unknown)) is None


@each("failures", range(MIN_FAILURES))
def test_a_few_failures_say_too_little(failures: int) -> None:
    """Nothing is recommended, and only saving counts as a cost; the facts are shown."""
    found = advice(replace(COSTS, failures=failures), 100.0)
    assert found.recommended_interval_secs is None
    assert (found.present_cost_ratio, found.recommended_cost_ratio) == (0.02, None)
    assert found.failures == failures
    assert found.mtbf_secs == (50_000.0 / failures if failures else None)


@given(
    trained=st.floats(1e-6, 1e8), failures=st.integers(0, 10_000), saves=st.integers(0, 10_000),
    took=st.floats(0, 1e4), blocked=st.floats(0, 1e4),
)  # fmt: skip
def test_no_interval_is_absurdly_short(trained: float, failures: int, saves: int, took: float, blocked: float) -> None:
    """Whatever was seen: never below some seconds, nor below what a save takes."""
    costs = Costs(trained_secs=trained, failures=failures, saves=saves, save_secs=took * saves, blocked_secs=blocked)
    found = advice(costs, 600.0)
    if found.recommended_interval_secs is not None:
        assert max(LEAST_INTERVAL_SECS, took * 0.999) <= found.recommended_interval_secs


def test_the_present_interval_is_held_against_the_recommended_one() -> None:
    """Both costs are shares of time; the recommended one's is sqrt(2 C / M), and no present one's is less."""
    found = advice(COSTS, 3600.0)
    assert found.recommended_cost_ratio == pytest.approx(math.sqrt(2 * 2.0 / 10_000))
    assert found.present_cost_ratio == pytest.approx(2 / 3600 + 3600 / 20_000)


def test_a_cost_is_never_above_the_whole() -> None:
    """And unknown where one of the two is."""
    assert cost_ratio(1.0, 50.0, None) == 1.0
    assert advice(Costs(), 100.0).present_cost_ratio is None
    assert advice(COSTS, None).present_cost_ratio is None


def test_the_proposed_interval_is_beside_the_present_one_with_what_it_saves() -> None:
    """What to configure, and why: what it saves of the time, and what that is computed from."""
    found = proposed_interval(advice(COSTS, 3600.0), 1000.0)
    assert found is not None
    what, why = found
    assert what == "Save every 3 min 20 s instead of 1 h"
    assert why.startswith("It is expected to save 16.1 % of the time, 2 min 41 s in as long again: ")
    assert " cost 18.1 % now, and 2.0 % then. A save blocks training for 2 s. Every 2 h 47 min of training" in why
    assert "killed, failed, or was stopped by a signal (5 sessions; those that got the run no further" in why
    assert "as long again" not in str(proposed_interval(advice(COSTS, 3600.0), 0.0))
    unset = proposed_interval(advice(COSTS, None), 1000.0)
    assert unset is not None and unset[0] == "Save every 3 min 20 s"
    assert unset[1].startswith("No interval is configured. A save")


@pytest.mark.parametrize(
    ("costs", "present"),
    [
        (COSTS, 280.0),
        (COSTS, 145.0),
        (replace(COSTS, failures=1), 3600.0),
        (replace(COSTS, blocked_secs=1e-3, save_secs=0.0), 20.0),
    ],
    ids=["a little longer", "a little shorter", "too few failures", "it saves next to nothing"],
)
def test_no_change_is_proposed_where_it_is_not_worth_while(costs: Costs, present: float) -> None:
    """Nor where too little is known."""
    assert proposed_interval(advice(costs, present), 1000.0) is None


def test_a_run_is_advised_from_its_own_saves_and_failures(
    killed: Any, resumed: Any, run_of: Callable[..., Run]
) -> None:
    """The cost is the mean of what good saves held up; failures are sessions that were lost, failed or signalled, and
    the time between them is that of steps, downtime apart."""
    resumed.save(blocked_secs=2.0).save(error="OSError: full", blocked_secs=99.0)
    run = run_of(killed, resumed)
    assert run.advice.save_cost_secs == pytest.approx((0.5 + 0.5 + 2.0) / 3)
    trained = run.goodput.secs["productive"] + run.goodput.secs["wasted_progress_from_disruption"]
    assert run.advice.mtbf_secs == pytest.approx(trained) == pytest.approx(500 + 500 + 188 + 300, abs=15)
    assert (run.advice.present_interval_secs, run.advice.recommended_interval_secs) == (600.0, None)
    ended = run_of(killed, resumed.stop("signal"))
    assert ended.advice.mtbf_secs == pytest.approx(trained / 2, abs=1)
    assert ended.advice.failures == 2


def test_a_run_that_saves_by_steps_is_judged_by_how_often_it_saves(trainer: Any, run_of: Callable[..., Run]) -> None:
    """Ten minutes are configured, and it saves after every ten seconds of training."""
    session = trainer("a", 1e9).ready(0)
    for _ in range(12):
        session.train(10, 1.0).save(blocked_secs=0.5)
    run = run_of(session.stop("completed"))
    assert run.sessions[-1].checkpoint_interval_secs == 600.0
    assert run.advice.present_interval_secs == pytest.approx(10.0, rel=0.1)


@each("saves, interval", [(2, 600.0), (3, 100.0)])
def test_few_saves_do_not_say_how_often_a_run_saves(saves: int, interval: float) -> None:
    """The configured interval counts until then, and where saves are about as frequent."""
    assert present_interval(Costs(trained_secs=100.0 * saves, saves=saves), 600.0) == interval
    assert present_interval(Costs(trained_secs=400.0 * saves, saves=saves), 600.0) == 600.0
    assert present_interval(Costs(trained_secs=100.0 * saves, saves=saves), None) is None


def test_a_run_that_fails_all_the_time_is_not_advised_to_save_all_the_time(
    trainer: Any, run_of: Callable[..., Run]
) -> None:
    """Sessions that die within a second of training, each after a save of a millisecond, and each a step further: no
    interval is far below that second."""
    sessions = []
    for attempt in range(1, 9):
        at = sessions[-1].now + 5 if sessions else 1e9
        session = trainer(str(attempt), at, attempt=attempt, heartbeat_secs=0.1).ready(attempt).train(2, 0.2)
        sessions.append(session.save(secs=0.01, blocked_secs=0.001).train(1, 0.2))
    run = run_of(*sessions, now=2e9)
    assert (run.advice.failures, run.advice.recommended_interval_secs) == (8, None)


def test_sessions_that_get_the_run_no_further_are_no_failures_of_it(trainer: Any, run_of: Callable[..., Run]) -> None:
    """A loop of crashes at one step, or before the first, says nothing about how often a training fails. Of sessions
    that do get it further, each counts; while they are a loop, nothing is recommended."""
    for gained, counted in ((0, 1), (1, 8)):
        sessions = []
        for attempt in range(1, 9):
            at = sessions[-1].now + 5 if sessions else 1e9
            first = trainer(str(attempt), at, attempt=attempt).ready(100 + gained * attempt).train(99)
            sessions.append(first.save(blocked_secs=0.5).train(50))
        stillborn = trainer("9", sessions[-1].now + 3600, attempt=9).spend(3)
        run = run_of(*sessions, stillborn, now=2e9)
        assert run.advice.failures == counted
        assert (run.advice.recommended_interval_secs is None) is (gained == 0)
        assert run_of(*sessions, now=2e9).advice.recommended_interval_secs is None


def test_no_interval_near_the_time_between_failures_is_recommended() -> None:
    """Its lower limits do not make it one."""
    slow = Costs(trained_secs=200.0, failures=5, saves=9, save_secs=9 * 30.0, blocked_secs=9.0)
    assert slow.floor_secs == 30.0
    assert recommended_interval(slow) is None
    assert recommended_interval(replace(slow, trained_secs=400.0)) == 30.0
