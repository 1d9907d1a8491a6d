"""Every metric, once: name, type, unit, help, labels, and how it is read from a `RunStatus`.

A metric is a pure function of one run's status and the present wall time. What serves metrics (the training process,
an exporter, a page) folds the same table, so a name, its unit and its help mean the same everywhere. What is not known
yields no sample at all: a checkpoint age of 0 would read as "just now", a timestamp of 0 as 56 years ago.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import get_args

from supervisor_core.events.telemetry import SessionRecord
from supervisor_core.log import printable
from supervisor_core.metrics.metric import (
    Metric,
    RunMetric,
    age,
    facts_metric,
    histogram,
    one_of,
    per_key,
    per_thread,
    per_worker,
    single,
)
from supervisor_core.options import PHASES
from supervisor_core.process.stacks import MAX_LOCATION
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.status import RunStatus, ServedState

RUN_STATES: tuple[str, ...] = get_args(ServedState)


_ERROR_TYPE = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)")


def _error_type(status: RunStatus) -> Mapping[str, str]:
    """The type of the error that ended the run: its text has no bound, and would be another series each time."""
    if status.state != "failed":
        return {}
    known = _ERROR_TYPE.match(status.error or "")
    return {"error": known[0] if known else "unknown"}


def _run_facts(status: RunStatus) -> Mapping[str, str]:
    session = status.session
    if session is None:
        return status.info
    known = {"host": session.host, "pid": session.pid, "facade": session.facade, "session_id": session.session}
    return {**status.info, **{name: str(value) for name, value in known.items() if value not in (None, "")}}


def _of_session(read: Callable[[SessionRecord], float | None]) -> Callable[[RunStatus], float | None]:
    """Return what reads a fact of the newest session; None without one."""
    return lambda status: None if status.session is None else read(status.session)


def _of_newest_checkpoint(read: Callable[[Checkpoint], float | None]) -> Callable[[RunStatus], float | None]:
    """Return what reads a fact of the newest good checkpoint; None without one."""
    return lambda status: None if (saved := status.checkpoint.last_success) is None else read(saved)


def _stall(status: RunStatus) -> Mapping[str, str]:
    """Return where a run hangs. At most one series of a run: over time its lines have no bound."""
    stall = status.stall
    if stall is None:
        return {}
    known = {"thread": stall.thread, "location": stall.location, "phase": stall.phase, "activity": stall.activity}
    return {name: printable(value)[:MAX_LOCATION] for name, value in known.items() if value}


RUN_METRICS: tuple[RunMetric, ...] = (
    single(
        "supervisor_active",
        "1 from the start of a session until it has ended, or until a lost one is dropped; then 0.",
        lambda s: s.active,
    ),
    one_of(
        "supervisor_run_state",
        "1 for the state that the run is in, 0 for every other.",
        "state",
        RUN_STATES,
        lambda s: s.state,
    ),
    facts_metric(
        "supervisor_run_error_info",
        "The type of the error that ended the run, while it is in the state failed.",
        _error_type,
    ),
    one_of(
        "supervisor_phase",
        "1 for the phase of the session, 0 for every other phase.",
        "phase",
        PHASES,
        lambda s: s.phase,
    ),
    single(
        "supervisor_session_start_timestamp_seconds", "When this session began.", _of_session(lambda s: s.started_at)
    ),
    single(
        "supervisor_session_last_seen_timestamp_seconds",
        "When this session was last seen alive: by its own process now, by an exporter its newest event.",
        lambda s: s.session_seen_at,
    ),
    single(
        "supervisor_sessions_total",
        "Sessions the run has had, this one included.",
        lambda s: 0 if s.session is None else s.session.attempt,
    ),
    per_key(
        "supervisor_restarts_total", "Earlier sessions of the run, by how they ended.", "reason", lambda s: s.restarts
    ),
    per_key(
        "supervisor_launches_total",
        "Ended launches of the program by tb-supervisor run, by why they ended.",
        "cause",
        lambda s: s.launches,
        served_by="exporter",
    ),
    single(
        "supervisor_resume_exact",
        "1 if this session goes on exactly as the run would have without the restart, 0 if it does not; absent where "
        "that is unknown, and for the first session.",
        _of_session(lambda s: s.resume_exact),
    ),
    single(
        "supervisor_recoveries_total",
        "Recoveries: how often TensorFlow's session was lost and created again within this session.",
        lambda s: s.recoveries,
    ),
    single("supervisor_global_step", "The global step.", lambda s: s.global_step),
    single("supervisor_steps_total", "Training steps done by this session.", lambda s: s.steps),
    single(
        "supervisor_steps_per_second",
        "Training steps per second over the last 30 seconds and at least 10 steps; evaluations are left out.",
        lambda s: s.steps_per_second,
    ),
    single(
        "supervisor_last_step_timestamp_seconds",
        "When the last training step ended.",
        lambda s: s.last_step_at,
        served_by="trainer",
    ),
    single(
        "supervisor_last_progress_timestamp_seconds",
        "When anything moved last: a step, a phase, a part of a save or of a restore.",
        lambda s: s.last_progress_at,
    ),
    single(
        "supervisor_progress_timeout_seconds",
        "Seconds the present phase may go without progress before it counts as stalled.",
        lambda s: s.progress_timeout_secs,
    ),
    single("supervisor_stalled", "1 while the session itself sees no progress for too long.", lambda s: s.stalled),
    facts_metric(
        "supervisor_stall_info",
        "Where the run hangs, while it is stalled: thread, location (its innermost line of the program), phase and "
        "activity.",
        _stall,
    ),
    single(
        "supervisor_watchdog_would_act_total",
        "Stalls of this session that the watchdog would have ended; its stall_action is observe.",
        lambda s: s.watchdog_would_act,
    ),
    per_key(
        "supervisor_watchdog_acted_total",
        "Stalls of this session that the watchdog has acted upon.",
        "action",
        lambda s: s.watchdog_acted,
    ),
    histogram(
        "supervisor_step_duration_seconds",
        "Duration of the training steps, and of nothing else.",
        lambda s: s.step_secs,
        served_by="trainer",
    ),
    age(
        "supervisor_checkpoint_age_seconds",
        "Seconds since the newest good checkpoint was durable.",
        _of_newest_checkpoint(lambda c: c.at),
    ),
    single(
        "supervisor_checkpoint_last_success_timestamp_seconds",
        "When the newest good checkpoint was durable.",
        _of_newest_checkpoint(lambda c: c.at),
    ),
    single(
        "supervisor_checkpoint_last_success_step",
        "The step of the newest good checkpoint.",
        _of_newest_checkpoint(lambda c: c.step),
    ),
    single(
        "supervisor_checkpoint_last_size_bytes",
        "Size of the newest good checkpoint.",
        _of_newest_checkpoint(lambda c: c.bytes),
    ),
    single(
        "supervisor_checkpoint_interval_seconds",
        "Configured seconds between checkpoints.",
        _of_session(lambda s: s.checkpoint_interval_secs),
    ),
    single(
        "supervisor_checkpoint_recommended_interval_seconds",
        "Seconds between checkpoints that lose the least time, from the run's own save cost and failures (Young/Daly).",
        lambda s: s.checkpoint.recommended_interval_secs,
    ),
    single(
        "supervisor_checkpoint_saves_total", "Saves tried by this session, good or bad.", lambda s: s.checkpoint.saves
    ),
    single(
        "supervisor_checkpoint_failures_total", "Saves of this session that failed.", lambda s: s.checkpoint.failures
    ),
    single(
        "supervisor_checkpoint_failures_in_a_row",
        "Saves of this session that failed since its last good one.",
        lambda s: s.checkpoint.failures_in_a_row,
    ),
    histogram(
        "supervisor_checkpoint_save_duration_seconds",
        "Duration of whole saves, until they were durable and verified.",
        lambda s: s.checkpoint.save_secs,
    ),
    histogram(
        "supervisor_checkpoint_blocked_seconds", "How long saves blocked training.", lambda s: s.checkpoint.blocked_secs
    ),
    per_thread(
        "supervisor_thread_up",
        "1 while the service thread runs, 0 once it has failed or stopped.",
        lambda t: t.state not in ("failed", "stopped"),
    ),
    per_thread(
        "supervisor_thread_overdue_seconds",
        "By how much the service thread's present tick, or the one that should have begun, is late; 0 when in time.",
        lambda t: t.overdue_secs,
    ),
    per_thread(
        "supervisor_thread_last_tick_timestamp_seconds",
        "When the service thread's last tick ended, good or bad.",
        lambda t: t.last_tick_at,
    ),
    per_thread("supervisor_thread_ticks_total", "Ticks of the service thread, good or bad.", lambda t: t.ticks),
    per_thread("supervisor_thread_failures_total", "Ticks of the service thread that failed.", lambda t: t.failures),
    per_worker(
        "supervisor_worker_up",
        "1 while the other process of the cluster has heartbeats, 0 once it is lost or has failed; absent after a "
        "planned end.",
        lambda w: None if w.state == "stopped" else w.state not in ("lost", "failed"),
    ),
    per_worker(
        "supervisor_worker_waiting",
        "1 while the other process of the cluster waits for the chief, or for another.",
        lambda w: w.state == "waiting",
    ),
    per_worker(
        "supervisor_worker_stalled",
        "1 while the other process of the cluster sees no progress for too long.",
        lambda w: w.state == "stalled",
    ),
    per_worker(
        "supervisor_worker_last_seen_timestamp_seconds",
        "The last heartbeat of the other process of the cluster.",
        lambda w: w.last_seen_at,
    ),
    per_worker(
        "supervisor_worker_steps_total",
        "Training steps done by the other process of the cluster since it began.",
        lambda w: w.steps,
    ),
    single(
        "supervisor_steps_lost_total",
        "Steps recomputed after restarts and recoveries, at least.",
        lambda s: s.steps_lost,
    ),
    per_key(
        "supervisor_time_seconds_total",
        "Time of the newest session by activity, as far as that is decided.",
        "activity",
        lambda s: s.activity_secs,
    ),
    per_key(
        "supervisor_run_time_seconds_total",
        "Wall time of the whole run by activity, including recomputed steps and downtime.",
        "activity",
        lambda s: s.run_activity_secs,
        served_by="exporter",
    ),
    single(
        "supervisor_goodput_ratio",
        "Share of the run's wall time that went into steps which were kept, from 0 to 1.",
        lambda s: s.goodput,
        served_by="exporter",
    ),
    single(
        "supervisor_events_dropped_total",
        "Events that could not be written to the events file.",
        lambda s: s.events_dropped,
    ),
    single(
        "supervisor_loss_finite",
        "0 while the newest value of the watched loss, or of a tag that looks like a loss, is NaN or infinite, else 1.",
        lambda s: s.loss_finite,
    ),
    single(
        "supervisor_events_failing",
        "1 while the session cannot write its events (disk full, no permission), else 0.",
        lambda s: s.events_failing,
    ),
    facts_metric(
        "supervisor_build_info",
        "Versions the session runs with, one label each.",
        lambda s: {} if s.session is None else s.session.versions,
    ),
    facts_metric(
        "supervisor_run_info",
        "Facts of the run and of the session, one label each; logdir is the run's directory.",
        _run_facts,
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


_OF_EXPORTER: Mapping[str, tuple[str, ...]] = {
    "run_read_success": (
        "1 if all the events files of the run could be read at the last refresh of its logdir.",
        "logdir",
        "run",
    ),
    "last_event_timestamp_seconds": ("The latest wall time among the run's events, by its writer's clock.", "run"),
    "corrupt_records_total": ("Damaged places that were skipped in the run's events files.", "run"),
    "dropped_total": (
        "How often events, sessions or older history of the run were dropped beyond a bound (docs/limits.md).",
        "kind",
        "run",
    ),
    "logdir_up": ("1 if the logdir was there and could be listed at its last refresh, else 0.", "logdir"),
    "runs": ("Runs of the logdir that are served.", "logdir"),
    "last_refresh_timestamp_seconds": ("When the logdir was last looked at, to the end.", "logdir"),
    "refresh_duration_seconds": ("How long that took.", "logdir"),
    "refresh_failures_total": ("Refreshes in which the logdir, or a run in it, could not be looked at.", "logdir"),
    "storage_requests_total": (
        "Requests to the object store that the logdir is in, for listings and events files.",
        "logdir",
    ),
    "scrape_duration_seconds": ("How long this scrape took to put together, compression apart.",),
    "build_info": ("Versions the exporter runs with, one label each.",),
}
"""Name without its prefix -> help and labels."""

EXPORTER_METRICS: Mapping[str, Metric] = {
    name: Metric(name=f"supervisor_exporter_{name}", help=help, labels=tuple(labels), served_by="exporter")
    for name, (help, *labels) in _OF_EXPORTER.items()
}
"""What an exporter serves besides, by the name without its prefix, in the order in which it is served."""

ALL_METRICS: tuple[Metric, ...] = (*METRICS, *EXPORTER_METRICS.values())
"""Every metric there is."""
