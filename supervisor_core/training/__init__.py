"""A training of any framework, supervised: `supervise`, and what its checkpoints hold."""

from __future__ import annotations

from supervisor_core.training.run import Run, supervise

__all__ = ["Run", "supervise"]
