"""`tb-supervisor rewind` lets the next start resume from an earlier checkpoint, and deletes nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from supervisor_core.checkpoint.guard import LOCK_NAME
from supervisor_core.checkpoint.set_aside import MAX_SET_ASIDE, REWOUND
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.run.judge.finding_subject import Subject
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import LocalFilesystem
from supervisor_core.training import supervise

Run = Callable[..., Result]


@pytest.fixture
def logdir(tmp_path: Path, writer: Any) -> Path:
    """A run with TensorFlow's checkpoints at steps 100, 200 and 300."""
    writer.write_run(tmp_path / "run", [100, 200, 300])
    return tmp_path / "run"


def chosen(logdir: Path) -> str:
    """What a start resumes from."""
    found = CheckpointStore(logdir).newest_usable()
    assert found.chosen is not None and found.skipped == () and found.state_problem is None
    return os.path.basename(found.chosen.path)


def everything(logdir: Path) -> set[tuple[str, bytes]]:
    """Names and content of the checkpoints' files, wherever they are."""
    files = (path for path in logdir.rglob("*ckpt-*") if path.is_file())
    return {(path.name, path.read_bytes()) for path in files}


@pytest.mark.parametrize("ending", ["", ".index"])
def test_checkpoints_of_tensorflow(run: Run, logdir: Path, ending: str) -> None:
    """The state file names the one that was asked for, those after it have another name, and all files are there."""
    before = everything(logdir)
    done = run("rewind", logdir / f"model.ckpt-100{ending}")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        f"Moved model.ckpt-300 to {logdir}/rewound-model.ckpt-300\n"
        f"Moved model.ckpt-200 to {logdir}/rewound-model.ckpt-200\n"
        f"The next start in {logdir} resumes from model.ckpt-100.\n"
    )
    assert chosen(logdir) == "model.ckpt-100" and everything(logdir) == before
    assert run("verify", logdir).exit_code == 0


def test_again_and_back(run: Run, logdir: Path) -> None:
    """A second time it changes nothing; to undo it, files are moved back, and the newest one is chosen by its path."""
    run("rewind", logdir / "model.ckpt-200")
    done = run("rewind", logdir / "model.ckpt-200")
    assert done.stdout == f"The next start in {logdir} resumes from model.ckpt-200, as before.\n"
    for path in (logdir / "rewound-model.ckpt-300").glob("model.ckpt-*"):
        path.rename(logdir / path.name)
    assert run("rewind", logdir / "model.ckpt-300").exit_code == 0
    assert chosen(logdir) == "model.ckpt-300"


def test_one_that_is_trained_again_is_moved_beside_the_first(run: Run, logdir: Path, writer: Any) -> None:
    """Each gets a name of its own, and a session that sets damaged ones aside deletes none of them."""
    for _ in range(MAX_SET_ASIDE + 2):
        assert run("rewind", logdir / "model.ckpt-200").exit_code == 0
        writer.write_run(logdir, [100, 200, 300])
    names = {path.name for path in logdir.glob(f"{REWOUND}*")}
    assert names == {f"rewound-{number}model.ckpt-300" for number in ("", *(f"{n}-" for n in range(2, 8)))}
    store = CheckpointStore(logdir)
    assert store.own_set_aside() == [] and len(store.all_set_aside()) == MAX_SET_ASIDE + 2


def test_below_the_logdir(run: Run, tmp_path: Path, writer: Any) -> None:
    """The state file of the logdir counts, where the checkpoints are in a directory of their own."""
    writer.write_run(tmp_path, [1, 2])
    inner = tmp_path / "saved"
    inner.mkdir()
    for path in tmp_path.glob("model.ckpt*"):
        path.rename(inner / path.name)
    state = (tmp_path / "checkpoint").read_text().replace('"model', '"saved/model')
    (tmp_path / "checkpoint").write_text(state)
    assert f"The next start in {tmp_path} " in run("rewind", inner / "model.ckpt-1").stdout
    found = CheckpointStore(tmp_path, "saved/model.ckpt").newest_usable()
    assert found.chosen is not None and found.chosen.path == f"{inner}/model.ckpt-1" and found.skipped == ()


def trained(logdir: Path, steps: int) -> None:
    """Save each step of a training."""
    with supervise(logdir, save_secs=None, save_steps=1, max_to_keep=9) as training:
        for _ in training.steps(steps):
            training.wait_until_saved()


def test_sealed_checkpoints(run: Run, tmp_path: Path) -> None:
    """The next session of `supervise` resumes from it, by its number among the sessions too: an earlier session's."""
    trained(tmp_path, 4)
    trained(tmp_path, 6)
    saved = tmp_path / "checkpoints"
    assert run("rewind", saved / "ckpt-3").exit_code == 0
    assert {path.name for path in saved.iterdir()} == {
        "ckpt-1", "ckpt-2", "ckpt-3", "rewound-ckpt-4", "rewound-ckpt-5", "rewound-ckpt-6",
    }  # fmt: skip
    with supervise(tmp_path, save_secs=None) as training:
        assert training.restored == str(saved / "ckpt-3")


def test_the_last_good_one_of_a_framework_gets_its_name_again(run: Run, tmp_path: Path) -> None:
    """A Trainer looks for no other."""
    trained(tmp_path, 3)
    saved = tmp_path / "checkpoints"
    (saved / "ckpt-1").rename(saved / "last-good-ckpt-1")
    done = run("rewind", f"{saved}/last-good-ckpt-1/")
    assert done.stdout.endswith("resumes from ckpt-1.\n")
    assert {path.name for path in saved.iterdir()} == {"ckpt-1", "rewound-ckpt-2", "rewound-ckpt-3"}


def test_while_it_trains_nothing_is_moved(run: Run, tmp_path: Path) -> None:
    """The training would save on: who it is, and what to do, is said; status 2."""
    with supervise(tmp_path, save_secs=None, save_steps=1) as training:
        for _ in training.steps(3):
            training.wait_until_saved()
        done = run("rewind", tmp_path / "checkpoints" / "ckpt-1")
        assert done.exit_code == 2 and f"The logdir {tmp_path} is in use by " in done.stderr
        assert done.stderr.endswith("Stop the training first.\n")
        assert (tmp_path / "checkpoints" / "ckpt-2").is_dir()


def test_what_cannot_be_resumed_from(run: Run, logdir: Path) -> None:
    """A damaged one, status 1, and one that is not there, status 2; nothing is moved."""
    os.truncate(logdir / "model.ckpt-100.data-00000-of-00001", 700)
    done = run("rewind", logdir / "model.ckpt-100")
    assert done.exit_code == 1 and "Nothing was moved: model.ckpt-100.data-00000-of-00001: it ends " in done.stderr
    done = run("rewind", logdir / "model.ckpt-150")
    assert (done.exit_code, done.stderr) == (2, f"Error: There is no checkpoint {logdir}/model.ckpt-150.\n")
    assert chosen(logdir) == "model.ckpt-300"


@pytest.mark.parametrize("way", ["link", "planted lock", "no lock", "outside"])
def test_no_way_leads_past_the_lock_of_a_training(run: Run, tmp_path: Path, way: str) -> None:
    """A link to the checkpoints, an empty lock beside them, a lock that was deleted, checkpoints of a Trainer outside
    of its logdir: a training that is alive keeps its checkpoints."""
    logdir, saved = tmp_path / "run", tmp_path / "run" / "checkpoints"
    with supervise(logdir, save_secs=None, save_steps=1) as training:
        for _ in training.steps(3):
            training.wait_until_saved()
        training.wait_until_saved()
        asked = saved
        if way == "link":
            asked = tmp_path / "cks"
            asked.symlink_to(saved)
        elif way == "planted lock":
            (saved / LOCK_NAME).touch()
        elif way == "no lock":
            (logdir / LOCK_NAME).unlink()
        else:
            asked = tmp_path / "outside"
            shutil.copytree(saved, asked)
        before = sorted(os.listdir(asked))
        done = run("rewind", asked / "ckpt-1")
        assert done.exit_code == 2 and done.stderr.endswith("Stop the training first.\n"), done.output
        assert sorted(os.listdir(asked)) == before
    assert f"The next start in {tmp_path if way == 'outside' else logdir}" in run("rewind", asked / "ckpt-1").stdout


@pytest.mark.parametrize("moves", range(9))
def test_one_that_was_killed_is_finished_by_the_same_command(run: Run, logdir: Path, moves: int) -> None:
    """After any number of files: none stays beside those that a start looks at, and each checkpoint is whole."""
    for name in ("100", "200", "300"):
        (logdir / f"model.ckpt-{name}.meta").write_bytes(b"graph")
    before = everything(logdir)
    left = moves

    def move(path: str, target: str) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        os.replace(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFilesystem, "move", staticmethod(move))
        run("rewind", logdir / "model.ckpt-100")
    assert run("rewind", logdir / "model.ckpt-100").exit_code == 0
    assert chosen(logdir) == "model.ckpt-100" and everything(logdir) == before
    assert [path.name for path in logdir.glob("model.ckpt-[23]00*")] == []
    assert sorted(len(os.listdir(path)) for path in logdir.glob(f"{REWOUND}*")) == [4, 4]
    assert run("rewind", logdir / "model.ckpt-100").stdout.endswith("resumes from model.ckpt-100, as before.\n")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_others_have_put_there_is_passed_over(run: Run, tmp_path: Path, writer: Any, kind: str) -> None:
    """A link with a later checkpoint's name, from which no start resumes, and names that are taken."""
    (tmp_path / "elsewhere").mkdir()

    def put(path: Path) -> None:
        path.symlink_to(tmp_path / "elsewhere") if kind == "link" else path.touch()

    writer.write_run(tmp_path / "tf", [1, 2])
    put(tmp_path / "tf" / "rewound-model.ckpt-2")
    assert "Moved model.ckpt-2 to" in run("rewind", tmp_path / "tf" / "model.ckpt-1").stdout
    assert chosen(tmp_path / "tf") == "model.ckpt-1" and (tmp_path / "tf" / "rewound-2-model.ckpt-2").is_dir()
    trained(tmp_path / "run", 3)
    saved = tmp_path / "run" / "checkpoints"
    put(saved / "ckpt-999")
    put(saved / "rewound-ckpt-3")
    done = run("rewind", saved / "ckpt-2")
    assert done.exit_code == 0 and (saved / "rewound-2-ckpt-3").is_dir() and os.listdir(tmp_path / "elsewhere") == []
    with supervise(tmp_path / "run", save_secs=None) as training:
        assert training.restored == str(saved / "ckpt-2")


def test_the_last_good_one_again(run: Run, tmp_path: Path) -> None:
    """The command of the finding, a second time: it has its own name by now."""
    trained(tmp_path, 2)
    saved = tmp_path / "checkpoints"
    (saved / "ckpt-1").rename(saved / "last-good-ckpt-1")
    assert run("rewind", saved / "last-good-ckpt-1").exit_code == 0
    assert run("rewind", saved / "last-good-ckpt-1").stdout.endswith("resumes from ckpt-1, as before.\n")


@pytest.mark.parametrize(
    "name", ["gs://bucket/model.ckpt-1", "s3://", "memory://a/model.ckpt-1", "/", "", "..", "/ckpt-1", "a\udcffb-1"]
)
def test_what_is_no_checkpoint_is_said_in_one_line(run: Run, name: str) -> None:
    """Whatever its name, and without a client for its store."""
    done = run("rewind", name)
    assert done.exit_code == 2 and done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1, done.output


def test_a_name_that_is_not_utf_8(run: Run, logdir: Path) -> None:
    """A state file cannot have it."""
    for path in logdir.glob("model.ckpt-300*"):
        path.rename(path.with_name(path.name.replace("model", "m\udcff")))
    done = run("rewind", f"{logdir}/m\udcff.ckpt-300")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.output


def test_after_it_a_run_that_was_moved_is_not_told_to_rewind_again(run: Run, tmp_path: Path) -> None:
    """What was moved to another name is known to be gone, though its record names the earlier directory."""
    trained(tmp_path / "old", 3)
    now = tmp_path / "elsewhere" / "new"
    now.parent.mkdir()
    (tmp_path / "old").rename(now)

    def good_and_later() -> tuple[int | None, bool]:
        watched = LogdirWatch(str(now)).refresh().runs["."]
        (good,) = (item for item in watched.run.checkpoints if item.step == 1)
        return good.step, Subject(watched, time.time(), Thresholds()).has_later(good)

    assert good_and_later() == (1, True)
    assert run("rewind", now / "checkpoints" / "ckpt-1").exit_code == 0
    assert good_and_later() == (1, False)


def test_a_checkpoint_of_the_same_name_is_another_one(run: Run, tmp_path: Path) -> None:
    """What was saved before the command is set aside, what was saved under that name since is as its own files are."""

    def states() -> list[str]:
        checkpoints = LogdirWatch(str(tmp_path)).refresh().runs["."].run.checkpoints
        return [f"{saved.step} {saved.status}" for saved in checkpoints]

    trained(tmp_path, 3)
    saved, aside = tmp_path / "checkpoints", "set aside by rewind"
    run("rewind", saved / "ckpt-1")
    before = ["1 on disk", f"2 {aside}", f"3 {aside}"]
    assert states() == before
    trained(tmp_path, 3)
    assert states() == [*before, "2 on disk", "3 on disk"]
    shutil.rmtree(saved / "ckpt-3")
    assert states() == [*before, "2 on disk", "3 deleted"]
    run("rewind", saved / "ckpt-1")
    assert states() == [*before, f"2 {aside}", "3 deleted"]
