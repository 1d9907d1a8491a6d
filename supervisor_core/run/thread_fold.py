"""`ThreadFold`: one service thread of one session, heartbeat by heartbeat."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, get_args

from supervisor_core.run.model import ThreadHistory, ThreadSpan, ThreadTick
from supervisor_core.run.numbers import number, text, whole
from supervisor_core.run.status import ThreadState

_STATES = frozenset(get_args(ThreadState))


class ThreadFold:
    """Gathers what heartbeats tell of one thread; finished spans and seen ticks are only ever added to.

    Args:
        name: the thread's.
        kept_ticks: see `RunFold`.
    """

    __slots__ = ("_error", "_last", "_overdue", "_since", "_spans", "_state", "_ticks", "_until", "name")

    def __init__(self, name: str, kept_ticks: int | None = None) -> None:
        self.name = name
        self._spans: deque[ThreadSpan] = deque(maxlen=kept_ticks)
        self._ticks: deque[ThreadTick] = deque(maxlen=kept_ticks)
        self._last: Mapping[str, Any] = {}
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
            self._state, self._since, self._overdue, self._error = state, at, 0.0, None
        self._until = at
        self._overdue = max(self._overdue, number(told.get("overdue_secs")) or 0.0)
        if state == "failed" or (whole(told.get("failures")) or 0) > (whole(self._last.get("failures")) or 0):
            self._error = text(told.get("last_error"))
        ticked_at = number(told.get("last_tick_at"))
        if ticked_at is not None and ticked_at != self._last.get("last_tick_at"):
            failed_at = number(told.get("last_failure_at"))
            secs = number(told.get("last_tick_secs"))
            # A failure is noted just before the end of the tick that it ended.
            ok = failed_at is None or not ticked_at - (secs or 0.0) - 1e-3 <= failed_at <= ticked_at
            self._ticks.append(ThreadTick(at=ticked_at, secs=secs, ok=ok))
        self._last = told

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
        known = self._last.get("last_tick_at")
        self._ticks.extend(tick for tick in later._ticks if tick.at != known)
        self._last = later._last or self._last

    def history(self, session: str, until: float) -> ThreadHistory | None:
        """Return the thread's history up to a time; None before anything was told."""
        if self._state is None:
            return None
        told = self._last
        return ThreadHistory(
            name=self.name,
            session=session,
            interval_secs=number(told.get("interval_secs")),
            ticks=whole(told.get("ticks")) or 0,
            failures=whole(told.get("failures")) or 0,
            last_error=text(told.get("last_error")),
            state=self._state,
            spans=(*self._spans, self._span(max(until, self._until))),
            seen_ticks=tuple(self._ticks),
            last_tick_at=number(told.get("last_tick_at")),
            last_tick_secs=number(told.get("last_tick_secs")),
            overdue_secs=number(told.get("overdue_secs")) or 0.0,
            last_failure_at=number(told.get("last_failure_at")),
        )

    def _span(self, until: float) -> ThreadSpan:
        assert self._state is not None
        return ThreadSpan(
            state=self._state, since=self._since, until=until, overdue_secs=self._overdue, error=self._error
        )
