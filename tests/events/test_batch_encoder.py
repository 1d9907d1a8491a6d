from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from supervisor_core.events import event_format
from supervisor_core.events.event_format import LARGE_BYTES, SUMMARY_ONCE, WHOLE_EVENT, Batch, BatchEncoder
from tests.cases import each


def events_in(batch: Batch, read_bytes: Callable[..., Any], **how: Any) -> list[Event]:
    """The batch's events, read back."""
    contents = read_bytes(b"".join(batch.chunks), **how)
    assert (contents.torn_bytes, len(contents.payloads)) == (0, batch.events)
    return [Event.FromString(payload) for payload in contents.payloads]


def scalar(tag: str, value: float, step: int, wall_time: float) -> Event:
    """The event of one scalar."""
    return Event(wall_time=wall_time, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def test_scalars_of_any_tag_and_step_keep_their_values(read_bytes: Callable[..., Any]) -> None:
    """Whatever order steps and tags come in, cached bytes never end up in another's event."""
    rng = random.Random(5)
    steps = [0, 1, 127, 128, 129, 255, 256, 16_383, 16_384, 2**35, 2**63 - 1, -1, -128, -(2**63)]
    items = [
        (rng.choice(["a", "loss/train", "é" * 70, ""]), rng.random(), rng.choice(steps), rng.random())
        for _ in range(400)
    ]
    items += [("a", 0.5, step, 1.0) for step in range(300)]
    found = events_in(BatchEncoder().encode(items), read_bytes)
    assert found == [scalar(tag, value, step, wall_time) for tag, value, step, wall_time in items]


@each(
    "value, expected",
    [(1e300, math.inf), (-1e300, -math.inf), (math.inf, math.inf), (math.nan, math.nan), (0.1, 0.10000000149011612)],
)
def test_a_value_is_a_float32(value: float, expected: float, read_bytes: Callable[..., Any]) -> None:
    """A value beyond float32 becomes infinite, as protobuf has it; NaN stays NaN."""
    (event,) = events_in(BatchEncoder().encode([("a", value, 1, 1.0)]), read_bytes)
    found = event.summary.value[0].simple_value
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_more_tags_than_are_cached_are_written_all_the_same(read_bytes: Callable[..., Any]) -> None:
    """A program with a new tag for each step neither fills the memory nor mixes its tags up."""
    encoder = BatchEncoder()
    items = [(f"tag/{index}", 1.0, 1, 1.0) for index in range(10_050)]
    found = events_in(encoder.encode(items), read_bytes)
    assert [event.summary.value[0].tag for event in found] == [tag for tag, *_ in items]
    assert encoder._scalars_cached < 10_000


def test_kinds_keep_their_order(read_bytes: Callable[..., Any]) -> None:
    """Scalars, small payloads, large payloads and whole events are written in the order they came."""
    large = b"g" * LARGE_BYTES
    whole = Event(wall_time=9.0, step=9).SerializeToString()
    items = [
        ("a", 1.0, 1, 1.0),
        (4, large, 2, 2.0),
        ("a", 1.0, 3, 3.0),
        (7, b"\x08\x01", 4, 4.0),
        (4, large, 5, 5.0),
        (4, large, 6, 6.0),
        (WHOLE_EVENT, whole, 0, 0.0),
    ]
    found = events_in(BatchEncoder().encode(items), read_bytes, check_large=False)
    assert [event.step for event in found] == [1, 2, 3, 4, 5, 6, 9]
    assert found[1].graph_def == found[5].graph_def == large
    assert found[3].session_log.status == 1


def test_a_large_payload_is_not_copied() -> None:
    """The bytes of a large payload go to the file as the very object that was added, rightly checksummed."""
    large = b"g" * LARGE_BYTES
    batch = BatchEncoder().encode([(4, large, 2, 2.0)])
    assert any(chunk is large for chunk in batch.chunks)
    event = Event(wall_time=2.0, step=2, graph_def=large).SerializeToString()
    assert b"".join(batch.chunks) == event_format.frame(event)


def test_a_summary_that_is_malformed_within_is_left_as_it_is(read_bytes: Callable[..., Any]) -> None:
    """What cannot be read cannot be stripped; it is the caller's, byte for byte, and the batch goes on."""
    broken = b"\x0a\x02\x4a\x7f"
    batch = BatchEncoder().encode([(SUMMARY_ONCE, broken, 1, 1.0), ("a", 1.0, 2, 1.0)])
    assert batch.events == 2
    assert broken in batch.chunks[0]


def test_discarding_keeps_what_is_not_whole() -> None:
    """After a torn write the batch begins with the record that was torn."""
    batch = BatchEncoder().encode([("a", 1.0, step, 1.0) for step in range(1, 4)])
    whole = b"".join(batch.chunks)
    size = len(whole) // 3
    assert batch.discard(2 * size - 1) == (1, size)
    assert (batch.events, batch.size, batch.chunks) == (2, 2 * size, [whole[size:]])
