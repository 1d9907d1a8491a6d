"""`SaveResult`: what became of one save."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_core.errors import DamagedCheckpointError
from supervisor_core.events.telemetry import Trigger


@dataclass(frozen=True, kw_only=True)
class SaveResult:
    """What became of one save. The fields are those of `telemetry.CheckpointRecord`, and the exception."""

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
        """Take note that nothing came of it."""
        self.path = self.bytes = self.consistent = None
        self.verified = False if isinstance(error, DamagedCheckpointError) else None
        self.error = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        self.cause = error
