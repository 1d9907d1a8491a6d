"""The scalars of runs. `ScalarPass` reads those of a logdir, run after run; `ScalarColumns` adds what is known of each
point: its running time, its session, whether it was kept.

Which points were kept is known once all of a run has been read. Its points are held until then, so that its files are
read once; those of a run with more than can be held are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.base.errors import EventsError
from supervisor_core.events.chunk import Chunk, Points
from supervisor_core.events.columns import Columns
from supervisor_core.events.index import LogdirIndex, RunIndex
from supervisor_core.history.formats import Coded, ColumnData
from supervisor_core.history.rows import short_name
from supervisor_core.run.fold.points import RunningTime, Segments
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.plain_writers import PlainWriters
from supervisor_core.run.watch.presence import CheckpointPresence
from supervisor_core.run.watch.run_tracker import RunTracker

MOST_HELD = 4_000_000
"""Points of a run that are held, in 32 bytes each. A run with more is read twice."""


@dataclass(frozen=True, slots=True)
class RunPoints:
    """One run, and its points."""

    watched: WatchedRun
    pieces: Iterator[tuple[str, Mapping[str, Points]]]
    """Of each file in turn, by its path, some points by tag. To be taken before the next run is read."""


class ScalarPass:
    """Reads a logdir once.

    Args:
        logdir: the directory.
        include: a regular expression that a run's name must match somewhere.
        exclude: one that it must not match anywhere.
        most_held: how many points of a run are held.
        clock: dates the look at each run.

    Raises:
        EventsError: if no file system for a remote path is installed.
        ValueError: if an expression is invalid.
    """

    def __init__(
        self,
        logdir: str,
        include: str | None = None,
        exclude: str | None = None,
        *,
        most_held: int = MOST_HELD,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._index = LogdirIndex(logdir, include=include, exclude=exclude, clock=clock)
        self._most_held, self._clock = most_held, clock
        self._reading: _RunReading | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """What of the logdir could not be looked at."""
        return tuple(problem.text for problem in self._index.problems)

    def read(
        self,
        take: Callable[[RunPoints], None],
        on_progress: Callable[[int, int], None] | None = None,
        on_points: Callable[[int], None] | None = None,
    ) -> None:
        """Read all runs, in the order of their names.

        Args:
            take: called with each run, once its files have been read.
            on_progress: called after each run with the number of runs read, and of all runs.
            on_points: called after each piece of a file with the number of its points.

        Raises:
            EventsError: if a file was replaced while its points were read again.
        """

        def finished(done: int, total: int) -> None:
            name = self._index.order[done - 1]
            reading, self._reading = self._of(name), None
            if not self._index.runs[name].has_text_only:
                take(reading.finished())
            if on_progress is not None:
                on_progress(done, total)

        def add(name: str, chunks: list[Chunk]) -> None:
            self._of(name).add(chunks)
            if on_points is not None:
                on_points(sum(_count(chunk.scalars) for chunk in chunks))

        self._index.refresh(finished, take=add)

    def _of(self, name: str) -> _RunReading:
        if self._reading is None:
            self._reading = _RunReading(self._index.runs[name], self._most_held, self._clock)
        return self._reading


class _RunReading:
    def __init__(self, index: RunIndex, most_held: int, clock: Clock) -> None:
        self._index, self._most_held, self._clock = index, most_held, clock
        self._tracker = RunTracker(index, CheckpointPresence(), PlainWriters(), kept_ticks=1, all_saves=False)
        self._held: dict[str, list[Mapping[str, Points]]] | None = {}
        self._points = 0

    def add(self, chunks: list[Chunk]) -> None:
        self._tracker.update(chunks)
        for chunk in chunks:
            if self._held is None:
                return
            if chunk.from_start:
                self._points -= sum(map(_count, self._held.pop(chunk.path, ())))
            if chunk.scalars:
                self._held.setdefault(chunk.path, []).append(chunk.scalars)
                self._points += _count(chunk.scalars)
            if self._points > self._most_held:
                self._held = None

    def finished(self) -> RunPoints:
        now, boot_now = self._clock.wall(), boot_secs(self._clock)
        if self._tracker.look_around(now, boot_now):
            self.add(self._index.refresh())  # what it wrote before: how it ended, perhaps
        watched = self._tracker.refresh(now, boot_now)
        if self._held is None:
            return RunPoints(watched, self._again())
        return RunPoints(watched, ((path, by_tag) for path, held in self._held.items() for by_tag in held))

    def _again(self) -> Iterator[tuple[str, Mapping[str, Points]]]:
        begun: set[str] = set()
        for chunk in RunIndex(self._index.name, self._index.directory).pieces():
            if chunk.from_start and chunk.path in begun:
                raise EventsError(f"{chunk.path} was replaced while it was read. Export again once nothing writes it.")
            begun.add(chunk.path)
            if chunk.scalars:
                yield chunk.path, chunk.scalars


def _count(by_tag: Mapping[str, Points]) -> int:
    return sum(map(len, by_tag.values()))


class ScalarColumns:
    """Adds what a run's model knows of its points.

    Args:
        run: the model.
    """

    def __init__(self, run: Run) -> None:
        self.segments = Segments(run)
        """Which session wrote each point."""
        self._running = RunningTime(run.sessions)

    def of(self, path: str, points: Columns | Points) -> Mapping[str, ColumnData]:
        """Return the columns of some points of one file: step, wall_time, running_time, value, session, kept."""
        columns = Columns(points.steps, points.walls, points.values)
        return {
            "step": columns.steps,
            "wall_time": columns.walls,
            "running_time": self._running.of(columns.walls),
            "value": columns.values,
            "session": self._sessions(path, columns),
            "kept": self.segments.kept(path, columns),
        }

    def rows(self, run: str, path: str, by_tag: Mapping[str, Points]) -> Sequence[ColumnData]:
        """Return the columns of the table ``scalars`` for some points of one file.

        Args:
            run: the run's name.
            path: the file.
            by_tag: at least one tag's.
        """
        names = [plain(tag) for tag in by_tag]
        counts = [len(points) for points in by_tag.values()]
        whole = Points.joined(list(by_tag.values()))
        tags = Coded(np.repeat(np.arange(len(names), dtype=np.int32), counts), names)
        return [Coded(np.zeros(len(whole), np.int32), [short_name(plain(run))]), tags, *self.of(path, whole).values()]

    def _sessions(self, path: str, columns: Columns) -> Coded:
        owners = self.segments.owners(path, columns.walls)
        if len(owners) and (owners == owners[0]).all():
            found, places = owners[:1], np.zeros(len(owners), np.int64)
        else:
            found, places = np.unique(owners, return_inverse=True)
        codes: dict[str, int] = {}
        code_of = []
        for owner in found.tolist():
            session = self.segments.session(owner)
            code_of.append(-1 if session is None else codes.setdefault(plain(session), len(codes)))
        return Coded(np.array(code_of, np.int32)[places], list(codes))
