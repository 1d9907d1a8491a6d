"""What may happen to a training, as what it then serves over time; and the names of the alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from monitoring_served import HOUR, MINUTE, Target, Value, always, clock, saved_every, trainer, until

Moments = Mapping[float, "set[str] | list[str]"]
"""Seconds from the beginning -> the alerts that fire then; in a list one is as often as it fires."""

KILLED, BROKEN = "SupervisorTrainingLost", "SupervisorTrainingFailed"
STALLED, TOO_OLD, FAILING = "SupervisorTrainingStalled", "SupervisorCheckpointTooOld", "SupervisorSavesFailing"
FAR, LOOP, THREAD = "SupervisorCheckpointIntervalFar", "SupervisorRestartLoop", "SupervisorThreadDown"
SLOW, GOODPUT = "SupervisorTrainingSlow", "SupervisorGoodputLow"
WORKER, STUCK, RECOVERIES = "SupervisorWorkerLost", "SupervisorWorkerStuck", "SupervisorRecoveryLoop"
UNWRITTEN, QUIET = "SupervisorEventsNotWritten", "SupervisorRunSilent"
NAN, TWICE = "SupervisorLossNotFinite", "SupervisorRunDuplicated"
NOTICE = "SupervisorNotice"
VANISHED = "SupervisorLogdirUnreachable"
MANY = "SupervisorManyLost"
UNREADABLE, DOWN = "SupervisorEventsUnreadable", "SupervisorExporterDown"
SHARD = "SupervisorShardMissing"

SILENT: set[str] = set()


def phases(first: str, then: str, at: float) -> Callable[[float], str]:
    """One phase until a moment, the other from then on."""
    return lambda t: first if t < at else then


def ends(at: float, value: Value = clock) -> Value:
    """What stays as it is from then on."""
    return until(at, value, lambda t: value(at - 1))


HUNG = {"progress": ends(20 * MINUTE), "saved": ends(20 * MINUTE, saved_every(600))}
GONE = {"active": until(20 * MINUTE, always(1), always(0)), **HUNG}
"""A planned stop after 20 minutes."""
STOPPED = until(20 * MINUTE, always(300), always(None))
"""The hang timeout of a session that has ended: a stopped one has none."""
LATER = until(9 * MINUTE, always(None), clock)
"""When an exporter looked last, whose first look takes 9 minutes."""
READING = {
    "exporter_last_refresh_timestamp_seconds": LATER,
    "exporter_first_look_timestamp_seconds": until(9 * MINUTE, clock, always(None)),
}
"""The same, of one that serves the runs that it has read, and keeps these up to date."""


def turns(*states: str | float) -> dict[str, Callable[[float], str]]:
    """What a source says of a run: one state until a moment, the next until another ..."""
    *before, last = states

    def state(t: float) -> str:
        return str(next((now for now, at in zip(before[::2], before[1::2], strict=True) if t < float(at)), last))

    return {"state": state}


RAISED = {
    "active": until(20 * MINUTE, always(1), always(0)),
    "seen": ends(20 * MINUTE),
    **HUNG,
    **turns("running", 20 * MINUTE, "failed"),
}
"""Ended by an error after 20 minutes."""
LATE = {24 * MINUTE: SILENT, 27 * MINUTE: {STALLED}}


def resumed(at: float = 40 * MINUTE, **what: Any) -> Target:
    """The next session of a run, in a new pod."""
    started = phases("restoring", "training", at + 5 * MINUTE)
    return trainer(instance="pod-2", start=at, phase=started, sessions=always(2), **what)


def restarting(every: float, reason: str) -> dict[str, Any]:
    """A run whose sessions end again and again, until 3 hours have gone."""
    count: Value = lambda t: min(t, 3 * HOUR) // every  # noqa: E731
    return {"restarts": {reason: count}, "sessions": lambda t: 1 + (count(t) or 0)}


def productive(share: float, **more: Value) -> dict[str, Value]:
    """Time by activity, of which this share is productive."""
    return {"productive": lambda t: share * t, "program_startup": lambda t: (1 - share) * t, **more}


def shifted(values: dict[str, Value], by: float) -> dict[str, Value]:
    """The same, beginning later."""
    return {name: lambda t, value=value: value(t - by) for name, value in values.items()}


def missed(**what: Any) -> list[Target]:
    """A trainer of which a minute is missing after an hour."""
    return [trainer(end=HOUR, **what), trainer(start=HOUR + MINUTE, instance="pod-2", **what)]


FAILED = {"restarts": {"lost": always(4), "signal": always(1)}, "sessions": always(6)}
LONG = {"phase": phases("training", "evaluating", HOUR), "progress": ends(HOUR), "timeout": always(3600)}
NO_SAVE = {"saved": ends(HOUR, saved_every(600))}
SLOWER = until(4 * HOUR, always(10), always(4))


def between(t: float) -> str:
    """Trains for 4 hours, then evaluates, but for a minute after half an hour of that."""
    return "training" if t < 4 * HOUR or 4.5 * HOUR <= t < 4.5 * HOUR + MINUTE else "evaluating"
