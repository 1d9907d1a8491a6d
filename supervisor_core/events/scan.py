"""`RecordScan`: from record to record through a file, past damaged places, with a `Window` of it in memory.

After a length that cannot be trusted the next record has to prove itself: the checksum of its length is right, its
length is below 4 GiB, it ends within the file, and the checksum of its payload is right: 64 bits that agree by chance
once in 2**64 places. Anybody can write many lengths with right checksums that all reach to the end of the file. So
reading for a proof that fails has a budget, and the time that damage costs stays in proportion to the file's
size.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from supervisor_core.base import checksum
from supervisor_core.base.wire import DamagedError
from supervisor_core.events.chunk import Problem
from supervisor_core.events.chunk_builder import ChunkBuilder
from supervisor_core.events.event_format import FOOTER_BYTES, HEADER_BYTES, header, mask
from supervisor_core.events.payload import MAX_PARSED_BYTES, Decoded, decode
from supervisor_core.events.vector_decode import FEWEST, VectorDecoder, VectorScan, header_crcs
from supervisor_core.storage.filesystem import FIRST_BYTES, ReadFile

LARGE_BYTES = 64 * 1024
"""Larger payloads are decoded in place, and fetched only where they hold something wanted."""

MAX_EVENT_BYTES = 1 << 31
"""The limit of protocol buffers; a longer payload is damaged, and not read."""
TELEMETRY_PIECE_BYTES = 4 << 20
"""A piece ends after this much telemetry."""
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_FRAMING_BYTES = HEADER_BYTES + FOOTER_BYTES
_TOGETHER_BYTES = 8 * 1024
"""Shorter rests of a window are read record by record: finding all records at once would cost more."""

_header = lru_cache(maxsize=4096)(header)


@dataclass(slots=True)
class RecordScan:
    """A position in a file. What it finds does not depend on the sizes of the pieces in which the file is read."""

    thorough: bool = False
    at: int = 0
    """Offset of the next record."""
    records: int = 0
    """Whole records so far."""
    corrupt: int = 0
    """Damaged places so far."""
    suspect: int | None = None
    """Offset of the record before the position, if its payload is not proven: its length may be wrong."""
    searched: int | None = None
    """At a damaged length: the offset from which to continue the search for a record."""
    spent: int = 0
    """Bytes read for failed proofs."""

    def run(self, window: Window, builder: ChunkBuilder, stop: int | None) -> bool:
        """Read all complete records; return whether the end was reached.

        Args:
            stop: no record that begins here or later is read, nor any after `TELEMETRY_PIECE_BYTES` of telemetry.

        Raises:
            FileCut: if the file became shorter.
            OSError: if it cannot be read.
        """
        while window.fetch(self.at, HEADER_BYTES):
            if stop is not None and (self.at >= stop or builder.telemetry_bytes >= TELEMETRY_PIECE_BYTES):
                return False
            data, index = window.data, self.at - window.base
            if len(data) - index > _TOGETHER_BYTES and self._read_together(window, builder, stop):
                continue
            (length,) = _U64.unpack_from(data, index)
            end = self.at + _FRAMING_BYTES + length
            if _header(length) != data[index : index + HEADER_BYTES]:
                if not self._find_next(window, builder):
                    return True
            elif end > window.size:
                return True
            else:
                self._read_one(window, builder, end)
        return True

    def _read_one(self, window: Window, builder: ChunkBuilder, end: int) -> None:
        at = self.at
        self.suspect = self.searched = None
        event = (_small if end - at <= LARGE_BYTES + _FRAMING_BYTES else self._large)(window, at, end)
        if isinstance(event, str):
            self.suspect = at
            self._damaged(builder, at, event)
        else:
            self.records += 1
            builder.add(at, end - at, event)
        self.at = end

    def _read_together(self, window: Window, builder: ChunkBuilder, stop: int | None) -> bool:
        """Read the consecutive records of the window; return whether there were enough of them."""
        scan, base = window.vector_scan(), window.base
        starts, lengths = scan.run(self.at - base, len(window.data) if stop is None else stop - base)
        if len(starts) < FEWEST:
            return False
        decoded = VectorDecoder(window.data, starts, lengths)
        rest: dict[int, Decoded] = {}
        damaged, records, problems = 0, builder.records, len(builder.problems)
        for number in np.flatnonzero(~decoded.done).tolist():
            at = base + int(starts[number])
            end = at + int(lengths[number]) + _FRAMING_BYTES
            event = _small(window, at, end)
            if isinstance(event, str):
                self._damaged(builder, at, event)
                damaged += end - at
            else:
                rest[number] = event
        last = len(starts) - 1
        end = base + int(starts[last] + lengths[last]) + _FRAMING_BYTES
        builder.add_decoded(decoded, starts + base, end - self.at - damaged, rest)
        builder.problems[problems:] = sorted(builder.problems[problems:], key=lambda problem: problem.offset or 0)
        self.records += builder.records - records
        is_good = decoded.done[last] or last in rest
        self.suspect = None if is_good else base + int(starts[last])
        self.searched = None
        self.at = end
        return True

    def _large(self, window: Window, at: int, end: int) -> Decoded | str:
        """Decode a payload in place; fetch and check it only if it holds something wanted."""
        trouble = None
        length = end - at - _FRAMING_BYTES
        if length >= MAX_EVENT_BYTES:
            return f"The payload has {length:,} bytes, which no event has."
        try:
            event = _decode_large(window, at + HEADER_BYTES, end - FOOTER_BYTES)
            if not event.wanted and not self.thorough:
                self.suspect = at
                return event
        except DamagedError as error:
            trouble = f"The payload is no event: {error}."
            if length > MAX_PARSED_BYTES:  # its checksum would change nothing
                return trouble
        if not _payload_is_good(window, at, end):
            if window.size < end:
                raise FileCut
            return f"The payload of {end - at - _FRAMING_BYTES} bytes does not match its checksum."
        return trouble or event

    def _find_next(self, window: Window, builder: ChunkBuilder) -> bool:
        """Continue at the next record that proves itself; return whether there is one."""
        start = self.searched
        if start is None:
            start = self.at + 1
            if self.suspect is not None and self._affords(self.at, self.at - self.suspect):
                self.spent += self.at - self.suspect
                start = self.suspect + HEADER_BYTES
        found, self.searched = self._find_record(window, start)
        if found is None:
            return False
        self.corrupt += 1
        text = f"The length does not match its checksum; reading went on at byte {found}."
        builder.add_problem(Problem(kind="corrupt_length", offset=self.at, text=text))
        self.at, self.suspect, self.searched = found, None, None
        return True

    def _damaged(self, builder: ChunkBuilder, at: int, text: str) -> None:
        self.corrupt += 1
        builder.add_problem(Problem(kind="corrupt_record", offset=at, text=text))

    def _affords(self, offset: int, length: int) -> bool:
        """Say whether ``length`` more bytes may be read at ``offset`` for a proof that may fail."""
        return self.spent + length <= FREE_BYTES + PER_BYTE * offset

    def _find_record(self, window: Window, start: int) -> tuple[int | None, int]:
        """Find the first record that begins at ``start`` or later and proves itself.

        One that is longer than the budget affords is skipped.

        Returns:
            Its offset, or None where there is none yet; and where to continue once the file has grown.
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
                    if _is_whole(block[index : end - at]):
                        return offset, offset
                elif self._affords(offset, end - offset):
                    if _payload_is_good(window, offset, end):
                        return offset, offset
                    self.spent += end - offset
            at += len(block) - HEADER_BYTES + 1
        return None, at if resume is None else resume


def _decode_large(window: Window, first: int, last: int) -> Decoded:
    try:
        event = decode(window.data, first - window.base, last - window.base)
    except IndexError:  # the window ends before a byte that is needed
        return decode(LazyBytes(window), first, last)
    return event


def _small(window: Window, at: int, end: int) -> Decoded | str:
    """Check and decode one payload; return its event, or a text about its damage."""
    if not window.fetch(at, end - at):
        raise FileCut
    data, first, last = window.data, at - window.base + HEADER_BYTES, end - window.base - FOOTER_BYTES
    if mask(checksum.value(data[first:last])) != _U32.unpack_from(data, last)[0]:
        return f"The payload of {last - first} bytes does not match its checksum."
    try:
        return decode(data, first, last)
    except DamagedError as error:
        return f"The payload is no event: {error}."


FREE_BYTES = 256 << 20
PER_BYTE = 4
SMALL_BYTES = 4 * 1024
"""Records up to this length cost no budget."""


def _payload_is_good(window: Window, offset: int, end: int) -> bool:
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


def _is_whole(record: bytes) -> bool:
    return _U32.pack(mask(checksum.value(record[HEADER_BYTES:-FOOTER_BYTES]))) == record[-FOOTER_BYTES:]


def _headers(block: bytes) -> list[int]:
    """Return the places in a block whose twelve bytes are a valid header."""
    data: NDArray[np.uint8] = np.frombuffer(block, np.uint8)
    last = len(block) - HEADER_BYTES + 1
    zero = data == 0
    likely = zero[4 : 4 + last] & zero[5 : 5 + last] & zero[6 : 6 + last] & zero[7 : 7 + last]
    # Zeros, of which there may be gigabytes, are no header.
    likely &= ~(zero[8 : 8 + last] & zero[9 : 9 + last] & zero[10 : 10 + last] & zero[11 : 11 + last])
    found = np.flatnonzero(likely)
    heads: NDArray[np.void] = np.ndarray((last,), "V12", data.data, 0, (1,))
    words = heads[found].view(np.uint32).reshape(-1, 3)
    offsets: list[int] = found[header_crcs(words[:, 0]) == words[:, 2]].tolist()
    return offsets


MOST_BYTES = 2 * 1024 * 1024
_SMALL_FILE_BYTES = 64 * 1024
"""What is new of a file is fetched at once up to this length."""


class Window:
    """Fetches a file piece by piece: growing pieces while it is read in order, small ones after a jump.

    Args:
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
        rest = self.size - offset
        is_small = rest <= _SMALL_FILE_BYTES and not self.fetched
        wanted = rest if is_small else min(max(length, self._piece_bytes), rest)
        self._piece_bytes = min(4 * self._piece_bytes, MOST_BYTES)
        if self.fetched + wanted > self.most_bytes:
            raise SparseFileError(f"it is mostly holes, of which {self.fetched:,} bytes were read now")
        self.fetched += wanted
        self.data = self._file.read_at(offset, wanted)
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

    def __getitem__(self, index: Any, /) -> Any:
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
