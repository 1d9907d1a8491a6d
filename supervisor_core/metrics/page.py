"""`Page`: all that a scrape consists of, as of one refresh, ready to be sent but for what depends on the time.

Written once per refresh, in the background; and of a run that has not changed, not even then. A scrape adds the ages
and what the exporter says of itself, which therefore come last. `run_status` has what is served of a run,
`write_run` writes it.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, get_args

from supervisor_core.events.telemetry import ThreadStatus, WorkerState, WorkerStatus
from supervisor_core.metrics.metric import Metric, RunMetric, Sample
from supervisor_core.metrics.render import END, Format, header, lines
from supervisor_core.metrics.table import EXPORTER_METRICS, RUN_METRICS
from supervisor_core.process.stacks import BLOCKED, location
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.ended_launches import failure_type
from supervisor_core.run.model import LAUNCH_CAUSES, Run, RunState, Session, WorkerHistory
from supervisor_core.run.snapshot import WatchedRun
from supervisor_core.run.state_findings import open_stall, present_activity
from supervisor_core.run.status import CheckpointStatus, RunStatus, StallStatus
from supervisor_core.run.watched_launch import watched_launch

_Status = TypeVar("_Status", ThreadStatus, WorkerStatus)

_ACTIVE: dict[RunState, bool | None] = {
    "running": True,
    "stalled": True,
    "lost": True,
    "stopped": False,
    "completed": False,
    "failed": False,
    "unknown": None,
}

_NOTHING_SAVED = CheckpointStatus(saves=None, failures=None, failures_in_a_row=None)

FORGET_AFTER_SECS = 7 * 86400.0
"""A lost run without events for this time is not active any more."""

_ALL: frozenset[WorkerState] = frozenset(get_args(WorkerState))
_DOWN: frozenset[WorkerState] = frozenset(("lost", "failed"))
_VALID: dict[RunState, frozenset[WorkerState]] = {
    "running": _ALL,
    "stalled": _ALL,
    "lost": _DOWN,
    "failed": _DOWN,
}
"""States of workers that still hold, by the state of their chief's run."""


def run_status(
    run: Run, now: float, *, label: str | None = None, forget_after_secs: float = FORGET_AFTER_SECS
) -> RunStatus:
    """Return the metrics that an exporter serves for a run: those of the trainer, which may be dead.

    A stalled or lost run is active, a lost one until `forget_after_secs`; an ended or failed one is not. A run without
    telemetry has only its step, speed, checkpoints, last event and hang timeout (`Cadence`), and what its restarter
    sees of it; its phase, goodput, counts of saves and repeated steps are unknown.

    Workers are listed while their state still holds: all of them while their chief has heartbeats. Once the chief is
    lost or has failed, those that it had reported as lost or failed, since they may be the cause; the state of the
    others is unknown. After a planned end none.

    Times are by the exporter's clock, as far as it is known how much the clock of the run's machine is ahead.

    Args:
        run: the run.
        now: the present wall time; later times of a session are cut to it.
        label: the ``run`` label. Default: the run's name.
        forget_after_secs: seconds without events after which a lost run is not active any more.
    """
    ahead = run.clock_skew_secs
    status = _by_its_clock(run, now + (ahead or 0.0), run.name if label is None else label, forget_after_secs)
    return replace(_earlier(status, ahead) if ahead else status, clock_skew_secs=ahead)


def _earlier(status: RunStatus, secs: float) -> RunStatus:
    """Return a status with all of its times earlier."""

    def earlier(item: Any, *names: str) -> Any:
        known = {name: getattr(item, name) for name in names if item is not None}
        return item and replace(item, **{name: at - secs for name, at in known.items() if at is not None})

    of_session: RunStatus = earlier(status, "session_seen_at", "last_step_at", "last_progress_at")
    return replace(
        of_session,
        session=earlier(status.session, "started_at"),
        checkpoint=replace(status.checkpoint, last_success=earlier(status.checkpoint.last_success, "at")),
        threads=tuple(earlier(each, "last_tick_at") for each in status.threads),
        workers=tuple(earlier(each, "last_seen_at") for each in status.workers),
    )


def _by_its_clock(run: Run, now: float, label: str, forget_after_secs: float) -> RunStatus:
    without_session = _without_session(run, label)
    if not run.sessions:
        launch = run.launches[-1] if run.launches else None
        seen_at = None if launch is None else launch.ended_at or launch.started_at
        return replace(without_session, session_seen_at=None if seen_at is None else min(seen_at, now))
    last = run.sessions[-1]
    is_active = _ACTIVE[run.state] and not (run.state == "lost" and _is_silent_for(forget_after_secs, run, now))
    is_alive = run.state in ("running", "stalled")
    without_telemetry = replace(
        without_session,
        active=False if is_active is False else None,
        phase=last.phase,
        session=replace(last, session="") if last.inferred else last,
        restarts=dict(Counter(restart.reason for restart in run.restarts)),
        steps=last.steps,
        steps_per_second=last.steps_per_sec if is_alive else None,
        last_progress_at=_progress_at(run, last, now),
        progress_timeout_secs=last.progress_timeout_secs,
        stall=_stall(run),
        checkpoint=_checkpoint(run, last),
        threads=tuple(_part(ThreadStatus, history) for history in run.threads if history.session == last.id),
        workers=_workers(run, last, now),
        steps_lost=None if run.inferred else run.steps_lost,
        run_activity_secs={} if run.inferred else run.goodput.booked_secs,
        goodput=None if run.inferred else run.goodput.ratio,
        beat=last.beat,
        loss_finite=run.loss_finite,
    )
    if last.inferred:
        launch = watched_launch(last, run.launches)
        if launch is None:
            return without_telemetry
        return replace(
            without_telemetry,
            active=is_active,
            session_seen_at=min(launch.seen_at or 0.0, now),
            progress_timeout_secs=launch.progress_timeout_secs,
            stalled=run.state == "stalled",
        )
    return replace(
        without_telemetry,
        active=is_active,
        session_seen_at=None if last.ended_at is None else min(last.ended_at, now),
        recoveries=last.recoveries,
        stalled=run.state == "stalled",
        activity_secs=last.reported_secs,
        events_failing=last.events_error is not None if is_alive else None,
    )


def copy_status(run: Run, label: str) -> RunStatus:
    """Return the metrics that an exporter serves for a copy of another run: no rule goes by any of them.

    Args:
        run: the run.
        label: the ``run`` label.
    """
    return replace(_without_session(run, label), state="copy", active=None, launches={})


def _without_session(run: Run, label: str) -> RunStatus:
    return RunStatus(
        run=label,
        active=_ACTIVE[run.state],
        phase=None,
        state=run.state,
        error=failure_type(run) if run.state == "failed" else None,
        launches=_launches(run),
        restarting=run.restarting if run.launches else None,
        recoveries=None,
        global_step=run.step,
        steps=None,
        stalled=None,
        checkpoint=_NOTHING_SAVED,
        steps_lost=None,
    )


def _stall(run: Run) -> StallStatus | None:
    """Return the stall that a run is in; None where it is in none, or no record of it was read."""
    stall = open_stall(run) if run.state == "stalled" else None
    if stall is None:
        return None
    line = stall.location or (None if stall.blocked_since is None else BLOCKED)
    at = None if line is None else location(line)
    return StallStatus(phase=stall.phase, thread=stall.thread, location=at, activity=present_activity(stall))


def _launches(run: Run) -> dict[str, int]:
    ended = (launch for launch in run.launches if launch.ended_at is not None)
    return dict(Counter(launch.cause if launch.cause in LAUNCH_CAUSES else "unknown" for launch in ended))


def _progress_at(run: Run, last: Session, now: float) -> float | None:
    """Return when the run last made progress; without telemetry, the time of its last event."""
    at = run.last_event_at if last.inferred else last.last_progress_at
    return None if at is None else min(at, now)


def _is_silent_for(secs: float, run: Run, now: float) -> bool:
    return run.last_event_at is not None and now - run.last_event_at > secs


def _checkpoint(run: Run, last: Session) -> CheckpointStatus:
    newest = next((saved for saved in reversed(run.checkpoints) if _is_whole(saved)), None)
    latest = next((saved for saved in reversed(run.checkpoints) if saved.session == last.id), None)
    return CheckpointStatus(
        recommended_interval_secs=run.advice.recommended_interval_secs,
        last_success=newest,
        saves=None if last.inferred else last.saves,
        failures=None if last.inferred else last.save_failures,
        failures_in_a_row=None if last.inferred else last.save_failures_in_a_row,
        last_error=latest.error if latest else None,
        save_secs=last.save_secs,
        blocked_secs=last.blocked_secs,
    )


def _is_whole(saved: Checkpoint) -> bool:
    return saved.ok and saved.path is not None


def _part(cls: type[_Status], history: _Status) -> _Status:
    """Return what was last reported of a thread or a worker, without its history, which extends it."""
    return cls(**{each.name: getattr(history, each.name) for each in fields(cls)})


def _workers(run: Run, last: Session, now: float) -> tuple[WorkerStatus, ...]:
    """Return the workers whose state still holds, with the newest start and no later time than now."""
    valid = _VALID.get(run.state, frozenset())
    return tuple(
        replace(
            _part(WorkerStatus, history),
            last_seen_at=None if history.last_seen_at is None else min(history.last_seen_at, now),
            started_at=history.spans[-1].started_at,
        )
        for history in run.workers
        if history.state in valid and history.session == last.id and _is_named(history, last)
    )


def _is_named(history: WorkerHistory, last: Session) -> bool:
    """Whether the session's latest heartbeat names the worker: then its last span ends with the session."""
    return last.ended_at is None or history.spans[-1].until >= last.ended_at


_LASTING = tuple(metric for metric in RUN_METRICS if not metric.timed)
_TIMED = tuple(metric for metric in RUN_METRICS if metric.timed)
_OF_READING = ("run_read_success", "last_event_timestamp_seconds", "corrupt_records_total", "dropped_total")
_PREPARED: tuple[Metric, ...] = (*_LASTING, *(EXPORTER_METRICS[name] for name in _OF_READING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the exporter adds to a run's metrics: whether and how completely its events files were read."""

    logdir: str
    """The label of the logdir that they are below."""
    success: bool
    last_event_at: float | None
    corrupt_records: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Items beyond a bound (docs/limits.md), by kind."""

    @classmethod
    def of(cls, watched: WatchedRun, logdir: str, *, success: bool) -> Reading:
        """Return the reading of a run."""
        return cls(
            logdir=logdir,
            success=success,
            last_event_at=_last_event_at(watched.run),
            corrupt_records=watched.corrupt_records,
            dropped=dict(watched.dropped),
        )


def _last_event_at(run: Run) -> float | None:
    if not run.last_event_at:  # some writers have all their events happen in 1970
        return None
    return run.last_event_at - (run.clock_skew_secs or 0.0)


@dataclass(frozen=True, slots=True)
class RunText:
    """The metrics of one run as text."""

    status: RunStatus
    fragments: tuple[bytes, ...]
    """The lines of each metric that does not depend on the time, in the order of the page."""
    problems: tuple[str, ...]
    """What could not be written, and why."""


def write_run(status: RunStatus, reading: Reading) -> RunText:
    """Return a run's metrics as text. A value that cannot be written is left out, and named in ``problems``."""
    problems: list[str] = []
    fragments = [_written(metric, status, 0.0, problems) for metric in _LASTING]
    label = {"run": status.run}
    of_reading = (
        [Sample({**label, "logdir": reading.logdir}, reading.success)],
        [] if reading.last_event_at is None else [Sample(label, reading.last_event_at)],
        [Sample(label, reading.corrupt_records)],
        [Sample({**label, "kind": kind}, count) for kind, count in sorted(reading.dropped.items())],
    )
    for name, samples in zip(_OF_READING, of_reading, strict=True):
        fragments.append(lines(EXPORTER_METRICS[name], samples))
    return RunText(status, tuple(fragments), tuple(problems))


class Page:
    """See the module's docstring. Never changes, so any number of scrapes may read it at once.

    Args:
        runs: the runs, no two of which have the same label.
    """

    def __init__(self, runs: Sequence[RunText]) -> None:
        self.statuses = tuple(run.status for run in runs)
        """The runs' statuses."""
        self._families = [
            (metric, fragments)
            for index, metric in enumerate(_PREPARED)
            if (fragments := [run.fragments[index] for run in runs if run.fragments[index]])
        ]
        self._packed = {False: GzipStream(), True: GzipStream()}
        for metric, fragments in self._families:
            body = b"".join(fragments)
            packed = deflate(body)
            for openmetrics, stream in self._packed.items():
                above = header(metric, openmetrics)
                stream.add(above, deflate(above))
                stream.add(body, packed)
        self._packed = {openmetrics: stream.copy() for openmetrics, stream in self._packed.items()}
        self.problems = tuple(text for run in runs for text in run.problems)
        """What could not be written, and why."""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.statuses)

    def render(
        self,
        format: Format,
        *,
        now: float,
        about: Callable[[bool], Iterable[tuple[Metric, Iterable[Sample]]]],
        gzip: bool = False,
    ) -> bytes:
        """Return a whole scrape.

        Args:
            format: which of the formats.
            now: wall time in seconds, for the ages.
            about: what the exporter says of itself, called last, with whether everything could be written.
            gzip: whether to compress it.
        """
        openmetrics = format.openmetrics
        last: list[bytes] = []
        problems: list[str] = list(self.problems)
        for metric in _TIMED:
            text = b"".join([_written(metric, status, now, problems) for status in self.statuses])
            if text:
                last += (header(metric, openmetrics), text)
        first: list[bytes] = []
        if not gzip:
            for prepared, fragments in self._families:
                first.append(header(prepared, openmetrics))
                first += fragments
        for about_metric, samples in about(not problems):
            text = lines(about_metric, samples)
            if text:
                last += (header(about_metric, openmetrics), text)
        if openmetrics:
            last.append(END)
        if not gzip:
            return b"".join(first + last)
        stream, rest = self._packed[openmetrics].copy(), b"".join(last)
        stream.add(rest, deflate(rest))
        return stream.finish()


def _written(metric: RunMetric, status: RunStatus, now: float, problems: list[str]) -> bytes:
    try:
        return lines(metric, metric.read(status, now))
    except Exception as error:  # one unreadable value must not cost the others
        problems.append(f"{metric.name} of run {status.run!r} could not be read: {error!r}")
        return b""


_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_LEVEL = 1
"""The fastest: metrics repeat themselves so much that it makes a tenth of them or less."""


def deflate(data: bytes) -> bytes:
    """Return data compressed as an independent part of a stream."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


class GzipStream:
    """Joins compressed parts to one gzip file. Changed by one thread at a time; any thread may copy it.

    Example:
        >>> import gzip
        >>> stream = GzipStream()
        >>> stream.add(b"one ", deflate(b"one "))
        >>> stream.add(b"two", deflate(b"two"))
        >>> gzip.decompress(stream.finish())
        b'one two'
    """

    def __init__(self) -> None:
        self._parts = [_HEADER]
        self._crc = 0
        self._size = 0

    def add(self, data: bytes, packed: bytes) -> None:
        """Append data, given also as `deflate` returned it."""
        self._parts.append(packed)
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)

    def copy(self) -> GzipStream:
        """Return a stream that begins with the content of this one."""
        other = GzipStream()
        other._parts, other._crc, other._size = [b"".join(self._parts)], self._crc, self._size
        return other

    def finish(self) -> bytes:
        """Return the gzip file."""
        return b"".join([*self._parts, _LAST_BLOCK, struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)])
