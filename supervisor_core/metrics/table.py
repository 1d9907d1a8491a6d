"""Every metric, once: name, type, unit, help, labels, and how it is read from a `RunStatus`.

A metric is a pure function of one run's status and the present wall time. What serves metrics (the training process,
an exporter, a page) folds the same table, so a name, its unit and its help mean the same everywhere. What is not known
yields no sample at all: a checkpoint age of 0 would read as "just now", a timestamp of 0 as 56 years ago.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from supervisor_core.options import PHASES
from supervisor_core.run.status import Distribution, RunStatus, ThreadStatus

MetricType = Literal["gauge", "counter", "histogram", "info"]


class Sample(NamedTuple):
    """One value of a metric: ``name + suffix`` with these labels."""

    labels: dict[str, str]
    value: float
    suffix: str = ""
    """Empty but for histograms: ``_bucket``, ``_sum``, ``_count``."""


Read = Callable[[RunStatus, float], Iterable[Sample]]
"""Reads one metric's samples from a run's status and the wall time (seconds since the epoch) of the scrape."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What stands about a metric in its ``HELP``, ``TYPE`` and ``UNIT`` lines."""

    name: str
    """As Prometheus shows it: ``_total`` and ``_info`` included, a histogram's suffixes not."""
    type: MetricType
    help: str
    unit: str = ""
    """The base unit that the name ends in (before ``_total``); empty for counts, steps and states."""
    labels: tuple[str, ...] = ("run",)
    """An ``info`` metric has one more label per fact."""


@dataclass(frozen=True, kw_only=True)
class RunMetric(Metric):
    """A metric of a run."""

    read: Read
    timed: bool = False
    """Whether its samples depend on when the scrape is; those of all others are the status's alone."""


def _gauge(
    name: str, help: str, value: Callable[[RunStatus], float | None], *, unit: str = "", type: MetricType = "gauge"
) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = value(status)
        if known is not None:
            yield Sample({"run": status.run}, known)

    return RunMetric(name=name, type=type, help=help, unit=unit, read=read)


def _counter(name: str, help: str, value: Callable[[RunStatus], float | None]) -> RunMetric:
    return _gauge(name, help, value, type="counter")


def _age(name: str, help: str, since: Callable[[RunStatus], float | None]) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        then = since(status)
        if then is not None:
            yield Sample({"run": status.run}, max(0.0, now - then))  # below 0 when the machine's clock was set back

    return RunMetric(name=name, type="gauge", help=help, unit="seconds", read=read, timed=True)


def _per_key(
    name: str, help: str, label: str, values: Callable[[RunStatus], Mapping[str, float]], *, unit: str = ""
) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        for key, value in values(status).items():
            yield Sample({"run": status.run, label: key}, value)

    return RunMetric(name=name, type="counter", help=help, unit=unit, labels=("run", label), read=read)


def _per_thread(
    name: str,
    help: str,
    value: Callable[[ThreadStatus], float | None],
    *,
    unit: str = "",
    type: MetricType = "gauge",
) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        for thread in status.threads:
            known = value(thread)
            if known is not None:
                yield Sample({"run": status.run, "thread": thread.name}, known)

    return RunMetric(name=name, type=type, help=help, unit=unit, labels=("run", "thread"), read=read)


def _histogram(name: str, help: str, values: Callable[[RunStatus], Distribution | None]) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = values(status)
        if known is None:
            return
        total = 0
        for bound, count in zip((*map(repr, map(float, known.bounds)), "+Inf"), known.counts, strict=True):
            total += count
            yield Sample({"run": status.run, "le": bound}, total, "_bucket")
        yield Sample({"run": status.run}, known.sum, "_sum")
        yield Sample({"run": status.run}, total, "_count")

    return RunMetric(name=name, type="histogram", help=help, unit="seconds", read=read)


def _info(name: str, help: str, facts: Callable[[RunStatus], Mapping[str, str]]) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = facts(status)
        if known:
            labels = {_label_name(fact): value for fact, value in known.items()}
            yield Sample({**labels, "run": status.run}, 1)

    return RunMetric(name=name, type="info", help=help, read=read)


def _label_name(fact: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", fact).lstrip("_")  # names that begin with two are Prometheus's own
    return name if name and not name[0].isdigit() else f"fact_{name}"


def _phases(status: RunStatus, now: float) -> Iterator[Sample]:
    for phase in PHASES if status.phase is not None else ():
        yield Sample({"run": status.run, "phase": phase}, phase == status.phase)


def _run_facts(status: RunStatus) -> Mapping[str, str]:
    return status.info if status.session_id is None else {**status.info, "session_id": status.session_id}


RUN_METRICS: tuple[RunMetric, ...] = (
    _gauge("supervisor_active", "1 from the start of a session until a planned stop, then 0.", lambda s: s.active),
    RunMetric(
        name="supervisor_phase",
        type="gauge",
        help="1 for what the session is doing, 0 for every other phase.",
        labels=("run", "phase"),
        read=_phases,
    ),
    _gauge(
        "supervisor_session_start_timestamp_seconds",
        "When this session began.",
        lambda s: s.session_started_at,
        unit="seconds",
    ),
    _counter("supervisor_sessions_total", "Sessions the run has had, this one included.", lambda s: s.sessions),
    _per_key(
        "supervisor_restarts_total",
        "Earlier sessions of the run, by how they ended.",
        "reason",
        lambda s: s.restarts,
    ),
    _gauge("supervisor_global_step", "The global step.", lambda s: s.global_step),
    _counter("supervisor_steps_total", "Training steps done by this session.", lambda s: s.steps),
    _gauge(
        "supervisor_steps_per_second", "Training steps per second over the last window.", lambda s: s.steps_per_second
    ),
    _gauge(
        "supervisor_last_step_timestamp_seconds",
        "When the last training step ended.",
        lambda s: s.last_step_at,
        unit="seconds",
    ),
    _gauge(
        "supervisor_last_progress_timestamp_seconds",
        "When anything moved last: a step, a phase, a part of a save or of a restore.",
        lambda s: s.last_progress_at,
        unit="seconds",
    ),
    _gauge(
        "supervisor_progress_timeout_seconds",
        "Seconds the present phase may go without progress before it counts as stalled.",
        lambda s: s.progress_timeout_secs,
        unit="seconds",
    ),
    _gauge("supervisor_stalled", "1 while the session itself sees no progress for too long.", lambda s: s.stalled),
    _histogram(
        "supervisor_step_duration_seconds",
        "Duration of the training steps, and of nothing else.",
        lambda s: s.step_secs,
    ),
    _age(
        "supervisor_checkpoint_age_seconds",
        "Seconds since the newest good checkpoint was durable.",
        lambda s: s.checkpoint.last_success_at,
    ),
    _gauge(
        "supervisor_checkpoint_last_success_timestamp_seconds",
        "When the newest good checkpoint was durable.",
        lambda s: s.checkpoint.last_success_at,
        unit="seconds",
    ),
    _gauge(
        "supervisor_checkpoint_last_success_step",
        "The step of the newest good checkpoint.",
        lambda s: s.checkpoint.last_success_step,
    ),
    _gauge(
        "supervisor_checkpoint_last_size_bytes",
        "Size of the newest good checkpoint.",
        lambda s: s.checkpoint.last_size_bytes,
        unit="bytes",
    ),
    _gauge(
        "supervisor_checkpoint_interval_seconds",
        "Configured seconds between checkpoints.",
        lambda s: s.checkpoint.interval_secs,
        unit="seconds",
    ),
    _gauge(
        "supervisor_checkpoint_recommended_interval_seconds",
        "Seconds between checkpoints that lose the least time, from the run's own save cost and failures (Young/Daly).",
        lambda s: s.checkpoint.recommended_interval_secs,
        unit="seconds",
    ),
    _counter(
        "supervisor_checkpoint_saves_total", "Saves tried by this session, good or bad.", lambda s: s.checkpoint.saves
    ),
    _counter(
        "supervisor_checkpoint_failures_total", "Saves of this session that failed.", lambda s: s.checkpoint.failures
    ),
    _histogram(
        "supervisor_checkpoint_save_duration_seconds",
        "Duration of whole saves, until they were durable and verified.",
        lambda s: s.checkpoint.save_secs,
    ),
    _histogram(
        "supervisor_checkpoint_blocked_seconds",
        "How long saves held up the training.",
        lambda s: s.checkpoint.blocked_secs,
    ),
    _per_thread(
        "supervisor_thread_up",
        "1 while the service thread runs, 0 once it has failed or stopped.",
        lambda t: t.state not in ("failed", "stopped"),
    ),
    _per_thread(
        "supervisor_thread_overdue_seconds",
        "By how much the service thread's present tick, or the one that should have begun, is late; 0 when in time.",
        lambda t: t.overdue_secs,
        unit="seconds",
    ),
    _per_thread(
        "supervisor_thread_last_tick_timestamp_seconds",
        "When the service thread's last tick ended, good or bad.",
        lambda t: t.last_tick_at,
        unit="seconds",
    ),
    _per_thread(
        "supervisor_thread_ticks_total", "Ticks of the service thread, good or bad.", lambda t: t.ticks, type="counter"
    ),
    _per_thread(
        "supervisor_thread_failures_total",
        "Ticks of the service thread that failed.",
        lambda t: t.failures,
        type="counter",
    ),
    _counter("supervisor_steps_lost_total", "Steps done again after restarts.", lambda s: s.steps_lost),
    _per_key(
        "supervisor_time_seconds_total",
        "Wall time of the run by what it went into; the activities sum to the whole.",
        "activity",
        lambda s: s.activity_secs,
        unit="seconds",
    ),
    _gauge(
        "supervisor_goodput_ratio",
        "Share of the run's wall time that went into steps which were kept, from 0 to 1.",
        lambda s: s.goodput,
        unit="ratio",
    ),
    _counter(
        "supervisor_events_dropped_total",
        "Events that could not be written to the events file.",
        lambda s: s.events_dropped,
    ),
    _info("supervisor_build_info", "Versions the session runs with, one label each.", lambda s: s.versions),
    _info("supervisor_run_info", "Facts of the run and of the session, one label each.", _run_facts),
)
"""What is told of each run, in the order in which it is served."""

SCRAPE_SUCCESS = Metric(
    name="supervisor_scrape_success",
    type="gauge",
    help="1 if everything known about every run could be read for this scrape.",
    labels=(),
)
"""What a scrape says about itself."""

METRICS: tuple[Metric, ...] = (*RUN_METRICS, SCRAPE_SUCCESS)
"""What a training process serves, and an exporter too."""


def _of_exporter(
    name: str, help: str, *, unit: str = "", type: MetricType = "gauge", labels: tuple[str, ...] = ()
) -> Metric:
    return Metric(name=f"supervisor_exporter_{name}", type=type, help=help, unit=unit, labels=labels)


EXPORTER_RUN_READ_SUCCESS = _of_exporter(
    "run_read_success", "1 if all the events files of the run could be read at the last refresh.", labels=("run",)
)
EXPORTER_LAST_EVENT = _of_exporter(
    "last_event_timestamp_seconds",
    "The latest wall time among the run's events, by its writer's clock.",
    unit="seconds",
    labels=("run",),
)
EXPORTER_CORRUPT_RECORDS = _of_exporter(
    "corrupt_records_total",
    "Damaged places that were skipped in the run's events files.",
    type="counter",
    labels=("run",),
)
EXPORTER_RUNS = _of_exporter("runs", "Runs that are served.")
EXPORTER_LAST_REFRESH = _of_exporter(
    "last_refresh_timestamp_seconds", "When the runs were last looked at, to the end.", unit="seconds"
)
EXPORTER_REFRESH_DURATION = _of_exporter("refresh_duration_seconds", "How long that took.", unit="seconds")
EXPORTER_REFRESH_FAILURES = _of_exporter(
    "refresh_failures_total", "Refreshes in which a logdir or a run could not be looked at.", type="counter"
)
EXPORTER_SCRAPE_DURATION = _of_exporter(
    "scrape_duration_seconds", "How long this scrape took to put together, compression apart.", unit="seconds"
)
EXPORTER_BUILD_INFO = _of_exporter("build_info", "Versions the exporter runs with, one label each.", type="info")

EXPORTER_METRICS: tuple[Metric, ...] = (
    EXPORTER_RUN_READ_SUCCESS,
    EXPORTER_LAST_EVENT,
    EXPORTER_CORRUPT_RECORDS,
    EXPORTER_RUNS,
    EXPORTER_LAST_REFRESH,
    EXPORTER_REFRESH_DURATION,
    EXPORTER_REFRESH_FAILURES,
    EXPORTER_SCRAPE_DURATION,
    EXPORTER_BUILD_INFO,
)
"""What an exporter serves besides, in the order in which it is served."""

ALL_METRICS: tuple[Metric, ...] = (*METRICS, *EXPORTER_METRICS)
"""Every metric there is."""
