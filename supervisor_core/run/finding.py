"""`Finding`: one thing that is to be said of a run; the kinds that there are, and how urgent each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Severity = Literal["page", "warn", "info"]
"""``page``: work is being lost, act now. ``warn``: today. ``info``: when there is time."""

SEVERITIES: Mapping[Severity, str] = {"page": "critical", "warn": "warning", "info": "info"}
"""Worst first, with the ``severity`` label of the alerts of that urgency."""


class Kind(NamedTuple):
    """What all findings of one kind have in common."""

    severity: Severity
    """While the run goes on, or has ended within a day."""
    alert: str | None = None
    """The alert of that name, whose entry in the runbook applies; None without one."""


KINDS: Mapping[str, Kind] = {
    "unreachable": Kind("page", "SupervisorLogdirUnreachable"),
    "failed": Kind("page", "SupervisorTrainingFailed"),
    "lost": Kind("page", "SupervisorTrainingLost"),
    "stalled": Kind("page", "SupervisorTrainingStalled"),
    "restart_loop": Kind("page", "SupervisorRestartLoop"),
    "recovery_loop": Kind("page", "SupervisorRecoveryLoop"),
    "saves_failing": Kind("page", "SupervisorSavesFailing"),
    "loss_not_finite": Kind("page", "SupervisorLossNotFinite"),
    "not_starting": Kind("warn"),
    "worker_lost": Kind("warn", "SupervisorWorkerLost"),
    "worker_stuck": Kind("warn", "SupervisorWorkerStuck"),
    "checkpoint_damaged": Kind("warn"),
    "checkpoint_overdue": Kind("warn", "SupervisorCheckpointTooOld"),
    "events_failing": Kind("warn", "SupervisorEventsNotWritten"),
    "disk_low": Kind("warn"),
    "slow": Kind("warn", "SupervisorTrainingSlow"),
    "thread_down": Kind("warn", "SupervisorThreadDown"),
    "silent": Kind("warn", "SupervisorRunSilent"),
    "read_error": Kind("warn", "SupervisorEventsUnreadable"),
    "copy": Kind("info"),
    "resumed_not_exactly": Kind("info"),
    "checkpoint_interval_far": Kind("info", "SupervisorCheckpointIntervalFar"),
    "restarted": Kind("info"),
    "completed_without_step": Kind("info"),
    "stopped": Kind("info"),
}
"""Every kind, the worst first: of two findings of one severity the kind that stands here first is said first."""

_ORDER = {kind: index for index, kind in enumerate(KINDS)}
_RANK = {severity: index for index, severity in enumerate(SEVERITIES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is to be said of a run. Its texts may hold what the program wrote: show them as `printable`.

    Example:
        >>> Finding(kind="lost", text="The process is gone.", cost="12 steps are in no checkpoint.").sentence
        'The process is gone. 12 steps are in no checkpoint.'
    """

    kind: str
    """One of `KINDS`."""
    severity: Severity = "info"
    since: float | None = None
    """Wall time since when it holds; None where that is unknown. No text holds an age: whoever shows it adds that."""
    text: str
    """One sentence or two: what is. It stays the same while nothing else happens."""
    cost: str | None = None
    """What it costs by now, in one sentence; None where that is unknown, or it costs nothing."""
    action: str | None = None
    """What to do first: one sentence, or one command; None where there is nothing to do."""
    is_command: bool = False
    """Whether `action` is a command: complete, and quoted for a shell."""
    evidence: Mapping[str, str | float] = field(default_factory=dict)
    """What it was found by: ``host``, ``pid``, ``step``, ``location``, ``path``, ``error`` ..."""

    @property
    def sentence(self) -> str:
        """Text and cost."""
        return self.text if self.cost is None else f"{self.text} {self.cost}"

    @property
    def alert(self) -> str | None:
        """The alert whose entry in the runbook applies; None without one."""
        return KINDS[self.kind].alert


def worst_first(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which they are said: by severity, then by kind."""
    return tuple(sorted(found, key=lambda item: (_RANK[item.severity], _ORDER[item.kind])))
