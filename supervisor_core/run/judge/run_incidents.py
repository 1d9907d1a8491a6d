"""`incidents`: what went wrong in a run, one thing after the other, and what the run did besides, as spans of time.

Times are by the reader's clock, so that incidents of runs on several machines can be compared. What holds until now has
no end. `supervisor_core.run.judge.incidents` says what happened to several runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from supervisor_core.run.fold.goodput import GIVEN_UP_SECS
from supervisor_core.run.judge.counters import (
    REASON_OF_CAUSE,
    launches_of_inferred,
    launches_without_session,
    unplanned_ends,
)
from supervisor_core.run.judge.state_findings import hang_at_end, stalled_at
from supervisor_core.run.judge.wordings import (
    NOT_RESTARTED,
    REPEATED,
    REPEATED_BRIEFLY,
    RESTARTED_BRIEFLY,
    WORDINGS,
    Wording,
    say,
)
from supervisor_core.run.model.program_launch import ProgramLaunch, launch_error
from supervisor_core.run.model.run import DOWNTIME, LIVE, Outcome, Run, Session, Stall
from supervisor_core.run.model.words import counted, duration, in_a_line

IncidentKind = Literal["lost", "error", "oom", "hang", "signal", "stall", "saves", "silence", "recovery", "loss"]
"""``lost``, ``error``, ``oom``, ``hang``: an unplanned end. ``signal``: ended by a signal, and started again.
``saves``: one failed save or several in a row. ``silence``: its process did not run. ``recovery``: TensorFlow's session
was lost. ``loss``: the loss is NaN or infinite."""
ENDS: frozenset[IncidentKind] = frozenset(("lost", "error", "oom", "hang", "signal"))
"""Incidents in which the run goes down."""

LaneKind = Literal[
    "session", "downtime", "silence", "stall", "restart", "saves", "recovery", "loss", "completed", "stopped", "failed",
    "lost",
]  # fmt: skip
"""What is drawn of a run. The first four last for a while, the others are moments."""
LANE_KINDS: tuple[LaneKind, ...] = get_args(LaneKind)
TROUBLE: frozenset[LaneKind] = frozenset(
    ("downtime", "silence", "stall", "saves", "recovery", "loss", "failed", "lost")
)
"""Those that make a run one with an incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that went wrong in a run."""

    run: str
    kind: IncidentKind
    at: float
    """When it began: the end of a session, the last progress before a stall, the first failed save."""
    until: float | None
    """When it was over: the run was started again, made progress, or saved. None: not yet, as far as is known."""
    host: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    why: str | None = None
    """What the records say of the cause, in one line; written by the program."""
    count: int = 1
    """Failed saves."""
    resumed_step: int | None = None
    repeated_steps: int | None = None
    """Steps that were done again."""
    is_least: bool = False
    """Whether these are a lower bound: a kill hides the last steps."""
    is_over: bool = False
    """Whether nothing more is to come of it, though it has no `until`: the run has ended, or is given up."""
    ended: str | None = None
    """The session that ended, or the launch that had none; None of other incidents."""
    step: int | None = None
    """The last step of that session."""

    def touches(self, since: float, until: float) -> bool:
        """Return whether any of it lies within a stretch of time."""
        end = self.until if self.until is not None else self.at if self.is_over else math.inf
        return self.at <= until and end >= since

    @property
    def text(self) -> str:
        """What happened, as sentences without the time at which it began.

        Example:
            >>> Incident(run="a", kind="lost", at=10.0, until=70.0, host="gpu-7", resumed_step=40).text
            'a was lost on gpu-7. It was started again after 1 min at step 40.'
        """
        what = f"{self._what()}{'' if self.why is None else f': {self.why}'}"
        return f"{what}{'' if what.endswith(('.', '!', '?')) else '.'}{self._then()}"

    @property
    def change(self) -> str:
        """An end of the run, and its restart, in one line without the run's name.

        Example:
            >>> Incident(run="a", kind="oom", at=10.0, until=18.0, host="gpu-7", step=2500, repeated_steps=120).change
            'OOM-killed at step 2,500 on gpu-7; restarted after 8 s, 120 steps recomputed'
        """
        step = "" if self.step is None else f" at step {self.step:,}"
        where = "" if self.host is None else f" on {self.host}"
        why = "" if self.why is None else f": {self.why.removesuffix('.')}"
        ended = self.wording.one.removeprefix("{run} ").removeprefix("was ")
        what = f"{ended}{step}{where}{why}"
        if self.until is None:
            return what
        after = RESTARTED_BRIEFLY.format(after=duration(self.until - self.at))
        return f"{what}{after}{self._repeated(REPEATED_BRIEFLY)}"

    @property
    def wording(self) -> Wording:
        """How it is said."""
        return WORDINGS[_FINDING_OF.get(self.kind, self.kind)]

    def _what(self) -> str:
        where = "" if self.host is None else f" on {self.host}"
        saves = "A save" if self.count == 1 else counted(self.count, "save")
        has_length = self.kind in ("stall", "silence") and self.until is not None
        lasted = f" for {duration((self.until or 0.0) - self.at)}" if has_length else ""
        return f"{self.wording.one.format(run=self.run, saves=saves)}{lasted}{where}"

    def _then(self) -> str:
        """Return what followed."""
        text = self.wording.ended
        if self.until is None:
            text = NOT_RESTARTED if self.kind in ENDS and self.is_over else self.wording.lasts
        if not text:
            return ""
        after = "" if self.until is None else duration(self.until - self.at)
        step = "" if self.resumed_step is None else f" at step {self.resumed_step:,}"
        return f" {text.format(after=after, step=step, repeated=self._repeated(REPEATED))}"

    def _repeated(self, text: str) -> str:
        least = "at least " if self.is_least else ""
        return text.format(steps=f"{least}{counted(self.repeated_steps, 'step')}") if self.repeated_steps else ""


_FINDING_OF: Mapping[IncidentKind, str] = {
    "error": "failed",
    "stall": "stalled",
    "saves": "saves_failing",
    "loss": "loss_not_finite",
}
"""The kind of finding that has the words of an incident."""


class LaneItem(NamedTuple):
    """What a run did for a while, or at one moment."""

    kind: LaneKind
    since: float
    until: float
    """The same as `since` for a moment; infinite for what holds until now."""


def incidents(run: Run, now: float, name: str | None = None) -> list[Incident]:
    """Return what went wrong in a run, by time.

    Args:
        run: the run.
        now: the present wall time.
        name: what to call it. Default: its own name.
    """
    ahead = run.clock_skew_secs or 0.0
    about = _Incidents(run, now + ahead, run.name if name is None else name)
    found = [item for item in about.all() if math.isfinite(item.at)]
    if ahead:
        found = [
            replace(item, at=item.at - ahead, until=None if item.until is None else item.until - ahead)
            for item in found
        ]
    return sorted(found, key=lambda item: item.at)


class _Incidents:
    """The incidents of one run, by its own clock."""

    def __init__(self, run: Run, now: float, name: str) -> None:
        self._run, self._now, self._name = run, now, name
        self._sessions = {session.id: session for session in run.sessions}

    def all(self) -> Iterator[Incident]:
        """Yield them, one kind after the other."""
        yield from self._ends()
        yield from self._launches()
        yield from self._stalls()
        yield from self._failed_saves()
        yield from self._others()

    def _new(self, kind: IncidentKind, at: float, until: float | None, session: Session | None, **how: Any) -> Incident:
        """Return an incident of a session; None where that is not known."""
        labels = self._run.labels if session is None else session.labels or self._run.labels
        host = None if session is None else session.host
        return Incident(run=self._name, kind=kind, at=at, until=until, **{"host": host, "labels": labels, **how})

    def _ends(self) -> Iterator[Incident]:
        """Yield the ends of sessions that were not planned."""
        run = self._run
        restarts = {item.from_session: item for item in run.restarts}
        launches = {item.session: item for item in run.launches if item.session is not None}
        of_launches = launches_of_inferred(run)
        for session, reason in zip(run.sessions, unplanned_ends(run), strict=True):
            if session.id in of_launches:  # one incident: that of the launch
                continue
            restart, launch = restarts.get(session.id), launches.get(session.id)
            is_stopped = session.outcome == "signal" and restart is not None
            kind = _OF_REASON.get(reason or "", "signal" if is_stopped else None)
            if kind is None or session.ended_at is None:
                continue
            resumed_at = None if restart is None else restart.at
            yield self._new(
                kind,
                session.ended_at,
                None if resumed_at is None else max(resumed_at, session.ended_at),
                session,
                why=self._why_ended(session, kind, launch),
                resumed_step=None if restart is None else restart.to_step,
                repeated_steps=None if restart is None else restart.rewind_steps,
                is_least=restart is not None and restart.rewind_steps != restart.rewind_steps_most,
                is_over=resumed_at is None and self._is_given_up(session.ended_at),
                ended=session.id,
                step=session.last_step,
            )

    def _launches(self) -> Iterator[Incident]:
        """Yield the ends of launches without telemetry."""
        steps = {item.launch: self._sessions[id].last_step for id, item in launches_of_inferred(self._run).items()}
        starts = sorted(item.started_at for item in self._run.launches if item.started_at is not None)
        for launch in launches_without_session(self._run):
            kind = _OF_REASON.get(REASON_OF_CAUSE.get(launch.cause or "", ""))
            if kind is None or launch.ended_at is None:
                continue
            resumed_at = next((at for at in starts if at >= launch.ended_at), None)
            error = _place_of_hang(launch.error) if kind == "hang" else launch_error(launch)
            why = "" if error is None else f", with {error}"
            has_written = any(_overlaps(session, launch) for session in self._run.sessions if session.inferred)
            text = error if has_written else f"launch {launch.attempt} ended before its first event{why}"
            yield self._new(
                kind,
                launch.ended_at,
                resumed_at,
                None,
                host=launch.host,
                why=None if text is None else in_a_line(text),
                is_over=resumed_at is None and self._is_given_up(launch.ended_at),
                ended=launch.launch,
                step=steps.get(launch.launch) if launch.step is None else launch.step,
            )

    def _is_given_up(self, ended_at: float) -> bool:
        return not self._run.restarting and self._now - ended_at > GIVEN_UP_SECS

    def _why_ended(self, session: Session, kind: IncidentKind, launch: ProgramLaunch | None) -> str | None:
        error = session.error or (None if launch is None else launch_error(launch))
        if kind == "hang":
            verdict = next((item.verdict for item in reversed(self._run.stalls) if item.session == session.id), None)
            return verdict or in_a_line(_place_of_hang(error) or "") or None
        if error is not None:
            return in_a_line(error)
        hang = hang_at_end(self._run, session)
        if hang is not None:
            where = _stalled_where(hang)
            return say("lost/hung", how="" if where is None else f", {where}")
        signal = session.signal or (None if launch is None else launch.signal)
        return signal if kind in ("signal", "lost") else None

    def _stalls(self) -> Iterator[Incident]:
        """Yield the stalls, without those in which a session was killed: these are part of its end."""
        for stall in self._run.stalls:
            session = self._sessions.get(stall.session)
            if session is None or hang_at_end(self._run, session) is not stall:
                is_over = session is not None and not session.is_open
                yield self._new("stall", stall.since, stall.until, session, why=_stalled_where(stall), is_over=is_over)

    def _failed_saves(self) -> Iterator[Incident]:
        """Yield saves that failed; several in a row are one incident."""
        is_live = self._run.state in LIVE
        failed: Incident | None = None
        for saved in self._run.checkpoints:
            if saved.at is None:
                continue
            if saved.ok:
                if failed is not None:
                    yield replace(failed, until=saved.at, is_over=True)
                failed = None
            elif failed is not None:
                failed = replace(failed, count=failed.count + 1)
            else:
                session = self._sessions.get(saved.session or "")
                why = in_a_line(saved.error or "") or None
                failed = self._new("saves", saved.at, None, session, why=why, is_over=not is_live)
        if failed is not None:
            yield failed

    def _others(self) -> Iterator[Incident]:
        """Yield silences, recoveries, and a loss that is not finite."""
        run = self._run
        for silence in run.silences:
            why = None if silence.cause is None else silence.why
            yield self._new("silence", silence.since, silence.until, self._sessions.get(silence.session), why=why)
        for lost in run.recoveries:
            session, again = self._sessions.get(lost.session), lost.rewind_steps
            why = in_a_line(lost.error) or None
            yield self._new("recovery", lost.at - lost.secs, lost.at, session, why=why, repeated_steps=again)
        if run.loss_nonfinite_at is not None and run.loss_nonfinite_since is not None:
            why, is_over = f"since step {run.loss_nonfinite_since:,}", run.state not in LIVE
            yield self._new("loss", run.loss_nonfinite_at, None, None, why=why, is_over=is_over)


def _place_of_hang(error: str | None) -> str | None:
    """Return where a program hung by its restarter, which writes ``hang at PLACE``, or ``hang``; None: unknown."""
    return (error or "").removeprefix("hang").removeprefix(" at ") or None


def _overlaps(session: Session, launch: ProgramLaunch) -> bool:
    """Return whether a session without telemetry may be of a launch, by their times."""
    began, ended = launch.started_at or -math.inf, launch.ended_at or math.inf
    return (session.started_at or -math.inf) <= ended and (session.ended_at or math.inf) >= began


_OF_REASON: Mapping[str, IncidentKind] = {"lost": "lost", "error": "error", "oom": "oom", "hang": "hang"}


def _stalled_where(stall: Stall) -> str | None:
    return stall.verdict or stalled_at(stall)


def lane_items(run: Run) -> list[LaneItem]:
    """Return what a run did, for drawing: its sessions first, what covers them after them, moments last."""
    found = [*_stretches(run), *_moments(run)]
    ahead = run.clock_skew_secs or 0.0
    return [
        LaneItem(kind, since - ahead, max(since, until) - ahead)
        for kind, since, until in found
        if math.isfinite(since) and not math.isnan(until)
    ]


def _stretches(run: Run) -> Iterator[LaneItem]:
    last = run.sessions[-1] if run.sessions else None
    times = run.goodput.by_session
    for index, session in enumerate(run.sessions):
        if session.started_at is None or session.ended_at is None:
            continue
        yield LaneItem("session", session.started_at, math.inf if session.is_open else session.ended_at)
        since = session.ended_at
        for bucket, secs in times[index].after if index < len(times) and session.outcome != "unknown" else ():
            if bucket == DOWNTIME:
                yield LaneItem("downtime", since, since + secs)
            since += secs
    if last is not None and last.ended_at is not None and not last.inferred:
        if run.restarting:
            yield LaneItem("downtime", last.ended_at, math.inf)
        elif run.state in ("lost", "failed"):
            yield LaneItem("downtime", last.ended_at, last.ended_at + GIVEN_UP_SECS)
    for silence in run.silences:
        yield LaneItem("silence", silence.since, silence.until)
    for stall in run.stalls:
        yield LaneItem("stall", stall.since, math.inf if stall.until is None else stall.until)


def _moments(run: Run) -> Iterator[LaneItem]:
    for restart in run.restarts:
        if restart.at is not None:
            yield _moment("restart", restart.at)
    for saved in run.checkpoints:
        if not saved.ok and saved.at is not None:
            yield _moment("saves", saved.at)
    for recovery in run.recoveries:
        yield _moment("recovery", recovery.at)
    if run.loss_nonfinite_at is not None:
        yield _moment("loss", run.loss_nonfinite_at)
    for session, reason in zip(run.sessions, unplanned_ends(run), strict=True):
        kind = _LANE_OF_OUTCOME.get(session.outcome)
        if reason is not None:
            kind = "lost" if reason == "lost" else "failed"
        if kind is not None and session.ended_at is not None:
            yield _moment(kind, session.ended_at)


def _moment(kind: LaneKind, at: float) -> LaneItem:
    return LaneItem(kind, at, at)


_LANE_OF_OUTCOME: Mapping[Outcome, LaneKind] = {
    "completed": "completed",
    "exhausted": "completed",
    "requested": "stopped",
    "signal": "stopped",
}
