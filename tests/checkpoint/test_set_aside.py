"""Damaged checkpoints are moved out of the way with their reason, wholly, and by one move back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import NoUsableCheckpointError
from supervisor_core.checkpoint.ledger import DIRECTORY, LedgerPage, PlannedDeletion, SavedAs, encode
from supervisor_core.checkpoint.search import find_stores
from supervisor_core.checkpoint.set_aside import NOTE, SetAside
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.storage.local import filesystem_for

FILES = ["model.ckpt-300.data-00000-of-00001", "model.ckpt-300.index"]


def names(directory: Path) -> list[str]:
    """Return the names in a directory, in order."""
    return sorted(path.name for path in directory.iterdir())


def prefix(logdir: Path, step: int = 300) -> str:
    """Return the path of a checkpoint."""
    return str(logdir / f"model.ckpt-{step}")


def test_all_its_files_are_moved_with_the_reason(logdir: Path, clock_at: Any) -> None:
    """It is in a directory of its own, with a note of when and why, and is a checkpoint no more."""
    store = CheckpointStore(logdir)
    aside = store.set_aside(prefix(logdir), "tensor 'w' was altered", clock=clock_at(1_700_000_000.25))
    assert aside.path == prefix(logdir) + ".damaged"
    assert names(Path(aside.path)) == [*FILES, NOTE]
    assert (Path(aside.path) / NOTE).read_text() == "2023-11-14T22:13:20.250+00:00\ntensor 'w' was altered\n"
    [listed] = store.all_set_aside()
    assert (listed.path, listed.name, listed.step) == (aside.path, "model.ckpt-300", 300)
    assert (listed.at, listed.reason) == (1_700_000_000.25, "tensor 'w' was altered")
    assert [item.found for item in store.candidates()] == [False, True, True]
    assert [saved.path for saved in store.history().kept] == [prefix(logdir, 100), prefix(logdir, 200)]


def test_it_is_no_run(logdir: Path) -> None:
    """A search for runs does not take the directory for one."""
    CheckpointStore(logdir).set_aside(prefix(logdir), "damaged")
    filesystem, top = filesystem_for(logdir)
    assert [run.run for run in find_stores(filesystem, top, on_error=pytest.fail)] == [str(logdir)]


def test_the_same_step_twice(logdir: Path, writer: Any) -> None:
    """A checkpoint of a name that was set aside before gets a directory of its own; the first stays as it was."""
    store = CheckpointStore(logdir)
    store.set_aside(prefix(logdir), "first")
    writer.write_run(logdir, [300], state=False)
    aside = store.set_aside(prefix(logdir), "second")
    assert aside.path == prefix(logdir) + ".damaged-2"
    assert sorted(item.reason for item in store.all_set_aside()) == ["first", "second"]
    assert names(logdir / "model.ckpt-300.damaged") == [*FILES, NOTE]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_an_interrupted_move_is_finished(logdir: Path, failing_filesystem: Any, moved: int) -> None:
    """Whichever file a move was interrupted at: no half checkpoint is restored, and no file is lost."""
    ending = [FILES[1], FILES[0], "nothing"][moved]
    filesystem = failing_filesystem(move=(ending, OSError(5, "Input/output error")))
    store = CheckpointStore(logdir, filesystem=filesystem)
    if moved < 2:
        with pytest.raises(OSError, match="Input/output"):
            store.set_aside(prefix(logdir), "damaged")
    else:
        store.set_aside(prefix(logdir), "damaged")
    store = CheckpointStore(logdir)
    store.sweep_leftovers()
    if not moved:  # not begun: it is still where it was, and the next session finds it damaged again
        store.set_aside(prefix(logdir), "damaged")
    assert names(logdir / "model.ckpt-300.damaged") == [*FILES, NOTE]
    assert [path for path in names(logdir) if "300" in path] == ["model.ckpt-300.damaged"]


def test_nothing_but_checkpoints_is_moved(logdir: Path, tmp_path: Path, writer: Any) -> None:
    """Whatever a state file may call a checkpoint: other files, directories and what lies elsewhere stay."""
    (logdir / "graph.pbtxt").write_text("")
    (logdir / "sub").mkdir()
    writer.write_run(tmp_path / "elsewhere", [9])
    before = names(logdir), names(tmp_path / "elsewhere")
    store = CheckpointStore(logdir)
    for path in ("checkpoint", "graph.pbtxt", "sub", ".", "gone-5"):
        assert store.set_aside(str(logdir / path), "damaged") is None
    assert store.set_aside(str(tmp_path / "elsewhere" / "model.ckpt-9"), "damaged") is None
    assert store.set_aside(str(logdir / "gone" / "model.ckpt-9"), "damaged") is None
    assert (names(logdir), names(tmp_path / "elsewhere")) == before


def test_a_directory_of_such_a_name_is_left_alone(logdir: Path) -> None:
    """Without the note it is somebody else's, and is not shown."""
    (logdir / "model.ckpt-300.damaged").mkdir()
    (logdir / "model.ckpt-300.damaged" / "notes").write_text("mine")
    store = CheckpointStore(logdir)
    assert store.all_set_aside() == []
    aside = store.set_aside(prefix(logdir), "damaged")
    assert os.path.basename(aside.path) == "model.ckpt-300.damaged-2"


def test_data_without_an_index_is_listed_and_newer_ones_are_skipped(logdir: Path) -> None:
    """What lost its index is no checkpoint: newer than the one that is chosen, it is passed over with that reason."""
    (logdir / "checkpoint").unlink()
    (logdir / "model.ckpt-300.index").unlink()
    (logdir / "model.ckpt-100.index").unlink()
    store = CheckpointStore(logdir)
    assert [item.path for item in store.listed().remains] == [prefix(logdir, 300), prefix(logdir, 100)]
    recovery = store.newest_usable()
    assert recovery.chosen.step == 200
    assert [item.path for item in recovery.skipped] == [prefix(logdir, 300)]
    (logdir / "model.ckpt-200.index").unlink()
    with pytest.raises(NoUsableCheckpointError, match="None of the 3 checkpoints"):
        store.newest_usable()
    recovery = store.newest_usable(start_over=True)
    assert (recovery.chosen, len(recovery.skipped)) == (None, 3)


def test_what_was_let_go_is_no_checkpoint_without_an_index(logdir: Path) -> None:
    """A deletion that a kill has interrupted, index first, is no damage: the ledger has it."""
    (logdir / "model.ckpt-100.index").unlink()
    store = CheckpointStore(logdir)
    (logdir / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-300"\n')
    assert [item.path for item in store.listed().remains] == [prefix(logdir, 100)]
    saved = SavedAs("model.ckpt-300", 1, 3, 3.0)
    page = LedgerPage(session="a", attempt=1, saved=(saved,), deletions=(PlannedDeletion("model.ckpt-100", {}),))
    (logdir / DIRECTORY).mkdir()
    (logdir / DIRECTORY / "attempt-000001-a-model.ckpt.json").write_bytes(encode(page))
    assert store.listed().remains == ()


def test_names_that_count_something_else_are_no_damage(tmp_path: Path, writer: Any, write_state: Any) -> None:
    """Names by examples seen, steps inside: the state file's choice is followed, though its step is not the name's."""
    for examples, step in ((3200, 50), (6400, 100)):
        writer.write_bundle(tmp_path / f"model.ckpt-{examples}", {"global_step": writer.step(step)})
    for chosen in ("model.ckpt-6400", "model.ckpt-3200"):
        write_state(tmp_path, "model.ckpt-3200", "model.ckpt-6400", chosen=chosen)
        recovery = CheckpointStore(tmp_path).newest_usable()
        assert os.path.basename(recovery.chosen.path) == chosen
        assert recovery.skipped == ()


def test_files_that_are_not_this_runs_stay(logdir: Path, clock_at: Any) -> None:
    """A directory that looks like an interrupted move takes neither a program nor another run's files with it."""
    for name in ("train.py", "other-5.data-00000-of-00001", "other-5.meta"):
        (logdir / name).write_bytes(b"mine")
    for name in ("train.py", "other-5"):
        made = logdir / f"{name}.damaged"
        made.mkdir()
        (made / NOTE).write_text("2020-01-01T00:00:00+00:00\nmine\n")
        (made / f"{name}.index").write_bytes(b"mine")
    before = names(logdir)
    store = CheckpointStore(logdir)
    store.sweep_leftovers(alone=True)
    assert names(logdir) == before
    assert store.own_set_aside() == []


def test_nothing_is_moved_through_a_link(logdir: Path, tmp_path: Path) -> None:
    """Nor is what a link leads to deleted."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / NOTE).write_text("2020-01-01T00:00:00+00:00\nmine\n")
    (elsewhere / "model.ckpt-300.index").write_bytes(b"mine")
    (logdir / "model.ckpt-300.index").unlink()
    (logdir / "model.ckpt-300.damaged").symlink_to(elsewhere)
    before = names(logdir), names(elsewhere)
    store = CheckpointStore(logdir)
    store.sweep_leftovers(alone=True)
    assert (names(logdir), names(elsewhere)) == before
    assert store.own_set_aside() == store.all_set_aside() == []
    linked = SetAside(path=str(logdir / "model.ckpt-300.damaged"), name="model.ckpt-300", step=300, at=1.0, reason="")
    with pytest.raises(OSError, match="symbolic link"):
        store.delete_set_aside(linked)
    assert names(elsewhere) == before[1]
