"""`RestarterOptions`: what the command line says. `LaunchFacts`: what is known of one launch; `say` shows it, and
`supervisor_core.restarter.journal` records it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Literal

from supervisor_core.base.options import STOP_TIMEOUT_SECS
from supervisor_core.events.telemetry import DeathRecord
from supervisor_core.notify.settings import NotifySettings
from supervisor_core.process.progress_page import PageReading
from supervisor_core.restarter.failure import signal_name
from supervisor_core.restarter.hang import Hang
from supervisor_core.restarter.hang_stacks import KeptStacks
from supervisor_core.restarter.policy import Decision, EndedLaunch, Limits


@dataclass(frozen=True, kw_only=True)
class RestarterOptions:
    """What the command line says."""

    logdir: str
    command: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    stop_timeout_secs: float = STOP_TIMEOUT_SECS
    """How long a stop of the program may take; a session in it has it from its environment."""
    hang_action: Literal["restart", "observe"] = "restart"
    """What is done about a program that hangs."""
    hang_timeout_secs: float | None = None
    """A program that makes no progress for this long hangs. A session in it has it from its environment, unless its
    own options say otherwise, and shows in its progress page what is in effect. Of a program without a page an event is
    progress. None: what the session has learned; without a page the longest silence that the rhythm of its events files
    allows, at least ten minutes."""
    reset: bool = False
    """Whether the counts of earlier restarters begin at zero."""
    nodes: int = 1
    """On how many machines the program runs, each with a restarter."""
    notify: NotifySettings | None = None
    """Where messages are sent; None: nowhere."""


def say(text: str) -> None:
    """Show what has happened, in one line of the log."""
    logging.getLogger("supervisor_core").info("%s", text)


@dataclass(frozen=True)
class Death:
    """What a killed session of a run has left in memory."""

    page: PageReading
    record: DeathRecord


@dataclass(kw_only=True)
class LaunchFacts(EndedLaunch):
    """One launch, as far as it is known by now."""

    attempt: int
    started_at: float
    directory: str
    """Where the run's events files are."""
    pid: int | None = None
    decision: Decision | None = None
    step: int | None = None
    """The last that it reached."""
    session: str | None = None
    hang: Hang | None = None
    kept_stacks: KeptStacks | None = None
    """The stacks of a hang."""
    deaths: tuple[Death, ...] = ()
    """Of its sessions."""
    node: int = 0
    """On which node it ended first, in a job of several."""

    @property
    def error(self) -> str | None:
        """Its failure for people: the type, and the innermost line of the program."""
        return None if self.failure is None else f"{self.failure}{_place(self)}"


def describe(facts: LaunchFacts) -> str:
    """Return why a launch ended, in half a sentence."""
    return f"{_reason(facts)}{_place(facts)}"


def _place(facts: LaunchFacts) -> str:
    return f" on node {facts.node}" if facts.node else ""


def _reason(facts: LaunchFacts) -> str:
    end, cause = facts.end, facts.cause
    if end.is_unknown:
        return "lost with its restarter" if cause == "lost" else "its machine went away"
    status = f"status {end.exit_code}" if end.signal is None else signal_name(end.signal)
    core = ", core dumped" if end.core else ""
    if cause == "not_started":
        return f"not started: {end.not_started}"
    if cause == "oom":
        return f"OOM-killed ({status})"
    if cause == "hang":
        return f"hung ({facts.hang.text if facts.hang else status})"
    if cause == "preempted":
        return f"preempted ({status})"
    if cause == "error" and facts.failure:
        return f"{facts.failure} ({status})"
    return f"{status}{core}"
