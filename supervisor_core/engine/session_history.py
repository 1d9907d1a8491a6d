"""`SessionHistory`: the earlier sessions of a run, as a new one finds them in its predecessor's liveness file."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any

from supervisor_core.base.json_records import LARGEST, LATEST, can_follow
from supervisor_core.process.identity import boot_id
from supervisor_core.process.progress_page import page_in, page_of_session
from supervisor_core.process.runtime_directory import private_directories
from supervisor_core.run.model.liveness_record import MAX_REASONS, Costs, LivenessRecord, RunSoFar

CUT_OFF = ("lost", "signal")
"""Outcomes of a session that had more to do, with an intact model."""


@dataclass(frozen=True, kw_only=True)
class SessionHistory:
    """A session's place among the sessions of its run."""

    run: RunSoFar
    """What this session adds to, and leaves to the next one."""
    previous: LivenessRecord | None = None
    """The session before; None for the first, and where its liveness file could not be read."""
    is_last_step_exact: bool = False
    """Whether the session before reached its last step, and none after it."""
    exclusive: bool = True
    """No other chief can be at work in the logdir."""
    warning: str | None = None
    """A problem, in one sentence."""

    @property
    def previous_outcome(self) -> str | None:
        """How the session before ended; None where there was none."""
        return self.previous.outcome if self.previous else None

    @property
    def last_step(self) -> int | None:
        """The last step of the session before; None where unknown."""
        return self.previous.step if self.previous else None

    @property
    def steps_lost(self) -> int | None:
        """Steps recomputed after the earlier restarts; None if unknown."""
        return None if self.previous is None and self.run.attempt > 1 else self.run.steps_lost

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
            "previous_seen_at": before.written_at if before else None,
            "previous_elapsed_secs": before.elapsed_secs if before else None,
            "previous_seen_secs": _secs_since(before, started_boot_secs),
            "run_started_at": self.run.first_started_at,
        }

    def may_keep_model_of(self, session: str) -> bool:
        """Say whether the model that a session left alive can be continued with.

        It can if the session is the one before and was cut off, or the last one that was ready, and all since then were
        cut off. A session that failed may have failed because of its model.
        """
        before = self.previous
        return before is not None and before.outcome in CUT_OFF and session in (before.session, _ready_before(before))


def _ready_before(record: LivenessRecord) -> str | None:
    return None if record.history is None else record.history.predecessor


def _secs_since(before: LivenessRecord | None, now_boot_secs: float | None) -> float | None:
    """Return the time since a session was seen, if it ran on this machine since its boot."""
    if before is None or before.written_boot_secs is None or now_boot_secs is None:
        return None
    secs = now_boot_secs - before.written_boot_secs
    return secs if before.boot is not None and before.boot == boot_id() and secs >= 0 else None


def as_left(record: LivenessRecord, now_boot_secs: float) -> tuple[LivenessRecord, bool]:
    """Return a dead session's record, with what its progress page has that the liveness file had not: the step that it
    reached, and until when it ran. And whether that step is exact.

    The page counts if it is this session's and was written since this machine's start.

    Args:
        record: from the liveness file.
        now_boot_secs: the current time by `supervisor_core.base.clock.boot_secs`.
    """
    if record.ended is not None:
        return record, record.step is not None
    if record.boot is None or record.boot != boot_id():
        return record, False
    paths = (str(page_in(directory, record.session)) for directory in private_directories())
    page = next(filter(None, (page_of_session(path, record.session) for path in paths)), None)
    if page is None:
        return record, False
    if page.step is not None:
        record = replace(record, step=page.step)
    seen = max(page.tick_boot_secs, page.progress_boot_secs) if page.ticks else 0.0
    written = record.written_boot_secs
    if written is not None and written < seen <= now_boot_secs:
        record = replace(record, written_at=record.written_at + (seen - written), written_boot_secs=seen)
    return record, page.step is not None and page.is_step_exact


def history_after(
    previous: LivenessRecord | None, now: float, *, after_attempt: int = 0, yields_logdir: bool = False
) -> RunSoFar:
    """Return the history of a run to which a session is added now, after ``previous`` and any attempt up to
    ``after_attempt``.

    A count above half of its plausible bound is dropped, so that the session can add to it.
    """
    before = None if previous is None else previous.history
    attempt = max(filter(can_follow, (0, after_attempt, before.attempt if before else 0))) + 1
    if previous is None or before is None:
        costs = Costs() if attempt == 1 else None
        return RunSoFar(attempt=attempt, first_started_at=now, costs=costs, yields_logdir=yields_logdir)
    restarts = {reason: count for reason, count in before.restarts.items() if abs(count) <= LARGEST // 2}
    if previous.outcome in restarts or len(restarts) < MAX_REASONS:
        restarts[previous.outcome] = restarts.get(previous.outcome, 0) + 1
    can_add = before.costs is not None and all(cost <= LATEST / 2 for cost in astuple(before.costs))
    return RunSoFar(
        attempt=attempt,
        first_started_at=before.first_started_at,
        restarts=restarts,
        steps_lost=before.steps_lost if abs(before.steps_lost) <= LARGEST // 2 else 0,
        costs=before.costs if can_add else None,
        predecessor=before.predecessor or previous.session if previous.outcome in CUT_OFF else None,
        yields_logdir=yields_logdir,
    )
