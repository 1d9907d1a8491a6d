"""`ThreadFold`: one service thread of one session, heartbeat by heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from supervisor_core.run.bounds import keep_newest
from supervisor_core.run.fields import number, text, whole
from supervisor_core.run.model import ThreadHistory, ThreadSpan, ThreadTick
from supervisor_core.run.status import ThreadState

_STATES = frozenset(get_args(ThreadState))


class _Told(NamedTuple):
    """What a heartbeat tells of a thread, but for its state; small, since a run has very many."""

    interval_secs: float | None = None
    ticks: int = 0
    failures: int = 0
    last_error: str | None = None
    last_tick_at: float | None = None
    last_tick_secs: float | None = None
    overdue_secs: float = 0.0
    last_failure_at: float | None = None


_NOTHING = _Told()


class ThreadFold:
    """Gathers what heartbeats tell of one thread; finished spans and seen ticks are only ever added to.

    Args:
        name: the thread's.
        kept_ticks: see `RunFold`.
    """

    __slots__ = ("_error", "_kept", "_last", "_overdue", "_since", "_spans", "_state", "_ticks", "_until", "name")

    def __init__(self, name: str, kept_ticks: int | None = None) -> None:
        self.name = name
        self._kept = kept_ticks
        self._spans: list[ThreadSpan] = []
        self._ticks: list[ThreadTick] = []
        self._last = _NOTHING
        self._state: ThreadState | None = None
        self._since = self._until = self._overdue = 0.0
        self._error: str | None = None

    def beat(self, at: float, told: Mapping[str, Any]) -> None:
        """Take in what the heartbeat of wall time ``at`` tells of the thread."""
        state = told.get("state")
        if text(state) not in _STATES:
            return
        at = max(at, self._until)
        if state != self._state:
            if self._state is not None:
                self._spans.append(self._span(at))
                keep_newest(self._spans, self._kept)
            self._state, self._since, self._overdue, self._error = state, at, 0.0, None
        self._until = at
        before, self._last = self._last, _told(told)
        now = self._last
        self._overdue = max(self._overdue, now.overdue_secs)
        if state == "failed" or now.failures > before.failures:
            self._error = now.last_error
        if now.last_tick_at is not None and now.last_tick_at != before.last_tick_at:
            # A failure is noted just before the end of the tick that it ended.
            begun_at = now.last_tick_at - (now.last_tick_secs or 0.0) - 1e-3
            ok = now.last_failure_at is None or not begun_at <= now.last_failure_at <= now.last_tick_at
            self._ticks.append(ThreadTick(at=now.last_tick_at, secs=now.last_tick_secs, ok=ok))
            keep_newest(self._ticks, self._kept)

    def absorb(self, later: ThreadFold) -> None:
        """Go on with what a later file of the same session told."""
        spans = later._spans if later._state is None else [*later._spans, later._span(later._until)]
        for span in spans:
            if span.state == self._state:
                self._overdue = max(self._overdue, span.overdue_secs)
                self._error = span.error or self._error
            else:
                if self._state is not None:
                    self._spans.append(self._span(max(span.since, self._since)))
                self._state, self._since = span.state, max(span.since, self._until)
                self._overdue, self._error = span.overdue_secs, span.error
            self._until = max(self._until, span.until)
        known = self._last.last_tick_at
        self._ticks.extend(tick for tick in later._ticks if tick.at != known)
        keep_newest(self._ticks, self._kept)
        keep_newest(self._spans, self._kept)
        self._last = self._last if later._state is None else later._last

    def history(self, session: str, until: float) -> ThreadHistory | None:
        """Return the thread's history up to a time; None before anything was told."""
        if self._state is None:
            return None
        return ThreadHistory(
            name=self.name,
            session=session,
            state=self._state,
            spans=(*self._spans, self._span(max(until, self._until))),
            seen_ticks=tuple(self._ticks),
            **self._last._asdict(),
        )

    def _span(self, until: float) -> ThreadSpan:
        assert self._state is not None
        return ThreadSpan(
            state=self._state, since=self._since, until=until, overdue_secs=self._overdue, error=self._error
        )


def _told(told: Mapping[str, Any]) -> _Told:
    return _Told(
        interval_secs=number(told.get("interval_secs")),
        ticks=whole(told.get("ticks")) or 0,
        failures=whole(told.get("failures")) or 0,
        last_error=text(told.get("last_error")),
        last_tick_at=number(told.get("last_tick_at")),
        last_tick_secs=number(told.get("last_tick_secs")),
        overdue_secs=number(told.get("overdue_secs")) or 0.0,
        last_failure_at=number(told.get("last_failure_at")),
    )
