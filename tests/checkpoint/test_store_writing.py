"""Checkpoints are taken over, committed and deleted, so that no crash and no copy of a run does harm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.retention import Saved
from supervisor_core.checkpoint.store import CheckpointStore


def test_history_is_what_a_session_takes_over(logdir: Path, write_state: Any) -> None:
    """Listed, there, oldest first, with the times of the state file, or else of the files."""
    with open(logdir / "checkpoint", "a") as file:
        file.write("all_model_checkpoint_timestamps: [10.5, 20.5, 30.5]\nlast_preserved_timestamp: 5.0\n")
    (logdir / "model.ckpt-200.index").unlink()
    (logdir / "model.ckpt-200.data-00000-of-00001").unlink()
    history = CheckpointStore(logdir).history()
    assert [(os.path.basename(saved.path), saved.saved_at) for saved in history.kept] == [
        ("model.ckpt-100", 10.5),
        ("model.ckpt-300", 30.5),
    ]
    assert history.last_preserved_at == 5.0
    write_state(logdir, "model.ckpt-100", "model.ckpt-300", chosen="model.ckpt-100")
    os.utime(logdir / "model.ckpt-100.index", (70.0, 70.0))
    kept = CheckpointStore(logdir).history().kept
    assert [os.path.basename(saved.path) for saved in kept] == ["model.ckpt-100", "model.ckpt-300"]
    assert kept[0].saved_at == 70.0


def test_history_of_a_new_run(tmp_path: Path) -> None:
    """A new run has none."""
    assert CheckpointStore(tmp_path).history().kept == ()


def test_recording_makes_it_the_one_to_resume_from(logdir: Path, writer: Any, steps_of: Any) -> None:
    """The state file names the new one, what is kept, and when each was saved; all paths are relative."""
    writer.write_bundle(logdir / "model.ckpt-400", {"global_step": writer.step(400)})
    kept = [Saved(str(logdir / "model.ckpt-300"), 30.5), Saved(str(logdir / "model.ckpt-400"), 40.5)]
    CheckpointStore(logdir).record(str(logdir / "model.ckpt-400"), kept=kept, last_preserved_at=3.5)
    assert (logdir / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-400"\n'
        'all_model_checkpoint_paths: "model.ckpt-300"\n'
        'all_model_checkpoint_paths: "model.ckpt-400"\n'
        "all_model_checkpoint_timestamps: 30.5\n"
        "all_model_checkpoint_timestamps: 40.5\n"
        "last_preserved_timestamp: 3.5\n"
    )
    assert steps_of(CheckpointStore(logdir))[:2] == [400, 300]


def test_a_moved_run_resumes(logdir: Path, tmp_path: Path) -> None:
    """Recorded here, moved elsewhere, resumed there."""
    CheckpointStore(logdir).record(str(logdir / "model.ckpt-200"))
    shutil.move(logdir, tmp_path / "moved")
    chosen = CheckpointStore(tmp_path / "moved").newest_usable().chosen
    assert chosen.path == str(tmp_path / "moved" / "model.ckpt-200")


def test_a_relative_logdir(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A logdir relative to where the program was started works, and writes the same state file."""
    monkeypatch.chdir(logdir.parent)
    store = CheckpointStore("run")
    store.sync("run/model.ckpt-200")
    store.record("run/model.ckpt-200")
    assert 'model_checkpoint_path: "model.ckpt-200"' in (logdir / "checkpoint").read_text()
    assert store.candidates()[0].path == "run/model.ckpt-200"
    assert len(store.delete("run/model.ckpt-100")) == 2


def test_files_and_then_directories_are_synced(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync reaches data and index, then their directory; the state file is replaced in full, then its directory."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recording(fd: int) -> None:
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recording)
    monkeypatch.setattr(os, "replace", lambda source, target: (done.append("replaced"), replace(source, target)))
    store = CheckpointStore(logdir)
    store.sync(str(logdir / "model.ckpt-300"))
    store.record(str(logdir / "model.ckpt-300"))
    assert sorted(done[:2]) == ["model.ckpt-300.data-00000-of-00001", "model.ckpt-300.index"]
    assert done[2] == "run"
    assert done[4:] == ["replaced", "run"]


def test_syncing_what_is_not_there_fails(logdir: Path) -> None:
    """A checkpoint without files cannot become durable."""
    with pytest.raises(FileNotFoundError, match=r"no files of the checkpoint .*model\.ckpt-999"):
        CheckpointStore(logdir).sync(str(logdir / "model.ckpt-999"))


def test_deleting_takes_the_index_first(logdir: Path, failing_filesystem: Any) -> None:
    """Interrupted at any point, a deletion leaves no index without its data."""
    (logdir / "model.ckpt-100.meta").write_bytes(b"graph")
    filesystem = failing_filesystem()
    CheckpointStore(logdir, filesystem=filesystem).delete(str(logdir / "model.ckpt-100"))
    removed = [os.path.basename(path) for name, path in filesystem.calls if name == "remove"]
    assert removed == ["model.ckpt-100.index", "model.ckpt-100.data-00000-of-00001", "model.ckpt-100.meta"]


def test_deleting_stops_where_it_may_not(logdir: Path, failing_filesystem: Any) -> None:
    """If the index cannot be deleted, the data stays: the checkpoint is still whole."""
    filesystem = failing_filesystem(remove=(".index", PermissionError(13, "Permission denied")))
    with pytest.raises(PermissionError):
        CheckpointStore(logdir, filesystem=filesystem).delete(str(logdir / "model.ckpt-100"))
    assert bundle.verify(logdir / "model.ckpt-100").step == 100


def test_deleting_one_spares_its_neighbours(tmp_path: Path, writer: Any, steps_of: Any) -> None:
    """Names that begin alike, or have letters that mean something to a pattern, are other checkpoints."""
    run = tmp_path / "run [a-z]*"
    writer.write_run(run, [1, 10, 11, 100], basename="m+o[d]el")
    store = CheckpointStore(run, "m+o[d]el")
    assert len(store.delete(str(run / "m+o[d]el-1"))) == 2
    assert steps_of(store) == [100, 11, 10, 1]
    assert [item.found for item in store.candidates()] == [True, True, True, False]


def test_deleting_what_is_gone(logdir: Path) -> None:
    """Files, or the whole directory, that somebody deleted already are no error."""
    store = CheckpointStore(logdir)
    assert store.delete(str(logdir / "model.ckpt-999")) == ()
    shutil.rmtree(logdir)
    assert store.delete(str(logdir / "model.ckpt-100")) == ()


def test_links_out_of_the_logdir_are_not_followed(logdir: Path, tmp_path: Path, writer: Any) -> None:
    """Of a linked file the link is deleted; through a linked directory nothing is."""
    writer.write_run(tmp_path / "elsewhere", [1])
    (logdir / "sub").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "elsewhere").glob("model.ckpt-1.*"):
        (logdir / path.name).symlink_to(path)
    store = CheckpointStore(logdir)
    assert store.delete(str(logdir / "sub" / "model.ckpt-1")) == ()
    assert len(store.delete(str(logdir / "model.ckpt-1"))) == 2
    assert bundle.verify(tmp_path / "elsewhere" / "model.ckpt-1").step == 1


def test_a_logdir_reached_by_a_link(logdir: Path, tmp_path: Path) -> None:
    """A logdir that is itself a link is a logdir; its checkpoints can be deleted."""
    (tmp_path / "link").symlink_to(logdir)
    assert len(CheckpointStore(tmp_path / "link").delete(str(logdir / "model.ckpt-100"))) == 2
