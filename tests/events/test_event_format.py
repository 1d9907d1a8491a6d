""""""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, TaggedRunMetadata
from tensorboard.compat.proto.summary_pb2 import Summary

from supervisor_core.base import wire
from supervisor_core.events import event_format


def bitwise_crc32c(data: bytes) -> int:
    """CRC-32C by its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_record_is_laid_out_as_documented() -> None:
    """Length, masked checksum of the length, payload, masked checksum of the payload, all little-endian."""
    record = event_format.frame(b"hello")
    length, length_crc = struct.unpack_from("<QI", record)
    (payload_crc,) = struct.unpack_from("<I", record, 12 + 5)
    assert (length, record[12:17], len(record)) == (5, b"hello", 12 + 5 + 4)
    assert length_crc == event_format.mask(bitwise_crc32c(record[:8]))
    assert payload_crc == event_format.mask(bitwise_crc32c(b"hello"))


def test_the_mask_rotates_and_adds() -> None:
    """The masked form of a checksum is the one that TensorFlow's readers expect."""
    assert event_format.mask(0) == 0xA282EAD8
    assert event_format.mask(0xFFFFFFFF) == 0xA282EAD7
    assert event_format.mask(1) == (1 << 17) + 0xA282EAD8


def test_tensorboard_writes_the_same_bytes(tmp_path: object) -> None:
    """A record is byte for byte what TensorBoard's own writer makes of the same payload."""
    import io

    from tensorboard.summary.writer.record_writer import RecordWriter

    out = io.BytesIO()
    RecordWriter(out).write(b"payload" * 9)
    assert event_format.frame(b"payload" * 9) == out.getvalue()


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_a_footer_of_parts_is_that_of_the_whole(parts: list[bytes]) -> None:
    """The parts of a payload need not be joined to be checksummed."""
    assert event_format.footer(*parts) == event_format.footer(b"".join(parts))


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=6), st.data())
def test_whole_records_are_counted_up_to_a_limit(payloads: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, exactly the records that end before the cut count."""
    records = [event_format.frame(payload) for payload in payloads]
    joined = b"".join(records)
    limit = data.draw(st.integers(0, len(joined)))
    ends = [sum(map(len, records[: index + 1])) for index in range(len(records))]
    expected = [end for end in ends if end <= limit]
    assert event_format.whole_records(joined, limit) == (len(expected), expected[-1] if expected else 0)


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_a_step_reads_back(step: int) -> None:
    """Every int64 is a step, the negative ones in ten bytes, and 0 takes none."""
    written = event_format.step_field(step)
    assert Event.FromString(written).step == step
    assert written == Event(step=step).SerializeToString()


@given(INT64, st.floats(allow_nan=False), st.sampled_from(sorted(event_format.FIELDS)))
def test_an_envelope_is_what_protobuf_makes(step: int, wall_time: float, kind: str) -> None:
    """The envelope of every kind of payload has protobuf's own bytes."""
    message = Event(wall_time=wall_time, step=step)
    if kind in ("graph_def", "meta_graph_def"):
        setattr(message, kind, b"graph")
        payload = b"graph"
    else:
        getattr(message, kind).SetInParent()
        payload = b""
    written = event_format.event_prefix(wall_time, step, event_format.FIELDS[kind], len(payload)) + payload
    assert Event.FromString(written) == message
    if wall_time != 0:
        assert written == message.SerializeToString()


def test_the_first_record_says_its_version_and_its_writer() -> None:
    """A file opens with the version that every reader asks for, and with who wrote it."""
    event = Event.FromString(event_format.version_event(12.5))
    assert event == Event(wall_time=12.5, file_version="brain.Event:2", source_metadata=event.source_metadata)
    assert event.source_metadata.writer == "supervisor_core.events"


@given(st.text(max_size=200))
def test_a_scalar_s_prefix_fits_its_value(tag: str) -> None:
    """The cached bytes of a tag, with four bytes of a value behind them, are the summary of that scalar."""
    written = event_format.scalar_prefix(tag) + b"\x00\x00\x00\x3f"
    expected = Event(summary=Summary(value=[Summary.Value(tag=tag, simple_value=0.5)]))
    assert Event.FromString(written) == expected


def test_a_tag_beyond_utf8_is_written_all_the_same() -> None:
    """A file name with undecodable bytes in it, used as a tag, does not stop the writer."""
    (value,) = Event.FromString(event_format.scalar_prefix("a\udce4") + bytes(4)).summary.value
    assert value.tag == "a?"


def test_run_metadata_is_tagged() -> None:
    """Run metadata stays serialized, under its tag."""
    written = event_format.tagged_run_metadata("step_3", b"bytes")
    assert written == TaggedRunMetadata(tag="step_3", run_metadata=b"bytes").SerializeToString()


def summary(*tags: str, metadata: bool = True) -> Summary:
    """A summary with a value for each tag."""
    values = []
    for tag in tags:
        value = Summary.Value(tag=tag, simple_value=1.0)
        if metadata:
            value.metadata.plugin_data.plugin_name = "J-plugin"
        values.append(value)
    return Summary(value=values)


def test_metadata_is_written_once_per_tag() -> None:
    """The first value of a tag keeps its metadata, later ones lose it, other tags are their own."""
    seen: set[bytes] = set()
    first = event_format.strip_metadata(summary("a").SerializeToString(), seen)
    second = event_format.strip_metadata(summary("a", "b").SerializeToString(), seen)
    assert first == summary("a").SerializeToString()
    expected = Summary(value=[*summary("a", metadata=False).value, *summary("b").value])
    assert Summary.FromString(second) == expected


def test_a_tag_without_metadata_does_not_use_up_its_turn() -> None:
    """Metadata that comes with a later value of a tag is kept (the original loses it)."""
    seen: set[bytes] = set()
    event_format.strip_metadata(summary("J", metadata=False).SerializeToString(), seen)
    late = summary("J").SerializeToString()
    assert event_format.strip_metadata(late, seen) == late


def test_a_j_is_not_metadata() -> None:
    """A summary that merely contains the byte of the metadata key comes out as it went in."""
    data = summary("JJJ", metadata=False).SerializeToString()
    assert event_format.strip_metadata(data, set()) == data


@given(st.binary(max_size=60))
def test_walking_any_bytes_ends(data: bytes) -> None:
    """Bytes that are no message are refused with ValueError, never with another error and never without end."""
    try:
        found = list(wire.fields(data, 0, len(data)))
    except ValueError:
        return
    assert all(end <= len(data) for *_, end in found)
