"""`VectorScan` finds the records of a block, and `VectorDecoder` decodes them, all at once instead of one by one.

Nearly every event begins with its wall time, so that byte 12 of a record is 0x09, and the upper bytes of its length are
zero. These places are guessed records; the checksums of their lengths decide which are true; and a record is proven to
follow another where it begins at that one's ``start + 16 + length``. The caller reads the unproven ones one by one.

Checksums of many payloads are compared at once. A CRC is linear: with ``S(n, c)`` for the checksum ``c`` carried over
``n`` more zero bytes, the checksum of ``a`` and ``b`` put together is ``S(len(b), crc(a)) ^ crc(b)``. So the stored
checksums of a block's payloads, folded in pairs, must equal one checksum over all of their bytes, which hardware
computes at 20 GB/s. ``S`` is a 32 by 32 matrix over single bits, applied to whole arrays by four lookups in tables of
256. A fold that agrees proves as much as a checksum of 32 bits can: one damaged payload always shows.

Records are decoded in groups. One record of a group is decoded exactly (`payload`). Another of the same length has the
same layout (`Layout`) where all its bytes are the same except those of the wall time, of the step (whose varint ends in
the same place), of the values, and of the tags, which have the same lengths.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from supervisor_core.base import checksum
from supervisor_core.base.wire import DamagedError
from supervisor_core.events.event_format import FOOTER_BYTES, HEADER_BYTES, MASK_DELTA, header
from supervisor_core.events.payload import Decoded, decode

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


FEWEST = 32
"""Smaller groups are cheaper one by one."""
_LONGEST_BYTES = 4096
_ATTEMPTS = 8


class VectorDecoder:
    """Checks and decodes the records of a block that have the same layout.

    Args:
        starts: the offsets of consecutive records in it.
        lengths: the lengths of their payloads.
    """

    def __init__(self, block: bytes, starts: Int64Array, lengths: Int64Array) -> None:
        self._block = block
        self._starts = starts
        count = len(starts)
        self.walls = np.zeros(count)
        """Wall time of each decoded record."""
        self.steps = np.zeros(count, np.int64)
        self.done = np.zeros(count, np.bool_)
        """Whether each record was decoded; all of these hold a summary. The caller reads the others one by one."""
        self.columns: list[tuple[Int64Array, Column]] = []
        """Scalars: the numbers of their records, and the scalars."""
        if count >= FEWEST:
            order = np.argsort(lengths.astype(np.uint16), kind="stable")
            grouped = lengths[order]
            bounds = [0, *(np.flatnonzero(grouped[1:] != grouped[:-1]) + 1).tolist(), count]
            for first, last in pairwise(bounds):
                if last - first >= FEWEST and grouped[first] <= _LONGEST_BYTES:
                    self._group(order[first:last], int(grouped[first]))

    def _group(self, members: Int64Array, length: int) -> None:
        """Decode the records of one length, as far as their layouts allow."""
        firsts = (int(self._starts[members[at]]) + HEADER_BYTES for at in (0, len(members) // 2, -1))
        if not any(_only_numbers(self._block, first, first + length) for first in firsts):
            return  # histograms, texts: not worth a copy
        # Rows are made a multiple of eight bytes by the end of the record's header, which is the same for all.
        front = -length % 8
        lead = header(length)[HEADER_BYTES - front :] if front else b""
        payloads = self._starts[members] + HEADER_BYTES
        rows = self._take(payloads - front, front + length)
        stored = self._take(payloads + length, 4).view(np.uint32).ravel()
        crcs = unmask(stored)
        carry = carried(checksum.value(lead), length)
        if fold(crcs ^ np.uint32(carry), front + length) != checksum.value(rows):
            good = [checksum.value(row[front:].tobytes()) == crc for row, crc in zip(rows, crcs.tolist(), strict=True)]
            members, rows = members[good], rows[good]
        for _ in range(_ATTEMPTS):
            if len(members) < FEWEST:
                return
            event = _only_numbers(rows[0].tobytes(), front, front + length)
            if event is None:
                members, rows = members[1:], rows[1:]
                continue
            layout = Layout(event, rows[0])
            fits = layout.matches(rows.view(np.uint64))
            if fits.all():
                self._decode(layout, members, rows)
                return
            self._decode(layout, members[fits], rows[fits])
            members, rows = members[~fits], rows[~fits]

    def _take(self, offsets: Int64Array, width: int) -> Rows:
        items: NDArray[np.void] = np.ndarray((len(self._block) - width + 1,), f"V{width}", self._block, 0, (1,))
        return items[offsets].view(np.uint8).reshape(-1, width)

    def _decode(self, layout: Layout, members: Int64Array, rows: Rows) -> None:
        self.walls[members] = layout.walls(rows)
        self.steps[members] = layout.steps(rows)
        self.done[members] = True
        self.columns += [(members, column) for column in layout.columns(rows, rows.view(np.uint64))]


Rows = NDArray[np.uint8]
Words = NDArray[np.uint64]

_MOST_SCALARS = 64
_HASH = np.uint64(0x9E3779B97F4A7C15)


def _only_numbers(data: bytes, at: int, end: int) -> Decoded | None:
    """Return the event between two offsets; None if it holds anything but numbers in a form that an array can hold."""
    try:
        event = decode(data, at, end)
    except DamagedError:
        return None
    is_plain = event.wall_at is not None and not (event.sessions or event.telemetry or event.hparams)
    is_numbers = 0 < len(event.scalars) <= _MOST_SCALARS and all(each.code is not None for each in event.scalars)
    return event if is_plain and is_numbers else None


class Column(NamedTuple):
    """One scalar of each record."""

    tags: list[bytes]
    """The tags there are."""
    which: NDArray[np.int64] | None
    """For each record, which of them; None where there is only one."""
    values: NDArray[np.float64]


class Layout:
    """Where the numbers of a record are.

    Args:
        event: what one of the records holds; offsets count from the beginning of its row.
        row: that record's row, as many bytes as a multiple of eight.
    """

    def __init__(self, event: Decoded, row: Rows) -> None:
        fixed = np.full(len(row), 0xFF, np.uint8)
        self._wall_at = event.wall_at or 0
        fixed[self._wall_at : self._wall_at + 8] = 0
        self._step_at = event.step_at
        if event.step_at is not None:
            fixed[slice(*event.step_at)] = 0x80
        self._scalars = event.scalars
        self._tag_masks: list[Words] = []
        for scalar in event.scalars:
            fixed[slice(*scalar.value_at)] = 0
            fixed[slice(*scalar.tag_at)] = 0
            tag = np.zeros(len(row), np.uint8)
            tag[slice(*scalar.tag_at)] = 0xFF
            self._tag_masks.append(tag.view(np.uint64))
        self._fixed: Words = fixed.view(np.uint64)
        self._words: Words = row.view(np.uint64)

    def matches(self, words: Words) -> NDArray[np.bool_]:
        """Say which rows, as words, have this layout."""
        return ~self._differ(words, self._fixed)

    def walls(self, rows: Rows) -> NDArray[np.float64]:
        """Return the wall times."""
        return np.ascontiguousarray(rows[:, self._wall_at : self._wall_at + 8]).view("<f8").ravel()

    def steps(self, rows: Rows) -> NDArray[np.int64]:
        """Return the steps."""
        steps = np.zeros(len(rows), np.uint64)
        if self._step_at is not None:
            for shift, column in enumerate(range(*self._step_at)):
                steps |= (rows[:, column] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * shift)
        return steps.view(np.int64)

    def columns(self, rows: Rows, words: Words) -> list[Column]:
        """Return the scalars, in the order in which they stand in a record."""
        out = []
        for scalar, mask in zip(self._scalars, self._tag_masks, strict=True):
            position = slice(*scalar.value_at)
            values = np.ascontiguousarray(rows[:, position]).view(np.dtype(scalar.code)).ravel().astype(np.float64)
            tags, which = self._tags(rows, words, slice(*scalar.tag_at), mask)
            out.append(Column(tags, which, values))
        return out

    def _tags(
        self, rows: Rows, words: Words, position: slice, mask: Words
    ) -> tuple[list[bytes], NDArray[np.int64] | None]:
        if not self._differ(words, mask).any():
            return [self._words.view(np.uint8)[position].tobytes()], None
        hashed = np.zeros(len(words), np.uint64)
        columns = [words[:, column] & mask[column] for column in np.flatnonzero(mask)]
        for part in columns:
            hashed = (hashed ^ part) * _HASH
            hashed ^= hashed >> np.uint64(32)
        # For each row, the first one with its hash; what of `first` is not written is not read.
        keys = (hashed >> np.uint64(48)).astype(np.int64)
        every = np.arange(len(keys))
        first = np.empty(65536, np.int64)
        first[keys[::-1]] = every[::-1]
        alike = first[keys]
        if any((part[alike] != part).any() for part in columns):  # two tags with one hash
            names = np.array([row.tobytes() for row in rows[:, position]], object)
            distinct, which = np.unique(names, return_inverse=True)
            return distinct.tolist(), which
        leaders = np.flatnonzero(alike == every)
        first[leaders] = np.arange(len(leaders))
        return [row.tobytes() for row in rows[leaders, position]], first[alike]

    def _differ(self, words: Words, mask: Words) -> NDArray[np.bool_]:
        """Say which rows differ from the one that was decoded, where the mask has bits."""
        found = np.zeros(len(words), np.uint64)
        for column in np.flatnonzero(mask):
            found |= (words[:, column] ^ self._words[column]) & mask[column]
        differ: NDArray[np.bool_] = found != 0
        return differ
