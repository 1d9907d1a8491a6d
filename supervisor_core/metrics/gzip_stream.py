"""`GzipStream`: a gzip file that is put together from parts which were compressed beforehand."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_POLYNOMIAL = 0xEDB88320
_ONE, _X8 = 1 << 31, 1 << 23
"""The polynomials 1 and x^8, lowest power in the highest bit, as CRC-32 has them."""


def deflate(data: bytes, level: int = 1) -> bytes:
    """Return data compressed as an independent part of a stream, by zlib's levels: 1 is the fastest, 9 the smallest."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


def inflated(packed: bytes) -> bytes:
    """Return the data of one or more parts as `deflate` has returned them."""
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed)


def _product(one: int, other: int) -> int:
    """Return the product of two polynomials, modulo that of CRC-32."""
    result = 0
    while one:
        if one & _ONE:
            result ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return result


@lru_cache(maxsize=1024)
def _shift(size: int) -> int:
    """Return what a CRC is multiplied by when a number of bytes follow."""
    result, square = _ONE, _X8
    while size:
        if size & 1:
            result = _product(square, result)
        square, size = _product(square, square), size >> 1
    return result


class GzipStream:
    """Joins compressed parts to one gzip file. Changed by one thread at a time; any thread may copy it.

    Example:
        >>> import gzip
        >>> stream = GzipStream()
        >>> stream.add(b"one ", deflate(b"one "))
        >>> stream.add(b"two", deflate(b"two"))
        >>> gzip.decompress(stream.finish())
        b'one two'
    """

    def __init__(self) -> None:
        self._parts = [_HEADER]
        self._crc = 0
        self._size = 0

    def add(self, data: bytes, packed: bytes) -> None:
        """Append data, given also as `deflate` returned it."""
        self._parts.append(packed)
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)

    def add_packed(self, packed: bytes, crc: int, size: int) -> None:
        """Append data as `deflate` returned it, by its CRC-32 and its number of bytes."""
        self._parts.append(packed)
        self._crc = _product(_shift(size), self._crc) ^ crc
        self._size += size

    def copy(self) -> GzipStream:
        """Return a stream that begins with the content of this one."""
        other = GzipStream()
        other._parts, other._crc, other._size = [_HEADER, b"".join(self._parts[1:])], self._crc, self._size
        return other

    def plain(self) -> bytes:
        """Return the data."""
        return inflated(b"".join(self._parts[1:]))

    def finish(self) -> bytes:
        """Return the gzip file."""
        return b"".join([*self._parts, _LAST_BLOCK, struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)])
