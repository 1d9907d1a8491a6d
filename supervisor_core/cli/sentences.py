"""What is said of one run in sentences: why it failed or was restarted, what it cannot do, what is at risk."""

from __future__ import annotations

from supervisor_core.checkpoint.names import last_part
from supervisor_core.cli.text import ago, moment
from supervisor_core.events.losses import LOSS
from supervisor_core.process.stacks import BLOCKED
from supervisor_core.run.ended_launches import failure_text
from supervisor_core.run.model import Advice, AtRisk, Outcome, ProgramLaunch, Restart, Run, launch_text
from supervisor_core.run.restarter_launches import SLACK_SECS
from supervisor_core.run.words import count, duration, in_a_line, share

LOSS_IS_NOT_FINITE = "The newest loss is NaN or infinite."
SHOWN_REASONS = 5
"""Reasons against an exact resume; ``--json`` has all."""
SHOWN_NONFINITE = 5
"""Tags with values that are not finite; ``--json`` has all."""


def failure_lines(run: Run) -> list[str]:
    """Return why the run has failed, in one line; nothing where it has not."""
    failure = failure_text(run)
    return [] if failure is None else [f"Failed: {in_a_line(failure)}"]


def again_text(restart: Restart) -> str:
    """Return how many steps were recomputed after a restart, with bounds where it is not known exactly."""
    least, most = restart.rewind_steps, restart.rewind_steps_most
    if least is None or least == most:
        return f"{count(least)} steps recomputed"
    return f"at least {count(least)} steps recomputed" + ("" if most is None else f", at most {count(most)}")


def restart_lines(run: Run, now: float) -> list[str]:
    """Return why the run was last restarted, or is about to be, in one line; nothing where it was not."""
    launch = run.launches[-1] if run.launches else None
    if launch is not None and launch.ended_at is not None and launch.action == "restart":
        return [f"{ago(launch.ended_at, now)}: {in_a_line(launch_text(launch))}"]
    if launch is not None and launch.ended_at is None and _is_first_sign(launch, run):
        before = run.launches[-2:-1]
        why = "".join(f"; before: {launch_text(item)}" for item in before if item.ended_at is not None)
        return [in_a_line(f"{ago(launch.started_at, now)}: launch {launch.attempt}, which has no session yet{why}")]
    if not run.restarts:
        return []
    restart = run.restarts[-1]
    if restart.launch is not None:
        why = launch_text(restart.launch)
    else:
        ended = next((item for item in run.sessions if item.id == restart.from_session), None)
        what = (ended.error, ended.signal) if ended is not None else ()
        how = _ENDED.get(restart.reason)
        why = "restarted; why it ended is not known" if how is None else f"restarted after it was {how}"
        why += "".join(f": {text}" for text in what if text)
    count_of = f" (restart {count(len(run.restarts))})" if len(run.restarts) > 1 else ""
    return [f"{ago(restart.at, now)}{count_of}: {in_a_line(why)}"]


def _is_first_sign(launch: ProgramLaunch, run: Run) -> bool:
    """Return whether no session has begun since a launch did."""
    last = run.sessions[-1].started_at if run.sessions else None
    return last is None or launch.started_at is None or last < launch.started_at - SLACK_SECS


_ENDED: dict[Outcome, str] = {
    "lost": "killed (no stop record)",
    "error": "ended by an error",
    "signal": "stopped by a signal",
    "requested": "asked to stop",
    "exhausted": "out of input",
}


def resume_lines(run: Run) -> list[str]:
    """Return why the newest session's resume was not exact, a line each; nothing where it was, or it is unknown."""
    newest = run.sessions[-1] if run.sessions else None
    if newest is None or newest.resume_exact is not False:
        return []
    lines = [f"Not an exact resume: {reason}" for reason in newest.resume_reasons[:SHOWN_REASONS]]
    more = len(newest.resume_reasons) - len(lines)
    return [*lines, f"Not an exact resume: other reasons: {more}; --json has all."] if more > 0 else lines


def at_risk_text(at_risk: AtRisk) -> str:
    """Return which steps of a run are in no checkpoint, in one sentence."""
    where = "no checkpoint" if at_risk.saved_step is None else f"last checkpoint: step {count(at_risk.saved_step)}"
    return f"At risk: {count(at_risk.steps)} steps, {duration(at_risk.secs)}, are not saved ({where})."


def nonfinite_lines(run: Run) -> list[str]:
    """Return which tags have values that are NaN or infinite, a line each; those that look like a loss first."""
    found = sorted(run.nonfinite_tags, key=lambda item: LOSS.search(item.tag) is None)
    lines = [
        f"Not finite: {item.tag}: {count(item.values)} {'value is' if item.values == 1 else 'values are'} NaN or "
        f"infinite, {_steps(item.first_step, item.last_step)}."
        for item in found[:SHOWN_NONFINITE]
    ]
    if len(found) > SHOWN_NONFINITE:
        lines.append(f"Not finite: {count(len(found) - SHOWN_NONFINITE)} more tags (--json has all).")
    if run.loss_finite is False:
        lines.insert(0, LOSS_IS_NOT_FINITE)
    return lines


def last_good_lines(run: Run) -> list[str]:
    """Return which checkpoint is the last good one, in one line; nothing where the newest is good, and the loss."""
    newest = next((saved for saved in reversed(run.checkpoints) if saved.ok), None)
    if newest is None or (newest.doubt is None and newest.damage is None and run.loss_finite is not False):
        return []
    step = run.loss_nonfinite_since
    since = "" if step is None else f" The loss is not finite since step {count(step)}."
    if run.last_good is None:
        return [f"There is no good checkpoint: all are damaged or in doubt.{since}"]
    name = last_part(run.last_good.moved_to or run.last_good.path or "")
    return [f"Last good checkpoint: {name}, of step {count(run.last_good.step)}.{since}"]


def _steps(first: int, last: int) -> str:
    return f"step {count(first)}" if first == last else f"steps {count(first)} to {count(last)}"


def advice_text(advice: Advice) -> str | None:
    """Return the recommended checkpoint interval, in one sentence; None where there is none."""
    if advice.recommended_interval_secs is None:
        return None
    text = f"Recommended checkpoint interval: {duration(advice.recommended_interval_secs)}"
    if advice.recommended_cost_ratio is not None:
        text += f" (expected cost {share(advice.recommended_cost_ratio)} of the time)"
    if advice.recommended_low_secs is not None and advice.recommended_high_secs is not None:
        low, high = duration(advice.recommended_low_secs), duration(advice.recommended_high_secs)
        text += f"; 95 % range {low} to {high}, from {advice.failures} failures"
    if advice.present_interval_secs:
        text += f"; present interval {duration(advice.present_interval_secs)}"
        if advice.present_cost_ratio is not None:
            text += f" ({share(advice.present_cost_ratio)})"
    return text + "."


def trouble_lines(run: Run) -> list[str]:
    """Return what the newest session cannot do, while it is alive, a line each."""
    last = run.sessions[-1] if run.sessions else None
    if last is None or not last.is_open:
        return []
    lines = []
    if last.events_error is not None:
        lines.append(f"Events cannot be written; what is shown here may be old: {last.events_error}")
    if last.save_failures_in_a_row > 1:
        why = "." if last.save_error is None else f": {in_a_line(last.save_error)}"
        lines.append(f"The last {count(last.save_failures_in_a_row)} saves have failed{why}")
    stall = run.stalls[-1] if run.stalls else None
    if stall is not None and stall.until is None and stall.blocked_since is not None:
        lines.append(f"{BLOCKED} since {moment(stall.blocked_since)}; no thread can run Python.")
    return lines
