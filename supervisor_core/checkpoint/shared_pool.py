"""`SharedPool`: memory for copies that the saver process reads, too.

It has no name in any file system, so nothing is left of it when the last process that has it is gone. An array in it
holds it; the pool itself holds the newest segments alone.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from supervisor_core.base.free_memory import free_memory

_ALIGNMENT_BYTES = 64
_PAGE_BYTES = 4096
_SPARE_RATIO = 1.25
"""There has to be so much more free memory than is taken."""


class Place(NamedTuple):
    """Where an array is."""

    descriptor: int
    """Of the segment's memory."""
    offset: int


class _Segment(NamedTuple):
    descriptor: int
    memory: Any
    begin: int
    """Its address."""


class SharedPool:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def __del__(self) -> None:
        self.clear()

    @property
    def has_memory(self) -> bool:
        """Whether anything was taken since the last `clear`."""
        return bool(self._segments)

    def clear(self) -> None:
        """Let all memory go that no array holds."""
        for segment in self._segments:
            with suppress(OSError):
                os.close(segment.descriptor)
        self._segments = []

    def take(self, sizes: Iterable[int]) -> list[Any] | None:
        """Return memory of these sizes in bytes, as arrays of ``numpy.uint8`` with their pages in place; None where
        the system has none left, or refuses it."""
        wanted = list(sizes)
        starts, end = [], 0
        for size in wanted:
            starts.append(end)
            end += -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        free = free_memory()
        if not end or (free is not None and end * _SPARE_RATIO > free):
            return None
        try:
            descriptor = os.memfd_create("checkpoint")
        except OSError:
            return None
        try:
            os.ftruncate(descriptor, end)
            memory = np.frombuffer(mmap.mmap(descriptor, end), np.uint8)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        memory[::_PAGE_BYTES] = 0
        self._segments.append(_Segment(descriptor, memory, _address(memory)))
        return [memory[start : start + size] for start, size in zip(starts, wanted, strict=True)]

    def place(self, data: Any) -> Place | None:
        """Return where an array is; None for one that is elsewhere."""
        if not isinstance(data, np.ndarray):
            return None
        address = _address(data)
        for segment in self._segments:
            if segment.begin <= address and address + data.nbytes <= segment.begin + segment.memory.nbytes:
                return Place(segment.descriptor, address - segment.begin)
        return None


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
