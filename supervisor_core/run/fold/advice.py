"""The checkpoint interval that a run's own costs recommend, and why."""

from __future__ import annotations

import math

from supervisor_core.run.model.liveness_record import LEAST_INTERVAL_SECS as LEAST_INTERVAL_SECS
from supervisor_core.run.model.liveness_record import Costs as Costs
from supervisor_core.run.model.run import Advice
from supervisor_core.run.model.words import counted, duration, share

MIN_FAILURES = 3
"""Failures before anything is recommended: fewer say too little about the failure rate."""

MAX_SHARE_OF_MTBF = 0.5
"""No interval above this share of the mean time between failures is recommended: the formula holds for intervals far
below it, and a run that fails that often needs repair."""

MIN_SAVES = 3
"""Saves before their number says how often a run saves."""

LEAST_RATIO = math.sqrt(2.0)
"""A present interval closer to the recommended one than this is not worth a change."""

LEAST_SAVING = 0.001
"""The least share of the time for which a change is worth while."""

FAILURES = ("lost", "error", "signal")
"""Outcomes of a session that count as failures of its run."""


def recommended_interval(costs: Costs) -> float | None:
    """Return the checkpoint interval, in seconds, with the lowest expected cost of saving and of lost work.

    Young's first-order optimum, sqrt(2 C M), but not less than `Costs.floor_secs`. Source: J. W. Young, "A first order
    approximation to the optimum checkpoint interval", CACM 17 (1974).

    Args:
        costs: the run's own; C is the cost of a save, M the mean time between failures.

    Returns:
        None while the save cost is 0, before `MIN_FAILURES` failures, and above `MAX_SHARE_OF_MTBF`.

    Example:
        >>> recommended_interval(Costs(trained_secs=3 * 86400.0, failures=3, saves=10, blocked_secs=5.0))
        293.9387691339814
    """
    cost = costs.save_cost_secs
    if not cost or cost < 0 or costs.failures < MIN_FAILURES or costs.trained_secs <= 0:
        return None
    mtbf = costs.trained_secs / costs.failures
    best = max(costs.floor_secs, math.sqrt(2.0 * cost * mtbf))
    return None if best > MAX_SHARE_OF_MTBF * mtbf else best


def cost_ratio(interval_secs: float | None, save_cost_secs: float | None, mtbf_secs: float | None) -> float | None:
    """Return the expected cost of checkpoints at an interval as a share of time: saving, C/T, and lost work,
    T/(2M), since a failure comes, on average, in the middle of an interval.

    Args:
        interval_secs: seconds between checkpoints, T.
        save_cost_secs: seconds for which one save blocks training, C.
        mtbf_secs: mean time between failures in seconds, M; None where unknown, so that only saving counts.

    Returns:
        None while the interval or the save cost is unknown; at most 1.
    """
    if not interval_secs or interval_secs < 0 or save_cost_secs is None:
        return None
    lost = interval_secs / (2.0 * mtbf_secs) if mtbf_secs else 0.0
    return min(1.0, save_cost_secs / interval_secs + lost)


def present_interval(costs: Costs, configured_secs: float | None) -> float | None:
    """Return the seconds between checkpoints: those configured; of a run that saves at least twice as often (by steps,
    say), its mean time of training per save.

    Example:
        >>> present_interval(Costs(trained_secs=60.0, saves=12), 600.0)
        5.0
    """
    if configured_secs is None or costs.saves < MIN_SAVES or costs.trained_secs <= 0:
        return configured_secs
    observed_secs = costs.trained_secs / costs.saves
    return observed_secs if 2.0 * observed_secs < configured_secs else configured_secs


def advice(costs: Costs, present_interval_secs: float | None) -> Advice:
    """Return the recommended interval, and the cost of it and of the present one.

    The first order is enough: Daly's higher one (FGCS 22, 2006) differs by a third of sqrt(C/(2M)), below 1 % while
    failures are 1,000 times as far apart as a save takes, and near its minimum the cost hardly depends on the interval.

    Args:
        costs: the run's own.
        present_interval_secs: seconds between checkpoints; None without checkpoints, or where unknown.
    """
    cost, mtbf = costs.save_cost_secs, costs.mtbf_secs
    recommended = recommended_interval(costs)
    believed_mtbf = mtbf if costs.failures >= MIN_FAILURES else None
    return Advice(
        save_cost_secs=cost,
        mtbf_secs=mtbf,
        failures=costs.failures,
        present_interval_secs=present_interval_secs,
        recommended_interval_secs=recommended,
        present_cost_ratio=cost_ratio(present_interval_secs, cost, believed_mtbf),
        recommended_cost_ratio=cost_ratio(recommended, cost, believed_mtbf),
    )


def proposed_interval(advice: Advice, wall_secs: float) -> tuple[str, str] | None:
    """Return which interval to configure, and why, in sentences; None where the present one is good enough, or too
    little is known.

    Args:
        advice: of the run.
        wall_secs: the run's wall time, of which the costs are shares.
    """
    present, better = advice.present_interval_secs, advice.recommended_interval_secs
    if better is None:
        return None
    if present is None:
        return f"Save every {duration(better)}", f"No interval is configured.{_costs(advice)}"
    saving = (advice.present_cost_ratio or 0.0) - (advice.recommended_cost_ratio or 0.0)
    if max(present, better) < LEAST_RATIO * min(present, better) or saving <= LEAST_SAVING:
        return None
    as_long = f", {duration(saving * wall_secs)} in as long again" if wall_secs > 0 else ""
    why = (
        f"It is expected to save {share(saving)} of the time{as_long}: saving and lost work are expected to cost "
        f"{share(advice.present_cost_ratio)} now, and {share(advice.recommended_cost_ratio)} then.{_costs(advice)}"
    )
    return f"Save every {duration(better)} instead of {duration(present)}", why


def _costs(advice: Advice) -> str:
    """Return what the recommendation is computed from, in sentences that follow others."""
    text = ""
    if advice.save_cost_secs is not None:
        text += f" A save blocks training for {duration(advice.save_cost_secs)}."
    if advice.mtbf_secs is not None:
        text += (
            f" Every {duration(advice.mtbf_secs)} of training a session was killed, failed, or was stopped by a signal "
            f"({counted(advice.failures, 'session')}; those that got the run no further do not count)."
        )
    return text
