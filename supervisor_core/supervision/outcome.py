"""`Outcome`: how a session ended."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_core.events.telemetry import StopReason
from supervisor_core.run.model import RunState
from supervisor_core.run.state import STATE_OF_OUTCOME


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a session ended, as the stop record and the lease tell it."""

    reason: StopReason
    error: str | None = None
    signal: str | None = None
    """The signal's name, ``SIGTERM``."""
    final_checkpoint: str | None = None
    final_checkpoint_step: int | None = None

    @property
    def state(self) -> RunState:
        """The state in which the run is afterwards."""
        return STATE_OF_OUTCOME[self.reason]
