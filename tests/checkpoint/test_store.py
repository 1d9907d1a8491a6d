"""A logdir's checkpoints are found and chosen, whatever the logdir has been through."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError, NoUsableCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.store import CheckpointStore


def test_the_newest_is_chosen(logdir: Path) -> None:
    """An undamaged run resumes from what the state file says, and nothing is skipped."""
    recovery = CheckpointStore(logdir).newest_usable()
    assert recovery.chosen.path == str(logdir / "model.ckpt-300")
    assert (recovery.chosen.step, recovery.chosen.source, recovery.chosen.deletable) == (300, "state", True)
    assert recovery.verified.step == 300
    assert (recovery.skipped, recovery.state_problem) == ((), None)


@pytest.mark.parametrize("there", [True, False])
def test_a_new_run_has_none(tmp_path: Path, there: bool) -> None:
    """An empty logdir, or one that does not exist yet, is a new run: nothing chosen, nothing wrong."""
    if there:
        (tmp_path / "run").mkdir()
    recovery = CheckpointStore(tmp_path / "run").newest_usable()
    assert (recovery.chosen, recovery.skipped, recovery.state_problem) == (None, (), None)


def test_a_hand_edited_choice_is_followed(logdir: Path, write_state: Any, steps_of: Any) -> None:
    """The state file's choice comes first though it is older; then the others from the newest."""
    write_state(logdir, "model.ckpt-100", "model.ckpt-200", "model.ckpt-300", chosen="model.ckpt-200")
    assert steps_of(CheckpointStore(logdir)) == [200, 300, 100]


def test_a_state_file_of_one_line(logdir: Path) -> None:
    """With nothing but a choice, the others are found on disk, highest step first."""
    (logdir / "checkpoint").write_text("model_checkpoint_path: 'model.ckpt-100'  # the good one\n")
    candidates = CheckpointStore(logdir).candidates()
    assert [(item.step, item.source) for item in candidates] == [(100, "state"), (300, "disk"), (200, "disk")]


def test_steps_are_numbers(tmp_path: Path, writer: Any, steps_of: Any) -> None:
    """Step 1000 is newer than step 999, and padded numbers are numbers."""
    writer.write_run(tmp_path, [999, 1000], state=False)
    writer.write_bundle(tmp_path / "model.ckpt-00001001", {"global_step": writer.step(1001)})
    writer.write_bundle(tmp_path / "model.ckpt", {"global_step": writer.step(5)})
    writer.write_bundle(tmp_path / "other.ckpt-5000", {"global_step": writer.step(5000)})
    assert steps_of(CheckpointStore(tmp_path)) == [1001, 1000, 999, None]


def flip(path: Path, position: int) -> None:
    """Alter one byte of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def test_a_torn_state_file_of_an_empty_run_is_said(tmp_path: Path) -> None:
    """Where there is a torn state file and no checkpoint, the run is new, and the torn file is mentioned."""
    (tmp_path / "checkpoint").write_bytes(b"")
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert recovery.chosen is None
    assert recovery.state_problem == "the state file 'checkpoint' cannot be understood: it is empty (0 bytes)"


def test_when_none_is_usable_each_is_listed(logdir: Path) -> None:
    """A run with checkpoints never starts over by itself: the error lists each one with its damage."""
    for step, ending in ((100, ".index"), (200, ".data-00000-of-00001"), (300, ".index")):
        os.truncate(logdir / f"model.ckpt-{step}{ending}", 30)
    with pytest.raises(NoUsableCheckpointError) as caught:
        CheckpointStore(logdir).newest_usable()
    lines = str(caught.value).splitlines()
    assert lines[0] == f"None of the 3 checkpoints of {logdir} can be read:"
    assert [line.partition(":")[0].strip() for line in lines[1:4]] == [
        str(logdir / f"model.ckpt-{step}") for step in (300, 200, 100)
    ]
    assert "fewer than the 48 of its footer" in lines[1]
    assert "it ends at byte 30" in lines[2]


def test_a_state_file_that_names_only_missing_ones(tmp_path: Path, write_state: Any) -> None:
    """Checkpoints that a state file names and that do not exist are an error, not a new run."""
    write_state(tmp_path, "model.ckpt-5")
    with pytest.raises(NoUsableCheckpointError, match=r"model\.ckpt-5\.index: the file is missing"):
        CheckpointStore(tmp_path).newest_usable()
    assert not CheckpointStore(tmp_path).candidates()[0].found


def test_the_caller_may_verify_differently(logdir: Path) -> None:
    """Any check will do: one that only looks at the index, or a restore that is tried."""
    os.truncate(logdir / "model.ckpt-300.data-00000-of-00001", 1300)
    asked: list[str] = []

    def check(path: str) -> bundle.VerifiedCheckpoint:
        asked.append(os.path.basename(path))
        if len(asked) < 3:
            raise DamagedCheckpointError("no good")
        return bundle.VerifiedCheckpoint(1, 1, 1)

    recovery = CheckpointStore(logdir).newest_usable(verify=check)
    assert asked == ["model.ckpt-300", "model.ckpt-200", "model.ckpt-100"]
    assert recovery.chosen is not None
    assert [item.reason for item in recovery.skipped] == ["no good", "no good"]


def test_a_copied_run_stands_on_its_own(logdir: Path, tmp_path: Path, write_state: Any) -> None:
    """With absolute paths to the original in its state file, a copy reads its own files, and deletes only them."""
    write_state(logdir, *(str(logdir / f"model.ckpt-{step}") for step in (100, 200, 300)))
    shutil.copytree(logdir, tmp_path / "copy")
    store = CheckpointStore(tmp_path / "copy")
    assert [item.path for item in store.candidates()] == [
        str(tmp_path / "copy" / f"model.ckpt-{step}") for step in (300, 200, 100)
    ]
    before = sorted(path.name for path in logdir.iterdir())
    for saved in store.history().kept:
        store.delete(saved.path)
    assert sorted(path.name for path in logdir.iterdir()) == before
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["checkpoint"]


def test_windows_paths_resolve_in_the_logdir(logdir: Path, write_state: Any, steps_of: Any) -> None:
    """A state file written on Windows names files that are found by their last part."""
    write_state(logdir, r"C:\\runs\\model.ckpt-200", r"C:\\runs\\model.ckpt-300")
    assert steps_of(CheckpointStore(logdir)) == [300, 200, 100]
    assert all(item.found for item in CheckpointStore(logdir).candidates())


def test_a_path_outside_is_read_and_never_deleted(logdir: Path, tmp_path: Path, writer: Any, write_state: Any) -> None:
    """Somebody points the state file at a checkpoint elsewhere: resumed from, and left alone."""
    elsewhere = tmp_path / "pretrained"
    writer.write_run(elsewhere, [7], basename="best")
    for path in (str(elsewhere / "best-7"), "../pretrained/best-7"):
        write_state(logdir, path)
        store = CheckpointStore(logdir)
        recovery = store.newest_usable()
        assert (recovery.chosen.step, recovery.chosen.deletable) == (7, False)
        assert os.path.samefile(recovery.chosen.path + ".index", elsewhere / "best-7.index")
        assert store.delete(recovery.chosen.path) == ()
        assert [saved.deletable for saved in store.history().kept] == [False]
    assert (elsewhere / "best-7.index").exists()


def test_of_a_damaged_one_outside_nothing_is_said(logdir: Path, tmp_path: Path, writer: Any, write_state: Any) -> None:
    """Whoever writes the state file may name any file: the names of tensors that are in it are not for the log."""
    writer.write_run(tmp_path / "elsewhere", [400], state=False)
    flip(tmp_path / "elsewhere" / "model.ckpt-400.data-00000-of-00001", -1)
    write_state(logdir, "model.ckpt-300", str(tmp_path / "elsewhere" / "model.ckpt-400"))
    recovery = CheckpointStore(logdir).newest_usable()
    assert recovery.chosen.step == 300
    assert [item.reason for item in recovery.skipped] == [
        "model.ckpt-400: it does not verify; it lies outside of the logdir, so no more is said of it"
    ]


def test_a_name_of_ones_own_in_the_logdir(logdir: Path, writer: Any, write_state: Any, steps_of: Any) -> None:
    """The state file may name a checkpoint that is called otherwise."""
    writer.write_bundle(logdir / "best-250", {"global_step": writer.step(250)})
    write_state(logdir, "model.ckpt-300", "best-250")
    assert steps_of(CheckpointStore(logdir)) == [250, 300, 200, 100]


def test_a_basename_with_directories(tmp_path: Path, writer: Any, steps_of: Any) -> None:
    """Checkpoints below the logdir are found there; the state file stays in the logdir and says where."""
    writer.write_run(tmp_path / "run" / "ckpt", [5, 6], basename="m", state=False)
    store = CheckpointStore(tmp_path / "run", "ckpt/m")
    assert steps_of(store) == [6, 5]
    store.record(str(tmp_path / "run" / "ckpt" / "m-6"))
    assert 'model_checkpoint_path: "ckpt/m-6"' in (tmp_path / "run" / "checkpoint").read_text()
    assert [item.source for item in store.candidates()] == ["state", "disk"]


@pytest.mark.parametrize("basename", ["", "a/", "../m", "/m", "a/../../m"])
def test_a_basename_outside_the_logdir_is_refused(basename: str) -> None:
    """Checkpoints are kept in the logdir, or none of the promises about it hold."""
    with pytest.raises(ValueError, match="expected a name, or a path that stays below the logdir"):
        CheckpointStore("/logs", basename)


def test_a_state_file_name_with_directories_is_refused() -> None:
    """The state file is in the logdir."""
    with pytest.raises(ValueError, match="expected a name without directories"):
        CheckpointStore("/logs", latest_filename="a/checkpoint")


def test_a_logdir_that_cannot_be_listed_is_no_new_run(logdir: Path, failing_filesystem: Any) -> None:
    """Where nothing can be seen, nothing is concluded: an error, rather than a start at step 0."""
    filesystem = failing_filesystem(list_names=("run", PermissionError(13, "Permission denied")))
    with pytest.raises(CheckpointError, match=r"The checkpoints in .* cannot be listed"):
        CheckpointStore(logdir, filesystem=filesystem).newest_usable()


def test_a_logdir_that_vanishes_while_it_is_read(logdir: Path) -> None:
    """A run whose directory is deleted while it is being verified does not start over."""

    def check(path: str) -> bundle.VerifiedCheckpoint:
        shutil.rmtree(logdir, ignore_errors=True)
        return bundle.verify(path)

    with pytest.raises(NoUsableCheckpointError):
        CheckpointStore(logdir).newest_usable(verify=check)


def test_a_file_in_place_of_the_logdir(tmp_path: Path) -> None:
    """A logdir that is a file is an error that says so."""
    (tmp_path / "run").write_text("")
    with pytest.raises(CheckpointError, match="Not a directory"):
        CheckpointStore(tmp_path / "run").newest_usable()


def test_a_state_file_that_may_not_be_read(logdir: Path, failing_filesystem: Any) -> None:
    """The checkpoints are found on disk, and what is wrong with the state file is said."""
    filesystem = failing_filesystem(read=("checkpoint", PermissionError(13, "Permission denied")))
    recovery = CheckpointStore(logdir, filesystem=filesystem).newest_usable()
    assert recovery.chosen.step == 300
    assert recovery.state_problem == "the state file 'checkpoint' cannot be read: Permission denied"
