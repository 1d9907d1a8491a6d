"""Service threads and other processes of the cluster, as the heartbeats of a session report them.

`ThreadFold` and `WorkerFold` turn the reports of one session into spans of states; `merged_history` joins the spans of
a worker over the run's chiefs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import ThreadState, ThreadStatus, WorkerState, WorkerStatus
from supervisor_core.run.fold.bounds import with_newest
from supervisor_core.run.model.run import ThreadHistory, ThreadSpan, ThreadTick, WorkerHistory, WorkerSpan

_DIGITS = re.compile(r"([0-9]+)")


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
        self._spans: Sequence[ThreadSpan] = ()
        self._ticks: Sequence[ThreadTick] = ()
        self._last: ThreadStatus | None = None
        self._state: ThreadState | None = None
        self._since = self._until = self._overdue = 0.0
        self._error: str | None = None

    def beat(self, at: float, now: ThreadStatus) -> None:
        """Add what the heartbeat of wall time ``at`` says."""
        at = max(at, self._until)
        if now.state != self._state:
            self._enter(now.state, at)
        self._until = at
        before, self._last = self._last, now
        self._overdue = max(self._overdue, now.overdue_secs)
        if now.state == "failed" or now.failures > (0 if before is None else before.failures):
            self._error = now.last_error
        if now.last_tick_at is not None and (before is None or now.last_tick_at != before.last_tick_at):
            # A failure is recorded just before the end of its tick.
            begun_at = now.last_tick_at - (now.last_tick_secs or 0.0) - 1e-3
            ok = now.last_failure_at is None or not begun_at <= now.last_failure_at <= now.last_tick_at
            tick = ThreadTick(at=now.last_tick_at, secs=now.last_tick_secs, ok=ok)
            self._ticks = with_newest(self._ticks, (tick,), self._kept)

    def _enter(self, state: ThreadState, at: float) -> None:
        if self._state is not None:
            self._spans = with_newest(self._spans, (self._span(at),), self._kept)
        self._state, self._since, self._overdue, self._error = state, at, 0.0, None

    def absorb(self, later: ThreadFold) -> None:
        """Append what a later file of the same session holds."""
        spans = later._spans if later._state is None else [*later._spans, later._span(later._until)]
        for span in spans:
            if span.state == self._state:
                self._overdue = max(self._overdue, span.overdue_secs)
                self._error = span.error or self._error
            else:
                if self._state is not None:
                    self._spans = with_newest(self._spans, (self._span(max(span.since, self._since)),), self._kept)
                self._state, self._since = span.state, max(span.since, self._until)
                self._overdue, self._error = span.overdue_secs, span.error
            self._until = max(self._until, span.until)
        known = None if self._last is None else self._last.last_tick_at
        self._ticks = with_newest(self._ticks, [tick for tick in later._ticks if tick.at != known], self._kept)
        self._last = self._last if later._state is None else later._last

    def history(self, session: str, until: float) -> ThreadHistory | None:
        """Return the thread's history up to a time; None before the first entry."""
        if self._last is None:
            return None
        return ThreadHistory(
            **values_of(self._last),
            session=session,
            spans=(*self._spans, self._span(max(until, self._until))),
            seen_ticks=tuple(self._ticks),
        )

    def _span(self, until: float) -> ThreadSpan:
        assert self._state is not None
        return ThreadSpan(
            state=self._state, since=self._since, until=until, overdue_secs=self._overdue, error=self._error
        )


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker as one chief saw it."""

    history: WorkerHistory
    starts: frozenset[float]
    """Start times of its processes."""


class WorkerFold:
    """Collects the heartbeats' reports of one session on one worker; finished spans are only appended to.

    Args:
        name: the worker's.
        kept_spans: how many of its newest spans are kept; None: all.
    """

    __slots__ = ("_error", "_kept", "_last", "_since", "_spans", "_started_at", "_starts", "_state", "_until", "name")

    def __init__(self, name: str, kept_spans: int | None = None) -> None:
        self.name = name
        self._kept = kept_spans
        self._spans: Sequence[WorkerSpan] = ()
        self._starts: set[float] = set()
        self._last: WorkerStatus | None = None
        self._state: WorkerState | None = None
        self._since = self._until = 0.0
        self._started_at: float | None = None
        self._error: str | None = None

    def beat(self, at: float, now: WorkerStatus) -> None:
        """Add what the heartbeat of wall time ``at`` says."""
        at = max(at, self._until)
        self._enter(now.state, now.started_at, at)
        self._until = at
        self._last = now
        self._error = now.error or self._error

    def absorb(self, later: WorkerFold) -> None:
        """Append what a later file of the same session holds."""
        for span in later._spans if later._state is None else [*later._spans, later._span(later._until)]:
            self._enter(span.state, span.started_at, max(span.since, self._until))
            self._until = max(self._until, span.until)
            self._error = span.error or self._error
        self._starts |= later._starts
        self._last = self._last if later._state is None else later._last

    def report(self, session: str, reported_at: float | None, until: float) -> WorkerReport | None:
        """Return the worker as the session saw it; None before the first entry.

        Args:
            session: the session's id.
            reported_at: when it last reported its workers; after a report without this one its state is unknown.
            until: when the session ended, or was last seen.
        """
        if self._last is None:
            return None
        is_in_last = reported_at is None or self._until >= reported_at
        history = WorkerHistory(
            **values_of(self._last),
            spans=(*self._spans, self._span(max(until, self._until) if is_in_last else self._until)),
            starts=max(1, len(self._starts)),
            session=session,
        )
        return WorkerReport(history, frozenset(self._starts))

    def _enter(self, state: WorkerState, started_at: float | None, at: float) -> None:
        """Begin another span, unless state and process are unchanged."""
        is_same = started_at is None or self._started_at is None or started_at == self._started_at
        if state != self._state or not is_same:
            if self._state is not None:
                self._spans = with_newest(self._spans, (self._span(at),), self._kept)
            self._state, self._since, self._error = state, at, None
        if started_at is not None:
            self._started_at = started_at
            self._starts.add(started_at)

    def _span(self, until: float) -> WorkerSpan:
        assert self._state is not None
        return WorkerSpan(
            state=self._state, since=self._since, until=until, started_at=self._started_at, error=self._error
        )


def merged_history(reports: Sequence[WorkerReport], kept_spans: int | None) -> WorkerHistory:
    """Return the history of a worker over the run's chiefs.

    Args:
        reports: one per chief, in order; at least one.
        kept_spans: how many of its newest spans are kept; None: all.
    """
    if len(reports) == 1:
        return reports[0].history
    newest = reports if kept_spans is None else reports[-max(1, kept_spans) :]  # each has at least one
    spans = [span for each in newest for span in each.history.spans]
    if any(after.since < before.since for before, after in pairwise(spans)):  # the chiefs' clocks disagree
        spans.sort(key=lambda span: span.since)
    if kept_spans is not None:
        del spans[: -max(1, kept_spans)]
    starts = set[float]().union(*(each.starts for each in reports))
    return replace(reports[-1].history, spans=tuple(spans), starts=max(1, len(starts)))


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key for the natural order of names: ``worker:2`` before ``worker:10``."""
    parts = _DIGITS.split(name)
    digits = [part.lstrip("0") if index % 2 else part for index, part in enumerate(parts)]
    return [(len(part) if index % 2 else 0, part) for index, part in enumerate(digits)], name
