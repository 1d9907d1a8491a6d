"""What the supervisor left in a run's events files, read without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from supervisor_core.events.telemetry import TAG_PREFIX, Record, from_json

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4


def events_files(run: Path) -> list[Path]:
    """Return the run's events files, oldest first."""
    return sorted(run.glob("events.out.tfevents.*"))


def read_telemetry(file: Path) -> Iterator[Record]:
    """Yield the supervisor's records of one events file, up to where a kill cut it short."""
    from tensorboard.compat.proto.event_pb2 import Event

    for payload in _payloads(file.read_bytes()):
        for value in Event.FromString(payload).summary.value:
            if value.tag.startswith(TAG_PREFIX):
                kind = value.tag.removeprefix(TAG_PREFIX)
                yield from_json(kind, value.tensor.string_val[0].decode())


def _payloads(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, _ = _HEADER.unpack_from(data, at)
        start = at + _HEADER.size
        at = start + length + _FOOTER_BYTES
        if at <= len(data):
            yield data[start : start + length]
