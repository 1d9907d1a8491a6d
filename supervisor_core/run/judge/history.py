"""`history`: what went wrong in a run, as findings with begin and end; `lane_items`: what it did, to be drawn.

Times are by the reader's clock, so that runs on several machines can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, zip_longest
from typing import Literal, NamedTuple, get_args

from supervisor_core.run.fold.goodput import GIVEN_UP_SECS
from supervisor_core.run.judge.counters import (
    REASON_OF_CAUSE,
    launches_of_inferred,
    launches_without_session,
    unplanned_ends,
)
from supervisor_core.run.judge.finding import Finding, by_reader
from supervisor_core.run.judge.state_findings import hang_at_end, how_hung, passed_over_text, stalled_at
from supervisor_core.run.judge.wordings import RECOMPUTED, WORDINGS, say
from supervisor_core.run.model.program_launch import ProgramLaunch, launch_error
from supervisor_core.run.model.run import LIVE, STATE_OF_OUTCOME, Run, Session
from supervisor_core.run.model.words import counted, duration, in_a_line

ENDS = frozenset(("lost", "failed", "oom", "hang", "signal"))
"""Kinds with which the run goes down. ``signal``: it was started again, such as after a preemption."""
MADE_OF_ENDS = ENDS | {"restart_loop", "recovery_loop", "not_starting"}
"""Kinds of which the single ends and losses are said."""
_LASTING = ("stalled", "silence")
"""Kinds of which the length is said."""


def history(run: Run) -> list[Finding]:
    """Return what went wrong in a run, by time, each with its begin and its end.

    Kinds are those of findings, and ``oom``, ``hang``, ``signal`` (ends), ``silence`` (its process did not run),
    ``recovery`` (TensorFlow's session was lost). Failed saves in a row are one. A text is one line: what happened,
    where, why, and what followed. A run that nobody starts again is down until it counts as given up, a day later.

    The evidence has ``host``, ``error``, and of an end ``ended`` (the session, or the launch without one) and ``step``.
    """
    ahead = run.clock_skew_secs or 0.0
    parts = (_ends, _launches, _stalls, _failed_saves, _silences, _recoveries, _loss)
    found = [by_reader(item, ahead) for part in parts for item in part(run)]
    return sorted((item for item in found if math.isfinite(item.since or 0.0)), key=lambda item: item.since or 0.0)


def _past(
    kind: str,
    since: float,
    until: float | None,
    host: str | None,
    why: str | None = None,
    *,
    is_resolved: bool = True,
    repeated: str = "",
    count: int = 1,
    **evidence: str | int | None,
) -> Finding:
    """Return a finding of the past.

    Args:
        kind: its kind.
        since: when it began.
        until: when it ended; None while it lasts.
        host: where it was.
        why: what the records say of the cause; written by the program.
        is_resolved: whether the run went on then. Otherwise nothing more is known, or it lasts.
        repeated: steps that were done again.
        count: how often it happened in a row.
        evidence: more of it.
    """
    wording, step = WORDINGS[kind], evidence.get("step")
    after = duration((until or since) - since)
    text = wording.past.format(saves="a save" if count == 1 else counted(count, "save"))
    text += f" at step {step:,}" if isinstance(step, int) else ""
    text += f" for {after}" if kind in _LASTING and is_resolved and until is not None else ""
    text += "" if host is None else f" on {host}"
    text += "" if why is None else f": {why.removesuffix('.')}"
    text += wording.ended.format(after=after) if is_resolved and until is not None else wording.lasts
    known = {name: value for name, value in {**evidence, "host": host, "error": why}.items() if value is not None}
    return Finding(kind=kind, since=since, until=until, text=f"{text}{repeated}", evidence=known)


def _recomputed(steps: int | None, least: str = "") -> str:
    return RECOMPUTED.format(steps=f"{least}{counted(steps, 'step')}") if steps else ""


def _down_until(run: Run, ended_at: float, resumed_at: float | None) -> float | None:
    if resumed_at is not None:
        return max(resumed_at, ended_at)
    return None if run.restarting else ended_at + GIVEN_UP_SECS


def _ends(run: Run) -> Iterator[Finding]:
    """Yield the ends of sessions that were not planned, and the stops by a signal after which it was started again."""
    restarts = {item.from_session: item for item in run.restarts}
    sessions = {session.id: session for session in run.sessions}
    launches = {item.session: item for item in run.launches if item.session is not None}
    of_launches = launches_of_inferred(run)
    for session, reason in zip(run.sessions, unplanned_ends(run), strict=True):
        restart, launch = restarts.get(session.id), launches.get(session.id)
        if reason is None and session.outcome == "signal" and restart is not None:
            reason = "signal"
        if reason is None or session.ended_at is None or session.id in of_launches:  # one end: that of the launch
            continue
        is_least = restart is not None and restart.rewind_steps != restart.rewind_steps_most
        resumed_at = None if restart is None else restart.at
        from_step = None if restart is None else restart.from_step
        yield _past(
            _KIND_OF_REASON.get(reason, reason),
            session.ended_at,
            _down_until(run, session.ended_at, resumed_at),
            session.host,
            _why_ended(run, session, reason, launch),
            is_resolved=resumed_at is not None,
            repeated=_recomputed(0 if restart is None else restart.rewind_steps, "at least " if is_least else "")
            + _passed_over(None if restart is None else sessions.get(restart.to_session)),
            ended=session.id,
            step=session.last_step if from_step is None else from_step,
        )


def _passed_over(session: Session | None) -> str:
    text = passed_over_text(session)
    return "" if text is None else f"; {text}"


_KIND_OF_REASON = {"error": "failed"}


def _launches(run: Run) -> Iterator[Finding]:
    """Yield the ends of launches without telemetry."""
    steps = {item.launch: session for session, item in launches_of_inferred(run).items()}
    last_steps = {session.id: session.last_step for session in run.sessions}
    starts = sorted(item.started_at for item in run.launches if item.started_at is not None)
    for launch in launches_without_session(run):
        reason = REASON_OF_CAUSE.get(launch.cause or "")
        if reason is None or launch.ended_at is None:
            continue
        resumed_at = next((at for at in starts if at >= launch.ended_at), None)
        error = _place_of_hang(launch.error) if reason == "hang" else launch_error(launch)
        if not any(_overlaps(session, launch) for session in run.sessions if session.inferred):
            error = f"launch {launch.attempt} ended before its first event{'' if error is None else f', with {error}'}"
        yield _past(
            _KIND_OF_REASON.get(reason, reason),
            launch.ended_at,
            _down_until(run, launch.ended_at, resumed_at),
            launch.host,
            None if error is None else in_a_line(error),
            is_resolved=resumed_at is not None,
            ended=launch.launch,
            step=last_steps.get(steps.get(launch.launch, "")) if launch.step is None else launch.step,
        )


def _why_ended(run: Run, session: Session, reason: str, launch: ProgramLaunch | None) -> str | None:
    error = session.error or (None if launch is None else launch_error(launch))
    if reason == "hang":
        verdict = next((item.verdict for item in reversed(run.stalls) if item.session == session.id), None)
        return verdict or in_a_line(_place_of_hang(error) or "") or None
    if error is not None:
        return in_a_line(error)
    hang = hang_at_end(run, session)
    if hang is not None:
        return say("lost/hung", how=how_hung(hang, ", "))
    signal = session.signal or (None if launch is None else launch.signal)
    return signal if reason in ("signal", "lost") else None


def _stalls(run: Run) -> Iterator[Finding]:
    """Yield the stalls, without those in which a session was killed: these are part of its end."""
    sessions = {session.id: session for session in run.sessions}
    for stall in run.stalls:
        session = sessions.get(stall.session)
        if session is not None and hang_at_end(run, session) is stall:
            continue
        until = stall.until
        if until is None and session is not None and not session.is_open:
            until = session.ended_at
        host = None if session is None else session.host
        why = stall.verdict or stalled_at(stall)
        yield _past("stalled", stall.since, until, host, why, is_resolved=stall.until is not None)


def _failed_saves(run: Run) -> Iterator[Finding]:
    hosts = {session.id: session.host for session in run.sessions}
    saves = [saved for saved in run.checkpoints if saved.at is not None]
    rows = [list(row) for _, row in groupby(saves, key=lambda saved: saved.ok)]
    for failed, good in zip_longest(rows, rows[1:]):
        first = failed[0]
        if not first.ok:
            until = good[0].at if good else None if run.state in LIVE else run.last_event_at
            host, why = hosts.get(first.session or ""), in_a_line(first.error or "") or None
            yield _past(
                "saves_failing", first.at or 0.0, until, host, why, is_resolved=good is not None, count=len(failed)
            )


def _silences(run: Run) -> Iterator[Finding]:
    hosts = {session.id: session.host for session in run.sessions}
    for silence in run.silences:
        why = None if silence.cause is None else silence.why
        yield _past("silence", silence.since, silence.until, hosts.get(silence.session), why)


def _recoveries(run: Run) -> Iterator[Finding]:
    hosts = {session.id: session.host for session in run.sessions}
    for lost in run.recoveries:
        host, why = hosts.get(lost.session), in_a_line(lost.error) or None
        yield _past("recovery", lost.at - lost.secs, lost.at, host, why, repeated=_recomputed(lost.rewind_steps))


def _loss(run: Run) -> Iterator[Finding]:
    if run.loss_nonfinite_at is not None and run.loss_nonfinite_since is not None:
        until = None if run.state in LIVE else run.last_event_at
        why = f"since step {run.loss_nonfinite_since:,}"
        yield _past("loss_not_finite", run.loss_nonfinite_at, until, None, why, is_resolved=False)


def _place_of_hang(error: str | None) -> str | None:
    """Return where a program hung by its restarter, which writes ``hang at PLACE``, or ``hang``; None: unknown."""
    return (error or "").removeprefix("hang").removeprefix(" at ") or None


def _overlaps(session: Session, launch: ProgramLaunch) -> bool:
    """Return whether a session without telemetry may be of a launch, by their times."""
    began, ended = launch.started_at or -math.inf, launch.ended_at or math.inf
    return (session.started_at or -math.inf) <= ended and (session.ended_at or math.inf) >= began


def present(past: Iterable[Finding], held: Iterable[Finding]) -> list[Finding]:
    """Return what is held of a run that needs somebody, and that its `history` does not say: no record has when such a
    thing began and ended."""
    told = {*MADE_OF_ENDS, *(item.kind for item in past if item.until is None)}
    return [item for item in held if item.severity != "info" and item.kind not in told and item.since is not None]


LaneKind = Literal[
    "session", "downtime", "silence", "stall", "finding", "restart", "saves", "recovery", "loss", "completed",
    "stopped", "failed", "lost",
]  # fmt: skip
"""What is drawn of a run. The first five last for a while, the others are moments. ``saves``: one has failed;
``finding``: something else that is held."""
LANE_KINDS: tuple[LaneKind, ...] = get_args(LaneKind)
TROUBLE: frozenset[LaneKind] = frozenset(
    ("downtime", "silence", "stall", "finding", "saves", "recovery", "loss", "failed", "lost")
)
_STRETCHES: Mapping[str, LaneKind] = {"silence": "silence", "stalled": "stall"}
_MOMENTS: Mapping[str, LaneKind] = {
    **dict.fromkeys(("failed", "oom", "hang"), "failed"),
    "lost": "lost",
    "signal": "stopped",
    "loss_not_finite": "loss",
    "recovery": "recovery",
}


class LaneItem(NamedTuple):
    """What a run did for a while, or at one moment."""

    kind: LaneKind
    since: float
    until: float
    """The same as `since` for a moment; infinite for what holds until now."""


def lane_items(run: Run, past: list[Finding] | None = None) -> list[LaneItem]:
    """Return what a run did, for drawing: its sessions first, what covers them after them, moments last.

    Args:
        run: the run.
        past: its `history`, where that is at hand, and what is `present`.
    """
    ahead = run.clock_skew_secs or 0.0
    stretches: list[tuple[LaneKind, float | None, float | None]] = []
    moments: list[tuple[LaneKind, float | None]] = []
    ended = set()
    for session in run.sessions:
        if session.started_at is not None and session.ended_at is not None:
            until = math.inf if session.is_open else session.ended_at - ahead
            stretches.append(("session", session.started_at - ahead, until))
    moments += [("restart", item.at - ahead) for item in run.restarts if item.at is not None]
    moments += [("saves", item.at - ahead) for item in run.checkpoints if not item.ok and item.at is not None]
    for found in history(run) if past is None else past:
        if found.kind in ENDS:
            ended.add(found.evidence["ended"])
        is_present = found.severity != "info"
        kind = "finding" if is_present else "downtime" if found.kind in ENDS else _STRETCHES.get(found.kind)
        if kind is not None:
            stretches.append((kind, found.since, math.inf if found.until is None else found.until))
        if found.kind in _MOMENTS and not is_present:
            moments.append((_MOMENTS[found.kind], found.until if found.kind == "recovery" else found.since))
    for session in run.sessions:
        state = STATE_OF_OUTCOME.get(session.outcome)
        if state in ("completed", "stopped") and session.id not in ended and session.ended_at is not None:
            moments.append((state, session.ended_at - ahead))
    items = [*stretches, *((kind, at, at) for kind, at in moments)]
    return [
        LaneItem(kind, since, max(since, until))
        for kind, since, until in items
        if since is not None and until is not None and math.isfinite(since) and not math.isnan(until)
    ]
