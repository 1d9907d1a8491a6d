"""The tables of a logdir's history, and the rows of one run: sessions, restarts, checkpoints, notices, findings.

A column is declared once, in `TABLES`: the files, their metadata and ``tb-supervisor export --schema`` have it from
here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any, Literal, get_args

from supervisor_core.events.record_fields import MAX_NAME_CHARS, MAX_TEXT
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.run import Outcome, Run, Session
from supervisor_core.run.model.snapshot import WatchedRun

ColumnType = Literal["text", "name", "whole", "number", "truth", "time", "labels"]
"""``name``: a text that many rows share; ``time``: a moment in UTC; ``labels``: texts by name."""

Row = tuple[Any, ...]
"""Values in the order of the columns. A time is whole microseconds since the epoch, labels are pairs in
the order of the names; None is unknown."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_SECS = 253_402_300_799.0
"""The end of the year 9999: databases know no later day."""
_MOST_WHOLE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class HistoryColumn:
    """One column."""

    name: str
    type: ColumnType
    text: str
    """What it holds, for people; units included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of an export.

    Example:
        >>> table = Table(name="saves", time="at", columns=(
        ...     HistoryColumn("run", "text", "The run."), HistoryColumn("at", "time", "When.")))
        >>> table.row({"run": "mnist", "at": 86400.5})
        ('mnist', 86400500000)
    """

    name: str
    columns: tuple[HistoryColumn, ...]
    time: str | None = None
    """The column without which there is no row."""

    def row(self, values: Mapping[str, Any]) -> Row | None:
        """Return the row of some values by column; None if it has no time. What cannot be held becomes None."""
        found = {column.name: stored(values.get(column.name), column.type) for column in self.columns}
        return None if self.time is not None and found[self.time] is None else tuple(found.values())


def short_name(name: str) -> str:
    """Return a run's name, or a logdir, as each row of it has it: of a longer one than `MAX_NAME_CHARS` the middle is a
    digest, since a path of kilobytes beside each value would be most of the file."""
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    kept = MAX_NAME_CHARS // 2 - 11
    return f"{name[:kept]}...{digest}...{name[-kept:]}"


def stored(value: Any, type: ColumnType) -> Any:
    """Return a value as a row has it; None where the type cannot hold it."""
    if value is None:
        return None
    if type == "truth":
        return bool(value)
    if type in ("text", "name"):
        return plain(str(value))[:MAX_TEXT]
    if type == "labels":
        return tuple((plain(str(name)), plain(str(text))) for name, text in sorted(value.items()))
    if not math.isfinite(value):
        return None
    if type == "whole":
        return int(value) if abs(value) <= _MOST_WHOLE else None
    if type == "time":
        return round(value * 1e6) if 0 <= value <= _LAST_SECS else None
    return float(value)


def iso_of(micros: int) -> str:
    """Return a time in microseconds since the epoch as ISO 8601 has it.

    Example:
        >>> iso_of(1500000)
        '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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

SESSIONS = Table(
    name="sessions",
    time="started_at",
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
RESTARTS = Table(
    name="restarts",
    time="at",
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
CHECKPOINTS = Table(
    name="checkpoints",
    time="at",
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
NOTICES = Table(
    name="notices",
    time="at",
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
FINDINGS = Table(
    name="findings",
    time="since",
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

TABLES = (SESSIONS, RESTARTS, CHECKPOINTS, NOTICES, FINDINGS)
"""The history of runs."""

SCALARS = Table(
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
"""The values of all runs."""


def rows_of(logdir: str, watched: WatchedRun, found: Sequence[Finding]) -> Iterator[tuple[Table, Row]]:
    """Yield the rows of a run, with their tables. What has no time at all has no row.

    Args:
        logdir: what the column ``logdir`` has.
        watched: the run; a copy of another run has none.
        found: what is said of it.
    """
    if watched.copy_of is not None:
        return
    run = watched.run
    values: Iterator[tuple[Table, Mapping[str, Any]]] = _values(run, found)
    for table, named in values:
        row = table.row({**named, "logdir": short_name(logdir), "run": short_name(run.name)})
        if row is not None:
            yield table, row


def _values(run: Run, found: Sequence[Finding]) -> Iterator[tuple[Table, Mapping[str, Any]]]:
    for session in run.sessions:
        yield SESSIONS, {**_labelled(session), "started_at": _start_of(session)}
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


def _labelled(item: Session) -> dict[str, Any]:
    return {**_fields(item), **{name: item.labels.get(name) for name in ("user", "team", "job_id")}}


def _start_of(session: Session) -> float | None:
    """Return when a session started; where that is unknown, when it ended."""
    return session.ended_at if session.started_at is None else session.started_at


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in type(item).__dataclass_fields__}
