"""Which process of a training in several is slower than the others, from the pace of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from supervisor_core.events.place import Pace
from supervisor_core.run.model.thresholds import LEAST_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """One process, and its pace."""

    name: str
    host: str | None
    pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A process that is slower than the others."""

    paced: Paced
    secs: float
    """What it takes for a step: by itself, where the others wait for it in each step, and else in all."""
    usual_secs: float
    """The median of the same of the others."""
    is_waited_for: bool
    """Whether the others wait for it in each step."""


def straggler(ranks: Sequence[Paced]) -> Straggler | None:
    """Return the process that is slower than the others by more than a quarter of a step; None where there is none.

    Args:
        ranks: the processes that train.

    Example:
        >>> def paced(name, own_secs):
        ...     return Paced(name=name, host=None, pace=Pace(step_secs=0.2, own_secs=own_secs))
        >>> found = straggler([paced("rank:0", 0.09), paced("rank:1", 0.18), paced("rank:2", 0.08)])
        >>> found.paced.name, found.is_waited_for
        ('rank:1', True)
    """
    if len(ranks) < 2 or any(rank.pace.step_secs <= 0.0 for rank in ranks):  # as no process writes it
        return None
    for is_waited_for in (True, False):
        secs = [
            min(rank.pace.own_secs, rank.pace.step_secs) if is_waited_for else rank.pace.step_secs for rank in ranks
        ]
        slowest = max(range(len(ranks)), key=secs.__getitem__)
        others = [each for index, each in enumerate(secs) if index != slowest]
        usual, step_secs = median(others), ranks[slowest].pace.step_secs
        others_step = median(rank.pace.step_secs for index, rank in enumerate(ranks) if index != slowest)
        is_synchronous = step_secs <= (1.0 + LEAST_SHARE) * others_step
        if is_synchronous == is_waited_for and secs[slowest] - usual > LEAST_SHARE * step_secs:
            return Straggler(paced=ranks[slowest], secs=secs[slowest], usual_secs=usual, is_waited_for=is_waited_for)
    return None
