"""`OptimizerSteps`: which of a training's optimizers have made a step in the present pass of its loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

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
