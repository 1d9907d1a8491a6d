"""`GzipStream`: one gzip file made of parts that were compressed long before they are sent.

    1f 8b 08 00 00 00 00 00 04 ff      header: deflate, no name, no time, fastest
    part, part ...                     raw deflate blocks, each part ended by an empty stored block (00 00 00 ff ff),
                                       so that it ends on a byte; no part refers to what stands before it
    03 00                              an empty last block
    crc32, size                        of all that was compressed, 4 bytes each, little-endian (RFC 1952)

It is a single member: some clients read no further than the first.
"""

from __future__ import annotations

import struct
import zlib

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_LEVEL = 1
"""The fastest: metrics repeat themselves so much that it makes a tenth of them or less."""


def deflate(data: bytes) -> bytes:
    """Return a part of a stream: data compressed on its own."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


class GzipStream:
    """Gathers parts; not to be changed by several threads at once, but copied by any of them.

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
        """Return a stream that begins with all that is in this one."""
        other = GzipStream()
        other._parts, other._crc, other._size = [b"".join(self._parts)], self._crc, self._size
        return other

    def finish(self) -> bytes:
        """Return the whole file."""
        return b"".join([*self._parts, _LAST_BLOCK, struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)])
