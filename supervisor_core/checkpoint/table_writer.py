"""`encode_table`: the bytes of an index file; see `supervisor_core.checkpoint.table` for the format.

Keys are written in full, none compressed against the one before, and every 16th entry is a restart point: an index is
small beside its data, and this is what every reader of the format understands.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from supervisor_core.checkpoint.table import FOOTER_BYTES, MAGIC, extend

_BLOCK_BYTES = 64 << 10
_RESTART_INTERVAL = 16


def mask(crc: int) -> int:
    """Return what is stored in place of a CRC32C.

    Example:
        >>> from supervisor_core.checkpoint.table import unmask
        >>> unmask(mask(0x12345678)) == 0x12345678
        True
    """
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def encode_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a table.

    Args:
        entries: keys and values, in the order of the keys, each key once.
    """
    table = bytearray()
    index = _Block()
    block = _Block()
    for key, value in entries:
        block.add(key, value)
        if block.size >= _BLOCK_BYTES:
            index.add(key, _append(table, block))
            block = _Block()
    if block.size or not index.size:
        index.add(block.last_key, _append(table, block))
    footer = _append(table, _Block()) + _append(table, index)
    return bytes(table) + footer.ljust(FOOTER_BYTES - len(MAGIC), b"\0") + MAGIC


class _Block:
    def __init__(self) -> None:
        self.last_key = b""
        self._data = bytearray()
        self._restarts = [0]
        self._count = 0

    @property
    def size(self) -> int:
        return len(self._data)

    def add(self, key: bytes, value: bytes) -> None:
        if self._count and self._count % _RESTART_INTERVAL == 0:
            self._restarts.append(len(self._data))
        self._count += 1
        self._data += b"\0" + varint(len(key)) + varint(len(value)) + key + value
        self.last_key = key

    def encode(self) -> bytes:
        restarts = struct.pack(f"<{len(self._restarts)}I", *self._restarts)
        return bytes(self._data) + restarts + struct.pack("<I", len(self._restarts))


def varint(number: int) -> bytes:
    """Return a number from 0 as a varint: 7 bits to a byte, the lowest first, the top bit set in all but the last.

    Example:
        >>> varint(300)
        b'\\xac\\x02'
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _append(table: bytearray, block: _Block) -> bytes:
    """Append a block; return its handle."""
    data = block.encode() + b"\0"
    handle = varint(len(table)) + varint(len(data) - 1)
    table += data + struct.pack("<I", mask(extend(0, data)))
    return handle
