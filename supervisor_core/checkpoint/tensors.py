"""The bytes of one tensor in a data file: their length, and what their checksum covers.

As tensorflow writes them (``core/util/tensor_bundle/tensor_bundle.cc``), with ``crc`` the CRC32C that the index holds
in masked form:

    numbers   the values, in the byte order that the header names; crc of those bytes
    string    a varint for each string's length, 4 bytes, then the strings. crc of the lengths as uint32 (uint64
              from 2**32), of the 4 bytes, and of the strings; the 4 bytes are the masked crc up to there
    variant   for each: varint length, that many bytes, 4 bytes. crc of the length as uint64, the bytes, and the 4
              bytes, running on from one to the next; the 4 bytes are the masked crc up to there
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterator

from supervisor_core.checkpoint.filesystem import Reader
from supervisor_core.checkpoint.table import CHUNK_BYTES, crc_of, extend

DTYPES: dict[int, tuple[str, int | None]] = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    7: ("string", None),
    8: ("complex64", 8),
    9: ("int64", 8),
    10: ("bool", 1),
    11: ("qint8", 1),
    12: ("quint8", 1),
    13: ("qint32", 4),
    14: ("bfloat16", 2),
    15: ("qint16", 2),
    16: ("quint16", 2),
    17: ("uint16", 2),
    18: ("complex128", 16),
    19: ("float16", 2),
    20: ("resource", None),
    21: ("variant", None),
    22: ("uint32", 4),
    23: ("uint64", 8),
    24: ("float8_e5m2", 1),
    25: ("float8_e4m3fn", 1),
}
"""tensorflow's numbers for types -> name and bytes per element (None: it varies)."""

MAX_DIMENSIONS = 254
"""As many as tensorflow's shapes have at most."""
MAX_ELEMENTS = 1 << 48

_WIDTHS = dict(DTYPES.values())


def dtype_name(number: int) -> str:
    """Return the name of a type by tensorflow's number; ``dtype<number>`` for one that came later."""
    return DTYPES.get(number, (f"dtype{number}", None))[0]


def expected_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes a tensor must have; None where that varies.

    Raises:
        ValueError: if there can be no tensor of that shape.
    """
    if len(shape) > MAX_DIMENSIONS or any(not 0 <= size <= MAX_ELEMENTS for size in shape):
        raise ValueError(f"a shape of {len(shape):,} dimensions, or of one that is negative or too large")
    elements = 1
    for size in shape:
        elements *= size
        if elements > MAX_ELEMENTS:
            raise ValueError(f"a shape of more than {MAX_ELEMENTS:,} elements")
    width = _WIDTHS.get(dtype)
    return None if width is None else width * elements


def checksum(
    reader: Reader,
    dtype: str,
    shape: tuple[int, ...],
    offset: int,
    size: int,
    *,
    big_endian: bool = False,
    done: Callable[[int], None] | None = None,
) -> int:
    """Return the (unmasked) CRC32C of one tensor's bytes.

    Raises:
        EOFError: if the file ends before the tensor does.
        ValueError: if the bytes are not those of such a tensor; says how.
    """
    if dtype == "string":
        return _string_checksum(reader, math.prod(shape), offset, size, big_endian, done)
    if dtype == "variant":
        return _variant_checksum(reader, math.prod(shape), offset, size, big_endian, done)
    return crc_of(reader, offset, size, done=done)


def _string_checksum(
    reader: Reader, count: int, offset: int, size: int, big_endian: bool, done: Callable[[int], None] | None
) -> int:
    if size == 0:
        return 0
    order = ">" if big_endian else "<"
    cursor = _Cursor(reader, offset, size)
    crc, narrow = 0, array("I")
    for _ in range(count):
        length = cursor.varint()
        if length <= 0xFFFFFFFF:
            narrow.append(length)
        if length > 0xFFFFFFFF or len(narrow) >= 1 << 16:
            crc = extend(crc, struct.pack(f"{order}{len(narrow)}I", *narrow))
            narrow = array("I")
        if length > 0xFFFFFFFF:
            crc = extend(crc, struct.pack(f"{order}Q", length))
    crc = extend(crc, struct.pack(f"{order}{len(narrow)}I", *narrow))
    for data in cursor.rest():
        crc = extend(crc, data)
    if done is not None:
        done(size)
    return crc


def _variant_checksum(
    reader: Reader, count: int, offset: int, size: int, big_endian: bool, done: Callable[[int], None] | None
) -> int:
    order = ">" if big_endian else "<"
    cursor = _Cursor(reader, offset, size)
    crc = 0
    for _ in range(count):
        length = cursor.varint()
        crc = extend(crc, struct.pack(f"{order}Q", length))
        for data in cursor.parts(length + 4):
            crc = extend(crc, data)
    if done is not None:
        done(size)
    return crc


class _Cursor:
    """Goes through a part of a file from its start, holding no more than one chunk."""

    def __init__(self, reader: Reader, offset: int, size: int) -> None:
        self._reader = reader
        self._offset = offset
        self._end = offset + size
        self._chunk = b""
        self._position = 0

    @property
    def left(self) -> int:
        return self._end - self._offset + len(self._chunk) - self._position

    def varint(self) -> int:
        value = shift = 0
        while shift < 70:
            if self._position >= len(self._chunk):
                self._fill()
            byte = self._chunk[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value
            shift += 7
        raise ValueError("one of its lengths cannot be read")

    def parts(self, length: int) -> Iterator[bytes]:
        if length > self.left:
            raise ValueError(f"an element is said to have {length:,} bytes, and {self.left:,} are left")
        while length:
            if self._position >= len(self._chunk):
                self._fill()
            data = self._chunk[self._position : self._position + length]
            self._position += len(data)
            length -= len(data)
            yield data

    def rest(self) -> Iterator[bytes]:
        return self.parts(self.left)

    def _fill(self) -> None:
        if self._offset >= self._end:
            raise ValueError("it ends within a length")
        self._chunk = self._reader.read_at(self._offset, min(CHUNK_BYTES, self._end - self._offset))
        if not self._chunk:
            raise EOFError(f"the file ends at byte {self._offset:,}, {self._end - self._offset:,} bytes too early")
        self._offset += len(self._chunk)
        self._position = 0
