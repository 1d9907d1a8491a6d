"""One live chief per logdir: who is refused, who takes over, who is stopped, and what each learns of those before."""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.guard import LOCK_NAME
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.engine.session_history import SessionHistory, history_after
from supervisor_core.process.identity import boot_id, this_machine
from supervisor_core.run.model.liveness_record import Costs
from supervisor_core.run.watch import liveness
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY, chief_path, encode
from supervisor_core.storage import lock_file
from supervisor_core.storage.local import LocalFilesystem
from supervisor_core.storage.lock_file import LockFile
from tests.cases import each
from tests.story.holds import HOLDER, Holds, beats, edit, ends, machine, peek, said


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The logdir."""
    return tmp_path / "run"


@pytest.fixture
def clock(clock_at: Callable[[float], Any]) -> Any:
    """A clock whose hands a test moves."""
    return clock_at(1_000_000.0)


@pytest.fixture
def make(run: Path, clock: Any) -> Iterator[Holds]:
    """Makes holds."""
    holds = Holds(run, clock)
    yield holds
    for hold in holds.made:
        hold.release()


def start(run: Path, script: str = HOLDER) -> subprocess.Popen[str]:
    """Start a process that holds the logdir until its input ends."""
    command = [sys.executable, "-W", "ignore", "-c", script, str(run)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def holder(run: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the logdir at step 400."""
    with start(run) as process:
        yield process


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


# What each session learns of those before.


def test_sessions_follow_one_another(make: Holds, clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Each session learns its number, how the others ended, how far they came, what they cost and did again."""
    caplog.set_level(logging.DEBUG)
    started, costs = clock.now, Costs(trained_secs=5.0, saves=1, save_secs=2.0, blocked_secs=1.0)
    first = make().acquire("first")
    assert (first.run.attempt, first.previous, first.previous_outcome, first.last_step) == (1, None, None, None)
    assert (first.exclusive, first.warning, first.run.first_started_at) == (True, None, started)
    assert (first.run.costs, first.steps_lost) == (Costs(), 0)
    make.made[-1].release()
    for number, reason, reached in [(2, "completed", 500), (3, "signal", 900), (4, "signal", 950)]:
        hold = make()
        assert hold.acquire(f"session-{number}").run.attempt == number
        clock.now += 100
        beats(hold, reached - 10, steps_lost=number * 50, costs=costs)
        ends(hold, reason, reached)
    hold = make()
    history = hold.acquire("last")
    assert history.run.restarts == {"lost": 1, "completed": 1, "signal": 2}
    assert (history.steps_lost, history.run.costs) == (200, costs)
    assert (history.previous_outcome, history.last_step, history.run.first_started_at) == ("signal", 950, started)
    assert history.previous is not None and history.previous.session == "session-4"
    hold.release()
    assert hold.acquire("the same object again").run.attempt == 6
    assert caplog.records == []  # no news is good news


@each("boot, secs", [(boot_id(), 20.0), ("another kernel's", None), (None, None)])
def test_how_long_ago_a_session_was_seen(tmp_path: Path, clock: Any, boot: str | None, secs: float | None) -> None:
    """By a clock that is never set, also of one that was killed before its first heartbeat; on one machine only."""
    LogdirHold(tmp_path, clock=clock).acquire("a")
    record, now = said(tmp_path), clock.now + 20.0
    previous = replace(record, boot=boot, written_at=1_000_000.0, started_boot_secs=7.0, written_boot_secs=7.0)
    recorded = SessionHistory(run=history_after(previous, now), previous=previous).record_fields(27.0)
    assert (recorded["previous_elapsed_secs"], recorded["previous_seen_secs"]) == (0.0, secs)
    assert recorded["previous_seen_at"] == 1_000_000.0


@each("attempt", [10**15 // 2 + 1, 10**15 - 1, 10**15, 2**53, 2**63 - 2])
def test_an_attempt_that_cannot_be_is_not_counted_on_from(tmp_path: Path, attempt: int) -> None:
    """The next session counts on from the newest that can be, and what it writes can be read, by those after it too."""
    ends(Holds(tmp_path, SYSTEM_CLOCK).hold("a"), "completed")
    edit(tmp_path, attempt=attempt)
    for number, session in enumerate("bcd", 8):
        hold = LogdirHold(tmp_path)
        assert hold.acquire(session, after_attempt=7).run.attempt == number
        hold.check()
        record = said(tmp_path)
        assert (record.session, record.attempt) == (session, number)
        ends(hold, "completed")


def test_counts_that_leave_no_room_are_not_carried_on(make: Holds, run: Path) -> None:
    """What a file says at the very bound of the plausible makes the file after it no less readable."""
    ends(make.hold("a"), "signal", 100)
    most = 2**63 - 1
    edit(run, restarts={"lost": most, "signal": 2}, steps_lost=most, costs={"save_secs": 2.4999e11, "saves": 3})
    make.hold("b")
    record = said(run)
    assert (record.history.restarts, record.history.steps_lost) == ({"signal": 3}, 0)
    assert record.history.costs is None


def test_whose_heir_a_session_is(tmp_path: Path) -> None:
    """Of the last session that was ready, as long as all since then were cut off; of none once it is ready itself."""
    heirs: list[str | None] = []
    for session, ready, ended in [
        ("a", True, "signal"),
        ("b", False, "signal"),
        ("c", False, "signal"),
        ("d", True, "signal"),
        ("e", False, "error"),
        ("f", False, "signal"),
        ("g", False, "completed"),
        ("h", False, "signal"),
    ]:
        hold = LogdirHold(tmp_path)
        heirs.append(hold.acquire(session).run.predecessor)
        if ready:
            beats(hold, predecessor=None)
        ends(hold, ended)
    assert heirs == [None, "a", "a", "a", "d", None, "f", None]


@each(
    "content",
    [b'{"v":', b'{"v":2}', b"\x00" * 1024, b'{"v":1,"session":"x"}', b'{"v":1', b'{"v":1,"session":"\xff\xfe', b""],
)
def test_a_corrupt_file_is_unknown_history(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It never stops a run: one warning says that the history is unknown; the number comes from other files."""
    path = Path(chief_path(tmp_path))
    path.parent.mkdir()
    path.write_bytes(content * 3)
    hold = LogdirHold(tmp_path)
    history = hold.acquire("a", after_attempt=41)
    assert (history.run.attempt, history.exclusive, history.steps_lost) == (42, True, None)
    assert [
        f"the earlier sessions of {tmp_path} are not known: {path} cannot be read:" in each for each in caplog.messages
    ] == [True]
    said(tmp_path)
    ends(hold, "completed")
    assert LogdirHold(tmp_path).acquire("b").warning is None


@each(
    "changes",
    [{"attempt": "3"}, {"restarts": {"lost": "1"}}, {"started_at": None}, {"written_at": float("nan")}, {"pid": True}],
)
def test_fields_of_the_wrong_kind_are_corrupt(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A field that cannot be what it should be makes the history unknown, rather than wrong; a later one is ignored."""
    ends(Holds(tmp_path, SYSTEM_CLOCK).hold("a"), "completed")
    edit(tmp_path, some_later_field=1)
    hold = LogdirHold(tmp_path)
    assert hold.acquire("b").run.attempt == 2
    ends(hold, "completed")
    edit(tmp_path, **changes)
    assert LogdirHold(tmp_path).acquire("c").run.attempt == 1


# Who is refused.


def test_a_second_chief_in_this_process_is_refused(make: Holds, run: Path) -> None:
    """Two sessions of one process on one logdir: the error says that it is this very process."""
    make.hold("first")
    with pytest.raises(LogdirInUseError) as caught:
        make().acquire("second")
    assert re.sub(r"seen \d s", "seen 0 s", str(caught.value)) == (  # it may have taken a while to get here
        f"The logdir {run} is in use by this very process (session first) since 1970-01-12 13:46:40 UTC, seen 0 s ago. "
        "Two chiefs would delete each other's checkpoints: close that session, or use another logdir. "
        "Options(exclusive_logdir=False) starts anyway."
    )


def test_a_holder_on_this_machine(make: Holds, run: Path, holder: subprocess.Popen[str]) -> None:
    """The error names who, where, since when, how far, and what to do, however old the last heartbeat is, also of a
    stopped one. Killed with SIGKILL it is dead the same instant, and counts as lost."""
    with pytest.raises(LogdirInUseError) as caught:
        make(timeout_secs=1e-9).acquire("second")
    text = str(caught.value)
    assert f"process {holder.pid} on {os.uname().nodename} (session elsewhere) since 2" in text
    assert "at step 400" in text and "stop that one, or use another logdir" in text
    holder.send_signal(signal.SIGSTOP)
    make.refuse("second", timeout_secs=1e-9)
    make.refuse("evaluation", yields_logdir=True)
    holder.kill()
    holder.wait()
    history = make().acquire("second")
    assert (history.run.attempt, history.run.restarts, history.last_step) == (2, {"lost": 1}, 400)
    assert history.exclusive


def test_who_only_locks_is_named(make: Holds, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the dead session before it: an earlier file that others could open, or a program that has not said who it
    is."""
    ends(make.hold("a"), "completed")
    script = HOLDER.split("hold =")[0] + (
        "from supervisor_core.storage.lock_file import LockFile\n"
        f"lock = LockFile(sys.argv[1] + '/{LOCK_NAME}')\n"
        "lock.take()\n"
        'print("held", flush=True)\n'
        "sys.stdin.read()\n"
    )
    for ended in ("completed", None):
        edit(run, ended=ended, pid=2**22 + 1)
        with start(run, script) as other:
            make.refuse("b", match=rf"in use by process {other.pid} \(python.*\) of user ")
            with monkeypatch.context() as patch:  # in another container
                patch.setattr(lock_file, "_holder", lambda status: None)
                make.refuse("b", match="in use by a process that this machine does not list. ")
            other.communicate("")


def test_a_forked_child_does_not_keep_the_logdir(make: Holds, run: Path) -> None:
    """A holder's child that outlives it (a data loader) keeps nothing, and what it does with its copy of the objects
    changes and says nothing."""
    child = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    hold.liveness.chief_lives(98, None)\n"
        "    hold.check()\n"
        "    hold.release()\n"
        '    print("held", flush=True)\n'
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "sys.stdin.read()\n"
    )
    with start(run, HOLDER.replace('print("held", flush=True)', child)) as process:
        record = said(run)
        assert (record.ended, record.step) == (None, 400)
        make.refuse("second")
        process.kill()
        process.wait()
        assert make().acquire("third").previous_outcome == "lost"
        process.communicate("")


def test_what_is_dropped_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose object is gone without being closed, as in a notebook; where there are no locks, this process
    knows that the session is gone."""
    for session in "abc":
        history = LogdirHold(tmp_path).acquire(session)
        gc.collect()
        if session == "b":
            monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "none")))
    assert (history.run.attempt, history.previous_outcome) == (3, "lost")


def test_going_on_regardless(make: Holds, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With `exclusive=False` the second chief goes on with a warning, does not touch the first one's files, and is not
    stopped by a third."""
    make.hold("a")
    second = make(exclusive=False)
    history = second.acquire("b")
    assert (history.exclusive, history.run.attempt, second.liveness) == (False, 2, None)
    assert "another chief may be at work" in str(history.warning) and str(history.warning) in caplog.text
    record = said(run)
    assert (record.session, record.ended) == ("a", None)
    edit(run, session="c", attempt=9)
    second.check()


# Holders on other machines, and file systems without locks.


@pytest.fixture
def foreign(run: Path, make: Holds) -> Callable[..., None]:
    """Returns a function that leaves the files of a machine that has not released it, and wrote ``age_secs`` ago."""

    def leave(age_secs: float, **changes: Any) -> None:
        make.hold("on b", machine=machine("b"), pid=77).release()
        edit(run, **changes)
        path = chief_path(run)
        written = os.stat(path).st_mtime - age_secs
        os.utime(path, (written, written))

    return leave


def test_another_machine_is_alive_while_it_beats(make: Holds, run: Path, clock: Any, foreign: Any) -> None:
    """By the file server's clock, however the machines' clocks disagree; also of a pod of the same name on another
    node. Where its locks do not reach, others are refused for the timeout; then it is dead."""
    foreign(5.0)
    for offset in (86400.0, -86400.0):
        clock.now += offset
        text = r"in use by process 77 on b \(session on b\).*seen \d s ago.*; if it is dead, "
        text += rf"try again in 5\d s, or delete {re.escape(chief_path(run))}"
        make.refuse("on c", match=text, machine=machine("c"))
        make.refuse("on c", machine=replace(machine("c"), host="b"))
    foreign(61.0)
    assert make().acquire("on c").previous_outcome == "lost"


def test_another_machine_that_is_known_to_be_dead(make: Holds, foreign: Any) -> None:
    """Another container of the same kernel, by the lock; and one that ended as planned a second ago."""
    foreign(0.0)
    assert make(machine=replace(machine("b"), host="another-pod")).acquire("on b again").run.attempt == 2
    make.made[-1].release()
    foreign(1.0, ended="completed", ended_at=1.0)
    assert make(machine=machine("c")).acquire("on c").previous_outcome == "completed"


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("age_secs", [-3600.0, None])
def test_a_file_of_no_age_is_watched(
    make: Holds, run: Path, foreign: Any, caplog: pytest.LogCaptureFixture, lives: bool, age_secs: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """If the server's clock was set back, or it says nothing, the age says nothing: a heartbeat within the timeout
    does, by this machine's clock."""
    foreign(age_secs or 0.0)
    waited: list[float] = []

    def wait(secs: float) -> None:
        waited.append(secs)
        if lives and len(waited) == 3:
            edit(run, beats=7)

    hold = make(machine=machine("c"), timeout_secs=60.0, wait=wait)
    if age_secs is None:
        monkeypatch.setattr(LogdirHold, "_age_secs", lambda self: float("-inf"))
    if lives:
        with pytest.raises(LogdirInUseError, match=r"process 77 on b .* try again in (5\d|60) s"):
            hold.acquire("on c")
        assert len(waited) == 3
    else:
        assert hold.acquire("on c").previous_outcome == "lost"
        assert sum(waited) == 60.0
    said = r"was last written (359\d|3600) s in the future|was written at an unknown time: waiting up to 60 s"
    assert re.search(said, caplog.text)


def test_a_file_system_without_locks(make: Holds, run: Path, no_locks: None) -> None:
    """The run goes on with a warning; history and heartbeats work all the same."""
    hold = make()
    history = hold.acquire("a")
    assert not history.exclusive
    assert "has no file locks (No locks available): only heartbeats in" in str(history.warning)
    beats(hold, 3)
    make.refuse("b", match="this very process")
    ends(hold, "completed", 4)
    assert make().acquire("c").last_step == 4


def test_without_locks_a_process_that_is_gone_is_dead(
    make: Holds, holder: subprocess.Popen[str], no_locks: None
) -> None:
    """A process of this machine counts as alive while it runs and beats, and no longer."""
    make.refuse("b", match=f"process {holder.pid} ")
    holder.kill()
    holder.wait()
    assert make().acquire("c").previous_outcome == "lost"


def test_a_file_that_is_just_being_written_is_read_again(
    make: Holds, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it is written in place: half an old and half a new record is none; a moment later it is one."""
    make.hold("a")
    whole, readings = liveness.decode, iter([1, 2])

    def torn_at_first(data: bytes) -> Any:
        return whole(data[:40] if next(readings, None) else data)

    monkeypatch.setattr("supervisor_core.engine.logdir_hold.decode", torn_at_first)
    make.refuse("b")


def test_how_often_a_chief_beats(make: Holds, run: Path) -> None:
    """Every ten seconds, more often where heartbeats are, or the timeout is short."""
    for options, secs, expected in [
        ({}, 10.0, 10.0),
        ({}, 2.0, 2.0),
        ({}, 0.0, 10.0),
        ({"timeout_secs": 2.0}, 10.0, 0.5),
    ]:
        hold = make(**options)
        hold.acquire("a", beat_secs=secs)
        assert said(run).interval_secs == expected
        hold.release()


# Files that are deleted, replaced, damaged, or cannot be written.


def test_a_deleted_logdir_is_not_brought_back(make: Holds, run: Path) -> None:
    """Neither by a heartbeat nor by the end. A save brings it back, locked as before."""
    hold = make.hold("a")
    shutil.rmtree(run)
    assert isinstance(beats(hold), OSError)
    assert not run.exists()
    hold.bring_back()
    hold.bring_back()
    make.refuse("b")
    beats(hold)
    said(run)
    shutil.rmtree(run)
    ends(hold, "completed")
    assert not run.exists()


def test_a_logdir_deleted_while_it_is_locked_again(
    make: Holds, run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The check makes the deleted lock again, and the rest of the logdir goes under it: the next save brings the logdir
    back all the same, as that of any deleted one."""
    hold = make.hold("a")
    (run / LOCK_NAME).unlink()
    flock = fcntl.flock

    def deleting(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        shutil.rmtree(run)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleting)
    with pytest.raises(OSError, match="cannot be opened"):
        hold.check()
    assert not run.exists()
    hold.bring_back()
    make.refuse("b")
    assert caplog.text.count("was deleted; it is made again") == 1


def test_a_new_logdir_that_another_run_has_used(make: Holds, run: Path, clock: Any) -> None:
    """Deleted, made again, used by another training, which has ended: its checkpoints are not this run's, though it has
    the lower number."""
    for session in "ab":
        ends(make.hold(session), "completed")
    hold = make.hold("c")
    shutil.rmtree(run)
    clock.now += 5
    ends(make.hold("other"), "completed")
    with pytest.raises(LogdirInUseError, match="other"):
        hold.bring_back()


def test_a_logdir_that_was_away_is_still_held(make: Holds, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Moved away and back: meanwhile nothing is published, and no save makes the logdir again; a second chief is
    refused as before, in both places."""
    hold, away = make.hold("a"), run.with_name("away")
    run.rename(away)
    for check in (hold.check, hold.bring_back):
        with pytest.raises(OSError, match=re.escape(f"{run} was renamed to {away}: move it back")):
            check()
    assert isinstance(beats(hold, 4), OSError) and hold.is_moved
    assert not run.exists()
    with pytest.raises(LogdirInUseError):
        LogdirHold(away, machine=replace(this_machine(), host="elsewhere")).acquire("c")
    away.rename(run)
    hold.check()
    beats(hold, 5)
    assert said(run).step == 5 and not hold.is_moved
    make.refuse("b")


def test_a_copy_of_the_logdir_in_its_place_is_held(make: Holds, run: Path) -> None:
    """Restored from a copy, or mounted again: the lock of that name is another file, and is locked."""
    hold = make.hold("a")
    shutil.copytree(run, run.with_name("copy"))
    run.rename(run.with_name("away"))
    run.with_name("copy").rename(run)
    beats(hold, 5)
    make.refuse("b", match="at step 5")


def test_a_logdir_that_cannot_be_written(
    run: Path, make: Holds, clock: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another user's, or a read-only mount: a warning, no exception, nothing is written. Its lock is locked all the
    same, so while its holder lives, here or elsewhere, a second chief is refused."""
    first, opened = make.hold("a"), os.open
    caplog.clear()

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY) and str(path).startswith(str(run)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(LocalFilesystem, "replace", lambda self, path, *_: refuse(path, os.O_RDWR))
    make.refuse("b", match="session a")
    before = peek(run)
    first.release()
    second = make()
    history = second.acquire("c")
    assert (history.run.attempt, history.exclusive, second.liveness) == (2, False, None)
    assert f"cannot be guarded against a second chief: {os.strerror(errno.EROFS)}" in str(history.warning)
    assert len(caplog.records) == 1
    second.check()
    make.refuse("d", match="another process|process ")
    second.release()
    assert peek(run) == before
    monkeypatch.undo()
    edit(run, host="b", boot="kernel-b", pid=77)
    clock.now = os.stat(chief_path(run)).st_mtime + 5.0
    monkeypatch.setattr(os, "open", refuse)
    make.refuse("e", match="process 77 on b")


@each("place", ["lock", "liveness"])
def test_what_is_no_file_in_a_files_place(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    """The session goes on with a warning, and does not wait for the other end."""
    (tmp_path / LIVENESS_DIRECTORY).mkdir()
    os.mkfifo(tmp_path / LOCK_NAME if place == "lock" else chief_path(tmp_path))
    hold = LogdirHold(tmp_path)
    history = hold.acquire("a")
    assert history.exclusive is (place == "liveness")
    assert "it is a FIFO, not a regular file" in str(history.warning)
    beats(hold, 1)
    assert said(tmp_path).step == 1


def test_a_full_disk_does_not_stop_the_run(
    make: Holds, run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written is said, the logdir is held, and written when there is room again."""
    replacing = LocalFilesystem.replace

    def full(self: Any, path: str, data: bytes, *check: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(LocalFilesystem, "replace", full)
    hold = make()
    assert hold.acquire("a").exclusive
    assert "could not be written, other machines do not see this session: " in caplog.text
    make.refuse("b", match=f"process {os.getpid()} ")
    monkeypatch.setattr(LocalFilesystem, "replace", replacing)
    beats(hold, 6)
    assert said(run).step == 6
    monkeypatch.setattr(LocalFilesystem, "replace", full)
    beats(hold, 7)  # in place, which needs no room
    hold.release()
    assert make().acquire("b").last_step == 7


# Before each publication: only a session that was taken over is stopped.


def test_the_holder_passes(make: Holds, run: Path) -> None:
    """While it is held, and after its release until another session takes it; what comes after puts nothing back."""
    hold = make.hold("a")
    hold.check()
    beats(hold, 5)
    hold.check()
    ends(hold, "completed")
    hold.check()
    (run / LOCK_NAME).unlink()
    Path(chief_path(run)).unlink()
    hold.check()
    assert not (run / LOCK_NAME).exists() and not Path(chief_path(run)).exists()
    make.hold("b")
    edit(run, attempt=2)
    with pytest.raises(LogdirInUseError, match="session b"):
        hold.check()


def test_whoever_was_taken_over_is_stopped_at_once(make: Holds, run: Path) -> None:
    """Also if the successor has ended since; the error says who took over, goes to the owner once, and stays. Neither
    heartbeats nor the end overwrite the successor."""
    reported: list[Exception] = []
    hold = make.hold("a", on_taken_over=reported.append)
    edit(run, session="b", attempt=2, host="b", pid=77, ended="completed")
    before = Path(chief_path(run)).read_bytes()
    for _ in range(3):
        text = (
            r"taken over by process 77 on b \(session b\), which has ended \(completed\): this process had written no"
        )
        with pytest.raises(LogdirInUseError, match=text):
            hold.check()
    assert beats(hold, 7) is None
    ends(hold, "error")
    assert Path(chief_path(run)).read_bytes() == before
    edit(run, session="a", attempt=1)
    with pytest.raises(LogdirInUseError):
        hold.check()
    assert [type(error) for error in reported] == [LogdirInUseError]


def test_a_late_write_of_an_earlier_chief_stops_no_chief(make: Holds, run: Path, no_locks: None) -> None:
    """It slipped in after the takeover: the new chief goes on, and its heartbeat puts that right."""
    ends(make.hold("a"), "error")
    second = make.hold("b")
    edit(run, session="a", attempt=1)
    second.check()
    assert beats(second) is None
    assert said(run).session == "b"


@each("content", [b"", b"garbage", b"\0" * 1024, None])
def test_a_file_that_names_no_session_stops_no_chief(tmp_path: Path, content: bytes | None) -> None:
    """Deleted, or damaged by whatever else: the next heartbeat writes it again."""
    hold, path = LogdirHold(tmp_path), Path(chief_path(tmp_path))
    hold.acquire("a")
    shutil.rmtree(path.parent) if content is None else path.write_bytes(content)
    hold.check()
    assert beats(hold) is None
    assert said(tmp_path).session == "a"


def test_a_deleted_lock(make: Holds, run: Path) -> None:
    """Is made and locked again, unless another chief has done that, written its liveness or not."""
    hold = make.hold("a")
    (run / LOCK_NAME).unlink()
    hold.check()
    make.refuse("b")
    (run / LOCK_NAME).unlink()
    other = LockFile(str(run / LOCK_NAME))
    assert other.take() is None
    with pytest.raises(LogdirInUseError, match=rf"taken over by process {os.getpid()} "):
        hold.check()


def test_a_replaced_lock_where_there_are_no_locks(make: Holds, run: Path, no_locks: None) -> None:
    """With another session's liveness it is a takeover, though that counts from 1 again; with its own it is a copy."""
    hold = make()
    hold.acquire("a", after_attempt=8)
    (run / LOCK_NAME).unlink()
    hold.check()
    (run / LOCK_NAME).unlink()
    edit(run, session="b", attempt=1)
    with pytest.raises(LogdirInUseError, match="session b"):
        hold.check()


def test_a_file_that_cannot_be_read_is_no_answer(make: Holds, run: Path) -> None:
    """Then nothing is published now: an `OSError`, after which everything may be tried again."""
    hold, path = make.hold("a"), Path(chief_path(run))
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="is a directory"):
        hold.check()
    path.rmdir()
    hold.check()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A logdir in an object store, as fsspec shows it, in a process without tensorflow."""
    import fsspec

    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    yield "memory://held-run"
    fsspec.filesystem("memory").rm("/held-run", recursive=True)


def test_an_object_store_is_read_before_each_change(bucket: str) -> None:
    """There are no locks and no conditional writes there: the object is read, then the change is made. One that was
    deleted stops no chief."""
    import fsspec

    store, name = fsspec.filesystem("memory"), chief_path(bucket).removeprefix("memory:/")
    hold = LogdirHold(bucket)
    assert hold.acquire("a").exclusive
    store.rm(name)
    hold.check()
    beats(hold)
    record = said(bucket)
    successor = encode(replace(record, session="b", history=replace(record.history, attempt=2), host="b", pid=77))
    store.pipe(name, successor)
    with pytest.raises(LogdirInUseError, match=r"taken over by process 77 on b \(session b\)"):
        hold.check()
    assert not hold.release()
    assert store.cat(name) == successor


# Sessions that write no checkpoints are in the way of none that does, and leave no trace in their history.


def test_a_logdir_of_its_own_is_taken(make: Holds, run: Path) -> None:
    """Where no session has written checkpoints it is one like any other, and the next one follows it."""
    first = make(yields_logdir=True)
    assert first.acquire("a").run.attempt == 1
    beats(first, 70)
    first.check()
    make.refuse("another evaluation", yields_logdir=True)
    ends(first, "completed", 70)
    history = make(yields_logdir=True).acquire("b")
    assert (history.run.attempt, history.last_step, history.run.restarts) == (2, 70, {"completed": 1})
    make.made[-1]._forget()  # killed
    gc.collect()
    make.made[-1].release()
    edit(run, pid=2**22 + 1)
    history = make(yields_logdir=True).acquire("next")
    assert (history.run.attempt, history.previous_outcome) == (3, "lost")


def test_a_session_that_writes_checkpoints_keeps_it_out(make: Holds, run: Path) -> None:
    """Beside a training, and after it, it is refused, and changes nothing."""
    training = make.hold("training")
    during = peek(run)
    make.refuse("evaluation", yields_logdir=True, exclusive=False)
    assert peek(run) == during
    ends(training, "signal", 5)
    after = peek(run)
    make.refuse("evaluation", yields_logdir=True)
    assert peek(run) == after
    assert make().acquire("training again").run.attempt == 2


def test_a_training_takes_over_at_once(make: Holds, run: Path) -> None:
    """A session that is alive gives way, in another process too; it is no earlier session of the training, and notices
    before it publishes."""
    heard: list[LogdirInUseError] = []
    evaluation = make.hold("evaluation", yields_logdir=True, on_taken_over=heard.append)
    evaluation.check()
    training = make()
    history = training.acquire("training")
    assert (history.previous, history.run.restarts, history.exclusive) == (None, {}, True)
    with pytest.raises(LogdirInUseError, match="writes no telemetry any more"):
        evaluation.check()
    assert len(heard) == 1
    ends(evaluation, "completed")
    training.check()
    assert said(run).session == "training"
    shutil.rmtree(run)
    with start(run, HOLDER.replace("(sys.argv[1])", "(sys.argv[1], yields_logdir=True)")) as process:
        assert make().acquire("training").previous is None
        process.communicate("")
