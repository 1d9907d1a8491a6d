"""How often to save, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.advice import advice, cost_ratio, recommended_interval
from supervisor_core.run.model import Run


def test_it_is_the_minimum_of_what_saving_and_losing_cost() -> None:
    """No interval near it costs less: saving C every T, and half of T lost every M."""
    cost, mtbf = 3.0, 40_000.0
    best = recommended_interval(cost, mtbf)
    assert best is not None
    overhead = lambda secs: cost / secs + secs / (2 * mtbf)  # noqa: E731
    assert overhead(best) < min(overhead(best * 0.9), overhead(best * 1.1))
    assert cost_ratio(best, cost, mtbf) == overhead(best)


@pytest.mark.parametrize(("cost", "mtbf"), [(None, 10.0), (1.0, None), (0.0, 10.0), (1.0, 0.0), (-1.0, 10.0)])
def test_nothing_is_recommended_before_both_are_known(cost: float | None, mtbf: float | None) -> None:
    """An unknown, or a cost of nothing, gives no advice."""
    assert recommended_interval(cost, mtbf) is None


def test_the_present_interval_is_held_against_the_recommended_one() -> None:
    """Both costs are shares of wall time; the recommended one's is sqrt(2 C / M), and no present one's is less."""
    found = advice(2.0, 10_000.0, 3600.0)
    assert found.recommended_interval_secs == pytest.approx(200.0)
    assert found.recommended_cost_ratio == pytest.approx(math.sqrt(2 * 2.0 / 10_000))
    assert found.present_cost_ratio == pytest.approx(2 / 3600 + 3600 / 20_000)


def test_before_a_failure_only_saving_costs() -> None:
    """Without failures nothing is lost, and nothing is recommended; a cost is never above the whole."""
    found = advice(2.0, None, 100.0)
    assert (found.present_cost_ratio, found.recommended_interval_secs, found.recommended_cost_ratio) == (
        0.02,
        None,
        None,
    )
    assert cost_ratio(1.0, 50.0, None) == 1.0
    assert advice(None, 100.0, 100.0).present_cost_ratio is None
    assert advice(1.0, 100.0, None).present_cost_ratio is None


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
    assert run.advice.present_interval_secs == 600.0
    ended = run_of(killed, resumed.stop("signal"))
    assert ended.advice.mtbf_secs == pytest.approx(trained / 2, abs=1)
