"""Finding the next record after a length that cannot be trusted.

A record proves itself where the checksum of its length is right, its length is below 4 GiB, it ends within the file,
and the checksum of its payload is right: 64 bits that agree by chance once in 2**64 places.

Anybody can write many lengths with right checksums that all reach to the end of the file. So what is read in vain has a
budget, and the time that damage costs stays in proportion to the file's size.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from supervisor_core import checksum
from supervisor_core.events.framing import FOOTER_BYTES, HEADER_BYTES, mask
from supervisor_core.events.vector_scan import header_crcs
from supervisor_core.events.window import MOST_BYTES, Window

_U32 = struct.Struct("<I")


FREE_BYTES = 256 << 20
PER_BYTE = 4
SMALL_BYTES = 4 * 1024
"""Records up to this length are tried at no charge."""


class Budget:
    """How much of one file may be read in vain: `FREE_BYTES`, and `PER_BYTE` for each byte up to the place."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0

    def affords(self, offset: int, length: int) -> bool:
        """Say whether ``length`` more bytes may be read in vain at ``offset``."""
        return self.spent + length <= FREE_BYTES + PER_BYTE * offset


def find_record(window: Window, start: int, budget: Budget) -> tuple[int | None, int]:
    """Look for the first record that begins at ``start`` or later and proves itself.

    One that is longer than the budget affords is passed over.

    Returns:
        Its offset, or None where there is none yet; and from where to look again once the file has grown.
    """
    resume: int | None = None
    at = start
    while at + HEADER_BYTES <= window.size:
        block = window.bytes(at, MOST_BYTES + HEADER_BYTES)
        if len(block) < HEADER_BYTES:
            break
        for index in _headers(block):
            offset = at + index
            end = offset + HEADER_BYTES + _U32.unpack_from(block, index)[0] + FOOTER_BYTES
            if end > window.size:
                resume = offset if resume is None else resume
            elif end - offset <= SMALL_BYTES and end - at <= len(block):
                if _is_good(block[index : end - at]):
                    return offset, offset
            elif budget.affords(offset, end - offset):
                if payload_is_good(window, offset, end):
                    return offset, offset
                budget.spent += end - offset
        at += len(block) - HEADER_BYTES + 1
    return None, at if resume is None else resume


def payload_is_good(window: Window, offset: int, end: int) -> bool:
    """Say whether the payload's checksum is right in the record that reaches from ``offset`` to ``end``."""
    crc = 0
    at, stop = offset + HEADER_BYTES, end - FOOTER_BYTES
    while at < stop:
        piece = window.bytes(at, min(MOST_BYTES, stop - at))
        if not piece:
            return False
        crc = checksum.extend(crc, piece)
        at += len(piece)
    return window.bytes(stop, FOOTER_BYTES) == _U32.pack(mask(crc))


def _is_good(record: bytes) -> bool:
    return _U32.pack(mask(checksum.value(record[HEADER_BYTES:-FOOTER_BYTES]))) == record[-FOOTER_BYTES:]


def _headers(block: bytes) -> list[int]:
    """Where in a block the twelve bytes are a header's."""
    data: NDArray[np.uint8] = np.frombuffer(block, np.uint8)
    last = len(block) - HEADER_BYTES + 1
    zero = data == 0
    likely = zero[4 : 4 + last] & zero[5 : 5 + last] & zero[6 : 6 + last] & zero[7 : 7 + last]
    # Nothing but zeros, of which there may be gigabytes, is no header.
    likely &= ~(zero[8 : 8 + last] & zero[9 : 9 + last] & zero[10 : 10 + last] & zero[11 : 11 + last])
    found = np.flatnonzero(likely)
    heads: NDArray[np.void] = np.ndarray((last,), "V12", data.data, 0, (1,))
    words = heads[found].view(np.uint32).reshape(-1, 3)
    places: list[int] = found[header_crcs(words[:, 0]) == words[:, 2]].tolist()
    return places
