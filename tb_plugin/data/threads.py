"""Service threads over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervisor_core.run.model import Run, ThreadHistory, ThreadTick
from supervisor_core.run.plain import plain

MAX_TICKS = 4_000
"""Of one thread in one answer; failed ones always come, and may go beyond it."""


def thread_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
    """Return each session's threads, with the spans and ticks that touch a window of wall time."""
    return {"v": 1, "threads": [plain(_lane(thread, since, until)) for thread in run.threads]}


def _lane(thread: ThreadHistory, since: float, until: float) -> dict[str, Any]:
    seen = [tick for tick in thread.seen_ticks if tick.at >= since and not tick.at - (tick.secs or 0.0) > until]
    kept = _thinned(seen)
    return {
        "name": thread.name,
        "session": thread.session,
        "interval_secs": thread.interval_secs,
        "state": thread.state,
        "ticks": thread.ticks,
        "failures": thread.failures,
        "last_error": thread.last_error,
        "thinned": len(kept) < len(seen),
        "spans": [
            [span.since, span.until, span.state, span.overdue_secs, span.error]
            for span in thread.spans
            if span.until >= since and span.since <= until
        ],
        "seen_ticks": [[tick.at, tick.secs, tick.ok] for tick in kept],
    }


def _thinned(ticks: Sequence[ThreadTick]) -> Sequence[ThreadTick]:
    """Return evenly many of the good ticks, and every failed one, in order."""
    if len(ticks) <= MAX_TICKS:
        return ticks
    failures = sum(not tick.ok for tick in ticks)
    good = len(ticks) - failures
    room = max(1, MAX_TICKS - failures)
    kept, seen = [], 0
    for tick in ticks:
        if not tick.ok:
            kept.append(tick)
            continue
        if seen * room // good != (seen - 1) * room // good:  # the first of each of `room` equal shares
            kept.append(tick)
        seen += 1
    return kept
