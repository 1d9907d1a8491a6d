"""Lanes of the timeline: a run's service threads, and the other processes of its cluster, over time.

Where a lane has more than can be seen, ticks are left out and spans joined; the worst of their states counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor_core.events.telemetry import ThreadState, WorkerState
from supervisor_core.run.judge.run_json import as_json, plain
from supervisor_core.run.model.run import Run, RunState, ThreadTick, WorkerHistory

MAX_TICKS = 4_000
"""Of the threads of one name, all sessions taken together; failed ticks always come, and may go beyond it."""
MAX_SPANS = 4_000
"""Of the threads of one name, likewise; of all workers together, of whom those with most spans have theirs joined."""
_WORST_OF_THREADS: tuple[ThreadState, ...] = ("failed", "overdue", "stopped", "starting", "ticking", "idle")


_Row = list[Any]
"""A span as it is sent: since, until, state, what only threads or only workers have, error."""
_SINCE, _UNTIL, _STATE, _OWN, _AGAIN, _ERROR = 0, 1, 2, 3, 4, -1


def thread_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each session's threads, with the spans and ticks that touch a window of wall time."""
    tick_counts, span_counts = Counter[str](), Counter[str]()
    within = []
    for thread in run.threads:
        ticks = [tick for tick in thread.seen_ticks if tick.at >= since and not tick.at - (tick.secs or 0.0) > until]
        spans: list[_Row] = [
            [span.since, span.until, span.state, span.overdue_secs, span.error]
            for span in thread.spans
            if span.until >= since and span.since <= until
        ]
        tick_counts[thread.name] += len(ticks)
        span_counts[thread.name] += len(spans)
        within.append((thread, ticks, spans))
    lanes = []
    for thread, ticks, spans in within:
        kept = _thinned(ticks, MAX_TICKS / max(1, tick_counts[thread.name]))
        most = max(1.0, len(spans) * MAX_SPANS / max(1, span_counts[thread.name]))
        joined = _joined(spans, most, _WORST_OF_THREADS, _join_threads)
        lane = {
            "name": plain(thread.name),
            "session": plain(thread.session),
            "interval_secs": thread.interval_secs,
            "state": thread.state,
            "ticks": thread.ticks,
            "failures": thread.failures,
            "last_error": plain(thread.last_error),
            "thinned": len(kept) < len(ticks) or len(joined) < len(spans),
            "spans": [[*span[:_ERROR], plain(span[_ERROR])] for span in joined],
            "seen_ticks": [[tick.at, tick.secs, tick.ok] for tick in kept],
        }
        lanes.append(lane)
    return {"v": 1, "threads": lanes}


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


def _joined(
    spans: Sequence[_Row], most: float, worst: Sequence[str], join_own: Callable[[_Row, _Row], None]
) -> Sequence[_Row]:
    """Return about `most` spans: neighbours are joined until each is long enough, not over a gap of that length.

    Args:
        spans: in order; changed where they are joined.
        most: how many; at least 1.
        worst: all states, the worst first.
        join_own: adds to a span what only threads, or workers, have of the one after it.
    """
    if len(spans) <= most:
        return spans
    least_secs = (spans[-1][_UNTIL] - spans[0][_SINCE]) / most
    found: list[_Row] = []
    for span in spans:
        before = found[-1] if found else None
        if (
            before is None
            or before[_UNTIL] - before[_SINCE] >= least_secs
            or span[_SINCE] - before[_UNTIL] >= least_secs
        ):
            found.append(span)
            continue
        is_worse = worst.index(span[_STATE]) < worst.index(before[_STATE])
        worse, other = (span, before) if is_worse else (before, span)
        before[_STATE], before[_ERROR] = worse[_STATE], worse[_ERROR] or other[_ERROR]
        before[_UNTIL] = span[_UNTIL]
        join_own(before, span)
    return found


def _join_threads(before: _Row, span: _Row) -> None:
    before[_OWN] = max(before[_OWN], span[_OWN])


def _join_workers(before: _Row, span: _Row) -> None:
    before[_OWN] = span[_OWN] or before[_OWN]
    before[_AGAIN] = before[_AGAIN] or span[_AGAIN]


_DOWN: tuple[WorkerState, ...] = ("failed", "lost")
_TROUBLE: tuple[WorkerState, ...] = (*_DOWN, "stalled")
_SICK: Mapping[RunState, tuple[WorkerState, ...]] = {
    "running": _TROUBLE, "stalled": _TROUBLE, "lost": _DOWN, "failed": _DOWN,
}  # fmt: skip
"""States of a worker in trouble, by the state of its run. A worker that was down when its chief was lost or failed may
be the cause; the others are unknown then, and after a planned end they have ended with their run."""
_WORST_OF_WORKERS: tuple[WorkerState, ...] = ("failed", "lost", "stalled", "stopped", "waiting", "running")


def worker_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each worker, with the spans that touch a window of wall time."""
    within = [_within(worker, since, until) for worker in run.workers]
    level = _level([len(spans) for spans in within], MAX_SPANS)
    lanes = []
    for worker, spans in zip(run.workers, within, strict=True):
        joined = _joined(spans, level, _WORST_OF_WORKERS, _join_workers)
        lane = {
            **plain(as_json(worker)),
            "present": is_present(run, worker),
            "sick": is_sick(run, worker),
            "thinned": len(joined) < len(spans),
            "spans": [
                [_ms(began), _ms(ended), state, _ms(started_at), again, plain(error)]
                for began, ended, state, started_at, again, error in joined
            ],
        }
        lanes.append(lane)
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


def _ms(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


def _within(worker: WorkerHistory, since: float, until: float) -> list[_Row]:
    """Return the spans in a window; a worker's own are when its process began, and whether it is another process than
    that of the span before."""
    found: list[_Row] = []
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
    for position, count in enumerate(sorted(counts)):
        level = max(1, left // (len(counts) - position))
        if count > level:
            return level
        left -= count
    return most
