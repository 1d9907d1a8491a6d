"""What a session that is alive cannot write into its events file: from its logdir's lease, and from its progress page.

The lease is renewed every second, in place, which works on a full disk too: a session that cannot write events is not
reported as lost. The progress page is in the memory of the session's machine: on that machine it shows step and
progress of a session whose logdir does not answer, and that native code blocks the interpreter, so that nothing in the
process can write a record of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from supervisor_core.checkpoint.lease_file import LeaseRecord, decode
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME, peek
from supervisor_core.events.telemetry import DeathRecord
from supervisor_core.process.progress_page import PageReading, page_of_session
from supervisor_core.run.goodput import is_down, phase_since, rebooked, spent, without_risk
from supervisor_core.run.last_words import TimedLook, death_of, newest_look, stall_of
from supervisor_core.run.model import BUCKET_OF_PHASE, DOWNTIME, STALL, Run, Session
from supervisor_core.run.session_parts import with_stall
from supervisor_core.run.writer_clock import WriterClock
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path

FRESH_SECS = 30.0
"""The greatest age of a valid renewal: thirty renewals of a local file, two in an object store."""
MAX_WAIT_SECS = 3600.0
"""A lease that is not renewed is read after `FRESH_SECS`, then after twice as long each time, up to this."""

_READINGS = 2
"""A reading that falls into a renewal may hold half of it."""


class LeaseReader:
    """Reads one run's lease, ever more rarely while it is not renewed.

    Args:
        directory: the run's.
        filesystem_of: returns the file system of a path, and the path by the name to be used with it.
    """

    __slots__ = ("_directory", "_due", "_filesystem_of", "_last", "_wait_secs", "clock")

    def __init__(self, directory: str, filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for) -> None:
        self._directory = directory
        self._filesystem_of = filesystem_of
        self._due = self._wait_secs = 0.0
        self.clock = WriterClock()
        """The clock of the session that renews it."""
        self._last: LeaseRecord | None = None

    def read(self, now: float, ahead_secs: float | None = None) -> LeaseRecord | None:
        """Return the lease of a session that has not ended, as it was last read; None where there is none.

        Args:
            now: the present wall time.
            ahead_secs: by how much the session's clock is ahead by its events; None where unknown.
        """
        if now < self._due:
            return self._last
        lease, written_at = self._held()
        self._last = lease
        if lease is not None:
            at = lease.renewed_at
            self.clock.observe(lease.session, at=at, written_at=written_at, now=now, ahead_secs=ahead_secs)
        if lease is not None and self.clock.now(now) - lease.renewed_at <= FRESH_SECS:
            self._due = self._wait_secs = 0.0
        else:
            self._wait_secs = min(MAX_WAIT_SECS, max(FRESH_SECS, 2 * self._wait_secs))
            self._due = now + self._wait_secs
        return lease

    def _held(self) -> tuple[LeaseRecord | None, float | None]:
        """Return the lease, and when its file was written."""
        for _ in range(_READINGS):
            try:
                filesystem, name = self._filesystem_of(f"{self._directory.rstrip('/')}/{LEASE_NAME}")
                lease = decode(filesystem.read(name))
                if lease is None or lease.ended is not None:
                    return None, None
                return lease, filesystem.modified_at(name)
            except (OSError, ImportError):
                return None, None
            except ValueError:
                continue
        return None, None


def with_lease(run: Run, lease: LeaseRecord | None, now: float) -> Run:
    """Return the run, updated from its lease where that is newer than its events.

    Only a lost run is changed, whose newest session holds the lease and renewed it after the last event. If that was
    within `FRESH_SECS`, it is running or, without progress within the hang timeout, stalled. Else it has reached the
    step of the lease, at least.

    Args:
        run: the run from its events.
        lease: as read from its logdir; None where that could not be read.
        now: the present wall time, by the clock of the session.
    """
    last = run.sessions[-1] if run.sessions else None
    if run.state != "lost" or last is None or lease is None or lease.session != last.id:
        return run
    if last.ended_at is not None and lease.renewed_at < last.ended_at:
        return run
    if now - lease.renewed_at > FRESH_SECS:
        return _reached(run, lease.last_step)
    timeout_secs = lease.progress_timeout_secs
    session = replace(
        last,
        ended_at=lease.renewed_at,
        last_step=last.last_step if lease.last_step is None else lease.last_step,
        phase=lease.phase or last.phase,
        last_progress_at=lease.progress_at or last.last_progress_at,
        progress_timeout_secs=timeout_secs,
        saves=last.saves + max(0, lease.save_failures - last.save_failures),
        save_failures=max(lease.save_failures, last.save_failures),
        save_failures_in_a_row=lease.save_failures_in_a_row,
        events_error=lease.events_error,
    )
    age = None if lease.progress_at is None else now - lease.progress_at
    is_stalled = age is not None and timeout_secs is not None and age > timeout_secs
    return _running(run, session, now, is_stalled=is_stalled)


def _reached(run: Run, step: int | None) -> Run:
    """Return a lost run, whose newest session is known to have reached a step."""
    last = run.sessions[-1]
    if step is None or run.step is None or step <= run.step:
        return run
    risk = run.at_risk
    return replace(
        run,
        step=step,
        sessions=(*run.sessions[:-1], replace(last, last_step=step)),
        at_risk=None if risk is None else replace(risk, steps=risk.steps + step - run.step),
    )


class PageReader:
    """Reads the progress page of one run's newest session, where that runs on this machine.

    Args:
        directory: the run's. Its lease names the page.
    """

    __slots__ = ("_alive_at_boot", "_directory", "_due", "_path", "_session")

    def __init__(self, directory: str) -> None:
        self._directory = local_path(directory)
        self._session: str | None = None
        self._path: str | None = None
        self._due = self._alive_at_boot = 0.0

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
            boot_now: the same by `supervisor_core.clock.boot_secs`.
        """
        page = self._page(session, now)
        if page is None:
            return None
        if not page.is_dead:
            self._alive_at_boot = boot_now if page.is_running else 0.0
            return None
        return death_of(page, now, boot_now, alive_at_boot=self._alive_at_boot)

    def _page(self, session: Session, now: float) -> PageReading | None:
        if self._directory is None or session.inferred:
            return None
        if session.id != self._session:
            self._session, self._path, self._due, self._alive_at_boot = session.id, None, 0.0, 0.0
        if self._path is None and now >= self._due:
            self._due = now + FRESH_SECS
            lease = peek(self._directory)
            self._path = lease.page if lease is not None and lease.session == session.id else None
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
        boot_now: the same by `supervisor_core.clock.boot_secs`.
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
