"""How often to save: what the run's own costs recommend."""

from __future__ import annotations

import math

from supervisor_core.run.model import Advice


def recommended_interval(save_cost_secs: float | None, mtbf_secs: float | None) -> float | None:
    """Return the checkpoint interval, in seconds, at which saving and losing work cost least together.

    Young's first-order optimum, sqrt(2 C M). Source: J. W. Young, "A first order approximation to the optimum
    checkpoint interval", CACM 17 (1974).

    Args:
        save_cost_secs: seconds for which one save holds training up, C.
        mtbf_secs: mean time between failures in seconds, M.

    Returns:
        None while either is unknown or not above 0.

    Example:
        >>> recommended_interval(0.5, 86400.0)
        293.9387691339814
    """
    if not save_cost_secs or not mtbf_secs or save_cost_secs < 0 or mtbf_secs < 0:
        return None
    return math.sqrt(2.0 * save_cost_secs * mtbf_secs)


def cost_ratio(interval_secs: float | None, save_cost_secs: float | None, mtbf_secs: float | None) -> float | None:
    """Return the share of wall time that checkpoints at an interval cost: saving, C/T, and work lost, T/(2M), since a
    failure comes, on average, in the middle of an interval.

    Args:
        interval_secs: seconds between checkpoints, T.
        save_cost_secs: seconds for which one save holds training up, C.
        mtbf_secs: mean time between failures in seconds, M; None where there was none yet, so that nothing is lost.

    Returns:
        None while the interval or the save cost is unknown; at most 1.
    """
    if not interval_secs or interval_secs < 0 or save_cost_secs is None:
        return None
    lost = interval_secs / (2.0 * mtbf_secs) if mtbf_secs else 0.0
    return min(1.0, save_cost_secs / interval_secs + lost)


def advice(save_cost_secs: float | None, mtbf_secs: float | None, present_interval_secs: float | None) -> Advice:
    """Return how often to save, and what the present interval costs against it.

    The first order is enough: Daly's higher one (FGCS 22, 2006) differs by a third of sqrt(C/(2M)), below 1 % while
    failures are 1,000 times as far apart as a save takes, and near its minimum the cost hardly depends on the interval.

    Args:
        save_cost_secs: mean seconds for which a good save held training up; None before the first.
        mtbf_secs: mean time between failures in seconds; None before the first.
        present_interval_secs: configured seconds between checkpoints; None where none are taken or it is not known.
    """
    recommended = recommended_interval(save_cost_secs, mtbf_secs)
    return Advice(
        save_cost_secs=save_cost_secs,
        mtbf_secs=mtbf_secs,
        present_interval_secs=present_interval_secs,
        recommended_interval_secs=recommended,
        present_cost_ratio=cost_ratio(present_interval_secs, save_cost_secs, mtbf_secs),
        recommended_cost_ratio=cost_ratio(recommended, save_cost_secs, mtbf_secs),
    )
