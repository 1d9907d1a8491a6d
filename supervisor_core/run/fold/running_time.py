"""`RunningTime`: for how long a run had run by a moment, its downtime left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from supervisor_core.run.model.run import Session

Floats = NDArray[np.float64]


class RunningTime:
    """Seconds for which a run had run by a moment: those of its sessions; downtime counts 0.

    Sessions that overlap, by a clock that was set say, count once. A moment between two sessions has the running time
    of the earlier one's end, one after the last session goes on from its end, and one before the first is negative.

    Args:
        sessions: of the run; one whose start is unknown does not count.

    Example:
        >>> from supervisor_core.run.model.run import Session
        >>> def session(id: str, start: float, end: float) -> Session:
        ...     return Session(session=id, started_at=start, ended_at=end, outcome="lost", inferred=False)
        >>> running = RunningTime([session("a", 100.0, 150.0), session("b", 900.0, 910.0)])
        >>> running.of(np.array([90.0, 120.0, 500.0, 905.0, 912.0])).tolist(), running.total_secs
        ([-10.0, 20.0, 50.0, 55.0, 62.0], 60.0)
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        stretches: list[list[float]] = []
        known = ((s.started_at, s.ended_at or 0.0) for s in sessions if s.started_at is not None and s.started_at > 0)
        for start, end in sorted((start, max(start, end)) for start, end in known):
            if stretches and start <= stretches[-1][1]:
                stretches[-1][1] = max(stretches[-1][1], end)
            else:
                stretches.append([start, end])
        bounds = np.array(stretches).reshape(-1, 2)
        self._starts, self._ends = bounds[:, 0], bounds[:, 1]
        lengths = self._ends - self._starts
        self._before = np.cumsum(lengths) - lengths
        self.total_secs: float | None = float(lengths.sum()) if stretches else None
        """How long it has run; None where no session's start is known."""

    def of(self, wall: Floats) -> Floats:
        """Return the running time at each moment, in seconds; NaN where it is unknown: by a moment that is not
        finite or not after 1970, which some writers leave 0, and where no session's start is known."""
        wall = np.asarray(wall, np.float64)
        if not len(self._starts):
            return np.full(wall.shape, np.nan)
        index = np.maximum(np.searchsorted(self._starts, wall, side="right") - 1, 0)
        within = wall - self._starts[index]
        over = np.minimum(within, (self._ends - self._starts)[index])
        running: Floats = self._before[index] + np.where(index < len(self._starts) - 1, over, within)
        return np.where(np.isfinite(wall) & (wall > 0), running, np.nan)
