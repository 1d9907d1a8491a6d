"""Service threads and other processes of the cluster, as the heartbeats of a session report them.

`ThreadFold` and `WorkerFold` turn the reports of one session into spans of states; `merged_history` joins the spans of
a worker over the run's chiefs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, TypeVar

from supervisor_core.events.record_fields import replaced, values_of
from supervisor_core.events.telemetry import ThreadStatus, WorkerStatus
from supervisor_core.run.fold.bounds import with_newest
from supervisor_core.run.model.run import ThreadHistory, ThreadSpan, ThreadTick, WorkerHistory, WorkerSpan

_DIGITS = re.compile(r"([0-9]+)")


_Span = TypeVar("_Span", ThreadSpan, WorkerSpan)


class _Spans(Generic[_Span]):
    """Spans in order, of which the last is not over.

    Args:
        kept: how many of the newest that are over are kept; None: all.
    """

    __slots__ = ("_kept", "items")

    def __init__(self, kept: int | None) -> None:
        self._kept = kept
        self.items: list[_Span] = []

    @property
    def until(self) -> float:
        return self.items[-1].until if self.items else 0.0

    def add(self, span: _Span, *, is_same: bool) -> None:
        """Add a span, or let it continue the last one."""
        last = self.items[-1] if self.items else None
        if last is None:
            self.items.append(span)
        elif is_same:
            self.items[-1] = replaced(span, since=last.since, until=max(last.until, span.until))
        else:
            self.items[-1] = replaced(last, until=max(span.since, last.since))
            self.items.append(replaced(span, since=max(span.since, last.until), until=max(span.until, last.until)))
            if self._kept is not None:
                del self.items[: -self._kept - 1]

    def ended(self, until: float) -> tuple[_Span, ...]:
        """Return the spans up to a time."""
        return tuple([*self.items[:-1], replaced(self.items[-1], until=max(until, self.until))])


class ThreadFold:
    """Collects the heartbeats' reports of one thread.

    Args:
        name: the thread's.
        kept_ticks: see `RunFold`.
    """

    __slots__ = ("_kept", "_last", "_spans", "_ticks", "name")

    def __init__(self, name: str, kept_ticks: int | None = None) -> None:
        self.name = name
        self._kept = kept_ticks
        self._spans: _Spans[ThreadSpan] = _Spans(kept_ticks)
        self._ticks: Sequence[ThreadTick] = ()
        self._last: ThreadStatus | None = None

    def beat(self, at: float, now: ThreadStatus) -> None:
        """Add what the heartbeat of wall time ``at`` says."""
        at = max(at, self._spans.until)
        before, self._last = self._last, now
        has_failed = now.state == "failed" or now.failures > (0 if before is None else before.failures)
        error = now.last_error if has_failed else None
        self._add(ThreadSpan(state=now.state, since=at, until=at, overdue_secs=now.overdue_secs, error=error))
        if now.last_tick_at is not None and (before is None or now.last_tick_at != before.last_tick_at):
            # A failure is recorded just before the end of its tick.
            begun_at = now.last_tick_at - (now.last_tick_secs or 0.0) - 1e-3
            ok = now.last_failure_at is None or not begun_at <= now.last_failure_at <= now.last_tick_at
            tick = ThreadTick(at=now.last_tick_at, secs=now.last_tick_secs, ok=ok)
            self._ticks = with_newest(self._ticks, (tick,), self._kept)

    def _add(self, span: ThreadSpan) -> None:
        last = self._spans.items[-1] if self._spans.items else None
        is_same = last is not None and last.state == span.state
        if is_same and last is not None:
            overdue_secs = max(last.overdue_secs, span.overdue_secs)
            span = replaced(span, overdue_secs=overdue_secs, error=span.error or last.error)
        self._spans.add(span, is_same=is_same)

    def absorb(self, later: ThreadFold) -> None:
        """Append what a later file of the same session holds."""
        for span in later._spans.items:
            self._add(span)
        known = None if self._last is None else self._last.last_tick_at
        self._ticks = with_newest(self._ticks, [tick for tick in later._ticks if tick.at != known], self._kept)
        self._last = later._last or self._last

    def history(self, session: str, until: float) -> ThreadHistory | None:
        """Return the thread's history up to a time; None before the first entry."""
        if self._last is None:
            return None
        spans = self._spans.ended(until)
        return ThreadHistory(**values_of(self._last), session=session, spans=spans, seen_ticks=tuple(self._ticks))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker as one chief saw it."""

    history: WorkerHistory
    starts: frozenset[float]
    """Start times of its processes."""


class WorkerFold:
    """Collects the heartbeats' reports of one session on one worker.

    Args:
        name: the worker's.
        kept_spans: how many of its newest spans are kept; None: all.
    """

    __slots__ = ("_last", "_spans", "_starts", "name")

    def __init__(self, name: str, kept_spans: int | None = None) -> None:
        self.name = name
        self._spans: _Spans[WorkerSpan] = _Spans(kept_spans)
        self._starts: set[float] = set()
        self._last: WorkerStatus | None = None

    def beat(self, at: float, now: WorkerStatus) -> None:
        """Add what the heartbeat of wall time ``at`` says."""
        at = max(at, self._spans.until)
        self._add(WorkerSpan(state=now.state, since=at, until=at, started_at=now.started_at, error=now.error))
        self._last = now

    def _add(self, span: WorkerSpan) -> None:
        """Begin another span, unless state and process are unchanged."""
        last, is_same = self._spans.items[-1] if self._spans.items else None, False
        if span.started_at is not None:
            self._starts.add(span.started_at)
        if last is not None:
            is_same = last.state == span.state and (
                None in (span.started_at, last.started_at) or span.started_at == last.started_at
            )
            started_at = last.started_at if span.started_at is None else span.started_at
            span = replaced(span, started_at=started_at, error=span.error or (last.error if is_same else None))
        self._spans.add(span, is_same=is_same)

    def absorb(self, later: WorkerFold) -> None:
        """Append what a later file of the same session holds."""
        for span in later._spans.items:
            self._add(span)
        self._starts |= later._starts
        self._last = later._last or self._last

    def report(self, session: str, reported_at: float | None, until: float) -> WorkerReport | None:
        """Return the worker as the session saw it; None before the first entry.

        Args:
            session: the session's id.
            reported_at: when it last reported its workers; after a report without this one its state is unknown.
            until: when the session ended, or was last seen.
        """
        if self._last is None:
            return None
        is_in_last = reported_at is None or self._spans.until >= reported_at
        spans = self._spans.ended(until if is_in_last else 0.0)
        starts = max(1, len(self._starts))
        history = WorkerHistory(**values_of(self._last), spans=spans, starts=starts, session=session)
        return WorkerReport(history, frozenset(self._starts))


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
