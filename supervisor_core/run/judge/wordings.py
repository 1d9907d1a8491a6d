"""`WORDINGS`: what is said of each thing that may happen to a run, in each form in which it is said.

Findings, messages, sentences about several runs, the restarter's journal: all take their words from here, so that a
wording is changed in this file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The forms of one thing. In braces stands what is only known when it is said."""

    text: str = ""
    """The finding."""
    past: str = ""
    """What happened to one run, after its name: where and why follow."""
    ended: str = ""
    """What follows that once the run went on."""
    lasts: str = ""
    """What follows that else."""
    several: str = ""
    """What several runs did, after their number."""
    again: str = ""
    """What one run does once it is over."""
    several_again: str = ""
    """What several did once it was over."""
    still: str = ""
    """What those are to which it lasts."""


RECOMPUTED = ", {steps} recomputed"
DOWN_AGAIN = "{run} went down {count} times within {span}"


def _end(past: str, several: str, text: str = "", again: str = "") -> Wording:
    """Return the forms of an end after which the run may be started again."""
    ended, lasts = "; restarted after {after}", "; not restarted"
    return Wording(text=text, past=past, ended=ended, lasts=lasts, several=several, again=again, still="still down")


WORDINGS: Mapping[str, Wording] = {
    "lost": _end("lost", "were lost", again="runs again"),
    "lost/gone": Wording(text="{who} is gone without a record of its end: it was killed, or it crashed."),
    "lost/silent": Wording(
        text="{who} gives no sign of life: it was killed, is suspended, or its machine is down."
    ),
    "lost/suspended": Wording(text="{who} is suspended: a signal has stopped it, or it is frozen."),
    "lost/hung": Wording(text="it had made no progress{how}"),
    "lost/unsaved": Wording(
        text="Until then checkpoints could not be saved{long} ({count} saves failed in a row): {why}"
    ),
    "lost/unwritten": Wording(text="Until then it could not write its events: {why}"),
    "lost/nan": Wording(text="The loss was NaN or infinite{since}."),
    "failed": _end("failed", "failed", "The training has failed: {why}", "runs again"),
    "failed/given_up": Wording(text=" tb-supervisor does not start it again: {why}"),
    "oom": _end("OOM-killed", "were OOM-killed"),
    "hang": _end("hung and was killed", "hung and were killed"),
    "signal": _end("stopped by a signal", "were stopped by a signal"),
    "down": _end("", "went down"),
    "stalled": Wording(
        text="No progress",
        past="made no progress", lasts="; none since", several="stalled", still="still stalled",
        again="makes progress again", several_again="made progress again",
    ),
    "stalled/blocked": Wording(text="No progress: {blocked}, no thread can run Python"),
    "saves_failing": Wording(
        text="Checkpoints cannot be saved: {why}",
        past="could not save ({saves} failed)", ended="; saved again after {after}", lasts="; none has succeeded since",
        several="began to fail to save", still="still failing to save",
        again="saves again", several_again="saved again",
    ),
    "saves_failing/cost": Wording(text="{count} saves have failed in a row."),
    "events_failing": Wording(
        text="The training cannot write its events; what is shown of it may be old: {why}",
        several="began to fail to write events", still="still failing to write events", again="writes events again",
    ),
    "silence": Wording(past="did not run", several="were halted"),
    "recovery_loop": Wording(
        text="TensorFlow's session was lost {count} times within {window}. Last: {why}"
    ),
    "recovery": Wording(
        past="lost TensorFlow's session", ended="; continued after {after}", several="lost TensorFlow's session",
    ),
    "loss_not_finite": Wording(
        text="The loss is NaN or infinite{since}.",
        past="the loss is not finite", several="had a loss that became NaN or infinite",
        again="the loss is finite again",
    ),
    "unreachable": Wording(
        text="The run's directory is gone or cannot be listed: {why}",
        several="went out of reach", still="still out of reach", again="its directory can be read again",
    ),
    "changes": Wording(text="What is said of this changes too often to be repeated: {most} times today."),
    "read_error": Wording(text="Not all of the run can be read; what is shown may be old or incomplete: {why}"),
    "clock_skew": Wording(
        text="The clock of {host} is {difference} this machine's. The times of the run are by that clock."
    ),
    "copy": Wording(text="A copy of {original}: its newest session runs, or ran, there."),
    "checkpoint_damaged": Wording(text="The newest checkpoint is {how}: {why} {which}."),
    "checkpoint_overdue": Wording(
        text="The newest checkpoint is older than {intervals} checkpoint intervals of {interval}."
    ),
    "checkpoint_overdue/failed": Wording(text="A save has failed, and none has succeeded since: {why}"),
    "disk_low": Wording(
        text="The disk of the run's directory has room for less than {saves} more checkpoints.",
        several="ran short of disk",
    ),
    "slow": Wording(text="The training is slow: {recent} steps/s, {usual} before.", several="became slow"),
    "worker_lost": Wording(text="{number} lost or failed: {which}.", several="lost a worker"),
    "worker_stuck": Wording(text="{number} making no progress: {which}."),
    "straggler": Wording(text="{who} is slow: {own} for a step, the others {usual}."),
    "straggler/waited_for": Wording(text="{who} is slow: the other processes wait for it in each step."),
    "thread_down": Wording(text="{threads} failed or late: {which}."),
    "silent": Wording(
        text="No event{rhythm}. {who} exists: it hangs, is suspended, or has no more to do. It records no state.",
        several="fell silent", still="still silent",
    ),
    "silent/suspended": Wording(text="No event{rhythm}. {who} is suspended: a signal has stopped it, or it is frozen."),
    "silent/rhythm": Wording(text="; this run usually writes every {gap}"),
    "over": Wording(text="No event{rhythm}. It is probably over: its program records no end."),
    "over/gone": Wording(text="Over; how it ended is not known: {who} is gone, and its program records no end."),
    "restart_loop": Wording(text="{count} unplanned restarts within {window}.{last}"),
    "not_starting": Wording(text="The program ended {count} times before its first event.{last}"),
    "restarted": Wording(text="{which}: {why}", several="were restarted"),
    "restarted/passed_over": Wording(text="it passed over {name}: {why}"),
    "restarted/no_session": Wording(text="Launch {attempt} has no session yet.{before}"),
    "resumed_not_exactly": Wording(text="The newest session does not continue exactly: {why}{others}"),
    "not_captured": Wording(text="A restart would not continue exactly: {why}{others}"),
    "checkpoint_interval_far": Wording(text="The checkpoint interval is {present}; the best one is {best}."),
    "completed_without_step": Wording(
        text="The newest session was completed without a new step: it began at step {step}, where the training had "
        "ended before."
    ),
    "completed_unsaved": Wording(text="The training was completed, but its last steps could not be saved."),
    "completed": Wording(several="were completed"),
    "stopped": Wording(text="Stopped {by}.", several="were stopped"),
}  # fmt: skip
"""By the kind of finding; ``KIND/CASE`` is what a finding of a kind says in one case."""


BEFORE: Mapping[str, str] = {
    "lost": "the session before was killed, or it crashed",
    "error": "the session before was ended by an error",
    "signal": "the session before was stopped by a signal",
    "requested": "the session before was asked to stop",
    "exhausted": "the session before was out of input",
    "completed": "the session before was completed",
}
"""How the session before a restart ended, by its outcome."""


def say(kind: str, **words: object) -> str:
    """Return the text of a finding.

    Example:
        >>> say("saves_failing", why="No space is left.")
        'Checkpoints cannot be saved: No space is left.'
    """
    return WORDINGS[kind].text.format_map(words)
