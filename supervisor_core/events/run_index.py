"""`RunIndex`: the events files of one run, read as they appear, grow and are deleted."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.chunk import Chunk, FileFacts
from supervisor_core.events.directory import Directory
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.storage.local import join
from supervisor_core.storage.remote_source import Range
from supervisor_core.storage.source import ReadFileSystem, source_of

PIECE_BYTES = 64 * 1024 * 1024
"""Size of the pieces in which a file is read: some 1.3 million scalars."""


class RunIndex:
    """Reads the events files of one directory, in TensorBoard's order, that of their names: the newest 5,000, each once
    even if it has several names.

    Args:
        name: the run's name, as TensorBoard shows it.
        directory: the directory of its files; it need not exist yet.
        filesystem: reads the files. Default: by the path's scheme.
        clock: times the age of listings.
        thorough: whether to check the checksums of skipped payloads, too.
        scalars_only: whether to skip the supervisor's own records unread, see `EventsFileReader`.

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
        """The directory of the run's files."""
        return self._directory.path

    @property
    def files(self) -> tuple[FileFacts, ...]:
        """The state of each file, in order."""
        return tuple(reader.facts() for reader in self._readers.values())

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

    def refresh(self) -> list[Chunk]:
        """Return the new chunks of `pieces` as a list."""
        return list(self.pieces())

    def pieces(self) -> Iterator[Chunk]:
        """Yield the new chunks of each file, in the files' order; a large file piece by piece.

        Records that are appended while a file is read wait for the next call, so that a fast writer cannot keep this
        one from ending. A file that was deleted since the last call gives one empty chunk with ``from_start``.
        """
        if not self._is_listed:
            self._directory.refresh()
        if self._directory.events != self._names:
            yield from self._match_names()
        self._siblings.clear()
        if self._directory.links:
            for name, reader in self._readers.items():
                if name not in self._directory.links:
                    reader.claim()
        for reader in self._readers.values():
            goal: int | None = None  # its size at first: reading a growing file ends, too
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
        """Yield the range that `pieces` will read first, of each file with new bytes."""
        for name in self._directory.events:
            reader = self._readers.get(name) or self._reader(name)
            new = reader.grown()
            if new is not None:
                yield new

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
            scalars_only=self._scalars_only,
            siblings=self._siblings,
        )
