"""`UnsavedOptimizers`: optimizers and schedulers that are seen to work, and whose state no checkpoint has.

`OptimizerSteps` counts the steps of the optimizers that were given; this sees those of all others in the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from supervisor_core.torch.loop_frame import LoopFrame

STEPS = (
    "The optimizer {} makes steps, and its state is not captured. Give it to supervised(), or keep it in a variable "
    "and add it to state."
)
SCHEDULED = (
    "A scheduler changes the learning rate of {}, and its state is not captured. Give it to supervised(), or keep it "
    "in a variable and add it to state."
)
AHEAD = (
    "The loop was asked for a second batch before the first had made a step or gradients: if batches are fetched "
    "ahead, those are left out after a resume. Ask for each batch when the one before is done."
)
THREAD = (
    "The loop is iterated in another thread than that of the optimizer's steps: batches that are fetched ahead are "
    "left out after a resume. Iterate it in the thread that trains."
)


class UnsavedOptimizers:
    """Sees the first step of each optimizer in this process, from `start` to `close`.

    Args:
        captured: the objects that checkpoints have.
    """

    def __init__(self, captured: Iterable[Any]) -> None:
        self._captured = [item for item in captured if item is not None]
        self._optimizers = [item for item in self._captured if isinstance(item, torch.optim.Optimizer)]
        self._frame: LoopFrame | None = None
        self._found: dict[str, Any] = {}
        self._has_stepped = False
        self._handle: Any = None

    def start(self, frame: LoopFrame) -> None:
        """Begin, in the thread that iterates the loop."""
        self._frame = frame
        thread, seen, captured = threading.get_ident(), set[int](), {id(item) for item in self._optimizers}

        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if id(optimizer) in seen:
                return
            seen.add(id(optimizer))
            self._has_stepped = True
            if threading.get_ident() != thread:
                self._found[THREAD] = None
            elif id(optimizer) not in captured:
                self._found[STEPS.format(type(optimizer).__name__)] = optimizer

        self._handle = register_optimizer_step_post_hook(stepped)

    def first_ended(self) -> None:
        """The loop is asked for its second batch."""
        parts = [part for item in self._optimizers for group in item.param_groups for part in group["params"]]
        if parts and not self._has_stepped and all(part.grad is None for part in parts):
            self._found[AHEAD] = None

    def close(self) -> None:
        """End it."""
        if self._handle is not None:
            self._handle.remove()

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint does not capture: sentences."""
        frame = self._frame
        if frame is None:
            return ()
        steps = [
            text
            for text, optimizer in self._found.items()
            if optimizer is None or not (optimizer in frame.known or frame.names(optimizer))
        ]
        for item in self._optimizers:
            marked = any(hasattr(item.step, name) for name in ("_wrapped_by_lr_sched", "_with_counter"))
            if marked and not (frame.names(item) or any(_schedules(part, item) for part in self._captured)):
                steps.append(SCHEDULED.format(type(item).__name__))
        return tuple(steps)


def _schedules(value: Any, optimizer: Any, depth: int = 2) -> bool:
    """Return whether an object is, or holds, a scheduler of an optimizer."""
    if value is optimizer or isinstance(value, torch.nn.Module):
        return False
    if getattr(value, "optimizer", None) is optimizer:
        return True
    if isinstance(value, dict):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        parts = (getattr(value, name, None) for name in ("scheduler", "schedulers", "_schedulers"))
    return depth > 0 and any(part is not None and _schedules(part, optimizer, depth - 1) for part in parts)
