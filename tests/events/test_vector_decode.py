from __future__ import annotations

import struct

import numpy as np

from supervisor_core.events import event_format
from supervisor_core.events.payload import decode
from supervisor_core.events.vector_decode import Layout
from tests.cases import each


def payload(tag: str, step: int = 1, wall: float = 1.0, value: float = 2.0) -> bytes:
    """A scalar's event."""
    start = b"\x09" + struct.pack("<d", wall) + event_format.step_field(step)
    return start + event_format.scalar_prefix(tag) + struct.pack("<f", value)


def rows(*payloads: bytes) -> np.ndarray:
    """Payloads of one length as rows, filled up in front to a multiple of eight."""
    front = bytes(-len(payloads[0]) % 8)
    joined = b"".join(front + payload for payload in payloads)
    return np.frombuffer(joined, np.uint8).reshape(len(payloads), -1)


def layout(table: np.ndarray, length: int) -> Layout:
    """The layout of the first row."""
    return Layout(decode(table[0].tobytes(), table.shape[1] - length, table.shape[1]), table[0])


def test_records_that_differ_in_numbers_are_alike() -> None:
    """Wall time, step, value and a tag as long may differ; the varint of the step must end in the same place."""
    payloads = [payload("ab", 1000, 5.0, -1.5), payload("cd", 2000, 7.0, 3.0), payload("abc", 1), payload("a", 2**20)]
    table = rows(*payloads)
    found = layout(table, len(payloads[0]))
    assert found.matches(table.view(np.uint64)).tolist() == [True, True, False, False]
    table = table[:2]
    assert found.walls(table).tolist() == [5.0, 7.0]
    assert found.steps(table).tolist() == [1000, 2000]
    (column,) = found.columns(table, table.view(np.uint64))
    assert column.which is not None
    assert [column.tags[number] for number in column.which.tolist()] == [b"ab", b"cd"]
    assert column.values.tolist() == [-1.5, 3.0]


def test_a_negative_step_is_decoded() -> None:
    """Ten bytes of varint, the last of which has one bit."""
    table = rows(payload("a", -1), payload("a", -(2**63)))
    assert layout(table, len(payload("a", -1))).steps(table).tolist() == [-1, -(2**63)]


@each("count", [2, 100_000])
def test_tags_are_distinct_whatever_their_hashes(count: int) -> None:
    """More tags than there are hashes: some must share one, and none is mistaken for another."""
    payloads = [payload(f"{number:06}") for number in range(count)]
    table = rows(*payloads)
    (column,) = layout(table, len(payloads[0])).columns(table, table.view(np.uint64))
    assert column.which is not None
    assert [column.tags[number] for number in column.which.tolist()] == [b"%06d" % number for number in range(count)]
