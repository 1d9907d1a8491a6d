from __future__ import annotations

import random

import pytest

from supervisor_core.events import event_format
from supervisor_core.events.scan import MOST_BYTES, FileCut, LazyBytes, RecordScan, Window
from supervisor_core.events.vector_decode import VectorScan
from supervisor_core.storage.filesystem import FIRST_BYTES
from tests.cases import each


class Memory:
    """A file that is in memory, and keeps what was asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.data[offset : offset + length]

    def close(self) -> None:
        pass


def window(data: bytes) -> tuple[Window, Memory]:
    """A window on some bytes."""
    file = Memory(data)
    return Window(file, len(data)), file


def test_pieces_grow_while_a_file_is_read_on() -> None:
    """Small files cost small reads, large ones few."""
    view, file = window(bytes(8 * MOST_BYTES))
    at = 0
    while view.fetch(at, 1):
        at = view.base + len(view.data)
    lengths = [length for _, length in file.asked]
    assert lengths[0] == FIRST_BYTES and lengths[:-1] == sorted(lengths[:-1])
    assert max(lengths) == MOST_BYTES and len(lengths) < 20


def test_after_a_jump_pieces_are_small() -> None:
    """What was skipped is not read, and neither is much of what follows."""
    view, file = window(bytes(8 * MOST_BYTES))
    for at in range(0, 8 * MOST_BYTES, MOST_BYTES):
        assert view.fetch(at, 12)
    assert {length for _, length in file.asked} == {FIRST_BYTES}


def test_a_file_that_ends_early_is_noticed() -> None:
    """The size is what was found, not what was said; lazy bytes say so aloud."""
    view = Window(Memory(b"abc"), 100)
    assert not view.fetch(0, 10)
    assert (view.size, view.bytes(0, 10)) == (3, b"abc")
    with pytest.raises(FileCut):
        LazyBytes(view)[2:5]
    with pytest.raises(FileCut):
        LazyBytes(view)[3]


def test_lazy_bytes_are_the_bytes() -> None:
    """One by one and in slices, wherever they are."""
    data = random.Random(1).randbytes(100_000)
    lazy = LazyBytes(window(data)[0])
    assert [lazy[at] for at in (0, 99_999, 5000)] == [data[at] for at in (0, 99_999, 5000)]
    assert lazy[50_000:50_100] == data[50_000:50_100]


@each("gap", [1, 100, MOST_BYTES - 5, 2 * MOST_BYTES + 7])
def test_the_next_record_is_found_behind_anything(gap: int) -> None:
    """However much is between; zeros, and a length without its payload, prove nothing."""
    noise = event_format.header(40) + random.Random(gap).randbytes(gap) + bytes(gap)
    record = event_format.frame(b"payload")
    assert RecordScan()._find_record(window(noise + record)[0], 0) == (len(noise), len(noise))


def test_a_record_that_is_not_whole_is_looked_for_again() -> None:
    """It may prove itself once the file has grown."""
    record = event_format.frame(bytes(range(100)))
    data = b"noise" + record
    assert RecordScan()._find_record(window(data[:-1])[0], 0) == (None, 5)
    assert RecordScan()._find_record(window(data)[0], 5) == (5, 5)
    assert RecordScan()._find_record(window(b"only noise, and nothing else")[0], 0) == (None, 28 - 11)


def test_a_chain_is_proven_from_record_to_record() -> None:
    """It ends where a record is of another kind, and is taken up again behind it."""
    alike, other = event_format.frame(b"\x09" + bytes(30)), event_format.frame(b"\x10\x01")
    scan = VectorScan(alike * 3 + other + alike * 2 + alike[:-1])
    starts, lengths = scan.run(0, 10_000)
    assert (starts.tolist(), lengths.tolist()) == ([0, 47, 94], [31, 31, 31])
    assert scan.run(47, 94)[0].tolist() == [47]
    assert scan.run(141, 10_000)[0].tolist() == []
    behind = 141 + len(other)
    assert scan.run(behind, 10_000)[0].tolist() == [behind, behind + 47]
    assert [len(part) for part in VectorScan(b"").run(0, 1)] == [0, 0]


def test_a_torn_record_among_whole_ones_ends_a_chain() -> None:
    """Its header is good and its end is beyond the block; what follows it is not taken for whole on that account."""
    alike, long = event_format.frame(b"\x09" + bytes(30)), event_format.frame(b"\x09" + bytes(5000))
    block = alike * 2 + long[:30] + alike * 3
    scan = VectorScan(block)
    assert scan.run(0, len(block))[0].tolist() == [0, 47]
    assert scan.run(124, len(block))[0].tolist() == [124, 171, 218]
