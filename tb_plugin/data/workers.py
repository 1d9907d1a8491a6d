"""The other processes of the cluster over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervisor_core.run.model import Run, RunState, WorkerHistory
from supervisor_core.run.plain import plain, worker_json
from supervisor_core.run.status import WorkerState

_DOWN: tuple[WorkerState, ...] = ("failed", "lost")
_TROUBLE: tuple[WorkerState, ...] = (*_DOWN, "stalled")
_SICK: Mapping[RunState, tuple[WorkerState, ...]] = {
    "running": _TROUBLE, "stalled": _TROUBLE, "lost": _DOWN, "failed": _DOWN,
}  # fmt: skip
"""States in which somebody should look at a worker. What was down when its chief was lost or failed is as likely why;
of the others nothing is known any more then, and after a planned end they are over with their run."""
MAX_SPANS = 4_000
"""Of all workers together; beyond it, those of the workers with most of them are joined where they are too short to be
seen, and the worst of their states counts."""
_RANK = {state: rank for rank, state in enumerate(("failed", "lost", "stalled", "stopped", "waiting", "running"))}
"""The worst first."""

_Span = list[Any]
"""Since, until, state, when the process began, whether it begins with another process than the one before, error."""
_SINCE, _UNTIL, _STATE, _STARTED, _AGAIN, _ERROR = range(6)


def worker_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each worker, with the spans that touch a window of wall time."""
    spans = [_told(worker, since, until) for worker in run.workers]
    level = _level([len(lasting) for lasting in spans], MAX_SPANS)
    lanes = []
    for worker, lasting in zip(run.workers, spans, strict=True):
        joined = _joined(lasting, level)
        lanes.append(plain(_lane(run, worker, joined, len(joined) < len(lasting))))
    return {"v": 1, "workers": lanes}


def is_present(run: Run, worker: WorkerHistory) -> bool:
    """Return whether the run's newest session tells of a worker still: one that only earlier ones knew, or that it does
    not name any more, is history."""
    if not run.sessions or worker.session != run.sessions[-1].id:
        return False
    ended_at = run.sessions[-1].ended_at
    return ended_at is None or (bool(worker.spans) and worker.spans[-1].until >= ended_at)


def is_sick(run: Run, worker: WorkerHistory) -> bool:
    """Return whether somebody should look at a worker now."""
    return worker.state in _SICK.get(run.state, ()) and is_present(run, worker)


def _lane(run: Run, worker: WorkerHistory, spans: Sequence[_Span], thinned: bool) -> dict[str, Any]:
    return {
        **worker_json(worker),
        "present": is_present(run, worker),
        "sick": is_sick(run, worker),
        "thinned": thinned,
        "spans": [[_ms(span[0]), _ms(span[1]), span[2], _ms(span[3]), *span[4:]] for span in spans],
    }


def _ms(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


def _told(worker: WorkerHistory, since: float, until: float) -> list[_Span]:
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


def _joined(spans: Sequence[_Span], most: int) -> Sequence[_Span]:
    """Return about so many spans: neighbours are joined until each is as long as that takes, but not over a gap of that
    length, in which nothing is known."""
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
