"""What events say, without the run's name: the finding, the restart or the end, in one line."""

from __future__ import annotations

from supervisor_core.notify.run_changes import OVER, Started, newest_session
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.wordings import WORDINGS
from supervisor_core.run.model.run import LIVE, Outcome, Run
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.words import duration, share

_PLANNED: dict[Outcome, str] = {
    "completed": "completed",
    "exhausted": "completed",
    "requested": "stopped",
    "signal": "stopped",
}


def begins(found: Finding, now: float) -> str:
    """Return what a finding says, for how long that has been so, and what it costs.

    Example:
        >>> begins(Finding(kind="lost", since=10.0, text="Its process is gone.", cost="12 steps are lost."), 70.0)
        'Its process is gone (for 1 min). 12 steps are lost.'
    """
    if found.since is None or now - found.since < 1.0:
        return found.sentence
    age, text = duration(now - found.since), found.text.removesuffix(".")
    aged = f"{text}. This has lasted for {age}." if ". " in text else f"{text} (for {age})."
    return aged if found.cost is None else f"{aged} {found.cost}"


def is_over(said: Finding, watched: WatchedRun, now: float) -> tuple[str, float]:
    """Return that a finding is over, after how long, and the wall time at which it was.

    Args:
        said: the finding as it was said.
        watched: the run as it is now.
        now: the present wall time.
    """
    run, last = watched.run, newest_session(watched.run)
    ahead, at = run.clock_skew_secs or 0.0, now
    is_alive = run.state in LIVE
    is_undone = False
    if said.kind in ("lost", "failed") and is_alive and last is not None:
        is_undone = True
        began = (last.started_at or now) - ahead
        at = began if (said.since or 0.0) < began <= now else now
    elif said.kind == "stalled":
        stall = next((item for item in reversed(run.stalls) if item.until is not None), None)
        until = None if stall is None or stall.until is None else stall.until - ahead
        at = until if until is not None and (said.since or 0.0) <= until <= now else now
        is_undone = run.state == "running"
    elif said.kind == "saves_failing" and is_alive and _has_saved_since(run, said.since):
        is_undone = True
    elif said.kind == "loss_not_finite":
        is_undone = is_alive and bool(run.loss_finite)
    elif said.kind == "unreachable":
        is_undone = not watched.unreachable
    after = "" if said.since is None or at - said.since < 1.0 else f" after {duration(at - said.since)}"
    if is_undone:
        return f"{WORDINGS[said.kind].again}{after}", at
    why = ", as the run has ended" if run.state in (*OVER, "lost", "failed") else ""
    if said.kind == "saves_failing" and not why:  # a new session of it may fail likewise
        why = ", as its program has ended"
    return f"over{after}{why}. It was: {said.text}", at


def _has_saved_since(run: Run, since: float | None) -> bool:
    saved = (item.at for item in run.checkpoints if item.ok and item.at is not None)
    return any(at - (run.clock_skew_secs or 0.0) > (since or 0.0) for at in saved)


def restarted(started: Started) -> str:
    """Return how the run had ended, and what its restart cost."""
    if started.end is not None:
        return started.end.text
    step = None if started.session is None else started.session.restored_step
    where = "" if step is None else f" at step {step:,}"
    how = None if started.before is None else _PLANNED.get(started.before.outcome)
    return f"started again{where}{'' if how is None else f', after it was {how}'}"


def ended(watched: WatchedRun, now: float) -> str:
    """Return how a run has ended, after how long, and its goodput.

    Args:
        watched: the run; it was completed, or was stopped.
        now: the present wall time.
    """
    run, last = watched.run, newest_session(watched.run)
    what = "completed"
    if run.state == "stopped":
        by = "" if last is None or last.signal is None else f" by {last.signal}"
        step = "" if run.step is None else f" at step {run.step:,}"
        what = f"stopped{by}{step}"
    goodput = run.goodput
    after = f" after {duration(goodput.wall_secs)}" if goodput.wall_secs else ""
    ratio = "" if goodput.ratio is None else f", goodput {share(goodput.ratio)}"
    return f"{what}{after}{ratio}"
