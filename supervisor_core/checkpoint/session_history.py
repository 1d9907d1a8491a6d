"""`Tenancy`: a session's place among the sessions of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor_core.checkpoint.lease_record import COSTS, LARGEST, LARGEST_ATTEMPT, LATEST, LeaseRecord
from supervisor_core.checkpoint.process_identity import boot_id

CUT_OFF = ("lost", "signal")
"""How a session ends that had more to do, and nothing wrong with its model."""


@dataclass(frozen=True, kw_only=True)
class Tenancy:
    """A session's place among the sessions of its run."""

    attempt: int
    """1 for the run's first session."""
    first_started_at: float
    """Wall time at which the run's first session started."""
    previous: LeaseRecord | None = None
    """The session before; None for the first, and where the lease file could not be understood."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How all earlier sessions ended: reason -> count; ``lost`` for those that left no word."""
    steps_lost: int = 0
    """Steps done again after the earlier restarts."""
    exclusive: bool = True
    """Whether no other chief can be at work in the logdir."""
    warning: str | None = None
    """What is not as it should be, in one sentence."""

    @property
    def previous_outcome(self) -> str | None:
        """How the session before ended; None where there was none."""
        return self.previous.outcome if self.previous else None

    def told(self, started_boot_secs: float | None) -> dict[str, Any]:
        """Return what a session record says of the sessions before.

        Args:
            started_boot_secs: when the session started, by `supervisor_core.clock.boot_secs`.
        """
        before = self.previous
        return {
            "previous_outcome": self.previous_outcome,
            "previous_step": self.last_step,
            "previous_seen_at": before.renewed_at if before else None,
            "previous_elapsed_secs": before.elapsed_secs if before else None,
            "previous_seen_secs": _secs_since(before, started_boot_secs),
            "run_started_at": self.first_started_at,
        }

    def may_keep_model_of(self, session: str) -> bool:
        """Say whether a model that a session has left alive is good to go on with: that of the one before if it was
        cut off; or of the last one that was ready, if none since then was, and all were cut off. One that had failed
        may have failed by its model."""
        before = self.previous
        return before is not None and before.outcome in CUT_OFF and session in (before.session, before.heir_of)

    @property
    def heir_of(self) -> str | None:
        """The last session that was ready, if all since then were cut off: its model may be alive in a cluster."""
        if self.previous is None or self.previous.outcome not in CUT_OFF:
            return None
        return self.previous.heir_of or self.previous.session

    @property
    def costs(self) -> Mapping[str, float | None]:
        """What steps and saves have cost the earlier sessions, as the lease's fields have it; None where that is not
        known."""
        if self.previous is None:
            return dict.fromkeys(COSTS, 0.0 if self.attempt == 1 else None)
        costs = {name: getattr(self.previous, name) for name in COSTS}
        return {name: cost if cost is None or abs(cost) <= LATEST / 2 else None for name, cost in costs.items()}

    @property
    def last_step(self) -> int | None:
        """How far the session before came; None where that is not known."""
        return self.previous.last_step if self.previous else None


def _secs_since(before: LeaseRecord | None, now_boot_secs: float | None) -> float | None:
    """Return for how long a session had not been seen, if it ran on this machine since that was started."""
    if before is None or before.renewed_boot_secs is None or now_boot_secs is None:
        return None
    secs = now_boot_secs - before.renewed_boot_secs
    return secs if before.boot is not None and before.boot == boot_id() and secs >= 0 else None


def can_follow(attempt: int) -> bool:
    """Return whether sessions after an attempt have numbers that are plausible to those who read them."""
    return 0 <= attempt <= LARGEST_ATTEMPT // 2


def tenancy_after(
    previous: LeaseRecord | None, now: float, *, after_attempt: int = 0, exclusive: bool, warning: str | None
) -> Tenancy:
    """Return the place of a session that starts now, after ``previous`` and any of a number up to ``after_attempt``.

    A count above half of what is plausible is not carried on, so that what the session adds to it stays plausible.
    """
    attempt = max(filter(can_follow, (0, after_attempt, previous.attempt if previous else 0))) + 1
    if previous is None:
        return Tenancy(attempt=attempt, first_started_at=now, exclusive=exclusive, warning=warning)
    restarts = {reason: count for reason, count in previous.restarts.items() if abs(count) <= LARGEST // 2}
    restarts[previous.outcome] = restarts.get(previous.outcome, 0) + 1
    return Tenancy(
        attempt=attempt,
        first_started_at=previous.first_started_at,
        previous=previous,
        restarts=restarts,
        steps_lost=previous.steps_lost if abs(previous.steps_lost) <= LARGEST // 2 else 0,
        exclusive=exclusive,
        warning=warning,
    )
