"""`decide`: whether a training that has ended is started again, and when. Pure: an ended launch in, a decision out.

The rules, in this order:

    asked to stop   the restarter had a stop signal, or the program is done: no restart
    never restart   status 93, and those given; before the first step: status 2, ImportError, SyntaxError, no program
    progress        a verified checkpoint above the best ever resets all counts; a run that never saved is judged by
                    the steps it reached; where neither is known only the rate counts, and nothing is reset
    not counted     SIGTERM from outside and status 75, with progress; a machine that was lost: restart at once;
                    a logdir in use by another process: wait for it, with backoff
    counted         3 launches without progress, 3 identical failures, or 10 restarts an hour end it; else backoff

No count is ever raised by a launch that made progress, so a run that progresses is never given up.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from supervisor_core.events.record_fields import Name, Number, Step, Text, Whole
from supervisor_core.run.model.words import counted

Cause = Literal[
    "completed",
    "error",
    "signal",
    "oom",
    "hang",
    "preempted",
    "requested",
    "refused",
    "in_use",
    "not_started",
    "stopped",
    "lost",
]
"""``completed``: status 0. ``error``: another status. ``signal``: killed by one. ``oom``: the kernel killed a process
of it for want of memory. ``hang``: it made no progress, and was killed. ``preempted``: SIGTERM from outside.
``requested``: status 75. ``refused``: status 93. ``in_use``: another process trains in the logdir. ``not_started``: the
program could not be run. ``stopped``: the restarter was asked to stop. ``lost``: the restarter died with it."""

OTHERS_DECIDED: tuple[Cause, ...] = ("preempted", "requested")
"""Causes that are no failure of the program."""
NEVER_STATUS, AGAIN_STATUS = 93, 75
"""Status of a program that must not, or wants to be started again."""
NO_PROGRESS_STATUS, SPENT_STATUS, IN_USE_STATUS = 93, 94, 95
"""Status of the restarter: another restart would not help; too many restarts; another restarter has the logdir."""
USAGE_STATUS = 2
HOUR_SECS = 3600.0
_HOLDER = re.compile(r"is in use by (.{1,300}?)\. Two chiefs")
"""In the text of a session that was refused."""
_PERMANENT = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When to give up, and how long to wait."""

    no_progress_limit: int = 3
    """Launches in a row without progress."""
    identical_limit: int = 3
    """Identical failures in a row."""
    restarts_per_hour: int = 10
    """Counted restarts within an hour."""
    backoff_secs: float = 1.0
    """The first wait, at most; doubled by each counted restart."""
    max_backoff_secs: float = 300.0
    never: tuple[int, ...] = (NEVER_STATUS,)
    """Exit statuses after which there is no restart."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What two failures must have in common to be the same."""

    type: Name
    """Of the exception; a signal's name where there is none."""
    where: Text | None = None
    """The innermost frame of the program itself."""
    step: Step | None = None
    rank: int | None = None
    """Of the process that failed, in a job of several."""

    def __str__(self) -> str:
        """Type, place and rank, as records have them."""
        where = "" if self.where is None else f" at {self.where}"
        return f"{self.type}{where}" if self.rank is None else f"{self.type}{where} on rank {self.rank}"

    def is_same(self, other: Failure) -> bool:
        """Say whether another failure is the same: its type, its place, and its step, give or take one; on any rank."""
        if (self.type, _without_pid(self.where)) != (other.type, _without_pid(other.where)):
            return False
        if self.step is None or other.step is None:
            return self.step is other.step and self.where is not None
        return abs(self.step - other.step) <= 1


def _without_pid(where: str | None) -> str:
    return re.sub(r"\(pid \d+\)", "", where or "")


@dataclass(frozen=True, kw_only=True)
class ChildEnd:
    """How a launch ended."""

    exit_code: Whole | None = None
    signal: Whole | None = None
    core: bool = False
    """Whether the kernel wrote a core file."""
    stderr: Text = ""
    """The end of its standard error."""
    oom_kills: Whole = 0
    """Processes that the kernel killed for want of memory meanwhile, in this control group."""
    not_started: Text | None = None
    """Why the program could not be run."""

    @classmethod
    def of_status(cls, status: int) -> ChildEnd:
        """Return the end that a wait status says."""
        code = os.waitstatus_to_exitcode(status)
        return cls(exit_code=code) if code >= 0 else cls(signal=-code, core=os.WCOREDUMP(status))

    @property
    def is_unknown(self) -> bool:
        """Whether neither a status nor a signal is known."""
        return self.exit_code is None and self.signal is None


@dataclass(kw_only=True)
class EndedLaunch:
    """One run of the program, from its start to its end."""

    cause: Cause | None = None
    """None before it has been judged."""
    ended_at: float = 0.0
    """Wall time."""
    end: ChildEnd = ChildEnd()
    """Without a status and a signal where nothing is known of it."""
    failure: Failure | None = None
    """What identifies its failure."""
    is_known: bool = False
    """Whether the logdir could be read to the end: what follows is all there is."""
    saved_step: int | None = None
    """Step of the best checkpoint in the logdir that verifies; None without one."""
    reached_step: int | None = None
    """The highest step of the run."""
    has_stepped: bool = False
    """Whether this launch did a step."""
    was_stopped: bool = False
    """Whether its session's own record says that a signal stopped it."""

    @property
    def is_machine_lost(self) -> bool:
        """Whether nothing is known of its end, since its machine was lost with it."""
        return self.cause == "preempted" and self.end.is_unknown


@dataclass(frozen=True, kw_only=True)
class RestartState:
    """What is kept between launches, and between restarters."""

    attempt: Whole = 0
    """Number of launches so far."""
    best_saved_step: Step | None = None
    """The best verified checkpoint ever seen in the logdir."""
    best_reached_step: Step | None = None
    without_progress: Whole = 0
    """Counted launches since the last progress that are known to have made none."""
    backoffs: Whole = 0
    """Waits since the last progress, each up to twice as long as the one before."""
    failures: tuple[Failure, ...] = ()
    """The newest identical failures since the last progress."""
    counted_at: tuple[Number, ...] = ()
    """Wall times of counted restarts since the last progress, within the last hour."""
    launched_at: Number | None = None
    """When the launch under way began; None between launches. The next restarter knows by it of a launch whose
    restarter died with it."""
    boot: Text | None = None
    """Of the machine that it began on."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do after a launch."""

    action: Literal["restart", "end"]
    reason: str
    """One sentence for people."""
    status: int = 0
    """With ``end``: the restarter's own exit status."""
    signal: int | None = None
    """With ``end``: the signal to end by instead."""
    delay_secs: float = 0.0
    counted: bool = False
    progress: bool | None = None
    """Whether the launch made progress; None where that is not known."""
    by_counts: bool = False
    """With ``end``: whether the counts decided it, which the next restarter goes on with."""


def reset(state: RestartState) -> RestartState:
    """Return a state with all counts at zero. The number of launches, and how far the run ever was, stay."""
    return replace(state, without_progress=0, backoffs=0, failures=(), counted_at=())


def next_step(decision: Decision, cause: Cause | None, state_path: str) -> str:
    """Return what to do after an end that is none of the program's own, for people; empty where there is nothing to do.

    Args:
        cause: of the last launch.
    """
    own = decision.status not in (NO_PROGRESS_STATUS, SPENT_STATUS)
    if decision.action != "end" or own or decision.signal is not None:
        return ""
    if not decision.by_counts:
        return "Repair the cause, then give the same command"
    repair = {
        "preempted": "Find what sends SIGTERM to the program (a scheduler, a limit of time or memory)",
        "requested": f"Find why the program ends with status {AGAIN_STATUS} (start me again) and gets no further",
    }.get(cause or "", "Repair the cause")
    return (
        f"{repair}, then give the same command with --reset; without it the counts go on ({state_path}), and one more "
        "launch without progress ends it"
    )


def made_progress(state: RestartState, launch: EndedLaunch) -> bool | None:
    """Say whether a launch got the run further than it ever was; None where that cannot be known."""
    if launch.saved_step is not None and _is_above(launch.saved_step, state.best_saved_step):
        return True
    if not launch.is_known:
        return None
    if launch.saved_step is not None or state.best_saved_step is not None:
        return False
    if launch.reached_step is None:
        return False
    return _is_above(launch.reached_step, state.best_reached_step)


def decide(state: RestartState, launch: EndedLaunch, limits: Limits, *, chance: float) -> tuple[RestartState, Decision]:
    """Return what to do after a launch, and the state to keep.

    Args:
        state: the one from the launch before.
        launch: the one that has ended; ``state.attempt`` counts it already.
        limits: when to give up.
        chance: a random number from 0 to 1, for the wait's jitter.
    """
    progress = made_progress(state, launch)
    state = _updated(state, launch, progress)
    final = _final(launch, limits)
    if final is None and launch.cause in OTHERS_DECIDED and (progress or launch.is_machine_lost):
        final = Decision(action="restart", reason="not counted")
    if final is None and launch.cause == "in_use":
        found = _HOLDER.search(launch.end.stderr)
        state, wait_secs = _backed_off(state, limits, chance)
        text = f"waiting until it is free: in use by {'another process' if found is None else found[1]}"
        final = Decision(action="restart", reason=text, delay_secs=wait_secs)
    if final is None:
        state, final = _counted(state, launch, limits, progress, chance)
    return state, replace(final, progress=progress)


def _updated(state: RestartState, launch: EndedLaunch, progress: bool | None) -> RestartState:
    state = replace(
        state,
        best_saved_step=highest(state.best_saved_step, launch.saved_step),
        best_reached_step=highest(state.best_reached_step, launch.reached_step),
    )
    return reset(state) if progress else state


def _final(launch: EndedLaunch, limits: Limits) -> Decision | None:
    """Return the end of it, where the launch itself decides that."""
    status, failure = launch.end.exit_code, launch.failure
    if launch.cause == "stopped":
        # A wrapper around a training that the signal stopped may end with status 0, as ``| tee`` does.
        killed = signal.SIGTERM if status == 0 and launch.was_stopped else launch.end.signal
        return Decision(action="end", reason="asked to stop", status=status or 0, signal=killed)
    if launch.cause == "completed":
        return Decision(action="end", reason="completed")
    if launch.cause == "refused" or (status is not None and status in limits.never):
        return _end(NEVER_STATUS, f"the program ended with status {status}: never restart")
    if launch.cause == "not_started":
        return _end(NEVER_STATUS, "the program cannot be run")
    if launch.has_stepped:
        return None
    if status == USAGE_STATUS:
        return _end(NEVER_STATUS, "the program ended with status 2 before its first step: wrong arguments")
    if launch.cause == "error" and failure is not None and failure.type in _PERMANENT:
        return _end(NEVER_STATUS, f"{failure.type} before the first step")
    return None


def _counted(
    state: RestartState, launch: EndedLaunch, limits: Limits, progress: bool | None, chance: float
) -> tuple[RestartState, Decision]:
    if progress is False:
        state = replace(state, without_progress=state.without_progress + 1)
    if launch.cause not in OTHERS_DECIDED:
        state = replace(state, failures=_alike(state.failures, launch.failure))
    recent = tuple(at for at in state.counted_at if launch.ended_at - HOUR_SECS < at <= launch.ended_at)
    state = replace(state, counted_at=recent)
    if launch.cause not in OTHERS_DECIDED and len(state.failures) >= limits.identical_limit:
        last = state.failures[-1]
        where = f" at {last.where}" if last.where else ""
        step = "" if last.step is None else f", step {last.step:,}"
        text = f"{counted(len(state.failures), 'identical failure')}: {last.type}{where}{step}"
        return state, _end(NO_PROGRESS_STATUS, text, by_counts=True)
    if state.without_progress >= limits.no_progress_limit:
        text = f"{counted(state.without_progress, 'launch')} without progress"
        return state, _end(NO_PROGRESS_STATUS, text, by_counts=True)
    if len(recent) >= limits.restarts_per_hour:
        return state, _end(SPENT_STATUS, f"{len(recent) + 1} restarts within an hour", by_counts=True)
    state, wait_secs = _backed_off(replace(state, counted_at=(*recent, launch.ended_at)), limits, chance)
    reason = {True: "progress", False: "no progress", None: "progress unknown"}[progress]
    return state, Decision(action="restart", reason=reason, delay_secs=wait_secs, counted=True)


def _backed_off(state: RestartState, limits: Limits, chance: float) -> tuple[RestartState, float]:
    """Return the state after one more wait, and the seconds to wait."""
    most_secs = min(limits.max_backoff_secs, limits.backoff_secs * 2.0 ** min(state.backoffs, 32))
    return replace(state, backoffs=state.backoffs + 1), most_secs * chance


def _alike(failures: Sequence[Failure], new: Failure | None) -> tuple[Failure, ...]:
    """Return the newest failures that are the same as the new one, it included."""
    if new is None:
        return ()
    return (*failures, new) if failures and failures[-1].is_same(new) else (new,)


def _end(status: int, reason: str, *, by_counts: bool = False) -> Decision:
    return Decision(action="end", reason=reason, status=status, by_counts=by_counts)


def _is_above(step: int, best: int | None) -> bool:
    return best is None or step > best


def highest(first: int | None, second: int | None) -> int | None:
    """Return the higher of two steps; None where neither is known."""
    return max((step for step in (first, second) if step is not None), default=None)
