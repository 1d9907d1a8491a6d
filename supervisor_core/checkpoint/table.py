"""`SortedTable`: the sorted string table that an index file is.

The format is LevelDB's (``doc/table_format.md``), as tensorflow writes it (``core/lib/io/table_builder.cc``):

    data block*  metaindex block  index block  footer

    block     entries, restart points (uint32 each), how many (uint32);
              then 1 byte compression (0 none, 1 snappy) and 4 bytes masked CRC32C of block and compression byte
    entry     varint bytes shared with the key before, varint other key bytes, varint value bytes, key rest, value
    index     an entry for each data block; its value is the block's handle (varint offset, varint size)
    footer    48 bytes: handles of metaindex and index, zeros up to byte 40, magic 57 fb 80 8b 24 75 47 db

Numbers are little-endian. A CRC is masked as ``rotate_right(crc, 15) + 0xa282ead8``, modulo 2**32.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from supervisor_core.base import checksum
from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.base.wire import read_canonical_varint
from supervisor_core.storage.filesystem import Reader

FOOTER_BYTES = 48
MAGIC = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
CHUNK_BYTES = 256 << 10
"""What is read and written at a time, about 0.05 ms with the checksum: it stays in the processor's own cache. Writes of
1 MiB took the kernel up to four times the processor time where memory was fragmented, since it wants pages as large."""

_TRAILER_BYTES = 5
MAX_BLOCK_BYTES = 64 << 20
"""A block whose entries are read is no longer; those that TensorFlow writes for an index have some 256 KiB."""
MAX_KEY_BYTES = 64 << 10
MAX_ENTRIES = 250_000
MAX_ENTRY_BYTES = 64 << 20
"""Of all keys and values of one table together: a key may repeat the one before, at 3 bytes in the file."""


def unmask(crc: int) -> int:
    """Return the CRC32C that a masked one stands for."""
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def crc_of(reader: Reader, offset: int, size: int, crc: int = 0, *, done: Callable[[int], None] | None = None) -> int:
    """Return the CRC32C of a part of a file, read `CHUNK_BYTES` at a time; EOFError where the file ends early."""
    end = offset + size
    while offset < end:
        data = reader.read_at(offset, min(CHUNK_BYTES, end - offset))
        if not data:
            raise EOFError(f"the file ends at byte {offset:,}, {end - offset:,} bytes too early")
        crc = checksum.extend(crc, data)
        offset += len(data)
        if done is not None:
            done(len(data))
    return crc


class Meter:
    """Reports how much has been read.

    Args:
        report: called with the bytes done and the bytes in all; None where nothing is reported.
        total: the bytes in all, as far as they are known.
    """

    def __init__(self, report: Callable[[int, int], None] | None, total: int = 0) -> None:
        self._report = report
        self._done = 0
        self.total = total

    def add(self, count: int) -> None:
        """Report that as many bytes more were read."""
        self._done += count
        if self._report is not None:
            self._report(self._done, max(self._done, self.total))


class SortedTable:
    """One table file, checked as it is read: every block's checksum, the footer's every byte.

    Args:
        reader: the file, open.
        path: its name, for messages.

    Raises:
        DamagedCheckpointError: by each method, if the file is not what the format says; says where.
    """

    def __init__(self, reader: Reader, path: str) -> None:
        self._reader = reader
        self._path = path
        self._metaindex, self._index = self._read_footer()

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each key and value in order, having checked the blocks they are in."""
        self._read_block(*self._metaindex)
        index = self._index[0]
        count = total = end = 0
        for _, handle in self._entries_of(self._read_block(*self._index), index):
            try:
                (offset, size), _ = self._handle(handle, 0)
            except ValueError as error:
                raise self._damage(f"the index block at byte {index:,} cannot be read: {error}") from error
            if offset < end:  # a block that is named again and again, at ten bytes each, would be read as often
                raise self._damage(
                    f"a block at byte {offset:,} begins before byte {end:,}, where the one before it ends"
                )
            end = offset + size + _TRAILER_BYTES
            for key, value in self._entries_of(self._read_block(offset, size), offset):
                count, total = count + 1, total + len(key) + len(value)
                if count > MAX_ENTRIES or total > MAX_ENTRY_BYTES:
                    raise self._damage(f"it has more than {MAX_ENTRIES:,} entries or {MAX_ENTRY_BYTES:,} bytes of them")
                yield key, value

    def _read_footer(self) -> tuple[tuple[int, int], tuple[int, int]]:
        size = self._reader.size
        if size < FOOTER_BYTES:
            raise self._damage(f"it has {size:,} bytes, fewer than the {FOOTER_BYTES} of its footer")
        footer = self._read(size - FOOTER_BYTES, FOOTER_BYTES)
        if footer[40:] != MAGIC:
            raise self._damage("its last 8 bytes are not the format's mark: cut or altered")
        try:
            first, position = self._handle(footer, 0)
            second, position = self._handle(footer, position)
        except ValueError as error:
            raise self._damage(f"its footer cannot be read: {error}") from error
        if footer[position:40].strip(b"\0"):
            raise self._damage("its footer was altered")
        return first, second

    @staticmethod
    def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
        offset, position = read_canonical_varint(data, position)
        size, position = read_canonical_varint(data, position)
        return (offset, size), position

    def _read_block(self, offset: int, size: int) -> bytes:
        end = offset + size + _TRAILER_BYTES
        if end > self._reader.size - FOOTER_BYTES:
            raise self._damage(f"a block at byte {offset:,} is said to have {size:,} bytes, past the end of the file")
        if size > MAX_BLOCK_BYTES:
            raise self._damage(f"a block at byte {offset:,} is said to have {size:,} bytes")
        data = self._read(offset, size + _TRAILER_BYTES)
        crc, expected = checksum.value(data[: size + 1]), unmask(struct.unpack("<I", data[size + 1 :])[0])
        if crc != expected:
            raise self._damage(f"bytes {offset:,} to {end:,} were altered (CRC32C {crc:08x}, expected {expected:08x})")
        if data[size]:
            raise self._damage(f"the block at byte {offset:,} is compressed, which cannot be verified here")
        return data[:size]

    def _entries_of(self, block: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
        try:
            (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
            end = len(block) - 4 - 4 * restarts
            position, key = 0, b""
            while position < end:
                shared, position = read_canonical_varint(block, position)
                fresh, position = read_canonical_varint(block, position)
                length, position = read_canonical_varint(block, position)
                if shared + fresh > MAX_KEY_BYTES:
                    raise ValueError(f"a key has {shared + fresh:,} bytes")
                if shared > len(key) or position + fresh + length > end:
                    raise ValueError("an entry runs past the end")
                key = key[:shared] + block[position : position + fresh]
                position += fresh
                yield key, block[position : position + length]
                position += length
            if position != end:
                raise ValueError("the restart points lie among the entries")
        except (ValueError, struct.error) as error:
            raise self._damage(f"the block at byte {offset:,} cannot be read: {error}") from error

    def _read(self, offset: int, length: int) -> bytes:
        data = self._reader.read_at(offset, length)
        if len(data) < length:
            raise self._damage(f"it ends at byte {offset + len(data):,}, {length - len(data):,} bytes too early")
        return data

    def _damage(self, what: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(f"{os.path.basename(self._path)}: {what}")
