"""`EventsFileReader`: reads one events file once, as it grows."""

from __future__ import annotations

import errno
import logging
import math
import os
import stat
from dataclasses import dataclass
from operator import attrgetter

from supervisor_core.events.chunk import Chunk, FileFacts, Problem
from supervisor_core.events.chunk_builder import ChunkBuilder, created_at
from supervisor_core.events.event_format import HEADER_BYTES, header
from supervisor_core.events.scan import FileCut, RecordScan, Window
from supervisor_core.storage.filesystem import FileStatus, ReadFile, ReadFilesystem
from supervisor_core.storage.local import source_of
from supervisor_core.storage.remote_source import Range

_LOG = logging.getLogger("supervisor_core")
_LFS_POINTER = b"version https://git-lfs"
_GUARD_BYTES = 16
_HEAD_BYTES = 64
_KEPT_PROBLEMS = 100
_SAME_TAGS = 1_000
"""Sets of tags that files may have in common."""
FREE_BYTES = 256 << 20
PER_STORED_BYTE = 64
"""Limit of the bytes fetched of a file: `FREE_BYTES`, and this for each byte that it takes on the disk, since a file
looks sparse on file systems that compress, too."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_stamp = attrgetter("st_size", "st_mtime_ns", "st_ino", "st_dev")
"""Returns what changes when a file grows, or another one takes its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPosition:
    """See `EventsFileReader.position`."""

    seen: tuple[int, int, int, int] | None
    size: int | None
    started: bool
    tags: tuple[str, ...]
    scan: RecordScan
    identity: tuple[int, int] | None
    head: bytes
    guard: bytes
    problems: tuple[Problem, ...]
    fetched: int
    left_out: int
    skipped: str | None
    refused: bool
    complaint: str | None


class EventsFileReader:
    """Returns an events file chunk by chunk, each record once. Never raises for a fault of the file or its disk.

    Damaged and changing files:

    * An incomplete record at the end is waited for, and so are bytes at the end that cannot be a record, until good
      records follow. A payload that does not match its checksum is left out, counted and located, and reading continues
      after it. After a damaged length, reading continues at the next record that proves itself (`scan`); the bytes
      between count as one problem.
    * A file that has become shorter than what was read of it, has another inode, or other bytes where reading
      stopped, is read again; that chunk has ``from_start`` and a problem ``replaced``.
    * Payloads above 64 KiB that hold no scalar, session log or telemetry (graphs, images) are skipped unread, by their
      own lengths: their checksums are not checked, and their wall time and step are trusted. Everything else that is
      returned was checked.
    * A file that is no events file (empty, a Git LFS pointer, a pipe ...), unreadable or deleted is named in
      ``facts().skipped``, and checked again at the next call.

    Between two calls it keeps a position and some counts, and no descriptor. Not thread-safe.

    Args:
        path: the file; one with ``://`` in it is remote.
        filesystem: reads the file. Default: by the path's scheme.
        thorough: whether to check the checksums of skipped payloads.
        scalars_only: whether to skip the supervisor's own records unread: most of the work in a long run, and useless
            for drawing curves.
        siblings: device and inode of each file -> the path under which it is read; shared by the readers of one run
            and cleared before each round, so that a file with several names is read once.

    Raises:
        EventsError: if no file system for a remote path is installed.

    Example::

        reader = EventsFileReader("logs/events.out.tfevents.1700000000.host")
        while (chunk := reader.read(max_bytes=64 << 20)) is not None:
            fold(chunk)
    """

    __slots__ = (
        "_complaint",
        "_created_at",
        "_fetched",
        "_guard",
        "_head",
        "_identity",
        "_is_resumed",
        "_left_out",
        "_more",
        "_problems",
        "_refused",
        "_scalars_only",
        "_scan",
        "_seen",
        "_siblings",
        "_size",
        "_skipped",
        "_source",
        "_started",
        "_stat",
        "_tags",
        "_thorough",
        "path",
    )

    def __init__(
        self,
        path: str,
        *,
        filesystem: ReadFilesystem | None = None,
        thorough: bool = False,
        scalars_only: bool = False,
        siblings: dict[tuple[int, int], str] | None = None,
    ) -> None:
        self.path = path
        self._siblings = siblings
        self._thorough = thorough
        self._scalars_only = scalars_only
        self._source = source_of(path) if filesystem is None else filesystem
        self._stat = self._source.stat
        self._created_at = created_at(path)
        self._seen: tuple[int, int, int, int] | None = None
        self._size: int | None = None
        self._started = self._more = self._is_resumed = False
        self._tags: set[str] | frozenset[str] = set()
        self._reset()

    def _reset(self) -> None:
        self._scan = RecordScan(thorough=self._thorough, scalars_only=self._scalars_only)
        self._identity: tuple[int, int] | None = None
        self._head = self._guard = b""
        self._problems: tuple[Problem, ...] = ()
        self._known_tags().clear()
        self._fetched = 0
        self._left_out = 0
        self._skipped: str | None = None
        self._refused = False
        self._complaint: str | None = None

    @property
    def position(self) -> ReaderPosition:
        """Where it is, and what it has found: a new reader of the path goes on from there with `resume`."""
        return ReaderPosition(
            seen=self._seen, size=self._size, started=self._started, tags=tuple(self._tags), scan=self._scan,
            identity=self._identity, head=self._head, guard=self._guard, problems=self._problems,
            fetched=self._fetched, left_out=self._left_out, skipped=self._skipped,
            refused=self._refused, complaint=self._complaint,
        )  # fmt: skip

    def resume(self, position: ReaderPosition) -> None:
        """Go on from the position of another reader of the path, of an earlier process, say.

        Since devices are numbered again when a machine starts, a file with the same inode, first bytes and last read
        bytes is the same one.
        """
        self._seen, self._size, self._started = position.seen, position.size, position.started
        self._known_tags().update(position.tags)
        self._scan, self._identity, self._guard = position.scan, position.identity, position.guard
        self._problems, self._fetched, self._left_out = position.problems, position.fetched, position.left_out
        self._skipped, self._refused, self._complaint = position.skipped, position.refused, position.complaint
        self._head, self._is_resumed = position.head, True

    def rest(self, same_tags: dict[frozenset[str], frozenset[str]]) -> None:
        """Take less memory, until the file changes; see `RunIndex.rest`."""
        tags = frozenset(self._tags)
        self._tags = (same_tags.setdefault if len(same_tags) < _SAME_TAGS else same_tags.get)(tags, tags)

    def _known_tags(self) -> set[str]:
        """Return the file's tags, to which a chunk adds its own."""
        if isinstance(self._tags, frozenset):
            self._tags = set(self._tags)
        return self._tags

    @property
    def has_started(self) -> bool:
        """Whether a chunk was returned."""
        return self._started

    @property
    def has_more(self) -> bool:
        """Whether the last `read` ended because of its ``max_bytes``."""
        return self._more

    def grown(self) -> Range | None:
        """Return the range with which the next `read` begins; None where there is nothing new or nothing readable."""
        try:
            status = self._stat(self.path)
        except (OSError, ValueError):
            return None
        start = max(0, self._scan.at - len(self._guard))
        if _stamp(status) == self._seen or not stat.S_ISREG(status.st_mode) or status.st_size <= start:
            return None
        return Range(self.path, start, status.st_size - start)

    def claim(self) -> None:
        """Have the file read under this name, whatever other names it has."""
        try:
            status = self._stat(self.path)
        except (OSError, ValueError):
            return
        if self._siblings is not None and status.st_ino:
            self._siblings.setdefault((status.st_dev, status.st_ino), self.path)

    def read(self, max_bytes: int | None = None) -> Chunk | None:
        """Return the new records since the last call; None where there are none.

        Args:
            max_bytes: stop after the record that reaches this number of bytes; the next call continues there.
        """
        try:
            self._more = False
            status = self._stat(self.path)
        except (OSError, ValueError) as error:
            return self._unreadable(error, ChunkBuilder(self._known_tags()))
        seen = _stamp(status)
        if self._siblings is not None and status.st_ino:
            reads = self._siblings.setdefault((status.st_dev, status.st_ino), self.path)
            if reads != self.path and self._is_one_of_many(status):
                return self._skip_duplicate(reads)
        if seen == self._seen:
            return None
        if not stat.S_ISREG(status.st_mode):
            self._skipped, self._refused = "not a regular file", False
            self._seen, self._size = seen, None
            return None
        builder = ChunkBuilder(self._known_tags())
        try:
            file = self._source.open(self.path)
            try:
                return self._read(file, status, builder, max_bytes)
            finally:
                file.close()
        except Exception as error:  # a fault of this reader must not stop the files and runs after this one
            if not isinstance(error, OSError):
                _LOG.debug("%s cannot be read", self.path, exc_info=True)
            return self._unreadable(error, builder)

    def facts(self) -> FileFacts:
        """Return the state of the file as of the last `read`."""
        return FileFacts(
            path=self.path,
            size_bytes=self._size,
            read_bytes=self._scan.at,
            records=self._scan.records,
            corrupt_records=self._scan.corrupt,
            torn_bytes=0 if self._size is None or self._skipped else max(0, self._size - self._scan.at),
            skipped=self._skipped,
            unreadable=self._skipped is not None and self._refused,
            problems=self._problems,
            left_out_scalars=self._left_out,
            written_at=self._seen[1] / 1e9 if self._seen and self._seen[1] else None,
        )

    def _read(self, file: ReadFile, status: FileStatus, builder: ChunkBuilder, max_bytes: int | None) -> Chunk | None:
        # The status is the path's of a moment ago. If that was another file, the next read detects it.
        self._size = status.st_size
        blocks = getattr(status, "st_blocks", 0)  # 0: not known, as of an object store
        allowed = FREE_BYTES + PER_STORED_BYTE * 512 * blocks if blocks else math.inf
        window = Window(file, status.st_size, most_bytes=allowed - self._fetched)
        try:
            return self._read_in(window, status, builder, max_bytes)
        finally:
            self._fetched += window.fetched

    def _read_in(
        self, window: Window, status: FileStatus, builder: ChunkBuilder, max_bytes: int | None
    ) -> Chunk | None:
        if self._is_another(status, window):
            self._reset()
            self._started = False
            builder.add_problem(Problem(kind="replaced", offset=None, text="The file was replaced or cut."))
        self._identity = status.st_dev, status.st_ino
        stop = self._scan.at + max_bytes if max_bytes is not None else None
        self._skipped = self._complaint = None
        self._refused = False
        try:
            self._skipped = _is_no_file(window) if self._scan.at == 0 else None
            finished = self._skipped is not None or self._scan.run(window, builder, stop)
            self._more = not finished
        except FileCut:
            finished = False
        except Exception as error:  # as above
            self._remember_guard(None)
            return self._unreadable(error, builder)
        if self._scan.at == 0 and self._skipped is None and not _may_begin(window):
            self._skipped = "no events file: it does not begin with a record, and none was found in it"
        self._remember_guard(window)
        self._seen = _stamp(status) if finished else None
        return self._hand_out(builder)

    def _is_another(self, status: FileStatus, window: Window) -> bool:
        was_resumed, self._is_resumed = self._is_resumed, False
        if self._identity is None:
            return False
        device, inode = self._identity
        if inode != status.st_ino or status.st_size < self._scan.at:
            return True
        if was_resumed and window.bytes(0, len(self._head)) != self._head:
            return True
        if device != status.st_dev and not was_resumed:
            return True
        return window.bytes(self._scan.at - len(self._guard), len(self._guard)) != self._guard

    def _remember_guard(self, window: Window | None) -> None:
        """Keep the last bytes before the position: a file that was rewritten in place differs in them."""
        length = min(self._scan.at, _GUARD_BYTES)
        try:
            self._guard = window.bytes(self._scan.at - length, length) if window is not None else b""
            if window is not None and not self._head and self._identity and self._identity[1]:  # a store has no inodes
                self._head = window.bytes(0, min(self._scan.at, _HEAD_BYTES))
        except OSError:
            self._guard = b""

    def _is_one_of_many(self, status: FileStatus) -> bool:
        """Whether the file may have further names: some file systems give one inode number to several files."""
        return getattr(status, "st_nlink", 1) > 1 or os.path.islink(self.path)

    def _skip_duplicate(self, path: str) -> Chunk | None:
        """Skip a file that is read under another name, and void its earlier chunks."""
        was_read = self._started
        self._reset()
        self._seen, self._size, self._started = None, None, False
        self._skipped = f"the same file as {path}"
        return Chunk(path=self.path, from_start=True) if was_read else None

    def _unreadable(self, error: Exception, builder: ChunkBuilder) -> Chunk | None:
        self._seen, self._more = None, False
        code = error.errno if isinstance(error, OSError) else None
        what = str(error) or type(error).__name__
        self._refused = code not in _GONE
        if code in _GONE:
            self._skipped, self._size = "it is gone", None
        elif isinstance(error, PermissionError):
            self._skipped = "no permission to read it"
        else:
            self._skipped = f"it cannot be read: {what}"
            if self._skipped != self._complaint:  # reported once, however often it is retried
                self._complaint = self._skipped
                problem = Problem(kind="unreadable", offset=self._scan.at, text=f"Reading failed: {what}.")
                builder.add_problem(problem)
        return self._hand_out(builder)

    def _hand_out(self, builder: ChunkBuilder) -> Chunk | None:
        self._left_out += builder.left_out
        if not builder.records and not builder.problems:
            return None
        self._problems += tuple(builder.problems[: _KEPT_PROBLEMS - len(self._problems)])
        chunk = builder.chunk(self.path, self._created_at, from_start=not self._started)
        self._started = True
        return chunk


def _is_no_file(window: Window) -> str | None:
    """Return why a file is no events file, by its first bytes; None where it may be one."""
    if window.size == 0:
        return "it is empty"
    if window.bytes(0, len(_LFS_POINTER)) == _LFS_POINTER:
        return "a Git LFS pointer, not the file itself"
    return None


def _may_begin(window: Window) -> bool:
    """Say whether a file begins with the header of a record, or is shorter than one."""
    head = window.bytes(0, HEADER_BYTES)
    return len(head) < HEADER_BYTES or header(int.from_bytes(head[:8], "little")) == head
