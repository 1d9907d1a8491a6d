"""What is known now of a run beyond its events: `LiveReader` joins liveness files, progress page and process table.

* The chief's **liveness file** is replaced with each heartbeat, also where its events cannot be written.
* The **progress page** is in the memory of the session's machine: on that machine it shows step and progress of a
  session whose logdir does not answer, and that native code blocks the interpreter, so that nothing in the process can
  write a record of it. It stays until the next session, or the restarter, has recorded the death.
* The **process** of the session, on its machine, by its id and start.
* The liveness files of the **other processes** that the chief has recorded; nothing is listed.

Anybody with access to the logdir may have written the files. `WriterClock` has what the clock of that machine shows.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from supervisor_core.events.record_fields import shared, values_of
from supervisor_core.events.telemetry import DeathRecord, HeartbeatRecord, OpenStall, Place, WorkerStatus, place_of
from supervisor_core.process.identity import Machine, is_running, started_at, started_ticks, this_machine
from supervisor_core.process.progress_page import PageReading, page_in, page_of_session
from supervisor_core.process.runtime_directory import private_directories
from supervisor_core.process.stacks import MAIN_THREAD, user_line
from supervisor_core.process.stacks_file import SUFFIX, StacksLook, read_stacks
from supervisor_core.run.fold.session_fold import NOTHING
from supervisor_core.run.judge.culprit import (
    SILENT_SECS,
    Rank,
    Unresponsive,
    Verdict,
    name_of_chief,
    ranks_of,
    shared_timeout,
    verdict_of,
)
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import Run, Session, Stall, WorkerHistory, WorkerSpan
from supervisor_core.run.model.words import UNKNOWN_WHY
from supervisor_core.run.watch.liveness import (
    CHIEF,
    LIVENESS_DIRECTORY,
    MAX_TASKS,
    file_name,
    is_gone,
    read_record,
    state_of,
    status_of,
)
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path

FRESH_SECS = 30.0
"""While something newer is known of a session, neither a missing liveness file nor the step on its page is news."""
REMOTE_SECS = 20.0
"""A file in an object store is not read while something newer than this is known of the run: each read is a request."""
MAX_WAIT_SECS = 3600.0
"""After a read, one in an object store waits for as long as the run has been silent, up to this."""
COST_SHARE = 0.05
"""Reading the files of ranks may take this share of the time, on average."""
LOST_SECS = 60.0
"""A rank without a beat for longer is lost, as by its chief's default."""
BLOCKED_SECS = 5.0
"""The monitor of a session ticks once a second: without a tick for longer than this its process runs no Python."""
LEAST_SHARED_SECS = 30.0
"""A chief's page does not show whether it is in a save: less is no hang of a chief that cannot run Python."""

_READINGS = 2
"""A reading may fall into a write where the disk is full, which is in place."""

TimedLook = tuple[StacksLook, float]
"""Stacks, and the wall time at which they were taken."""


class Live(NamedTuple):
    """What is known now of a session that has no record of its end."""

    record: LivenessRecord | None = None
    """Of the liveness file, with what the progress page has beyond it."""
    stall: OpenStall | None = None
    """A hang that no record shows."""
    death: DeathRecord | None = None
    """Its process is known to be over."""
    ranks: Mapping[str, WorkerStatus] = {}
    """The other processes by name, as their files have them."""


class LiveReader:
    """Reads what is known now of one run. Not thread-safe.

    Args:
        directory: the run's.
        filesystem_of: returns the file system of a path, and the path by the name to be used with it.
    """

    __slots__ = (
        "_alive_at_boot", "_beats", "_directory", "_due", "_filesystem_of", "_is_local", "_last",
        "_paged_at", "_ranks", "_ranks_due", "_session", "_stamp", "fault", "recorded_at",
        "written_at",
    )  # fmt: skip

    def __init__(self, directory: str, filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for) -> None:
        self._directory = f"{directory.rstrip('/')}/{LIVENESS_DIRECTORY}"
        self._filesystem_of = filesystem_of
        self._is_local = local_path(directory) is not None
        self._due = self._ranks_due = self._alive_at_boot = self._paged_at = 0.0
        self._session: str | None = None
        self._last: LivenessRecord | None = None
        self._stamp: tuple[int, ...] | None = None
        """What changes with a local file."""
        self._beats: dict[str, tuple[str, int, float]] | None = None
        """Name of a rank -> session and number of its last beat, and when that was seen first."""
        self._ranks: Mapping[str, WorkerStatus] = NOTHING
        self.fault: str | None = None
        """Why the chief's liveness file says nothing of the session; None where it does."""
        self.written_at: float | None = None
        """When that was written, by the clock of its file system; None where unknown."""
        self.recorded_at: float | None = None
        """The same by the clock of the session, which wrote it; None without one."""

    def look(
        self, session: Session, now: float, boot_now: float, *, ranks: Sequence[str] = (), is_stalled: bool = False
    ) -> Live:
        """Return what is known now of a session.

        Args:
            session: the newest, by what was known before; open.
            now: the present wall time, by the session's clock.
            boot_now: the same by `supervisor_core.base.clock.boot_secs`.
            ranks: names of the other processes.
            is_stalled: whether the run makes no progress.
        """
        known_secs = now - (session.ended_at or 0.0)
        record = self.chief(session.id, now, known_secs)
        page = self._page(session, record)
        found = self.ranks(ranks, now, is_stalled=is_stalled)
        death = self._death(session, record, page, now, boot_now)
        if death is not None and page is not None:  # what it could not write is true of its end
            seen_at = min(now, now - boot_now + page.tick_boot_secs) if page.ticks else now - known_secs
            return Live(with_failures(record, page, seen_at), None, death, found)
        if page is None or death is not None or page.ended or not page.is_running or page.is_stopped:
            return Live(record, None, death, found)
        if record is not None and page.ticks and boot_now - page.tick_boot_secs <= BLOCKED_SECS:
            record = replace(record, ended=None, ended_at=None)  # it goes on, whoever has written that it has ended
        page = with_shared_timeout(page, found.values(), now)
        # What only the page said at an earlier look is nothing newer than the page.
        is_silent = known_secs > FRESH_SECS or now - known_secs <= self._paged_at
        live = with_page(record, page, now, boot_now, is_silent=is_silent)
        if live.record is not None and live.record.beat_at == now:
            self._paged_at = now
        return live._replace(ranks=found)

    def chief(self, session: str, now: float, known_secs: float = 0.0) -> LivenessRecord | None:
        """Return what the chief's liveness file has of a session, as it was last read; None without one.

        Args:
            session: the newest session's id.
            now: the present wall time.
            known_secs: the age of the newest that is known of it.
        """
        if session != self._session or known_secs < FRESH_SECS:
            self._alive_at_boot *= session == self._session
            self._session, self._due = session, 0.0
        if self._is_local or (known_secs >= REMOTE_SECS and now >= self._due):
            self._due = now + min(known_secs, MAX_WAIT_SECS)
            self._last = self._read(now)
        record = self._last if self._last is not None and self._last.session == session else None
        self.recorded_at = None if record is None else record.written_at
        return record

    def _read(self, now: float) -> LivenessRecord | None:
        path = f"{self._directory}/{file_name(CHIEF)}"
        before, self._stamp = self._stamp, _stamp_of(path)
        if self._stamp is not None and self._stamp == before:
            return self._last
        for _ in range(_READINGS):
            try:
                filesystem, name = self._filesystem_of(path)
                record, self.written_at = read_record(filesystem, name), filesystem.modified_at(name)
            except ValueError as error:
                self.fault = f"{path} is damaged: {error}"
            except FileNotFoundError:
                self.fault = f"{path} is missing"
                break
            except Exception as error:  # clients of object stores raise what they like; the next look may go well
                self.fault = f"{path} cannot be read: {error}"
                break
            else:
                self.fault = None
                return record if record.ended_at is None else replace(record, ended_at=min(record.ended_at, now))
        return None

    def _page(self, session: Session, record: LivenessRecord | None) -> PageReading | None:
        """Return the progress page of a session of this machine: the one that its liveness file names, or one in this
        user's directories."""
        paths = [] if record is None or record.page is None else [record.page]
        if not paths and session.host == socket.gethostname():
            paths = [str(page_in(directory, session.id)) for directory in private_directories()]
        return next(filter(None, (page_of_session(path, session.id) for path in paths)), None)

    def _death(
        self, session: Session, record: LivenessRecord | None, page: PageReading | None, now: float, boot_now: float
    ) -> DeathRecord | None:
        if page is None:
            is_over = runs_here(session) is False or (record is not None and is_gone(record, this_machine()))
            return DeathRecord(session=session.id, step=None if record is None else record.step) if is_over else None
        if page.is_dead:
            return death_of(page, now, boot_now, alive_at_boot=self._alive_at_boot)
        self._alive_at_boot = boot_now if page.is_running else 0.0
        return None

    def ranks(self, names: Sequence[str], now: float, *, is_stalled: bool) -> Mapping[str, WorkerStatus]:
        """Return the ranks by name, as they are, or as of the last read; what is malformed is left out.

        Args:
            names: the ranks' names.
            now: the present wall time.
            is_stalled: whether the run makes no progress. Only then are files in an object store read.
        """
        if not names or now < self._ranks_due or not (self._is_local or is_stalled):
            return self._ranks if names else {}
        began = time.monotonic()
        statuses = [self._rank(name, now) for name in names[:MAX_TASKS]]
        spent = time.monotonic() - began
        self._ranks_due = now + max(0.0 if self._is_local else REMOTE_SECS, spent / COST_SHARE)
        self._ranks = {status.name: status for status in statuses if status is not None}
        return self._ranks

    def _rank(self, name: str, now: float) -> WorkerStatus | None:
        try:
            filesystem, path = self._filesystem_of(f"{self._directory}/{file_name(name)}")
            record = read_record(filesystem, path)
            known = self._beats = self._beats or {}
            session, beats, seen_at = known.get(name, ("", -1, now))
            if (session, beats) != (record.session, record.beats):
                written_at = record.written_at
                if session == "" and self._is_local:  # by the clock of the files, where that is later
                    written_at = max(written_at, filesystem.modified_at(path) or written_at)
                seen_at = min(now, written_at) if session == "" else now
                known[name] = (record.session, record.beats, seen_at)
        except Exception:  # as above
            return None
        gone = is_gone(record, this_machine())
        state = state_of(record, silent_secs=now - seen_at, lost_after_secs=LOST_SECS, is_gone=gone)
        return status_of(record, state, seen_at)


def _stamp_of(path: str) -> tuple[int, ...] | None:
    local = local_path(path)
    try:
        found = None if local is None else os.stat(local)
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def runs_here(session: Session) -> bool | None:
    """Return whether the process that a session's record names runs; None on another machine, and where unknown."""
    if session.host != socket.gethostname() or session.boot is None or session.pid is None:
        return None
    if Machine(host=session.host, boot=session.boot, pids=session.pid_namespace) != this_machine():
        return None
    if not is_running(session.pid):
        return False
    ticks = started_ticks(session.pid)
    return None if None in (ticks, session.process_started_ticks) else ticks == session.process_started_ticks


_RESTARTER_SLACK_SECS = 60.0
"""A wall clock may have been set by this much since a launch began."""


def restarter_runs(launch: ProgramLaunch) -> bool | None:
    """Return whether a launch's restarter runs; None on another machine. Its process is in the launch's id.

    A process that started after the launch is another one of the same number, after a reboot for example.
    """
    host, _, rest = launch.restarter.rpartition("-")
    if launch.host is None or launch.host != host or host != socket.gethostname():
        return None
    if not (rest.isascii() and rest.isdigit()) or not 0 < int(rest[:10]) < 1 << 31:
        return None
    pid = int(rest[:10])
    if not is_running(pid):
        return False
    began = started_at(pid)
    return began is None or launch.started_at is None or began <= launch.started_at + _RESTARTER_SLACK_SECS


def newest_look(page: PageReading) -> TimedLook | None:
    """Return the newest stacks of a process in memory: its own, by its timer, or from outside. None without any."""
    path = page.path.with_suffix(SUFFIX)
    reading = read_stacks(path)
    if reading is None or reading.session != page.session or not reading.looks:
        return None
    look = reading.looks[-1]
    try:
        return look, os.stat(path).st_mtime if look.at is None else look.at
    except OSError:
        return None


def stall_of(
    page: PageReading,
    at: float,
    at_boot: float,
    look_of: Callable[[PageReading], TimedLook | None] = newest_look,
    *,
    is_over: bool = False,
) -> OpenStall | None:
    """Return the stall that a session is in by its page; None if it is in none, or has not ticked yet.

    Args:
        page: the session's.
        at: wall time of the present, or of the last sign of life of a process that is over.
        at_boot: the same by `supervisor_core.base.clock.boot_secs`.
        look_of: returns the newest stacks of a process.
        is_over: whether the process is over. Then it hung, too, where its timer has fired since the last tick: how much
            longer it would have been blocked is not known.
    """
    if not page.ticks or page.ended:
        return None
    age, tick_age = at_boot - page.progress_boot_secs, at_boot - page.tick_boot_secs
    found = look_of(page)
    was_cut_off = is_over and found is not None and found[0].by_timer and found[1] > at - tick_age
    is_blocked = was_cut_off or tick_age > BLOCKED_SECS
    if found is not None and found[1] < at - (tick_age if is_blocked else age) - 1.0:  # of an earlier hang
        found = None
    if not was_cut_off and (page.hang_timeout_secs is None or age <= page.hang_timeout_secs):
        return None
    thread, _, location = page.location.partition(" at ")
    stacks = {} if found is None else found[0].stacks
    stall = OpenStall(
        **{**shared(OpenStall, page), "location": location or None, "stacks": stacks},
        since=at - age,
        secs=age,
        timeout_secs=page.hang_timeout_secs,
        thread=thread or None,
        blocked_since=at - tick_age if is_blocked else None,
    )
    line = None if found is None or not is_blocked else user_line(found[0].stacks.get(MAIN_THREAD, ()))
    return stall if line is None else replace(stall, thread=MAIN_THREAD, location=line, activity=None)


def death_of(page: PageReading, now: float, boot_now: float, *, alive_at_boot: float = 0.0) -> DeathRecord:
    """Return what is known of a session whose process is over.

    Args:
        page: the session's.
        now: the present wall time.
        boot_now: the same by `supervisor_core.base.clock.boot_secs`.
        alive_at_boot: when its process was last seen to run, by that clock; 0.0 where nobody looked.
    """
    seen = max(page.started_boot_secs, alive_at_boot)
    if page.ticks:
        seen = max(seen, page.tick_boot_secs, page.progress_boot_secs)
        look = newest_look(page)
        if look is not None:
            seen = max(seen, look[1] - (now - boot_now))
    seen = min(seen, boot_now)
    return DeathRecord(
        **shared(DeathRecord, page),
        step_exact=page.step is not None and page.is_step_exact,
        elapsed_secs=max(0.0, seen - page.started_boot_secs),
        stall=stall_of(page, seen + (now - boot_now), seen, is_over=True),
    )


def with_failures(
    record: LivenessRecord | None, page: PageReading, seen_at: float, *, is_news: bool = False
) -> LivenessRecord | None:
    """Return a liveness record with what by a page the session cannot write; None where there is neither.

    Args:
        record: None without one.
        page: the session's.
        seen_at: when the session was last alive, by its wall clock.
        is_news: whether the page says more than the record in any case.
    """
    if record is None and (is_news or page.save_failures or page.events_fail):
        record = LivenessRecord(
            task=CHIEF, host=socket.gethostname(), written_at=seen_at, beats=0, interval_secs=1.0, page=str(page.path),
            session=page.session, pid=page.pid, started_at=page.started_at, phase=page.phase, step=page.step,
        )  # fmt: skip
    if record is None or page.save_failures is None or page.save_failures_in_a_row is None:
        return record
    return replace(
        record,
        save_failures=max(page.save_failures, record.save_failures),
        save_failures_in_a_row=page.save_failures_in_a_row,
        save_error=page.save_error or None,
        events_error=(page.events_error or UNKNOWN_WHY) if page.events_fail else None,
    )


def with_page(
    record: LivenessRecord | None,
    page: PageReading,
    now: float,
    boot_now: float,
    *,
    is_silent: bool,
    look_of: Callable[[PageReading], TimedLook | None] = newest_look,
) -> Live:
    """Return a liveness record with what the page of a process that runs has beyond it: what the session cannot write;
    and where nothing else that is new is known of it, or its interpreter is blocked, step and progress, and the stall.

    Args:
        record: None without one.
        page: the session's.
        now: the present wall time, by the clock of the session.
        boot_now: the same by `supervisor_core.base.clock.boot_secs`.
        is_silent: whether nothing that is new is known of the session.
        look_of: returns the newest stacks of a process.
    """
    stall = stall_of(page, now, boot_now, look_of)
    is_news = page.ticks > 0 and (is_silent or (stall is not None and stall.blocked_since is not None))
    record = with_failures(record, page, now, is_news=is_news)
    if record is None:
        return Live()
    if not is_news:
        return Live(record)
    beat = HeartbeatRecord(
        session=page.session,
        phase=page.phase,
        elapsed_secs=boot_now - page.started_boot_secs,
        step=page.step,
        steps=page.steps,
        progress_age_secs=max(0.0, boot_now - page.progress_boot_secs),
        progress_timeout_secs=page.hang_timeout_secs,
    )
    return Live(replace(record, beat=beat, beat_at=now, written_at=now, step=page.step, ended=None), stall)


def ranks_here(run: Run) -> tuple[WorkerHistory, ...]:
    """Return the ranks that the chief of the newest session has recorded."""
    newest = run.sessions[-1].id if run.sessions else None
    return tuple(worker for worker in run.workers if worker.session == newest and newest is not None)


def with_ranks(run: Run, found: Mapping[str, WorkerStatus]) -> Run:
    """Return the run with the ranks of its newest session as their files have them, by name."""
    newest = run.sessions[-1].id if run.sessions else None
    workers = tuple(
        _newer(worker, found[worker.name]) if worker.session == newest and worker.name in found else worker
        for worker in run.workers
    )
    return replace(run, workers=workers) if found else run


def with_shared_timeout(page: PageReading, ranks: Collection[WorkerStatus], now: float) -> PageReading:
    """Return the page of a chief that hangs together with its ranks, with the hang timeout that counts then: it cannot
    say so itself while native code holds its interpreter's lock.

    Args:
        page: the chief's.
        ranks: as they are.
        now: the present wall time, by the clock of ``last_seen_at``.
    """
    if not ranks or page.phase != "training" or page.hang_timeout_secs is None:
        return page
    secs = shared_timeout(list(ranks), now, own_secs=None)
    if secs is None:
        return page
    return replace(page, hang_timeout_secs=min(page.hang_timeout_secs, max(secs, LEAST_SHARED_SECS)))


def with_verdict(run: Run, now: float) -> Run:
    """Return the run with the verdict which of its processes keeps the others waiting: the chief's own, or one by the
    ranks' files where the chief says none.

    Args:
        run: its newest session is open, its ranks are as their files have them.
        now: the present wall time, by the clock of ``last_seen_at``.
    """
    if not ranks_here(run):
        return run
    stall = run.stalls[-1] if run.stalls and run.stalls[-1].until is None else None
    if stall is not None and stall.verdict is not None and run.state == "stalled":
        return replace(run, verdict=stall.verdict)
    verdict = _verdict(run, ranks_here(run), stall, now)
    if verdict is None:
        return run
    if stall is not None:
        stall = replace(stall, verdict=verdict.text, culprit=verdict.culprit, culprit_location=verdict.location)
        run = replace(run, stalls=(*run.stalls[:-1], stall))
    return replace(run, verdict=verdict.text)


def _newer(worker: WorkerHistory, status: WorkerStatus) -> WorkerHistory:
    """Return a rank with what its file has, unless the chief has seen a later process."""
    if (status.started_at or 0.0) < (worker.started_at or 0.0) or (status.last_seen_at or 0.0) < (
        worker.last_seen_at or 0.0
    ):
        return worker
    newest = worker.spans[-1] if worker.spans else None
    spans = worker.spans
    if newest is not None and newest.state != status.state:
        since = max(newest.until, status.last_seen_at or 0.0)
        spans = (*spans, WorkerSpan(**shared(WorkerSpan, status), since=since, until=since))
    return replace(worker, **{**values_of(status), "spans": spans})


def _verdict(run: Run, workers: Sequence[WorkerStatus], stall: Stall | None, now: float) -> Verdict | None:
    """Return the verdict where the chief hangs, or gives no sign of life, and says nothing of the others."""
    last = run.sessions[-1]
    silent_secs = 0.0 if last.ended_at is None else max(0.0, now - last.ended_at)
    is_silent = run.state == "lost" and not last.gone and silent_secs > SILENT_SECS
    least_secs = shared_timeout(workers, now, own_secs=None)
    if not (is_silent or (stall is not None and run.state == "stalled")):
        return None
    if is_silent and least_secs is None:  # the others go on without it
        return None
    ranks = ranks_of(workers, now, least_secs=least_secs)
    if ranks is None:
        return None
    place = None if stall is None or is_silent else _place_of(stall)
    unresponsive: Unresponsive | None = "silent" if is_silent else None
    if stall is not None and stall.blocked_since is not None and place is None:
        unresponsive, silent_secs = "blocked", now - stall.blocked_since
    chief = Rank(
        name=name_of_chief(worker.name for worker in workers),
        place=place,
        phase=last.phase,
        step=last.last_step,
        unresponsive=unresponsive,
        silent_secs=None if unresponsive is None else silent_secs,
    )
    return verdict_of([chief, *ranks])


def _place_of(stall: Stall) -> Place | None:
    """Return where the chief hangs, from the stacks of its stall."""
    stack = stall.stacks.get(stall.thread or MAIN_THREAD, ())
    if not stack or stall.location is None:
        return None
    return replace(place_of(stack, stall.location), activity=stall.activity)


AGREE_SECS = 5.0
"""Clocks that are no further apart agree: what is written takes a moment to reach the disk."""
RECENT_SECS = 30.0
"""At a first look, a time that is no older is one of a clock that agrees."""
DELAY_SECS = 60.0
"""Where it is not known when the file was written, its news may be this old when they arrive (a store, a mirror)."""
COPIED_SECS = 3600.0
"""A file that was written so long after the time that it holds was copied."""
_CLOCK_SLACK_SECS = 2.0
_KEPT = 5


class WriterClock:
    """What the clock of a run's machine shows, by when its newest time reached the reader. Used by one thread at a
    time.

    The clocks of two machines need not agree. So whether a session is silent is judged by the reader's own clock: by
    when it saw the session's newest time (of its liveness file, or of an event) change. That is when the file was
    written, if the file system's clock fits between two looks; else the look itself.

    At its first look a reader has seen nothing change. A newest time of the last half minute is taken as it is. Else
    the time at which the file was written counts, if it is not in the future, and at most an hour after what was
    written: a file that was copied without its times was written long after that. Else the newest time itself counts,
    but not as later than now: a clock that is ahead delays nothing for long.

    Example:
        >>> clock = WriterClock()
        >>> clock.observe("a", at=400.0, written_at=None, now=1000.0)
        >>> clock.observe("a", at=410.0, written_at=None, now=1010.0)  # it goes on: its clock is ten minutes behind
        >>> clock.now(1015.0), clock.skew_secs
        (415.0, -600.0)
    """

    __slots__ = ("_ahead_secs", "_at", "_looked_at", "_seen", "_session", "is_moving")

    def __init__(self) -> None:
        self._session: str | None = None
        self._at: tuple[float, int] | None = None
        self._looked_at: float | None = None
        self._ahead_secs = 0.0
        self._seen: tuple[float, ...] = ()
        self.is_moving = False
        """Whether a time was seen to change."""

    def now(self, now: float) -> float:
        """Return the present time by the writer's clock, as of its newest time."""
        return now + self._ahead_secs

    @property
    def skew_secs(self) -> float | None:
        """By how much the writer's clock is ahead; None before anything of it was seen. What arrives late looks like a
        clock that is behind: so the largest of a few differences counts."""
        return float(round(max(self._seen))) if self._seen else None

    def observe(self, session: str, *, at: float, written_at: float | None, now: float, size: int = 0) -> None:
        """Take what is there at a look.

        Args:
            session: whose time it is; another one may have another clock.
            at: the newest time, by the writer's clock.
            written_at: when the file was written, by the clock of its file system; None where unknown.
            now: the present time, by the reader's clock.
            size: of its files, where these alone show that it goes on: an event may be dated far ahead.
        """
        before, self._looked_at = self._looked_at, now
        if session != self._session:
            self._seen = ()
        elif (at, size) == self._at:
            return
        elif not self.is_moving:
            self.is_moving = True
            self._seen = ()  # what was seen is better than what the first look could tell
        self._session, self._at = session, (at, size)
        known = _by_file(at, written_at, now) if before is None else _by_looks(at, written_at, now, before)
        ahead = max(0.0, at - now) if known is None else known
        self._ahead_secs = 0.0 if abs(ahead) <= AGREE_SECS else ahead
        if known is not None:
            self._seen = (*self._seen, self._ahead_secs)[-_KEPT:]


def _by_file(at: float, written_at: float | None, now: float) -> float | None:
    if now - RECENT_SECS <= at <= now + AGREE_SECS:
        return 0.0  # the two clocks agree, whatever that of the file system says
    if written_at is not None and written_at <= now + _CLOCK_SLACK_SECS and written_at - at <= COPIED_SECS:
        return at - written_at
    return None


def _by_looks(at: float, written_at: float | None, now: float, before: float) -> float:
    if written_at is not None and before - _CLOCK_SLACK_SECS <= written_at <= now + _CLOCK_SLACK_SECS:
        return at - written_at
    return 0.0 if before - DELAY_SECS <= at <= now + AGREE_SECS else at - now
