"""The protocol-buffer wire format: varints and fields, written and read without message classes.

A message is a sequence of fields, each a varint ``field number << 3 | wire type`` and then its content, by wire type:
0 a varint, 1 eight bytes, 2 a varint length and as many bytes, 5 four bytes.

Reading works with offsets into the given bytes and copies nothing. Skipped bytes are not accessed, so the bytes may be
fetched on demand, or be only the beginning of a long message: a missing byte is an ``IndexError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, overload

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


class DamagedError(ValueError):
    """The bytes are not a valid varint or message."""


class Bytes(Protocol):
    """Bytes, or an object that fetches the bytes that are indexed."""

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> bytes: ...


def encode_varint(number: int) -> bytes:
    """Return an int64 or uint64 as a varint: seven bits to a byte, lowest first; negative ones as two's complement.

    Example:
        >>> encode_varint(300)
        b'\\xac\\x02'
    """
    if 0 <= number < 128:
        return bytes((number,))
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(field: int, data: bytes) -> bytes:
    """Return a field that holds bytes, a string or a message: key, length, data."""
    return encode_varint(field << 3 | 2) + encode_varint(len(data)) + data


def read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at an offset, unsigned, and the offset behind it.

    Raises:
        DamagedError: if it does not end before ``end`` or has more than 64 bits.
    """
    if at < end:
        byte = data[at]
        if byte < 128:
            return byte, at + 1
    number = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise DamagedError("a varint is damaged or cut short")


def read_canonical_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, unsigned, and the offset behind it, if it is encoded as `encode_varint` does.

    For formats without a checksum between a length and its use: an altered length is refused where it can be.

    Raises:
        DamagedError: if it does not end, has needless bytes, or more than 64 bits.
    """
    value, end = read_varint(data, at, len(data))
    if data[at:end] != encode_varint(value):
        raise DamagedError("a number has needless bytes, or more than 64 bits")
    return value, end


def cut(data: Bytes, start: int, stop: int) -> bytes:
    """Return the bytes between two offsets.

    Raises:
        IndexError: if ``data`` ends before ``stop``.
    """
    piece = data[start:stop]
    if len(piece) < stop - start:
        raise IndexError(f"byte {stop} is not at hand")
    return piece


def signed(number: int) -> int:
    """Return an unsigned 64-bit number as the int64 with the same bits."""
    return number - (1 << 64) if number >> 63 else number


def fields(data: Bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message: number, wire type, offset of the content, offset behind it.

    Raises:
        DamagedError: if the bytes are no message.
    """
    while at < end:
        key = data[at]
        at += 1
        if key > 127:
            key, at = read_varint(data, at - 1, end)
        kind = key & 7
        start = at
        if kind == DELIMITED:
            length, start = read_varint(data, at, end)
            at = start + length
        elif kind == VARINT:
            at = read_varint(data, at, end)[1]
        elif kind == FIXED32:
            at += 4
        elif kind == FIXED64:
            at += 8
        else:
            raise DamagedError(f"a field of wire type {kind}")
        if at > end or key < 8:
            raise DamagedError(f"field {key >> 3} is damaged or cut short")
        yield key >> 3, kind, start, at
