"""A lease whose file is deleted, corrupt, or cannot be written never stops a run."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint import lease_file
from supervisor_core.checkpoint.lease_file import LocalLeaseFile, LockResult
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, LogdirLock
from supervisor_core.storage.opening import open_own
from tests.story.leases import peek

Make = Any  # `Leases`
Edit = Callable[..., None]
OnDisk = Callable[[], dict[str, Any]]


def test_a_deleted_logdir_is_not_brought_back(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the whole logdir is deleted, neither renewing nor the end creates it again; the log says that it cannot
    renew."""
    lease = make.hold("a")
    shutil.rmtree(tmp_path / "run")
    lease.renew()
    lease.renew()
    assert caplog.text.count("could not be renewed") == 1
    lease.release("completed")
    assert not (tmp_path / "run").exists()


def test_a_save_brings_a_deleted_logdir_back(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is locked as before; the log says so once."""
    lease = make.hold("a")
    shutil.rmtree(tmp_path / "run")
    lease.bring_back()
    lease.bring_back()
    make.refuse("b")
    assert caplog.text.count("was deleted; it is made again") == 1


def test_a_logdir_deleted_while_its_lease_is_taken_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal makes the deleted file again, and the rest of the logdir goes under it: the next save brings the
    logdir back all the same, as that of any deleted one."""
    run = tmp_path / "run"
    lease = make.hold("a")
    (run / LEASE_NAME).unlink()
    flock = fcntl.flock

    def deleting(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        shutil.rmtree(run)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleting)
    lease.renew()
    assert not run.exists()
    lease.bring_back()
    make.refuse("b")


def test_a_new_logdir_that_another_run_has_used(make: Make, tmp_path: Path, clock: Any) -> None:
    """Deleted, made again, used by another training, which has ended: its checkpoints are not this run's, though it has
    the lower number."""
    for session in "ab":
        lease = make.hold(session)
        lease.release("completed")
    lease = make()
    assert lease.acquire("c").attempt == 3
    shutil.rmtree(tmp_path / "run")
    clock.now += 5
    other = make.hold("other")
    other.release("completed")
    with pytest.raises(LogdirInUseError, match="other"):
        lease.bring_back()


def test_a_logdir_that_was_away_is_still_held(
    make: Make, tmp_path: Path, on_disk: OnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Moved away and back: the lease is renewed again, and a second chief is refused as before. Meanwhile the lease is
    renewed where it is, so that its readers do not take the session for lost; and no save brings the logdir back."""
    lease = make.hold("a")
    (tmp_path / "run").rename(tmp_path / "away")
    lease.renew(last_step=4)
    assert f"{tmp_path / 'run'} was renamed to {tmp_path / 'away'}: move it back" in caplog.text
    away = peek(tmp_path / "away")
    assert away is not None and away.last_step == 4
    for check in (lease.check, lease.bring_back):
        with pytest.raises(OSError, match="was renamed to"):
            check()
    assert not (tmp_path / "run").exists()
    with pytest.raises(LogdirInUseError):
        LogdirLock(tmp_path / "away", host="elsewhere").acquire("c")
    (tmp_path / "away").rename(tmp_path / "run")
    lease.check()
    lease.renew(last_step=5)
    assert on_disk()["last_step"] == 5
    make.refuse("b")


def test_a_copy_of_the_logdir_in_its_place_is_held(make: Make, tmp_path: Path, on_disk: OnDisk) -> None:
    """Restored from a copy, or mounted again: the file of that name is another one, and is locked and renewed."""
    lease = make.hold("a")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    (tmp_path / "run").rename(tmp_path / "away")
    (tmp_path / "copy").rename(tmp_path / "run")
    lease.renew(last_step=5)
    assert on_disk()["last_step"] == 5
    make.refuse("b")


def test_a_lease_file_deleted_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted between opening and locking, the file is opened again: a lock without a name keeps no process out."""
    path = str(tmp_path / LEASE_NAME)
    flock, deleted = fcntl.flock, []

    def deleting(fd: int, operation: int) -> None:
        if not deleted:
            os.unlink(path)
            deleted.append(path)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleting)
    first, second = LocalLeaseFile(path), LocalLeaseFile(path)
    assert first.take() == LockResult("ours")
    assert second.take() == LockResult("theirs")
    first.release()
    second.release()


@pytest.mark.parametrize(
    "content",
    [b'{"v":', b'{"v":2}', b"\x00" * 1024, b'{"v":1,"session":"x"}', b'{"v":1', b'{"v":1,"session":"\xff\xfe'],
)
def test_a_corrupt_lease_file_is_unknown_history(make: Make, tmp_path: Path, content: bytes) -> None:
    """It never stops a run: the history is said to be unknown, and a new one begins."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LEASE_NAME).write_bytes(content * 3)
    lease = make()
    history = lease.acquire("a")
    assert history.attempt == 1
    assert f"the earlier sessions of {tmp_path / 'run'} are not known" in history.warning
    assert peek(tmp_path / "run") is not None
    lease.release("completed")
    assert make().acquire("b").warning is None


@pytest.mark.parametrize(
    "changes",
    [{"attempt": "3"}, {"restarts": {"lost": "1"}}, {"started_at": None}, {"renewed_at": float("nan")}, {"pid": True}],
)
def test_fields_of_the_wrong_kind_are_corrupt(make: Make, tmp_path: Path, changes: dict[str, Any], edit: Edit) -> None:
    """A field that cannot be what it should be makes the history unknown, rather than wrong."""
    make.hold("a").release("completed")
    edit(**changes)
    assert make().acquire("b").attempt == 1


def test_fields_of_later_versions_are_ignored(make: Make, tmp_path: Path, edit: Edit) -> None:
    """A field that is not known yet does not make the history unknown."""
    make.hold("a").release("completed")
    edit(some_later_field=1)
    assert make().acquire("b").attempt == 2


def test_a_logdir_that_cannot_be_written(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A read-only logdir has nothing to guard: a warning, no exception, and nothing is written later."""
    file = LocalLeaseFile("/proc/1/.supervisor.lease")
    lease = make(file=file)
    history = lease.acquire("a")
    assert not history.exclusive
    assert "cannot be guarded against a second chief" in history.warning
    assert lease.record_restore(5) == 0
    lease.renew(last_step=3)
    lease.release("completed")
    assert len(caplog.records) == 1


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns a function from which on no lease file can be opened for writing, with this error."""

    def set_in(code: int) -> None:
        def refuse(path: str, flags: int) -> int:
            if flags & os.O_RDWR:
                raise OSError(code, os.strerror(code), path)
            return open_own(path, flags)

        monkeypatch.setattr(lease_file, "open_own", refuse)

    return set_in


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_lease_that_can_only_be_read_guards_all_the_same(
    make: Make, unwritable: Callable[[int], None], on_disk: OnDisk, code: int
) -> None:
    """Another user's, or on a read-only mount: while its holder lives a second chief is refused; after that one goes on
    without a record of its own, and keeps out a third by the lock."""
    first = make.hold("a")
    unwritable(code)
    make.refuse("b", match="session a")
    regardless = make(exclusive=False)
    assert not regardless.acquire("c").exclusive
    first.release("completed")
    regardless.release("completed")
    later = make()
    history = later.acquire("d")
    assert (history.attempt, history.exclusive, history.previous_outcome) == (2, False, "completed")
    assert f"cannot be guarded against a second chief: {os.strerror(code)}" in str(history.warning)
    make.refuse("e")
    assert on_disk()["session"] == "a"


def test_a_lease_of_the_living_that_can_only_be_read(make: Make, unwritable: Callable[[int], None], edit: Edit) -> None:
    """One of another machine, where locks do not reach, is refused by its record."""
    make.hold("a").release("completed")
    edit(session="on another", boot="kernel-b", host="b", pid=77, ended=None)
    unwritable(errno.EACCES)
    make.refuse("b", match="process 77 on b")


def test_a_lease_with_two_names(make: Make, tmp_path: Path, on_disk: OnDisk) -> None:
    """As ``cp -al run backup`` makes: the next chief holds the logdir with a file of its own, and the copy stays."""
    path, copy = tmp_path / "run" / LEASE_NAME, tmp_path / "copy"
    first = make.hold("a")
    os.link(path, copy)
    make.refuse("while the first is at work")
    first.release("completed")
    content = copy.read_bytes()
    second = make()
    history = second.acquire("b")
    assert (history.attempt, history.exclusive, history.warning) == (2, True, None)
    second.check()
    make.refuse("c", match="session b")
    second.renew(last_step=5)
    assert (on_disk()["session"], on_disk()["last_step"]) == ("b", 5)
    assert copy.read_bytes() == content
    assert sorted(os.listdir(tmp_path / "run")) == [LEASE_NAME]


class BrokenFile(LocalLeaseFile):
    """A lease file on a disk that fails from some moment on."""

    broken = False

    def write(self, data: bytes) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        super().write(data)


def test_a_fifo_in_place_of_the_lease_file(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The session goes on without a lease, with a warning, and does not wait for the other end."""
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / LEASE_NAME)
    lease = make()
    history = lease.acquire("a")
    assert not history.exclusive
    assert "it is a FIFO, not a regular file" in str(history.warning)
    lease.renew(last_step=1)
    lease.release("completed")
    assert peek(tmp_path / "run") is None


def test_a_full_disk_does_not_stop_the_run(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, on_disk: OnDisk
) -> None:
    """A lease that cannot be renewed is said, held on to, and renewed when there is room again."""
    (tmp_path / "run").mkdir()
    file = BrokenFile(str(tmp_path / "run" / LEASE_NAME))
    lease = make(file=file)
    file.broken = True
    assert lease.acquire("a").exclusive
    lease.renew(last_step=5)
    assert "No space left on device" in caplog.text
    make.refuse("b")
    file.broken = False
    lease.renew(last_step=6)
    assert on_disk()["last_step"] == 6
    file.broken = True
    lease.release("completed")
    assert "The end of the session could not be recorded" in caplog.text
    file.broken = False
    assert make().acquire("b").previous_outcome == "lost"


def test_a_renewal_that_hangs_blocks_no_caller(tmp_path: Path, on_disk: OnDisk, begun_threads: Any) -> None:
    """Renewing returns at once though the file system hangs; renewals that follow do not pile up."""
    lease = LogdirLock(tmp_path / "run")
    lease.acquire("a")
    file, hang, entered = lease._file, threading.Event(), threading.Event()
    original = file.write

    def write(data: bytes) -> None:
        entered.set()
        assert hang.wait(30.0)
        original(data)

    file.write = write  # type: ignore[method-assign]
    lease.renew(last_step=1)
    assert entered.wait(30.0)
    for step in range(2, 20):
        lease.renew(last_step=step)
    assert len(begun_threads("supervisor-lease")) == 1
    hang.set()
    lease.release("completed")
    assert on_disk()["last_step"] == 19


def test_no_more_threads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A renewal for which no thread can be started is said, and tried again at the next."""
    spawned: list[Any] = []

    def spawn(renew: Callable[[], None]) -> None:
        spawned.append(renew)
        raise RuntimeError("can't start new thread")

    lease = LogdirLock(tmp_path / "run", spawn=spawn)
    lease.acquire("a")
    lease.renew()
    lease.renew()
    assert len(spawned) == 2
    assert "can't start new thread" in caplog.text
    lease.release("completed")
