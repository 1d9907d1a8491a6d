"""Reading the protocol-buffer wire format: what is in a serialized message, and where, without message classes.

A message is a sequence of fields, each a varint ``field number << 3 | wire type`` and then its content, by wire type:
0 a varint, 1 eight bytes, 2 a varint length and as many bytes, 5 four bytes. Positions are offsets into the bytes that
were handed in, so nothing is copied; what is skipped is not touched, so that the bytes may be fetched as needed, or be
only the first ones of a long message: what is not at hand is an ``IndexError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, overload

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


class DamagedError(ValueError):
    """The bytes are no serialized message."""


class Bytes(Protocol):
    """Bytes, or something that fetches the bytes it is asked for."""

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> bytes: ...


def varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
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


def cut(data: Bytes, start: int, stop: int) -> bytes:
    """Return the bytes between two offsets.

    Raises:
        IndexError: if ``data`` does not have them all.
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
            key, at = varint(data, at - 1, end)
        kind = key & 7
        start = at
        if kind == DELIMITED:
            length, start = varint(data, at, end)
            at = start + length
        elif kind == VARINT:
            at = varint(data, at, end)[1]
        elif kind == FIXED32:
            at += 4
        elif kind == FIXED64:
            at += 8
        else:
            raise DamagedError(f"a field of wire type {kind}")
        if at > end or key < 8:
            raise DamagedError(f"field {key >> 3} is damaged or cut short")
        yield key >> 3, kind, start, at
