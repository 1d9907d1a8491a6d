"""The points of a tag over the sessions of a run: which were kept (`Segments`), which are drawn (`thin`, `sampled`), in
a few numbers (`scalar_summary`), and by running time (`RunningTime`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

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


Floats = NDArray[np.float64]

_OF_A_STRETCH = 5
"""Points that `thin` keeps of one, at most."""


class Point(NamedTuple):
    """One point of a tag."""

    step: int
    wall_time: float
    value: float
    """May be NaN or infinite."""
    kept: bool
    """Whether no later session recomputed its step."""


def sampled(
    files: Mapping[str, Columns], segments: Segments, most: int, low: float = -np.inf, high: float = np.inf
) -> tuple[list[Point], int]:
    """Return some of a tag's points between two steps, bounds included, by step, and the number of all of them. Of each
    stretch of steps the smallest and the largest value are among them, the first and the last, and one that is no
    number.

    Args:
        files: the tag's points by file.
        segments: says which of them were kept.
        most: how many points are returned at most; at least 5.
        low: the first step.
        high: the last step.

    Example:
        >>> from supervisor_core.run.fold.run_fold import RunFold
        >>> points = Columns(np.array([1, 2]), np.array([1.7e9, 1.7e9]), np.array([0.5, 0.25]))
        >>> found, total = sampled({"a": points}, Segments(RunFold("mnist").run(1.7e9)), 50, low=2)
        >>> found[0].value, total
        (0.25, 1)
    """
    steps = np.concatenate([np.empty(0, np.int64), *(columns.steps for columns in files.values())])
    walls = np.concatenate([np.empty(0), *(columns.walls for columns in files.values())])
    values = np.concatenate([np.empty(0), *(columns.values for columns in files.values())])
    kept = np.concatenate([np.empty(0, bool), *(segments.kept(path, columns) for path, columns in files.items())])
    chosen = np.flatnonzero((steps >= low) & (steps <= high))
    chosen = chosen[np.argsort(steps[chosen], kind="stable")]
    total = len(chosen)
    if total > most:
        x = steps[chosen]
        edges = np.linspace(float(x[0]), float(x[-1]), most // _OF_A_STRETCH + 1)[1:-1]
        chosen = chosen[thin(x, values[chosen], edges, rises=True)]
    points = zip(steps[chosen], walls[chosen], values[chosen], kept[chosen], strict=True)
    return [Point(int(step), float(wall), float(value), bool(is_kept)) for step, wall, value, is_kept in points], total


def thin(x: NDArray[Any], values: Floats, edges: Floats, *, rises: bool) -> NDArray[np.int64]:
    """Return the positions of the points to draw, in order: of each pixel the first, the smallest, the largest, the
    last, and the first that is no number, so that no peak and no gap is lost.

    Args:
        x: where each point stands; at least one.
        values: its value.
        edges: where each pixel but the first begins; rising.
        rises: whether x never falls; pixels are then found without looking at every point.
    """
    order = None
    if rises:
        starts = np.unique(np.concatenate(([0], np.searchsorted(x, edges))))
        starts = starts[starts < len(x)]
    else:
        pixel = np.searchsorted(edges, x, side="right")
        order = np.argsort(pixel, kind="stable")
        pixel, values = pixel[order], values[order]
        starts = np.flatnonzero(np.concatenate(([True], pixel[1:] != pixel[:-1])))
    ends = np.append(starts[1:], len(x))
    kept = [starts, ends - 1]
    for extreme in (np.fmin, np.fmax):
        wanted = np.repeat(extreme.reduceat(values, starts), ends - starts)
        kept.append(_first_of_each(values == wanted, starts, ends))
    missing = np.isnan(values)
    if missing.any():
        kept.append(_first_of_each(missing, starts, ends))
    positions = np.unique(np.concatenate(kept))
    return positions if order is None else np.sort(order[positions])


def _first_of_each(hit: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first position that is hit in each group; none of a group without one."""
    positions = np.flatnonzero(hit)
    if not len(positions):
        return positions
    first = np.searchsorted(positions, starts)
    found = positions[np.minimum(first, len(positions) - 1)]
    return found[(found >= starts) & (found < ends)]


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
