"""One chief per logdir, and a memory that lasts across sessions."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint import lease as lease_module
from supervisor_core.checkpoint.lease import LEASE_NAME, LogdirLease, peek
from supervisor_core.checkpoint.lease_file import Grip, LocalLeaseFile
from supervisor_core.errors import LogdirInUseError

Make = Callable[..., LogdirLease]

HOLDER = """
import sys
from supervisor_core.checkpoint.lease import LogdirLease
lease = LogdirLease(sys.argv[1])
lease.acquire("elsewhere")
lease.record_restore(400)
print("held", flush=True)
sys.stdin.read()
"""


class Hands:
    """A clock whose hands a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hands:
    """The time."""
    return Hands()


@pytest.fixture
def make(tmp_path: Path, clock: Hands) -> Iterator[Make]:
    """Returns a function that makes a lease on one logdir; renewals run in line. All are released at the end."""
    made: list[LogdirLease] = []

    def new(**options: Any) -> LogdirLease:
        lease = LogdirLease(tmp_path / "run", clock=clock, spawn=lambda renew: renew(), **options)
        made.append(lease)
        return lease

    yield new
    for lease in made:
        lease.release("end of test")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease of the same logdir."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.stdin.close()
    process.wait()
    process.stdout.close()


def on_disk(logdir: Path) -> dict[str, Any]:
    """Return the lease file's JSON."""
    content: dict[str, Any] = json.loads((logdir / LEASE_NAME).read_bytes())
    return content


def edit(logdir: Path, **changes: Any) -> None:
    """Change fields in the lease file, as if another session had written it."""
    (logdir / LEASE_NAME).write_text(json.dumps({**on_disk(logdir), **changes}))


def test_the_first_session_is_the_first(make: Make, clock: Hands) -> None:
    """A new logdir: attempt 1, nothing before, exclusive, nothing to warn of."""
    tenancy = make().acquire("a")
    assert (tenancy.attempt, tenancy.previous, tenancy.previous_outcome, tenancy.last_step) == (1, None, None, None)
    assert (tenancy.exclusive, tenancy.warning, tenancy.first_started_at) == (True, None, clock.now)


def test_sessions_follow_one_another(make: Make, clock: Hands) -> None:
    """Each session learns its number, how the others ended, how far they came, and what was done again."""
    started = clock.now
    for number, (reason, restored, reached) in enumerate(
        [("completed", 0, 500), ("signal", 500, 900), ("signal", 700, 950)], 1
    ):
        lease = make()
        tenancy = lease.acquire(f"session-{number}")
        assert tenancy.attempt == number
        lease.record_restore(restored)
        clock.now += 100
        lease.renew(last_step=reached - 10)
        lease.release(reason, last_step=reached)
    tenancy = make().acquire("last")
    assert tenancy.attempt == 4
    assert tenancy.restarts == {"completed": 1, "signal": 2}
    assert tenancy.steps_lost == 200
    assert (tenancy.previous_outcome, tenancy.last_step, tenancy.first_started_at) == ("signal", 950, started)
    assert tenancy.previous is not None
    assert tenancy.previous.session == "session-3"


def test_steps_done_again_are_counted(make: Make) -> None:
    """What lies between where the last session came and where this one resumes is lost, never less than 0."""
    first = make()
    first.acquire("a")
    first.release("error", last_step=500)
    second = make()
    second.acquire("b")
    assert second.record_restore(450) == 50
    second.release("error", last_step=470, steps_lost=55)
    third = make()
    assert third.acquire("c").steps_lost == 55
    assert third.record_restore(480) == 0


def test_a_second_chief_in_this_process_is_refused(make: Make, tmp_path: Path) -> None:
    """Two sessions of one process on one logdir: the error says that it is this very process."""
    make().acquire("first")
    with pytest.raises(LogdirInUseError) as caught:
        make().acquire("second")
    assert str(caught.value) == (
        f"The logdir {tmp_path / 'run'} is in use by this very process (session first) since 1970-01-12 13:46:40 UTC, "
        "renewed 0 s ago. Two chiefs would delete each other's checkpoints: close that session, or use another logdir. "
        "Options(exclusive_logdir=False) goes on regardless."
    )


def test_a_second_chief_is_refused_and_told_who_holds_it(make: Make, holder: subprocess.Popen[str]) -> None:
    """Who, where, since when, how far, and what to do; refused however old the holder's last renewal is."""
    with pytest.raises(LogdirInUseError) as caught:
        make(timeout_secs=1e-9).acquire("second")
    text = str(caught.value)
    assert f"process {holder.pid} on {os.uname().nodename} (session elsewhere) since 2" in text
    assert "at step 400" in text
    assert "stop that one, or use another logdir" in text


def test_after_kill_the_lease_is_free_at_once(make: Make, holder: subprocess.Popen[str]) -> None:
    """A holder killed with SIGKILL is dead the same instant, and counts as lost."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    tenancy = make().acquire("second")
    assert (tenancy.attempt, tenancy.restarts, tenancy.last_step, tenancy.exclusive) == (2, {"lost": 1}, 400, True)


def test_a_stopped_holder_still_holds(make: Make, holder: subprocess.Popen[str]) -> None:
    """A holder that is stopped, not dead, cannot renew, and is not robbed."""
    holder.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(LogdirInUseError):
            make(timeout_secs=1e-9).acquire("second")
    finally:
        holder.send_signal(signal.SIGCONT)


def test_a_forked_child_does_not_keep_the_lease(tmp_path: Path, make: Make) -> None:
    """A holder's child that outlives it (a data loader) does not keep the lease alive."""
    script = HOLDER.replace(
        'print("held", flush=True)',
        "import os, sys\n"
        "if os.fork() == 0:\n"
        '    print("held", flush=True)\n'
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "lease.renew()",
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(LogdirInUseError):
            make().acquire("second")
        process.kill()
        process.wait()
        assert make().acquire("third").previous_outcome == "lost"


def test_a_forked_child_is_not_the_holder(tmp_path: Path) -> None:
    """What the child does with its copy of the lease object (renewing, releasing at exit) changes and says nothing."""
    script = (
        "import os, sys\n"
        "from supervisor_core.checkpoint.lease import LogdirLease, peek\n"
        "lease = LogdirLease(sys.argv[1], spawn=lambda renew: renew())\n"
        "lease.acquire('parent')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    lease.renew(last_step=98)\n"
        "    lease.renew(last_step=99)\n"
        "    lease.release('child')\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "record = peek(sys.argv[1])\n"
        "assert (record.ended, record.last_step, record.renewals) == (None, None, 0), record\n"
        "lease.release('completed', last_step=7)\n"
        "assert peek(sys.argv[1]).ended == 'completed'\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "run")]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_another_machine_is_alive_while_it_renews(make: Make, tmp_path: Path, clock: Hands) -> None:
    """On a shared file system without common locks, a holder that has just renewed is refused to others."""
    make(boot="kernel-a", host="a").acquire("on a")
    edit(tmp_path / "run", session="on another", boot="kernel-b", host="b", pid=77)
    shutil.copy(tmp_path / "run" / LEASE_NAME, tmp_path / "saved")
    (tmp_path / "run" / LEASE_NAME).unlink()
    shutil.copy(tmp_path / "saved", tmp_path / "run" / LEASE_NAME)
    with pytest.raises(LogdirInUseError) as caught:
        make(boot="kernel-c", host="c", timeout_secs=60.0).acquire("on c")
    text = str(caught.value)
    assert "in use by process 77 on b (session on another)" in text
    assert f"; if it is dead, try again in 60 s, or delete {tmp_path / 'run' / LEASE_NAME}" in text


@pytest.fixture
def foreign(tmp_path: Path, clock: Hands) -> Callable[..., Path]:
    """Returns a function that leaves the lease of a machine that has not released it, renewed so long ago."""

    def leave(age_secs: float, **changes: Any) -> Path:
        logdir = tmp_path / "run"
        lease = LogdirLease(logdir, clock=clock, boot="kernel-b", host="b", pid=77)
        lease.acquire("on b")
        lease_module._SESSIONS.discard("on b")
        content = (logdir / LEASE_NAME).read_bytes()
        lease.release("end of test")
        (logdir / LEASE_NAME).write_bytes(content)
        edit(logdir, **changes)
        written = os.stat(logdir / LEASE_NAME).st_mtime - age_secs
        os.utime(logdir / LEASE_NAME, (written, written))
        return logdir

    return leave


def test_another_machine_is_dead_when_it_does_not_renew(make: Make, foreign: Callable[..., Path], clock: Hands) -> None:
    """After the timeout it is taken over; the machines' clocks may disagree by hours, the file server's counts."""
    foreign(61.0)
    clock.now += 7200.0
    assert make(boot="kernel-c", host="c").acquire("on c").previous_outcome == "lost"


def test_clocks_that_disagree_do_not_kill(make: Make, foreign: Callable[..., Path], clock: Hands) -> None:
    """A holder that has just renewed is alive though this machine's clock is a day ahead of what it wrote."""
    foreign(5.0)
    clock.now += 86400.0
    with pytest.raises(LogdirInUseError, match=r"renewed 5 s ago.* try again in 55 s"):
        make(boot="kernel-c", host="c").acquire("on c")


def test_another_container_of_this_machine_is_dead_at_once(make: Make, foreign: Callable[..., Path]) -> None:
    """The same kernel under another host name: the lock is the truth, no timeout is waited for."""
    foreign(0.0)
    assert make(boot="kernel-b", host="another-pod").acquire("on b again").attempt == 2


def test_a_machine_of_the_same_name_is_another(make: Make, foreign: Callable[..., Path]) -> None:
    """A pod of the same name on another node may be alive: its renewals count, not its name."""
    foreign(0.0)
    with pytest.raises(LogdirInUseError):
        make(boot="kernel-c", host="b").acquire("on c")


def test_a_released_lease_is_free(make: Make, foreign: Callable[..., Path]) -> None:
    """A session that ended in good order on another machine a second ago is no obstacle."""
    foreign(1.0, ended="completed", ended_at=1.0)
    assert make(boot="kernel-c", host="c").acquire("on c").previous_outcome == "completed"


def test_taken_over_while_suspended(make: Make, tmp_path: Path) -> None:
    """A holder that wakes up and finds another one in its place hears of it at its next renewal, and writes nothing."""
    lease = make()
    lease.acquire("a")
    edit(tmp_path / "run", session="b", attempt=2, host="b", pid=77)
    lease.renew()
    with pytest.raises(LogdirInUseError, match="in use by process 77 on b"):
        lease.renew()
    lease.release("completed")
    assert on_disk(tmp_path / "run")["session"] == "b"


def test_a_deleted_lease_file_comes_back(make: Make, tmp_path: Path) -> None:
    """When somebody deletes the lease file, the next renewal puts it back and locks it again."""
    lease = make()
    lease.acquire("a")
    (tmp_path / "run" / LEASE_NAME).unlink()
    lease.renew(last_step=5)
    assert on_disk(tmp_path / "run")["last_step"] == 5
    with pytest.raises(LogdirInUseError):
        make().acquire("b")


def test_a_deleted_logdir_is_not_brought_back(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the whole logdir is deleted, renewing does not create it again, and says that it cannot renew."""
    lease = make()
    lease.acquire("a")
    shutil.rmtree(tmp_path / "run")
    lease.renew()
    lease.renew()
    assert caplog.text.count("could not be renewed") == 1
    lease.release("completed")
    assert not (tmp_path / "run").exists()


def test_a_deleted_lease_file_that_another_took(make: Make, tmp_path: Path) -> None:
    """When the lease file was deleted and another chief has made its own, the first one hears of it."""
    first, second = make(), make()
    first.acquire("a")
    (tmp_path / "run" / LEASE_NAME).unlink()
    second.acquire("b")
    first.renew()
    with pytest.raises(LogdirInUseError):
        first.renew()


@pytest.mark.parametrize(
    "content",
    [b"garbage", b"{}", b'{"v":2}', b"\x00" * 1024, b'{"v":1,"session":"x"}', b'{"v":1', b"[]", b"\xff\xfe"],
)
def test_a_corrupt_lease_file_is_unknown_history(make: Make, tmp_path: Path, content: bytes) -> None:
    """It never stops a run: the history is said to be unknown, and a new one begins."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LEASE_NAME).write_bytes(content * 3)
    lease = make()
    tenancy = lease.acquire("a")
    assert tenancy.attempt == 1
    assert tenancy.warning is not None
    assert f"the earlier sessions of {tmp_path / 'run'} are not known" in tenancy.warning
    assert peek(tmp_path / "run") is not None
    lease.release("completed")
    assert make().acquire("b").warning is None


@pytest.mark.parametrize(
    "changes",
    [{"attempt": "3"}, {"restarts": {"lost": "1"}}, {"started_at": None}, {"renewed_at": float("nan")}, {"pid": True}],
)
def test_fields_of_the_wrong_kind_are_corrupt(make: Make, tmp_path: Path, changes: dict[str, Any]) -> None:
    """A field that cannot be what it should be makes the history unknown, rather than wrong."""
    lease = make()
    lease.acquire("a")
    lease.release("completed")
    edit(tmp_path / "run", **changes)
    assert make().acquire("b").attempt == 1


def test_fields_of_later_versions_are_ignored(make: Make, tmp_path: Path) -> None:
    """A field that is not known yet does not make the history unknown."""
    lease = make()
    lease.acquire("a")
    lease.release("completed")
    edit(tmp_path / "run", some_later_field=1)
    assert make().acquire("b").attempt == 2


def test_the_file_is_as_described(make: Make, tmp_path: Path) -> None:
    """One line of ASCII JSON, padded with spaces to 1,024 bytes, in place at every renewal; longer when it must be."""
    lease = make()
    lease.acquire("a")
    inode = (tmp_path / "run" / LEASE_NAME).stat().st_ino
    content = (tmp_path / "run" / LEASE_NAME).read_bytes()
    assert len(content) == 1024
    assert content.endswith(b" \n")
    assert content.rstrip() == json.dumps(json.loads(content), separators=(",", ":")).encode("ascii")
    assert json.loads(content)["v"] == 1
    lease.renew(last_step=3)
    lease.release("completed")
    assert (tmp_path / "run" / LEASE_NAME).stat().st_ino == inode
    edit(tmp_path / "run", restarts={f"reason {number}": number for number in range(100)})
    make().acquire("b")
    content = (tmp_path / "run" / LEASE_NAME).read_bytes()
    assert len(content) == 2048
    assert len(json.loads(content)["restarts"]) == 101


def test_peeking_changes_nothing(make: Make, tmp_path: Path) -> None:
    """Anybody may look at who holds a logdir; a logdir without a lease has none."""
    assert peek(tmp_path / "run") is None
    assert not (tmp_path / "run").exists()
    make().acquire("a")
    record = peek(str(tmp_path / "run"))
    assert record is not None
    assert (record.session, record.pid, record.ended) == ("a", os.getpid(), None)


def test_going_on_regardless(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With `exclusive=False` the second chief goes on, is told of the first, and leaves its lease alone."""
    make().acquire("a")
    second = make(exclusive=False)
    tenancy = second.acquire("b")
    assert not tenancy.exclusive
    assert tenancy.attempt == 2
    assert tenancy.warning is not None
    assert "another chief may be at work" in tenancy.warning
    assert "another chief may be at work" in caplog.text
    second.renew(last_step=5)
    second.release("completed")
    assert on_disk(tmp_path / "run")["session"] == "a"
    assert on_disk(tmp_path / "run")["ended"] is None


def test_a_file_system_without_locks(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no flock, the run goes on with a warning; history and renewals work all the same."""

    def no_locks(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    lease = make()
    tenancy = lease.acquire("a")
    assert not tenancy.exclusive
    assert tenancy.warning is not None
    assert tenancy.warning.endswith("cannot be guarded against a second chief: No locks available")
    lease.renew(last_step=3)
    with pytest.raises(LogdirInUseError, match="this very process"):
        make().acquire("b")
    lease.release("completed", last_step=4)
    assert make().acquire("c").last_step == 4


def test_without_locks_a_process_that_is_gone_is_dead(
    make: Make, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no flock, a process of this machine counts as alive while it runs and renews, and no longer."""
    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(37, "No locks available")))
    with pytest.raises(LogdirInUseError, match=f"process {holder.pid} "):
        make().acquire("b")
    holder.kill()
    holder.wait()
    assert make().acquire("c").previous_outcome == "lost"


def test_a_logdir_that_cannot_be_written(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A read-only logdir has nothing to guard: a warning, no exception, and nothing is written later."""
    file = LocalLeaseFile("/proc/1/.supervisor.lease")
    lease = make(file=file)
    tenancy = lease.acquire("a")
    assert not tenancy.exclusive
    assert tenancy.warning is not None
    assert "cannot be guarded against a second chief" in tenancy.warning
    assert lease.record_restore(5) == 0
    lease.renew(last_step=3)
    lease.release("completed")
    assert len(caplog.records) == 1


class BrokenFile(LocalLeaseFile):
    """A lease file on a disk that fails from some moment on."""

    broken = False

    def write(self, data: bytes) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        super().write(data)


def test_a_full_disk_does_not_stop_the_run(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A lease that cannot be renewed is said, held on to, and renewed when there is room again."""
    (tmp_path / "run").mkdir()
    file = BrokenFile(str(tmp_path / "run" / LEASE_NAME))
    lease = make(file=file)
    file.broken = True
    assert lease.acquire("a").exclusive
    lease.renew(last_step=5)
    assert "No space left on device" in caplog.text
    with pytest.raises(LogdirInUseError):
        make().acquire("b")
    file.broken = False
    lease.renew(last_step=6)
    assert on_disk(tmp_path / "run")["last_step"] == 6
    file.broken = True
    lease.release("completed")
    assert "The end of the session could not be noted" in caplog.text
    file.broken = False
    assert make().acquire("b").previous_outcome == "lost"


def test_a_renewal_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Renewing returns at once though the file system hangs; renewals that follow do not pile up."""
    lease = LogdirLease(tmp_path / "run")
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
    assert [thread.name for thread in threading.enumerate()].count("supervisor-lease") == 1
    hang.set()
    lease.release("completed")
    assert on_disk(tmp_path / "run")["last_step"] == 19


def test_no_more_threads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A renewal for which no thread can be started is said, and tried again at the next."""
    spawned: list[Any] = []

    def spawn(renew: Callable[[], None]) -> None:
        spawned.append(renew)
        raise RuntimeError("can't start new thread")

    lease = LogdirLease(tmp_path / "run", spawn=spawn)
    lease.acquire("a")
    lease.renew()
    lease.renew()
    assert len(spawned) == 2
    assert "can't start new thread" in caplog.text
    lease.release("completed")


def test_a_lease_that_is_dropped_is_free(tmp_path: Path) -> None:
    """A session whose object is gone without being closed, as in a notebook, does not hold the logdir."""
    LogdirLease(tmp_path / "run").acquire("a")
    second = LogdirLease(tmp_path / "run")
    assert second.acquire("b").previous_outcome == "lost"
    second.release("completed")


def test_a_dropped_lease_is_free_without_locks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no lock that goes with the object, this process knows that the session is gone."""
    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(37, "No locks available")))
    LogdirLease(tmp_path / "run").acquire("a")
    second = LogdirLease(tmp_path / "run")
    assert second.acquire("b").previous_outcome == "lost"
    second.release("completed")


def test_releasing_twice(make: Make, tmp_path: Path) -> None:
    """The first reason stands."""
    lease = make()
    lease.acquire("a")
    lease.release("signal")
    lease.release("completed")
    lease.renew()
    assert on_disk(tmp_path / "run")["ended"] == "signal"


def test_a_lease_can_be_taken_again(make: Make) -> None:
    """One object may hold the lease for one session after another."""
    lease = make()
    assert lease.acquire("a").attempt == 1
    lease.release("completed")
    assert lease.acquire("b").attempt == 2


def test_acquiring_logs_nothing_when_all_is_well(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """No news is good news."""
    caplog.set_level(logging.DEBUG)
    make().acquire("a")
    assert caplog.records == []


def test_a_lease_file_deleted_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted between opening and locking, the file is opened anew: a lock on a nameless file keeps nobody out."""
    import fcntl

    path = str(tmp_path / LEASE_NAME)
    flock, deleted = fcntl.flock, []

    def deleting(fd: int, operation: int) -> None:
        if not deleted:
            os.unlink(path)
            deleted.append(path)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleting)
    first, second = LocalLeaseFile(path), LocalLeaseFile(path)
    assert first.take() == Grip("ours")
    assert second.take() == Grip("theirs")
    first.let_go()
    second.let_go()
