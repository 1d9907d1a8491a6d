"""Service threads over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from supervisor_core.run.model import Run, ThreadHistory, ThreadSpan, ThreadTick
from supervisor_core.run.plain import plain
from supervisor_core.run.status import ThreadState

MAX_TICKS = 4_000
"""Of the threads of one name, all sessions taken together; failed ticks always come, and may go beyond it."""
MAX_SPANS = 4_000
"""Likewise; beyond it, spans too short to be seen are joined, and the worst of their states counts."""
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
        joined = _joined(lasting, min(1.0, MAX_SPANS / max(1, span_counts[thread.name])))
        lanes.append(plain(_lane(thread, kept, joined, len(kept) < len(seen) or len(joined) < len(lasting))))
    return {"v": 1, "threads": lanes}


def _ticks_within(thread: ThreadHistory, since: float, until: float) -> list[ThreadTick]:
    return [tick for tick in thread.seen_ticks if tick.at >= since and not tick.at - (tick.secs or 0.0) > until]


def _lane(
    thread: ThreadHistory, ticks: Sequence[ThreadTick], spans: Sequence[ThreadSpan], thinned: bool
) -> dict[str, Any]:
    return {
        "name": thread.name,
        "session": thread.session,
        "interval_secs": thread.interval_secs,
        "state": thread.state,
        "ticks": thread.ticks,
        "failures": thread.failures,
        "last_error": thread.last_error,
        "thinned": thinned,
        "spans": [[span.since, span.until, span.state, span.overdue_secs, span.error] for span in spans],
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


def _joined(spans: Sequence[ThreadSpan], share: float) -> Sequence[ThreadSpan]:
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
