"""Before each publication the lease file is read: only a session that was taken over is stopped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.guard import guarded
from supervisor_core.checkpoint.lease_file import LocalLeaseFile, encode
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, LogdirLock
from supervisor_core.storage.local import LOCAL
from tests.story.leases import peek

Make = Any  # `Leases`
Edit = Callable[..., None]
OnDisk = Callable[[], dict[str, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The lease file."""
    return tmp_path / "run" / LEASE_NAME


def replace_with(path: Path, edit: Edit, **changes: Any) -> None:
    """Put another file in the lease file's place, which says the same but for the changes."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)
    edit(**changes)


def test_the_holder_passes(make: Make) -> None:
    """While the lease is held, and after its release until another session takes it."""
    lease = make.hold("a")
    lease.check()
    lease.renew(last_step=5)
    lease.check()
    lease.release("completed")
    lease.check()


def test_whoever_was_taken_over_is_stopped_at_once(make: Make, edit: Edit, on_disk: OnDisk) -> None:
    """No renewal is needed for it; the error says who took over, goes to the owner once, and stays."""
    reported: list[Exception] = []
    lease = make.hold("a", on_taken_over=reported.append)
    edit(session="b", attempt=2, host="b", pid=77)
    for _ in range(3):
        with pytest.raises(
            LogdirInUseError, match=r"taken over by process 77 on b \(session b\): this process had not"
        ):
            lease.check()
    edit(session="a", attempt=1)
    with pytest.raises(LogdirInUseError):
        lease.check()
    assert [type(error) for error in reported] == [LogdirInUseError]


def test_a_successor_that_has_ended_is_one_all_the_same(make: Make, edit: Edit) -> None:
    """The chief that took over may have finished before the first one wakes up."""
    lease = make.hold("a")
    edit(session="b", attempt=2, ended="completed")
    with pytest.raises(LogdirInUseError, match=r"\(session b\), which has ended \(completed\)"):
        lease.check()


def test_neither_renewals_nor_the_release_overwrite_the_successor(make: Make, edit: Edit, path: Path) -> None:
    """The lease file stays the other chief's, byte by byte."""
    lease = make.hold("a")
    edit(session="b", attempt=2)
    before = path.read_bytes()
    lease.renew(last_step=7)
    lease.record_restore(7)
    lease.release("error")
    assert path.read_bytes() == before


def test_a_late_renewal_of_an_earlier_chief_stops_no_chief(
    make: Make, edit: Edit, on_disk: OnDisk, no_locks: None
) -> None:
    """It slipped in after the takeover: the new chief goes on, and its renewal puts that right."""
    make.hold("a").release("error")
    second = make()
    assert second.acquire("b").attempt == 2
    edit(session="a", attempt=1)
    second.check()
    second.renew()
    assert on_disk()["session"] == "b"


@pytest.mark.parametrize("content", [b"", b"garbage", b"\0" * 1024])
def test_a_file_that_names_no_session_stops_no_chief(make: Make, path: Path, content: bytes, on_disk: OnDisk) -> None:
    """Damaged by whatever else: the next renewal writes it again."""
    lease = make.hold("a")
    path.write_bytes(content)
    lease.check()
    lease.renew()
    assert on_disk()["session"] == "a"


def test_a_deleted_file_is_put_back_by_the_check(make: Make, path: Path, on_disk: OnDisk) -> None:
    """And locked again, so that no other process can take it over unnoticed."""
    lease = make.hold("a")
    path.unlink()
    lease.check()
    assert on_disk()["session"] == "a"
    make.refuse("b")


def test_a_released_lease_that_is_deleted_stays_away(make: Make, path: Path) -> None:
    """What comes after the release puts nothing back."""
    lease = make.hold("a")
    lease.release("completed")
    path.unlink()
    lease.check()
    assert not path.exists()


def test_a_deleted_file_that_another_locked(make: Make, path: Path) -> None:
    """Another chief has made its own lease file and locked it, written or not."""
    first, second = make(), LocalLeaseFile(str(path))
    first.acquire("a")
    path.unlink()
    assert second.take().verdict == "ours"
    with pytest.raises(LogdirInUseError, match="taken over by another process"):
        first.check()
    second.release()


def test_a_deleted_file_that_another_wrote_without_locks(make: Make, path: Path, edit: Edit, no_locks: None) -> None:
    """Without locks another file with another session's record is enough, though it counts from 1 again."""
    lease = make()
    lease.acquire("a", after_attempt=8)
    replace_with(path, edit, session="b", attempt=1)
    with pytest.raises(LogdirInUseError, match="session b"):
        lease.check()


def test_another_file_of_the_same_record_stops_no_chief(make: Make, path: Path, edit: Edit) -> None:
    """Copied and moved back by somebody: it still names this session."""
    lease = make.hold("a")
    replace_with(path, edit)
    lease.check()


def test_a_file_that_cannot_be_read_is_no_answer(make: Make, path: Path) -> None:
    """Then nothing is published now: an `OSError`, after which everything may be tried again."""
    lease = make.hold("a")
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="is a directory"):
        lease.check()
    path.rmdir()
    lease.check()


def test_a_lock_that_keeps_out_other_descriptors(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SMB the lock's own holder cannot read through another descriptor: it reads through the one that it has."""
    lease = make.hold("a")
    read = os.read

    def refused(fd: int, length: int) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "read", refused)
    lease.check()
    monkeypatch.setattr(os, "read", read)


def test_a_chief_that_holds_no_lease_is_not_stopped(make: Make, edit: Edit) -> None:
    """`exclusive=False` goes on regardless, as it was asked to."""
    make().acquire("a")
    second = make.hold("b", exclusive=False)
    edit(session="c", attempt=9)
    second.check()


def test_attempts_go_on_though_the_lease_was_deleted(make: Make, path: Path) -> None:
    """Where something else in the logdir knows of an attempt, the next one is a later one."""
    make().acquire("a")
    path.unlink()
    assert make().acquire("b", after_attempt=41).attempt == 42


def test_a_guarded_file_system_asks_before_each_change(tmp_path: Path) -> None:
    """Nothing is changed when the check refuses, and reading never asks."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "directory").mkdir()

    def refuse() -> None:
        raise LogdirInUseError("taken over")

    files, file = guarded(LOCAL, refuse), str(tmp_path / "file")
    for change in (
        lambda: files.replace(file, b"new"),
        lambda: files.move(file, str(tmp_path / "moved")),
        lambda: files.remove(file),
        lambda: files.remove_tree(str(tmp_path / "directory")),
        lambda: files.make_directory(str(tmp_path / "more")),
    ):
        with pytest.raises(LogdirInUseError):
            change()
    assert sorted(files.list_names(str(tmp_path))) == ["directory", "file"]
    assert files.read(file) == b"old"
    assert files.is_file(file)
    with files.open(file) as reader:
        assert reader.size == 3


def test_the_check_comes_after_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement is written and synced first: what is guarded is the moment at which it takes effect."""
    order: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, original=original: (order.append(name), original(*args))[1]
        )
    files = guarded(LOCAL, lambda: order.append("check"))
    files.replace(str(tmp_path / "file"), b"data")
    assert order == ["fsync", "check", "replace", "fsync"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A logdir in an object store, as fsspec shows it, in a process without tensorflow."""
    import fsspec

    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    yield "memory://guarded-run"
    fsspec.filesystem("memory").rm("/guarded-run", recursive=True)


def test_an_object_store_is_read_before_each_change(bucket: str) -> None:
    """There are no locks and no conditional writes there: the object is read, then the change is made."""
    import fsspec

    lease = LogdirLock(bucket)
    assert lease.acquire("a").exclusive
    lease.check()
    record = peek(bucket)
    assert record is not None
    successor = encode(replace(record, session="b", attempt=2, host="b", pid=77))
    fsspec.filesystem("memory").pipe(f"/guarded-run/{LEASE_NAME}", successor)
    with pytest.raises(LogdirInUseError, match=r"taken over by process 77 on b \(session b\)"):
        lease.check()
    assert not lease.release("error")
    assert fsspec.filesystem("memory").cat(f"/guarded-run/{LEASE_NAME}") == successor


def test_an_object_that_was_deleted_stops_no_chief(bucket: str) -> None:
    """The next renewal puts it back."""
    import fsspec

    lease = LogdirLock(bucket, spawn=lambda renew: renew())
    lease.acquire("a")
    fsspec.filesystem("memory").rm(f"/guarded-run/{LEASE_NAME}")
    lease.check()
    lease.renew()
    assert fsspec.filesystem("memory").exists(f"/guarded-run/{LEASE_NAME}")
    lease.release("completed")
