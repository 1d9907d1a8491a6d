"""`ServiceStalls`: finds services whose tick does not end, as a save to a mount that does not answer.

Training goes on meanwhile, so no phase stalls. A tick has a budget of its own: that of the phase ``checkpointing``, and
once three ticks have ended 5 x the longest of them, 60 s at least, if the options do not fix it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from supervisor_core.engine.budgets import TIMES_LONGEST
from supervisor_core.events.telemetry import ThreadStatus
from supervisor_core.options import Options

FLOOR_SECS = 60.0
"""No learned budget is shorter."""
TICKS_TO_LEARN = 3
"""Number of ticks until the learned budget counts."""
_PHASE = "checkpointing"
"""The phase whose budget a tick has: most long ticks are saves."""


@dataclass(frozen=True, kw_only=True)
class ServiceStall:
    """A tick that does not end, or has ended after all."""

    service: str
    state: Literal["begin", "end"]
    secs: float
    """Its duration so far, or in total."""
    timeout_secs: float


class ServiceStalls:
    """Follows the services of one session. Not thread-safe; it has no clock.

    Args:
        options: give the budget.
    """

    def __init__(self, options: Options) -> None:
        self._first_secs = options.stall_timeout(_PHASE) or 0.0
        self._is_fixed = _PHASE in options.stall_timeout_secs
        self._longest: dict[str, float] = {}
        self._stalled: dict[str, float] = {}
        """Service -> duration of its hanging tick at the last look."""
        self._budgets: dict[str, float] = {}

    def look(self, services: Iterable[ThreadStatus]) -> list[ServiceStall]:
        """Take the present health of all services; return what has begun or ended."""
        found = []
        for status in services:
            name, ticking = status.name, status.ticking_secs or 0.0
            self._longest[name] = max(self._longest.get(name, 0.0), status.last_tick_secs or 0.0)
            before = self._stalled.get(name)
            if before is not None:
                if ticking >= before:  # the same tick
                    self._stalled[name] = ticking
                    continue
                del self._stalled[name]
                secs = max(before, status.last_tick_secs or 0.0)
                found.append(ServiceStall(service=name, state="end", secs=secs, timeout_secs=self._budgets[name]))
            budget = self._budget(status)
            if ticking > budget:
                self._stalled[name], self._budgets[name] = ticking, budget
                found.append(ServiceStall(service=name, state="begin", secs=ticking, timeout_secs=budget))
        return found

    def _budget(self, status: ThreadStatus) -> float:
        ended = status.ticks - (status.ticking_secs is not None)
        if self._is_fixed or ended < TICKS_TO_LEARN:
            return self._first_secs
        return max(FLOOR_SECS, TIMES_LONGEST * self._longest[status.name])
