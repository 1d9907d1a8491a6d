"""A training of any framework, supervised: `supervise`, and what its checkpoints hold.

run        one session of it            state         what a checkpoint holds, and whether a resume was exact
saver      its checkpoints              tree          state trees, copied and written
stopping   SIGTERM, Ctrl-C, the end     random_state  the random states of the process
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.training.run import Run, supervise

__all__ = ["Run", "supervise"]

__getattr__, __dir__ = lazy_names(__name__, {"Run": "training.run", "supervise": "training.run"})
