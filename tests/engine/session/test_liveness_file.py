"""A process's heartbeat file: whoever came later keeps it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor_core.engine.liveness_writer import LivenessFile
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY, LivenessRecord, read_record
from supervisor_core.storage.filesystem import Check, unguarded
from supervisor_core.storage.local import LocalFilesystem


def record(session: str) -> LivenessRecord:
    """A beat of ``worker:1`` in a session."""
    return LivenessRecord(
        task="worker:1",
        session=session,
        host="a",
        boot=None,
        pids=None,
        pid=7,
        started_at=1.0,
        written_at=2.0,
        beats=1,
        interval_secs=10.0,
        phase="training",
    )


def session_on_disk(logdir: Path) -> str:
    """Who is in the file."""
    (path,) = (logdir / LIVENESS_DIRECTORY).glob("*.json")
    return str(json.loads(path.read_bytes())["session"])


class Suspending(LocalFilesystem):
    """Local files; before what it writes takes effect, something else happens."""

    def __init__(self) -> None:
        self.meanwhile = unguarded

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        def both() -> None:
            self.meanwhile()
            check()

        super().replace(path, data, both)


@pytest.mark.parametrize("moment", ["between two beats", "while it writes"])
def test_a_process_that_wakes_up_leaves_the_file_to_its_successor(tmp_path: Path, moment: str) -> None:
    """Suspended between two beats, or in the middle of one, the earlier process writes nothing when it wakes up."""
    filesystem = Suspending()
    first = LivenessFile(str(tmp_path), "worker:1", "first", filesystem=filesystem)
    second = LivenessFile(str(tmp_path), "worker:1", "second")
    assert first.write(record("first")) is None

    def take_over() -> None:
        assert second.write(record("second")) is None

    if moment == "while it writes":
        filesystem.meanwhile = take_over
    else:
        take_over()
    assert first.write(record("first")) == "second"
    assert session_on_disk(tmp_path) == "second"
    assert len(list((tmp_path / LIVENESS_DIRECTORY).iterdir())) == 1
    assert second.write(record("second")) is None


def test_a_fifo_in_its_place_is_replaced(tmp_path: Path) -> None:
    """Whoever put it there: nothing waits for its other end, neither the process nor the chief that looks."""
    file = LivenessFile(str(tmp_path), "worker:1", "a")
    (tmp_path / LIVENESS_DIRECTORY).mkdir()
    os.mkfifo(file.path)
    with pytest.raises(OSError, match="it is a FIFO, not a regular file"):
        read_record(LocalFilesystem(), file.path)
    assert file.write(record("a")) is None
    assert session_on_disk(tmp_path) == "a"


def test_a_logdir_that_was_renamed_is_not_brought_back(tmp_path: Path) -> None:
    """Its chief waits until it is back, and would take a new directory in its place for it."""
    logdir = tmp_path / "run"
    file = LivenessFile(str(logdir), "worker:1", "a")
    assert file.write(record("a")) is None
    logdir.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        file.write(record("a"))
    assert not logdir.exists()
    (tmp_path / "away").rename(logdir)
    assert file.write(record("a")) is None
