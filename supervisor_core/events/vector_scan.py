"""`VectorScan`: where the records of a block begin, found for all of them at once.

Nearly every event begins with its wall time, so that byte 12 of a record is 0x09, and the upper bytes of its length are
zero. These places are guessed records; the checksums of their lengths decide which are true; and a record is proven to
follow another where it begins at that one's ``start + 16 + length``. The caller reads the unproven ones one by one.

Checksums of many payloads are compared at once. A CRC is linear: with ``S(n, c)`` for the checksum ``c`` carried over
``n`` more zero bytes, the checksum of ``a`` and ``b`` put together is ``S(len(b), crc(a)) ^ crc(b)``. So the stored
checksums of a block's payloads, folded in pairs, must equal one checksum over all of their bytes, which hardware
computes at 20 GB/s. ``S`` is a 32 by 32 matrix over single bits, applied to whole arrays by four lookups in tables of
256. A fold that agrees proves as much as a checksum of 32 bits can: one damaged payload always shows.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from supervisor_core import checksum
from supervisor_core.events.event_format import FOOTER_BYTES, HEADER_BYTES, MASK_DELTA

Int64Array = NDArray[np.int64]

_FRAMING_BYTES = HEADER_BYTES + FOOTER_BYTES
_WALL_TIME_KEY = 0x09
_STRIDE = 256 * 1024
"""Guessed in stretches that stay in a processor's cache, and need no fresh pages."""


class VectorScan:
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
            index: the first one's offset; the result is empty where no record was found there.
            stop: all begin before this offset.
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
    """Return the offsets between two places at which records may begin."""
    zero = data[first : end + 7] == 0
    guess = data[first + HEADER_BYTES : end + HEADER_BYTES] == _WALL_TIME_KEY
    guess &= zero[7:]
    guess &= zero[3:-4]
    return np.flatnonzero(guess) + first


@cache
def _header_crcs() -> NDArray[np.uint32]:
    return header_crcs(np.arange(65536, dtype=np.uint32))


U32Array = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78


def unmask(stored: U32Array) -> U32Array:
    """Return checksums from their masked form (`supervisor_core.events.event_format`)."""
    rotated = stored - np.uint32(MASK_DELTA)
    crcs: U32Array = rotated >> np.uint32(17) | rotated << np.uint32(15)
    return crcs


def fold(crcs: U32Array, length: int) -> int:
    """Return the checksum of all payloads put together, each ``length`` bytes long, from their own checksums."""
    level = 0
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.concatenate((np.zeros(1, np.uint32), crcs))  # an empty payload in front changes nothing
        tables = _shift(length, level)
        octets = np.ascontiguousarray(crcs[0::2]).view(np.uint8).reshape(-1, 4)
        folded = crcs[1::2] ^ tables[0].take(octets[:, 0])
        for column in (1, 2, 3):
            folded ^= tables[column].take(octets[:, column])
        crcs = folded
        level += 1
    return int(crcs[0])


def header_crcs(lengths: U32Array) -> U32Array:
    """Return the masked checksums of the lengths in the headers of such payloads."""
    nothing, tables = _length_tables()
    crcs = np.full(len(lengths), nothing, np.uint32)
    for byte, table in enumerate(tables):
        crcs ^= table.take(lengths >> np.uint32(8 * byte) & np.uint32(0xFF))
    masked: U32Array = (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(MASK_DELTA)
    return masked


@cache
def _length_tables() -> tuple[int, list[U32Array]]:
    """The checksum of eight zero bytes, and the bits that each value of each of the first four bytes flips in it."""
    nothing = checksum.value(bytes(8))
    changed = [
        [checksum.value(bytes(at) + bytes((value,)) + bytes(7 - at)) ^ nothing for value in range(256)]
        for at in range(4)
    ]
    return nothing, [np.array(values, np.uint32) for values in changed]


def carried(crc: int, length: int) -> int:
    """Return a checksum carried over ``length`` zero bytes."""
    return int(_apply(_expand(_basis(length, 0)), np.array([crc], np.uint32))[0])


@lru_cache(maxsize=2048)
def _shift(length: int, level: int) -> U32Array:
    """The tables that carry a checksum over ``length << level`` bytes: one row of 256 for each of its four bytes."""
    return _expand(_basis(length, level))


@lru_cache(maxsize=4096)
def _basis(length: int, level: int) -> U32Array:
    """The image of each of the 32 bits after ``length << level`` zero bytes."""
    if level:
        half = _basis(length, level - 1)
        return _apply(_expand(half), half)
    bits: U32Array = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if length == 0:
        return bits
    if length == 1:
        basis = bits
        for _ in range(8):
            basis = basis >> np.uint32(1) ^ np.where(basis & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
        return basis
    half = _basis(length // 2, 1)
    return _apply(_expand(_basis(1, 0)), half) if length % 2 else half


def _expand(basis: U32Array) -> U32Array:
    tables = np.zeros((4, 256), np.uint32)
    for bit in range(8):
        size = 1 << bit
        tables[:, size : 2 * size] = tables[:, :size] ^ basis[bit::8, None]
    return tables


def _apply(tables: U32Array, crcs: U32Array) -> U32Array:
    octets = np.ascontiguousarray(crcs).view(np.uint8).reshape(-1, 4)
    out: U32Array = np.bitwise_xor.reduce([tables[column][octets[:, column]] for column in range(4)])
    return out
