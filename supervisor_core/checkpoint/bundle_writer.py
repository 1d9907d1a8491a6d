"""`write_bundle`: writes a checkpoint's files; see `supervisor_core.checkpoint.bundle` for the format.

TensorFlow's own writer copies all data once more on its way to the file. Here each tensor goes from where it is
straight to the system, and its checksum is computed while it is still in the processor's cache: half the processor
time, which a training that uses every processor has back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from supervisor_core.checkpoint.bundle import data_path
from supervisor_core.checkpoint.filesystem import open_own
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.table import CHUNK_BYTES, extend
from supervisor_core.checkpoint.table_writer import encode_table, mask

_HEADER = b"\x08\x01" + (b"" if sys.byteorder == "little" else b"\x10\x01") + b"\x1a\x02\x08\x01"
"""The ``BundleHeader``: 1 num_shards = 1, 2 endianness = 0 (little) or 1, 3 version = {1 producer = 1}."""


@dataclass(frozen=True)
class TensorData:
    """A tensor to write."""

    name: str
    dtype: int
    """Its type's number in tensorflow's ``DataType``."""
    shape: tuple[int, ...]
    data: Any
    """Its bytes, as they are in memory: a one-dimensional array of ``uint8``, which is sliced, not copied."""


def write_bundle(prefix: str, tensors: Iterable[TensorData]) -> None:
    """Write a checkpoint of one data file, without syncing it. Each tensor is let go of as soon as it is written.

    Args:
        prefix: the checkpoint's path, on the local file system, in a directory that exists.
        tensors: what goes into it; numbers only, each name once.

    Raises:
        OSError: if it cannot be written; what there is of it stays.
    """
    entries = {b"": _HEADER}
    with _named(data_path(prefix, 0, 1)) as path, open(_emptied(path), "wb", buffering=0) as file:
        offset = 0
        for tensor in tensors:
            size = len(tensor.data)
            crc = _write(file, tensor.data)
            entries[tensor.name.encode()] = _entry(tensor, offset, size, crc)
            offset += size
            del tensor
    with _named(f"{prefix}.index") as path, open(_emptied(path), "wb") as index:
        index.write(encode_table(sorted(entries.items())))


@contextmanager
def _named(path: str) -> Iterator[str]:
    """Let an error say of which file it is, as those of writing do not by themselves."""
    try:
        yield path
    except OSError as error:
        error.filename = error.filename or path
        raise


def _emptied(path: str) -> int:
    fd = open_own(path, os.O_WRONLY | os.O_CREAT)
    os.ftruncate(fd, 0)
    return fd


def _write(file: IO[bytes], data: Any) -> int:
    """Write all of it; return its CRC32C."""
    crc = 0
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = data[start : start + CHUNK_BYTES]
        written = 0
        while written < len(chunk):  # a full disk takes a part, then refuses
            written += file.write(chunk[written:]) or 0
        crc = extend(crc, chunk)
    return crc


def _entry(tensor: TensorData, offset: int, size: int, crc: int) -> bytes:
    entry = message_class("BundleEntry")(dtype=tensor.dtype, offset=offset, size=size, crc32c=mask(crc))
    entry.shape.SetInParent()
    for length in tensor.shape:
        entry.shape.dim.add(size=length)
    return bytes(entry.SerializeToString())
