"""Exact intervals and p-values, against tables and plain sums of fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from supervisor_core.run.exact_tests import binomial_upper, holm, poisson_interval, poisson_lower, poisson_upper


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        (0, 0.0, 3.68888),
        (1, 0.0253178, 5.57164),
        (3, 0.618672, 8.76727),
        (100, 81.3640, 121.627),
        (1000, 938.973, 1063.952),
    ],
)
def test_the_poisson_interval_is_that_of_the_tables(count: int, low: float, high: float) -> None:
    """Half of the quantiles of chi-squared with 2n and 2n+2 degrees of freedom."""
    assert poisson_interval(count) == (pytest.approx(low, rel=1e-5), pytest.approx(high, rel=1e-5))


def test_a_million_events_are_an_interval_too() -> None:
    """About 1.96 times the root on each side."""
    low, high = poisson_interval(1_000_000)
    assert (low, high) == (pytest.approx(1e6 - 1960, abs=5), pytest.approx(1e6 + 1960, abs=5))


@pytest.mark.parametrize("mean", [0.0, 0.3, 7.0, 40.0])
def test_the_tails_of_poisson_sum_to_one(mean: float) -> None:
    """At most n, or at least n + 1; each is the sum of its terms."""
    for count in range(-1, 60):
        assert poisson_lower(count, mean) + poisson_upper(count + 1, mean) == pytest.approx(1.0)
        terms = (mean**n / math.factorial(n) for n in range(count + 1))
        assert poisson_lower(count, mean) == pytest.approx(math.exp(-mean) * sum(terms), abs=1e-12)


@pytest.mark.parametrize("share", [Fraction(1, 64), Fraction(1, 2), Fraction(9, 10)])
def test_the_tail_of_the_binomial_is_a_sum_of_fractions(share: Fraction) -> None:
    """Also where it is far below what a float can tell from 0 next to 1."""
    trials = 50
    terms = [math.comb(trials, n) * share**n * (1 - share) ** (trials - n) for n in range(trials + 1)]
    for count in range(trials + 2):
        assert binomial_upper(count, trials, float(share)) == pytest.approx(float(sum(terms[count:])), rel=1e-9)


def test_a_share_of_all_or_nothing() -> None:
    """All exposure, or none."""
    assert binomial_upper(3, 3, 1.0) == 1.0
    assert binomial_upper(1, 3, 0.0) == 0.0
    assert binomial_upper(0, 3, 0.0) == 1.0


def test_holm_corrects_for_the_number_of_tests() -> None:
    """The smallest p-value by all, the next by one fewer; the order stays; never above 1."""
    assert holm([0.2, 0.001, 0.02, 0.9]) == [pytest.approx(0.4), pytest.approx(0.004), pytest.approx(0.06), 0.9]
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
