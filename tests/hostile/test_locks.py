"""Who may only read a directory holds none of its locks: each lock of the project, tried as the user `nobody`."""

from __future__ import annotations

import fcntl
import os
import pwd
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import supervisor_core
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.history.formats import TableFile
from supervisor_core.history.rows import SESSIONS
from supervisor_core.notify.watch_state import WatchState
from supervisor_core.restarter.logdir_view import LogdirView
from tests.cases import each


def restarter(directory: Path) -> Any:
    """Take a restarter's."""
    view = LogdirView(str(directory))
    assert view.take() is None
    return view


def logdir(directory: Path) -> Any:
    """Take the lock of a logdir."""
    hold = LogdirHold(directory)
    hold.acquire("a")
    return hold


LOCKS: dict[str, Callable[[Path], Any]] = {
    "engine/logdir_hold.py": logdir,
    "restarter/logdir_view.py": restarter,
    "history/formats.py": lambda directory: TableFile(str(directory / "runs.jsonl"), SESSIONS),
    "notify/watch_state.py": lambda directory: WatchState(directory, ["/runs"]),
}
"""By the file that takes the lock: takes it in a directory."""


def lock_files(directory: Path) -> list[Path]:
    """What was made in a directory."""
    return [item for item in directory.iterdir() if item.is_file()]


def test_every_lock_is_tried_here() -> None:
    """One module locks files, and each that uses it is in the table."""
    package = Path(supervisor_core.__file__).parent
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    locking = {name for name, text in texts.items() if "flock(" in text or "lockf(" in text}
    assert locking == {"storage/lock_file.py"}
    using = {name for name, text in texts.items() if "LockFile(" in text}
    assert using == set(LOCKS)


@pytest.mark.parametrize("name", LOCKS)
def test_nobody_can_hold_it(name: str) -> None:
    """The lock's file is not opened by another user, though that may read the directory."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # pytest's own are this user's alone
        os.chmod(directory, 0o755)
        held = LOCKS[name](Path(directory))
        (path,) = lock_files(Path(directory))
        assert path.stat().st_mode & 0o777 == 0o600
        assert tried_by_nobody(path) == 0
        del held


def tried_by_nobody(path: Path) -> int:
    """Have another user list the directory and lock the file; return 0 if it may do only the first."""
    child = os.fork()
    if child == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        status = 1
        try:
            os.listdir(path.parent)
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except PermissionError:
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", LOCKS)
def test_who_holds_an_earlier_file_by_reading_it_holds_nothing(name: str) -> None:
    """As after ``chmod -R a+r`` of a logdir: a lock that only its owner can open takes its place."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        first = LOCKS[name](Path(directory))
        (path,) = lock_files(Path(directory))
        del first
        path.unlink(missing_ok=True)
        path.touch(0o644)
        ends, held = os.pipe(), os.pipe()
        if (child := os.fork()) == 0:
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(held[1], b"x")
            os.close(ends[1])
            os.read(ends[0], 1)
            os._exit(0)
        assert os.read(held[0], 1) == b"x"
        taken = LOCKS[name](Path(directory))
        assert path.stat().st_mode & 0o777 == 0o600
        for descriptor in (*ends[::-1], *held):
            os.close(descriptor)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        del taken


@each("name", LOCKS)
def test_an_earlier_file_of_a_wider_mode_is_replaced(tmp_path: Path, name: str) -> None:
    """Another user may have it open, and would lock it between two of the owner's: that file is not the lock then."""
    tmp_path.chmod(0o755)
    held = LOCKS[name](tmp_path)
    (path,) = lock_files(tmp_path)
    del held
    path.unlink(missing_ok=True)
    path.touch(0o644)
    reader = os.open(path, os.O_RDONLY)
    held = LOCKS[name](tmp_path)
    fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert path.stat().st_mode & 0o777 == 0o600
    os.close(reader)
    del held
