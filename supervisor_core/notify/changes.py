"""`Changes`: what has changed in some runs from one look to the next, and is to be said, as events.

A finding is an event when it becomes held (`supervisor_core.run.judge.held`), and when it is over. A restart is one,
the end of a run, and what a program says with ``notify``. A restart is said once: where a death or hang was said, the
end of that finding says the restart.

Not said: what ended before the first look; a run that died more than a day ago (`Thresholds.forget_secs`); a copy of a
run; clocks that differ; a run that is gone from the disk, unless it was alive.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from supervisor_core.base.log import printable
from supervisor_core.events.telemetry import NoticeRecord
from supervisor_core.notify.event import TOPICS, Event, Topic, What, event_id
from supervisor_core.run.fold.notices import notice_text
from supervisor_core.run.judge.counters import launches_without_session
from supervisor_core.run.judge.finding import KINDS, Finding, Severity
from supervisor_core.run.judge.held import Change, HeldRun, is_read, newest_session, own_clock, run_key, session_key
from supervisor_core.run.judge.history import ENDS, history
from supervisor_core.run.judge.wordings import WORDINGS
from supervisor_core.run.model.program_launch import final_launch
from supervisor_core.run.model.run import LIVE, Outcome, Run, Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import duration, share
from supervisor_core.storage.local import absolute

_LOG = logging.getLogger("supervisor_core")

_DEFAULTS = Thresholds()
_GONE, _GONE_SECS = "it is not there", 3600.0
"""Of a run that is gone from the disk: why it is unreachable; how long one that was not alive is remembered."""
_OVER = ("completed", "stopped")
_UNTIL_RESTART = frozenset(("lost", "failed", "stalled"))
"""Kinds that a restart ends."""


class Changes:
    """Compares each look with those before it. Used by one thread at a time.

    Args:
        thresholds: from when on something is said, and for how long it must hold.
        runbook_base: address of the page of alerts; None: events have no `Event.runbook_url`.
        tab_url: address of TensorBoard; None: events have no `Event.tab_url`.
        topics: what is wanted; other events are left out.
        since: wall time; of what ended or was restarted before it nothing is said. None: the first look.

    Example:
        >>> Changes().of({}, 0.0)
        []
    """

    def __init__(
        self,
        *,
        thresholds: Thresholds = _DEFAULTS,
        runbook_base: str | None = None,
        tab_url: str | None = None,
        topics: Collection[Topic] = TOPICS,
        since: float | None = None,
    ) -> None:
        self._limits, self._topics = thresholds, frozenset(topics)
        self._runbook_base, self._tab_url = runbook_base, tab_url
        self._since = since
        self._known: dict[str, KnownRun] = {}
        self._unjudged: set[str] = set()
        """Names of runs of which it is logged that they cannot be judged."""

    def of(
        self, runs: Mapping[str, WatchedRun], now: float, *, unread: Collection[str] = (), is_last: bool = False
    ) -> list[Event]:
        """Return what has changed since the last look, by time. Raises nothing: a run that cannot be judged is logged.

        Args:
            runs: all that the look has found, by the names by which events are to call them.
            now: the present wall time.
            unread: names of runs that the look did not come to; what was known of them stays.
            is_last: whether there will be no later look: deaths and stops are said at once.
        """
        if self._since is None:
            self._since = now
        events: list[Event] = []
        self._follow_renamed(runs)
        for name, watched in runs.items():
            if name not in unread:
                events += self._judged(name, watched, now, is_last=is_last)
        self._unjudged &= runs.keys()
        for name in [name for name in self._known if name not in runs and name not in unread]:
            events += self._safely(name, self._missing(name, now)) or ()
        return sorted((event for event in events if event.topic in self._topics), key=lambda event: event.at)

    def _judged(self, name: str, watched: WatchedRun, now: float, *, is_last: bool) -> list[Event]:
        known = self._known.get(name)
        if known is not None and known.watched is watched and known.is_settled and known.gone_since is None:
            known.seen_at = now
            known.held.skip(now)
            return []
        events = self._safely(name, self._of_run(name, watched, now, is_last=is_last))
        if events is None and known is None:
            self._known.pop(name, None)
        return events or []

    def _safely(self, name: str, found: Iterator[Event]) -> list[Event] | None:
        """Return the events of a run; None, and a line in the log, if it cannot be judged."""
        try:
            events = list(found)
        except Exception as error:  # the records may be anybody's; the other runs are judged
            if name not in self._unjudged:
                self._unjudged.add(name)
                _LOG.warning("The run %s cannot be judged, nothing is sent of it: %r", printable(name), error)
            _LOG.debug("Judging a run failed", exc_info=True)
            return None
        self._unjudged.discard(name)
        return events

    def _of_run(self, name: str, watched: WatchedRun, now: float, *, is_last: bool) -> Iterator[Event]:
        if watched.copy_of is not None:
            self._known.pop(name, None)
            return
        known = self._known.get(name)
        can_judge = is_read(watched)
        if known is None:
            known = self._known[name] = KnownRun(watched=watched, seen_at=now)
            if not can_judge:
                known.restarts = restart_keys(watched.run)
                known.end = known.old_end = _key_of_end(watched)
            else:
                self._begin(known)
        before = newest_session(known.watched.run)
        known.watched, known.seen_at, known.gone_since = watched, now, None
        changed = self._changed(known, now, is_last=is_last)
        if can_judge:
            restarts = list(self._restarts(name, known, now, None if before is None else before.id))
            over = next((change for change in changed if restarts and _ends_with_restart(change)), None)
            if over is not None and over.finding.severity in self._topics:
                changed.remove(over)
                first = restarts.pop(0)
                yield replace(self._finding(name, watched, over, now), text=first.text, at=first.at)
            yield from restarts
            yield from self._ends(name, known, now, is_last=is_last)
            yield from self._notices(name, known, now)
        yield from self._findings(name, known, changed, now)

    def _begin(self, known: KnownRun) -> None:
        """Take what a run that is seen for the first time was before `since` as said."""
        watched, since = known.watched, self._since or 0.0
        keys = restart_keys(watched.run)
        before = {key for key, started in restarts_of(watched.run, keys) if started.at < since}
        known.restarts = frozenset(before)
        end = end_of(watched)
        if end is not None and (end[1] is None or end[1] < since):
            known.end = known.old_end = end[0]

    def _restarts(self, name: str, known: KnownRun, now: float, before: str | None) -> Iterator[Event]:
        """Yield the restarts since the last look, at which the newest session was `before`."""
        run = known.watched.run
        keys = restart_keys(run)
        new, known.restarts = keys - known.restarts, keys
        for key, started in restarts_of(run, new):
            last = newest_session(run)
            if started.at < (self._since or 0.0) and (last is None or key != last.id or key == before):
                continue  # an old file was found late
            yield self._event(
                name,
                known.watched,
                ("restarted", key if started.session is None else session_key(started.session)),
                what="happened",
                topic="info" if started.is_planned else "restart",
                kind="restarted",
                severity="info" if started.is_planned else "warn",
                text=restarted_text(started),
                at=started.at,
                session=_of_end(started),
                step=_step_of(started.end),
            )

    def _ends(self, name: str, known: KnownRun, now: float, *, is_last: bool) -> Iterator[Event]:
        watched = known.watched
        end = end_of(watched)
        if end is None or end[0] == known.end:
            return
        key, ended_at = end
        at = now if ended_at is None else min(ended_at, now)
        if may_resume(watched.run) and not is_last and now - at < self._limits.dead_hold_secs:
            return
        known.end = key
        kind = watched.run.state
        text = ended_text(watched, now)
        session = newest_session(watched.run)
        yield self._event(
            name, watched, (kind, key), what="happened", topic="end", kind=kind, severity="info", text=text, at=at,
            session=session, step=watched.run.step,
        )  # fmt: skip

    def _notices(self, name: str, known: KnownRun, now: float) -> Iterator[Event]:
        """Yield what the program has said."""
        watched = known.watched
        for key, said in new_notices(known, now, self._limits):
            yield self._event(
                name, watched, key, what="happened", topic=said.severity, kind="notice", severity=said.severity,
                text=notice_text(said), at=(said.since or now) - (watched.run.clock_skew_secs or 0.0),
                session=newest_session(watched.run), step=said.step, alert=KINDS["notice"].alert,
            )  # fmt: skip

    def _changed(self, known: KnownRun, now: float, *, is_last: bool = False) -> list[Change]:
        """Return which findings are held from now on, and which are over. That a death or hang is over waits for the
        restart, or for the death that is to be said instead."""
        watched = known.watched
        is_old = known.old_end is not None and known.old_end == _key_of_end(watched)
        found = known.awaiting + known.held.update(watched, now, self._limits, is_last=is_last, is_old=is_old)
        ends = {change.finding.kind for change in found if change.what != "is_over"} & {"lost", "failed"}
        is_down = watched.run.restarting or (watched.run.state in ("lost", "failed") and not ends)
        known.awaiting = [change for change in found if is_down and not is_last and _ends_with_restart(change)]
        return [change for change in found if change not in known.awaiting]

    def _findings(self, name: str, known: KnownRun, changed: list[Change], now: float) -> Iterator[Event]:
        for change in changed:
            if change.finding.kind != "notice":  # said as the program says it
                yield self._finding(name, known.watched, change, now)

    def _finding(self, name: str, watched: WatchedRun, change: Change, now: float) -> Event:
        item = change.finding
        at = item.since if item.since is not None and item.since <= now else min(change.since, now)
        if change.what == "is_over":
            text, at = over_text(item, watched, now)
        else:
            text = item.sentence if change.what == "happened" else begins_text(item, now)
        host = item.evidence.get("host")
        return self._event(
            name,
            watched,
            (*change.instance, change.what),
            what=change.what,
            topic=item.severity,
            kind=item.kind,
            severity=item.severity,
            text=text,
            at=at,
            session=newest_session(watched.run),
            host=host if isinstance(host, str) else None,
            step=_step_of(item),
            action=None if change.what == "is_over" else item.action,
            alert=item.alert,
        )

    def _missing(self, name: str, now: float) -> Iterator[Event]:
        """Yield that a run that was alive is gone from the disk; forget one that has been gone for long."""
        known = self._known[name]
        if known.gone_since is None:
            known.gone_since = now
        is_live = known.watched.run.state in LIVE
        if now - known.seen_at > (self._limits.forget_secs if is_live else _GONE_SECS):
            del self._known[name]
        elif is_live:
            known.watched = replace(known.watched, unreachable=True, problem=_GONE)
            yield from self._findings(name, known, self._changed(known, now), now)

    def _follow_renamed(self, runs: Mapping[str, WatchedRun]) -> None:
        """Go on with what is known of runs whose directories were renamed: the newest session, or the place, is the
        same."""
        if not self._known:
            return
        new = [name for name, watched in runs.items() if name not in self._known and watched.copy_of is None]
        if not new:
            return
        gone = {name: known.watched for name, known in self._known.items() if name not in runs}
        by_key = {(run_key(watched), watched.owner): name for name, watched in gone.items()}
        by_place = {watched.identity: name for name, watched in gone.items()}
        for name in new if gone else ():
            there = by_place.get(runs[name].identity)
            is_moved = there is not None and runs[name].was_at(gone[there].place)
            before = by_key.get((run_key(runs[name]), runs[name].owner), there if is_moved else None)
            if before is not None and before in self._known:
                self._known[name] = self._known.pop(before)

    def _event(
        self,
        name: str,
        watched: WatchedRun,
        identity: tuple[object, ...],
        *,
        what: What,
        topic: Topic,
        kind: str,
        severity: Severity,
        text: str,
        at: float,
        session: Session | None,
        host: str | None = None,
        step: int | None = None,
        action: str | None = None,
        alert: str | None = None,
    ) -> Event:
        directory = absolute(watched.directory)
        run = name if name != "." else directory.rstrip("/").rpartition("/")[2] or name
        host = host if host is not None else None if session is None else session.host
        base, tab = self._runbook_base, self._tab_url
        address = quote(f"run={quote(name, safe='', errors='replace')}", safe="")  # a name may be no text
        # Whoever can read a run's records can write them, but not as files of its user.
        owner = watched.owner if watched.owner is not None or session is None else session.uid
        return Event(
            id=event_id(*identity, owner),
            what=what,
            topic=topic,
            kind=kind,
            severity=severity,
            run=run,
            logdir=directory,
            text=" ".join(f"{run}: {text}".split()),
            action=action,
            at=at if math.isfinite(at) else 0.0,
            host=host,
            step=step,
            labels=watched.run.labels,
            owner=owner,
            runbook_url=None if base is None or alert is None else f"{base}#{alert.lower()}",
            tab_url=None if tab is None else f"{tab.rstrip('/')}/#supervisor&p.supervisor.s={address}",
        )


@dataclass(slots=True)
class KnownRun:
    """One run, as of the looks so far."""

    watched: WatchedRun
    """As it was last read."""
    seen_at: float
    """When it was last there."""
    held: HeldRun = field(default_factory=HeldRun)
    awaiting: list[Change] = field(default_factory=list)
    """Deaths and hangs that are over, which is not said before it is known how the run goes on."""
    restarts: frozenset[str] = frozenset()
    """What `restarts_of` has returned, by key."""
    end: str | None = None
    """The end that was said, or that is from before."""
    old_end: str | None = None
    """The end that is from before: of what holds since then nothing is said."""
    notices: frozenset[tuple[object, ...]] = frozenset()
    """What identifies those that hold; they were said."""
    gone_since: float | None = None
    """Since when its directory has been missing."""

    @property
    def is_settled(self) -> bool:
        """Whether time alone changes nothing in what is to be said of it."""
        end = end_of(self.watched)
        is_over = self.watched.run.state in ("lost", "failed") if end is None else end[0] == self.end
        return is_over and not self.awaiting and self.held.is_settled()


def new_notices(known: KnownRun, now: float, limits: Thresholds) -> Iterator[tuple[tuple[object, ...], NoticeRecord]]:
    """Yield the notices of a run that hold and were not said, each with what identifies it; from now on they were."""
    run, before = known.watched.run, known.notices
    since = own_clock(run, now) - limits.notice_secs
    # A worker's may be recorded by two chiefs.
    found = {
        (each.session if each.worker is None else each.worker, "notice", each.severity, each.text, each.since): each
        for each in run.notices
        if (each.at or 0.0) > since
    }
    known.notices = frozenset(found)
    yield from ((key, each) for key, each in found.items() if key not in before)


@dataclass(frozen=True, slots=True)
class Started:
    """A run was started again."""

    at: float
    """By the reader's clock."""
    end: Finding | None
    """The end before; None of one that was planned."""
    session: Session | None
    """The new session; None of a launch that has none."""
    before: Session | None

    @property
    def is_planned(self) -> bool:
        """Whether it had ended as planned, or was preempted."""
        return self.end is None or self.end.kind == "signal"


def restart_keys(run: Run) -> frozenset[str]:
    """Return what identifies each restart of a run that is known by its records: the session that it began, or the
    launch that had none."""
    sessions = {item.id for item in run.sessions if not item.inferred}
    begun = {item.to_session for item in run.restarts if item.to_session in sessions}
    return frozenset(begun | {launch for launch, _ in _launches_again(run)})


def _launches_again(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the launches without telemetry after which there was another one, and when that was."""
    starts = sorted(item.started_at for item in run.launches if item.started_at is not None)
    for launch in launches_without_session(run):
        index = len(starts) if launch.ended_at is None else bisect_left(starts, launch.ended_at)
        if index < len(starts):
            yield launch.launch, starts[index]


def restarts_of(run: Run, keys: frozenset[str]) -> Iterator[tuple[str, Started]]:
    """Yield the restarts of a run with these keys, by their keys.

    Args:
        run: the run.
        keys: of `restart_keys`.
    """
    if not keys:
        return
    sessions = {item.id: item for item in run.sessions}
    ends = {item.evidence["ended"]: item for item in history(run) if item.kind in ENDS}
    ahead = run.clock_skew_secs or 0.0
    for restart in run.restarts:
        if restart.to_session in keys and restart.at is not None:
            end, before = ends.get(restart.from_session), sessions.get(restart.from_session)
            yield restart.to_session, Started(restart.at - ahead, end, sessions.get(restart.to_session), before)
    for launch, at in _launches_again(run):
        if launch in keys and launch in ends:
            yield launch, Started(at - ahead, ends[launch], None, None)


def end_of(watched: WatchedRun) -> tuple[str, float | None] | None:
    """Return what identifies the end of a run that was completed or stopped, and when that was by the reader's clock;
    None of any other run."""
    run, last = watched.run, newest_session(watched.run)
    if run.state not in _OVER or run.restarting:
        return None
    final = final_launch(run.launches)
    at = last.ended_at if last is not None and not last.inferred else None if final is None else final.ended_at
    return run_key(watched), None if at is None else at - (run.clock_skew_secs or 0.0)


def may_resume(run: Run) -> bool:
    """Return whether a run that was stopped may have been preempted: by a signal, and no restarter says that it is
    over."""
    last = newest_session(run)
    return last is not None and last.outcome == "signal" and final_launch(run.launches) is None


def _ends_with_restart(change: Change) -> bool:
    return change.what == "is_over" and change.finding.kind in _UNTIL_RESTART


def _step_of(found: Finding | None) -> int | None:
    step = None if found is None else found.evidence.get("step")
    return step if isinstance(step, int) else None


def _key_of_end(watched: WatchedRun) -> str | None:
    end = end_of(watched)
    return None if end is None else end[0]


def _of_end(started: Started) -> Session | None:
    return started.before if started.before is not None else started.session


_PLANNED: dict[Outcome, str] = {
    "completed": "completed",
    "exhausted": "completed",
    "requested": "stopped",
    "signal": "stopped",
}


def begins_text(found: Finding, now: float) -> str:
    """Return what a finding says, for how long that has been so, and what it costs.

    Example:
        >>> begins_text(Finding(kind="lost", since=10.0, text="Its process is gone.", cost="12 steps are lost."), 70.0)
        'Its process is gone (for 1 min). 12 steps are lost.'
    """
    if found.since is None or now - found.since < 1.0:
        return found.sentence
    age, text = duration(now - found.since), found.text.removesuffix(".")
    aged = f"{text}. This has lasted for {age}." if ". " in text else f"{text} (for {age})."
    return aged if found.cost is None else f"{aged} {found.cost}"


def over_text(said: Finding, watched: WatchedRun, now: float) -> tuple[str, float]:
    """Return that a finding is over, after how long, and the wall time at which it was.

    Args:
        said: the finding as it was said.
        watched: the run as it is now.
        now: the present wall time.
    """
    run, last = watched.run, newest_session(watched.run)
    ahead, at = run.clock_skew_secs or 0.0, now
    is_alive = run.state in LIVE
    is_undone = False
    if said.kind in ("lost", "failed") and is_alive and last is not None:
        is_undone = True
        began = (last.started_at or now) - ahead
        at = began if (said.since or 0.0) < began <= now else now
    elif said.kind == "stalled":
        stall = next((item for item in reversed(run.stalls) if item.until is not None), None)
        until = None if stall is None or stall.until is None else stall.until - ahead
        at = until if until is not None and (said.since or 0.0) <= until <= now else now
        is_undone = run.state == "running"
    elif said.kind == "saves_failing" and is_alive and _has_saved_since(run, said.since):
        is_undone = True
    elif said.kind == "loss_not_finite":
        is_undone = is_alive and bool(run.loss_finite)
    elif said.kind == "unreachable":
        is_undone = not watched.unreachable
    after = "" if said.since is None or at - said.since < 1.0 else f" after {duration(at - said.since)}"
    if is_undone:
        return f"{WORDINGS[said.kind].again}{after}", at
    why = ", as the run has ended" if run.state in (*_OVER, "lost", "failed") else ""
    if said.kind == "saves_failing" and not why:  # a new session of it may fail likewise
        why = ", as its program has ended"
    return f"over{after}{why}. It was: {said.text}", at


def _has_saved_since(run: Run, since: float | None) -> bool:
    saved = (item.at for item in run.checkpoints if item.ok and item.at is not None)
    return any(at - (run.clock_skew_secs or 0.0) > (since or 0.0) for at in saved)


def restarted_text(started: Started) -> str:
    """Return how the run had ended, and what its restart cost."""
    if started.end is not None:
        return started.end.text
    step = None if started.session is None else started.session.restored_step
    where = "" if step is None else f" at step {step:,}"
    how = None if started.before is None else _PLANNED.get(started.before.outcome)
    return f"started again{where}{'' if how is None else f', after it was {how}'}"


def ended_text(watched: WatchedRun, now: float) -> str:
    """Return how a run has ended, after how long, and its goodput.

    Args:
        watched: the run; it was completed, or was stopped.
        now: the present wall time.
    """
    run, last = watched.run, newest_session(watched.run)
    what = "completed"
    if run.state == "stopped":
        by = "" if last is None or last.signal is None else f" by {last.signal}"
        step = "" if run.step is None else f" at step {run.step:,}"
        what = f"stopped{by}{step}"
    goodput = run.goodput
    after = f" after {duration(goodput.wall_secs)}" if goodput.wall_secs else ""
    ratio = "" if goodput.ratio is None else f", goodput {share(goodput.ratio)}"
    return f"{what}{after}{ratio}"
