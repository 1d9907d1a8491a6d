"""`LogdirIndex`: every run below a logdir; `RunIndex`: its events files, read as they appear, grow and are deleted."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.fair_share import fair_order
from supervisor_core.base.shard import RunShard
from supervisor_core.events.chunk import Chunk, FileFacts, Problem
from supervisor_core.events.directory import Directory, DirectoryTree, is_events_file
from supervisor_core.events.reader import EventsFileReader, ReaderPosition
from supervisor_core.storage.filesystem import Range, ReadFilesystem
from supervisor_core.storage.local import join, source_of
from supervisor_core.storage.remote_source import RemoteSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LogdirChange:
    """The result of a refresh."""

    removed: tuple[str, ...] = ()
    """Names of runs that no longer exist."""
    changed: Mapping[str, list[Chunk]]
    """Run name -> its new chunks, in the order of its files; only runs that have any."""


class LogdirIndex:
    """Finds runs as TensorBoard does: each directory that has a file with ``tfevents`` in its name, symbolic links
    followed, named relative to the logdir (``.`` for the logdir itself).

    A directory that cannot be listed keeps the runs that were found in it and is named in ``problems``. Holds no
    descriptor between two calls, and one or two during one. Not thread-safe.

    Args:
        logdir: the directory; it need not exist yet. One with ``://`` in it is remote.
        include: a regular expression that a run's name must match somewhere.
        exclude: one that it must not match anywhere.
        shard: which part of these runs is read; None: all.
        max_runs: how many of these are read: of each owner, and of each directory in the logdir, about as many, those
            written last first; None: all.
        filesystem: reads the files. Default: by the path's scheme.
        clock: times the age of listings.
        thorough: whether to check the checksums of skipped payloads, too.

    Raises:
        EventsError: if no file system for a remote path is installed.
        ValueError: if an expression is invalid.
    """

    def __init__(
        self,
        logdir: str,
        *,
        include: str | None = None,
        exclude: str | None = None,
        shard: RunShard | None = None,
        max_runs: int | None = None,
        filesystem: ReadFilesystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        thorough: bool = False,
    ) -> None:
        self.logdir = logdir
        self.elsewhere: tuple[str, ...] = ()
        """Names of the runs that are not read: those of the other shards, and those beyond ``max_runs``."""
        self.left_out = 0
        """How many are beyond that."""
        self._max_runs = max_runs
        self._thorough = thorough
        self._shard = shard
        self._include, self._exclude = _compiled(include, "include"), _compiled(exclude, "exclude")
        self._source = source_of(logdir) if filesystem is None else filesystem
        self._clock = clock
        self._tree = DirectoryTree(logdir, filesystem=self._source, clock=clock)
        self._runs: dict[str, RunIndex] = {}
        self._shown = self._runs
        self.order: list[str] = []
        """The names of the runs that the latest `refresh` has read to their ends, in that order."""

    @property
    def runs(self) -> Mapping[str, RunIndex]:
        """The runs by name, in the order of their names; without directories that have text files only."""
        return self._shown

    @property
    def is_reachable(self) -> bool:
        """Whether the logdir exists and could be listed."""
        return self._tree.is_reachable

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Directories that could not be listed."""
        return tuple(Problem(kind="unreadable", offset=None, text=text) for text in self._tree.problems())

    def refresh(
        self,
        on_progress: Callable[[int, int], None] | None = None,
        *,
        take: Callable[[str, list[Chunk]], None] | None = None,
        begin: Callable[[RunIndex], None] | None = None,
        limit_secs: float | None = None,
    ) -> LogdirChange:
        """Find the runs, and read the new records of each.

        Args:
            on_progress: called after each run with the number of runs read, and of all runs.
            take: called with a run's name and some new chunks as soon as they are read; they are then not collected in
                ``changed``, so that no more than one piece of one file (64 MiB) is held at a time.
            begin: called with each run that is new, before anything is read: it may `RunIndex.resume`. The first time,
                runs are then read in the order of their newest files, the newest first.
            limit_secs: how long what is new is read, but for a piece: of each owner's runs for about as long, those
                first that were not read to their ends at the last call; None: to the end.
        """
        were_read, self.order = frozenset(self.order), []
        if isinstance(self._source, RemoteSource):
            self._source.look(self.logdir, is_events_file, self._clock)
        self._tree.refresh()
        found = {name: directory for name, directory in self._tree.runs() if self._is_asked_for(name)}
        if self._shard is not None:
            has = self._shard.has
            ours = {name: directory for name, directory in found.items() if has(directory.first_event_file or "")}
            self.elsewhere, found = tuple(name for name in found if name not in ours), ours
        else:
            self.elsewhere = ()
        self.left_out = 0 if self._max_runs is None else max(0, len(found) - self._max_runs)
        if self.left_out:
            written = {name: written_at(directory, self._source) for name, directory in found.items()}
            order = fair_order(
                sorted(found, key=lambda name: -written[name]),
                lambda name: found[name].owner,
                lambda name: name.partition("/")[0],
            )
            self.elsewhere += tuple(order[self._max_runs :])
            found = {name: found[name] for name in order[: self._max_runs]}
        before, self._runs = self._runs, {name: self._run(name, found[name]) for name in sorted(found)}
        changed: dict[str, list[Chunk]] = {}
        self._shown = self._runs
        order = list(self._runs)
        if begin is not None:
            for name, run in self._runs.items():
                if name not in before:
                    begin(run)
            if not before:
                order.sort(key=lambda name: -written_at(found[name], self._source))
        order.sort(key=were_read.__contains__)
        if isinstance(self._source, RemoteSource):
            self._source.read_ahead([new for name in order for new in self._runs[name].grown()])
        try:
            for name, chunk in self._pieces(order, limit_secs):
                if chunk is None:
                    self.order.append(name)
                    if on_progress is not None:
                        on_progress(len(self.order), len(order))
                elif take is not None:
                    take(name, [chunk])
                else:
                    changed.setdefault(name, []).append(chunk)
        finally:
            if isinstance(self._source, RemoteSource):
                self._source.stop_read_ahead()
        self._shown = {name: run for name, run in self._runs.items() if not run.has_text_only}
        return LogdirChange(
            removed=tuple(name for name in before if name not in self._runs),
            changed=changed,
        )

    def _pieces(self, order: list[str], limit_secs: float | None) -> Iterator[tuple[str, Chunk | None]]:
        """Yield each run's pieces, then None: one run after the other; within a limit, by turns of their owners."""
        if limit_secs is None:
            for name in order:
                yield from ((name, chunk) for chunk in self._runs[name].pieces())
                yield name, None
            return
        waiting: dict[int | None, deque[tuple[str, Iterator[Chunk]]]] = {}
        for name in order:
            run = self._runs[name]
            waiting.setdefault(run.owner, deque()).append((name, run.pieces(SHORT_PIECE_BYTES)))
        turns = [(0.0, number, runs) for number, runs in enumerate(waiting.values())]
        while turns and sum(taken for taken, *_ in turns) < limit_secs:
            taken, number, runs = heappop(turns)
            name, pieces = runs.popleft()
            began = self._clock.monotonic()
            chunk = next(pieces, None)
            yield name, chunk
            if chunk is not None:  # what has nothing new takes no other run's time
                taken += self._clock.monotonic() - began
                if self._runs[name].has_new:
                    runs.append((name, pieces))
                else:
                    yield from ((name, rest) for rest in (*pieces, None))
            if runs:
                heappush(turns, (taken, number, runs))
        for name, _ in chain(*(runs for *_, runs in turns)):
            if not self._runs[name].has_new:
                yield name, None

    def _is_asked_for(self, name: str) -> bool:
        if self._include is not None and not self._include.search(name):
            return False
        return self._exclude is None or not self._exclude.search(name)

    def _run(self, name: str, directory: Directory) -> RunIndex:
        if name in self._runs:
            return self._runs[name]
        return RunIndex(name, directory, filesystem=self._source, clock=self._clock, thorough=self._thorough)


def _compiled(expression: str | None, what: str) -> re.Pattern[str] | None:
    if expression is None:
        return None
    try:
        return re.compile(expression)
    except re.error as error:
        raise ValueError(f"{what} is no regular expression ({error}): {expression!r}.") from error


def written_at(directory: Directory, source: ReadFilesystem) -> float:
    """Return when the newest events file of a directory was written; 0 where unknown."""
    for name in directory.events[-1:]:
        with contextlib.suppress(OSError, ValueError):
            return source.stat(join(directory.path, name)).st_mtime_ns / 1e9
    return 0.0


PIECE_BYTES = 64 * 1024 * 1024
"""Size of the pieces in which a file is read: some 1.3 million scalars."""
SHORT_PIECE_BYTES = 4 * 1024 * 1024
"""The same where each owner's runs have their turns: telemetry takes a second or two."""


class RunIndex:
    """Reads the events files of one directory, in TensorBoard's order, that of their names: the newest 5,000, each once
    even if it has several names.

    Args:
        name: the run's name, as TensorBoard shows it.
        directory: the directory of its files; it need not exist yet.
        filesystem: reads the files. Default: by the path's scheme.
        clock: times the age of listings.
        thorough: whether to check the checksums of skipped payloads, too.

    Raises:
        EventsError: if no file system for a remote path is installed.
    """

    def __init__(
        self,
        name: str,
        directory: str | Directory,
        *,
        filesystem: ReadFilesystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        thorough: bool = False,
    ) -> None:
        self.name = name
        self._thorough = thorough
        if isinstance(directory, Directory):
            self._directory, self._is_listed = directory, True
        else:
            self._directory, self._is_listed = Directory(directory, filesystem=filesystem, clock=clock), False
        self._source = source_of(self._directory.path) if filesystem is None else filesystem
        self._names: tuple[str, ...] = ()
        self._readers: dict[str, EventsFileReader] = {}
        self._siblings: dict[tuple[int, int], str] = {}
        self._gone: list[Chunk] = []
        """Of deleted files, not yet taken."""

    @property
    def directory(self) -> str:
        """The directory of the run's files."""
        return self._directory.path

    @property
    def files(self) -> tuple[FileFacts, ...]:
        """The state of each file, in order; another program's text file with such a name is none."""
        return tuple(reader.facts() for reader in self._readers.values() if not reader.is_text)

    @property
    def has_text_only(self) -> bool:
        """Whether none of its files is an events file: they are text."""
        return bool(self._readers) and all(reader.is_text for reader in self._readers.values())

    @property
    def left_out(self) -> int:
        """Number of events files beyond the limit, which are not read (docs/limits.md)."""
        return self._directory.left_out

    @property
    def identity(self) -> tuple[int, int] | None:
        """Inode and device of the directory; None where unknown, or the store has none."""
        return self._directory.identity

    @property
    def problem(self) -> str | None:
        """Why the directory cannot be listed; None where it can, or does not exist."""
        return self._directory.problem

    @property
    def owner(self) -> int | None:
        """See `Directory.owner`."""
        return self._directory.owner

    @property
    def positions(self) -> dict[str, ReaderPosition]:
        """Where the reader of each file is, by the file's name, for `resume`."""
        return {name: reader.position for name, reader in self._readers.items()}

    def resume(self, positions: Mapping[str, ReaderPosition]) -> None:
        """Read only what comes after these positions. Before the first `pieces`."""
        self._names = tuple(positions)
        self._readers = {name: self._reader(name) for name in positions}
        for name, position in positions.items():
            self._readers[name].resume(position)

    def refresh(self) -> list[Chunk]:
        """Return the new chunks of `pieces` as a list."""
        return list(self.pieces())

    def pieces(self, most_bytes: int | None = None) -> Iterator[Chunk]:
        """Yield the new chunks of each file, in the files' order; a large file in pieces of so many bytes. What is not
        taken comes with the next call.

        Records that are appended while a file is read wait for the next call, so that a fast writer cannot keep this
        one from ending. A file that was deleted since the last call gives one empty chunk with ``from_start``.
        """
        if not self._is_listed:
            self._directory.refresh()
        if self._directory.events != self._names:
            self._gone += self._match_names()
        while self._gone:
            yield self._gone.pop(0)
        self._siblings.clear()
        if self._directory.links:
            for name, reader in self._readers.items():
                if name not in self._directory.links:
                    reader.claim()
        readers = self._readers
        for reader in readers.values():
            goal: int | None = None  # its size at first: reading a growing file ends, too
            reading = True
            while reading:
                chunk = reader.read(most_bytes or PIECE_BYTES)
                if chunk is not None:
                    yield chunk
                    if self._readers is not readers:  # `resume` meanwhile
                        return
                reading = reader.has_more
                if reading:
                    facts = reader.facts()
                    goal = goal or facts.size_bytes
                    reading = goal is None or facts.read_bytes < goal
        self._siblings.clear()

    def grown(self) -> Iterator[Range]:
        """Yield the range that `pieces` will read first, of each file with new bytes."""
        for name in self._directory.events:
            reader = self._readers.get(name) or self._reader(name)
            new = reader.grown()
            if new is not None:
                yield new

    @property
    def has_new(self) -> bool:
        """Whether `pieces` has something to read."""
        return self._directory.events != self._names or any(True for _ in self.grown())

    def _match_names(self) -> list[Chunk]:
        """Update the readers to one for each name; return a chunk for each deleted file."""
        names, before = self._directory.events, self._readers
        self._readers = {name: before[name] if name in before else self._reader(name) for name in names}
        self._names = names
        return [
            Chunk(path=reader.path, from_start=True)
            for name, reader in before.items()
            if name not in self._readers and reader.has_started
        ]

    def _reader(self, name: str) -> EventsFileReader:
        path = join(self._directory.path, name)
        return EventsFileReader(
            path,
            filesystem=self._source,
            thorough=self._thorough,
            siblings=self._siblings,
        )
