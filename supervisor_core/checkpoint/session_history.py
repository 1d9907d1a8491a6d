"""`SessionHistory`: the earlier sessions of a run, as a new one finds them in the lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor_core.base.json_records import LARGEST, LARGEST_ATTEMPT, LATEST
from supervisor_core.checkpoint.lease_file import COSTS, LeaseRecord
from supervisor_core.process.identity import boot_id
from supervisor_core.process.progress_page import page_in, page_of_session
from supervisor_core.process.runtime_directory import private_directories

CUT_OFF = ("lost", "signal")
"""Outcomes of a session that had more to do, with an intact model."""


@dataclass(frozen=True, kw_only=True)
class SessionHistory:
    """A session's place among the sessions of its run."""

    attempt: int
    """1 for the run's first session."""
    first_started_at: float
    """Wall time at which the run's first session started."""
    previous: LeaseRecord | None = None
    """The session before; None for the first, and where the lease file could not be read."""
    is_last_step_exact: bool = False
    """Whether the session before reached its last step, and none after it."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How all earlier sessions ended: reason -> count; ``lost`` for those without a stop record."""
    steps_lost: int = 0
    """Steps recomputed after the earlier restarts."""
    exclusive: bool = True
    """No other chief can be at work in the logdir."""
    warning: str | None = None
    """A problem, in one sentence."""

    @property
    def previous_outcome(self) -> str | None:
        """How the session before ended; None where there was none."""
        return self.previous.outcome if self.previous else None

    def record_fields(self, started_boot_secs: float | None) -> dict[str, Any]:
        """Return the fields of a session record that describe the earlier sessions.

        Args:
            started_boot_secs: when the session started, by `supervisor_core.base.clock.boot_secs`.
        """
        before = self.previous
        return {
            "previous_outcome": self.previous_outcome,
            "previous_step": self.last_step,
            "previous_step_exact": self.is_last_step_exact,
            "previous_seen_at": before.renewed_at if before else None,
            "previous_elapsed_secs": before.elapsed_secs if before else None,
            "previous_seen_secs": _secs_since(before, started_boot_secs),
            "run_started_at": self.first_started_at,
        }

    def may_keep_model_of(self, session: str) -> bool:
        """Say whether the model that a session left alive can be continued with.

        It can if the session is the one before and was cut off, or the last one that was ready, and all since then were
        cut off. A session that failed may have failed because of its model.
        """
        before = self.previous
        return before is not None and before.outcome in CUT_OFF and session in (before.session, before.predecessor)

    @property
    def predecessor(self) -> str | None:
        """The last session that was ready, if all since then were cut off: its model may be alive in a cluster."""
        if self.previous is None or self.previous.outcome not in CUT_OFF:
            return None
        return self.previous.predecessor or self.previous.session

    @property
    def costs(self) -> Mapping[str, float | None]:
        """The earlier sessions' cost of steps and saves, by the lease's fields; None where unknown."""
        if self.previous is None:
            return dict.fromkeys(COSTS, 0.0 if self.attempt == 1 else None)
        costs = {name: getattr(self.previous, name) for name in COSTS}
        return {name: cost if cost is None or abs(cost) <= LATEST / 2 else None for name, cost in costs.items()}

    @property
    def last_step(self) -> int | None:
        """The last step of the session before; None where unknown."""
        return self.previous.last_step if self.previous else None


def _secs_since(before: LeaseRecord | None, now_boot_secs: float | None) -> float | None:
    """Return the time since a session's last renewal, if it ran on this machine since its boot."""
    if before is None or before.renewed_boot_secs is None or now_boot_secs is None:
        return None
    secs = now_boot_secs - before.renewed_boot_secs
    return secs if before.boot is not None and before.boot == boot_id() and secs >= 0 else None


def as_left(record: LeaseRecord, now_boot_secs: float) -> tuple[LeaseRecord, bool]:
    """Return a dead session's record, with what its progress page has that the last renewal had not: the step that it
    reached, and until when it ran. And whether that step is exact.

    The page counts if it is this session's and was written since this machine's start.

    Args:
        record: from the lease.
        now_boot_secs: the present by `supervisor_core.base.clock.boot_secs`.
    """
    if record.ended is not None:
        return record, record.last_step is not None
    if record.boot is None or record.boot != boot_id():
        return record, False
    paths = (str(page_in(directory, record.session)) for directory in private_directories())
    page = next(filter(None, (page_of_session(path, record.session) for path in paths)), None)
    if page is None:
        return record, False
    if page.step is not None:
        record = replace(record, last_step=page.step)
    seen = max(page.tick_boot_secs, page.progress_boot_secs) if page.ticks else 0.0
    renewed = record.renewed_boot_secs
    if renewed is not None and renewed < seen <= now_boot_secs:
        record = replace(record, renewed_at=record.renewed_at + (seen - renewed), renewed_boot_secs=seen)
    return record, page.step is not None and page.is_step_exact


def can_follow(attempt: int) -> bool:
    """Say whether the attempts after this one keep plausible numbers."""
    return 0 <= attempt <= LARGEST_ATTEMPT // 2


def history_after(
    previous: LeaseRecord | None,
    now: float,
    *,
    is_last_step_exact: bool = False,
    after_attempt: int = 0,
    exclusive: bool,
    warning: str | None,
) -> SessionHistory:
    """Return the history of a session that starts now, after ``previous`` and any attempt up to ``after_attempt``.

    A count above half of its plausible bound is dropped, so that the session can add to it.
    """
    attempt = max(filter(can_follow, (0, after_attempt, previous.attempt if previous else 0))) + 1
    restarts, steps_lost = {}, 0
    if previous is not None:
        restarts = {reason: count for reason, count in previous.restarts.items() if abs(count) <= LARGEST // 2}
        restarts[previous.outcome] = restarts.get(previous.outcome, 0) + 1
        steps_lost = previous.steps_lost if abs(previous.steps_lost) <= LARGEST // 2 else 0
    return SessionHistory(
        attempt=attempt,
        first_started_at=now if previous is None else previous.first_started_at,
        previous=previous,
        is_last_step_exact=is_last_step_exact,
        restarts=restarts,
        steps_lost=steps_lost,
        exclusive=exclusive,
        warning=warning,
    )
