"""The sorted string table is read as LevelDB describes it, and no altered byte of it goes unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.base.wire import read_canonical_varint
from supervisor_core.checkpoint.table import SortedTable, crc_of


class MemoryReader:
    """A file that is in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    def __enter__(self) -> MemoryReader:
        return self

    def __exit__(self, *_: object) -> None:
        pass


ITEMS = [(b"", b"header"), *((f"tensor/{number:03d}".encode(), bytes([number]) * number) for number in range(60))]


@pytest.fixture
def content(tmp_path: Path, writer: Any) -> bytes:
    """The bytes of a table of 61 items in a dozen blocks."""
    writer.write_table(tmp_path / "table", ITEMS)
    return (tmp_path / "table").read_bytes()


def test_items_come_back_in_order(content: bytes) -> None:
    """Keys that share their beginnings are put together again."""
    assert list(SortedTable(MemoryReader(content), "t").entries()) == ITEMS


def test_every_altered_byte_is_found(content: bytes) -> None:
    """Each bit position of each byte, over the whole file: reading all of it fails."""
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1 << position % 8
        with pytest.raises(DamagedCheckpointError):
            list(SortedTable(MemoryReader(bytes(altered)), "t").entries())


def test_every_cut_is_found(content: bytes) -> None:
    """Wherever the file ends early, reading it fails."""
    for length in range(len(content)):
        with pytest.raises(DamagedCheckpointError):
            list(SortedTable(MemoryReader(content[:length]), "t").entries())


def test_a_file_cut_while_it_is_read(content: bytes) -> None:
    """A file that loses its end after it was opened is damage, not a crash."""
    reader = MemoryReader(content)
    table = SortedTable(reader, "t")
    reader.data = content[:200]
    with pytest.raises(DamagedCheckpointError):
        list(table.entries())


@pytest.mark.parametrize(
    ("data", "value"), [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xff" * 9 + b"\1", 2**64 - 1)]
)
def test_varints(data: bytes, value: int) -> None:
    """Seven bits to a byte, lowest first."""
    assert read_canonical_varint(data + b"rest", 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11, b"\x80\x00"])
def test_what_is_no_varint(data: bytes) -> None:
    """A number that does not end, or is written longer than it need be, is refused."""
    with pytest.raises(ValueError, match=r"a number|a varint"):
        read_canonical_varint(data, 0)


def test_a_crc_in_chunks_is_the_crc() -> None:
    """The checksum does not depend on how the file is read; CRC32C of 32 zeros is 8a9136aa (RFC 3720)."""
    assert crc_of(MemoryReader(bytes(40)), 4, 32) == 0x8A9136AA
    with pytest.raises(EOFError, match="ends at byte 40, 3 bytes too early"):
        crc_of(MemoryReader(bytes(40)), 11, 32)
