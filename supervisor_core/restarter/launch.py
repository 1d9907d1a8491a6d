"""`LaunchFacts`: what is known of one launch of the program; `Display` shows it, and `Journal` records it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from supervisor_core.log import command_line
from supervisor_core.restarter.child import ChildEnd
from supervisor_core.restarter.failure import signal_name
from supervisor_core.restarter.hang import Hang
from supervisor_core.restarter.hang_stacks import KeptStacks
from supervisor_core.restarter.policy import Cause, Decision


class Display(Protocol):
    """Shows what the restarter does."""

    def line(self, text: str) -> None:
        """Show what has happened, in one line."""

    def waiting(self, text: str, secs: float) -> None:
        """Show for how long the next launch is waited for."""

    def done(self) -> None:
        """Stop showing a wait."""


class Journal(Protocol):
    """Writes launches into the events files."""

    def begun(self, launch: LaunchFacts) -> None:
        """Record that a launch has begun."""

    def ended(self, launch: LaunchFacts) -> None:
        """Record how one has ended, and what was decided."""

    def close(self) -> None:
        """Wait for what is being written, within limits."""


@dataclass(kw_only=True)
class LaunchFacts:
    """One launch, as far as it is known by now."""

    attempt: int
    started_at: float
    directory: str
    """Where the run's events files are."""
    pid: int | None = None
    ended_at: float | None = None
    end: ChildEnd | None = None
    cause: Cause | None = None
    decision: Decision | None = None
    error: str | None = None
    """Of its failure: the type, and the innermost line of the program."""
    step: int | None = None
    saved_step: int | None = None
    session: str | None = None
    hang: Hang | None = None
    kept_stacks: KeptStacks | None = None
    """The stacks of a hang."""

    @property
    def stacks(self) -> str | None:
        """The file with them; None without any."""
        return None if self.kept_stacks is None else self.kept_stacks.path

    @property
    def place(self) -> str | None:
        """The line of the program in them; None where that is not known."""
        return None if self.kept_stacks is None else self.kept_stacks.place


def describe(facts: LaunchFacts) -> str:
    """Return why a launch ended, in half a sentence."""
    end, cause = facts.end, facts.cause
    if end is None:
        return {"lost": "lost with its restarter"}.get(cause or "", "its machine went away")
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
    if cause == "error" and facts.error:
        return f"{facts.error} ({status})"
    return f"{status}{core}"


def command_text(command: Sequence[str]) -> str:
    """Return a command as a shell takes it, cut to 200 characters."""
    text = command_line(*command)
    return text if len(text) <= 200 else text[:197] + "..."
