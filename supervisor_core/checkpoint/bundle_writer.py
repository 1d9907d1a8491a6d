"""`write_bundle`: writes a checkpoint's files, in the formats of `bundle` (data) and `table` (index).

TensorFlow's own writer copies all data once more on its way to the file. Here each tensor goes from where it is
straight to the system (`blocks`): half the processor time, which a training that uses every processor has back.

In the index keys are written in full, none compressed against the one before, and every 16th entry is a restart point:
an index is small beside its data.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

from supervisor_core.base import checksum
from supervisor_core.base.wire import encode_varint
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter, FilePart
from supervisor_core.checkpoint.bundle import data_path
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.table import FOOTER_BYTES, MAGIC
from supervisor_core.storage.opening import open_own

_HEADER = b"\x08\x01" + (b"" if sys.byteorder == "little" else b"\x10\x01") + b"\x1a\x02\x08\x01"
"""The ``BundleHeader``: 1 num_shards = 1, 2 endianness = 0 (little) or 1, 3 version = {1 producer = 1}."""


@dataclass(frozen=True)
class TensorData:
    """A tensor to write."""

    name: str
    dtype: int
    """Its type's number in tensorflow's ``DataType``."""
    numpy_dtype: str
    """NumPy's name of its type."""
    shape: tuple[int, ...]
    data: Any
    """Its bytes, as they are in memory: a one-dimensional array of ``uint8``, which is sliced, not copied."""


def write_bundle(
    prefix: str, tensors: Iterable[TensorData], blocks: BlockWriter = IN_THREAD, size: float = 0
) -> str | None:
    """Write a checkpoint of one data file, without syncing it. Return the name of a tensor that has NaN; None without.

    Args:
        prefix: the checkpoint's path, on the local file system, in a directory that exists.
        tensors: what goes into it; numbers only, each name once.
        blocks: what writes their bytes, and lets each go as `BlockWriter.write` says.
        size: theirs, together.

    Raises:
        OSError: if it cannot be written; an incomplete file stays.
    """
    written: list[tuple[TensorData, int]] = []

    def parts() -> Iterator[FilePart]:
        for tensor in tensors:
            written.append((replace(tensor, data=None), len(tensor.data)))
            yield FilePart(tensor.data, tensor.numpy_dtype)
            del tensor

    with _emptied(data_path(prefix, 0, 1), buffering=0) as file:
        done = blocks.write(file.fileno(), parts(), size=size, is_one=False)
    entries, offset = {b"": _HEADER}, 0
    for (tensor, size), crc in zip(written, done.crcs, strict=True):
        entries[tensor.name.encode()] = _entry(tensor, offset, size, crc)
        offset += size
    with _emptied(f"{prefix}.index") as index:
        index.write(encode_table(sorted(entries.items())))
    return None if done.with_nan is None else written[done.with_nan][0].name


@contextmanager
def _emptied(path: str, buffering: int = -1) -> Iterator[IO[bytes]]:
    """Open a file to write all of it, and add its name to an error of writing, which has none."""
    try:
        fd = open_own(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(fd, 0)
        with open(fd, "wb", buffering=buffering) as file:
            yield file
    except OSError as error:
        error.filename = error.filename or path
        raise


def _entry(tensor: TensorData, offset: int, size: int, crc: int) -> bytes:
    entry = message_class("BundleEntry")(dtype=tensor.dtype, offset=offset, size=size, crc32c=mask(crc))
    entry.shape.SetInParent()
    for length in tensor.shape:
        entry.shape.dim.add(size=length)
    return bytes(entry.SerializeToString())


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
        self._data += b"\0" + encode_varint(len(key)) + encode_varint(len(value)) + key + value
        self.last_key = key

    def encode(self) -> bytes:
        restarts = struct.pack(f"<{len(self._restarts)}I", *self._restarts)
        return bytes(self._data) + restarts + struct.pack("<I", len(self._restarts))


def _append(table: bytearray, block: _Block) -> bytes:
    data = block.encode() + b"\0"
    handle = encode_varint(len(table)) + encode_varint(len(data) - 1)
    table += data + struct.pack("<I", mask(checksum.value(data)))
    return handle
