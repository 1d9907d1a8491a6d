"""What every facade does with its checkpoints when a training goes wrong: the same programs, facade by facade.

`facade_program.py` is the training; it runs in a process of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from trial import NEEDS, Train, run_of

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.set_aside import REWOUND
from supervisor_core.cli import main
from supervisor_core.run.judge.finding_subject import Subject
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.logdir_watch import LogdirWatch

ALL = list(NEEDS)
ONE_OF_EACH = ("supervise", "lightning", "keras", "transformers", "Supervisor", "MonitoredTrainingSession")
"""Facades that begin, save and end in ways of their own."""
pytestmark = pytest.mark.timeout(900)  # frameworks are loaded in each process


def there(run: Run) -> list[int | None]:
    """The steps of the checkpoints on disk."""
    return [item.step for item in run.checkpoints if item.ok and item.status.startswith("on disk")]


def is_whole(path: str) -> bool:
    """Read every byte of a checkpoint, of either kind."""
    if os.path.isdir(path):
        SealedFiles(path, read_manifest(path)).verify()
    else:
        bundle.verify(path)
    return True


def inspected(logdir: Path) -> str:
    """What `tb-supervisor inspect` shows of the one run."""
    return CliRunner().invoke(main, ["inspect", "--run", ".", str(logdir)]).output


def damage(path: str) -> str:
    """Cut the largest file of a checkpoint; return its name."""
    files = [item for item in Path(path).parent.glob(f"{Path(path).name}*") if item.suffix != ".meta"]
    (whole,) = [Path(path)] if os.path.isdir(path) else [item for item in files if ".data-" in item.name]
    largest = max(
        whole.rglob("*") if whole.is_dir() else [whole], key=lambda file: file.stat().st_size * file.is_file()
    )
    os.truncate(largest, largest.stat().st_size - 1)
    return largest.name


@pytest.mark.parametrize("facade", ONE_OF_EACH, indirect=True)
def test_a_training_that_has_gone_wrong_keeps_its_last_good_checkpoint(
    tmp_path: Path, train: Train, facade: str
) -> None:
    """NaN from the tenth step on, and nothing stops it: besides the two newest, which are in doubt, the last one before
    is on disk and whole. The record, `inspect` and the log say which are in doubt, and why."""
    done = train(facade, tmp_path, 20, nan_at=9)
    assert done.stdout.endswith("the end\n"), done.stderr
    run = run_of(tmp_path)
    assert there(run) == [8, 18, 20]
    doubts = {item.step: item.doubt for item in run.checkpoints if item.ok}
    assert all((doubt is not None) == ((step or 0) > 8) for step, doubt in doubts.items())
    assert all("There is NaN in" in doubt for doubt in doubts.values() if doubt is not None)
    good = run.last_good
    assert good is not None and good.step == 8 and is_whole(good.moved_to or good.path or "")
    shown = inspected(tmp_path)
    assert re.search(r"tb-supervisor rewind -- \S+-8\b|\S+-8, of step 8\.", " ".join(shown.split())), shown
    assert "on disk; in doubt: " in shown and re.search(r"WARNING The checkpoint \S+-20 is in doubt: ", done.stderr)


@pytest.mark.parametrize("facade", ONE_OF_EACH, indirect=True)
def test_after_the_command_of_its_finding_it_goes_on_from_there(tmp_path: Path, train: Train, facade: str) -> None:
    """`rewind`, as the training that died of it is told to: the next start resumes at step 8, and nothing is gone."""
    train(facade, tmp_path, 20, nan_at=9)
    before = run_of(tmp_path)
    subject = Subject(LogdirWatch(str(tmp_path)).refresh().runs["."], time.time(), Thresholds())
    assert before.last_good is not None
    words = shlex.split(subject.rewind(before.last_good) or "")
    done = CliRunner().invoke(main, words[1:])
    assert done.exit_code == 0 and done.output.count("Moved ") == 2, done.output
    said = train(facade, tmp_path, 22)
    assert run_of(tmp_path).sessions[-1].restored_step == 8, said.stderr
    assert len(list(tmp_path.rglob(f"{REWOUND}*"))) == 2


@pytest.mark.parametrize("facade", ONE_OF_EACH, indirect=True)
def test_a_crash_loop_does_not_lose_it(tmp_path: Path, train: Train, facade: str) -> None:
    """With a check that raises after the fourth step with a loss of NaN, and what is saved after an error as the newest
    checkpoint: each launch resumes from a spoiled one, and gets further."""
    while (done := train(facade, tmp_path, 22, nan_at=9, raises=4, save_on_error=1)).returncode:
        assert len(run_of(tmp_path).sessions) < 10, done.stderr
    run = run_of(tmp_path)
    assert len(run.sessions) >= 3, done.stderr
    assert all(session.outcome == "error" for session in run.sessions[:-1])
    kept = there(run)
    assert kept[0] == 8 and len(kept) == 3 and min(step or 0 for step in kept[1:]) > 8
    good = run.last_good
    assert good is not None and good.step == 8 and is_whole(good.moved_to or good.path or "")


@pytest.mark.parametrize("facade", ONE_OF_EACH, indirect=True)
def test_a_damaged_newest_checkpoint_is_named(tmp_path: Path, train: Train, facade: str) -> None:
    """In the log at the start, with the reason and what is resumed from instead; then in `inspect`, where it is
    damaged, and set aside, not deleted. A Trainer would take it for its own under another name: there it stays."""
    killed = train(facade, tmp_path, 20, kill_at=11)
    assert killed.returncode == -9, killed.stderr
    newest = run_of(tmp_path).checkpoints[-1].path
    assert newest is not None and newest.endswith("-10")
    file = damage(newest)
    done = train(facade, tmp_path, 12)
    assert done.stdout.endswith("the end\n"), done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("WARNING The checkpoint ")]
    assert f"{Path(newest).name} is damaged: " in line and file in line
    assert re.search(r"\. Resuming from \S+-8 instead\.$", line)
    run = run_of(tmp_path)
    (spoiled,) = [item for item in run.checkpoints if item.damage is not None]
    assert (spoiled.session, spoiled.step) == (run.sessions[0].id, 10) and file in (spoiled.damage or "")
    if facade == "transformers":  # which has saved step 10 again, over it
        return
    assert spoiled.status == f"damaged, set aside: {spoiled.damage}"
    assert "damaged, set aside: " in " ".join(inspected(tmp_path).split())
    again = [item.status for item in run.checkpoints if item.step == 10][-1]
    assert again == "on disk"


@pytest.mark.parametrize("facade", [name for name in ALL if NEEDS[name] != "tensorflow"], indirect=True)
def test_a_save_within_a_step(tmp_path: Path, train: Train, facade: str) -> None:
    """One that the program asks for when the update is made, and the step not counted, is of the step's end: what is
    resumed from it ends with the weights of a training that nothing has interrupted."""

    def weights(done: subprocess.CompletedProcess[str]) -> str:
        (found,) = re.findall(r"(?m)^weights .*$", done.stdout)
        return str(found)

    truth = weights(train(facade, tmp_path / "truth", 12))
    run = tmp_path / "run"
    killed = train(facade, run, 12, every=100, save_at=5, kill_at=9)
    assert killed.returncode == -9, killed.stderr
    (saved,) = run_of(run).checkpoints
    assert saved.trigger == "manual" and saved.step in (6, 7)  # a Trainer's other callbacks come after the step's end
    done = train(facade, run, 12)
    assert weights(done) == truth, done.stderr


IN_LOGDIR = ("transformers", "MonitoredTrainingSession")


@pytest.mark.parametrize("facade", [name for name in ONE_OF_EACH if name not in IN_LOGDIR], indirect=True)
def test_a_directory_that_is_away_for_a_while(tmp_path: Path, train: Train, facade: str) -> None:
    """A file in its place, as a mount that is gone may look: training goes on, each save that fails is recorded and
    shown, and the first one after it succeeds."""
    done = train(facade, tmp_path, 20, file_at=5)
    assert done.stdout.endswith("the end\n"), done.stderr
    run = run_of(tmp_path)
    assert run.state == "completed"
    failed = [item for item in run.checkpoints if not item.ok]
    assert {item.step for item in failed} >= {6, 8, 10} and all(item.error for item in failed)
    assert there(run) == [18, 20]
    assert "failed: " in inspected(tmp_path) and "failed: " in done.stderr


@pytest.mark.parametrize("facade", [name for name in ONE_OF_EACH if name not in IN_LOGDIR], indirect=True)
def test_a_directory_that_cannot_be_listed_is_no_new_run(tmp_path: Path, train: Train, facade: str) -> None:
    """At a start it is an error that names it and says what is in the way: nothing starts at step 0."""
    done = train(facade, tmp_path, 4)
    assert done.stdout.endswith("the end\n"), done.stderr
    (tmp_path / "checkpoints").rename(tmp_path / "away")
    (tmp_path / "checkpoints").write_text("a file where the directory was")
    if facade == "Supervisor":  # the program makes the directory
        return
    done = train(facade, tmp_path, 6)
    assert done.returncode == 1
    assert f"{tmp_path / 'checkpoints'} cannot be written: " in done.stderr
    assert any("checkpoints" in (item.error or "") for item in run_of(tmp_path).sessions)
