"""Events files record by record, written as trainers write them."""

from __future__ import annotations

import struct

from supervisor_core.events import event_format
from supervisor_core.events.chunk import Chunk

HEAD = event_format.frame(event_format.version_event(1.7e9))
NAME = "events.out.tfevents.1700000000.host"


def scalar(step: int, tag: str = "loss", value: float | None = None) -> bytes:
    """The record of one scalar; by default its value is half of the step."""
    event = b"\x09" + struct.pack("<d", 1.7e9 + step) + event_format.step_field(step) + event_format.scalar_prefix(tag)
    return event_format.frame(event + struct.pack("<f", step / 2 if value is None else value))


def summary(value: bytes, step: int = 1) -> bytes:
    """The record of a summary of already serialized values."""
    body = event_format.event_prefix(1.7e9, step, 5, len(value)) + value
    return event_format.frame(body)


def write(path: str, *parts: bytes, mode: str = "wb") -> None:
    """Write, or append to, a file."""
    with open(path, mode) as file:
        file.write(b"".join(parts))


def append(path: str, *parts: bytes) -> None:
    """Append to a file."""
    write(path, *parts, mode="ab")


def steps(chunk: Chunk | None, tag: str = "loss") -> list[int]:
    """The steps that a reader hands out of a tag."""
    return [] if chunk is None or tag not in chunk.scalars else chunk.scalars[tag].steps.tolist()
