"""`OptimizerSteps`: which of a training's optimizers have made a step in the present pass of its loop."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from supervisor_core.training.values import Values

PENDING = (
    "It was saved with gradients of {} that no step of it has used: they are not captured. If its next step uses them, "
    "let it make its step in each pass of the loop."
)


class OptimizerSteps:
    """See the module's docstring. A pass in which one of them makes a step is a step of the training.

    Args:
        optimizers: the optimizers, by name; those that do not say when they make a step are left out.
    """

    def __init__(self, optimizers: Mapping[str, Any]) -> None:
        self._optimizers = {name: item for name, item in optimizers.items() if hasattr(item, "register_step_post_hook")}
        self._hooks: list[Any] = []
        self._left: dict[str, Any] = {}
        self.are_seen = bool(self._optimizers)
        """Whether there is one that says when it makes a step."""
        self.made = 0
        """A bit for each optimizer that has made a step in this pass. Set it to 0 when a pass begins."""

    def begin(self) -> None:
        """Listen to the optimizers."""
        several = len(self._optimizers) > 1
        for number, (name, optimizer) in enumerate(self._optimizers.items()):
            note = partial(self._note_of_several, 1 << number, name) if several else self._note
            self._hooks.append(optimizer.register_step_post_hook(note))

    def made_before(self) -> None:
        """The optimizers have made steps in an earlier session: PyTorch has no reason to warn that a scheduler's step
        comes before the first one of its optimizer."""
        for optimizer in self._optimizers.values():
            optimizer._opt_called = True

    def end(self) -> None:
        """Listen no more."""
        while self._hooks:
            self._hooks.pop().remove()

    @property
    def has_gradients(self) -> bool:
        """Whether there are gradients, used or not."""
        return any(part.grad is not None for optimizer in self._optimizers.values() for part in _trained(optimizer))

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences. One optimizer alone has a step in each."""
        if len(self._optimizers) < 2:
            return ()
        items = enumerate(self._optimizers.items())
        return tuple(
            PENDING.format(name)
            for number, (name, optimizer) in items
            if not self.made >> number & 1 and _is_pending(optimizer, self._left.get(name))
        )

    def _note(self, *_: Any) -> None:
        self.made = 1

    def _note_of_several(self, bit: int, name: str, optimizer: Any, *_: Any) -> None:
        self.made |= bit
        self._left[name] = _mark(optimizer)


def _trained(optimizer: Any) -> Iterator[Any]:
    return (part for group in optimizer.param_groups for part in group["params"])


def _mark(optimizer: Any) -> Any:
    """Return what differs when gradients were added since: those of the first parameter that has one."""
    gradient = next((part.grad for part in _trained(optimizer) if part.grad is not None), None)
    return None if gradient is None else (id(gradient), gradient._version)


def _is_pending(optimizer: Any, left: Any) -> bool:
    """Return whether there are gradients that were not there after the optimizer's last step."""
    present = _mark(optimizer)
    if present is None or present == left:
        return False
    return any(part.grad is not None and bool(part.grad.any()) for part in _trained(optimizer))


STEPS = (
    "The optimizer {} makes steps, and its state is not captured. Give it to supervised(), or keep it in a variable "
    "and add it to state."
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
        self._optimizers = [item for item in captured if isinstance(item, torch.optim.Optimizer)]
        self._values: Values | None = None
        self._found: dict[str, Any] = {}
        self._has_stepped = False
        self._handle: Any = None

    def start(self, values: Values) -> None:
        """Begin, in the thread that iterates the loop."""
        self._values = values
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
        values = self._values
        if values is None:
            return ()
        return tuple(
            text
            for text, optimizer in self._found.items()
            if optimizer is None or not (optimizer in values.known or values.names(optimizer))
        )
