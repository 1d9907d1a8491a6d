"""`supervise`: a training of any framework as one supervised session of a run.

    import supervisor_core

    with supervisor_core.supervise("/runs/mnist", state={"model": model, "optimizer": optimizer}) as run:
        for step in run.steps(10_000):
            loss = train_step(next(batches))
            run.log("loss", loss)

Checkpoints are in ``<logdir>/checkpoints``; see `supervisor_core.checkpoint.sealed_store`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from supervisor_core.base.options import Options
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import TrainingState


def supervise(
    logdir: str | os.PathLike[str],
    *,
    state: Mapping[str, Any] | TrainingState | None = None,
    options: Options | None = None,
    save_secs: float | None = 600.0,
    save_steps: int | None = None,
    max_to_keep: int | None = 5,
    keep_every_n_hours: float | None = None,
) -> Run:
    """Return one supervised session of a training, to be entered with ``with``.

    Args:
        logdir: the run's directory, on a local or mounted file system; created where it is missing.
        state: what a checkpoint holds, by name: objects with ``state_dict``/``load_state_dict`` or
            ``get_state``/``set_state``, as PyTorch's modules, optimizers, schedulers and scalers; dicts of values; and
            dicts, lists and tuples of objects. What ``torch.compile`` and ``DistributedDataParallel`` wrap around a
            module is not saved. The one named ``"data"`` keeps the position in the training data; or is ``"step"``,
            if the number of the step alone decides the batch. The random states of
            python, numpy and PyTorch, and the step, are captured besides. Default: nothing but those.
        options: see `Options`.
        save_secs: seconds between checkpoints; None saves none by time.
        save_steps: steps between checkpoints; None saves none by steps.
        max_to_keep: the number of checkpoints to keep; None keeps all.
        keep_every_n_hours: keep one checkpoint of each such period besides; None keeps none.

    Raises:
        ValueError: if a save's interval is not positive, or the logdir is not local.
        TypeError: if an object in ``state`` has no such methods.

    Example:
        >>> import tempfile
        >>> class Counter:
        ...     value = 0
        ...     def state_dict(self): return {"value": self.value}
        ...     def load_state_dict(self, state): self.value = state["value"]
        >>> counter = Counter()
        >>> with supervise(tempfile.mkdtemp(), state={"counter": counter}, save_secs=None) as run:
        ...     for step in run.steps(3):
        ...         counter.value += 1
        >>> run.global_step
        3
    """
    if not isinstance(state, TrainingState):
        state = _state_of(state or {})
    policy = SavePolicy(save_secs, save_steps, max_to_keep, keep_every_n_hours)
    return Run(os.fspath(logdir), state=state, options=options or Options(), policy=policy)


def _state_of(objects: Mapping[str, Any]) -> TrainingState:
    """Return the state of a program's objects, with what is PyTorch's where the program has imported it."""
    if "torch" not in sys.modules:
        return TrainingState(objects=objects, can_be_read_in_place=True)
    state: TrainingState = import_module("supervisor_core.torch.run_watch").state_of(objects)  # it stands above this
    return state
