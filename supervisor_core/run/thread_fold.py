"""`ThreadFold`: one service thread of one session, heartbeat by heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from supervisor_core.run.bounds import keep_newest
from supervisor_core.run.fields import number, text, whole
from supervisor_core.run.model import ThreadHistory, ThreadSpan, ThreadTick
from supervisor_core.run.status import ThreadState

_STATES = frozenset(get_args(ThreadState))


class _Report(NamedTuple):
    """A heartbeat's fields of a thread, without its state; small, since a run has very many."""

    interval_secs: float | None = None
    ticks: int = 0
    failures: int = 0
    last_error: str | None = None
    last_tick_at: float | None = None
    last_tick_secs: float | None = None
    overdue_secs: float = 0.0
    last_failure_at: float | None = None


_NOTHING = _Report()


class ThreadFold:
    """Collects the heartbeats' reports of one thread; finished spans and ticks are only appended to.

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

    def beat(self, at: float, entry: Mapping[str, Any]) -> None:
        """Add the entry of the heartbeat of wall time ``at``."""
        state = entry.get("state")
        if text(state) not in _STATES:
            return
        at = max(at, self._until)
        if state != self._state:
            if self._state is not None:
                self._spans.append(self._span(at))
                keep_newest(self._spans, self._kept)
            self._state, self._since, self._overdue, self._error = state, at, 0.0, None
        self._until = at
        before, self._last = self._last, _report(entry)
        now = self._last
        self._overdue = max(self._overdue, now.overdue_secs)
        if state == "failed" or now.failures > before.failures:
            self._error = now.last_error
        if now.last_tick_at is not None and now.last_tick_at != before.last_tick_at:
            # A failure is recorded just before the end of its tick.
            begun_at = now.last_tick_at - (now.last_tick_secs or 0.0) - 1e-3
            ok = now.last_failure_at is None or not begun_at <= now.last_failure_at <= now.last_tick_at
            self._ticks.append(ThreadTick(at=now.last_tick_at, secs=now.last_tick_secs, ok=ok))
            keep_newest(self._ticks, self._kept)

    def absorb(self, later: ThreadFold) -> None:
        """Append what a later file of the same session holds."""
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
        """Return the thread's history up to a time; None before the first entry."""
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


def _report(entry: Mapping[str, Any]) -> _Report:
    return _Report(
        interval_secs=number(entry.get("interval_secs")),
        ticks=whole(entry.get("ticks")) or 0,
        failures=whole(entry.get("failures")) or 0,
        last_error=text(entry.get("last_error")),
        last_tick_at=number(entry.get("last_tick_at")),
        last_tick_secs=number(entry.get("last_tick_secs")),
        overdue_secs=number(entry.get("overdue_secs")) or 0.0,
        last_failure_at=number(entry.get("last_failure_at")),
    )
