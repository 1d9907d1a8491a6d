"""`Segments`: which session wrote each point of a run, and which were kept: no later session did their steps again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.columns import Columns
from supervisor_core.run.model.run import Recovery, RunHistory, Session

UNKNOWN = -1
"""The segment of a point in a file that belongs to no session."""
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class _Segment:
    session: str | None = None
    since: float = -math.inf
    """Wall time."""
    abandoned_after: int | None = None


class Segments:
    """What a run's points are divided into: its sessions, and those where they were recovered within.

    A file is one session's, as a rule. Where there are several segments in one (a program that trained twice with one
    writer, a session that was recovered), each point belongs to the last that had begun by the point's wall time.
    """

    def __init__(self, run: RunHistory) -> None:
        segments: list[_Segment] = []
        self._of_file: dict[str, list[int]] = {}
        abandoned_after = abandoned_after_steps(run)
        recoveries: dict[str, list[Recovery]] = {}
        for item in run.recoveries:
            recoveries.setdefault(item.session, []).append(item)
        for session in run.sessions:
            first = len(segments)
            segments += _segments_of(session, recoveries.get(session.id, ()), abandoned_after.get(session.id))
            for path in session.files:
                self._of_file.setdefault(path, []).extend(range(first, len(segments)))
        self._segments = {UNKNOWN: _Segment(), **dict(enumerate(segments))}
        # The last is that of `UNKNOWN`, which is -1.
        limits = [segment.abandoned_after for segment in (*segments, _Segment())]
        self._limits = np.array([_NO_LIMIT if limit is None else limit for limit in limits])

    def owners(self, path: str, walls: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index of the segment that each point of a file is of; `UNKNOWN` where there is none.

        Args:
            path: of the file.
            walls: wall time of each point.
        """
        found = np.array(self._of_file.get(path, [UNKNOWN]))
        if len(found) == 1:
            return np.full(len(walls), found[0])
        starts = [-math.inf, *(self._segments[index].since for index in found[1:].tolist())]
        owners: NDArray[np.int64] = found[np.searchsorted(np.maximum.accumulate(starts), walls, side="right") - 1]
        return owners

    def kept(self, path: str, columns: Columns) -> NDArray[np.bool_]:
        """Return for each point of a file whether it was kept: its segment was not abandoned before its step.

        Example:
            >>> from supervisor_core.run.fold.run_fold import RunFold
            >>> point = Columns(np.array([7]), np.array([1.7e9]), np.array([0.25]))
            >>> Segments(RunFold("mnist").run(1.7e9)).kept("of/no/session", point).tolist()
            [True]
        """
        kept: NDArray[np.bool_] = columns.steps <= self._limits[self.owners(path, columns.walls)]
        return kept

    def split(self, path: str, columns: Columns) -> Iterator[tuple[int, Columns]]:
        """Yield what is of each segment in a file, by the segment's index; `UNKNOWN` where there is none."""
        found = self._of_file.get(path, [UNKNOWN])
        if len(found) == 1:
            yield found[0], columns
            return
        owners = self.owners(path, columns.walls)
        if np.any(owners[1:] < owners[:-1]):
            order = np.argsort(owners, kind="stable")
            columns, owners = columns.taken(order), owners[order]
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        for first, last in pairwise(bounds):
            if first < last:
                yield int(owners[first]), columns.taken(slice(first, last))

    def abandoned_after(self, index: int) -> int | None:
        """Return the step after which a segment was abandoned; None if it was not."""
        return self._segments[index].abandoned_after

    def session(self, index: int) -> str | None:
        """Return the id of a segment's session; None for `UNKNOWN`."""
        return self._segments[index].session

    def describe(self, indices: Sequence[int]) -> list[dict[str, str | int | None]]:
        """Return each segment's session and the step after which it was abandoned."""
        return [
            {"session": self._segments[index].session, "abandoned_after_step": self.abandoned_after(index)}
            for index in indices
        ]


def _segments_of(session: Session, recoveries: Sequence[Recovery], abandoned_after: int | None) -> list[_Segment]:
    """Return a session's segments: each recovery undoes what all before it did after the step it went back to."""
    started_at = -math.inf if session.started_at is None else session.started_at
    starts = [started_at, *(recovery.at for recovery in recoveries)]
    undone_to = [*(recovery.restored_step for recovery in recoveries), None]
    found: list[_Segment] = []
    for since, to_step in zip(starts[::-1], undone_to[::-1], strict=True):
        abandoned_after = min((step for step in (abandoned_after, to_step) if step is not None), default=None)
        found.append(_Segment(session.id, since, abandoned_after))
    return found[::-1]


def abandoned_after_steps(run: RunHistory) -> Mapping[str, int]:
    """Return, for each session of which steps were done again, the last step that was kept.

    A later restart from before a session's own end undoes it as well, though it followed another session.
    """
    found: dict[str, int] = {}
    lowest = math.inf
    to_step = {restart.to_session: restart.to_step for restart in run.restarts}
    for session in reversed(run.sessions):
        if lowest < math.inf and (session.last_step is None or session.last_step > lowest):
            found[session.id] = int(lowest)
        step = to_step.get(session.id)
        if step is not None:
            # Of an inferred session it is not the restored step but the first that was written again.
            lowest = min(lowest, step - session.inferred)
    return found
