"""`EventsFileReader`: reads one events file once, as it grows."""

from __future__ import annotations

import errno
import logging
import math

from supervisor_core.events.chunk import Chunk, FileFacts, Problem
from supervisor_core.events.chunk_builder import Gathering, created_at
from supervisor_core.events.event_format import HEADER_BYTES, header
from supervisor_core.events.read_ahead import Range
from supervisor_core.events.scan import RecordWalk
from supervisor_core.events.source import FileStatus, ReadFile, ReadFileSystem, is_regular, source_of
from supervisor_core.events.window import FileCut, Window

_LOG = logging.getLogger("supervisor_core")
_LFS_POINTER = b"version https://git-lfs"
_GUARD_BYTES = 16
_KEPT_PROBLEMS = 100
FREE_BYTES = 256 << 20
PER_STORED_BYTE = 64
"""So many bytes are fetched of a file, and for each byte that it takes on the disk: file systems that compress make it
look sparse, too."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class EventsFileReader:
    """Hands out an events file chunk by chunk, each record once. Never raises on account of the file or its disk.

    What it does with a file that is not as it should be:

    * A record that is not whole yet, at the end, is waited for; and so is anything at the end that cannot be a record,
      until good records follow it. A payload that does not match its checksum is left out, counted and located, and
      reading goes on behind it. After a damaged length, reading goes on at the next record that proves itself
      (`supervisor_core.events.scan`); what is between is counted once.
    * A file that has become shorter than what was read of it, has another inode, or other bytes where reading
      stopped, is read again; that chunk has ``from_start`` and a problem ``replaced``.
    * Payloads above 64 KiB that hold no scalar, session log or telemetry (graphs, images) are skipped unread, by their
      own lengths: their checksums are not looked at, and their wall time and step are taken on trust. Everything that
      is handed out was checked.
    * What is no events file at all (empty, a Git LFS pointer, a pipe ...), or may not be read, or is gone, is named
      in ``facts().skipped``, and looked at again the next time.

    Between two calls it keeps a position and some counts, and no descriptor. Used by one thread at a time.

    Args:
        path: the file; one with ``://`` in it is remote.
        filesystem: where to read from; the one that the path says.
        thorough: whether to look at the checksums of what is skipped as well.
        scalars_only: whether to pass over the supervisor's own records, unread: much the larger part of the work in a
            long run, and nothing in it for who draws curves.

    Raises:
        EventsError: if no file system for a remote path is installed.

    Example::

        reader = EventsFileReader("logs/events.out.tfevents.1700000000.host")
        while (chunk := reader.read(max_bytes=64 << 20)) is not None:
            fold(chunk)
    """

    def __init__(
        self,
        path: str,
        *,
        filesystem: ReadFileSystem | None = None,
        thorough: bool = False,
        scalars_only: bool = False,
    ) -> None:
        self.path = path
        self._thorough = thorough
        self._scalars_only = scalars_only
        self._source = source_of(path) if filesystem is None else filesystem
        self._stat = self._source.stat
        self._created_at = created_at(path)
        self._seen: tuple[int, int, int, int] | None = None
        self._size: int | None = None
        self._started = self._more = False
        self._tags: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._walk = RecordWalk(thorough=self._thorough, scalars_only=self._scalars_only)
        self._identity: tuple[int, int] | None = None
        self._guard = b""
        self._problems: list[Problem] = []
        self._tags.clear()
        self._fetched = 0
        self._left_out = 0
        self._skipped: str | None = None
        self._refused = False
        self._complaint: str | None = None

    @property
    def has_started(self) -> bool:
        """Whether anything was handed out."""
        return self._started

    @property
    def has_more(self) -> bool:
        """Whether the last `read` ended because of its ``max_bytes``."""
        return self._more

    def grown(self) -> Range | None:
        """Return what the next `read` will begin with; None where there is nothing new, or nothing to be read."""
        try:
            status = self._stat(self.path)
        except (OSError, ValueError):
            return None
        seen = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)
        start = max(0, self._walk.at - len(self._guard))
        if seen == self._seen or not is_regular(status) or status.st_size <= start:
            return None
        return Range(self.path, start, status.st_size - start)

    def read(self, max_bytes: int | None = None) -> Chunk | None:
        """Return what is new since the last call; None where nothing is.

        Args:
            max_bytes: stop after the record with which this many bytes are reached; the next call goes on there.
        """
        try:
            self._more = False
            status = self._stat(self.path)
        except (OSError, ValueError) as error:
            return self._unreadable(error, Gathering(self._tags))
        seen = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)
        if seen == self._seen:
            return None
        if not is_regular(status):
            self._skipped, self._refused = "not a regular file", False
            self._seen, self._size = seen, None
            return None
        gathering = Gathering(self._tags)
        try:
            file = self._source.open(self.path)
            try:
                return self._read(file, status, gathering, max_bytes)
            finally:
                file.close()
        except Exception as error:  # a fault of this reader: it must not cost the files and runs after this one
            if not isinstance(error, OSError):
                _LOG.debug("%s cannot be read", self.path, exc_info=True)
            return self._unreadable(error, gathering)

    def facts(self) -> FileFacts:
        """Return what is known of the file, as of the last `read`."""
        return FileFacts(
            path=self.path,
            size_bytes=self._size,
            read_bytes=self._walk.at,
            records=self._walk.records,
            corrupt_records=self._walk.corrupt,
            torn_bytes=0 if self._size is None or self._skipped else max(0, self._size - self._walk.at),
            skipped=self._skipped,
            unreadable=self._skipped is not None and self._refused,
            problems=tuple(self._problems),
            left_out_scalars=self._left_out,
        )

    def _read(self, file: ReadFile, status: FileStatus, gathering: Gathering, max_bytes: int | None) -> Chunk | None:
        # The status is the path's of a moment ago. If that was another file, the next look sees so.
        self._size = status.st_size
        blocks = getattr(status, "st_blocks", 0)  # 0: not known, as of an object store
        allowed = FREE_BYTES + PER_STORED_BYTE * 512 * blocks if blocks else math.inf
        window = Window(file, status.st_size, most_bytes=allowed - self._fetched)
        try:
            return self._read_in(window, status, gathering, max_bytes)
        finally:
            self._fetched += window.fetched

    def _read_in(self, window: Window, status: FileStatus, gathering: Gathering, max_bytes: int | None) -> Chunk | None:
        if self._is_another(status, window):
            self._forget()
            self._started = False
            gathering.trouble(Problem(kind="replaced", offset=None, text="The file was replaced or cut."))
        self._identity = status.st_dev, status.st_ino
        stop = self._walk.at + max_bytes if max_bytes is not None else None
        self._skipped = self._complaint = None
        self._refused = False
        try:
            self._skipped = _is_no_file(window) if self._walk.at == 0 else None
            finished = self._skipped is not None or self._walk.run(window, gathering, stop)
            self._more = not finished
        except FileCut:
            finished = False
        except Exception as error:  # as above
            self._remember_guard(None)
            return self._unreadable(error, gathering)
        if self._walk.at == 0 and self._skipped is None and not _may_begin(window):
            self._skipped = "no events file: it does not begin with a record, and none was found in it"
        self._remember_guard(window)
        self._seen = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev) if finished else None
        return self._hand_out(gathering)

    def _is_another(self, status: FileStatus, window: Window) -> bool:
        if self._identity is None:
            return False
        if self._identity != (status.st_dev, status.st_ino) or status.st_size < self._walk.at:
            return True
        return window.bytes(self._walk.at - len(self._guard), len(self._guard)) != self._guard

    def _remember_guard(self, window: Window | None) -> None:
        """Keep the last bytes before the position: a file that was written anew in place differs in them."""
        length = min(self._walk.at, _GUARD_BYTES)
        try:
            self._guard = window.bytes(self._walk.at - length, length) if window is not None else b""
        except OSError:
            self._guard = b""

    def _unreadable(self, error: Exception, gathering: Gathering) -> Chunk | None:
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
            if self._skipped != self._complaint:  # said once, however often it is tried
                self._complaint = self._skipped
                problem = Problem(kind="unreadable", offset=self._walk.at, text=f"Reading failed: {what}.")
                gathering.trouble(problem)
        return self._hand_out(gathering)

    def _hand_out(self, gathering: Gathering) -> Chunk | None:
        self._left_out += gathering.left_out
        if not gathering.records and not gathering.problems:
            return None
        self._problems += gathering.problems[: _KEPT_PROBLEMS - len(self._problems)]
        chunk = gathering.chunk(self.path, self._created_at, from_start=not self._started)
        self._started = True
        return chunk


def _is_no_file(window: Window) -> str | None:
    """Say what a file is by its first bytes, if no events file; None where it may be one."""
    if window.size == 0:
        return "it is empty"
    if window.bytes(0, len(_LFS_POINTER)) == _LFS_POINTER:
        return "a Git LFS pointer, not the file itself"
    return None


def _may_begin(window: Window) -> bool:
    """Say whether a file begins with the header of a record, or with too little to tell."""
    head = window.bytes(0, HEADER_BYTES)
    return len(head) < HEADER_BYTES or header(int.from_bytes(head[:8], "little")) == head
