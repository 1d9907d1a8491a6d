"""Lanes of the timeline: a run's service threads, and the other processes of its cluster, over time.

Where a lane has more than can be seen, ticks are left out and spans joined; the worst of their states counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor_core.events.telemetry import ThreadState, WorkerState
from supervisor_core.run.model import Run, RunState, ThreadHistory, ThreadSpan, ThreadTick, WorkerHistory
from supervisor_core.run.run_json import as_json, plain

MAX_TICKS = 4_000
"""Of the threads of one name, all sessions taken together; failed ticks always come, and may go beyond it."""
MAX_SPANS = 4_000
"""Of the threads of one name, likewise; of all workers together, of whom those with most spans have theirs joined."""
_WORST: tuple[ThreadState, ...] = ("failed", "overdue", "stopped", "starting", "ticking", "idle")


def thread_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each session's threads, with the spans and ticks that touch a window of wall time."""
    ticks = [_ticks_within(thread, since, until) for thread in run.threads]
    spans = [[span for span in thread.spans if span.until >= since and span.since <= until] for thread in run.threads]
    tick_counts, span_counts = Counter[str](), Counter[str]()
    for thread, seen, lasting in zip(run.threads, ticks, spans, strict=True):
        tick_counts[thread.name] += len(seen)
        span_counts[thread.name] += len(lasting)
    lanes = []
    for thread, seen, lasting in zip(run.threads, ticks, spans, strict=True):
        kept = _thinned(seen, min(1.0, MAX_TICKS / max(1, tick_counts[thread.name])))
        joined = _joined_threads(lasting, min(1.0, MAX_SPANS / max(1, span_counts[thread.name])))
        lanes.append(_thread_lane(thread, kept, joined, len(kept) < len(seen) or len(joined) < len(lasting)))
    return {"v": 1, "threads": lanes}


def _ticks_within(thread: ThreadHistory, since: float, until: float) -> list[ThreadTick]:
    return [tick for tick in thread.seen_ticks if tick.at >= since and not tick.at - (tick.secs or 0.0) > until]


def _thread_lane(
    thread: ThreadHistory, ticks: Sequence[ThreadTick], spans: Sequence[ThreadSpan], thinned: bool
) -> dict[str, Any]:
    return {
        "name": plain(thread.name),
        "session": plain(thread.session),
        "interval_secs": thread.interval_secs,
        "state": thread.state,
        "ticks": thread.ticks,
        "failures": thread.failures,
        "last_error": plain(thread.last_error),
        "thinned": thinned,
        "spans": [[span.since, span.until, span.state, span.overdue_secs, plain(span.error)] for span in spans],
        "seen_ticks": [[tick.at, tick.secs, tick.ok] for tick in ticks],
    }


def _thinned(ticks: Sequence[ThreadTick], share: float) -> Sequence[ThreadTick]:
    """Return about a share of the ticks, in order: every one that failed, and evenly as many good ones as there is room
    for."""
    if share >= 1.0:
        return ticks
    failures = sum(not tick.ok for tick in ticks)
    good = len(ticks) - failures
    room = max(1, int(len(ticks) * share) - failures)
    kept, seen = [], 0
    for tick in ticks:
        if not tick.ok:
            kept.append(tick)
            continue
        if seen * room // good != (seen - 1) * room // good:  # the first of each of `room` equal parts
            kept.append(tick)
        seen += 1
    return kept


def _joined_threads(spans: Sequence[ThreadSpan], share: float) -> Sequence[ThreadSpan]:
    """Return about a share of the spans: neighbours are joined until each is as long as that takes."""
    if share >= 1.0:
        return spans
    least_secs = (spans[-1].until - spans[0].since) / max(1.0, len(spans) * share)
    found: list[ThreadSpan] = []
    for span in spans:
        before = found[-1] if found else None
        if before is None or before.until - before.since >= least_secs:
            found.append(span)
            continue
        found[-1] = ThreadSpan(
            state=min(before.state, span.state, key=_WORST.index),
            since=before.since,
            until=span.until,
            overdue_secs=max(before.overdue_secs, span.overdue_secs),
            error=span.error or before.error,
        )
    return found


_DOWN: tuple[WorkerState, ...] = ("failed", "lost")
_TROUBLE: tuple[WorkerState, ...] = (*_DOWN, "stalled")
_SICK: Mapping[RunState, tuple[WorkerState, ...]] = {
    "running": _TROUBLE, "stalled": _TROUBLE, "lost": _DOWN, "failed": _DOWN,
}  # fmt: skip
"""States of a worker in trouble, by the state of its run. A worker that was down when its chief was lost or failed may
be the cause; the others are unknown then, and after a planned end they have ended with their run."""
_RANK = {state: rank for rank, state in enumerate(("failed", "lost", "stalled", "stopped", "waiting", "running"))}
"""The worst first."""

_Span = list[Any]
"""Since, until, state, when the process began, whether it begins with another process than the one before, error."""
_SINCE, _UNTIL, _STATE, _STARTED, _AGAIN, _ERROR = range(6)


def worker_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each worker, with the spans that touch a window of wall time."""
    spans = [_within(worker, since, until) for worker in run.workers]
    level = _level([len(lasting) for lasting in spans], MAX_SPANS)
    lanes = []
    for worker, lasting in zip(run.workers, spans, strict=True):
        joined = _joined_workers(lasting, level)
        lanes.append(_worker_lane(run, worker, joined, len(joined) < len(lasting)))
    return {"v": 1, "workers": lanes}


def is_present(run: Run, worker: WorkerHistory) -> bool:
    """Return whether the run's newest session still reports a worker; one of earlier sessions is history."""
    if not run.sessions or worker.session != run.sessions[-1].id:
        return False
    ended_at = run.sessions[-1].ended_at
    return ended_at is None or (bool(worker.spans) and worker.spans[-1].until >= ended_at)


def is_sick(run: Run, worker: WorkerHistory) -> bool:
    """Return whether a worker is in trouble now."""
    return worker.state in _SICK.get(run.state, ()) and is_present(run, worker)


def _worker_lane(run: Run, worker: WorkerHistory, spans: Sequence[_Span], thinned: bool) -> dict[str, Any]:
    return {
        **plain(as_json(worker)),
        "present": is_present(run, worker),
        "sick": is_sick(run, worker),
        "thinned": thinned,
        "spans": [[_ms(span[0]), _ms(span[1]), span[2], _ms(span[3]), span[4], plain(span[5])] for span in spans],
    }


def _ms(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


def _within(worker: WorkerHistory, since: float, until: float) -> list[_Span]:
    found: list[_Span] = []
    process = None
    for span in worker.spans:
        started_at = span.started_at
        again = process is not None and started_at is not None and started_at != process
        process = process if started_at is None else started_at
        if span.until >= since and span.since <= until:
            found.append([span.since, span.until, span.state, started_at, again, span.error])
    return found


def _level(counts: Sequence[int], most: int) -> int:
    """Return how many spans each worker may have, so that there are about `most` in all: who has few keeps them."""
    left = most
    for place, count in enumerate(sorted(counts)):
        level = max(1, left // (len(counts) - place))
        if count > level:
            return level
        left -= count
    return most


def _joined_workers(spans: Sequence[_Span], most: int) -> Sequence[_Span]:
    """Return about ``most`` spans: neighbours are joined until each is long enough, not over a gap of that length."""
    if len(spans) <= most:
        return spans
    least_secs = (spans[-1][_UNTIL] - spans[0][_SINCE]) / most
    found: list[_Span] = []
    for span in spans:
        before = found[-1] if found else None
        if (
            before is None
            or before[_UNTIL] - before[_SINCE] >= least_secs
            or span[_SINCE] - before[_UNTIL] >= least_secs
        ):
            found.append(span)
            continue
        worse, other = (span, before) if _RANK[span[_STATE]] < _RANK[before[_STATE]] else (before, span)
        error = worse[_ERROR] or other[_ERROR]
        before[_STATE], before[_ERROR] = worse[_STATE], error
        before[_UNTIL] = span[_UNTIL]
        before[_STARTED] = span[_STARTED] or before[_STARTED]
        before[_AGAIN] = before[_AGAIN] or span[_AGAIN]
    return found
