"""`step_boundaries`: where, within one stretch of a file, training began again at an earlier step.

One tag whose steps go down proves nothing: a program may log anything. A boundary is a place that lies within a fall of
the main series (``global_step/sec``), or within falls of most of the tags that could have shown one there: those with
points on both sides, and so dense that they must have shown it. The tag with the most points must be among these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from supervisor_core.run.tag_steps import Fall, TagSteps

MAX_EXAMINED = 2_000
"""So many falls of one stretch that no boundary explains are examined; each costs in proportion to its tags."""

MAIN_SUFFIX = "/sec"
"""The step counters of the original's Supervisor and hooks write ``<global step's name>/sec`` and nothing else."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place where training began again at an earlier step."""

    offset: int
    """Of the first record after it."""
    from_step: int
    to_step: int
    ended_at: float
    """Wall time of the last point before it."""
    started_at: float


def step_boundaries(tags: Mapping[str, TagSteps]) -> list[Boundary]:
    """Return the boundaries within a stretch, in their order; see the module's docstring."""
    witnesses = {tag: steps for tag, steps in tags.items() if steps.is_witness}
    falls = sorted(
        ((fall, tag.endswith(MAIN_SUFFIX)) for tag, steps in witnesses.items() for fall in steps.falls),
        key=lambda found: found[0].after,
    )
    if not falls:
        return []
    first = np.array([steps.first_offset for steps in witnesses.values()])
    last = np.array([steps.last_offset for steps in witnesses.values()])
    stride = np.array([steps.stride for steps in witnesses.values()])
    lead = int(np.argmax([steps.count for steps in witnesses.values()]))
    before = np.array([fall.before for fall, _ in falls])
    found: list[Boundary] = []
    reached = examined = -1
    for index, (fall, _) in enumerate(falls):
        if fall.before < reached:  # a boundary that was found already explains it
            continue
        examined += 1
        if examined >= MAX_EXAMINED:
            break
        covering = [falls[index + other] for other in np.flatnonzero(before[index:] < fall.after).tolist()]
        deepest = max(other.from_step - other.to_step for other, _ in covering)
        on_both_sides = (first < fall.after) & (last >= fall.after)
        could_show = np.count_nonzero(on_both_sides & (stride <= deepest))
        most_agree = bool(on_both_sides[lead]) and 2 * len(covering) > could_show
        if most_agree or any(is_main for _, is_main in covering):
            found.append(_boundary([other for other, _ in covering]))
            reached = fall.after
    return found


def _boundary(falls: list[Fall]) -> Boundary:
    highest = max(falls, key=lambda fall: (fall.from_step, -fall.after))
    return Boundary(
        offset=min(fall.after for fall in falls),
        from_step=highest.from_step,
        to_step=min(fall.to_step for fall in falls),
        ended_at=max(fall.ended_at for fall in falls),
        started_at=min(fall.started_at for fall in falls),
    )
