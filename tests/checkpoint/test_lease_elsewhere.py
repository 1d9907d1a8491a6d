"""Holders on other machines, and file systems without locks: renewals show who lives."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.lease_file import LocalLeaseFile
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, LogdirLock

Make = Any  # `Leases`
Edit = Callable[..., None]
OnDisk = Callable[[], dict[str, Any]]


def test_another_machine_is_alive_while_it_renews(make: Make, tmp_path: Path, clock: Any, edit: Edit) -> None:
    """On a shared file system without common locks, a holder that has just renewed is refused to others."""
    make(boot="kernel-a", host="a").acquire("on a")
    edit(session="on another", boot="kernel-b", host="b", pid=77)
    shutil.copy(tmp_path / "run" / LEASE_NAME, tmp_path / "saved")
    (tmp_path / "run" / LEASE_NAME).unlink()
    shutil.copy(tmp_path / "saved", tmp_path / "run" / LEASE_NAME)
    with pytest.raises(LogdirInUseError) as caught:
        make(boot="kernel-c", host="c", timeout_secs=60.0).acquire("on c")
    text = str(caught.value)
    assert "in use by process 77 on b (session on another)" in text
    where = re.escape(str(tmp_path / "run" / LEASE_NAME))
    assert re.search(rf"; if it is dead, try again in (5\d|60) s, or delete {where}", text)


@pytest.fixture
def foreign(tmp_path: Path, clock: Any, edit: Edit) -> Callable[..., Path]:
    """Returns a function that leaves the lease of a machine that has not released it, renewed ``age_secs`` ago."""

    def leave(age_secs: float, **changes: Any) -> Path:
        logdir = tmp_path / "run"
        lease = LogdirLock(logdir, clock=clock, boot="kernel-b", host="b", pid=77)
        lease.acquire("on b")
        content = (logdir / LEASE_NAME).read_bytes()
        lease.release("end of test")
        (logdir / LEASE_NAME).write_bytes(content)
        edit(**changes)
        written = os.stat(logdir / LEASE_NAME).st_mtime - age_secs
        os.utime(logdir / LEASE_NAME, (written, written))
        return logdir

    return leave


def test_another_machine_is_dead_when_it_does_not_renew(make: Make, foreign: Callable[..., Path], clock: Any) -> None:
    """After the timeout it is taken over; the machines' clocks may disagree by hours, the file server's counts."""
    foreign(61.0)
    clock.now += 7200.0
    assert make(boot="kernel-c", host="c").acquire("on c").previous_outcome == "lost"


def test_clocks_that_disagree_do_not_kill(make: Make, foreign: Callable[..., Path], clock: Any) -> None:
    """A holder that has just renewed is alive though this machine's clock is a day ahead of what it wrote."""
    foreign(5.0)
    clock.now += 86400.0
    make.refuse("on c", match=r"renewed \d s ago.* try again in 5\d s", boot="kernel-c", host="c")


def test_another_container_of_this_machine_is_dead_at_once(make: Make, foreign: Callable[..., Path]) -> None:
    """The same kernel under another host name: the lock is the truth, no timeout is waited for."""
    foreign(0.0)
    assert make(boot="kernel-b", host="another-pod").acquire("on b again").attempt == 2


def test_a_machine_of_the_same_name_is_another(make: Make, foreign: Callable[..., Path]) -> None:
    """A pod of the same name on another node may be alive: its renewals count, not its name."""
    foreign(0.0)
    make.refuse("on c", boot="kernel-c", host="b")


def test_a_released_lease_is_free(make: Make, foreign: Callable[..., Path]) -> None:
    """A session that ended as planned on another machine a second ago is no obstacle."""
    foreign(1.0, ended="completed", ended_at=1.0)
    assert make(boot="kernel-c", host="c").acquire("on c").previous_outcome == "completed"


def test_going_on_regardless(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, on_disk: OnDisk) -> None:
    """With `exclusive=False` the second chief goes on with a warning, and does not touch the first one's lease."""
    make().acquire("a")
    second = make(exclusive=False)
    history = second.acquire("b")
    assert not history.exclusive
    assert history.attempt == 2
    assert "another chief may be at work" in history.warning
    assert "another chief may be at work" in caplog.text
    second.renew(last_step=5)
    second.release("completed")
    assert on_disk()["session"] == "a"
    assert on_disk()["ended"] is None


def test_a_file_system_without_locks(make: Make, no_locks: None) -> None:
    """Where there is no flock, the run goes on with a warning; history and renewals work all the same."""
    lease = make()
    history = lease.acquire("a")
    assert not history.exclusive
    assert "has no file locks (No locks available): only renewals of" in history.warning
    lease.renew(last_step=3)
    make.refuse("b", match="this very process")
    lease.release("completed", last_step=4)
    assert make().acquire("c").last_step == 4


def test_without_locks_a_process_that_is_gone_is_dead(
    make: Make, holder: subprocess.Popen[str], no_locks: None
) -> None:
    """Where there is no flock, a process of this machine counts as alive while it runs and renews, and no longer."""
    with pytest.raises(LogdirInUseError, match=f"process {holder.pid} "):
        make().acquire("b")
    holder.kill()
    holder.wait()
    assert make().acquire("c").previous_outcome == "lost"


def test_a_dropped_lease_is_free_without_locks_too(tmp_path: Path, no_locks: None) -> None:
    """Where there is no lock that goes with the object, this process knows that the session is gone."""
    LogdirLock(tmp_path / "run").acquire("a")
    second = LogdirLock(tmp_path / "run")
    assert second.acquire("b").previous_outcome == "lost"
    second.release("completed")


def test_a_lease_that_is_just_being_renewed_is_read_again(
    make: Make, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an old and half a new record is no record; a moment later it is one again, and its holder is known."""
    make.hold("a")
    whole = LocalLeaseFile.read
    readings = iter([b'{"v":1,"session":"a","att', b'{"v":1,"session":"a"}'])

    def torn_at_first(self: LocalLeaseFile) -> bytes:
        return next(readings, None) or whole(self)

    monkeypatch.setattr(LocalLeaseFile, "read", torn_at_first)
    make.refuse("b")


@pytest.mark.parametrize("lives", [True, False])
def test_a_lease_dated_in_the_future_is_watched(
    make: Make, foreign: Callable[..., Path], edit: Edit, caplog: pytest.LogCaptureFixture, lives: bool
) -> None:
    """The server's clock was set back, so the age says nothing: whether it is renewed within the timeout does."""
    foreign(-3600.0)
    waited: list[float] = []

    def wait(secs: float) -> None:
        waited.append(secs)
        if lives and len(waited) == 3:
            edit(renewals=7)

    lease = make(boot="kernel-c", host="c", timeout_secs=60.0, wait=wait)
    if lives:
        with pytest.raises(LogdirInUseError, match=r"process 77 on b .* renewed \d s ago.* try again in (5\d|60) s"):
            lease.acquire("on c")
        assert len(waited) == 3
    else:
        assert lease.acquire("on c").previous_outcome == "lost"
        assert sum(waited) == 60.0
    said = r"was last renewed (359\d|3600) s in the future, so a clock was set back: waiting up to 60 s"
    assert re.search(said, caplog.text)
