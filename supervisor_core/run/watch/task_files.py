"""`TaskReader`: the liveness files of a run's ranks, as they are; `with_ranks`: the run with them; `with_verdict`: who
keeps the others waiting.

The chief records the ranks once a minute at most, and not at all while it hangs. Only files of ranks that it has
recorded are read, so that nothing is listed. Anybody with access to the logdir may have written them: what is
malformed is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from supervisor_core.events.place import Place, place_of
from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import WorkerStatus
from supervisor_core.process.identity import this_machine
from supervisor_core.process.progress_page import PageReading
from supervisor_core.process.stacks import MAIN_THREAD
from supervisor_core.run.fold.session_parts import NOTHING
from supervisor_core.run.judge.cluster import SILENT_SECS, name_of_chief, ranks_of, shared_timeout
from supervisor_core.run.judge.culprit import Rank, Unresponsive, Verdict, verdict_of
from supervisor_core.run.model.run import Run, Stall, WorkerHistory, WorkerSpan
from supervisor_core.run.watch.liveness import (
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

COST_SHARE = 0.05
"""Reading may take this share of the time, on average."""
REMOTE_SECS = 15.0
"""How often the files in an object store are read, at most, where each read is a request, and only in a stall."""
BLOCKED_SECS = 30.0
"""A chief's page does not show whether it is in a save: less is no hang of a chief that cannot run Python."""
LOST_SECS = 60.0
"""A rank without a beat for longer is lost, as by its chief's default."""


class TaskReader:
    """Reads the liveness files of one run's ranks. Not thread-safe.

    Args:
        directory: the run's.
    """

    __slots__ = ("_beats", "_directory", "_due", "_is_local", "_last")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._is_local = local_path(directory) is not None
        self._due = 0.0
        self._beats: dict[str, tuple[str, int, float]] | None = None
        """Name -> session and number of its last beat, and when that was seen first."""
        self._last: Mapping[str, WorkerStatus] = NOTHING

    def read(self, names: Sequence[str], now: float, *, is_stalled: bool) -> Mapping[str, WorkerStatus]:
        """Return the ranks by name, as they are, or as of the last read.

        Args:
            names: the ranks' names.
            now: the present wall time.
            is_stalled: whether the run makes no progress.
        """
        if not names or now < self._due or not (self._is_local or is_stalled):
            return self._last if names else {}
        began = time.monotonic()
        found: dict[str, WorkerStatus] = {}
        try:
            filesystem, directory = filesystem_for(f"{self._directory.rstrip('/')}/{LIVENESS_DIRECTORY}")
            for name in names[:MAX_TASKS]:
                status = self._status(filesystem, directory, name, now)
                if status is not None:
                    found[name] = status
        except (OSError, ImportError):
            pass
        spent = time.monotonic() - began
        self._due = now + (spent / COST_SHARE if self._is_local else max(REMOTE_SECS, spent / COST_SHARE))
        self._last = found
        return found

    def _status(self, filesystem: Filesystem, directory: str, name: str, now: float) -> WorkerStatus | None:
        path = os.path.join(directory, file_name(name))
        try:
            record = read_record(filesystem, path)
            known = self._beats = self._beats or {}
            session, beats, seen_at = known.get(name, ("", -1, now))
            if (session, beats) != (record.session, record.beats):
                written_at = record.written_at
                if session == "" and self._is_local:  # by the clock of the files, where that is later
                    written_at = max(written_at, filesystem.modified_at(path) or written_at)
                seen_at = min(now, written_at) if session == "" else now
                known[name] = (record.session, record.beats, seen_at)
        except Exception:  # clients of object stores raise what they like; the next look may go well
            return None
        gone = is_gone(record, this_machine())
        state = state_of(record, silent_secs=now - seen_at, lost_after_secs=LOST_SECS, is_gone=gone)
        return status_of(record, state, seen_at)


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


def with_shared_timeout(page: PageReading | None, run: Run, now: float) -> PageReading | None:
    """Return the page of a chief that hangs together with its ranks, with the hang timeout that counts then: it cannot
    say so itself while native code holds its interpreter's lock.

    Args:
        page: the chief's; None without one.
        run: with its ranks as they are.
        now: the present wall time, by the clock of ``last_seen_at``.
    """
    ranks = ranks_here(run)
    if page is None or not ranks or page.phase != "training" or page.hang_timeout_secs is None:
        return page
    secs = shared_timeout(ranks, now, own_secs=None)
    if secs is None:
        return page
    return replace(page, hang_timeout_secs=min(page.hang_timeout_secs, max(secs, BLOCKED_SECS)))


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
        span = WorkerSpan(
            state=status.state, since=since, until=since, started_at=status.started_at, error=status.error
        )
        spans = (*spans, span)
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
