"""Retention survives a kill at any moment: the next session deletes what was let go, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.ledger import DIRECTORY, newest_attempt
from supervisor_core.checkpoint.store import CheckpointStore

Session = Callable[..., int]


@pytest.fixture(scope="module")
def run_session(module_at: Callable[[str], ModuleType], writer: ModuleType) -> Session:
    """Returns a function that runs a session in a process of its own, killed before a change; returns the signal."""
    saves = module_at("checkpoint/saves.py")

    def run(logdir: Path, attempt: int, *steps: int, kill_at: int = 0, restored: str | None = None) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                subject = saves.Run(str(logdir), Publisher(session=f"s{attempt}", attempt=attempt), writer, restored)
                saves.Killer(kill_at)
                for step in steps:
                    subject.save(step, 1_000_000.0 + step)
            except BaseException as error:
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    return run


@pytest.fixture(scope="module")
def saved_three(tmp_path_factory: pytest.TempPathFactory, run_session: Session) -> Path:
    """A logdir after a first session that saved 10, 20 and 30: to be copied."""
    logdir = tmp_path_factory.mktemp("saved")
    assert run_session(logdir, 1, 10, 20, 30) == 0
    assert on_disk(logdir) == files(10, 20, 30)
    return logdir


@pytest.fixture(scope="module")
def cut_short(
    tmp_path_factory: pytest.TempPathFactory, run_session: Session, saved_three: Path
) -> Mapping[frozenset[str], Path]:
    """Logdirs where a kill came between the state file and the end of the deletion, by what of step 10 is deleted."""
    found = {}
    for kill_at in KILLS:
        logdir = copied(saved_three, tmp_path_factory.mktemp("killed"))
        run_session(logdir, 2, 40, kill_at=kill_at)
        if "model.ckpt-40" in (CheckpointStore(logdir).named() or ()):
            found.setdefault(frozenset(files(10) - on_disk(logdir)), logdir)
    return found


@pytest.fixture
def session(tmp_path: Path, run_session: Session) -> Session:
    """Returns a function that runs a session in this test's logdir."""
    return partial(run_session, tmp_path)


KILLS = range(1, 16)
"""More changes than a save makes; a kill that never comes is a session that ends."""


def copied(logdir: Path, to: Path) -> Path:
    """A copy with the same times."""
    return shutil.copytree(logdir, to, dirs_exist_ok=True)


def on_disk(logdir: Path) -> set[str]:
    """What there is of checkpoints, staged ones included."""
    return {path.name for path in logdir.glob("model.ckpt-*")}


def files(*steps: int) -> set[str]:
    """The files of these checkpoints."""
    return {f"model.ckpt-{step}{ending}" for step in steps for ending in (".index", ".data-00000-of-00001")}


def steps_of(names: set[str]) -> list[int]:
    """The steps of whole checkpoints."""
    return sorted(int(name[len("model.ckpt-") : -len(".index")]) for name in names if name.endswith(".index"))


@pytest.mark.parametrize("kill_at", KILLS)
def test_a_kill_at_any_change_leaks_nothing(tmp_path: Path, session: Session, saved_three: Path, kill_at: int) -> None:
    """Whatever the moment: after the next session's save the newest three are there, and not a file of any other."""
    copied(saved_three, tmp_path)
    was_killed = session(2, 40, 50, kill_at=kill_at) == signal.SIGKILL
    CheckpointStore(tmp_path, publisher=Publisher(session="s3", attempt=3)).finish_moves()
    there = steps_of(on_disk(tmp_path))
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert recovery.chosen.step == there[-1], "what is whole and newest is resumed from"
    assert recovery.state_problem is None
    assert was_killed or there == [30, 40, 50]
    assert session(3, 60) == 0
    left = [step for step in there if step != 60][-2:]
    whole = steps_of(on_disk(tmp_path))
    assert whole == [*left, 60]
    assert on_disk(tmp_path) == files(*whole)
    assert len(list((tmp_path / DIRECTORY).iterdir())) == 1


@pytest.mark.parametrize("kill_at", KILLS)
def test_a_kill_while_a_step_is_saved_again(tmp_path: Path, session: Session, saved_three: Path, kill_at: int) -> None:
    """Whatever the moment, the checkpoint of that name is whole once the next session begins: the old one or the new
    one; and nothing staged stays."""
    copied(saved_three, tmp_path)
    session(2, 30, kill_at=kill_at)
    CheckpointStore(tmp_path, publisher=Publisher(session="s3", attempt=3)).finish_moves()
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert (recovery.chosen.step, recovery.skipped) == (30, ())
    assert session(4, 40) == 0
    assert on_disk(tmp_path) == files(20, 30, 40)


def test_kill_after_kill_leaks_nothing(tmp_path: Path, session: Session) -> None:
    """Session after session, each killed in the midst of a save: the next one that is not leaves three checkpoints."""
    step = 0
    for attempt in range(1, 18):  # each of the moments once
        session(attempt, step + 1, step + 2, kill_at=3 + 7 * attempt % 17)
        step += 2
    assert session(18, step + 1) == 0
    whole = steps_of(on_disk(tmp_path))
    assert len(whole) == 3
    assert whole[-1] == step + 1
    assert on_disk(tmp_path) == files(*whole)


@pytest.fixture
def interrupted(tmp_path: Path, cut_short: Mapping[frozenset[str], Path]) -> set[str]:
    """This test's logdir, where a kill came between state file and deletion; returns what there is of checkpoints."""
    return on_disk(copied(cut_short[frozenset()], tmp_path))


def test_a_deletion_that_was_cut_short_is_finished(
    tmp_path: Path, session: Session, cut_short: Mapping[frozenset[str], Path]
) -> None:
    """Killed between the index and the data of an old checkpoint, its data is deleted by the next session."""
    copied(cut_short[frozenset({"model.ckpt-10.index"})], tmp_path)
    session(3, 50)
    assert on_disk(tmp_path) == files(30, 40, 50)


def test_what_was_let_go_is_deleted(tmp_path: Path, session: Session, interrupted: set[str]) -> None:
    """Killed between state file and deletion: the next session deletes it, before its own first save."""
    session(3, 50)
    assert on_disk(tmp_path) == files(30, 40, 50)


def test_what_another_writer_made_since_then_stays(tmp_path: Path, session: Session, interrupted: set[str]) -> None:
    """A checkpoint of that name that was written after it was let go is another one."""
    for name in files(10):
        written = (tmp_path / name).stat().st_mtime + 1
        os.utime(tmp_path / name, (written, written))
    session(3, 50)
    assert on_disk(tmp_path) == files(10, 30, 40, 50)


def test_what_a_state_file_names_stays(
    tmp_path: Path, session: Session, interrupted: set[str], write_state: Any
) -> None:
    """Somebody has gone back to it by editing the state file: it is resumed from, and kept."""
    write_state(tmp_path, "model.ckpt-30", "model.ckpt-10")
    assert chosen_in(tmp_path) == (10, "state")
    session(3, 50)
    assert files(10, 50) <= on_disk(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100, b"garbage {"], ids=["missing", "empty", "zeros", "torn"])
def test_nothing_is_deleted_without_a_good_state_file(
    tmp_path: Path, session: Session, interrupted: set[str], content: bytes | None
) -> None:
    """Missing or damaged, it does not prove that anything is garbage."""
    (tmp_path / "checkpoint").unlink()
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)
    session(3, 50)
    assert on_disk(tmp_path) == interrupted | files(50)


def test_nothing_is_deleted_before_the_next_checkpoint_counts(
    tmp_path: Path, session: Session, interrupted: set[str]
) -> None:
    """What was let go may be all that is left that is whole."""
    for kill_at in range(1, 7):
        assert session(2 + kill_at, 50, kill_at=kill_at) == signal.SIGKILL
        assert interrupted <= on_disk(tmp_path)


def test_what_was_restored_is_not_deleted(tmp_path: Path, session: Session, interrupted: set[str]) -> None:
    """All that the state file names was damaged, and what had been let go was resumed from: it stays."""
    session(3, 50, restored="model.ckpt-10")
    assert files(10, 50) <= on_disk(tmp_path)


def chosen_in(logdir: Path) -> tuple[int | None, str]:
    """The step of the checkpoint that is resumed from, and where it is named."""
    chosen = CheckpointStore(logdir).newest_usable().chosen
    return chosen.step, chosen.source


def test_a_state_file_that_was_edited_counts(tmp_path: Path, saved_three: Path) -> None:
    """Going back on purpose: the path was changed by hand, the comment was left as it was."""
    copied(saved_three, tmp_path)
    state = tmp_path / "checkpoint"
    state.write_text(
        state.read_text().replace('model_checkpoint_path: "model.ckpt-30"', 'model_checkpoint_path: "model.ckpt-10"', 1)
    )
    assert chosen_in(tmp_path) == (10, "state")


def test_a_later_attempt_wins_over_the_state_file_of_an_earlier_one(tmp_path: Path, session: Session) -> None:
    """A chief that had been taken over replaced the state file last: nothing goes back, and the reason is said."""
    session(1, 10, 20)
    stale = (tmp_path / "checkpoint").read_bytes()
    session(2, 30, 40)
    (tmp_path / "checkpoint").write_bytes(stale)
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert (recovery.chosen.step, recovery.chosen.source) == (40, "ledger")
    assert "names model.ckpt-20, saved by attempt 1, though attempt 2 has saved model.ckpt-40" in recovery.state_problem
    session(3, 50)
    assert on_disk(tmp_path) == files(30, 40, 50)


def test_without_liveness_and_ledger_numbers_go_on(tmp_path: Path, session: Session, run_session: Session) -> None:
    """Somebody has deleted both: the state file still says which attempt wrote it, and no number is given twice. So a
    checkpoint is resumed from that was in its place when the process was killed before the next state file."""
    session(7, 10, 20)
    shutil.rmtree(tmp_path / DIRECTORY)
    attempt = newest_attempt(tmp_path) + 1
    assert attempt == 8
    for kill_at in KILLS:
        logdir = tmp_path / f"killed-{kill_at}"
        shutil.copytree(tmp_path, logdir, ignore=shutil.ignore_patterns("killed-*"))
        run_session(logdir, attempt, 30, kill_at=kill_at)
        if files(30) <= on_disk(logdir) and "model.ckpt-30" not in (CheckpointStore(logdir).named() or ()):
            break
    assert chosen_in(logdir) == (30, "ledger")


def test_a_later_attempt_that_is_damaged_does_not_win(tmp_path: Path, session: Session) -> None:
    """Only a whole checkpoint does: the walk goes back to the next one."""
    session(1, 10, 20)
    stale = (tmp_path / "checkpoint").read_bytes()
    session(2, 30, 40)
    (tmp_path / "checkpoint").write_bytes(stale)
    (tmp_path / "model.ckpt-40.data-00000-of-00001").write_bytes(b"cut")
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert recovery.chosen.step == 30
    assert [os.path.basename(item.path) for item in recovery.skipped] == ["model.ckpt-40"]


def test_an_earlier_attempt_of_a_higher_step_stays_chosen(tmp_path: Path, session: Session) -> None:
    """A later attempt that has not come as far yet is no reason to go back."""
    session(1, 10, 20)
    session(2, 12, 14, kill_at=0)
    state = tmp_path / "checkpoint"
    state.write_text('model_checkpoint_path: "model.ckpt-20"\n# supervisor_core: attempt 1, save 2: "model.ckpt-20"\n')
    assert chosen_in(tmp_path)[0] == 20
