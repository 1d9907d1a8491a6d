"""Which session each point was written by, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from supervisor_core.events.columns import Columns
from supervisor_core.run.model import Run, Session

UNKNOWN = -1
"""The session of a point in a file that belongs to none."""


class Segments:
    """The sessions of a run, as what its points are divided into.

    A file is one session's, as a rule. Where several sessions were found in one (a program that trained twice with
    one writer), each point belongs to the last that had begun by the point's wall time.
    """

    def __init__(self, run: Run) -> None:
        self._sessions = run.sessions
        self._abandoned_after = abandoned_after_steps(run)
        self._of_file: dict[str, list[int]] = {}
        for index, session in enumerate(run.sessions):
            for path in session.files:
                self._of_file.setdefault(path, []).append(index)

    def split(self, path: str, columns: Columns) -> Iterator[tuple[int, Columns]]:
        """Yield what each session wrote into a file, by the session's index; `UNKNOWN` where there is none."""
        found = self._of_file.get(path, [UNKNOWN])
        if len(found) == 1:
            yield found[0], columns
            return
        starts = [-math.inf, *(self._start(index) for index in found[1:])]
        owners = np.searchsorted(np.array(starts), columns.walls, side="right") - 1
        for place, index in enumerate(found):
            chosen = owners == place
            if chosen.any():
                yield index, Columns(columns.steps[chosen], columns.walls[chosen], columns.values[chosen])

    def describe(self, indices: Sequence[int]) -> list[dict[str, str | int | None]]:
        """Return what is told of these sessions."""
        return [
            {"session": None, "abandoned_after_step": None}
            if index == UNKNOWN
            else {
                "session": self._sessions[index].id,
                "abandoned_after_step": self._abandoned_after.get(self._sessions[index].id),
            }
            for index in indices
        ]

    def _start(self, index: int) -> float:
        started_at = self._sessions[index].started_at
        return -math.inf if started_at is None else started_at


def abandoned_after_steps(run: Run) -> Mapping[str, int]:
    """Return, for each session of which steps were done again, the last step that was kept.

    A later restart from before a session's own end undoes it as well, though it followed another session.
    """
    found: dict[str, int] = {}
    lowest: int | None = None
    later: Session | None = None
    to_step = {restart.to_session: restart.to_step for restart in run.restarts}
    for session in reversed(run.sessions):
        if later is not None:
            step = to_step.get(later.id)
            if step is not None:
                step -= later.inferred  # then it is not the restored step but the first that was written again
                lowest = step if lowest is None else min(lowest, step)
        if lowest is not None and (session.last_step is None or session.last_step > lowest):
            found[session.id] = lowest
        later = session
    return found
