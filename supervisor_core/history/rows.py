"""The tables of a logdir's history, and the rows of one run: sessions, their days, restarts, checkpoints, findings.

A column is declared once, in `TABLES`: the files, their metadata and ``tb-supervisor export --schema`` have it from
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from supervisor_core.history.table import FlatTable, HistoryColumn, HistoryTable, Row
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.session_rows import SessionRow, daily_rows
from supervisor_core.run.model.run import AT_RISK, BUCKETS, Outcome, Run, Session
from supervisor_core.run.model.snapshot import WatchedRun

_RUN = HistoryColumn("run", "text", "The run, by its name in the logdir.")
_LOGDIR = HistoryColumn("logdir", "text", "The logdir, as it was given.")
_SESSION = HistoryColumn("session", "text", "Id of the session.")
_SEVERITY = HistoryColumn("severity", "text", "page, warn or info.")

_WHOSE = (
    HistoryColumn("host", "text", "The machine of its chief."),
    HistoryColumn("user", "text", "The label user."),
    HistoryColumn("team", "text", "The label team."),
    HistoryColumn("job_id", "text", "The label job_id."),
    HistoryColumn("labels", "labels", "All its labels."),
    HistoryColumn("world_size", "whole", "Processes that train together."),
    HistoryColumn("device_kind", "text", "What they train on."),
    HistoryColumn("device_count", "whole", "Devices of the whole run."),
)

SESSIONS = HistoryTable(
    name="sessions",
    day="started_at",
    key=("run", "session"),
    columns=(
        _LOGDIR,
        _RUN,
        _SESSION,
        HistoryColumn("attempt", "whole", "1 for the first session of the run, one more for each later one."),
        HistoryColumn("started_at", "time", "When it started."),
        HistoryColumn("ended_at", "time", "When it ended; of an open one, its last event."),
        HistoryColumn("outcome", "text", f"How it ended: {', '.join(get_args(Outcome))}."),
        HistoryColumn("error", "text", "The error that ended it."),
        HistoryColumn("signal", "text", "The signal that ended it."),
        HistoryColumn("inferred", "truth", "Whether it wrote no telemetry."),
        *_WHOSE,
        HistoryColumn("first_step", "whole", "The step at which it began."),
        HistoryColumn("last_step", "whole", "Its last step."),
        HistoryColumn("steps", "whole", "Steps that it did."),
        HistoryColumn("saves", "whole", "Saves tried."),
        HistoryColumn("save_failures", "whole", "Saves that failed."),
        HistoryColumn("checkpoint_interval_secs", "number", "Configured seconds between checkpoints."),
    ),
)
SESSION_DAYS = HistoryTable(
    name="session_days",
    day="since",
    key=("run", "session", "since"),
    scope=("run", "session"),
    columns=(
        _LOGDIR,
        _RUN,
        _SESSION,
        HistoryColumn("since", "time", "The begin of the day, in UTC."),
        HistoryColumn("attempt", "whole", "As in sessions."),
        HistoryColumn("outcome", "text", "How it ended; running until the day on which it did."),
        HistoryColumn("reason", "text", "Of an unplanned end on this day: lost, error, oom or hang."),
        HistoryColumn(
            "is_failure",
            "truth",
            "Whether that end counts: of failures in a row those that did no step do not, but for the first.",
        ),
        HistoryColumn("has_trained", "truth", "Whether the session did a step."),
        *_WHOSE,
        HistoryColumn("devices", "whole", "The weight of its time: its devices, else its processes, else 1."),
        HistoryColumn("alive_secs", "number", "Seconds for which it ran on this day."),
        HistoryColumn("wall_secs", "number", "The same with the time after it, until the next session."),
        HistoryColumn(
            "unknown_secs", "number", "wall_secs of a session without telemetry, of which nothing more is known."
        ),
        *(
            HistoryColumn(f"{bucket}_secs", "number", f"Seconds of wall_secs: {bucket}.")
            for bucket in (*BUCKETS, AT_RISK)
        ),
    ),
)
RESTARTS = HistoryTable(
    name="restarts",
    day="at",
    key=("run", "to_session"),
    columns=(
        _LOGDIR,
        _RUN,
        HistoryColumn("at", "time", "When the later session started."),
        HistoryColumn("from_session", "text", "Id of the earlier session."),
        HistoryColumn("to_session", "text", "Id of the later session."),
        HistoryColumn("reason", "text", "How the earlier session ended, as its outcome."),
        HistoryColumn("host", "text", "The machine on which the earlier session ended."),
        HistoryColumn("to_host", "text", "The machine of the later session."),
        HistoryColumn("from_step", "whole", "Last step of the earlier session."),
        HistoryColumn("to_step", "whole", "The step at which the later one resumed."),
        HistoryColumn("rewind_steps", "whole", "Repeated steps, at least."),
        HistoryColumn("downtime_secs", "number", "Seconds between the two."),
        HistoryColumn("cause", "text", "Why tb-supervisor run started it again."),
    ),
)
CHECKPOINTS = HistoryTable(
    name="checkpoints",
    day="at",
    key=("run", "session", "at", "path"),
    columns=(
        _LOGDIR,
        _RUN,
        _SESSION,
        HistoryColumn("at", "time", "When it was durable, or failed."),
        HistoryColumn("path", "text", "Its path, with the step."),
        HistoryColumn("step", "whole", "Its step."),
        HistoryColumn("trigger", "text", "timer, final, signal or manual."),
        HistoryColumn("bytes", "whole", "Its size."),
        HistoryColumn("save_secs", "number", "Seconds from the start of the save until it was durable, or had failed."),
        HistoryColumn("blocked_secs", "number", "Seconds for which the save blocked training."),
        HistoryColumn("verified", "truth", "Whether its files were read back and matched."),
        HistoryColumn("error", "text", "Why it failed."),
        HistoryColumn("damage", "text", "What a later session found wrong with it."),
    ),
)
NOTICES = HistoryTable(
    name="notices",
    day="at",
    key=("run", "session", "severity", "text", "since"),
    columns=(
        _LOGDIR,
        _RUN,
        _SESSION,
        HistoryColumn("at", "time", "When the program said it last."),
        HistoryColumn("since", "time", "When it said it first."),
        _SEVERITY,
        HistoryColumn("text", "text", "What it said."),
        HistoryColumn("count", "whole", "How often."),
        HistoryColumn("step", "whole", "The step then."),
        HistoryColumn("worker", "text", "The other process of the cluster that said it."),
    ),
)
FINDINGS = HistoryTable(
    name="findings",
    day="since",
    key=("run", "kind", "since"),
    columns=(
        _LOGDIR,
        _RUN,
        HistoryColumn("kind", "text", "What is wrong, or to be said."),
        _SEVERITY,
        HistoryColumn("since", "time", "Since when; where that is unknown, the start of the newest session."),
        HistoryColumn("text", "text", "The finding in a sentence."),
        HistoryColumn("cost", "text", "What it has cost."),
        HistoryColumn("action", "text", "What to do first."),
        HistoryColumn("host", "text", "The machine of the newest session."),
    ),
)

TABLES: tuple[HistoryTable, ...] = (SESSIONS, SESSION_DAYS, RESTARTS, CHECKPOINTS, NOTICES, FINDINGS)
"""Every table of a directory, in the order in which it is written."""

SCALARS = FlatTable(
    name="scalars",
    columns=(
        HistoryColumn("run", "name", _RUN.text),
        HistoryColumn("tag", "name", "The tag."),
        HistoryColumn("step", "whole", "The step."),
        HistoryColumn("wall_time", "number", "When the value was written, in seconds since 1970."),
        HistoryColumn("running_time", "number", "Seconds for which the run had run by then, without downtime."),
        HistoryColumn("value", "number", "The value."),
        HistoryColumn("session", "name", "Id of the session that wrote it."),
        HistoryColumn("kept", "truth", "False where a later session did the step again."),
    ),
)
"""The values of all runs. In a file of its own only: a directory of days would be read again for every new value."""


def rows_of(logdir: str, watched: WatchedRun, found: Sequence[Finding]) -> Iterator[tuple[HistoryTable, Row]]:
    """Yield the rows of a run, with their tables. What has no time at all has no row.

    Args:
        logdir: what the column ``logdir`` has.
        watched: the run; a copy of another run has none.
        found: what is said of it.
    """
    if watched.copy_of is not None:
        return
    run = watched.run
    values: Iterator[tuple[HistoryTable, Mapping[str, Any]]] = _values(run, found)
    for table, named in values:
        row = table.row({**named, "logdir": logdir, "run": run.name})
        if row is not None:
            yield table, row


def _values(run: Run, found: Sequence[Finding]) -> Iterator[tuple[HistoryTable, Mapping[str, Any]]]:
    for session in run.sessions:
        yield SESSIONS, {**_labelled(session), "started_at": _start_of(session)}
    for row in daily_rows(run):
        known: dict[str, float] = {} if row.unknown_secs else dict.fromkeys((*BUCKETS, AT_RISK), 0.0)
        secs = {f"{bucket}_secs": value for bucket, value in {**known, **row.secs}.items()}
        named = {name: getattr(row, name) for name in ("devices", "wall_secs")}
        yield SESSION_DAYS, {**_labelled(row), **secs, **named}
    hosts = {session.id: session.host for session in run.sessions}
    for restart in run.restarts:
        named = {"host": hosts.get(restart.from_session), "to_host": hosts.get(restart.to_session)}
        cause = None if restart.launch is None else restart.launch.cause
        yield RESTARTS, {**_fields(restart), **named, "cause": cause}
    for save in run.checkpoints:
        yield CHECKPOINTS, {**_fields(save), "save_secs": save.secs}
    for notice in run.notices:
        yield NOTICES, _fields(notice)
    newest = run.sessions[-1] if run.sessions else None
    start = {"since": run.last_event_at if newest is None else _start_of(newest)}
    for finding in found:
        since = start if finding.since is None else {}
        yield FINDINGS, {**_fields(finding), **since, "host": None if newest is None else newest.host}


def _labelled(item: Session | SessionRow) -> dict[str, Any]:
    return {**_fields(item), **{name: item.labels.get(name) for name in ("user", "team", "job_id")}}


def _start_of(session: Session) -> float | None:
    """Return when a session started; where that is unknown, when it ended."""
    return session.ended_at if session.started_at is None else session.started_at


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in type(item).__dataclass_fields__}
