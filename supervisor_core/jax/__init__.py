"""JAX: `supervised` makes a training loop one supervised session of a run.

    from supervisor_core.jax import supervised

    with supervised("/runs/mnist", state={"params": params, "opt_state": opt_state}, data=batches) as run:
        for step in run.steps(10_000):
            run.state, loss = train_step(run.state, next(batches))
            run.log("loss", loss)

Needs the extra ``jax`` (docs/install.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.jax.loop import SupervisedTraining, supervised

__all__ = ["SupervisedTraining", "supervised"]

__getattr__, __dir__ = lazy_names(__name__, {"jax.loop": "SupervisedTraining supervised"})
