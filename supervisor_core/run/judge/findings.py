"""`findings`: what is to be said of a run, worst first. Every screen, alert text and metric says it as it is here.

Only what the run itself shows is judged, with the thresholds of the alert of the same name. An alert waits longer:
it fires only when something has been true for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from supervisor_core.run.judge import part_findings, state_findings
from supervisor_core.run.judge.finding import Finding, by_reader, worst_first
from supervisor_core.run.judge.finding_subject import Subject
from supervisor_core.run.model.run import RunState
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds

DEFAULTS = Thresholds()

_RULES = (
    part_findings.reading,
    part_findings.clock,
    state_findings.state,
    state_findings.restarts,
    part_findings.saves,
    part_findings.loss,
    part_findings.events,
    part_findings.speed,
    part_findings.cluster,
    part_findings.threads,
    part_findings.notices,
    state_findings.ending,
)


def findings(watched: WatchedRun, now: float, thresholds: Thresholds = DEFAULTS) -> tuple[Finding, ...]:
    """Return what is to be said of a run, worst first; empty where nothing is.

    Args:
        watched: the run, its files and its directory.
        now: the present wall time.
        thresholds: from when on something is said.
    """
    ahead = watched.run.clock_skew_secs or 0.0
    about = Subject(watched, now + ahead, thresholds)
    if watched.copy_of is not None:
        return tuple(part_findings.copy(about))
    return worst_first([by_reader(found, ahead) for rule in _RULES for found in rule(about)])


Standing = Literal["needs_you", "fine", "over", "unknown"]
"""What a run is to the one who looks after it."""

_STANDING_OF_STATE: Mapping[RunState, Standing] = {
    "running": "fine",
    "stalled": "fine",
    "completed": "over",
    "stopped": "over",
    "lost": "over",
    "failed": "over",
    "unknown": "unknown",
}


def standing(state: RunState, found: Sequence[Finding] | None) -> Standing:
    """Return whether a run needs somebody: it has a finding that is more than an info. Else it is fine while it goes
    on, over, or nothing is known of it.

    Args:
        state: the run's.
        found: its findings; None if it could not be judged.

    Example:
        >>> standing("running", ())
        'fine'
    """
    if found is None:
        return "unknown"
    if any(item.severity != "info" for item in found):
        return "needs_you"
    return "over" if any(item.kind == "over" for item in found) else _STANDING_OF_STATE[state]
