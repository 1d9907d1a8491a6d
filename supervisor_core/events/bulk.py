"""`Bulk`: the records of a block, decoded in groups instead of one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from supervisor_core import checksum
from supervisor_core.events.crc import carried, fold, unmask
from supervisor_core.events.framing import HEADER_BYTES, header
from supervisor_core.events.layout import Column, Layout, Rows
from supervisor_core.events.payload import decode
from supervisor_core.events.wire import DamagedError

Int64Array = NDArray[np.int64]

FEWEST = 32
"""Smaller groups are cheaper one by one."""
_LONGEST_BYTES = 4096
_ATTEMPTS = 8


class Bulk:
    """Takes records that stand one behind the other in a block, checks and decodes those that are alike.

    Args:
        block: the bytes.
        starts: where the records begin in it.
        lengths: how long their payloads are.
    """

    def __init__(self, block: bytes, starts: Int64Array, lengths: Int64Array) -> None:
        self._block = block
        self._starts = starts
        count = len(starts)
        self.walls = np.zeros(count)
        """Of each record that was decoded."""
        self.steps = np.zeros(count, np.int64)
        self.done = np.zeros(count, np.bool_)
        """Which records were decoded; they all hold a summary. The others are left to be read one by one."""
        self.columns: list[tuple[Int64Array, Column]] = []
        """Scalars: which records they are of, and what they are."""
        if count >= FEWEST:
            order = np.argsort(lengths.astype(np.uint16), kind="stable")
            grouped = lengths[order]
            bounds = [0, *(np.flatnonzero(grouped[1:] != grouped[:-1]) + 1).tolist(), count]
            for first, last in pairwise(bounds):
                if last - first >= FEWEST and grouped[first] <= _LONGEST_BYTES:
                    self._group(order[first:last], int(grouped[first]))

    def _group(self, members: Int64Array, length: int) -> None:
        """Decode what can be decoded of the records of one length."""
        if not any(self._suits(int(self._starts[members[at]]), length) for at in (0, len(members) // 2, -1)):
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
            layout = self._layout(rows[0], front)
            if layout is None:
                members, rows = members[1:], rows[1:]
                continue
            fits = layout.matches(rows.view(np.uint64))
            if fits.all():
                self._decode(layout, members, rows)
                return
            self._decode(layout, members[fits], rows[fits])
            members, rows = members[~fits], rows[~fits]

    def _take(self, offsets: Int64Array, width: int) -> Rows:
        """Return ``width`` bytes from each offset on, as rows."""
        items: NDArray[np.void] = np.ndarray((len(self._block) - width + 1,), f"V{width}", self._block, 0, (1,))
        return items[offsets].view(np.uint8).reshape(-1, width)

    def _suits(self, start: int, length: int) -> bool:
        try:
            return Layout.suits(decode(self._block, start + HEADER_BYTES, start + HEADER_BYTES + length))
        except DamagedError:
            return False

    def _layout(self, row: Rows, front: int) -> Layout | None:
        try:
            event = decode(row.tobytes(), front, len(row))
        except DamagedError:
            return None
        return Layout(event, row) if Layout.suits(event) else None

    def _decode(self, layout: Layout, members: Int64Array, rows: Rows) -> None:
        self.walls[members] = layout.walls(rows)
        self.steps[members] = layout.steps(rows)
        self.done[members] = True
        self.columns += [(members, column) for column in layout.columns(rows, rows.view(np.uint64))]
