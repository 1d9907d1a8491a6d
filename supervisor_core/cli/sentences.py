"""What the terminal says of a run in sentences: findings with their ages, restarts, values, advice."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from supervisor_core.cli.text import moment, since
from supervisor_core.events.losses import LOSS
from supervisor_core.log import printable
from supervisor_core.run.finding import Finding, Severity
from supervisor_core.run.model import Advice, Restart, Run, Session
from supervisor_core.run.words import UNKNOWN, count, counted, duration, share

SHOWN_REASONS = 5
"""Reasons against an exact resume; ``--json`` has all."""
SHOWN_NONFINITE = 5
"""Tags with values that are not finite; ``--json`` has all."""

STYLES: dict[Severity, str] = {"page": "bold red", "warn": "yellow", "info": ""}


def by_its_clock(run: Run, now: float) -> float:
    """Return the present time by the clock of a run's machine, from which ages of the run's times count."""
    return now + (run.clock_skew_secs or 0.0)


def with_age(finding: Finding, now: float) -> str:
    """Return what a finding says, and for how long that has been so."""
    age = since(finding.since, now)
    return finding.text if age == UNKNOWN else f"{finding.text} (for {age})"


def finding_lines(found: Sequence[Finding], now: float) -> list[Text]:
    """Return all of some findings: text, since when, cost; and what to do in a line of its own, to be pasted."""
    lines = []
    for finding in found:
        age = since(finding.since, now)
        when = "" if age == UNKNOWN else f" (for {age}, since {moment(finding.since)})"
        lines.append(Text(printable(finding.text), style=STYLES[finding.severity]).append(when, style="dim"))
        if finding.cost is not None:
            lines.append(Text(f"  {printable(finding.cost)}"))
        if finding.action is not None:
            # Not wrapped: the terminal itself may break the line, and it can still be copied whole.
            line = Text(f"  do: {printable(finding.action)}", style="bold")
            line.no_wrap = finding.is_command
            line.overflow = "ignore" if finding.is_command else None
            lines.append(line)
    return lines


def again_text(restart: Restart) -> str:
    """Return how many steps were recomputed after a restart, with bounds where it is not known exactly; empty where
    nothing is known."""
    least, most = restart.rewind_steps, restart.rewind_steps_most
    if least is not None and least == most:
        return f"{counted(least, 'step')} recomputed"
    if not least:
        return "" if most is None else f"at most {counted(most, 'step')} recomputed"
    return f"at least {counted(least, 'step')} recomputed" + ("" if most is None else f", at most {count(most)}")


def resume_lines(run: Run) -> list[str]:
    """Return what was observed of the newest session's resume, and all reasons why it was not exact, where there are
    several, a line each."""
    newest = run.sessions[-1] if run.sessions else None
    if newest is None:
        return []
    check = newest.resume_check
    observed = [] if check is None or not check.is_equal else [f"Resume: {check.text}."]
    return [*observed, *_reason_lines(newest)]


def _reason_lines(newest: Session) -> list[str]:
    if newest.resume_exact is not False or len(newest.resume_reasons) < 2:
        return []
    lines = [f"Not an exact resume: {reason}" for reason in newest.resume_reasons[:SHOWN_REASONS]]
    more = len(newest.resume_reasons) - len(lines)
    return [*lines, f"Not an exact resume: other reasons: {more}; --json has all."] if more > 0 else lines


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
    return lines


def _steps(first: int, last: int) -> str:
    return f"step {count(first)}" if first == last else f"steps {count(first)} to {count(last)}"


def advice_text(advice: Advice) -> str | None:
    """Return the recommended checkpoint interval, in one sentence; None where there is none."""
    if advice.recommended_interval_secs is None:
        return None
    text = f"Recommended checkpoint interval: {duration(advice.recommended_interval_secs)}"
    if advice.recommended_cost_ratio is not None:
        text += f" (expected cost {share(advice.recommended_cost_ratio)} of the time)"
    text += f", from {advice.failures} failures"
    if advice.present_interval_secs:
        text += f"; present interval {duration(advice.present_interval_secs)}"
        if advice.present_cost_ratio is not None:
            text += f" ({share(advice.present_cost_ratio)})"
    return text + "."
