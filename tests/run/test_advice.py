"""How often to save."""

from __future__ import annotations

import pytest

from supervisor_core.run.advice import recommended_interval


def test_it_is_the_minimum_of_what_saving_and_losing_cost() -> None:
    """No interval near it costs less: saving C every T, and half of T lost every M."""
    cost, mtbf = 3.0, 40_000.0
    best = recommended_interval(cost, mtbf)
    assert best is not None
    overhead = lambda secs: cost / secs + secs / (2 * mtbf)  # noqa: E731
    assert overhead(best) < min(overhead(best * 0.9), overhead(best * 1.1))


@pytest.mark.parametrize(("cost", "mtbf"), [(None, 10.0), (1.0, None), (0.0, 10.0), (1.0, 0.0), (-1.0, 10.0)])
def test_nothing_is_recommended_before_both_are_known(cost: float | None, mtbf: float | None) -> None:
    """An unknown, or a cost of nothing, gives no advice."""
    assert recommended_interval(cost, mtbf) is None
