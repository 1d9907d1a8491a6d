"""The format of an events file, records (TFRecord framing) and messages, and `BatchEncoder`, which writes many at once.

An events file is a plain concatenation of records, nothing before the first and nothing after the last. One record,
byte by byte, all numbers little-endian and unsigned:

    offset      bytes  content
    0           8      length of the payload, N
    8           4      masked CRC-32C of the eight bytes above
    12          N      payload: one serialized ``Event``
    12 + N      4      masked CRC-32C of the payload

The mask rotates the checksum right by 15 bits and adds 0xa282ead8 modulo 2**32; it keeps a checksum that is itself
stored within checksummed data from cancelling out. (Format: tensorflow/core/lib/io/record_writer.h.)

Messages are written by hand: that costs a tenth of building a message object first. An ``Event``, field by field (a key
is ``field number << 3 | wire type``; double and float are little-endian):

    key    field                     content
    0x09   1 wall_time               double, seconds since the Unix epoch
    0x10   2 step                    varint; an int64, so a negative one takes ten bytes; left out when 0
    0x1a   3 file_version            length, "brain.Event:2"; only in the first record of a file
    0x22   4 graph_def               length, serialized GraphDef
    0x2a   5 summary                 length, Summary
    0x32   6 log_message             length, LogMessage
    0x3a   7 session_log             length, SessionLog
    0x42   8 tagged_run_metadata     length, TaggedRunMetadata
    0x4a   9 meta_graph_def          length, serialized MetaGraphDef
    0x52   10 source_metadata        length, SourceMetadata: 0x0a, length, name of the writer

The ``Summary`` of one scalar: 0x0a, length of the value, then the value: 0x0a, length, tag, 0x15, float.
(Sources: event.proto and summary.proto of tensorboard/compat/proto.)
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Sequence
from typing import Any, Literal

from supervisor_core.base import checksum, wire
from supervisor_core.base.wire import delimited, encode_varint, fields
from supervisor_core.events.losses import LOSS, NewestLosses

HEADER_BYTES = 12
FOOTER_BYTES = 4
MASK_DELTA = 0xA282EAD8

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def mask(crc: int) -> int:
    """Return the masked form of a CRC-32C, as records store it."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def header(length: int) -> bytes:
    """Return the twelve bytes in front of a payload of ``length`` bytes."""
    size = _U64.pack(length)
    return size + _U32.pack(mask(checksum.value(size)))


def footer(*parts: bytes) -> bytes:
    """Return the four bytes behind a payload that is the concatenation of ``parts``, without concatenating them."""
    crc = 0
    for part in parts:
        crc = checksum.extend(crc, part)
    return _U32.pack(mask(crc))


def frame(payload: bytes) -> bytes:
    """Return the whole record of a payload."""
    return header(len(payload)) + payload + footer(payload)


def whole_records(data: bytes, limit: int) -> tuple[int, int]:
    """Count the records of ``data`` (which starts with one) that end within its first ``limit`` bytes.

    Returns:
        Their number, and their length in bytes.
    """
    count = end = 0
    while end + HEADER_BYTES <= limit:
        after = end + HEADER_BYTES + _U64.unpack_from(data, end)[0] + FOOTER_BYTES
        if after > limit:
            break
        count, end = count + 1, after
    return count, end


PayloadKind = Literal[
    "graph_def", "summary", "log_message", "session_log", "tagged_run_metadata", "meta_graph_def", "source_metadata"
]
"""The payload of an event, by its field's name in ``Event``."""

FIELDS: dict[str, int] = {
    "graph_def": 4,
    "summary": 5,
    "log_message": 6,
    "session_log": 7,
    "tagged_run_metadata": 8,
    "meta_graph_def": 9,
    "source_metadata": 10,
}
"""The field number of each `PayloadKind`."""

FILE_VERSION = "brain.Event:2"
SOURCE_WRITER = "supervisor_core.events"

STEP_MIN, STEP_MAX = -(2**63), 2**63 - 1

_DOUBLE = struct.Struct("<d")
_METADATA_KEY = b"\x4a"  # Summary.Value.metadata, field 9


def step_field(step: int) -> bytes:
    """Return an event's step field; empty when it is 0, as in proto3."""
    return b"\x10" + encode_varint(step) if step else b""


def event_prefix(wall_time: float, step: int, field: int, length: int) -> bytes:
    """Return the bytes of an event before its payload of ``length`` bytes."""
    return b"\x09" + _DOUBLE.pack(wall_time) + step_field(step) + encode_varint(field << 3 | 2) + encode_varint(length)


def version_event(wall_time: float) -> bytes:
    """Return the event that opens every file."""
    source = delimited(FIELDS["source_metadata"], delimited(1, SOURCE_WRITER.encode()))
    return b"\x09" + _DOUBLE.pack(wall_time) + delimited(3, FILE_VERSION.encode()) + source


def scalar_prefix(tag: str) -> bytes:
    """Return the part of a scalar's event between its step and the four bytes of its value: the same for each value.

    A lone surrogate in the tag, which UTF-8 has no bytes for, becomes a question mark.
    """
    value = delimited(1, tag.encode("utf-8", "replace")) + b"\x15"
    inner = encode_varint(len(value) + 4)
    return b"\x2a" + encode_varint(1 + len(inner) + len(value) + 4) + b"\x0a" + inner + value


def tagged_run_metadata(tag: str, run_metadata: bytes) -> bytes:
    """Return a serialized ``TaggedRunMetadata`` around an already serialized ``RunMetadata``."""
    return delimited(1, tag.encode("utf-8", "replace")) + delimited(2, run_metadata)


def strip_metadata(summary: bytes, seen: set[bytes]) -> bytes:
    """Remove the metadata from values of a ``Summary`` whose tag is in ``seen``; add the others' tags to it.

    A tag's metadata is the same each time and readers keep the first, so writing it once per file is enough.
    """
    if _METADATA_KEY not in summary:
        return summary
    out, start = [], 0
    for number, _, content, end in fields(summary, 0, len(summary)):
        out.append(_strip_value(summary[content:end], seen) if number == 1 else summary[start:end])
        start = end
    return b"".join(out)


def _strip_value(value: bytes, seen: set[bytes]) -> bytes:
    parts = list(fields(value, 0, len(value)))
    if any(number == 9 for number, *_ in parts):
        tag = b"".join(value[content:end] for number, _, content, end in parts if number == 1)
        if tag in seen:
            starts = [0, *(end for *_, end in parts)]  # a field begins with its key, where the one before it ends
            value = b"".join(
                value[start:end] for start, (number, *_, end) in zip(starts, parts, strict=False) if number != 9
            )
        seen.add(tag)
    return delimited(1, value)


Item = tuple[Any, Any, int, float]
"""One queued event, as plain values so that queueing costs next to nothing: ``(tag, value, step, wall_time)`` of a
scalar, where the tag is a str, or ``(field, data, step, wall_time)`` of serialized bytes, where the field is an
``Event`` field number, `SUMMARY_ONCE` or `WHOLE_EVENT`."""

SUMMARY_ONCE = 0
"""In the place of a field: a ``Summary`` whose metadata is written once per tag and file."""

WHOLE_EVENT = -1
"""In the place of a field: the bytes are an ``Event`` already, written as they are."""

LARGE_BYTES = 64 * 1024
"""Payloads from this size on are never copied on their way to the file."""

_MAX_CACHED_TAGS = 10_000
_CONTINUED = [bytes((low | 128,)) for low in range(128)]


class Batch:
    """Consecutive whole records, as chunks of bytes."""

    def __init__(self, chunks: list[bytes], events: int) -> None:
        self.chunks = chunks
        self.events = events
        self.size = sum(map(len, chunks))

    def discard(self, size: int) -> tuple[int, int]:
        """Drop the records that lie wholly within the first ``size`` bytes; return their number and length."""
        data = b"".join(self.chunks)
        events, end = whole_records(data, size)
        self.chunks = [data[end:]]
        self.events -= events
        self.size -= end
        return events, end


class BatchEncoder:
    """Encodes items in order; caches the bytes that repeat from one to the next.

    Args:
        losses: notes the newest values of the losses among them.
    """

    def __init__(self, losses: NewestLosses | None = None) -> None:
        self._losses = losses or NewestLosses()
        self._metadata_seen: set[bytes] = set()
        self._scalars: dict[int, dict[str, tuple[Any, bytes, bytes, bool]]] = {}
        self._scalars_cached = 0

    def clear_metadata(self) -> None:
        """Start over with each tag's metadata, as a new file needs it."""
        self._metadata_seen.clear()

    def encode(self, items: Sequence[Item]) -> Batch:
        """Return the records of the items, in their order."""
        chunks: list[bytes] = []
        small: list[bytes] = []
        append = small.append
        crc32c, pack_crc, delta = checksum.value, struct.Struct("<I").pack, MASK_DELTA
        step_was, high_was, step_bytes, high_bytes = 0, -1, b"", b""
        scalars = self._scalars.setdefault(0, {})
        losses: dict[str, float] = {}
        for head, body, step, wall_time in items:
            if head.__class__ is not str:
                self._encode_payload(head, body, step, wall_time, small, chunks)
                continue
            if step != step_was:
                # Steps mostly count up: their high bits stay, and only the lowest byte needs encoding.
                step_was, high = step, step >> 7
                if high == high_was and step > 127:
                    step_bytes = b"\x10" + _CONTINUED[step & 127] + high_bytes
                else:
                    step_bytes = step_field(step)
                    high_was, high_bytes = high, wire.encode_varint(high)
                    scalars = self._scalars.setdefault(len(step_bytes), {})
            try:
                pack, prefix, record_header, is_loss = scalars[head]
            except KeyError:
                pack, prefix, record_header, is_loss = self._scalar(scalars, head, len(step_bytes))
            if is_loss:
                losses[head] = body
            try:
                event = pack(b"\x09", wall_time, step_bytes, prefix, body)
            except OverflowError:  # beyond float32, as protobuf has it
                event = pack(b"\x09", wall_time, step_bytes, prefix, math.copysign(math.inf, body))
            crc = crc32c(event)
            append(record_header + event + pack_crc((crc >> 15 | crc << 17) + delta & 0xFFFFFFFF))
        for tag, value in losses.items():
            self._losses.note(tag, value)
        if small:
            chunks.append(b"".join(small))
        return Batch(chunks, len(items))

    def _scalar(self, scalars: dict[str, Any], tag: str, step_length: int) -> tuple[Any, bytes, bytes, bool]:
        if self._scalars_cached >= _MAX_CACHED_TAGS:
            for cache in self._scalars.values():
                cache.clear()
            self._scalars_cached = 0
        prefix = scalar_prefix(tag)
        layout = struct.Struct(f"<cd{step_length}s{len(prefix)}sf")
        entry = scalars[tag] = (layout.pack, prefix, header(layout.size), LOSS.search(tag) is not None)
        self._scalars_cached += 1
        return entry

    def _encode_payload(
        self, field: int, data: bytes, step: int, wall_time: float, small: list[bytes], chunks: list[bytes]
    ) -> None:
        if field == SUMMARY_ONCE:
            field = FIELDS["summary"]
            with contextlib.suppress(ValueError):  # malformed within: the caller's bytes, as they came
                data = strip_metadata(data, self._metadata_seen)
        prefix = b"" if field == WHOLE_EVENT else event_prefix(wall_time, step, field, len(data))
        start = header(len(prefix) + len(data)) + prefix
        end = footer(prefix, data)
        if len(data) < LARGE_BYTES:
            if field in (FIELDS["summary"], WHOLE_EVENT):
                self._losses.note_event(prefix + data)
            small.append(start + data + end)
            return
        small.append(start)
        chunks.extend((b"".join(small), data))
        small.clear()
        small.append(end)
