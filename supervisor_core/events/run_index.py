"""`RunIndex`: the events files of one run, read as they grow, appear and go."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.chunk import Chunk, FileFacts
from supervisor_core.events.directory import Directory
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.events.remote_source import Range
from supervisor_core.events.source import ReadFileSystem, source_of
from supervisor_core.storage.local import join

PIECE_BYTES = 64 * 1024 * 1024
"""How much of a file is read before it is handed out: some 1.3 million scalars."""


class RunIndex:
    """Reads the events files of one directory, in TensorBoard's order: that of their names; the newest 5,000, each
    once, also if it is there under several names.

    Args:
        name: the run's name, as TensorBoard shows it.
        directory: where its files are; it need not exist yet.
        filesystem: where to read from; the one that the path says.
        clock: tells when a listing of the directory has become old.
        thorough: whether to look at the checksums of what is skipped as well.
        scalars_only: whether to pass over the supervisor's own records, unread: much the larger part of the work in a
            long run, and nothing in it for who draws curves.

    Raises:
        EventsError: if no file system for a remote path is installed.
    """

    def __init__(
        self,
        name: str,
        directory: str | Directory,
        *,
        filesystem: ReadFileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        thorough: bool = False,
        scalars_only: bool = False,
    ) -> None:
        self.name = name
        self._thorough = thorough
        self._scalars_only = scalars_only
        if isinstance(directory, Directory):
            self._directory, self._is_listed = directory, True
        else:
            self._directory, self._is_listed = Directory(directory, filesystem=filesystem, clock=clock), False
        self._source = source_of(self._directory.path) if filesystem is None else filesystem
        self._names: tuple[str, ...] = ()
        self._readers: dict[str, EventsFileReader] = {}
        self._siblings: dict[tuple[int, int], str] = {}

    @property
    def directory(self) -> str:
        """Where the run's files are."""
        return self._directory.path

    @property
    def files(self) -> tuple[FileFacts, ...]:
        """What is known of each file, in order."""
        return tuple(reader.facts() for reader in self._readers.values())

    @property
    def left_out(self) -> int:
        """How many of its events files are not read, because there are too many (docs/limits.md)."""
        return self._directory.left_out

    @property
    def identity(self) -> tuple[int, int] | None:
        """Inode and device of the directory; None where it could not be asked or the store has none."""
        return self._directory.identity

    @property
    def problem(self) -> str | None:
        """Why the directory cannot be listed; None where it can, or is not there."""
        return self._directory.problem

    def refresh(self) -> list[Chunk]:
        """Return what is new in each file, in the files' order, as `pieces` yields it."""
        return list(self.pieces())

    def pieces(self) -> Iterator[Chunk]:
        """Yield what is new in each file, in the files' order; a large file piece by piece, as each is asked for.

        What is appended while a file is read is left to the next time, so that no writer can keep a look from ending.

        A file that is gone since the last time gives one chunk with ``from_start`` and nothing in it.
        """
        if not self._is_listed:
            self._directory.refresh()
        if self._directory.events != self._names:
            yield from self._match_names()
        self._siblings.clear()
        for reader in self._readers.values():
            goal: int | None = None  # its size when it was looked at: one that grows while it is read ends, too
            reading = True
            while reading:
                chunk = reader.read(PIECE_BYTES)
                if chunk is not None:
                    yield chunk
                reading = reader.has_more
                if reading:
                    facts = reader.facts()
                    goal = goal or facts.size_bytes
                    reading = goal is None or facts.read_bytes < goal

    def grown(self) -> Iterator[Range]:
        """Yield what `pieces` will read first, of each file in which there is something new."""
        for name in self._directory.events:
            reader = self._readers.get(name) or self._reader(name)
            new = reader.grown()
            if new is not None:
                yield new

    def _match_names(self) -> list[Chunk]:
        """Have one reader for each name; return a chunk for each that is gone."""
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
            scalars_only=self._scalars_only,
            siblings=self._siblings,
        )
