"""`BatchEncoder`: from queued items to a `Batch`, whose bytes are ready to be appended."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Sequence
from typing import Any

from supervisor_core import checksum, wire
from supervisor_core.events import event_format

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
        events, end = event_format.whole_records(data, size)
        self.chunks = [data[end:]]
        self.events -= events
        self.size -= end
        return events, end


class BatchEncoder:
    """Encodes items in order; caches the bytes that repeat from one to the next."""

    def __init__(self) -> None:
        self._metadata_seen: set[bytes] = set()
        self._scalars: dict[int, dict[str, tuple[Any, bytes, bytes]]] = {}
        self._scalars_cached = 0

    def forget_metadata(self) -> None:
        """Start over with each tag's metadata, as a new file needs it."""
        self._metadata_seen.clear()

    def encode(self, items: Sequence[Item]) -> Batch:
        """Return the records of the items, in their order."""
        chunks: list[bytes] = []
        small: list[bytes] = []
        append = small.append
        crc32c, pack_crc, delta = checksum.value, struct.Struct("<I").pack, event_format.MASK_DELTA
        step_was, high_was, step_bytes, high_bytes = 0, -1, b"", b""
        scalars = self._scalars.setdefault(0, {})
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
                    step_bytes = event_format.step_field(step)
                    high_was, high_bytes = high, wire.encode_varint(high)
                    scalars = self._scalars.setdefault(len(step_bytes), {})
            try:
                pack, prefix, header = scalars[head]
            except KeyError:
                pack, prefix, header = self._scalar(scalars, head, len(step_bytes))
            try:
                event = pack(b"\x09", wall_time, step_bytes, prefix, body)
            except OverflowError:  # beyond float32, as protobuf has it
                event = pack(b"\x09", wall_time, step_bytes, prefix, math.copysign(math.inf, body))
            crc = crc32c(event)
            append(header + event + pack_crc((crc >> 15 | crc << 17) + delta & 0xFFFFFFFF))
        if small:
            chunks.append(b"".join(small))
        return Batch(chunks, len(items))

    def _scalar(self, scalars: dict[str, Any], tag: str, step_length: int) -> tuple[Any, bytes, bytes]:
        if self._scalars_cached >= _MAX_CACHED_TAGS:
            for cache in self._scalars.values():
                cache.clear()
            self._scalars_cached = 0
        prefix = event_format.scalar_prefix(tag)
        layout = struct.Struct(f"<cd{step_length}s{len(prefix)}sf")
        entry = scalars[tag] = (layout.pack, prefix, event_format.header(layout.size))
        self._scalars_cached += 1
        return entry

    def _encode_payload(
        self, field: int, data: bytes, step: int, wall_time: float, small: list[bytes], chunks: list[bytes]
    ) -> None:
        if field == SUMMARY_ONCE:
            field = event_format.FIELDS["summary"]
            with contextlib.suppress(ValueError):  # malformed within: the caller's bytes, as they came
                data = event_format.strip_metadata(data, self._metadata_seen)
        prefix = b"" if field == WHOLE_EVENT else event_format.event_prefix(wall_time, step, field, len(data))
        start = event_format.header(len(prefix) + len(data)) + prefix
        end = event_format.footer(prefix, data)
        if len(data) < LARGE_BYTES:
            small.append(start + data + end)
            return
        small.append(start)
        chunks.extend((b"".join(small), data))
        small.clear()
        small.append(end)
