"""`Page`: all that a scrape consists of, as of one refresh, ready to be sent.

Written once per refresh, in the background; and of a run that has not changed, not even then. A scrape adds what the
exporter says of itself, which therefore comes last. `run_status` has what is served of a run, `write_run` writes it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, get_args

from supervisor_core.base.log import printable
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import WorkerState, WorkerStatus
from supervisor_core.metrics.metric import Metric, RunMetric, Sample, Stage
from supervisor_core.metrics.render import END, Format, header, lines
from supervisor_core.metrics.table import READ_SUCCESS, READING_METRICS, RUN_METRICS
from supervisor_core.process.stacks import BLOCKED, location
from supervisor_core.run.fold.end import watched_launch
from supervisor_core.run.judge.counters import failures, lost_process_secs, time_secs
from supervisor_core.run.judge.state_findings import open_stall, present_activity
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.program_launch import LAUNCH_CAUSES, ProgramLaunch
from supervisor_core.run.model.run import LIVE, Run, RunState, Session, WorkerHistory
from supervisor_core.run.status import CheckpointStatus, RunStatus, StallStatus

_ACTIVE: dict[RunState, bool | None] = {
    "running": True,
    "stalled": True,
    "lost": False,
    "stopped": False,
    "completed": False,
    "failed": False,
    "unknown": None,
}

FORGET_AFTER_SECS = 7 * 86400.0
"""A lost run without events for this time is at rest."""

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

    A stalled run is active; a lost, ended or failed one is not. A lost run has no end before `forget_after_secs`. A run
    without telemetry has only its step, speed, checkpoints, last event and hang timeout (`Cadence`), and what its
    restarter sees of it; its phase, goodput, counts of saves and repeated steps are unknown.

    Workers are listed while their state still holds: all of them while their chief has heartbeats. Once the chief is
    lost or has failed, those that it had reported as lost or failed, since they may be the cause; the state of the
    others is unknown. After a planned end none.

    Times are by the exporter's clock, as far as it is known how much the clock of the run's machine is ahead.

    Args:
        run: the run.
        now: the present wall time; later times of a session are cut to it.
        label: the ``run`` label. Default: the run's name.
        forget_after_secs: seconds without events after which a lost run is at rest.
    """
    ahead = run.clock_skew_secs
    status = _by_its_clock(run, now + (ahead or 0.0), run.name if label is None else label, forget_after_secs)
    return replace(_earlier(status, ahead) if ahead else status, clock_skew_secs=ahead)


def _earlier(status: RunStatus, secs: float) -> RunStatus:
    """Return a status with all of its times earlier."""

    def earlier(item: Any, *names: str) -> Any:
        known = {name: getattr(item, name) for name in names if item is not None}
        return item and replace(item, **{name: at - secs for name, at in known.items() if at is not None})

    of_session: RunStatus = earlier(status, "session_seen_at", "ended_at", "last_step_at")
    return replace(
        of_session,
        session=earlier(status.session, "started_at", "last_progress_at"),
        checkpoint=replace(status.checkpoint, last_success=earlier(status.checkpoint.last_success, "at")),
        threads=tuple(earlier(each, "last_tick_at") for each in status.threads),
        notices=tuple(earlier(each, "at") for each in status.notices),
        workers=tuple(earlier(each, "last_seen_at") for each in status.workers),
    )


def _by_its_clock(run: Run, now: float, label: str, forget_after_secs: float) -> RunStatus:
    without_session = _without_session(run, label, now)
    if not run.sessions:
        launch = run.launches[-1] if run.launches else None
        seen_at = None if launch is None else launch.ended_at or launch.started_at
        return replace(without_session, session_seen_at=None if seen_at is None else min(seen_at, now))
    last = run.sessions[-1]
    active = _ACTIVE[run.state]
    is_missed = run.state == "lost" and not _is_silent_for(forget_after_secs, run, now)
    launch = watched_launch(last, run.launches) if last.inferred else None
    without_telemetry = replace(
        without_session,
        active=False if active is False else None,
        session=_session(run, last, launch, now),
        restarts=dict(Counter(restart.reason for restart in run.restarts)),
        stall=_stall(run),
        checkpoint=_checkpoint(run),
        threads=tuple(history for history in run.threads if history.session == last.id),
        workers=_workers(run, last, now),
        steps_lost=None if run.inferred else run.steps_lost,
        run_activity_secs={} if run.inferred else time_secs(run, now),
        lost_process_secs={} if run.inferred else lost_process_secs(run, now),
        goodput=None if run.inferred else run.goodput.ratio,
        loss_finite=run.loss_finite,
    )
    if last.inferred:
        if launch is None:
            return without_telemetry
        return replace(
            without_telemetry,
            active=active,
            session_seen_at=min(launch.seen_at or 0.0, now),
            stalled=run.state == "stalled",
        )
    seen_at = None if last.ended_at is None else min(last.ended_at, now)
    return replace(
        without_telemetry,
        active=active,
        session_seen_at=seen_at,
        ended_at=None if active or is_missed else seen_at,
        stalled=run.state == "stalled",
        events_failing=last.events_error is not None if run.state in LIVE else None,
    )


def copy_status(run: Run, label: str) -> RunStatus:
    """Return the metrics that an exporter serves for a copy of another run: no rule goes by any of them.

    Args:
        run: the run.
        label: the ``run`` label.
    """
    return replace(_without_session(run, label, 0.0), state="copy", active=None, launches={}, failures={}, notices=())


def _without_session(run: Run, label: str, now: float) -> RunStatus:
    return RunStatus(
        run=label,
        active=_ACTIVE[run.state],
        state=run.state,
        error=run.failure_error if run.state == "failed" else None,
        labels=run.labels,
        failures=failures(run, now),
        launches=_launches(run),
        restarting=run.restarting if run.launches else None,
        global_step=run.step,
        stalled=None,
        steps_lost=None,
        notices=run.notices,
    )


def _stall(run: Run) -> StallStatus | None:
    """Return the stall that a run is in; None where it is in none, or no record of it was read."""
    stall = open_stall(run) if run.state == "stalled" else None
    if stall is None:
        return None
    line = stall.location or (None if stall.blocked_since is None else BLOCKED)
    at = None if line is None else location(line)
    return StallStatus(**{**shared(StallStatus, stall), "location": at, "activity": present_activity(stall)})


def _launches(run: Run) -> dict[str, int]:
    ended = (launch for launch in run.launches if launch.ended_at is not None)
    return dict(Counter(launch.cause if launch.cause in LAUNCH_CAUSES else "unknown" for launch in ended))


def _session(run: Run, last: Session, launch: ProgramLaunch | None, now: float) -> Session:
    """Return the newest session as it is served: its progress is at most now; without telemetry it is that of the last
    event, and its hang timeout that of a launch that is watched."""
    at = run.last_event_at if last.inferred else last.last_progress_at
    timeout_secs = last.progress_timeout_secs if launch is None else launch.progress_timeout_secs
    if at is not None:
        at = min(at, now)
    if (at, timeout_secs) == (last.last_progress_at, last.progress_timeout_secs):
        return last  # as nearly always: it is shared with the run
    return replace(last, last_progress_at=at, progress_timeout_secs=timeout_secs)


def _is_silent_for(secs: float, run: Run, now: float) -> bool:
    return run.last_event_at is not None and now - run.last_event_at > secs


def _checkpoint(run: Run) -> CheckpointStatus:
    newest = next((saved for saved in reversed(run.checkpoints) if _is_whole(saved)), None)
    recommended = run.advice.recommended_interval_secs
    return CheckpointStatus(
        recommended_interval_secs=recommended,
        present_interval_secs=None if recommended is None else run.advice.present_interval_secs,
        last_success=newest,
    )


def _is_whole(saved: Checkpoint) -> bool:
    return saved.ok and saved.path is not None


def _workers(run: Run, last: Session, now: float) -> tuple[WorkerStatus, ...]:
    """Return the workers whose state still holds, with the newest start and no later time than now."""
    valid = _VALID.get(run.state, frozenset())
    return tuple(
        replace(
            WorkerStatus(**shared(WorkerStatus, history)),
            last_seen_at=None if history.last_seen_at is None else min(history.last_seen_at, now),
            started_at=history.spans[-1].started_at,
        )
        for history in run.workers
        if history.state in valid and history.session == last.id and _is_named(history, last)
    )


def _is_named(history: WorkerHistory, last: Session) -> bool:
    """Whether the session's latest heartbeat names the worker: then its last span ends with the session."""
    return last.ended_at is None or history.spans[-1].until >= last.ended_at


MOMENT_SECS = 3600.0
"""How long everything is served of a run after its end. Rules have half an hour to see the end: a Prometheus that was
down for longer has forgotten the run."""

_ENDED = ("completed", "stopped", "copy")


def stage_of(status: RunStatus, now: float, forget_after_secs: float) -> Stage:
    """Return how much an exporter serves of a run. A fleet's logdir holds nine runs that have ended for each one that
    is alive. No alert speaks of them: all that is asked of one is how and when it ended, whose it was, and where.

    Args:
        status: the run.
        now: the present wall time.
        forget_after_secs: after how long without events a run that is lost, has failed or is in no known state was
            given up.
    """
    last_event_at = status.reading.last_event_at
    if status.is_alive or last_event_at is None:
        return Stage.LIVE
    silent_secs = now - last_event_at
    given_up_secs = 0.0 if status.state in _ENDED else forget_after_secs
    if silent_secs > given_up_secs + MOMENT_SECS:
        return Stage.AT_REST
    return Stage.DEAD if status.state in ("lost", "failed") and silent_secs > MOMENT_SECS else Stage.LIVE


def _at_rest(status: RunStatus) -> RunStatus:
    """Return what is known of a run at rest: its state, its end, its findings; its host and labels, and of a copy its
    place and its original. What differs from run to run, as a process's id, is left out."""
    host = None if status.session is None else status.session.host
    known = {} if host is None else {"host": printable(host)}
    return RunStatus(
        run=status.run,
        active=None,
        state=status.state,
        ended_at=status.reading.last_event_at if status.ended_at is None else status.ended_at,
        labels=status.labels,
        findings=status.findings,
        reading=status.reading,
        info={**status.info, **known} if status.state == "copy" else known,
        stalled=None,
    )


_LASTING = tuple(metric for metric in (*RUN_METRICS, *READING_METRICS) if not metric.timed)
_LASTING_OF = {stage: [metric for metric in _LASTING if metric.stage <= stage] for stage in Stage}


@dataclass(frozen=True, slots=True)
class RunText:
    """The metrics of one run as text."""

    status: RunStatus
    stage: Stage
    problems: tuple[str, ...]
    """What could not be written, and why."""
    size: int
    """Bytes of its lines."""
    _names: tuple[str, ...]
    _text: bytes
    """The values of `fragments` in one object, compressed: a third of what a live run takes otherwise."""

    @property
    def fragments(self) -> Mapping[str, bytes]:
        """The lines of each metric that has some and does not depend on the time, by its name."""
        return dict(zip(self._names, zlib.decompress(self._text).split(_BETWEEN), strict=False))


_BETWEEN = b"\xff"
"""In no text in UTF-8."""


@lru_cache(maxsize=1024)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal names: most runs have the same metrics."""
    return names


def write_run(status: RunStatus, stage: Stage = Stage.LIVE) -> RunText:
    """Return a run's metrics as text. A value that cannot be written is left out, and named in ``problems``.

    Args:
        status: the run.
        stage: how much is served of it.
    """
    problems: list[str] = []
    if stage is Stage.AT_REST:
        status = _at_rest(status)
    metrics = _LASTING_OF[stage]
    if stage < READ_SUCCESS.stage and not status.reading.success:
        metrics = [*metrics, READ_SUCCESS]
    written = {
        metric.name: _written(metric, status, partial(metric.samples, status, 0.0, stage), problems)
        for metric in metrics
    }
    fragments = {name: text for name, text in written.items() if text}
    text = _BETWEEN.join(fragments.values())
    return RunText(status, stage, tuple(problems), len(text), _shared(tuple(fragments)), zlib.compress(text, 1))


_GZIP = 16 + zlib.MAX_WBITS
"""How zlib is told to write, or to read, a gzip file."""


class Page:
    """See the module's docstring. Never changes, so any number of scrapes may read it at once.

    Args:
        runs: the runs, no two of which have the same label.
    """

    def __init__(self, runs: Sequence[RunText]) -> None:
        self.statuses = tuple(run.status for run in runs)
        """The runs' statuses."""
        self.problems = tuple(text for run in runs for text in run.problems)
        """What could not be written, and why."""
        columns: dict[str, list[bytes]] = {}
        for run in runs:
            for name, text in run.fragments.items():
                columns.setdefault(name, []).append(text)
        self._packed: dict[bool, tuple[bytes, zlib._Compress]] = {}
        """By whether it is in OpenMetrics: what does not depend on the time, and what goes on with it."""
        for openmetrics in (False, True):
            packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
            packed = [
                packer.compress(b"".join([header(metric, openmetrics), *columns[metric.name]]))
                for metric in _LASTING
                if metric.name in columns
            ]
            packed.append(packer.flush(zlib.Z_FULL_FLUSH))
            self._packed[openmetrics] = b"".join(packed), packer

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.statuses)

    def render(
        self,
        format: Format,
        *,
        about: Callable[[bool], Iterable[tuple[Metric, Iterable[Sample]]]],
        gzip: bool = False,
    ) -> bytes:
        """Return a whole scrape.

        Args:
            format: which of the formats.
            about: what the exporter says of itself, called last, with whether everything could be written.
            gzip: whether to compress it.
        """
        openmetrics = format.openmetrics
        last: list[bytes] = []
        for about_metric, samples in about(not self.problems):
            text = lines(about_metric, samples)
            if text:
                last += (header(about_metric, openmetrics), text)
        if openmetrics:
            last.append(END)
        packed, packer = self._packed[openmetrics]
        rest = b"".join(last)
        if not gzip:
            return zlib.decompressobj(_GZIP).decompress(packed) + rest
        packer = packer.copy()
        return packed + packer.compress(rest) + packer.flush()


def _written(metric: RunMetric, status: RunStatus, read: Callable[[], Iterable[Sample]], problems: list[str]) -> bytes:
    try:
        return lines(metric, _brief(read()))
    except Exception as error:  # one unreadable value must not cost the others
        problems.append(f"{metric.name} of run {status.run!r} could not be read: {error!r}")
        return b""


def _brief(samples: Iterable[Sample]) -> list[Sample]:
    """Return samples with values of six digits, large ones to a millisecond: more is noise, and makes scrapes long."""
    return [Sample(labels, _rounded(value), suffix) for labels, value, suffix in samples]


def _rounded(value: float) -> float:
    if isinstance(value, int):
        return value
    return round(value, 3) if abs(value) >= 1000.0 else float(f"{value:.6g}")
