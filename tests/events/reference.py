"""A reader of events files as plain as the description of the format: the truth that the fast one is compared with.

It reads whole files from memory, finds the next record byte by byte, and decodes with TensorBoard's message classes.
Also the records to compare them on, and the ways to damage them. Used by the tests and by ``benchmarks/fuzz.py``.
"""

from __future__ import annotations

import math
import os
import random
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.util import tensor_util

from supervisor_core.base.errors import EventsError
from supervisor_core.base.wire import DamagedError
from supervisor_core.events import event_format, telemetry
from supervisor_core.events.chunk import Chunk, SessionMark
from supervisor_core.events.payload import decode
from supervisor_core.events.reader import EventsFileReader

LARGE = 64 * 1024


@dataclass
class Reading:
    """What is in a file."""

    records: int = 0
    bytes: int = 0
    at: int = 0
    first_at: float | None = None
    last_at: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    max_step: int | None = None
    points: dict[str, list[tuple[int, int, str, str]]] = field(default_factory=dict)
    """Offset, step, wall time and value of each scalar by tag; the floats as text, so that NaN equals NaN."""
    marks: list[tuple[Any, ...]] = field(default_factory=list)
    problems: list[tuple[str, int | None]] = field(default_factory=list)


def read(data: bytes) -> Reading:
    """Read a whole file."""
    out, at, suspect = Reading(), 0, None
    while at + 12 <= len(data):
        out.at = at
        length, crc = struct.unpack_from("<QI", data, at)
        if crc != event_format.mask(google_crc32c.value(data[at : at + 8])):
            if data.startswith(b"version https://git-lfs"):
                break
            found = _find(data, at + 1 if suspect is None else suspect + 12)
            if found is None:
                break
            out.problems.append(("corrupt_length", at))
            at, suspect = found, None
            continue
        end = at + 16 + length
        if end > len(data):
            break
        payload = data[at + 12 : end - 4]
        good = _is_good(data, at, end)
        event = _event(payload, good)
        suspect = None
        if event is None:
            out.problems.append(("corrupt_record", at))
            suspect = at
        else:
            if length > LARGE and not _wanted(event):
                suspect = at
            _add(out, at, end - at, event)
        at = end
    out.at = at
    return out


def _is_good(data: bytes, at: int, end: int) -> bool:
    return struct.unpack_from("<I", data, end - 4)[0] == event_format.mask(google_crc32c.value(data[at + 12 : end - 4]))


def _find(data: bytes, start: int) -> int | None:
    for at in range(start, len(data) - 15):
        if data[at + 4 : at + 8] != bytes(4):
            continue
        length, crc = struct.unpack_from("<QI", data, at)
        end = at + 16 + length
        is_header = crc == event_format.mask(google_crc32c.value(data[at : at + 8]))
        if is_header and end <= len(data) and _is_good(data, at, end):
            return at
    return None


def _event(payload: bytes, good: bool) -> Any:
    """The event of a payload; None for a damaged one.

    The reader does not look into every field. So a payload that protobuf refuses, and a large one that does not match
    its checksum, are decoded here by their own lengths.
    """
    if good:
        with suppress(DecodeError):
            return Event.FromString(payload)
    elif len(payload) <= LARGE:
        return None
    try:
        found = decode(payload, 0, len(payload))
    except DamagedError:
        return None
    if found.wanted:
        return None
    event = Event(wall_time=found.wall, step=found.step)
    if found.has_summary:
        event.summary.SetInParent()
    return event


def _wanted(event: Any) -> bool:
    found = Reading()
    _add(found, 0, 0, event)
    return bool(found.points or found.marks or found.problems)


def _add(out: Reading, at: int, length: int, event: Any) -> None:
    out.records += 1
    out.bytes += length
    if not 0.0 <= event.wall_time <= 1e11:  # no time in seconds: in nanoseconds, or none
        event.wall_time = event.wall_time / 1e9 if 1e17 < event.wall_time <= 1e20 else 0.0
    if out.first_at is None:
        out.first_at = event.wall_time
    if event.wall_time > (-math.inf if out.last_at is None else out.last_at):
        out.last_at = event.wall_time
    what = event.WhichOneof("what")
    if what == "summary":
        if out.max_step is None:
            out.first_step = out.max_step = event.step
        out.max_step, out.last_step = max(out.max_step, event.step), event.step
        for value in event.summary.value:
            _value(out, at, event, value)
    elif what == "session_log" and event.session_log.status in (1, 2, 3):
        log = event.session_log
        status = SessionLog.SessionStatus.Name(log.status)
        out.marks.append((at, repr(event.wall_time), event.step, status, log.checkpoint_path or None))


def _value(out: Reading, at: int, event: Any, value: Any) -> None:
    kind = value.WhichOneof("value")
    number = None
    if kind == "simple_value":
        number = value.simple_value
    elif kind == "tensor":
        tensor = value.tensor
        if tensor.tensor_shape.unknown_rank or math.prod(dim.size for dim in tensor.tensor_shape.dim) != 1:
            return
        if tensor.dtype == 7:
            if value.tag.startswith("supervisor/") and value.metadata.plugin_data.plugin_name in ("", "supervisor"):
                _telemetry(out, at, event, value.tag, tensor.string_val[0] if tensor.string_val else b"")
            return
        if tensor.dtype not in (1, 2, 3, 4, 5, 6, 9, 10, 14, 17, 19, 22, 23):
            return
        number = float(np.asarray(tensor_util.make_ndarray(tensor)).astype(np.float64).ravel()[0])
    if number is not None:
        out.points.setdefault(value.tag, []).append((at, event.step, repr(event.wall_time), repr(float(number))))


def _telemetry(out: Reading, at: int, event: Any, tag: str, text: bytes) -> None:
    try:
        record = telemetry.from_json(tag.removeprefix("supervisor/"), text.decode("utf-8", "replace"))
    except EventsError:
        out.problems.append(("telemetry", at))
    else:
        out.marks.append((at, repr(event.wall_time), event.step, record))


def joined(chunks: Iterable[Chunk]) -> Reading:
    """Return chunks of one file in the form of the reference, from the last ``from_start`` on."""
    out = Reading()
    for chunk in chunks:
        if chunk.from_start:
            out = Reading()
        out.records += chunk.records
        out.bytes += chunk.bytes
        out.first_at = chunk.first_at if out.first_at is None else out.first_at
        if chunk.last_at is not None and (out.last_at is None or chunk.last_at > out.last_at):
            out.last_at = chunk.last_at
        out.first_step = chunk.first_step if out.first_step is None else out.first_step
        out.last_step = chunk.last_step if chunk.last_step is not None else out.last_step
        if chunk.max_step is not None:
            out.max_step = chunk.max_step if out.max_step is None else max(chunk.max_step, out.max_step)
        for tag, points in chunk.scalars.items():
            columns = (points.offsets.tolist(), points.steps.tolist(), points.walls.tolist(), points.values.tolist())
            out.points.setdefault(tag, []).extend(
                (offset, step, repr(wall), repr(value)) for offset, step, wall, value in zip(*columns, strict=True)
            )
        for mark in chunk.marks:
            what = (mark.status, mark.checkpoint_path) if isinstance(mark, SessionMark) else (mark.record,)
            out.marks.append((mark.offset, repr(mark.at), mark.step, *what))
        out.problems += [(problem.kind, problem.offset) for problem in chunk.problems]
    return out


class Writer:
    """Makes events files of all kinds of records, from a seeded source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.step = 0
        self.wall = 1.7e9

    def file(self, parts: int) -> bytes:
        """Return a file of some stretches of records."""
        kinds = (self.like, self.like, self.mixed, self.merged, self.session, self.telemetry, self.picture, self.odd)
        out = [event_format.frame(Event(wall_time=self.wall, file_version="brain.Event:2").SerializeToString())]
        for _ in range(parts):
            out += [event_format.frame(payload) for payload in self.chance.choice(kinds)()]
        return b"".join(out)

    def event(self, **what: Any) -> bytes:
        """Return one event, a little later than the one before."""
        chance = self.chance
        self.wall += chance.random()
        self.step += chance.choice((0, 1, 1, 1, 1, 100))
        if chance.random() < 0.01:
            self.step = chance.choice((0, 126, 16382, -5, 2**62, -(2**63)))
        wall = self.wall if chance.random() < 0.995 else chance.choice((0.0, math.nan, math.inf, -1.0, 1.7e18))
        return bytes(Event(wall_time=wall, step=self.step, **what).SerializeToString())

    def number(self) -> float:
        """Return a value, now and then a strange one."""
        return self.chance.choice((self.chance.gauss(0, 1), 0.0, -0.0, math.nan, math.inf, 1e30))

    def like(self) -> list[bytes]:
        """Many records with one scalar each, of a few tags."""
        chance = self.chance
        tags = chance.choice((["loss"], ["a/1", "a/2"], ["é" * 30, "b", ""], [f"tag{n:03}" for n in range(40)]))
        make = chance.choice((self.simple, self.simple, self.tensor))
        return [
            self.event(summary=Summary(value=[make(tag)])) for _ in range(chance.randint(1, 90)) for tag in tags[:8]
        ]

    def merged(self) -> list[bytes]:
        """Records with several scalars each; a tag may be there twice."""
        tags = [f"m/{self.chance.randint(0, 9)}" for _ in range(self.chance.randint(2, 8))]
        return [
            self.event(summary=Summary(value=[self.simple(tag) for tag in tags]))
            for _ in range(self.chance.randint(1, 60))
        ]

    def mixed(self) -> list[bytes]:
        """Summaries of values of several kinds."""
        makers: list[Callable[[str], Any]] = [self.simple, self.tensor, self.histogram, self.image, self.text]
        return [
            self.event(
                summary=Summary(value=[self.chance.choice(makers)("x") for _ in range(self.chance.randint(0, 5))])
            )
            for _ in range(self.chance.randint(1, 10))
        ]

    def session(self) -> list[bytes]:
        """A session log."""
        status = self.chance.choice((0, 1, 2, 3))
        return [self.event(session_log=SessionLog(status=status, checkpoint_path=self.chance.choice(("", "/a/model"))))]

    def telemetry(self) -> list[bytes]:
        """One of the supervisor's own records, or something that looks like one."""
        stop = telemetry.StopRecord(session="s", reason="completed", step=self.step, steps=3)
        summary = Summary.FromString(telemetry.summary_bytes(stop))
        if self.chance.random() < 0.3:
            summary.value[0].tensor.string_val[0] = self.chance.choice((b"{", b'{"v": 9}', b"\xff", b"[]", b'{"v": 1}'))
        if self.chance.random() < 0.2:
            summary.value[0].ClearField("metadata")
        if self.chance.random() < 0.2:
            summary.value[0].metadata.plugin_data.plugin_name = "another"
        if self.chance.random() < 0.2:
            summary.value[0].metadata.summary_description = "x" * 100_000
        return [self.event(summary=summary)]

    def picture(self) -> list[bytes]:
        """Something large: an image, alone or beside a scalar, or a graph."""
        size = self.chance.choice((10, LARGE - 60, LARGE, 3 * LARGE))
        image = Summary.Value(tag="p", image=Summary.Image(encoded_image_string=self.chance.randbytes(size)))
        values = self.chance.choice(
            ([image], [image, image], [image, self.simple("beside")], [self.tensor("b"), image])
        )
        kinds = ({"summary": Summary(value=values)}, {"graph_def": self.chance.randbytes(size)})
        return [self.event(**self.chance.choice(kinds))]

    def odd(self) -> list[bytes]:
        """Payloads that are no events, or empty."""
        return [
            self.chance.choice((b"", b"\x09", b"\xff" * 20, self.chance.randbytes(30), b"\x2a\x7f", b"\x10\x80\x01"))
        ]

    def simple(self, tag: str) -> Any:
        """Return a value as TF1 and torch write it."""
        return Summary.Value(tag=tag, simple_value=self.number())

    def tensor(self, tag: str) -> Any:
        """Return a value as TF2 writes it, or nearly."""
        number = self.number()
        dtype = self.chance.choice(
            (np.float32, np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_)
        )
        array = np.zeros(self.chance.choice(((), (1,), (1, 1), (2,), (0,))), dtype)
        if math.isfinite(number) and abs(number) < 100:
            array.fill(abs(number))
        made = tensor_util.make_tensor_proto(array)
        if self.chance.random() < 0.3 and array.size:
            made = type(made)(dtype=made.dtype, tensor_shape=made.tensor_shape, tensor_content=array.tobytes())
        value = Summary.Value(tag=tag, tensor=made)
        value.metadata.plugin_data.plugin_name = "scalars"
        return value

    def histogram(self, tag: str) -> Any:
        """Return a histogram."""
        return Summary.Value(tag=tag, histo={"bucket": [1.0] * self.chance.randint(0, 300)})

    def image(self, tag: str) -> Any:
        """Return a small image."""
        return Summary.Value(
            tag=tag, image={"encoded_image_string": self.chance.randbytes(self.chance.randint(0, 900))}
        )

    def text(self, tag: str) -> Any:
        """Return a text."""
        return Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(["some words"]))


def damage(data: bytes, chance: random.Random, times: int) -> bytes:
    """Return the bytes with some of them flipped, cut out, put in or cut off."""
    out = bytearray(data)
    for _ in range(times):
        at = chance.randrange(len(out) + 1)
        span = chance.choice((1, 4, 12, 100, 5000))
        how = chance.randrange(6)
        if how < 3 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif how == 3:
            del out[at : at + span]
        elif how == 4:
            out[at:at] = chance.choice((bytes(span), chance.randbytes(span)))
        elif chance.random() < 0.3:
            del out[at:]
    return bytes(out)


def difference(got: Reading, want: Reading) -> str:
    """Say in a line where two readings differ first; nothing where they do not."""
    for name, expected in vars(want).items():
        found = getattr(got, name)
        if name == "points":
            for tag in sorted({*expected, *found}):
                pairs = zip_longest(found.get(tag, ()), expected.get(tag, ()))
                for number, (one, other) in enumerate(pairs):
                    if one != other:
                        return f"point {number} of {tag!r}: {one} is not {other}"
        elif repr(found) != repr(expected):
            return f"{name}: {found} is not {expected}"
    return ""


def compare(seed: int, path: str) -> str:
    """Make, damage and read a file by a seed, at once and as it grows; say where it differs from the plain reading."""
    chance = random.Random(seed)
    data = Writer(seed).file(chance.randint(0, 10))
    data = damage(data, chance, chance.choice((0, 1, 1, 2, 5)))
    want = read(data)
    with open(path, "wb") as file:
        file.write(data)
    at_once = EventsFileReader(path)
    found = _following(at_once, [at_once.read()])
    if difference(found, want):
        return f"seed {seed}, at once: {difference(found, want)}"
    os.unlink(path)
    grown, chunks = EventsFileReader(path), []
    with open(path, "wb", buffering=0) as file:
        while file.tell() < len(data):
            file.write(data[file.tell() : file.tell() + chance.choice((1, 13, 100, 3000, 100_000))])
            while (chunk := grown.read(chance.choice((None, 1, 1000)))) is not None:
                chunks.append(chunk)
    found = _following(grown, chunks)
    return f"seed {seed}, as it grew: {difference(found, want)}" if difference(found, want) else ""


def _following(reader: EventsFileReader, chunks: list[Chunk | None]) -> Reading:
    out = joined(chunk for chunk in chunks if chunk is not None)
    out.at = reader.facts().read_bytes
    return out
