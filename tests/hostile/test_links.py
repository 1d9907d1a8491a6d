"""Links in a logdir lead no writer to a file outside it."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from supervisor_core.checkpoint.bundle_writer import write_bundle
from supervisor_core.checkpoint.guard import LOCK_NAME, Publisher
from supervisor_core.checkpoint.ledger import DIRECTORY, Ledger
from supervisor_core.checkpoint.retention import Retention
from supervisor_core.checkpoint.set_aside import move_aside
from supervisor_core.checkpoint.state_file import CheckpointState, write_state
from supervisor_core.engine.liveness_writer import LivenessFile
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY, LivenessRecord
from supervisor_core.storage.local import LOCAL, LocalFilesystem
from supervisor_core.storage.local import LOCAL as EVENTS
from supervisor_core.storage.lock_file import LockFile

TASK = LivenessRecord(
    task="worker:1", session="s", host="h", pid=1, started_at=1.0, written_at=1.0, beats=1, interval_secs=1.0, phase="x"
)
LINKS = (os.symlink, os.link)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the reader's own, outside the logdir."""
    path = tmp_path / "authorized_keys"
    path.write_text("a key\n")
    return path


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Somebody's logdir."""
    (tmp_path / "logdir").mkdir()
    return tmp_path / "logdir"


@pytest.mark.parametrize("link", LINKS)
def test_the_lock_is_no_link(logdir: Path, victim: Path, link: type, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on without a lock, and says why, or with one of its own; the file that is linked to stays as it
    is, and is not locked."""
    link(victim, logdir / LOCK_NAME)
    with caplog.at_level(logging.WARNING):
        history = LogdirHold(logdir).acquire("s")
    assert history.exclusive is (link is os.link)
    assert ("link" in caplog.text) is not history.exclusive
    assert (victim.read_text(), LockFile(str(victim)).take()) == ("a key\n", None)


@pytest.mark.parametrize("link", LINKS)
def test_files_that_are_replaced_are_not_written_through_links(logdir: Path, victim: Path, link: type) -> None:
    """The state file, and files that TensorFlow's writer keeps beside the events: the link goes, its target stays."""
    for name in ("checkpoint", "asset"):
        link(victim, logdir / name)
    write_state(logdir / "checkpoint", CheckpointState(model_checkpoint_path="model.ckpt-1"))
    EVENTS.replace(str(logdir / "asset"), b"new")
    assert (logdir / "asset").read_bytes() == b"new"
    assert "model.ckpt-1" in (logdir / "checkpoint").read_text()
    assert sorted(os.listdir(logdir)) == ["asset", "checkpoint"]
    assert victim.read_text() == "a key\n"


@pytest.mark.parametrize("link", LINKS)
def test_a_checkpoint_is_written_through_no_link(logdir: Path, victim: Path, link: type) -> None:
    """Not even where the name of its data file was guessed."""
    link(victim, logdir / "model.ckpt-1.data-00000-of-00001")
    with pytest.raises(OSError, match="link"):
        write_bundle(str(logdir / "model.ckpt-1"), ())
    assert victim.read_text() == "a key\n"


def test_directories_of_ours_are_no_links(logdir: Path, tmp_path: Path) -> None:
    """Heartbeats, the ledger and damaged checkpoints are not put, and nothing is deleted, where a link leads."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "worker-1.json.tmp").touch()
    (logdir / "model.ckpt-1.index").touch()
    for name in (LIVENESS_DIRECTORY, DIRECTORY, "model.ckpt-1.damaged"):
        (logdir / name).symlink_to(elsewhere)
    ledger = Ledger(LOCAL, str(logdir), "model.ckpt", Publisher(session="s", attempt=1))
    with pytest.raises(OSError, match="symbolic link"):
        LivenessFile(str(logdir), "worker:1", "s").write(TASK)
    with pytest.raises(OSError, match="symbolic link"):
        ledger.announce(str(logdir / "model.ckpt-1"), 1.0, Retention((), (), (), None, None))
    aside = move_aside(LOCAL, str(logdir), "model.ckpt-1", ["model.ckpt-1.index"], reason="damaged", at=1.0)
    assert os.listdir(elsewhere) == ["worker-1.json.tmp"]
    assert aside.path == str(logdir / "model.ckpt-1.damaged-2")


@pytest.mark.parametrize("link", LINKS)
def test_on_a_full_disk_no_link_is_written_through(
    logdir: Path, victim: Path, link: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the liveness file is overwritten in place, which needs no room."""

    def full(self: object, path: str, *rest: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    file = LivenessFile(str(logdir), "worker:1", "s")
    file.write(TASK)
    os.unlink(file.path)
    link(victim, file.path)
    monkeypatch.setattr(LocalFilesystem, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        file.write(TASK)
    assert victim.read_text() == "a key\n"
