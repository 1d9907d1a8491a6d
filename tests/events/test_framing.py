from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 100_000])
def test_a_record_of_any_size_is_one_whole_record(payload: bytes) -> None:
    """Empty and large payloads are framed alike."""
    record = event_format.frame(payload)
    assert event_format.whole_records(record, len(record)) == (1, len(record))
    assert event_format.whole_records(record, len(record) - 1) == (0, 0)
