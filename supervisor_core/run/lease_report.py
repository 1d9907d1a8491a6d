"""`LeaseReport`: a session's state from the logdir's lease, for a run whose events file does not grow.

The lease is renewed every second, in place, which works on a full disk too: a session that cannot write events is not
reported as lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor_core.run.goodput import without_risk
from supervisor_core.run.model import Run

FRESH_SECS = 30.0
"""The greatest age of a valid renewal: thirty renewals of a local file, two in an object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """The contents of the lease. Times are wall-clock seconds since the epoch, by the session's clock."""

    session: str
    renewed_at: float
    step: int | None = None
    phase: str | None = None
    progress_at: float | None = None
    progress_timeout_secs: float | None = None
    save_failures: int = 0
    save_failures_in_a_row: int = 0
    events_error: str | None = None


def with_report(run: Run, report: LeaseReport | None, now: float) -> Run:
    """Return the run, updated from its lease where that is newer than its events.

    Only a lost run is changed: if its newest session holds the lease and renewed it within `FRESH_SECS` and after the
    last event, it is running or, without progress within its budget, stalled.

    Args:
        run: the run from its events.
        report: from its lease; None where that could not be read.
        now: the present wall time.
    """
    last = run.sessions[-1] if run.sessions else None
    if run.state != "lost" or last is None or report is None or report.session != last.id:
        return run
    if now - report.renewed_at > FRESH_SECS or (last.ended_at is not None and report.renewed_at < last.ended_at):
        return run
    budget = report.progress_timeout_secs
    is_stalled = None not in (budget, report.progress_at) and now - (report.progress_at or now) > (budget or 0.0)
    session = replace(
        last,
        outcome="running",
        ended_at=report.renewed_at,
        last_step=last.last_step if report.step is None else report.step,
        phase=report.phase or last.phase,
        last_progress_at=report.progress_at or last.last_progress_at,
        progress_timeout_secs=budget,
        saves=last.saves + max(0, report.save_failures - last.save_failures),
        save_failures=max(report.save_failures, last.save_failures),
        save_failures_in_a_row=report.save_failures_in_a_row,
        events_error=report.events_error,
        steps_per_sec=None,
    )
    is_unsaved = bool(run.checkpoints) and not any(saved.ok for saved in run.checkpoints)
    return replace(
        run,
        state="stalled" if is_stalled else "running",
        sessions=(*run.sessions[:-1], session),
        goodput=run.goodput if is_unsaved else without_risk(run.goodput),
        at_risk=run.at_risk if is_unsaved else None,
        step=session.last_step,
        steps_per_sec=None,
    )
