"""One chief per logdir, and a memory that lasts across sessions."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, LogdirLock
from supervisor_core.checkpoint.session_history import history_after
from supervisor_core.process.identity import boot_id
from tests.story.leases import peek

Make = Any  # `Leases`
Edit = Callable[..., None]
OnDisk = Callable[[], dict[str, Any]]


def test_the_first_session_is_the_first(make: Make, clock: Any) -> None:
    """A new logdir: attempt 1, nothing before, exclusive, nothing to warn of."""
    history = make().acquire("a")
    assert (history.attempt, history.previous, history.previous_outcome, history.last_step) == (1, None, None, None)
    assert (history.exclusive, history.warning, history.first_started_at) == (True, None, clock.now)


def test_sessions_follow_one_another(make: Make, clock: Any) -> None:
    """Each session learns its number, how the others ended, how far they came, and what was done again."""
    started = clock.now
    for number, (reason, restored, reached) in enumerate(
        [("completed", 0, 500), ("signal", 500, 900), ("signal", 700, 950)], 1
    ):
        lease = make()
        history = lease.acquire(f"session-{number}")
        assert history.attempt == number
        lease.record_restore(restored)
        clock.now += 100
        lease.renew(last_step=reached - 10)
        lease.release(reason, last_step=reached)
    history = make().acquire("last")
    assert history.attempt == 4
    assert history.restarts == {"completed": 1, "signal": 2}
    assert history.steps_lost == 200
    assert (history.previous_outcome, history.last_step, history.first_started_at) == ("signal", 950, started)
    assert history.previous.session == "session-3"


def test_steps_done_again_are_counted(make: Make) -> None:
    """What lies between where the last session came and where this one resumes is lost, never less than 0."""
    make.hold("a").release("error", last_step=500)
    second = make.hold("b")
    assert second.record_restore(450) == 50
    second.release("error", last_step=470, steps_lost=55)
    third = make()
    assert third.acquire("c").steps_lost == 55
    assert third.record_restore(480) == 0


def test_steps_done_again_within_a_session_are_counted(make: Make) -> None:
    """A session that went back by itself has lost those steps too."""
    first = make.hold("a")
    first.record_rewind(30, 70)
    first.record_rewind(5, 80)
    first.renew(last_step=90)
    first.release("error", last_step=90)
    assert make().acquire("b").steps_lost == 35


@pytest.mark.parametrize(
    ("boot", "secs"),
    [(boot_id(), 20.0), ("another kernel's", None), (None, None)],
    ids=["here", "elsewhere", "unknown"],
)
def test_how_long_ago_a_session_was_seen(make: Make, clock: Any, tmp_path: Path, boot: str, secs: float | None) -> None:
    """By a clock that is never set, also of one that was killed before its first renewal; on one machine only."""
    make().acquire("a")
    record = peek(tmp_path / "run")
    assert record is not None
    clock.now += 20.0
    history = history_after(replace(record, boot=boot), clock.now, exclusive=True, warning=None)
    recorded = history.record_fields(clock.now)
    assert (recorded["previous_elapsed_secs"], recorded["previous_seen_secs"]) == (0.0, secs)
    assert (recorded["previous_seen_at"], recorded["run_started_at"]) == (clock.now - 20.0, clock.now - 20.0)


def test_a_second_chief_in_this_process_is_refused(make: Make, tmp_path: Path) -> None:
    """Two sessions of one process on one logdir: the error says that it is this very process."""
    make().acquire("first")
    with pytest.raises(LogdirInUseError) as caught:
        make().acquire("second")
    assert re.sub(r"renewed \d s", "renewed 0 s", str(caught.value)) == (  # it may have taken a while to get here
        f"The logdir {tmp_path / 'run'} is in use by this very process (session first) since 1970-01-12 13:46:40 UTC, "
        "renewed 0 s ago. Two chiefs would delete each other's checkpoints: close that session, or use another logdir. "
        "Options(exclusive_logdir=False) starts anyway."
    )


def test_the_error_of_a_second_chief_names_the_holder(make: Make, holder: subprocess.Popen[str]) -> None:
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
    history = make().acquire("second")
    assert (history.attempt, history.restarts, history.last_step, history.exclusive) == (2, {"lost": 1}, 400, True)


def test_a_stopped_holder_still_holds(make: Make, holder: subprocess.Popen[str]) -> None:
    """A holder that is stopped, not dead, cannot renew, and is not robbed."""
    holder.send_signal(signal.SIGSTOP)
    try:
        make.refuse("second", timeout_secs=1e-9)
    finally:
        holder.send_signal(signal.SIGCONT)


def test_a_forked_child_does_not_keep_the_lease(tmp_path: Path, make: Make, holder_script: str) -> None:
    """A holder's child that outlives it (a data loader) does not keep the lease alive."""
    script = holder_script.replace(
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
        assert process.stdout.readline() == "held\n"
        make.refuse("second")
        process.kill()
        process.wait()
        assert make().acquire("third").previous_outcome == "lost"


def test_a_forked_child_is_not_the_holder(tmp_path: Path) -> None:
    """What the child does with its copy of the lease object (renewing, releasing at exit) changes and says nothing."""
    script = (
        "import os, sys\n"
        "from supervisor_core.checkpoint.lease_file import decode, lease_file_in\n"
        "from supervisor_core.checkpoint.logdir_lock import LogdirLock\n"
        "lease = LogdirLock(sys.argv[1], spawn=lambda renew: renew())\n"
        "lease.acquire('parent')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    lease.renew(last_step=98)\n"
        "    lease.renew(last_step=99)\n"
        "    lease.release('child')\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "record = decode(lease_file_in(sys.argv[1]).read())\n"
        "assert (record.ended, record.last_step, record.renewals) == (None, None, 0), record\n"
        "lease.release('completed', last_step=7)\n"
        "assert decode(lease_file_in(sys.argv[1]).read()).ended == 'completed'\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "run")]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_file_is_as_described(make: Make, tmp_path: Path, edit: Edit) -> None:
    """One line of ASCII JSON, padded with spaces to 1,024 bytes, in place at every renewal; longer when it must be."""
    lease = make.hold("a")
    inode = (tmp_path / "run" / LEASE_NAME).stat().st_ino
    content = (tmp_path / "run" / LEASE_NAME).read_bytes()
    assert len(content) == 1024
    assert content.endswith(b" \n")
    assert content.rstrip() == json.dumps(json.loads(content), separators=(",", ":")).encode("ascii")
    assert json.loads(content)["v"] == 1
    lease.renew(last_step=3)
    lease.release("completed")
    assert (tmp_path / "run" / LEASE_NAME).stat().st_ino == inode
    edit(restarts={f"reason {number}": number for number in range(60)})
    make().acquire("b")
    content = (tmp_path / "run" / LEASE_NAME).read_bytes()
    assert len(content) == 2048
    assert len(json.loads(content)["restarts"]) == 61


def test_peeking_changes_nothing(make: Make, tmp_path: Path) -> None:
    """Anybody may look at who holds a logdir; a logdir without a lease has none."""
    assert peek(tmp_path / "run") is None
    assert not (tmp_path / "run").exists()
    make().acquire("a")
    record = peek(str(tmp_path / "run"))
    assert (record.session, record.pid, record.ended) == ("a", os.getpid(), None)


def test_a_lease_that_is_dropped_is_free(tmp_path: Path) -> None:
    """A session whose object is gone without being closed, as in a notebook, does not hold the logdir."""
    LogdirLock(tmp_path / "run").acquire("a")
    second = LogdirLock(tmp_path / "run")
    assert second.acquire("b").previous_outcome == "lost"
    second.release("completed")


def test_releasing_twice(make: Make, tmp_path: Path, on_disk: OnDisk) -> None:
    """The first reason stands."""
    lease = make.hold("a")
    lease.release("signal")
    lease.release("completed")
    lease.renew()
    assert on_disk()["ended"] == "signal"


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


def test_how_often_a_lease_is_renewed(make: Make) -> None:
    """Every second, so that hardly a step of a killed session goes uncounted; more often where the timeout is short."""
    assert make().renewal_secs == 1.0
    assert make(timeout_secs=2.0).renewal_secs == 0.5


def test_how_often_a_lease_in_an_object_store_is_renewed() -> None:
    """Four times within its timeout: each renewal is an upload."""
    assert LogdirLock("memory://lease-in-a-store/run", timeout_secs=60.0).renewal_secs == 15.0


@pytest.mark.parametrize("attempt", [10**15 // 2 + 1, 10**15 - 1, 10**15, 2**53, 2**63 - 2])
def test_an_attempt_that_cannot_be_is_not_counted_on_from(make: Make, edit: Edit, tmp_path: Path, attempt: int) -> None:
    """The next session counts on from the newest that can be, and what it writes can be read, by those after it too."""
    make.hold("a").release("completed")
    edit(attempt=attempt)
    for number, session in enumerate("bcd", 8):
        lease = make()
        assert lease.acquire(session, after_attempt=7).attempt == number
        record = peek(tmp_path / "run")
        assert (record.session, record.attempt) == (session, number)
        lease.release("completed")


def test_counts_that_leave_no_room_are_not_carried_on(make: Make, edit: Edit, tmp_path: Path) -> None:
    """What a lease says at the very bound of the plausible makes the lease after it no less readable."""
    make.hold("a").release("lost")
    most = 2**63 - 1
    edit(restarts={"lost": most, "signal": 2}, steps_lost=most, save_secs=2.4999e11, timed_saves=3, last_step=100)
    lease = make.hold("b")
    lease.record_restore(0)
    record = peek(tmp_path / "run")
    assert (record.restarts, record.steps_lost) == ({"lost": 1, "signal": 2}, 100)
    assert (record.save_secs, record.timed_saves) == (None, 3)


def test_whose_heir_a_session_is(tmp_path) -> None:
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
        lease = LogdirLock(tmp_path)
        lease.acquire(session)
        record = peek(tmp_path)
        heirs.append(record.predecessor)
        if ready:
            lease.record_ready()
        lease.release(ended)
    assert heirs == [None, "a", "a", "a", "d", None, "f", None]
