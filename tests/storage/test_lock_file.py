"""A lock of a file: who holds it, whoever may read its directory, and what is left when its holder is gone."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor_core.storage import lock_file
from supervisor_core.storage.lock_file import LockedError, LockFile
from tests.cases import each

HOLDER = """
import os, sys
from supervisor_core.storage.lock_file import LockFile
lock = LockFile(sys.argv[1])
lock.take()
if "name" in sys.argv:
    open("/proc/self/comm", "w").write("a\\nE: \\x1b[2J")
if "fork" not in sys.argv or os.fork() == 0:
    print("held", flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the lock."""
    return tmp_path / ".lock"


def held_by_another(path: Path, *how: str) -> subprocess.Popen[str]:
    """A process that has taken the lock, until its input ends."""
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(path), *how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_holds_it(path: Path) -> None:
    """By name and user; it is free the instant that one is killed."""
    with held_by_another(path) as holder:
        with pytest.raises(LockedError) as caught:
            LockFile(str(path)).take()
        assert caught.value.pid == holder.pid
        assert f"process {holder.pid} (python" in caught.value.strerror
        holder.send_signal(signal.SIGSTOP)  # stopped is not dead
        with pytest.raises(LockedError):
            LockFile(str(path)).take()
        holder.kill()
        holder.wait()
        assert LockFile(str(path)).take() is None


def test_the_name_of_a_holder_is_one_line_of_text(path: Path) -> None:
    """A process calls itself as it likes: neither a terminal nor who looks for an error's type obeys it."""
    with held_by_another(path, "name") as holder:
        with pytest.raises(LockedError) as caught:
            LockFile(str(path)).take()
        assert f"process {holder.pid} (a\\nE: \\x1b[2J) of user" in caught.value.strerror
        holder.communicate("")


def test_a_holder_that_the_kernel_does_not_list(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another machine; and one that has left its lock to a child."""
    first = LockFile(str(path))
    first.take()
    for pid, text in ((None, "a process that this machine does not list"), (2**22 + 1, "a child of process 4194305")):
        monkeypatch.setattr(lock_file, "_holder", lambda status, pid=pid: pid)
        with pytest.raises(LockedError, match=text):
            LockFile(str(path)).take()


@pytest.fixture
def umask() -> Iterator[None]:
    """Resets it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@each("mask", [0, 0o022, 0o777])
def test_only_the_owner_can_open_it(tmp_path: Path, umask: None, mask: int) -> None:
    """Under any umask."""
    path = tmp_path / ".lock"
    os.umask(mask)
    lock = LockFile(str(path))
    assert lock.take() is None
    assert path.stat().st_mode & 0o777 == 0o600


@each("kind", ["wider", "with two names"])
def test_a_file_that_others_have_is_replaced(tmp_path: Path, kind: str) -> None:
    """They may have it open, and lock that; the new one is locked before it has the name."""
    path = tmp_path / ".lock"
    path.touch(0o644)
    other = os.open(path, os.O_RDONLY)
    if kind == "with two names":
        path.chmod(0o600)
        os.link(path, path.with_name("copy"))
    lock = LockFile(str(path))
    assert lock.take() is None
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert lock.is_in_place() and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LockedError):
        LockFile(str(path)).take()
    lock.release()
    assert LockFile(str(path)).take() is None
    os.close(other)
    assert {item.name for item in path.parent.iterdir()} <= {".lock", "copy"}


def test_a_file_deleted_under_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted between opening and locking, it is opened again: a lock without a name keeps no process out."""
    flock, deleted = fcntl.flock, []

    def deleting(fd: int, operation: int) -> None:
        if not deleted:
            path.unlink()
            deleted.append(path)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleting)
    first = LockFile(str(path))
    assert first.take() is None
    with pytest.raises(LockedError):
        LockFile(str(path)).take()
    path.unlink()
    assert (first.is_in_place(), first.path_now()) == (False, "")


def test_what_is_no_file_is_not_opened(path: Path, tmp_path: Path) -> None:
    """Nor is a link followed, or another end of a pipe waited for."""
    (tmp_path / "elsewhere").touch()
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(tmp_path / "elsewhere")):
        make()
        with pytest.raises(OSError, match=r"directory|FIFO|symbolic links"):
            LockFile(str(path)).take()
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is open, and why it is not locked is returned."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = LockFile(str(path))
    assert lock.take().strerror == "No locks available"
    assert lock.is_in_place()
    lock.unlock()
