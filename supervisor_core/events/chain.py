"""`Chain`: where the records of a block begin, found for all of them at once.

Nearly every event begins with its wall time, so that byte 12 of a record is 0x09, and the upper bytes of its length are
zero. These places are guessed records; the checksums of their lengths tell which are true; and a record is proven to
follow another where it begins at that one's ``start + 16 + length``. What is not proven is left to whoever reads record
by record.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.crc import header_crcs
from supervisor_core.events.framing import FOOTER_BYTES, HEADER_BYTES

Int64Array = NDArray[np.int64]

_FRAMING_BYTES = HEADER_BYTES + FOOTER_BYTES
_WALL_TIME_KEY = 0x09
_STRIDE = 256 * 1024
"""Guessed in stretches that stay in a processor's cache, and need no fresh pages."""


class Chain:
    """The records of one block whose payloads are below 64 KiB and begin with a wall time."""

    __slots__ = ("_breaks", "_ends", "_lengths", "_starts")

    def __init__(self, block: bytes) -> None:
        starts, lengths = _records(block)
        ends = starts + lengths + _FRAMING_BYTES
        whole = ends <= len(block)  # not only the last may be cut: a torn record keeps its header wherever it is
        self._starts, self._lengths, self._ends = starts[whole], lengths[whole], ends[whole]
        self._breaks = np.flatnonzero(self._ends[:-1] != self._starts[1:])

    def run(self, index: int, stop: int) -> tuple[Int64Array, Int64Array]:
        """Return starts and payload lengths of the records that follow each other without a gap from ``index`` on.

        Args:
            index: where the first begins; the result is empty where that is no record of the chain.
            stop: they begin before this.
        """
        first = int(np.searchsorted(self._starts, index))
        if first == len(self._starts) or self._starts[first] != index:
            return self._starts[:0], self._lengths[:0]
        at = int(np.searchsorted(self._breaks, first))
        last = int(self._breaks[at]) + 1 if at < len(self._breaks) else len(self._starts)
        last = min(last, int(np.searchsorted(self._starts, stop)))
        return self._starts[first:last], self._lengths[first:last]


def _records(block: bytes) -> tuple[Int64Array, Int64Array]:
    data = np.frombuffer(block, np.uint8)
    last = len(data) - HEADER_BYTES  # a payload that begins with a key is not empty
    if last <= 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = np.concatenate([_guesses(data, at, min(at + _STRIDE, last)) for at in range(0, last, _STRIDE)])
    # Twelve bytes at each place, as one item: taking items copies them, aligned or not.
    heads = np.ndarray((last,), "V12", data.data, 0, (1,))
    words = heads[starts].view(np.uint32).reshape(-1, 3)
    lengths = words[:, 0]
    good = (words[:, 1] == 0) & (lengths < 65536)
    good &= _header_crcs().take(lengths, mode="clip") == words[:, 2]
    return starts[good], lengths[good].astype(np.int64)


def _guesses(data: NDArray[np.uint8], first: int, end: int) -> Int64Array:
    """Where records may begin between two places."""
    zero = data[first : end + 7] == 0
    guess = data[first + HEADER_BYTES : end + HEADER_BYTES] == _WALL_TIME_KEY
    guess &= zero[7:]
    guess &= zero[3:-4]
    return np.flatnonzero(guess) + first


@cache
def _header_crcs() -> NDArray[np.uint32]:
    return header_crcs(np.arange(65536, dtype=np.uint32))
