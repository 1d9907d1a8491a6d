"""`Origin`: where a session's model came from: a checkpoint, its own initialisation, or a cluster that had kept it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.tf1.global_step import read_global_step
from supervisor_core.tf1.restore import Restored


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model came from."""

    restored: Restored | None = None
    """The checkpoint; None where none was read."""
    adopted: bool = False
    """Whether it was found alive in the cluster, and kept."""
    skipped: tuple[Skipped, ...] = ()
    """The damaged checkpoints that were passed over, newest first."""
    step: int | None = None
    """The step at which training goes on; None for a new model, and where nothing counts."""

    @classmethod
    def told_by(cls, maker: Any, sess: Any, global_step: Any) -> Origin:
        """Return what the maker of a session tells; a maker of the program's own tells nothing.

        Args:
            maker: a `SessionManager`, a session creator, or whatever made the session.
            sess: the session.
            global_step: what counts its steps, or None.
        """
        restored: Restored | None = getattr(maker, "restored", None)
        if restored is not None:
            return cls(restored=restored, skipped=restored.skipped, step=restored.step)
        if not getattr(maker, "adopted", False):
            return cls(skipped=getattr(maker, "skipped", ()))
        return cls(adopted=True, step=None if global_step is None else read_global_step(sess, global_step))
