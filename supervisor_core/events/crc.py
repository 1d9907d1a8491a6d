"""CRC-32C of many payloads at once, by the algebra of checksums instead of one after the other.

A CRC is linear: with ``S(n, c)`` for the checksum ``c`` carried over ``n`` more zero bytes, the checksum of ``a`` and
``b`` put together is ``S(len(b), crc(a)) ^ crc(b)``. So the stored checksums of a block's payloads, folded in pairs,
must equal one checksum over all of their bytes, which hardware computes at 20 GB/s. ``S`` is a 32 by 32 matrix over
single bits, applied to whole arrays by four lookups in tables of 256.

A fold that agrees says as much as a checksum of 32 bits can: one damaged payload always shows.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from supervisor_core import checksum
from supervisor_core.events.framing import MASK_DELTA

U32Array = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78


def unmask(stored: U32Array) -> U32Array:
    """Return checksums from their masked form (`supervisor_core.events.framing`)."""
    rotated = stored - np.uint32(MASK_DELTA)
    crcs: U32Array = rotated >> np.uint32(17) | rotated << np.uint32(15)
    return crcs


def fold(crcs: U32Array, length: int) -> int:
    """Return the checksum of all payloads put together, each ``length`` bytes long, from their own checksums."""
    level = 0
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.concatenate((np.zeros(1, np.uint32), crcs))  # nothing, in front, changes nothing
        tables = _shift(length, level)
        octets = np.ascontiguousarray(crcs[0::2]).view(np.uint8).reshape(-1, 4)
        folded = crcs[1::2] ^ tables[0].take(octets[:, 0])
        for column in (1, 2, 3):
            folded ^= tables[column].take(octets[:, column])
        crcs = folded
        level += 1
    return int(crcs[0])


def header_crcs(lengths: U32Array) -> U32Array:
    """Return the masked checksums that records of these payload lengths have of their length."""
    nothing, tables = _length_tables()
    crcs = np.full(len(lengths), nothing, np.uint32)
    for byte, table in enumerate(tables):
        crcs ^= table.take(lengths >> np.uint32(8 * byte) & np.uint32(0xFF))
    masked: U32Array = (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(MASK_DELTA)
    return masked


@cache
def _length_tables() -> tuple[int, list[U32Array]]:
    """The checksum of eight zero bytes, and what each value of each of the first four changes in it."""
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
    """What happens to each of the 32 bits over ``length << level`` zero bytes."""
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
