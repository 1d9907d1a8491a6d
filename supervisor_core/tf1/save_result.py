"""`SaveResult`: what happened to one save."""

from __future__ import annotations

import re
from dataclasses import dataclass

from supervisor_core.errors import DamagedCheckpointError
from supervisor_core.events.telemetry import Trigger
from supervisor_core.runtime.coordinator import text_of

_AT_NODE = re.compile(r"^Node: '[^']*'\n(.+)$", re.MULTILINE)
"""Where ``Session.run`` hides what went wrong, between the stack of the node's making and the node."""


@dataclass(frozen=True, kw_only=True)
class SaveResult:
    """What happened to one save. The fields are those of `telemetry.CheckpointRecord`, and the exception."""

    trigger: Trigger
    path: str | None = None
    step: int | None = None
    bytes: int | None = None
    secs: float = 0.0
    blocked_secs: float = 0.0
    consistent: bool | None = None
    verified: bool | None = None
    error: str | None = None
    cause: Exception | None = None
    """The exception of a save that failed; None for a good one, and for one that was refused."""
    skipped: bool = False
    """Whether nothing was written because this moment was on disk already."""


@dataclass
class Attempt:
    """A save under way: what is known of it so far."""

    path: str | None = None
    step: int | None = None
    bytes: int | None = None
    blocked_secs: float = 0.0
    consistent: bool | None = None
    verified: bool | None = None
    error: str | None = None
    cause: Exception | None = None
    skipped: bool = False

    def failed(self, error: Exception) -> None:
        """Record that nothing came of it."""
        self.path = self.bytes = self.consistent = None
        self.verified = False if isinstance(error, DamagedCheckpointError) else None
        self.error = f"{type(error).__name__}: {_words(error)}"
        self.cause = error


def _words(error: Exception) -> str:
    """The one line of an error's text that says what went wrong."""
    text = text_of(error)
    found = _AT_NODE.search(text)
    return found.group(1) if found else text.partition("\n")[0]
