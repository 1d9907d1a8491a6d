"""`Window`: the part of a file that is in memory, moved along as it is read."""

from __future__ import annotations

import math
from typing import overload

from supervisor_core.events.vector_scan import VectorScan
from supervisor_core.storage.source import FIRST_BYTES, ReadFile

MOST_BYTES = 2 * 1024 * 1024


class Window:
    """Fetches a file piece by piece: growing pieces while it is read in order, small ones after a jump.

    Args:
        file: the open file.
        size: its length; bytes that are appended later belong to the next read.
        piece_bytes: the size of the first piece.
        most_bytes: limit of the bytes fetched.
    """

    __slots__ = ("_file", "_piece_bytes", "_scan", "base", "data", "fetched", "most_bytes", "size")

    def __init__(self, file: ReadFile, size: int, piece_bytes: int = FIRST_BYTES, most_bytes: float = math.inf) -> None:
        self._file = file
        self.most_bytes = most_bytes
        self.fetched = 0
        """Bytes so far."""
        self._piece_bytes = piece_bytes
        self.size = size
        """The file's known end: less than the given one if it was cut while it was read."""
        self.base = 0
        """Offset of ``data`` in the file."""
        self.data = b""
        self._scan: VectorScan | None = None

    def fetch(self, offset: int, length: int) -> bool:
        """Load the bytes from ``offset`` to ``offset + length`` into ``data``; False where the file ends before that.

        Raises:
            SparseFileError: if more bytes were fetched than are allowed.
        """
        if self.base <= offset and offset + length <= self.base + len(self.data):
            return True
        if offset + length > self.size:
            return False
        if offset > self.base + len(self.data):
            self._piece_bytes = FIRST_BYTES
        wanted = min(max(length, self._piece_bytes), self.size - offset)
        self._piece_bytes = min(4 * self._piece_bytes, MOST_BYTES)
        if self.fetched + wanted > self.most_bytes:
            raise SparseFileError(f"it is mostly holes, of which {self.fetched:,} bytes were read now")
        self.fetched += wanted
        self.data = self._file.pread(wanted, offset)
        self.base = offset
        self._scan = None
        if len(self.data) < wanted:
            self.size = offset + len(self.data)
        return length <= len(self.data)

    def vector_scan(self) -> VectorScan:
        """Return the records of ``data``."""
        if self._scan is None:
            self._scan = VectorScan(self.data)
        return self._scan

    def bytes(self, offset: int, length: int) -> bytes:
        """Return the bytes from ``offset`` on; fewer where the file ends."""
        start = offset - self.base
        if start >= 0 and start + length <= len(self.data):
            return self.data[start : start + length]
        length = max(0, min(length, self.size - offset))
        if not self.fetch(offset, length):
            length = max(0, self.size - offset)
        return self.data[offset - self.base : offset - self.base + length]


class LazyBytes:
    """A part of a file as bytes that are fetched on access; offsets are the file's."""

    __slots__ = ("_window",)

    def __init__(self, window: Window) -> None:
        self._window = window

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> bytes: ...

    def __getitem__(self, index: int | slice, /) -> int | bytes:
        window = self._window
        if isinstance(index, slice):
            start, stop = index.start, index.stop
            if not window.fetch(start, stop - start):
                raise FileCut
            return window.data[start - window.base : stop - window.base]
        if not window.base <= index < window.base + len(window.data) and not window.fetch(index, 1):
            raise FileCut
        return window.data[index - window.base]


class FileCut(Exception):  # noqa: N818 - it is no error: the file is read again
    """The file became shorter while it was read."""


class SparseFileError(OSError):
    """The file is mostly holes, and more of them were fetched than is allowed."""
