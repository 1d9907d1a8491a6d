"""One run on a terminal: its time as bars on one axis, then what happened as tables; its cluster last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.text import Text

from supervisor_core.base.log import printable
from supervisor_core.checkpoint.names import last_part, step_in_name
from supervisor_core.cli.overview import number
from supervisor_core.cli.text import (
    SHOWN_REASONS,
    SHOWN_ROWS,
    advice_text,
    again_text,
    ago,
    bold,
    by_its_clock,
    finding_lines,
    headed,
    listed,
    literal,
    moment,
    nonfinite_lines,
    resume_lines,
    since,
    size,
    state,
)
from supervisor_core.events.telemetry import NoticeRecord, WorkerState
from supervisor_core.process.stacks import MAIN_THREAD, user_line
from supervisor_core.run.fold.goodput import COMPLETED
from supervisor_core.run.judge.culprit import place_text
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import (
    LIVE,
    Goodput,
    LastValue,
    Recovery,
    Run,
    Session,
    Stall,
    ThreadHistory,
    WorkerHistory,
)
from supervisor_core.run.model.words import UNKNOWN, count, devices_text, duration, in_a_line, pace_text, rate, share

Stretch = tuple[float, float, str]
"""From, to, and the character that stands for it."""

_KEPT, _UNKNOWN, _NOT_KEPT, _FAILED = "█", "░", "▒", "✗"
_BAD_ENDS = ("lost", "error")
_NEVER_THE_CAUSE = {
    "supervisor_monitor",
    "supervisor-metrics",
    "supervisor_roster",
    "supervisor-events-writer",
    "signal-watch",
}
"""Threads that training never waits for."""
SHOWN_STACKS, SHOWN_FRAMES, SHOWN_WORDS = 5, 10, 10
"""Stacks, lines of each, and lines of standard error."""
_LEGEND = {
    "█": "session",
    "▒": "not kept",
    "░": "not known how it ended",
    "◆": "checkpoint",
    "✗": "killed or failed",
    "!": "stall",
    "▲": "notice",
    "╌": "silent",
    "↺": "restarted",
}
SHOWN_VALUES = 6
"""Newest values; ``--json`` has more."""

_RESTARTED = "↺"
_FIRST: tuple[WorkerState, ...] = ("failed", "lost", "stalled", "waiting", "running", "stopped")
"""Which workers are preferred where there is no room for all."""
_FINAL: tuple[WorkerState, ...] = ("failed", "lost", "stopped")
"""States that are so for good, or until the process is started again."""


def _steps_back(item: Recovery) -> str:
    return UNKNOWN if item.restored_step is None else f"back from {count(item.step)} to {count(item.restored_step)}"


RECOVERIES: Mapping[str, Callable[[Recovery], str]] = {
    "recovered": lambda item: moment(item.at),
    "took": lambda item: duration(item.secs),
    "steps": _steps_back,
    "error": lambda item: literal(in_a_line(item.error)) + (f" (the last of {item.losses})" if item.losses > 1 else ""),
}


def timeline(
    run: Run, now: float, width: int, found: Sequence[Finding] = (), *, label: str | None = None
) -> RenderableType:
    """Return everything about one run.

    Args:
        run: the run.
        now: the wall time that ages refer to.
        width: columns of the terminal.
        found: what is to be said of it, worst first.
        label: what metrics and alerts call it.
    """
    parts: list[RenderableType] = [Text.from_markup(_headline(run, now))]
    parts.extend(finding_lines(found, now))
    parts.extend(Text(printable(line), style="dim") for line in _process(run, label))
    parts.extend(Text(printable(line)) for line in [*nonfinite_lines(run), *resume_lines(run)])
    parts.append(Text())
    parts.extend(_bars(run, width))
    parts.extend(_sessions(run))
    troubled = [thread for thread in run.threads if _is_troubled(run, thread)]
    advice = advice_text(run.advice)
    for section in (
        listed(run.last_values[:SHOWN_VALUES], _LAST_VALUES),
        [*listed(run.launches, _LAUNCHES, cut="then"), *_error_output(run)],
        listed(run.recoveries, RECOVERIES),
        listed(run.notices, _NOTICES),
        workers(run, now),
        _checkpoints(run.checkpoints),
        listed(troubled, _THREADS),
        [*listed(run.stalls, _stall_columns("stall since")), *_verdicts(run)],
        _stacks(run),
        listed(run.service_stalls, _stall_columns("service hung since")),
        _goodput(run.goodput),
        [] if advice is None else [Text(advice)],
    ):
        parts += [Text(), *section] if section else []
    return Group(*parts)


def bar(stretches: Iterable[Stretch], start: float, end: float, width: int) -> str:
    """Draw stretches of time into a line of that width. A later one covers an earlier one; each shows at least once."""
    cells = [" "] * width
    scale = width / max(end - start, 1e-9)
    for begins, ends, character in stretches:
        if not (isfinite(begins) and isfinite(ends)):
            continue
        first = min(max(int((begins - start) * scale), 0), width - 1)
        last = min(max(int((ends - start) * scale), first), width - 1)
        cells[first : last + 1] = character * (last + 1 - first)
    return "".join(cells)


def _headline(run: Run, now: float) -> str:
    """Return what is known of the run as a whole; what is not known is left out."""
    silent = run.goodput.secs.get("silent", 0.0)
    causes = ", ".join(sorted({item.cause.replace("_", " ") for item in run.silences if item.cause}))
    now = by_its_clock(run, now)
    known = [
        "" if run.state == "unknown" and run.inferred else state(run),
        "" if run.step is None else f"step {count(run.step)}",
        "" if run.inferred or not run.sessions or run.steps_per_sec is None else f"{rate(run.steps_per_sec)} steps/s",
        "" if run.sessions else "no session",
        "no telemetry: values are inferred" if run.inferred and run.sessions else "",
        "" if run.goodput.ratio is None else f"goodput {share(run.goodput.ratio)}",
        f"silent for {duration(silent)}{f' ({causes})' if causes else ''}" if silent else "",
        "" if since(run.last_event_at, now) == UNKNOWN else f"last event {ago(run.last_event_at, now)}",
    ]
    return "  ".join([bold(run.name), *filter(None, known)])


def _process(run: Run, label: str | None) -> list[str]:
    """Return where the newest session runs, or ran, on what, and whose it is."""
    last = run.sessions[-1] if run.sessions else None
    in_alerts = {} if label in (None, run.name) else {"run": label}
    labels = ", ".join(f"{name}={value}" for name, value in {**in_alerts, **run.labels}.items())
    if last is None:
        return [labels] if labels else []
    has_ended = last.error is not None or last.outcome not in ("running", "lost", "unknown")
    how = "" if last.outcome == "unknown" else ": it was killed or crashed"
    end = " has ended" if has_ended else f" is gone{how}" if last.gone else ""
    process = "" if last.pid is None or last.host is None else f"Process {last.pid} on {last.host}{end}"
    place = devices_text(last.world_size, last.device_count, last.device_kind)
    return list(filter(None, (process, place, labels)))


def _bars(run: Run, width: int) -> Iterator[RenderableType]:
    starts = [item.started_at for item in run.sessions if item.started_at and isfinite(item.started_at)]
    ends = [item.ended_at for item in run.sessions if item.ended_at and isfinite(item.ended_at)]
    if not starts or not ends:
        return
    start, end = min(starts), max(ends)
    rows = {printable(name): stretches for name, stretches in _rows(run, end)}
    if run.inferred and len(rows) == len(run.sessions) == 1:
        return  # a bar of a single session of which nothing else is known says nothing
    label = max(len(name) for name in rows)
    room = max(20, width - label - 2)
    drawn = ""
    for name, stretches in rows.items():
        line = bar(stretches, start, end, room)
        drawn += line
        yield Text(f"{name:<{label}}  {line}")
    span = f"{moment(start)}  {duration(end - start)}"
    yield Text(f"{'':<{label}}  {span}{moment(end):>{max(room - len(span), 0)}}", style="dim")
    used = "  ".join(f"{sign} {what}" for sign, what in _LEGEND.items() if sign in drawn)
    for line in wrap(used, room):
        yield Text(f"{'':<{label}}  {line}", style="dim")
    yield Text()


def _rows(run: Run, end: float) -> Iterator[tuple[str, list[Stretch]]]:
    recoveries = ((item.at - item.secs, item.at, _RESTARTED) for item in run.recoveries)
    yield "sessions", [*_kept_and_lost(run), *recoveries]
    saves = [(item.at, item.at, "◆" if item.ok else "✗") for item in run.checkpoints if item.at]
    if saves:
        yield "checkpoints", sorted(saves, key=lambda save: save[2] == "✗")
    if run.stalls:
        yield "stalls", [(item.since, item.until or end, "!") for item in run.stalls]
    if run.notices:
        yield "notices", [(at, at, "▲") for item in run.notices for at in (item.since or 0.0, item.at or 0.0)]
    if run.silences:
        yield "silent", [(item.since, item.until, "╌") for item in run.silences]


def _kept_and_lost(run: Run) -> list[Stretch]:
    """Each session, cut where the steps begin that were not kept: recomputed by a later session, or in no checkpoint at
    the run's end. A session that ended badly has a sign at its end."""
    resumed = {item.from_session: item.to_step for item in run.restarts if item.rewind_steps}
    kept_until = inf
    if run.at_risk is not None:
        kept_until = -inf if run.at_risk.saved_step is None else run.at_risk.saved_step
    drawn: list[list[Stretch]] = []
    for session in reversed(run.sessions):
        to_step = resumed.get(session.id)
        kept_until = kept_until if to_step is None else min(kept_until, to_step)
        began = session.started_at
        if not began:
            continue
        ended = session.ended_at or began
        cut = _moment_of(run, session, kept_until, began, ended)
        parts = [(began, cut, _UNKNOWN if session.outcome == "unknown" else _KEPT)] if cut > began else []
        parts += [(cut, ended, _NOT_KEPT)] if cut < ended else []
        parts += [(ended, ended, _FAILED)] if session.outcome in _BAD_ENDS else []
        drawn.append(parts or [(began, ended, _KEPT)])
    return [stretch for parts in reversed(drawn) for stretch in parts]


def _moment_of(run: Run, session: Session, step: float, began: float, ended: float) -> float:
    """Return when a session was through with a step: when its checkpoint was saved, or else by the steps it did."""
    first, last = session.first_step, session.last_step
    if last is None or step >= last:
        return ended
    if first is None or step <= first:
        return began
    saved = (item.at for item in run.checkpoints if item.session == session.id and item.ok and item.step == step)
    at = next((at for at in saved if at is not None and began <= at <= ended), None)
    return began + (ended - began) * (step - first) / (last - first) if at is None else at


def _resume(session: Session) -> str:
    is_observed = session.resume_check is not None and session.why_not_exact is None
    return "observed exact" if is_observed else session.resume_verdict


def _sessions(run: Run) -> list[RenderableType]:
    restarts = {item.from_session: item for item in run.restarts}
    adopted = {item.id for item in run.sessions if item.adopted}
    has_moved = len({item.host for item in run.sessions}) > 1

    def after(session: Session) -> str:
        restart = restarts.get(session.id)
        if restart is None:
            return ""
        again = "model kept" if restart.to_session in adopted else again_text(restart)
        gap = "" if session.outcome in COMPLETED or restart.downtime_secs is None else duration(restart.downtime_secs)
        word = "later" if session.outcome == "unknown" else "down"
        return ", ".join(filter(None, (gap and f"{gap} {word}", again)))

    columns: dict[str, Callable[[Session], str]] = {
        "session": lambda item: f"{item.attempt}{' (inferred)' if item.inferred and not run.inferred else ''}",
        **({"host": lambda item: literal(item.host or "") or UNKNOWN} if has_moved else {}),
        "started": lambda item: moment(item.started_at),
        "lasted": lambda item: (
            duration(item.ended_at - item.started_at)
            if item.started_at and item.ended_at and (item.ended_at > item.started_at or not item.inferred)
            else UNKNOWN
        ),
        "steps": lambda item: (
            UNKNOWN if item.last_step is None else f"{count(item.first_step)} to {count(item.last_step)}"
        ),
        "ended": lambda item: (
            UNKNOWN
            if item.outcome == "unknown"
            else literal(" ".join(filter(None, (item.outcome, item.signal, item.error))))
        ),
        "resume": _resume,
        "then": after,
    }
    return listed(run.sessions, columns, cut="ended")


_LAUNCHES: Mapping[str, Callable[[ProgramLaunch], str]] = {
    "launch": lambda item: str(item.attempt),
    "started": lambda item: moment(item.started_at),
    "ended": lambda item: moment(item.ended_at),
    "step": lambda item: count(item.step),
    "progress": lambda item: {True: "yes", False: "no", None: UNKNOWN}[item.progress],
    "then": lambda item: literal(item.text or ""),
}


def _error_output(run: Run) -> list[RenderableType]:
    """Return the end of standard error of the newest launch, if that one has failed."""
    launch = run.launches[-1] if run.launches else None
    if launch is None or launch.stderr is None or launch.cause in ("completed", "stopped", "preempted", "requested"):
        return []
    lines = launch.stderr.rstrip().splitlines()[-SHOWN_WORDS:]
    return [Text(), Text("standard error:", style="bold"), *(Text(f"  {printable(line)}") for line in lines)]


_LAST_VALUES: Mapping[str, Callable[[LastValue], str]] = {
    "last value of": lambda item: literal(item.tag),
    "": lambda item: number(item.value),
    "step": lambda item: count(item.step),
}

_NOTICES: Mapping[str, Callable[[NoticeRecord], str]] = {
    "notice": lambda item: literal(item.text),
    "severity": lambda item: item.severity,
    "said": lambda item: moment(item.at),
    "times": lambda item: count(item.count),
    "step": lambda item: count(item.step),
    "by": lambda item: literal(item.worker or ""),
}

_CHECKPOINTS: Mapping[str, Callable[[Checkpoint], str]] = {
    "checkpoint": lambda item: literal(_name(item)),
    "at": lambda item: moment(item.at),
    "size": lambda item: size(item.bytes),
    "took": lambda item: duration(item.secs),
    "blocked": lambda item: duration(item.blocked_secs),
    "trigger": lambda item: item.trigger or UNKNOWN,
    "": lambda item: _status(item),
}


def _status(item: Checkpoint) -> str:
    """Return a checkpoint's status without the reason, in a colour where something is wrong."""
    words = item.status.partition(": ")[0]
    style = "bold red" if not item.ok or item.damage else "yellow" if item.doubt else ""
    return f"[{style}]{literal(words)}[/{style}]" if style else literal(words)


def _checkpoints(checkpoints: Sequence[Checkpoint]) -> list[RenderableType]:
    """Return the table, and below it the reasons, each with the newest checkpoint that it is of."""
    reasons: dict[str, Checkpoint] = {}
    for item in reversed(checkpoints[-SHOWN_ROWS:]):
        if ": " in item.status:
            reasons.setdefault(item.status.partition(": ")[2], item)
    lines = [Text(printable(f"{_name(item)}: {in_a_line(item.status)}")) for item in reasons.values()]
    return [*listed(checkpoints, _CHECKPOINTS), *lines[:SHOWN_REASONS]]


def _name(item: Checkpoint) -> str:
    """Return a checkpoint's name, and its step where that is not in it: another program's event names the basename."""
    name = last_part(item.path or "")
    if name and (item.step is None or step_in_name(name) is not None):
        return name
    step = f"step {count(item.step)}"
    return f"{name}, {step}" if name else step


def _is_troubled(run: Run, thread: ThreadHistory) -> bool:
    """Say whether a service thread of the newest session has failed, ever or for good, or is late."""
    is_newest = bool(run.sessions) and thread.session == run.sessions[-1].id
    return is_newest and (thread.failures > 0 or thread.state in ("failed", "overdue"))


_THREADS: Mapping[str, Callable[[ThreadHistory], str]] = {
    "service thread": lambda item: literal(item.name),
    "state": lambda item: item.state,
    "ticks": lambda item: count(item.ticks),
    "failed": lambda item: count(item.failures),
    "late by": lambda item: duration(item.overdue_secs) if item.overdue_secs else UNKNOWN,
    "last error": lambda item: literal(item.last_error or UNKNOWN),
}


def _stall_columns(title: str) -> Mapping[str, Callable[[Stall], str]]:
    return {
        title: lambda item: moment(item.since),
        "lasted": lambda item: duration(item.secs) + ("" if item.until else " so far"),
        "phase": lambda item: literal(item.phase),
        "step": lambda item: count(item.step),
        "thread": lambda item: literal(_location(item)[0]),
        "is": _doing,
        "in": lambda item: literal(_location(item)[1]),
    }


def _doing(stall: Stall) -> str:
    """Return what a second look found the thread to do, in one word: the same frames twice alone say little."""
    if stall.blocked_since:
        return "blocked"
    if stall.same_frames is False:
        return "moving"
    return {"busy": "busy", "waits": "waiting", None: UNKNOWN}[stall.activity]


def _verdicts(run: Run) -> Iterator[Text]:
    said = ((stall.since, stall.verdict) for stall in run.stalls[-3:] if stall.verdict is not None)
    return (Text(printable(f"{moment(since)}: {verdict}")) for since, verdict in said)


def _location(stall: Stall) -> tuple[str, str]:
    """Return the thread that made no progress, and its innermost line of the program: as recorded, else as guessed."""
    if stall.thread is not None:
        return stall.thread, stall.location or UNKNOWN
    guess = MAIN_THREAD if MAIN_THREAD in stall.stacks else next(iter(stall.stacks), UNKNOWN)
    return guess, user_line(stall.stacks.get(guess, ())) or UNKNOWN


def _stacks(run: Run) -> list[RenderableType]:
    """Return the stacks of the newest stall, while it lasts, of the threads that it may be about."""
    stall = run.stalls[-1] if run.stalls else None
    if stall is None or stall.until is not None or not stall.stacks:
        return []
    services = {thread.name for thread in run.threads} if stall.phase == "training" else set()
    first, _ = _location(stall)
    hidden = (services | _NEVER_THE_CAUSE) - {first}
    shown = {name: stack for name, stack in stall.stacks.items() if stack and name not in hidden}
    lines = [Text("Stacks when the stall began, innermost line last", style="bold")]
    for name in sorted(shown, key=lambda name: (name != first, name != MAIN_THREAD))[:SHOWN_STACKS]:
        lines.append(Text(f"  {printable(name)}"))
        lines += [Text(f"    {printable(line)}") for line in shown[name][-SHOWN_FRAMES:]]
    left = len(stall.stacks) - min(len(shown), SHOWN_STACKS)
    return [*lines, *([Text(f"  and {left} more threads (--json has all)", style="dim")] if left else [])]


def _goodput(goodput: Goodput) -> list[RenderableType]:
    if not 0 < goodput.wall_secs < inf or goodput.ratio is None:
        return []  # of a session without telemetry the use of the time is not known
    table = headed("wall time", duration(goodput.wall_secs), "")
    for bucket, secs in goodput.secs.items():
        if secs > 0:
            part = secs / goodput.wall_secs
            table.add_row(bucket.replace("_", " "), duration(secs), f"{share(part):>7} {'█' * round(30 * part)}")
    return [table]


# Other processes of the run.


def workers(run: Run, now: float) -> list[RenderableType]:
    """Return the cluster's other processes, as they last reported themselves, or as their chief reported them."""
    columns: dict[str, Callable[[WorkerHistory], str]] = {
        "worker": lambda item: literal(item.name),
        "state": lambda item: _worker_state(run, item),
        "silent": lambda item: since(item.last_seen_at, by_its_clock(run, now)),
        "step": lambda item: count(item.step),
        "steps": lambda item: count(item.steps),
        "step, of it own": lambda item: pace_text(item.pace),
        "starts": lambda item: count(item.starts),
        "host and process": lambda item: (
            literal(" ".join(str(part) for part in (item.host, item.pid) if part is not None)) or UNKNOWN
        ),
    }
    parts = listed(_shown(run.workers), columns)
    for item in _shown(run.workers):
        why = item.error or (f"waiting for {item.waiting_for}" if item.waiting_for else None) or place_text(item)
        if why is not None:
            parts.append(Text(printable(f"{item.name}: {in_a_line(why)}")))
    left = len(run.workers) - SHOWN_ROWS
    return [*parts, Text(f"and {left:,} more")] if left > 0 else parts


def _shown(items: Sequence[WorkerHistory]) -> Sequence[WorkerHistory]:
    """Return the workers that there is room for, in their order; those in trouble come first."""
    if len(items) <= SHOWN_ROWS:
        return items
    chosen = sorted(items, key=lambda item: _FIRST.index(item.state))[:SHOWN_ROWS]
    names = {item.name for item in chosen}
    return [item for item in items if item.name in names]


def _worker_state(run: Run, item: WorkerHistory) -> str:
    """A state that a dead chief, or an earlier one, reported is the past."""
    is_present = run.state in LIVE and item.session == run.sessions[-1].id
    if not is_present and item.state not in _FINAL:
        return f"was {item.state}"
    return f"[bold red]{item.state}[/bold red]" if item.state in ("failed", "lost", "stalled") else item.state
