from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.base import wire
from supervisor_core.base.wire import DamagedError, fields, read_varint, signed
from supervisor_core.events import event_format
from supervisor_core.events.payload import decode
from tests.cases import each

keys = st.sampled_from(
    [b"\x09", b"\x10", b"\x2a", b"\x0a", b"\x15", b"\x3a", b"\x42", b"\x4a", b"\x08", b"\x12", b"\x80"]
)
messages = st.lists(keys | st.binary(max_size=9) | st.integers(0, 40).map(lambda n: bytes((n,)))).map(b"".join)


@given(messages | st.binary())
def test_any_bytes_are_an_event_or_damaged(data: bytes) -> None:
    """Whatever a payload holds, decoding it ends in an event or in `DamagedError`, and in nothing else."""
    with contextlib.suppress(DamagedError):
        decode(data, 0, len(data))


@given(messages)
def test_it_decodes_what_protobuf_does(reference: Any, data: bytes) -> None:
    """Of bytes that protobuf takes for an event, wall time and step are protobuf's."""
    try:
        event = reference.Event.FromString(data)
    except reference.DecodeError:
        return
    try:
        found = decode(data, 0, len(data))
    except DamagedError:  # stricter in what is nested, for instance in an unknown group
        return
    assert (repr(found.wall), found.step) == (repr(event.wall_time), event.step)


def test_the_last_of_two_counts() -> None:
    """A field that is there twice has its last content, as in protobuf."""
    twice = b"\x10\x01\x10\x02" + wire.delimited(
        5, wire.delimited(1, b"\x0a\x01a\x0a\x01b\x15" + struct.pack("<f", 1) + b"\x15" + struct.pack("<f", 2))
    )
    found = decode(twice, 0, len(twice))
    assert (found.step, found.scalars[0].tag, found.scalars[0].value) == (2, "b", 2.0)


def test_what_is_not_at_hand_is_asked_for() -> None:
    """The first bytes of a long event are enough where the rest is skipped, and said not to be where it is not."""
    image = wire.delimited(1, wire.delimited(1, b"image") + wire.delimited(4, bytes(1000)))
    event = event_format.event_prefix(1.0, 7, 5, len(image)) + image
    found = decode(event[:40], 0, len(event))
    assert (found.step, found.has_summary, found.wanted) == (7, True, False)
    for cut in range(25):
        with pytest.raises(IndexError):
            decode(event[:cut], 0, len(event))


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_is_read_as_it_was_written(number: int) -> None:
    """Every int64, and where it ends."""
    data = wire.encode_varint(number)
    found, end = read_varint(data + b"\x01", 0, len(data) + 1)
    assert (signed(found), end) == (number, len(data))


@each("data", [b"\x80", b"\x80" * 11 + b"\x01", b"\x0a\x05abc", b"\x0b", b"\x02\x00", b"\x0d\x00"])
def test_a_damaged_message_is_an_error(data: bytes) -> None:
    """Cut short, too long a number, an unknown wire type, field number 0."""
    with pytest.raises(DamagedError):
        list(fields(data, 0, len(data)))
