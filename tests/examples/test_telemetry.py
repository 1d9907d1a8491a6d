from __future__ import annotations

from pathlib import Path

from examples.demo.telemetry import events_files, read_telemetry
from supervisor_core.events.event_format import frame
from supervisor_core.events.telemetry import CheckpointRecord, StopRecord, summary_bytes

RECORDS = (
    CheckpointRecord(session="s", trigger="timer", path="model.ckpt-3", step=3),
    StopRecord(session="s", reason="signal", step=4, final_checkpoint_step=4),
)


def framed(record: CheckpointRecord | StopRecord) -> bytes:
    """Return a record as it lies in an events file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    payload: bytes = Event(wall_time=1.0, summary=Summary.FromString(summary_bytes(record))).SerializeToString()
    return frame(payload)


def scalar() -> bytes:
    """Return a summary of the training program, as it lies in an events file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    value = Summary.Value(tag="train/loss", simple_value=0.5)
    return frame(Event(step=1, summary=Summary(value=[value])).SerializeToString())


def test_the_supervisors_records_are_read(tmp_path: Path) -> None:
    """They come out in the file's order, other events left out."""
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(framed(RECORDS[0]) + scalar() + framed(RECORDS[1]))
    assert tuple(read_telemetry(file)) == RECORDS


def test_a_file_cut_by_a_kill_is_read_up_to_there(tmp_path: Path) -> None:
    """A torn last record costs itself and nothing else, wherever it is torn."""
    file = tmp_path / "events.out.tfevents.1.host"
    whole, torn = framed(RECORDS[0]), framed(RECORDS[1])
    for length in range(len(torn)):
        file.write_bytes(whole + torn[:length])
        assert tuple(read_telemetry(file)) == RECORDS[:1]


def test_only_events_files_count_oldest_first(tmp_path: Path) -> None:
    """Checkpoints and the like beside them are none."""
    for name in ("events.out.tfevents.2.host", "events.out.tfevents.1.host", "checkpoint"):
        (tmp_path / name).touch()
    assert [file.name[-6:] for file in events_files(tmp_path)] == ["1.host", "2.host"]
