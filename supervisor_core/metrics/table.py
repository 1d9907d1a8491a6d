"""Every metric, once: name, type, unit, help, labels, and how it is read from a `RunStatus`.

A metric is a pure function of one run's status and the present wall time. What serves metrics (the training process,
an exporter, a page) folds the same table, so a name, its unit and its help mean the same everywhere. What is not known
yields no sample at all: a checkpoint age of 0 would read as "just now", a timestamp of 0 as 56 years ago.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from supervisor_core.base.log import printable
from supervisor_core.metrics.metric import (
    LogdirMetric,
    Metric,
    RunMetric,
    Sample,
    Stage,
    age,
    facts_metric,
    histogram,
    is_false,
    is_true,
    of_logdir,
    one_of,
    per_key,
    per_thread,
    per_worker,
    single,
)
from supervisor_core.process.stacks import MAX_LOCATION
from supervisor_core.run.model.program_launch import WHERE
from supervisor_core.run.model.run import PRODUCTIVE, WASTED
from supervisor_core.run.status import RunStatus

_MOST_LETTERS = 500
"""Of a sentence in a label."""
_ERROR_TYPE = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)")


def _error_type(status: RunStatus) -> Mapping[str, str]:
    """The type of the error that ended the run: its text has no bound, and would be another series each time."""
    if status.state != "failed":
        return {}
    known = _ERROR_TYPE.match(WHERE.split(status.error or "")[0])
    return {"error": known[0] if known else "unknown"}


def _run_facts(status: RunStatus) -> Mapping[str, str]:
    session = status.session
    if session is None:
        return {**status.labels, **status.info}
    known = {
        "host": session.host, "pid": session.pid, "facade": session.facade,
        "session_id": None if session.inferred else session.session,
        "world_size": session.world_size, "device_kind": session.device_kind, "device_count": session.device_count,
    }  # fmt: skip
    shown = {name: printable(str(value)) for name, value in known.items() if value not in (None, "")}
    return {**status.labels, **status.info, **shown}


def _recorded(field: str) -> Callable[[RunStatus], Any]:
    """Return what reads a field of the session that is known only of one with telemetry."""
    return lambda status: None if status.session is None or status.session.inferred else getattr(status.session, field)


def _failures(status: RunStatus, now: float) -> Iterator[Sample]:
    for (host, reason), count in sorted(status.failures.items()):
        yield Sample({"run": status.run, "host": printable(host), "reason": reason}, count)


def _sessions(status: RunStatus) -> int:
    return 0 if status.session is None else status.session.attempt


def _stall(status: RunStatus) -> Mapping[str, str]:
    """Return where a run hangs. At most one series of a run: over time its lines have no bound."""
    stall = status.stall
    if stall is None:
        return {}
    known = {"thread": stall.thread, "location": stall.location, "phase": stall.phase, "activity": stall.activity}
    if stall.verdict is not None:  # the chief's own place may be that of one that waits
        known = {"culprit": stall.culprit, "location": stall.culprit_location, "phase": stall.phase}
    found = {name: printable(value)[:MAX_LOCATION] for name, value in known.items() if value}
    return found if stall.verdict is None else {**found, "verdict": printable(stall.verdict)[:_MOST_LETTERS]}


def _findings(status: RunStatus, now: float) -> Iterator[Sample]:
    """Yield what is held, with whose the run is and where it runs, so that alerts can be routed by that."""
    host = None if status.session is None else status.session.host
    about = {**status.labels, "run": status.run, "logdir": status.info.get("logdir", "")}
    if host is not None:
        about["host"] = printable(host)
    for each in status.findings:
        yield Sample({**about, "kind": each.kind, "severity": each.severity}, 1)


def _finding_times(status: RunStatus, now: float) -> Iterator[Sample]:
    for each in status.findings:
        if each.since is not None:
            yield Sample({"run": status.run, "kind": each.kind, "severity": each.severity}, each.since)


def _finding_texts(status: RunStatus, now: float) -> Iterator[Sample]:
    """Yield what is said, as it was when the finding became held: a text that moves would be another series each time.
    So no cost is served, which changes with each step."""
    for each in status.findings:
        said = {"text": printable(each.text)[:_MOST_LETTERS], "action": printable(each.action or "")}
        labels = {"run": status.run, "kind": each.kind, "severity": each.severity}
        yield Sample({**labels, **{name: value for name, value in said.items() if value}}, 1)


def _notices(status: RunStatus, now: float) -> Iterator[Sample]:
    """Yield when each severity was said last."""
    for severity, each in {each.severity: each for each in status.notices}.items():
        yield Sample({"run": status.run, "severity": severity}, each.at or 0.0)


def _read_success(status: RunStatus, now: float) -> Iterator[Sample]:
    yield Sample({"run": status.run, "logdir": status.reading.logdir}, status.reading.success)


def _is_booked(sample: Sample) -> bool:
    """Whether time went into something. What comes at once, with a restart, is served before: Prometheus sees no growth
    of a series that was not there. So is the productive time: a goodput of 0 is the worst."""
    return bool(sample.value) or not {PRODUCTIVE, WASTED}.isdisjoint(sample.labels.values())


RUN_METRICS: tuple[RunMetric, ...] = (
    single(
        "active",
        "1 from the start of a session until it has ended or is lost; then 0.",
        "active",
        stage=Stage.DEAD,
    ),
    one_of("run_state", "1, with the state that the run is in.", "state", "state", stage=Stage.AT_REST),
    facts_metric(
        "run_error_info",
        "The type of the error that ended the run, while it is in the state failed.",
        _error_type,
        stage=Stage.DEAD,
    ),
    one_of("phase", "1, with the phase of the session.", "phase", "session.phase"),
    single("session_start_timestamp_seconds", "When this session began.", "session.started_at", stage=Stage.DEAD),
    single(
        "session_last_seen_timestamp_seconds",
        "When this session was last seen alive: by its own process now, by an exporter its newest event.",
        "session_seen_at",
        stage=Stage.DEAD,
    ),
    single(
        "run_end_timestamp_seconds",
        "When the run ended; of one that was given up, when it was last seen.",
        lambda status: None if status.ended_at is None else round(status.ended_at),  # in fewer bytes
        stage=Stage.AT_REST,
        served_by="exporter",
    ),
    single("sessions_total", "Sessions the run has had, this one included.", _sessions, stage=Stage.DEAD),
    per_key("restarts_total", "Earlier sessions of the run, by how they ended.", "reason", "restarts"),
    RunMetric(
        name="supervisor_failures_total",
        help="Unplanned ends of the run's sessions, by their host and why; counted at the death.",
        labels=("run", "host", "reason"),
        read=_failures,
        stage=Stage.DEAD,
        served_by="exporter",
    ),
    per_key(
        "launches_total",
        "Ended launches of the program by tb-supervisor run, by why they ended.",
        "cause",
        "launches",
        served_by="exporter",
        stage=Stage.DETAIL,
    ),
    single(
        "restarting",
        "1 while tb-supervisor run starts the program again: it waits to, or the launch has no session yet; else 0.",
        "restarting",
        served_by="exporter",
        stage=Stage.DEAD,
    ),
    single(
        "resume_exact",
        "1 if this session goes on exactly as without the restart, 0 if it does not; absent where unknown, "
        "and for the first session.",
        "session.resume_exact",
    ),
    single(
        "resume_observed",
        "1 if every step recomputed after this session's resume logged the values of before, 0 if a value differs; "
        "absent where none was compared.",
        "session.resume_check.is_equal",
    ),
    single(
        "recoveries_total",
        "Recoveries: how often TensorFlow's session was lost and created again within this session.",
        _recorded("recoveries"),
    ),
    single("global_step", "The global step.", "global_step"),
    single("steps_total", "Training steps done by this session.", "session.steps"),
    single(
        "steps_per_second",
        "Training steps per second over the last 30 seconds and at least 10 steps; evaluations are left out.",
        "steps_per_sec",
    ),
    single("last_step_timestamp_seconds", "When the last training step ended.", "last_step_at", served_by="trainer"),
    single(
        "last_progress_timestamp_seconds",
        "When anything moved last: a step, a phase, a part of a save or of a restore.",
        "session.last_progress_at",
    ),
    single(
        "progress_timeout_seconds",
        "Seconds the present phase may go without progress before it counts as stalled.",
        "session.progress_timeout_secs",
    ),
    single("stalled", "1 while the session itself sees no progress for too long.", "stalled"),
    facts_metric(
        "stall_info",
        "Where the run hangs, while stalled: thread, location (innermost line of the program), phase, activity; of "
        "several processes verdict, culprit, its location.",
        _stall,
    ),
    RunMetric(
        name="supervisor_finding",
        stage=Stage.DEAD,
        help="1 while this is held of the run. Severities: page, warn, info. Further labels: host, logdir (the run's "
        "directory), and those of the run.",
        labels=("run", "kind", "severity"),
        read=_findings,
    ),
    RunMetric(
        name="supervisor_finding_since_timestamp_seconds",
        stage=Stage.DEAD,
        help="Since when that has been so.",
        labels=("run", "kind", "severity"),
        read=_finding_times,
    ),
    RunMetric(
        name="supervisor_finding_text_info",
        stage=Stage.DEAD,
        help="What is said of it: the sentence (text), and what to do first (action: a sentence or a command).",
        labels=("run", "kind", "severity"),
        read=_finding_texts,
    ),
    RunMetric(
        name="supervisor_notice_timestamp_seconds",
        help="When the program said something with notify last, by severity.",
        labels=("run", "severity"),
        read=_notices,
    ),
    single(
        "watchdog_would_act_total",
        "Stalls of this session that the watchdog would have ended; its hang_action is observe.",
        "session.beat.watchdog_would_act",
    ),
    per_key(
        "watchdog_acted_total",
        "Stalls of this session that the watchdog has acted upon.",
        "action",
        "session.beat.watchdog_acted",
    ),
    histogram(
        "step_duration_seconds",
        "Duration of the training steps, and of nothing else.",
        "step_secs",
        served_by="trainer",
    ),
    age(
        "checkpoint_age_seconds",
        "Seconds since the newest good checkpoint was durable.",
        "checkpoint.last_success.at",
        stage=Stage.DETAIL,
    ),
    single(
        "checkpoint_last_success_timestamp_seconds",
        "When the newest good checkpoint was durable.",
        "checkpoint.last_success.at",
    ),
    single(
        "checkpoint_last_success_step",
        "The step of the newest good checkpoint.",
        "checkpoint.last_success.step",
    ),
    single(
        "checkpoint_last_size_bytes",
        "Size of the newest good checkpoint.",
        "checkpoint.last_success.bytes",
    ),
    single(
        "checkpoint_last_duration_seconds",
        "How long the save of the newest good checkpoint took.",
        "checkpoint.last_success.secs",
    ),
    single(
        "checkpoint_interval_seconds", "Configured seconds between checkpoints.", "session.checkpoint_interval_secs"
    ),
    single(
        "checkpoint_recommended_interval_seconds",
        "Seconds between checkpoints that lose the least time, from the run's own save cost and failures (Young/Daly).",
        "checkpoint.recommended_interval_secs",
    ),
    single(
        "checkpoint_present_interval_seconds",
        "Seconds between checkpoints, to compare with these: as configured, or as measured of a run that saves at "
        "least twice as often.",
        "checkpoint.present_interval_secs",
    ),
    single("checkpoint_saves_total", "Saves tried by this session, good or bad.", _recorded("saves")),
    single("checkpoint_failures_total", "Saves of this session that failed.", _recorded("save_failures")),
    single(
        "checkpoint_failures_in_a_row",
        "Saves of this session that failed since its last good one.",
        _recorded("save_failures_in_a_row"),
    ),
    histogram(
        "checkpoint_save_duration_seconds",
        "Duration of whole saves, until they were durable and verified.",
        "session.save_secs",
    ),
    histogram("checkpoint_blocked_seconds", "How long saves blocked training.", "session.blocked_secs"),
    per_thread(
        "thread_up",
        "1 while the service thread runs, 0 once it has failed or stopped.",
        lambda t: t.state not in ("failed", "stopped"),
    ),
    per_thread(
        "thread_overdue_seconds",
        "By how much the service thread's present tick, or the one that should have begun, is late; 0 when in time.",
        "overdue_secs",
    ),
    per_thread(
        "thread_last_tick_timestamp_seconds",
        "When the service thread's last tick ended, good or bad.",
        "last_tick_at",
        stage=Stage.DETAIL,
    ),
    per_thread("thread_ticks_total", "Ticks of the service thread, good or bad.", "ticks", stage=Stage.DETAIL),
    per_thread("thread_failures_total", "Ticks of the service thread that failed.", "failures", stage=Stage.DETAIL),
    per_worker(
        "worker_up",
        "1 while the other process of the cluster has heartbeats, 0 once it is lost or has failed; absent after a "
        "planned end.",
        lambda w: None if w.state == "stopped" else w.state not in ("lost", "failed"),
        brief=is_false,
    ),
    per_worker(
        "worker_waiting",
        "1 while the other process of the cluster waits for the chief, or for another.",
        lambda w: w.state == "waiting",
        brief=is_true,
    ),
    per_worker(
        "worker_stalled",
        "1 while the other process of the cluster sees no progress for too long.",
        lambda w: w.state == "stalled",
        brief=is_true,
    ),
    per_worker(
        "worker_last_seen_timestamp_seconds",
        "The last heartbeat of the other process of the cluster.",
        "last_seen_at",
        stage=Stage.DETAIL,
    ),
    per_worker(
        "worker_steps_total",
        "Training steps done by the other process of the cluster since it began.",
        "steps",
        stage=Stage.DETAIL,
    ),
    single(
        "steps_lost_total",
        "Steps recomputed after restarts and recoveries, at least.",
        "steps_lost",
    ),
    per_key(
        "time_seconds_total",
        "Time of the newest session by activity, as far as that is decided.",
        "activity",
        _recorded("reported_secs"),
        stage=Stage.DETAIL,
    ),
    per_key(
        "run_time_seconds_total",
        "Wall time of the whole run by activity, including recomputed steps and downtime.",
        "activity",
        "run_activity_secs",
        brief=_is_booked,
        stage=Stage.DEAD,
        served_by="exporter",
    ),
    per_key(
        "lost_process_seconds_total",
        "Run time that went into no kept step, by activity, times devices; times processes where those are unknown.",
        "cause",
        "lost_process_secs",
        brief=_is_booked,
        stage=Stage.DEAD,
        served_by="exporter",
    ),
    single(
        "goodput_ratio",
        "Share of the run's wall time that went into steps which were kept, from 0 to 1.",
        "goodput",
        served_by="exporter",
    ),
    single(
        "events_dropped_total",
        "Events that could not be written to the events file.",
        "session.beat.events_dropped",
        stage=Stage.DETAIL,
    ),
    single(
        "loss_finite",
        "0 while the newest value of the watched loss, or of a tag that looks like a loss, is NaN or infinite, else 1.",
        "loss_finite",
    ),
    single(
        "events_failing",
        "1 while the session cannot write its events (disk full, no permission), else 0.",
        "events_failing",
    ),
    single(
        "clock_skew_seconds",
        "By how much the clock of the session's machine is ahead of the exporter's; 0 if they agree within 5 seconds.",
        "clock_skew_secs",
        served_by="exporter",
        stage=Stage.DETAIL,
    ),
    facts_metric(
        "build_info", "Versions the session runs with, one label each.", "session.versions", stage=Stage.DETAIL
    ),
    facts_metric(
        "run_info",
        "Facts of the run and of the session, and its labels; logdir is the run's directory.",
        _run_facts,
        stage=Stage.AT_REST,
    ),
)
"""The metrics of each run, in the order in which they are served."""

SCRAPE_SUCCESS = Metric(
    name="supervisor_scrape_success",
    help="1 if everything known about every run could be read for this scrape.",
    labels=(),
)
"""What a scrape says about itself."""

METRICS: tuple[Metric, ...] = (*RUN_METRICS, SCRAPE_SUCCESS)
"""What a training process serves, and an exporter too."""


READ_SUCCESS = RunMetric(
    name="supervisor_exporter_run_read_success",
    help="1 if all the events files of the run could be read at the last refresh of its logdir.",
    labels=("logdir", "run"),
    read=_read_success,
    stage=Stage.DEAD,
    served_by="exporter",
)
"""A run that cannot be read is served as that in any stage."""

READING_METRICS: tuple[RunMetric, ...] = (
    READ_SUCCESS,
    single(
        "exporter_last_event_timestamp_seconds",
        "The latest wall time among the run's events, by the exporter's clock as far as is known.",
        "reading.last_event_at",
        stage=Stage.DEAD,
        served_by="exporter",
    ),
    single(
        "exporter_corrupt_records_total",
        "Damaged places that were skipped in the run's events files.",
        "reading.corrupt_records",
        served_by="exporter",
    ),
    per_key(
        "exporter_dropped_total",
        "How often events, sessions or older history of the run were dropped beyond a bound (docs/limits.md).",
        "kind",
        "reading.dropped",
        stage=Stage.AT_REST,
        served_by="exporter",
    ),
)
"""What an exporter serves besides of each run: how it has read it."""

LOGDIR_METRICS: tuple[LogdirMetric, ...] = (
    of_logdir(
        "logdir_up",
        "1 if the logdir could be listed at its last refresh; 0 if not, or if an empty mount point is in its place.",
        lambda logdir: logdir.reachable if logdir.scanned or not logdir.reachable else None,
    ),
    of_logdir("runs", "Runs of the logdir that are served.", lambda logdir: logdir.runs if logdir.scanned else None),
    of_logdir("live_runs", "Those of them that are alive.", lambda logdir: logdir.live if logdir.scanned else None),
    of_logdir(
        "left_out_runs",
        "Runs of the logdir that are not served, because there are too many (docs/limits.md).",
        lambda logdir: logdir.left_out if logdir.scanned else None,
    ),
    of_logdir("last_refresh_timestamp_seconds", "When the logdir was last looked at, to the end.", "last_scan.at"),
    of_logdir("refresh_duration_seconds", "How long that took.", "last_scan.secs"),
    of_logdir(
        "refresh_failures_total",
        "Refreshes in which the logdir, or a run in it, could not be looked at.",
        "failures",
    ),
    of_logdir(
        "storage_requests_total",
        "Requests to the object store that the logdir is in, for listings and events files.",
        "last_scan.snapshot.requests",
    ),
)
"""What an exporter serves of each of its logdirs; before the end of its first scan one has only its failures."""

SHARDS = Metric(
    name="supervisor_exporter_shards",
    help="In how many shards the runs are divided, by the shard that this exporter serves.",
    labels=("shard",),
    served_by="exporter",
)
SCRAPE_DURATION = Metric(
    name="supervisor_exporter_scrape_duration_seconds",
    help="How long this scrape took to put together, compression apart.",
    labels=(),
    served_by="exporter",
)
BUILD_INFO = Metric(
    name="supervisor_exporter_build_info",
    help="Versions the exporter runs with, one label each.",
    labels=(),
    served_by="exporter",
)

EXPORTER_METRICS: tuple[Metric, ...] = (*READING_METRICS, *LOGDIR_METRICS, SHARDS, SCRAPE_DURATION, BUILD_INFO)
"""What an exporter serves besides."""

ALL_METRICS: tuple[Metric, ...] = (*METRICS, *EXPORTER_METRICS)
"""Every metric there is."""
