"""`Outcome`: how a session ended."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_core.events.telemetry import StopReason


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a session ended, as the stop record and the lease tell it."""

    reason: StopReason
    error: str | None = None
    signal: str | None = None
    """The signal's name, ``SIGTERM``."""
    final_checkpoint: str | None = None
    final_checkpoint_step: int | None = None
