"""What killed saves leave behind is swept away, and nothing else is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.store import CheckpointStore

HEX = "0123456789abcdef" * 2
LEFTOVERS = (
    "model.ckpt-400.data-00000-of-00001.tempstate8531905162350713262",
    "model.ckpt-400.index.tempstate8531905162350713262",
    "model.ckpt-400.part-00000-of-00001.data-00000-of-00001",
    f"model.ckpt-300.meta.tmp{HEX}",
    f"checkpoint.tmp{HEX}",
    f".supervisor.probe{HEX}",
)
STAGING = ("model.ckpt-400_temp", f"model.ckpt-370_temp_{HEX}")
STRANGERS = (
    "model.ckpt-350.data-00000-of-00001",
    "model.ckpt-350.meta",
    "other.ckpt-400.index.tempstate8531905162350713262",
    "model.ckpt-abc.data-00000-of-00001",
    "model.ckpt-300.data-00000-of-00001.bak",
    "model.ckpt-300.notes",
    "checkpoint.old",
    "events.out.tfevents.1669581175.host",
    "graph.pbtxt",
    ".supervisor.lock",
)


@pytest.fixture
def logdir(tmp_path: Path, writer: Any) -> Path:
    """A run with a checkpoint, everything that a kill can leave, and what belongs to others; all of 1970."""
    writer.write_run(tmp_path, [300])
    (tmp_path / "model.ckpt-300.meta").write_bytes(b"graph")
    for name in (*LEFTOVERS, *STRANGERS):
        (tmp_path / name).write_bytes(b"left")
    for name in (*STAGING, "other_temp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-00000-of-00001.index").write_bytes(b"left")
    age(tmp_path, 1000.0)
    return tmp_path


def age(directory: Path, written_at: float) -> None:
    """Set when everything below a directory was written."""
    for path in [*directory.rglob("*")]:
        os.utime(path, (written_at, written_at))


def names(directory: Path) -> set[str]:
    """Return the names in a directory."""
    return {path.name for path in directory.iterdir()}


def test_leftovers_go_and_everything_else_stays(logdir: Path) -> None:
    """Temporary files and directories are deleted and returned; no others."""
    before = names(logdir)
    swept = CheckpointStore(logdir).sweep_leftovers()
    assert {os.path.basename(path) for path in swept.deleted} == {*LEFTOVERS, *STAGING}
    assert names(logdir) == before - {*LEFTOVERS, *STAGING}
    chosen = CheckpointStore(logdir).newest_usable().chosen
    assert chosen.step == 300


def test_a_save_under_way_is_left_alone(logdir: Path, clock_at: Any) -> None:
    """What was written within the last minute stays; of a directory, the newest file in it counts."""
    clock = clock_at(1050.0)
    swept = CheckpointStore(logdir).sweep_leftovers(clock=clock)
    assert (swept.deleted, len(swept.too_young)) == ((), len(LEFTOVERS) + len(STAGING))
    clock.now = 1061.0
    for name in STAGING:
        os.utime(logdir / name / "part-00000-of-00001.index", (1030.0, 1030.0))
    swept = CheckpointStore(logdir).sweep_leftovers(clock=clock)
    assert {os.path.basename(path) for path in swept.deleted} == {*LEFTOVERS}


def test_what_other_sessions_staged_goes_at_once(logdir: Path, clock_at: Any) -> None:
    """Of a session that holds the logdir alone: what another one staged, however young; what it stages itself, and what
    says no session, only when it is old."""
    by = {session: f"model.ckpt-500_temp_{session}_{HEX}" for session in ("own", "other")}
    for name in by.values():
        (logdir / name).mkdir()
        os.utime(logdir / name, (1000.0, 1000.0))
    clock = clock_at(1050.0)
    store = CheckpointStore(logdir, publisher=Publisher(session="own", attempt=2))
    assert store.sweep_leftovers(clock=clock).deleted == ()
    swept = store.sweep_leftovers(alone=True, clock=clock)
    assert swept.deleted == (str(logdir / by["other"]),)
    assert {by["own"], *STAGING} <= names(logdir)


@pytest.mark.parametrize("state", [None, b"model_check", b"model_checkpoint_path: 'model.ckpt-300'"])
def test_data_without_an_index_stays(logdir: Path, state: bytes | None) -> None:
    """It may be the rest of a checkpoint, after a partial copy: nothing proves that it is not needed."""
    (logdir / "checkpoint").unlink()
    if state is not None:
        (logdir / "checkpoint").write_bytes(state)
    CheckpointStore(logdir).sweep_leftovers()
    assert {"model.ckpt-350.data-00000-of-00001", "model.ckpt-350.meta"} <= names(logdir)
    assert "model.ckpt-400_temp" not in names(logdir)


def test_a_half_moved_checkpoint_is_finished(
    tmp_path: Path, writer: Any, failing_filesystem: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Others take it for none; the next session that saves there finishes the move, and resumes from it. Where that
    fails, nothing is lost, and it is tried again."""
    writer.write_run(tmp_path / "run", [0], state=False)
    staging = tmp_path / "run" / f"model.ckpt-0_temp_{HEX}"
    staging.mkdir()
    (tmp_path / "run" / "model.ckpt-0.index").rename(staging / "model.ckpt-0.index")
    store = CheckpointStore(tmp_path / "run")
    recovery = store.newest_usable()
    assert (recovery.chosen, recovery.skipped) == (None, ())
    fault = OSError(errno.EIO, "Input/output error")
    failing = failing_filesystem(move=("model.ckpt-0.index", fault))
    CheckpointStore(tmp_path / "run", filesystem=failing).finish_moves()
    assert "cannot be finished: [Errno 5] Input/output error" in caplog.text and list(staging.iterdir())
    store.finish_moves()
    assert (store.newest_usable().chosen.step, staging.exists()) == (0, False)


def test_what_cannot_be_deleted_is_said(
    logdir: Path, failing_filesystem: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A leftover that cannot be deleted is logged, and the others are deleted all the same."""
    filesystem = failing_filesystem(remove=(LEFTOVERS[0], PermissionError(13, "Permission denied")))
    swept = CheckpointStore(logdir, filesystem=filesystem).sweep_leftovers()
    assert len(swept.deleted) == len(LEFTOVERS) + len(STAGING) - 1
    assert f"{LEFTOVERS[0]}, left behind by an earlier save, cannot be deleted" in caplog.text


def test_a_logdir_that_does_not_exist(tmp_path: Path) -> None:
    """Nothing there, nothing swept."""
    assert CheckpointStore(tmp_path / "none").sweep_leftovers() == ((), ())
