"""`Finding`: one thing that is to be said of a run; the kinds that there are, and how urgent each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from supervisor_core.events.telemetry import Severity as Severity
from supervisor_core.run.model.thresholds import LEAST_SHARE, Thresholds
from supervisor_core.run.model.words import duration

SEVERITIES: Mapping[Severity, str] = {"page": "critical", "warn": "warning", "info": "info"}
"""Worst first, with the ``severity`` label of the alerts of that urgency."""


class Kind(NamedTuple):
    """What all findings of one kind have in common."""

    severity: Severity
    """While the run goes on, or has ended within a day."""
    when: str
    """When it holds, as half a sentence, with the default thresholds."""
    alert: str | None = None
    """The alert of that name, whose entry in the runbook applies; None without one."""


_LIMITS = Thresholds()

KINDS: Mapping[str, Kind] = {
    "unreachable": Kind(
        "page", "the run had not ended, and its directory is gone or cannot be listed", "SupervisorRunUnreachable"
    ),
    "failed": Kind(
        "page", "its state is failed: an error ended it, or its restarter gave it up", "SupervisorTrainingFailed"
    ),
    "lost": Kind("page", "its state is lost: no sign of life, or its process is gone", "SupervisorTrainingLost"),
    "stalled": Kind(
        "page",
        "its state is stalled: alive, and no progress for longer than the hang timeout",
        "SupervisorTrainingStalled",
    ),
    "restart_loop": Kind(
        "page",
        f"{_LIMITS.restarts} unplanned restarts within {duration(_LIMITS.restart_window_secs)}, and it has neither "
        "completed nor been stopped",
        "SupervisorRestartLoop",
    ),
    "recovery_loop": Kind(
        "page",
        f"TensorFlow's session was lost {_LIMITS.recoveries} times within {duration(_LIMITS.recovery_window_secs)}",
        "SupervisorRecoveryLoop",
    ),
    "saves_failing": Kind(
        "page", f"the last {_LIMITS.save_failures} saves or more have failed", "SupervisorSavesFailing"
    ),
    "loss_not_finite": Kind("page", "the newest loss is NaN or infinite", "SupervisorLossNotFinite"),
    "not_starting": Kind("warn", "2 launches by its restarter ended before their first event"),
    "worker_lost": Kind(
        "warn", "another process of the cluster is lost, or has failed, and the chief is alive", "SupervisorWorkerLost"
    ),
    "worker_stuck": Kind(
        "warn",
        "another process of the cluster waits, or makes no progress, for "
        f"{duration(_LIMITS.worker_wait_secs)} in which the chief trains",
        "SupervisorWorkerStuck",
    ),
    "straggler": Kind(
        "warn",
        f"it trains in several processes, and one needs more than the others by more than {LEAST_SHARE:.0%} of a step",
    ),
    "checkpoint_damaged": Kind("warn", "the newest checkpoint is damaged, or in doubt"),
    "checkpoint_overdue": Kind(
        "warn",
        f"it trains, and its newest checkpoint is older than {_LIMITS.checkpoint_intervals:g} intervals, "
        f"or no save succeeded for {duration(_LIMITS.hold_secs)} after one failed",
        "SupervisorCheckpointTooOld",
    ),
    "events_failing": Kind("warn", "it cannot write its events", "SupervisorEventsNotWritten"),
    "completed_unsaved": Kind("warn", "it was completed, and its last save failed"),
    "disk_low": Kind("warn", "the disk of its directory has room for less than 3 more checkpoints"),
    "clock_skew": Kind("warn", "the clocks of its machine and of the reader's differ by a minute or more"),
    "slow": Kind(
        "warn",
        f"over {duration(_LIMITS.slow_window_secs)} (a quarter of its life, if it is younger than "
        f"{duration(4 * _LIMITS.slow_window_secs)}) less than {_LIMITS.slow_below:.0%} of its speed before",
        "SupervisorTrainingSlow",
    ),
    "thread_down": Kind(
        "warn",
        f"a service thread has failed, or is late by {duration(_LIMITS.overdue_secs)}",
        "SupervisorThreadDown",
    ),
    "silent": Kind(
        "warn",
        "another writer's process here has its file open, and wrote nothing for ten times its longest gap, and for "
        f"less than {duration(_LIMITS.silent_secs)}",
        "SupervisorRunSilent",
    ),
    "notice": Kind(
        "warn",
        f"the program has said it with `notify` within {duration(_LIMITS.notice_secs)}; its severity is the one given",
        "SupervisorNotice",
    ),
    "read_error": Kind("warn", "not all of its files can be read", "SupervisorEventsUnreadable"),
    "copy": Kind("info", "it is a copy of a run in another directory, which its session writes"),
    "resumed_not_exactly": Kind("info", "the newest session does not continue exactly as the one before would have"),
    "not_captured": Kind("info", "its newest checkpoint does not have all that an exact resume needs"),
    "checkpoint_interval_far": Kind(
        "info",
        f"after {_LIMITS.failures_to_judge} unplanned restarts, the checkpoint interval is {_LIMITS.interval_factor:g} "
        "times too long or too short",
        "SupervisorCheckpointIntervalFar",
    ),
    "restarted": Kind("info", "it was restarted and is alive, or its restarter is starting it again"),
    "completed_without_step": Kind("info", "the newest session was completed without a new step"),
    "stopped": Kind("info", "it was stopped: the text says by what"),
    "over": Kind(
        "info",
        "another writer's process is gone; or it wrote nothing for longer than usual, and none has its file open",
    ),
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
    """One of `KINDS`, or of the past (see `history`)."""
    severity: Severity = "info"
    since: float | None = None
    """Wall time since when it holds; None where that is unknown. No text holds an age: whoever shows it adds that."""
    until: float | None = None
    """Wall time until when it held; None while it lasts. See `supervisor_core.run.judge.history`."""
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
        kind = KINDS.get(self.kind)
        return None if kind is None else kind.alert


def by_reader(found: Finding, ahead: float) -> Finding:
    """Return a finding with its times by the reader's clock.

    Args:
        found: by the clock of the run's machine.
        ahead: seconds by which that clock is ahead of the reader's.
    """
    if not ahead:
        return found
    since, until = (None if at is None else at - ahead for at in (found.since, found.until))
    return replace(found, since=since, until=until)


def worst_first(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which they are said: by severity, then by kind."""
    return tuple(sorted(found, key=lambda item: (_RANK[item.severity], _ORDER[item.kind])))
