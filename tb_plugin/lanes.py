"""Lanes of the timeline: a run's service threads, and the other processes of its cluster, over time.

Where a lane has more than can be seen, good ticks are left out, and spans in which all was well are joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from supervisor_core.events.telemetry import WorkerState
from supervisor_core.run.judge.run_json import as_json, plain
from supervisor_core.run.model.run import Run, RunState, ThreadTick, WorkerHistory

MAX_TICKS = 4_000
"""Of the threads of one name, all sessions taken together; failed ticks always come, and may go beyond it."""
MAX_SPANS = 4_000
"""Of the threads of one name, likewise; of all workers together."""

_Row = list[Any]
"""A span as it is sent: since, until, state, what only threads or only workers have, error."""
_SINCE, _UNTIL, _STATE, _AGAIN = 0, 1, 2, 4
"""Of a thread the fourth is the error: it has none where all is well."""


def thread_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each session's threads, with the spans and ticks that touch a window of wall time."""
    counts = Counter(thread.name for thread in run.threads)
    lanes = []
    for thread in run.threads:
        ticks = [tick for tick in thread.seen_ticks if tick.at >= since and not tick.at - (tick.secs or 0.0) > until]
        spans: list[_Row] = [
            [span.since, span.until, span.state, span.overdue_secs, plain(span.error)]
            for span in thread.spans
            if span.until >= since and span.since <= until
        ]
        kept = _thinned(ticks, max(1, MAX_TICKS // counts[thread.name]))
        joined = _joined(spans, max(1, MAX_SPANS // counts[thread.name]), ("starting", "idle", "ticking"))
        lane = {
            "name": plain(thread.name),
            "session": plain(thread.session),
            "interval_secs": thread.interval_secs,
            "state": thread.state,
            "ticks": thread.ticks,
            "failures": thread.failures,
            "last_error": plain(thread.last_error),
            "thinned": len(kept) < len(ticks) or len(joined) < len(spans),
            "spans": joined,
            "seen_ticks": [[tick.at, tick.secs, tick.ok] for tick in kept],
        }
        lanes.append(lane)
    return {"v": 1, "threads": lanes}


def _thinned(ticks: Sequence[ThreadTick], most: int) -> Sequence[ThreadTick]:
    """Return every tick that failed, and evenly as many good ones as there is room for, in order."""
    if len(ticks) <= most:
        return ticks
    good = sum(tick.ok for tick in ticks)
    every = max(1, -(-good // max(1, most - (len(ticks) - good))))
    kept, seen = [], 0
    for tick in ticks:
        if not tick.ok or seen % every == 0:
            kept.append(tick)
        seen += tick.ok
    return kept


def _joined(spans: Sequence[_Row], most: int, well: Collection[str]) -> Sequence[_Row]:
    """Return at most this number of spans, the newest: where there are more, neighbours in which all was well are one.

    Args:
        spans: in order; changed where they are joined.
        most: how many.
        well: the states in which all is well.
    """
    if len(spans) <= most:
        return spans
    found: list[_Row] = []
    for span in spans:
        before = found[-1] if found else None
        is_next = before is not None and before[_STATE] in well and before[_UNTIL] == span[_SINCE]
        if before is not None and is_next and span[_STATE] in well and span[_AGAIN] in (False, None):
            before[_UNTIL] = span[_UNTIL]
        else:
            found.append(span)
    return found[-most:]


_DOWN: tuple[WorkerState, ...] = ("failed", "lost")
_TROUBLE: tuple[WorkerState, ...] = (*_DOWN, "stalled")
_SICK: Mapping[RunState, tuple[WorkerState, ...]] = {
    "running": _TROUBLE, "stalled": _TROUBLE, "lost": _DOWN, "failed": _DOWN,
}  # fmt: skip
"""States of a worker in trouble, by the state of its run. A worker that was down when its chief was lost or failed may
be the cause; the others are unknown then, and after a planned end they have ended with their run."""


def worker_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each worker, with the spans that touch a window of wall time."""
    most = max(1, MAX_SPANS // max(1, len(run.workers)))
    lanes = []
    for worker in run.workers:
        spans = _within(worker, since, until)
        joined = _joined(spans, most, ("waiting", "running"))
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
