"""A training of any framework, supervised: `supervise`, and what its checkpoints hold.

api        `supervise`                  state         what a checkpoint holds, and whether a resume was exact
run        one session of it            tree          state trees, copied and written
saver      its checkpoints              random_state  the random states of the process
ending     how the end of one differs    in_loop       what the loops of the adapters have in common
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.training.api import supervise
    from supervisor_core.training.run import Run
    from supervisor_core.training.state import Exactness

__all__ = ["Exactness", "Run", "supervise"]

__getattr__, __dir__ = lazy_names(
    __name__, {"training.api": "supervise", "training.run": "Run", "training.state": "Exactness"}
)
