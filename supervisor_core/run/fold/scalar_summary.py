"""`ScalarSummary`: one tag of one run in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from supervisor_core.events.columns import Columns
from supervisor_core.run.fold.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarSummary:
    """The kept points of one tag: what a restart has made the run do again counts once.

    Points are in the order of the files, and within a file as they were written.
    """

    points: int = 0
    """Their number."""
    last: float | None = None
    """The value of the last one: it may be NaN or infinite. None without points, as all that follows."""
    last_step: int | None = None
    min: float | None = None
    """The smallest finite value; None without one."""
    min_step: int | None = None
    """The step of the first point that has it."""
    max: float | None = None
    """The largest finite value; None without one."""
    max_step: int | None = None
    nonfinite: int = 0
    """Number of values that are NaN or infinite."""
    first_nonfinite_step: int | None = None
    """The lowest step with one."""


def scalar_summary(files: Mapping[str, Columns], segments: Segments) -> ScalarSummary:
    """Return a tag's points in a few numbers.

    Args:
        files: the tag's points by file, in the files' order, as `ColumnStore.by_file` returns them.
        segments: says which of them were kept.

    Example:
        >>> from supervisor_core.run.fold.run_fold import RunFold
        >>> points = Columns(np.array([1, 2]), np.array([1.7e9, 1.7e9]), np.array([0.5, 0.25]))
        >>> scalar_summary({"a": points}, Segments(RunFold("mnist").run(1.7e9))).min_step
        2
    """
    kept = []
    for path, columns in files.items():
        chosen = segments.kept(path, columns)
        kept.append(columns if chosen.all() else columns.taken(np.flatnonzero(chosen)))
    kept = [columns for columns in kept if len(columns)]
    if not kept:
        return ScalarSummary()
    nonfinite, first_nonfinite_step, finite = 0, None, []
    for columns in kept:
        is_finite = np.isfinite(columns.values)
        if is_finite.all():
            finite.append(columns)
            continue
        steps = columns.steps[~is_finite]
        nonfinite += len(steps)
        lowest = int(steps.min())
        first_nonfinite_step = lowest if first_nonfinite_step is None else min(first_nonfinite_step, lowest)
        if len(steps) < len(columns):
            finite.append(columns.taken(np.flatnonzero(is_finite)))
    smallest = _extreme(finite, -1)
    largest = _extreme(finite, 1)
    return ScalarSummary(
        points=sum(map(len, kept)),
        last=float(kept[-1].values[-1]),
        last_step=int(kept[-1].steps[-1]),
        min=smallest[0],
        min_step=smallest[1],
        max=largest[0],
        max_step=largest[1],
        nonfinite=nonfinite,
        first_nonfinite_step=first_nonfinite_step,
    )


def _extreme(parts: list[Columns], sign: int) -> tuple[float | None, int | None]:
    """Return the smallest (-1) or largest (1) value and the step of the first point that has it."""
    value, step = None, None
    for columns in parts:
        place = int(columns.values.argmin() if sign < 0 else columns.values.argmax())
        found = float(columns.values[place])
        if value is None or sign * found > sign * value:
            value, step = found, int(columns.steps[place])
    return value, step
