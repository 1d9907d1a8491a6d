"""`BlockWriter`: writes the bytes of a checkpoint, and finds checksum and NaN while they are in the processor's cache.

Large checkpoints are written and read back by the saver process (`saver_process`), without the interpreter's lock of
the training. Small ones, and all where there is no such process, are written by the thread that saves.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from supervisor_core.base import checksum
from supervisor_core.checkpoint.nan_check import has_nan

CHUNK_BYTES = 1 << 19
"""Bytes to write at a time: they stay in the processor's cache from one look at them to the next."""
MIN_BYTES = 20 << 20
"""The smallest checkpoint that a process writes."""
URGENT = ("final", "signal")
"""The triggers of saves for which the end waits."""


class FilePart(NamedTuple):
    """Bytes in a file, one part after the other."""

    data: Any
    """``bytes``, or a one-dimensional array of ``numpy.uint8``."""
    dtype: str = ""
    """NumPy's name of the type of the numbers; empty where there is no NaN to look for."""


class FilePass:
    """One pass over the bytes of a file. `write` and `read` do a chunk at a time, so that another thread can go on."""

    def __init__(self) -> None:
        self.crcs: list[int] = []
        """The checksums of what is done."""
        self.with_nan: int | None = None
        """The number of the first part with NaN."""

    def write(self, descriptor: int, parts: Iterable[FilePart], *, is_one: bool) -> Iterator[None]:
        """Write parts at the place of an open file.

        Args:
            is_one: whether each checksum is of all bytes up to the part's end, instead of the part's own.
        """
        crc = 0
        for number, part in enumerate(parts):
            crc = crc if is_one else 0
            for start in range(0, len(part.data), CHUNK_BYTES):
                chunk = part.data[start : start + CHUNK_BYTES]
                crc = checksum.extend(crc, chunk)
                if self.with_nan is None and has_nan(part.dtype, chunk):
                    self.with_nan = number
                while len(chunk):  # a write may take less, as where the disk becomes full
                    chunk = chunk[os.write(descriptor, chunk) :]
                yield
            self.crcs.append(crc)
            del part

    def read(self, descriptor: int, ranges: Sequence[Sequence[int]]) -> Iterator[None]:
        """Read ranges of an open file, each an offset and a length; raise EOFError where the file ends before."""
        import numpy as np

        memory: Any = np.empty(CHUNK_BYTES, np.uint8)
        for offset, length in ranges:
            crc, end = 0, offset + length
            while offset < end:
                got = os.preadv(descriptor, [memory[: min(CHUNK_BYTES, end - offset)]], offset)
                if not got:
                    raise EOFError
                crc = checksum.extend(crc, memory[:got])
                offset += got
                yield
            self.crcs.append(crc)


class BlockWriter:
    """See the module's docstring. Used by one thread at a time.

    Args:
        has_process: whether the saver process may do it; else the thread that calls does.
    """

    def __init__(self, *, has_process: bool = False) -> None:
        self._has_process = has_process and sys.platform == "linux"
        self._is_urgent: Callable[[], bool] = lambda: False
        if self._has_process:  # before a session begins: at the interpreter's exit its last save comes first
            from supervisor_core.checkpoint import saver_process  # noqa: F401

    def takes(self, size: float) -> bool:
        """Return whether the process writes a checkpoint of this size."""
        return self._has_process and MIN_BYTES <= size < math.inf

    def write(self, descriptor: int, parts: Iterable[FilePart], *, size: float, is_one: bool) -> FilePass:
        """Write a whole file that is open and empty; see `FilePass.write`.

        Args:
            parts: taken one after the other, each let go when it is written, where a thread does it.
            size: theirs, together.

        Raises:
            OSError: if it cannot be written; an incomplete file stays.
        """
        if self.takes(size):
            from supervisor_core.checkpoint import saver_process

            parts = list(parts)
            done = saver_process.write(descriptor, parts, is_one=is_one, is_urgent=self._is_urgent)
            if done is not None:
                return done
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, 0)
        found = FilePass()
        for _ in found.write(descriptor, parts, is_one=is_one):
            pass
        return found

    def checksums(self, descriptor: int, ranges: Sequence[Sequence[int]]) -> list[int] | None:
        """Return the checksums of ranges of an open file, each an offset and a length; None where the caller has to
        read it, which also says what is wrong with the file."""
        if not self.takes(sum(length for _, length in ranges)):
            return None
        from supervisor_core.checkpoint import saver_process

        return saver_process.checksums(descriptor, ranges, is_urgent=self._is_urgent)

    def begin(self, interval_secs: float | None, is_urgent: Callable[[], bool]) -> None:
        """A save begins.

        Args:
            interval_secs: the time from one save to the next: after half of it this one is urgent. None without any.
            is_urgent: returns whether it is, whatever time is left.
        """
        end = math.inf if interval_secs is None else time.monotonic() + interval_secs / 2
        self._is_urgent = lambda: is_urgent() or time.monotonic() > end


IN_THREAD = BlockWriter()
"""All is done by the thread that calls."""
