"""The stacks of a program that hangs: from outside, else what its session wrote."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor_core.process.outside import OutsideStacks
from supervisor_core.process.stacks_file import MOST_BYTES, StacksFile, look_text, read_stacks, stacks_path
from supervisor_core.restarter.hang import Hang
from supervisor_core.restarter.hang_stacks import KEPT_FILES, KeptStacks, hang_stacks, suspects

SEEN = OutsideStacks(stacks={"MainThread": ("/x/train.py:88 step",)}, holds_lock="MainThread")
TITLE = (
    "from outside, by py-spy: no progress in phase training for 31 s (hang timeout 30 s); MainThread at train.py:88 in "
    "step; MainThread holds the interpreter's lock"
)
NOTHING = OutsideStacks(problem="py-spy is not installed")


def hang(stacks: Path | None) -> Hang:
    """A hang of a program that has a file of stacks, or none."""
    place = None if stacks is None else str(stacks)
    return Hang(phase="training", secs=31.0, hang_timeout_secs=30.0, act_after_secs=300.0, pid=4711, stacks=place)


def test_stacks_from_outside_are_added_to_those_of_the_session(tmp_path: Path) -> None:
    """Each time, with the place and the holder of the lock in the title."""
    path = stacks_path(tmp_path, "s1")
    file = StacksFile(path, "s1")
    file.add(look_text("no progress for 30 s", 1.0, {}))
    for _ in range(2):
        assert hang_stacks(hang(path), lambda pid: SEEN) == (str(path), None)
    reading = read_stacks(path)
    assert reading is not None and reading.session == "s1"
    assert [look.title for look in reading.looks] == ["no progress for 30 s", TITLE, TITLE]
    assert reading.looks[-1].stacks == SEEN.stacks
    os.truncate(path, MOST_BYTES + 1)
    hang_stacks(hang(path), lambda pid: SEEN)
    reading = read_stacks(path)
    assert reading is not None and len(reading.looks) == 1 and path.stat().st_size < 1000
    file.close(remove=True)


def test_a_program_without_a_session_gets_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the directory in memory. Without stacks there is none."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "memory"))
    asked: list[int] = []
    found, _ = hang_stacks(hang(None), lambda pid: asked.append(pid) or SEEN)  # type: ignore[func-returns-value]
    assert asked == [4711] and found is not None
    reading = read_stacks(Path(found))
    assert reading is not None and reading.pid == 4711 and reading.looks[0].stacks == SEEN.stacks
    assert hang_stacks(hang(None), lambda pid: NOTHING) == (None, NOTHING.problem)


def test_what_the_session_wrote_is_used_where_py_spy_cannot_look(tmp_path: Path) -> None:
    """If it has written any."""
    path = stacks_path(tmp_path, "s1")
    assert hang_stacks(hang(path), lambda pid: NOTHING)[0] is None
    file = StacksFile(path, "s1")
    assert hang_stacks(hang(path), lambda pid: NOTHING)[0] is None
    file.add(look_text("no progress for 30 s", 1.0, {"MainThread": ("a.py:1 f",)}))
    assert hang_stacks(hang(path), lambda pid: NOTHING)[0] == str(path)
    file.close(remove=True)


def test_the_copy_in_the_logdir_is_named_once_it_is_there(tmp_path: Path) -> None:
    """The file in memory goes with its session: what was read of it stays."""
    logdir = tmp_path / "run"
    logdir.mkdir()
    path = stacks_path(tmp_path, "s1")
    file = StacksFile(path, "s1")
    hang_stacks(hang(path), lambda pid: SEEN)
    kept = KeptStacks(str(path))
    file.close(remove=True)
    assert (kept.path, kept.location) == (str(path), "train.py:88 in step")
    assert kept.text == f"{path} (in memory, until the next session begins)"
    with pytest.raises(OSError):
        kept.copy_to(str(tmp_path / "missing"))
    kept.copy_to("gs://bucket/run")
    assert kept.path == str(path)
    kept.copy_to(str(logdir))
    assert kept.path == kept.text == str(logdir / "supervisor-stacks.s1.txt")
    reading = read_stacks(Path(kept.path))
    assert reading is not None and reading.looks[-1].stacks == SEEN.stacks
    for number in range(KEPT_FILES):
        other = KeptStacks(kept.path)
        other._path = str(tmp_path / f"pid-{number}.stacks")
        other.copy_to(str(logdir))
    assert len(list(logdir.iterdir())) == KEPT_FILES and Path(other.path).exists()
    empty = KeptStacks(str(tmp_path / "gone.stacks"))
    empty.copy_to(str(logdir))
    assert (empty.location, empty.path) == (None, str(tmp_path / "gone.stacks"))


def test_of_a_launch_without_a_session_the_process_that_writes_events_is_looked_at_first(tmp_path: Path) -> None:
    """The program may be a shell."""
    script = 'sh -c "exec 3>$0; echo \\$\\$; read line"; true'
    command = ["sh", "-c", script, str(tmp_path / "events.out.tfevents.1.host")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        writer = int(shell.stdout.readline())
        without = replace(hang(None), session=None, phase=None, pid=shell.pid, root=os.getpid())
        assert writer != shell.pid and suspects(without)[:2] == (writer, shell.pid)
        assert suspects(replace(without, session="a")) == (shell.pid,)
        shell.stdin.close()
