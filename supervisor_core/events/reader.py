"""`EventsFileReader`: reads one events file once, as it grows."""

from __future__ import annotations

import codecs
import errno
import logging
import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

from supervisor_core.base import checksum
from supervisor_core.base.wire import DamagedError
from supervisor_core.events.chunk import SAME_FILE, Chunk, FileFacts, Problem
from supervisor_core.events.chunk_builder import ChunkBuilder, created_at
from supervisor_core.events.event_format import FOOTER_BYTES, HEADER_BYTES, header
from supervisor_core.events.payload import decode
from supervisor_core.events.scan import FileCut, RecordScan, Window
from supervisor_core.storage.filesystem import FileStatus, Range, ReadFile, ReadFilesystem
from supervisor_core.storage.local import source_of

_LOG = logging.getLogger("supervisor_core")
_LFS_POINTER = b"version https://git-lfs"
_GUARD_BYTES = 16
_HEAD_BYTES = 64
_KEPT_PROBLEMS = 100
_MOST_UNCHECKED_BYTES = 1 << 20
_MOST_DAMAGE, _DAMAGE_BYTES = 16, 4096
NO_RECORD = "no events file: it does not begin with a record, and none was found in it"
WRONG_CHECKSUMS = (
    "it has events, and their checksums are wrong: its writer has to write masked CRC-32C, without which TensorBoard "
    "reads nothing of it either"
)
FREE_BYTES = 256 << 20
PER_STORED_BYTE = 64
"""Limit of the bytes fetched of a file: `FREE_BYTES`, and this for each byte that it takes on the disk, since a file
looks sparse on file systems that compress, too."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_stamp = attrgetter("st_size", "st_mtime_ns", "st_ino", "st_dev")
"""Returns what changes when a file grows, or another one takes its name."""


@dataclass(slots=True, kw_only=True)
class ReaderPosition:
    """Where the reader of a file is, and what it has found so far."""

    scan: RecordScan
    seen: tuple[int, int, int, int] | None = None
    """What `_stamp` returned when the file was last read to its end; None to read it at the next call."""
    size: int | None = None
    started: bool = False
    """Whether a chunk was returned."""
    tags: set[str] = field(default_factory=set)
    identity: tuple[int, int] | None = None
    """Device and inode."""
    head: bytes = b""
    guard: bytes = b""
    """The last bytes before the position: a file that was rewritten in place differs in them."""
    problems: tuple[Problem, ...] = ()
    damage: tuple[tuple[int, int, int], ...] = ()
    """Offset, number and checksum of the bytes at each of the first damaged places."""
    has_rested: bool = False
    """Whether they were looked at since the file last grew."""
    fetched: int = 0
    left_out: int = 0
    skipped: str | None = None
    is_text: bool = False
    """Whether it is another program's text file with such a name, as of Unity's ``.meta``."""
    refused: bool = False
    complaint: str | None = None
    """The fault that was reported last."""


class EventsFileReader:
    """Returns an events file chunk by chunk, each record once. Never raises for a fault of the file or its disk.

    Damaged and changing files:

    * An incomplete record at the end is waited for, and so are bytes at the end that cannot be a record, until good
      records follow. A payload that does not match its checksum is left out, counted and located, and reading continues
      after it. After a damaged length, reading continues at the next record that proves itself (`scan`); the bytes
      between count as one problem.
    * Damaged places that have changed since, as holes that NFS fills late, have the file read again, from its start:
      looked at when it has grown, and once when it has not.
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
        siblings: device and inode of each file -> the path under which it is read; shared by the readers of one run
            and cleared before each round, so that a file with several names is read once.

    Raises:
        EventsError: if no file system for a remote path is installed.

    Example::

        reader = EventsFileReader("logs/events.out.tfevents.1700000000.host")
        while (chunk := reader.read(max_bytes=64 << 20)) is not None:
            fold(chunk)
    """

    __slots__ = ("_is_resumed", "_more", "_siblings", "_source", "_thorough", "path", "position")

    def __init__(
        self,
        path: str,
        *,
        filesystem: ReadFilesystem | None = None,
        thorough: bool = False,
        siblings: dict[tuple[int, int], str] | None = None,
    ) -> None:
        self.path = path
        self._siblings = siblings
        self._thorough = thorough
        self._source = source_of(path) if filesystem is None else filesystem
        self._more = self._is_resumed = False
        self.position = ReaderPosition(scan=RecordScan(thorough=thorough))
        """Changes with each `read`."""

    def resume(self, position: ReaderPosition) -> None:
        """Go on from the position of another reader of the path, of an earlier process, say.

        Since devices are numbered again when a machine starts, a file with the same inode, first bytes and last read
        bytes is the same one.
        """
        self.position, self._is_resumed = position, True

    def _reset(self) -> None:
        tags = self.position.tags
        tags.clear()
        self.position = ReaderPosition(scan=RecordScan(thorough=self._thorough), size=self.position.size, tags=tags)

    @property
    def has_started(self) -> bool:
        """Whether a chunk was returned."""
        return self.position.started

    @property
    def is_text(self) -> bool:
        """Whether it is no events file but text, as far as it was read."""
        return self.position.is_text

    @property
    def has_more(self) -> bool:
        """Whether the last `read` ended because of its ``max_bytes``."""
        return self._more

    def grown(self) -> Range | None:
        """Return the range with which the next `read` begins; None where there is nothing new or nothing readable."""
        try:
            status = self._source.stat(self.path)
        except (OSError, ValueError):
            return None
        start = max(0, self.position.scan.at - len(self.position.guard))
        if _stamp(status) == self.position.seen or not stat.S_ISREG(status.st_mode) or status.st_size <= start:
            return None
        return Range(self.path, start, status.st_size - start)

    def claim(self) -> None:
        """Have the file read under this name, whatever other names it has."""
        try:
            status = self._source.stat(self.path)
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
            status = self._source.stat(self.path)
        except (OSError, ValueError) as error:
            return self._unreadable(error, ChunkBuilder(self.position.tags))
        seen = _stamp(status)
        if self._siblings is not None and status.st_ino:
            reads = self._siblings.setdefault((status.st_dev, status.st_ino), self.path)
            if reads != self.path and self._is_one_of_many(status):
                return self._skip_duplicate(reads)
        is_at_rest = seen == self.position.seen
        if is_at_rest and (self.position.has_rested or not self.position.damage):
            return None
        self.position.has_rested = is_at_rest
        if not stat.S_ISREG(status.st_mode):
            self.position.skipped, self.position.refused = "not a regular file", False
            self.position.seen, self.position.size = seen, None
            return None
        builder = ChunkBuilder(self.position.tags)
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
        at = self.position
        return FileFacts(
            path=self.path,
            size_bytes=at.size,
            read_bytes=at.scan.at,
            records=at.scan.records,
            corrupt_records=at.scan.corrupt,
            torn_bytes=0 if at.size is None or at.skipped else max(0, at.size - at.scan.at),
            skipped=at.skipped,
            unreadable=at.skipped is not None and at.refused,
            problems=at.problems,
            left_out_scalars=at.left_out,
            written_at=at.seen[1] / 1e9 if at.seen and at.seen[1] else None,
        )

    def _read(self, file: ReadFile, status: FileStatus, builder: ChunkBuilder, max_bytes: int | None) -> Chunk | None:
        # The status is the path's of a moment ago. If that was another file, the next read detects it.
        self.position.size = status.st_size
        blocks = getattr(status, "st_blocks", 0)  # 0: not known, as of an object store
        allowed = FREE_BYTES + PER_STORED_BYTE * 512 * blocks if blocks else math.inf
        window = Window(file, status.st_size, most_bytes=allowed - self.position.fetched)
        try:
            return self._read_in(window, status, builder, max_bytes)
        finally:
            self.position.fetched += window.fetched

    def _read_in(
        self, window: Window, status: FileStatus, builder: ChunkBuilder, max_bytes: int | None
    ) -> Chunk | None:
        if self._is_another(status, window):
            self._reset()
            builder.add_problem(Problem(kind="replaced", offset=None, text="The file was replaced or cut."))
        if any(_checksum_at(window, *place) != before for *place, before in self.position.damage):
            self._reset()
        at = self.position
        at.identity = status.st_dev, status.st_ino
        stop = at.scan.at + max_bytes if max_bytes is not None else None
        at.skipped = at.complaint = None
        at.refused = False
        try:
            at.skipped = _is_no_file(window) if at.scan.at == 0 else None
            finished = at.skipped is not None or at.scan.run(window, builder, stop)
            self._more = not finished
        except FileCut:
            finished = False
        except Exception as error:  # as above
            self._remember_guard(None)
            return self._unreadable(error, builder)
        at.is_text = at.scan.at == 0 and at.skipped is None and _is_text(window)
        if at.is_text or (at.scan.at == 0 and at.skipped is None and not _may_begin(window)):
            has_events = not at.is_text and _has_unchecked_events(window)
            at.skipped = WRONG_CHECKSUMS if has_events else NO_RECORD
        places = [problem.offset for problem in builder.problems if problem.offset is not None]
        for offset in places[: _MOST_DAMAGE - len(at.damage)]:
            length = min(_DAMAGE_BYTES, at.scan.at - offset)  # what was read: more may be appended
            at.damage = (*at.damage, (offset, length, _checksum_at(window, offset, length)))
        self._remember_guard(window)
        at.seen = _stamp(status) if finished else None
        return self._hand_out(builder)

    def _is_another(self, status: FileStatus, window: Window) -> bool:
        at, was_resumed, self._is_resumed = self.position, self._is_resumed, False
        if at.identity is None:
            return False
        device, inode = at.identity
        if inode != status.st_ino or status.st_size < at.scan.at:
            return True
        if was_resumed and window.bytes(0, len(at.head)) != at.head:
            return True
        if device != status.st_dev and not was_resumed:
            return True
        return window.bytes(at.scan.at - len(at.guard), len(at.guard)) != at.guard

    def _remember_guard(self, window: Window | None) -> None:
        """Keep the last bytes before the position: a file that was rewritten in place differs in them."""
        at = self.position
        length = min(at.scan.at, _GUARD_BYTES)
        try:
            at.guard = window.bytes(at.scan.at - length, length) if window is not None else b""
            if window is not None and not at.head and at.identity and at.identity[1]:  # a store has no inodes
                at.head = window.bytes(0, min(at.scan.at, _HEAD_BYTES))
        except OSError:
            at.guard = b""

    def _is_one_of_many(self, status: FileStatus) -> bool:
        """Whether the file may have further names: some file systems give one inode number to several files."""
        return getattr(status, "st_nlink", 1) > 1 or os.path.islink(self.path)

    def _skip_duplicate(self, path: str) -> Chunk | None:
        """Skip a file that is read under another name, and void its earlier chunks."""
        was_read = self.position.started
        self._reset()
        self.position.size = None
        self.position.skipped = f"{SAME_FILE}{path}"
        return Chunk(path=self.path, from_start=True) if was_read else None

    def _unreadable(self, error: Exception, builder: ChunkBuilder) -> Chunk | None:
        at = self.position
        at.seen, self._more = None, False
        code = error.errno if isinstance(error, OSError) else None
        what = str(error) or type(error).__name__
        at.refused = code not in _GONE
        if code in _GONE:
            at.skipped, at.size = "it is gone", None
        elif isinstance(error, PermissionError):
            at.skipped = "no permission to read it"
        else:
            at.skipped = f"it cannot be read: {what}"
            if at.skipped != at.complaint:  # reported once, however often it is retried
                at.complaint = at.skipped
                problem = Problem(kind="unreadable", offset=at.scan.at, text=f"Reading failed: {what}.")
                builder.add_problem(problem)
        return self._hand_out(builder)

    def _hand_out(self, builder: ChunkBuilder) -> Chunk | None:
        at = self.position
        at.left_out += builder.left_out
        if not builder.records and not builder.problems:
            return None
        at.problems += tuple(builder.problems[: _KEPT_PROBLEMS - len(at.problems)])
        chunk = builder.chunk(self.path, created_at(self.path), from_start=not at.started)
        at.started = True
        return chunk


def _checksum_at(window: Window, offset: int, length: int) -> int:
    return int(checksum.value(window.bytes(offset, length)))


def _is_no_file(window: Window) -> str | None:
    """Return why a file is no events file, by its first bytes; None where it may be one."""
    if window.size == 0:
        return "it is empty"
    if window.bytes(0, len(_LFS_POINTER)) == _LFS_POINTER:
        return "a Git LFS pointer, not the file itself"
    return None


def _is_text(window: Window) -> bool:
    """Say whether a file begins with text: a record has zeros in the length that it begins with."""
    head = window.bytes(0, _HEAD_BYTES)
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(head)  # it may end within a letter
        return bool(head) and not any(byte < 9 for byte in head)
    return False


def _has_unchecked_events(window: Window) -> bool:
    """Say whether a file begins with events whose checksums are wrong: two at least, or one that is the whole file."""
    at = found = 0
    while found < 2 and at + HEADER_BYTES <= window.size:
        length = int.from_bytes(window.bytes(at, 8), "little")
        if not 0 < length <= _MOST_UNCHECKED_BYTES or at + HEADER_BYTES + length + FOOTER_BYTES > window.size:
            return False
        try:
            decode(window.bytes(at + HEADER_BYTES, length), 0, length)
        except DamagedError:
            return False
        at, found = at + HEADER_BYTES + length + FOOTER_BYTES, found + 1
    return found > 1 or (found == 1 and at == window.size)


def _may_begin(window: Window) -> bool:
    """Say whether a file begins with the header of a record, or is shorter than one."""
    head = window.bytes(0, HEADER_BYTES)
    return len(head) < HEADER_BYTES or header(int.from_bytes(head[:8], "little")) == head
