"""Exact intervals and tests for counts: Poisson, binomial, and Holm's correction for many tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

CONFIDENCE = 0.95
_NEGLIGIBLE = 1e-17
"""Terms of a tail below this share of its sum are left out."""
_HALVINGS = 60


@lru_cache(maxsize=4096)
def poisson_interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact interval of the expected number of events, given the observed number.

    The same as half of chi-squared quantiles with 2n and 2n+2 degrees of freedom. Source: F. Garwood, "Fiducial limits
    for the Poisson distribution", Biometrika 28 (1936).

    Example:
        >>> [round(limit, 3) for limit in poisson_interval(10)]
        [4.795, 18.39]
        >>> [round(limit, 3) for limit in poisson_interval(0)]
        [0.0, 3.689]
    """
    tail = (1.0 - confidence) / 2
    most = count + 10.0 * math.sqrt(count + 1.0) + 10.0
    low = _root(lambda mean: poisson_upper(count, mean) - tail, 0.0, float(count)) if count else 0.0
    return low, _root(lambda mean: tail - poisson_lower(count, mean), float(count), most)


def poisson_lower(count: int, mean: float) -> float:
    """Return the probability of at most ``count`` events where ``mean`` are expected."""
    if count < 0:
        return 0.0
    if mean <= 0:
        return 1.0
    if count > mean:
        return 1.0 - poisson_upper(count + 1, mean)
    return _sum(_poisson(count, mean), (number / mean for number in range(count, 0, -1)))


def poisson_upper(count: int, mean: float) -> float:
    """Return the probability of at least ``count`` events where ``mean`` are expected."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if count <= mean:
        return 1.0 - poisson_lower(count - 1, mean)
    return _sum(_poisson(count, mean), (mean / number for number in itertools.count(count + 1)))


def binomial_upper(count: int, trials: int, share: float) -> float:
    """Return the probability of at least ``count`` successes in ``trials``, each with probability ``share``: the
    one-sided p-value of a count.

    Example:
        >>> round(binomial_upper(9, 10, 0.5), 6)  # 11 of 1,024
        0.010742
    """
    if count <= 0 or share >= 1.0:
        return 1.0
    if count > trials or share <= 0.0:
        return 0.0
    odds = share / (1.0 - share)
    if count <= trials * share:
        below = count - 1
        ratios = (number / ((trials - number + 1) * odds) for number in range(below, 0, -1))
        return max(0.0, 1.0 - _sum(_binomial(below, trials, share), ratios))
    ratios = ((trials - number) * odds / (number + 1) for number in range(count, trials))
    return min(1.0, _sum(_binomial(count, trials, share), ratios))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: naming all below a level names no wrong one, but with at most that
    probability, whatever the tests have in common.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, worst = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = worst
    return corrected


def _poisson(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _binomial(count: int, trials: int, share: float) -> float:
    ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return math.exp(ways + count * math.log(share) + (trials - count) * math.log1p(-share))


def _sum(term: float, ratios: Iterable[float]) -> float:
    """Return the sum of a term and those after it, each the one before times a ratio below 1."""
    total = term
    for ratio in ratios:
        term *= ratio
        total += term
        if term <= _NEGLIGIBLE * total:
            break
    return total


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that increases is 0."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if increasing(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2
