"""Launches in the events files: the records, their files' names, and what happens where they cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor_core.base.clock import SystemClock
from supervisor_core.events.telemetry import DeathRecord, SessionRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import PageReading, pages_in
from supervisor_core.restarter.journal import LaunchJournal
from supervisor_core.restarter.launch import Death, LaunchFacts
from supervisor_core.restarter.policy import ChildEnd, Decision, Failure
from supervisor_core.run.model.program_launch import launch_text
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.cases import each

STARTED = 1_795_222_244.5


class StillClock(SystemClock):
    """A wall clock that stands still."""

    def __init__(self, at: float) -> None:
        self._at = at

    def wall(self) -> float:
        """Return its time."""
        return self._at


def facts(attempt: int, directory: Path, started_at: float = STARTED) -> LaunchFacts:
    """A launch that has begun."""
    return LaunchFacts(attempt=attempt, started_at=started_at, directory=str(directory), pid=4711)


def end(launch: LaunchFacts, *, secs: float = 60.0) -> LaunchFacts:
    """The launch after the kernel killed it for want of memory."""
    launch.end, launch.cause = ChildEnd(signal=9, oom_kills=1, stderr="step 7\n"), "oom"
    launch.ended_at, launch.step, launch.failure = launch.started_at + secs, 7, Failure(type="SIGKILL")
    launch.decision = Decision(action="restart", reason="progress", delay_secs=8.0, counted=True, progress=True)
    return launch


def test_a_launch_is_read_back_and_joined_to_its_restart(tmp_path: Path) -> None:
    """Between two sessions of another writer, by time; as text it is what the tab shows."""
    for number, at in enumerate((STARTED + 10, STARTED + 80)):
        with EventsWriter(tmp_path, filename_suffix=f".{number}", clock=StillClock(at)) as writer:
            for step in range(3):
                writer.scalar("loss", 0.5, step=step, wall_time=at + step)
    journal = LaunchJournal(("python", "train.py"))
    first = facts(4, tmp_path)
    journal.begun(first)
    journal.ended(end(first))
    journal.begun(facts(5, tmp_path, STARTED + 68.0))
    journal.close()
    assert journal.unrecorded is None
    run = LogdirWatch(str(tmp_path)).refresh().runs["."].run
    assert [(item.attempt, item.cause, item.ended_at) for item in run.launches] == [
        (4, "oom", STARTED + 60.0),
        (5, None, None),
    ]
    launch = run.launches[0]
    assert (launch.oom_kills, launch.signal, launch.decided_by, launch.step) == (1, "SIGKILL", "machine", 7)
    assert launch_text(launch) == "restarted by tb-supervisor: OOM-killed; attempt 4; next in 8 s"
    assert [item.launch for item in run.restarts] == [launch]
    assert (run.first_step, run.last_step, run.max_step) == (0, 2, 2)  # a launch's step is none of the run's


def test_the_names_of_its_files_are_never_after_the_next_sessions(tmp_path: Path) -> None:
    """TensorBoard reads the files of a directory in the order of their names, and never goes back."""
    journal = LaunchJournal(("python",))
    with EventsWriter(tmp_path) as session:
        own = os.path.basename(session.path or "")
        journal.ended(end(facts(1, tmp_path, float(own.split(".")[3])), secs=0.0))
        journal.close()
    others = [name for name in os.listdir(tmp_path) if name.endswith(".restarter")]
    assert len(others) == 1 and others[0] < own


def test_what_cannot_be_written_is_logged_and_keeps_nothing_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file where the directory should be; the next launch is recorded again."""
    caplog.set_level("WARNING", "supervisor_core")
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    journal = LaunchJournal(("python",))
    journal.ended(end(facts(1, blocked)))
    journal.begun(facts(2, tmp_path))
    journal.close()
    assert journal.unrecorded is not None and journal.unrecorded.ended_at == STARTED + 60.0
    assert "Launch 1 is not recorded" in caplog.text
    assert [launch.attempt for launch in LogdirWatch(str(tmp_path)).refresh().runs["."].run.launches] == [2]


@each("below", ["", "run"])
def test_what_a_killed_session_has_left_in_memory_is_recorded_where_its_events_are(tmp_path: Path, below: str) -> None:
    """In the restarter's directory, or below it. Then its page is gone, and the run is as the page had it."""
    logdir, page = tmp_path / below, left_in_memory(tmp_path / "memory", tmp_path / below)
    with EventsWriter(logdir, clock=StillClock(STARTED)) as writer:
        record = SessionRecord(session=page.session, attempt=1, started_at=STARTED, restored_step=90, heartbeat_secs=10)
        writer.summary(summary_bytes(record), step=90, wall_time=STARTED + 1.0)
    journal, launch = LaunchJournal(("python", "train.py")), facts(1, tmp_path)
    journal.begun(launch)
    launch.deaths = (Death(page, DeathRecord(session=page.session, step=142, step_exact=True, elapsed_secs=51.0)),)
    journal.ended(end(launch))
    journal.close()
    assert list((tmp_path / "memory").iterdir()) == []
    watch = LogdirWatch(str(tmp_path)).refresh()
    run = watch.runs[below or "."].run
    [session] = run.sessions
    assert (session.gone, session.last_step, session.ended_at) == (True, 142, STARTED + 51.0)
    assert [item.cause for item in watch.runs["."].run.launches] == ["oom"]


def test_what_cannot_be_recorded_stays_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The logdir is a file by now."""
    (tmp_path / "run").write_bytes(b"")
    page = left_in_memory(tmp_path / "memory", tmp_path / "run")
    journal, launch = LaunchJournal(("python", "train.py")), facts(1, tmp_path)
    launch.deaths = (Death(page, DeathRecord(session=page.session, step=142)),)
    journal.ended(end(launch))
    journal.close()
    assert page.path.exists()
    assert f"The end of session {page.session} is not recorded" in caplog.text


def left_in_memory(memory: Path, logdir: Path) -> PageReading:
    """A page of a session, with a file of stacks."""
    memory.mkdir()
    made = ProgressPage.create(memory, session_id="6f1d3c0a9b7e4d21", attempt=1, logdir=str(logdir))
    assert made.path is not None
    made.path.with_suffix(".stacks").write_text("supervisor stacks 1\n")
    [page] = pages_in([memory])
    return page
