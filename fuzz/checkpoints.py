"""Checkpoint files: the table that an index is, whole checkpoints, the state file.

Byte 0 of an input to `check_table` and `check_bundle`: 1, the checksums of the table's blocks are put right, since no
fuzzer guesses those. In a bundle's input two bytes follow, the length of its index; the rest is its data file.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import struct
import tempfile
from dataclasses import replace
from types import TracebackType
from typing import cast

from supervisor_core.base import checksum
from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.base.wire import read_canonical_varint
from supervisor_core.checkpoint.bundle import read_index, verify
from supervisor_core.checkpoint.bundle_writer import encode_table, mask
from supervisor_core.checkpoint.state_file import SaveId, format_state, read_state
from supervisor_core.checkpoint.table import FOOTER_BYTES, MAGIC, SortedTable
from supervisor_core.storage.filesystem import Filesystem

_MENDED = 1


def check_table(data: bytes) -> None:
    """Read a table, and write it again."""
    file = mended(data[1:]) if data[:1] and data[0] & _MENDED else data[1:]
    reader = MemoryReader(file)
    try:
        entries = list(SortedTable(reader, "model.index").entries())
    except DamagedCheckpointError:
        entries = None
    assert reader.fetched <= 3 * len(file) + FOOTER_BYTES, f"{reader.fetched:,} bytes were read of {len(file):,}"
    if entries is not None:
        written = encode_table(entries)
        assert list(SortedTable(MemoryReader(written), "model.index").entries()) == entries


def check_bundle(data: bytes) -> None:
    """Verify a checkpoint with its data and without."""
    flags = data[0] if data else 0
    prefix = os.path.join(_directory(), "model.ckpt-5")
    length = int.from_bytes(data[1:3], "little")
    index = data[3 : 3 + length]
    _write(f"{prefix}.index", mended(index) if flags & _MENDED else index)
    _write(f"{prefix}.data-00000-of-00001", data[3 + length :])
    with contextlib.suppress(DamagedCheckpointError):
        read_index(prefix)
    try:
        without = verify(prefix, data=False)
    except DamagedCheckpointError:
        without = None
    try:
        whole = verify(prefix)
    except DamagedCheckpointError:
        return
    assert whole == without, f"{whole} is not {without}"


def check_state(data: bytes) -> None:
    """Read a state file; write and read again what it says."""
    reading = read_state("logs/checkpoint", filesystem=_holding(data))
    assert (reading.verdict == "good") == (reading.state is not None)
    assert reading.verdict in ("good", "damaged")
    if reading.state is None:
        return
    state = replace(reading.state, save_id=reading.state.save_id or SaveId(1, 1))  # as our own saves write it
    again = read_state("logs/checkpoint", filesystem=_holding(format_state(state)))
    assert again.state == state, f"{again} is not {state}"


def mended(data: bytes) -> bytes:
    """Return a table in which the checksum of every block that can be found is right."""
    out = bytearray(data)
    if len(out) < FOOTER_BYTES:
        return data
    out[-len(MAGIC) :] = MAGIC
    footer = bytes(out[-FOOTER_BYTES:])
    try:
        meta, index = _handle(footer, 0), _handle(footer, _handle(footer, 0)[2])
    except ValueError:
        return bytes(out)
    _mend(out, *meta[:2])
    _mend(out, *index[:2])
    block, position = bytes(out[index[0] : index[0] + index[1]]), 0
    try:
        while position < len(block):
            _, position = read_canonical_varint(block, position)
            fresh, position = read_canonical_varint(block, position)
            length, position = read_canonical_varint(block, position)
            offset, size, _ = _handle(block, position + fresh)
            position += fresh + length
            if (offset, size) not in (meta[:2], index[:2]):
                _mend(out, offset, size)
    except ValueError:  # the restart points, or what was altered
        pass
    return bytes(out)


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
    offset, position = read_canonical_varint(data, position)
    size, position = read_canonical_varint(data, position)
    return offset, size, position


def _mend(out: bytearray, offset: int, size: int) -> None:
    if offset + size + 5 <= len(out) - FOOTER_BYTES:
        crc = checksum.value(bytes(out[offset : offset + size + 1]))
        struct.pack_into("<I", out, offset + size + 1, mask(crc))


class MemoryReader:
    """A file in memory, which counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.fetched = 0

    def read_at(self, offset: int, length: int) -> bytes:
        """See `Reader.read_at`."""
        piece = self._data[offset : offset + length]
        self.fetched += len(piece)
        return piece

    def __enter__(self) -> MemoryReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _OneFile:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: str) -> bytes:
        return self._data


def _holding(data: bytes) -> Filesystem:
    return cast(Filesystem, _OneFile(data))


@functools.cache
def _directory() -> str:
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(folder.cleanup)
    return folder.name


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
