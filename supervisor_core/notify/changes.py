"""`Changes`: what has changed in some runs from one look to the next, and is to be said, as events.

A finding is an event when it begins, once it has held for as long as the alert of its kind waits, and when it is over.
A restart is one, the end of a run, and what a program says with ``notify``. Nothing is concluded from a run that could
not be read, and a run that was started again before a finding had held for that long is a restart only.

Not said: what ended before the first look; a run that died more than a day ago (`Thresholds.forget_secs`, as for the
alerts); a copy of a run; clocks that differ; a run that is gone from the disk, unless it was alive.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from urllib.parse import quote

from supervisor_core.base.log import printable
from supervisor_core.notify import texts
from supervisor_core.notify.event import Event, Topic, What, event_id
from supervisor_core.notify.run_changes import (
    DAILY,
    MOMENTS,
    OF_READING,
    QUIET,
    Holding,
    KnownRun,
    Started,
    down_secs,
    end_of,
    held_since,
    hold_secs,
    instance_of,
    is_aged,
    may_resume,
    new_notices,
    newest_session,
    restart_keys,
    restarts_of,
    run_key,
    session_key,
)
from supervisor_core.run.fold.notices import notice_text
from supervisor_core.run.judge.finding import KINDS, Finding, Severity
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.run import LIVE, Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.storage.local import absolute

_LOG = logging.getLogger("supervisor_core")

_DEFAULTS = Thresholds()
_GONE, _GONE_SECS = "it is not there", 3600.0
"""Of a run that is gone from the disk: why it is unreachable; how long one that was not alive is remembered."""


class Changes:
    """Compares each look with those before it. Used by one thread at a time.

    Args:
        thresholds: from when on something is said, and for how long it must hold.
        runbook_base: address of the page of alerts; None: events have no `Event.runbook_url`.
        tab_url: address of TensorBoard; None: events have no `Event.tab_url`.
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
        since: float | None = None,
    ) -> None:
        self._limits = thresholds
        self._runbook_base, self._tab_url = runbook_base, tab_url
        self._since = since
        self._looked_at: float | None = None
        self._was_away = False
        """Whether there was no look for minutes: the watcher hung, or its machine slept, perhaps with the trainings."""
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
        self._was_away = self._looked_at is not None and now - self._looked_at > self._limits.behind_secs
        self._looked_at = now
        events: list[Event] = []
        self._follow_renamed(runs)
        for name, watched in runs.items():
            if name not in unread:
                events += self._judged(name, watched, now, is_last=is_last)
        self._unjudged &= runs.keys()
        for name in [name for name in self._known if name not in runs and name not in unread]:
            events += self._safely(name, self._missing(name, now)) or ()
        return sorted(events, key=lambda event: event.at)

    def _judged(self, name: str, watched: WatchedRun, now: float, *, is_last: bool) -> list[Event]:
        known = self._known.get(name)
        if known is not None and known.watched is watched and known.is_settled and known.gone_since is None:
            known.seen_at = now
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
        is_read = _is_read(watched)
        if known is None:
            known = self._known[name] = KnownRun(watched=watched, seen_at=now)
            if not is_read:
                known.restarts = restart_keys(watched.run)
                known.end = known.old_end = _key_of_end(watched)
            else:
                self._begin(known)
        before = newest_session(known.watched.run)
        known.watched, known.seen_at, known.gone_since = watched, now, None
        if is_read:
            yield from self._restarts(name, known, now, None if before is None else before.id)
            yield from self._ends(name, known, now, is_last=is_last)
            yield from self._notices(name, known, now)
        yield from self._findings(name, known, now, is_read=is_read, is_last=is_last)

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
                text=texts.restarted(started),
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
        if may_resume(watched.run) and not is_last and now - at < down_secs(self._limits):
            return
        known.end = key
        kind = watched.run.state
        text = texts.ended(watched, now)
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

    def _findings(
        self, name: str, known: KnownRun, now: float, *, is_read: bool, is_last: bool = False
    ) -> Iterator[Event]:
        """Yield which findings have held for long enough, and which are over."""
        watched, limits = known.watched, self._limits
        is_before = known.old_end is not None and known.old_end == _key_of_end(watched)
        found = {
            item.kind: item
            for item in (() if is_before else findings(watched, now, limits))
            if item.kind not in QUIET and (is_read or item.kind in OF_READING)
        }
        for kind, holding in list(known.holding.items()):
            item = found.get(kind)
            is_other = item is not None and _is_other(holding, item, known, now, limits)
            if (item is None or is_other) and (is_read or kind in OF_READING):
                del known.holding[kind]
                if holding.said is not None and kind not in MOMENTS:
                    yield self._over(name, known, holding, holding.said, now)
        for kind, item in found.items():
            held = known.holding.get(kind)
            if held is None:
                if is_aged(item):
                    continue
                instance = instance_of(item, watched, now, limits)
                if known.daily.get(kind) == instance:
                    continue
                held = known.holding[kind] = Holding(instance, held_since(item, watched.run, now))
            if held.said is None:
                if self._was_away and not is_last:
                    held.since = now
                if now - held.since >= hold_secs(item, watched.run, limits, is_last=is_last):
                    held.said = item
                    if kind in DAILY:
                        known.daily[kind] = held.instance
                    is_moment = kind in MOMENTS
                    text = item.sentence if is_moment else texts.begins(item, now)
                    yield self._finding(name, watched, held, item, now, "happened" if is_moment else "begins", text)

    def _over(self, name: str, known: KnownRun, holding: Holding, said: Finding, now: float) -> Event:
        text, at = texts.is_over(said, known.watched, now)
        return self._finding(name, known.watched, holding, replace(said, action=None), now, "is_over", text, at)

    def _finding(
        self,
        name: str,
        watched: WatchedRun,
        holding: Holding,
        item: Finding,
        now: float,
        what: What,
        text: str,
        at: float | None = None,
    ) -> Event:
        begun = item.since if item.since is not None and item.since <= now else min(holding.since, now)
        host = item.evidence.get("host")
        return self._event(
            name,
            watched,
            (*holding.instance, what),
            what=what,
            topic=item.severity,
            kind=item.kind,
            severity=item.severity,
            text=text,
            at=begun if at is None else at,
            session=newest_session(watched.run),
            host=host if isinstance(host, str) else None,
            step=_step_of(item),
            action=item.action,
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
            yield from self._findings(name, known, now, is_read=False)

    def _follow_renamed(self, runs: Mapping[str, WatchedRun]) -> None:
        """Go on with what is known of runs whose directories were renamed: the newest session is the same."""
        if not self._known:
            return
        new = [name for name, watched in runs.items() if name not in self._known and watched.copy_of is None]
        if not new:
            return
        gone = {run_key(known.watched): name for name, known in self._known.items() if name not in runs}
        for name in new if gone else ():
            before = gone.pop(run_key(runs[name]), None)
            if before is not None:
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
        return Event(
            id=event_id(*identity),
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
            runbook_url=None if base is None or alert is None else f"{base}#{alert.lower()}",
            tab_url=None if tab is None else f"{tab.rstrip('/')}/#supervisor&p.supervisor.s={address}",
        )


def _is_read(watched: WatchedRun) -> bool:
    """Return whether anything may be concluded from a run: its directory and its files could be read."""
    if watched.unreachable or any(file.unreadable for file in watched.files):
        return False
    return watched.problem is None or bool(watched.dropped)  # what is beyond a bound is a problem, and stays one


def _step_of(found: Finding | None) -> int | None:
    step = None if found is None else found.evidence.get("step")
    return step if isinstance(step, int) else None


def _key_of_end(watched: WatchedRun) -> str | None:
    end = end_of(watched)
    return None if end is None else end[0]


def _of_end(started: Started) -> Session | None:
    return started.before if started.before is not None else started.session


_LASTING = frozenset(("worker_lost", "worker_stuck", "thread_down"))
"""Kinds of which one finding may go on about other parts of the run."""


def _is_other(holding: Holding, item: Finding, known: KnownRun, now: float, limits: Thresholds) -> bool:
    """Return whether a finding is not the one that has held, but another one of its kind."""
    instance = instance_of(item, known.watched, now, limits)
    if instance == holding.instance:
        return False
    is_same_session = instance[0] == holding.instance[0]
    lasts = item.kind in _LASTING or item.since is None
    return not (is_same_session and lasts)
