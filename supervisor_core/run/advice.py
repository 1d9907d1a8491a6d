"""How often to save: what the run's own costs recommend."""

from __future__ import annotations

import math


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
