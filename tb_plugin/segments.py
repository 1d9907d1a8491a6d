"""Which session each point was written by, and what happened to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from supervisor_core.events.columns import Columns
from supervisor_core.run.model import Recovery, Run, Session
from tb_plugin.view import RunView

UNKNOWN = -1
"""The segment of a point in a file that belongs to no session."""


@dataclass(frozen=True)
class _Segment:
    session: str
    since: float
    """Wall time."""
    abandoned_after: int | None


class Segments:
    """What a run's points are divided into: its sessions, and those where they were recovered within.

    A file is one session's, as a rule. Where there are several segments in one (a program that trained twice with one
    writer, a session that was recovered), each point belongs to the last that had begun by the point's wall time.
    """

    def __init__(self, run: Run) -> None:
        self._segments: list[_Segment] = []
        self._of_file: dict[str, list[int]] = {}
        abandoned_after = abandoned_after_steps(run)
        recoveries: dict[str, list[Recovery]] = {}
        for item in run.recoveries:
            recoveries.setdefault(item.session, []).append(item)
        for session in run.sessions:
            first = len(self._segments)
            self._segments += _segments_of(session, recoveries.get(session.id, ()), abandoned_after.get(session.id))
            for path in session.files:
                self._of_file.setdefault(path, []).extend(range(first, len(self._segments)))

    def split(self, path: str, columns: Columns) -> Iterator[tuple[int, Columns]]:
        """Yield what is of each segment in a file, by the segment's index; `UNKNOWN` where there is none."""
        found = self._of_file.get(path, [UNKNOWN])
        if len(found) == 1:
            yield found[0], columns
            return
        starts = [-math.inf, *(self._segments[index].since for index in found[1:])]
        owners = np.searchsorted(np.maximum.accumulate(starts), columns.walls, side="right") - 1
        if np.any(owners[1:] < owners[:-1]):
            order = np.argsort(owners, kind="stable")
            columns, owners = Columns(columns.steps[order], columns.walls[order], columns.values[order]), owners[order]
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        for first, last in pairwise(bounds):
            if first < last:
                part = slice(first, last)
                yield found[owners[first]], Columns(columns.steps[part], columns.walls[part], columns.values[part])

    def describe(self, indices: Sequence[int]) -> list[dict[str, str | int | None]]:
        """Return each segment's session and the step after which it was abandoned."""
        return [
            {"session": None, "abandoned_after_step": None}
            if index == UNKNOWN
            else {
                "session": self._segments[index].session,
                "abandoned_after_step": self._segments[index].abandoned_after,
            }
            for index in indices
        ]


def segments_of(shown: RunView) -> Segments:
    """Return the segments of a run's points; see `RunView.once`."""
    return Segments(shown.run)


def _segments_of(session: Session, recoveries: Sequence[Recovery], abandoned_after: int | None) -> list[_Segment]:
    """Return a session's segments: each recovery undoes what all before it did after the step it went back to."""
    started_at = -math.inf if session.started_at is None else session.started_at
    starts = [started_at, *(recovery.at for recovery in recoveries)]
    found: list[_Segment] = []
    for index in range(len(recoveries), -1, -1):
        to_step = recoveries[index].to_step if index < len(recoveries) else None
        known = [step for step in (abandoned_after, to_step) if step is not None]
        abandoned_after = min(known, default=None)
        found.append(_Segment(session.id, starts[index], abandoned_after))
    return found[::-1]


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
