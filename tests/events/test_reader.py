from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import SessionLog

from supervisor_core.base import wire
from supervisor_core.events import event_format, telemetry
from supervisor_core.events.chunk import SessionMark, TelemetryMark
from supervisor_core.events.reader import EventsFileReader
from tests.cases import each

# What is there


def test_scalars_become_columns(path: str, writing: Any) -> None:
    """Offset, step, wall time and value of each, in the order of the file; and what there is to say of the chunk."""
    writing.write(path, writing.HEAD, writing.scalar(3), writing.scalar(1, "a"), writing.scalar(7))
    chunk = EventsFileReader(path).read()
    assert chunk is not None and chunk.from_start
    points = chunk.scalars["loss"]
    first = len(writing.HEAD)
    assert points.offsets.tolist() == [first, first + len(writing.scalar(3)) + len(writing.scalar(1, "a"))]
    assert (points.steps.tolist(), points.values.tolist()) == ([3, 7], [1.5, 3.5])
    assert points.walls.tolist() == [1.7e9 + 3, 1.7e9 + 7]
    assert (chunk.records, chunk.bytes, chunk.created_at) == (4, os.path.getsize(path), 1.7e9)
    assert (chunk.first_step, chunk.last_step, chunk.max_step) == (3, 7, 7)
    assert (chunk.first_at, chunk.last_at) == (1.7e9, 1.7e9 + 7)


def test_what_writers_write_is_kept_as_it_is(path: str, reference: Any, writing: Any) -> None:
    """Steps that repeat, go down or are negative, a wall time of zero, NaN: nothing is dropped or put in order."""
    events = [(0.0, 5, 1.0), (3.0, 5, float("nan")), (2.0, -7, float("inf")), (1.0, 2**62, -0.0), (1.0, 0, 3.0)]
    payloads = [
        reference.Event(wall_time=wall, step=step, summary={"value": [{"tag": "a", "simple_value": value}]})
        for wall, step, value in events
    ]
    writing.write(path, writing.HEAD, *(event_format.frame(event.SerializeToString()) for event in payloads))
    chunk = EventsFileReader(path).read()
    assert chunk is not None
    points = chunk.scalars["a"]
    found = zip(points.walls.tolist(), points.steps.tolist(), points.values.tolist(), strict=True)
    assert [repr(point) for point in found] == [repr(event) for event in events]
    assert (chunk.first_step, chunk.last_step, chunk.max_step) == (5, 0, 2**62)


@each("count", [1, 100])
@each(
    "wall, secs",
    [
        (1.7e12, 1.7e9),
        (1.7e15, 1.7e9),
        (1.7e18, 1.7e9),
        (1.7e300, 0.0),
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        (-1.7e9, 0.0),
    ],
)
def test_wall_times_are_seconds(tmp_path: Path, writing: Any, wall: float, secs: float, count: int) -> None:
    """What a writer gave in milli-, micro- or nanoseconds becomes seconds, in an event and in a file's name; what is no
    time is 0: not known. One by one and in bulk; what the events around it say stays."""
    record = b"\x09" + struct.pack("<d", wall) + writing.scalar(3)[12:-4][9:]
    path = str(tmp_path / "events.out.tfevents.1700000000000.host")
    writing.write(path, writing.HEAD, event_format.frame(record) * count, writing.scalar(5))
    chunk = EventsFileReader(path).read()
    assert chunk is not None
    assert chunk.scalars["loss"].walls.tolist() == [secs] * count + [1.7e9 + 5]
    assert (chunk.created_at, chunk.last_at) == (1.7e9, 1.7e9 + 5)


@each("code", ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@each("form", ["numbers", "content"])
@each("count", [1, 100])
def test_a_tensor_of_one_number_is_a_scalar(
    path: str, reference: Any, code: str, form: str, count: int, writing: Any
) -> None:
    """Every type that has numbers, of any rank, in both forms that a tensor can have; one by one and in bulk."""
    array = reference.np.full((1, 1), 1, code)
    tensor = reference.tensor_util.make_tensor_proto(array)
    if form == "content":
        tensor = type(tensor)(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape, tensor_content=array.tobytes())
    event = reference.Event(wall_time=1.0, step=1, summary={"value": [{"tag": "a", "tensor": tensor}]})
    writing.write(path, writing.HEAD, event_format.frame(event.SerializeToString()) * count)
    chunk = EventsFileReader(path).read()
    assert chunk is not None
    assert chunk.scalars["a"].values.tolist() == [1.0] * count


def test_a_bfloat16_is_a_scalar(path: str, writing: Any) -> None:
    """The upper half of a float32, by its bits."""
    tensor = b"\x08\x0e" + wire.delimited(2, b"") + b"\x6a\x02\xc0\x7f"  # half_val 0x3fc0
    writing.write(
        path,
        writing.HEAD,
        writing.summary(wire.delimited(1, wire.delimited(1, b"a") + wire.delimited(8, tensor))),
    )
    chunk = EventsFileReader(path).read()
    assert chunk is not None and chunk.scalars["a"].values.tolist() == [1.5]


def test_session_logs_are_marks(path: str, writing: Any) -> None:
    """Status, step and path as they were written."""
    logs = [
        SessionLog(status=3, checkpoint_path=r"C:\runs/model.ckpt").SerializeToString(),
        SessionLog(status=1).SerializeToString(),
        SessionLog(status=2).SerializeToString(),
    ]
    records = [
        event_format.frame(event_format.event_prefix(5.0, step, 7, len(log)) + log) for step, log in enumerate(logs)
    ]
    writing.write(path, writing.HEAD, *records)
    chunk = EventsFileReader(path).read()
    assert chunk is not None
    assert chunk.marks == (
        SessionMark(
            offset=len(writing.HEAD), at=5.0, step=0, status="CHECKPOINT", checkpoint_path=r"C:\runs/model.ckpt"
        ),
        SessionMark(offset=len(writing.HEAD) + len(records[0]), at=5.0, step=1, status="START"),
        SessionMark(offset=len(writing.HEAD) + len(records[0]) + len(records[1]), at=5.0, step=2, status="STOP"),
    )
    assert chunk.max_step is None


def test_telemetry_is_marks(path: str, writing: Any) -> None:
    """The supervisor's own records come back as what they were."""
    record = telemetry.StopRecord(session="s", reason="signal", signal="SIGTERM", step=7)
    writing.write(path, writing.HEAD, writing.summary(telemetry.summary_bytes(record), step=7))
    chunk = EventsFileReader(path).read()
    assert chunk is not None
    assert chunk.marks == (TelemetryMark(offset=len(writing.HEAD), at=1.7e9, step=7, record=record),)


def test_telemetry_that_makes_no_sense_is_a_problem(path: str, writing: Any) -> None:
    """A record of a newer schema is named and located; the record itself was whole."""
    good = telemetry.summary_bytes(telemetry.StopRecord(session="s", reason="signal"))
    writing.write(path, writing.HEAD, writing.summary(good.replace(b'"v": 1', b'"v": 7')), writing.scalar(1))
    reader = EventsFileReader(path)
    chunk = reader.read()
    assert chunk is not None and (chunk.marks, writing.steps(chunk)) == ((), [1])
    assert [(problem.kind, problem.offset) for problem in reader.facts().problems] == [("telemetry", len(writing.HEAD))]
    assert (reader.facts().records, reader.facts().corrupt_records) == (3, 0)


# How it grows


def test_a_file_is_read_once(path: str, writing: Any) -> None:
    """Each look brings what was appended since, and only the first is from the start."""
    writing.write(path, writing.HEAD, writing.scalar(1))
    reader = EventsFileReader(path)
    chunks = [reader.read(), reader.read()]
    writing.append(path, writing.scalar(2))
    chunks.append(reader.read())
    assert [writing.steps(chunk) for chunk in chunks] == [[1], [], [2]]
    assert chunks[1] is None
    assert [chunk.from_start for chunk in chunks if chunk is not None] == [True, False]


def test_an_unchanged_file_is_not_opened(path: str, watched: Any, writing: Any) -> None:
    """Looking again asks for the file's status and nothing else; nothing is held open between two looks."""
    writing.write(path, writing.HEAD, writing.scalar(1))
    reader = EventsFileReader(path, filesystem=watched)
    reader.read()
    before = watched.preads
    assert (reader.read(), watched.preads, watched.open_files) == (None, before, 0)


def test_only_new_bytes_are_read(path: str, watched: Any, writing: Any) -> None:
    """A look at a file that grew costs its new bytes, and a few to check that it is the same file."""
    writing.write(path, writing.HEAD, *map(writing.scalar, range(1, 5000)))
    reader = EventsFileReader(path, filesystem=watched)
    reader.read()
    watched.bytes_read = 0
    writing.append(path, writing.scalar(5000))
    assert writing.steps(reader.read()) == [5000]
    assert watched.bytes_read < 100


@each("count", [2, 500])
def test_a_torn_tail_is_waited_for(path: str, count: int, writing: Any) -> None:
    """Wherever the last record is cut, those before it are handed out and it is waited for."""
    whole = writing.HEAD + b"".join(map(writing.scalar, range(1, count)))
    last = writing.scalar(count)
    for cut in range(1, len(last)):
        writing.write(path, whole, last[:cut])
        reader = EventsFileReader(path)
        assert writing.steps(reader.read()) == list(range(1, count))
        facts = reader.facts()
        assert (facts.torn_bytes, facts.read_bytes, facts.corrupt_records) == (cut, len(whole), 0)
        writing.append(path, last[cut:])
        assert writing.steps(reader.read()) == [count]
        assert reader.facts().torn_bytes == 0


def test_a_reading_can_be_cut_into_pieces(path: str, writing: Any) -> None:
    """With a bound, a read ends with the record that reaches it, and the next goes on there."""
    writing.write(path, writing.HEAD, *map(writing.scalar, range(1, 1001)))
    reader = EventsFileReader(path)
    pieces = []
    while (chunk := reader.read(max_bytes=5000)) is not None:
        assert chunk.bytes < 5000 + len(writing.scalar(1000))
        pieces.append(writing.steps(chunk))
    assert len(pieces) > 5 and [step for piece in pieces for step in piece] == list(range(1, 1001))


def test_a_live_writer_is_followed(tmp_path: Path, writing: Any) -> None:
    """While another process appends, every event arrives once, in order, and nothing is taken for damaged."""
    code = f"""
from supervisor_core.events import EventsWriter
with EventsWriter({str(tmp_path)!r}) as writer:
    print(writer.path, flush=True)
    for step in range(20_000):
        writer.scalar("loss", step / 2, step)
        if step % 100 == 0:
            writer.flush()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found: list[int] = []
        readers: dict[Path, EventsFileReader] = {}
        ended = False
        while not ended:
            ended = process.poll() is not None
            for file in tmp_path.iterdir():
                reader = readers.setdefault(file, EventsFileReader(str(file)))
                found += writing.steps(reader.read())
    assert process.returncode == 0
    assert found == list(range(20_000))
    assert [(reader.facts().corrupt_records, reader.facts().torn_bytes) for reader in readers.values()] == [(0, 0)]


# Everything at once


@given(st.integers(0, 2**32))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_reads_as_the_reference_does(path: str, reference: Any, seed: int) -> None:
    """Any records, damaged anywhere, read at once or as they are appended: the same as the plain reader."""
    assert reference.compare(seed, path) == ""
