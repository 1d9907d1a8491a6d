"""What is known now of a run, and in no record of its events: from its liveness files, and from its progress page.

The chief's liveness file is replaced with each heartbeat, also where its events cannot be written. The progress page is
in the memory of the session's machine: on that machine it shows step and progress of a session whose logdir does not
answer, and that native code blocks the interpreter, so that nothing in the process can write a record of it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from supervisor_core.events.telemetry import DeathRecord
from supervisor_core.process.progress_page import PageReading, page_of_session
from supervisor_core.run.fold.goodput import is_down, phase_since, rebooked, spent, without_risk
from supervisor_core.run.fold.session_parts import with_stall
from supervisor_core.run.model.run import BUCKET_OF_PHASE, DOWNTIME, STALL, Run, Session
from supervisor_core.run.watch.last_words import TimedLook, death_of, newest_look, stall_of
from supervisor_core.run.watch.liveness import CHIEF, LIVENESS_DIRECTORY, LivenessRecord, file_name, read_record
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path

FRESH_SECS = 30.0
"""A liveness file that did not change for longer is read ever more rarely."""
REMOTE_SECS = 20.0
"""One in an object store is not read while something newer than this is known of the run: each read is a request."""
MAX_WAIT_SECS = 3600.0
"""One that does not change is read after `FRESH_SECS`, then after twice as long each time, up to this."""

_READINGS = 2
"""A reading may fall into a write where the disk is full, which is in place."""


class LivenessReader:
    """Reads the liveness file of one run's chief.

    Args:
        directory: the run's.
        filesystem_of: returns the file system of a path, and the path by the name to be used with it.
    """

    __slots__ = (
        "_changed_at", "_due", "_filesystem_of", "_last", "_path", "_session", "_stamp", "_wait_secs", "written_at",
    )  # fmt: skip

    def __init__(self, directory: str, filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for) -> None:
        self._path = f"{directory.rstrip('/')}/{LIVENESS_DIRECTORY}/{file_name(CHIEF)}"
        self._filesystem_of = filesystem_of
        self._due = self._wait_secs = 0.0
        self._changed_at = 0.0
        self._session: str | None = None
        self._last: LivenessRecord | None = None
        self._stamp: tuple[int, ...] | None = None
        """What changes with a local file."""
        self.written_at: float | None = None
        """When the file was written, by the clock of its file system; None where unknown."""

    def read(self, session: str, now: float, known_secs: float = 0.0) -> LivenessRecord | None:
        """Return what the file has of a session, as it was last read; None where there is none, or it is of another.

        Args:
            session: the newest session's id.
            now: the present wall time.
            known_secs: the age of the newest that its events have.
        """
        if session != self._session or known_secs < FRESH_SECS:
            self._session, self._due, self._wait_secs = session, 0.0, 0.0
        if now >= self._due and (local_path(self._path) is not None or known_secs >= REMOTE_SECS):
            before, self._last = self._last, self._read()
            if self._last != before:
                self._changed_at, self._wait_secs = now, 0.0
            elif now - self._changed_at > FRESH_SECS:
                self._wait_secs = min(MAX_WAIT_SECS, max(FRESH_SECS, 2 * self._wait_secs))
                self._due = now + self._wait_secs
        return self._last if self._last is not None and self._last.session == session else None

    def _read(self) -> LivenessRecord | None:
        before, self._stamp = self._stamp, self._stamp_now()
        if self._stamp is not None and self._stamp == before:
            return self._last
        for _ in range(_READINGS):
            try:
                filesystem, name = self._filesystem_of(self._path)
                record = read_record(filesystem, name)
                self.written_at = filesystem.modified_at(name)
            except ValueError:
                continue
            except Exception:  # clients of object stores raise what they like; the next look may go well
                break
            return record
        return None

    def _stamp_now(self) -> tuple[int, ...] | None:
        local = local_path(self._path)
        try:
            found = None if local is None else os.stat(local)
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class PageReader:
    """Reads the progress page of one run's newest session, where that runs on this machine.

    Args:
        liveness: reads the run's liveness file, which names the page.
    """

    __slots__ = ("_alive_at_boot", "_liveness", "_path", "_session")

    def __init__(self, liveness: LivenessReader) -> None:
        self._liveness = liveness
        self._session: str | None = None
        self._path: str | None = None
        self._alive_at_boot = 0.0

    def read(self, session: Session, now: float) -> PageReading | None:
        """Return the page if its session goes on; None otherwise, and where that is unknown.

        Args:
            session: the newest, from the events.
            now: the present wall time.
        """
        page = self._page(session, now)
        goes_on = page is not None and not page.ended and page.is_running and not page.is_stopped
        return page if goes_on else None

    def death(self, session: Session, now: float, boot_now: float) -> DeathRecord | None:
        """Return what is known of a session whose process is over; None while it runs, and where that is unknown: on
        another machine, in another container.

        Args:
            session: the newest, from the events.
            now: the present wall time.
            boot_now: the same by `supervisor_core.base.clock.boot_secs`.
        """
        page = self._page(session, now)
        if page is None:
            return None
        if not page.is_dead:
            self._alive_at_boot = boot_now if page.is_running else 0.0
            return None
        return death_of(page, now, boot_now, alive_at_boot=self._alive_at_boot)

    def _page(self, session: Session, now: float) -> PageReading | None:
        if session.inferred:
            return None
        if session.id != self._session:
            self._session, self._path, self._alive_at_boot = session.id, None, 0.0
        if self._path is None:
            live = self._liveness.read(session.id, now)
            self._path = None if live is None else live.page
        return None if self._path is None else page_of_session(self._path, session.id)


def with_page(
    run: Run,
    page: PageReading | None,
    now: float,
    boot_now: float,
    look_of: Callable[[PageReading], TimedLook | None] = newest_look,
) -> Run:
    """Return the run, updated from the page of its newest session: with what the session cannot write, which may be in
    no record for that reason; and where it cannot write events, with its state and progress.

    That is: the run is lost by its events, though its process runs; or the interpreter is blocked, so that no progress
    for longer than the hang timeout is a stall that no record shows.

    Args:
        run: the run from its events.
        page: of a process that runs; None without one.
        now: the present wall time, by the clock of the session.
        boot_now: the same by `supervisor_core.base.clock.boot_secs`.
        look_of: returns the newest stacks of a process.
    """
    if page is None:
        return run
    run = _with_failures(run, page)
    if not page.ticks:
        return run
    stall = stall_of(page, now, boot_now, look_of)
    if run.state != "lost" and (stall is None or stall.blocked_since is None):
        return run
    session = replace(
        run.sessions[-1],
        ended_at=now,
        last_step=run.sessions[-1].last_step if page.step is None else page.step,
        steps=page.steps,
        phase=page.phase,
        last_progress_at=now - (boot_now - page.progress_boot_secs),
        progress_timeout_secs=page.hang_timeout_secs,
    )
    found = _running(run, session, now, is_stalled=stall is not None)
    return found if stall is None else replace(found, stalls=with_stall(run.stalls, session.id, stall))


def _with_failures(run: Run, page: PageReading) -> Run:
    """Return the run with what its newest session cannot write: the page of a process that runs is as new as any
    record."""
    if page.save_failures is None or page.save_failures_in_a_row is None:
        return run
    last = run.sessions[-1]
    new = replace(
        last,
        saves=last.saves + max(0, page.save_failures - last.save_failures),
        save_failures=max(page.save_failures, last.save_failures),
        save_failures_in_a_row=page.save_failures_in_a_row,
        save_error=page.save_error or None,
        events_error=(page.events_error or "why is not known") if page.events_fail else None,
    )
    return run if new == last else replace(run, sessions=(*run.sessions[:-1], new))


def _running(run: Run, session: Session, now: float, *, is_stalled: bool) -> Run:
    """Return the run with its newest session alive, as it is given; the time since its last event counts as progress
    until the last one, then as the stall."""
    before = run.sessions[-1]
    since = now if before.ended_at is None else before.ended_at
    booked = {"running": BUCKET_OF_PHASE.get(before.phase or "", "other"), "stalled": STALL}.get(run.state)
    if is_down(run.state, before, now):
        booked = DOWNTIME
    goodput = run.goodput
    if run.state == "lost":
        is_unsaved = bool(run.checkpoints) and not any(saved.ok for saved in run.checkpoints)
        goodput = goodput if is_unsaved else without_risk(goodput)
        run = run if is_unsaved else replace(run, at_risk=None)
    goodput = rebooked(goodput, {} if booked is None else {booked: since - now}) if now > since else goodput
    goodput = rebooked(goodput, _unseen(before, session, since, now, is_stalled=is_stalled))
    activity = dict(before.activity_secs)
    for bucket, secs in _unseen(before, session, since, session.ended_at or since, is_stalled=is_stalled).items():
        activity[bucket] = activity.get(bucket, 0.0) + secs
    session = replace(session, outcome="running", activity_secs=activity, steps_per_sec=None)
    return replace(
        run,
        state="stalled" if is_stalled else "running",
        sessions=(*run.sessions[:-1], session),
        step=session.last_step,
        steps_per_sec=None,
        goodput=goodput,
    )


def _unseen(before: Session, session: Session, since: float, until: float, *, is_stalled: bool) -> Mapping[str, float]:
    """Return the seconds of a session since its last event by `BUCKETS`: its present phase, or its stall, has lasted
    since its last progress.

    Args:
        before: the session by its events.
        session: as it is now.
        since: when its last event was.
        until: the end of the time.
        is_stalled: whether it is stalled.
    """
    progress_at = since if session.last_progress_at is None else session.last_progress_at
    turn = min(max(since, progress_at), until)
    earlier = session.phase if session.phase == "training" else phase_since(before, session.last_step)
    secs = Counter(spent(since, turn, earlier, None))
    secs.update(spent(turn, until, session.phase, turn if is_stalled else None))
    return secs
