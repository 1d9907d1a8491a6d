"""Which process of several is slower than the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from supervisor_core.events.place import Pace
from supervisor_core.run.judge.stragglers import Paced, straggler
from tests.cases import each


def paced(*paces: tuple[float, float]) -> list[Paced]:
    """Ranks with their seconds for a step, and those of their own."""
    return [
        Paced(name=f"rank:{rank}", host=f"host-{rank}", pace=Pace(step_secs=step_secs, own_secs=own_secs))
        for rank, (step_secs, own_secs) in enumerate(paces)
    ]


@each(
    "paces, found",
    [
        ([(0.2, 0.05), (0.2, 0.12), (0.21, 0.04)], ("rank:1", True, 0.12, 0.045)),
        ([(0.2, 0.05), (0.2, 0.19)], ("rank:1", True, 0.19, 0.05)),
        ([(0.2, 0.2), (0.5, 0.5), (0.22, 0.22)], ("rank:1", False, 0.5, 0.21)),  # each for itself
        ([(0.2, 0.05), (0.2, 0.09), (0.2, 0.05)], None),  # by chance
        ([(0.2, 0.2), (0.22, 0.22)], None),
        ([(0.2, 0.19), (0.2, 0.2), (0.2, 0.18)], None),  # all of them compute
        ([(0.2, 0.2)], None),
        ([(0.0, 5.0), (0.2, 0.2)], None),  # forged
        ([(0.2, 1e14), (0.2, 0.2)], None),
        ([], None),
    ],
)
def test_who_is_slower_by_more_than_a_quarter_of_a_step(
    paces: Sequence[tuple[float, float]], found: tuple[str, bool, float, float] | None
) -> None:
    """By what it does not wait, where steps take the same; else by the steps."""
    slow = straggler(paced(*paces))
    assert (slow is None) == (found is None)
    if slow is not None and found is not None:
        assert (slow.paced.name, slow.is_waited_for, slow.secs) == found[:3]
        assert slow.usual_secs == pytest.approx(found[3])
