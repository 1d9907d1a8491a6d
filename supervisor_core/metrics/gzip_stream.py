"""`GzipStream`: a gzip file that is put together from parts which were compressed beforehand."""

from __future__ import annotations

import struct
import zlib

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"


def deflate(data: bytes, level: int = 1) -> bytes:
    """Return data compressed as an independent part of a stream, by zlib's levels: 1 is the fastest, 9 the smallest."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


def inflated(packed: bytes) -> bytes:
    """Return the data of one or more parts as `deflate` has returned them."""
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed)


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
