"""PyTorch's objects in `supervisor_core.supervise`, and what is looked at around its loop over steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from supervisor_core.torch.accelerated import unprepared
from supervisor_core.torch.module_state import NAME, ModuleState
from supervisor_core.torch.optimizer_steps import OptimizerSteps, UnsavedOptimizers
from supervisor_core.torch.tensors import KINDS, model_facts, random_sources, thread_facts, unwrapped
from supervisor_core.training.objects import flattened
from supervisor_core.training.position import Accumulated
from supervisor_core.training.state import TrainingState, without_step
from supervisor_core.training.values import Values


def state_of(objects: Mapping[str, Any]) -> TrainingState:
    """Return the state of a program's objects, as `supervisor_core.supervise` saves it.

    Args:
        objects: the objects by name, and dicts, lists and tuples of them.
    """
    objects, by_step = without_step(objects)
    flat = {name: unwrapped(unprepared(item)) for name, item in flattened(objects).items()}
    models = {name: item for name, item in flat.items() if isinstance(item, torch.nn.Module)}
    modules, kinds = ModuleState(models), (torch.nn.Module, torch.optim.Optimizer)
    return TrainingState(
        objects={**flat, NAME: modules},
        kinds=KINDS,
        sources=random_sources,
        facts=lambda: {**thread_facts(), **model_facts(*models.values(), with_dtype=False)},
        watch=RunWatch(flat),
        looked_into={name: item for name, item in flat.items() if isinstance(item, kinds)},
        given=tuple(objects.values()),
        unwrap=unprepared,
        can_be_read_in_place=True,
        data_by_step=by_step,
    )


class RunWatch(OptimizerSteps):
    """See `supervisor_core.training.step_loop.LoopWatch`. Each pass is a step; after one without a step of an optimizer
    nothing is saved while there are gradients.

    Args:
        objects: the objects that checkpoints have, by name.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        super().__init__({name: item for name, item in objects.items() if isinstance(item, torch.optim.Optimizer)})
        self._unsaved = UnsavedOptimizers(objects.values())
        self._accumulated = Accumulated()

    @property
    def limits(self) -> tuple[str, ...]:
        """See `LoopWatch`."""
        return (*self._accumulated.limits, *super().limits, *self._unsaved.limits)

    @property
    def is_at_boundary(self) -> bool:
        """See `LoopWatch`."""
        return self._accumulated.is_at_boundary

    def loop_begins(self, values: Values) -> None:
        """See `LoopWatch`."""
        self.begin()
        self._unsaved.start(values)

    def pass_ended(self) -> bool:
        """See `LoopWatch`."""
        if self.made or not self.are_seen or not self.has_gradients:
            if self._accumulated.count:
                self._accumulated.stepped()
            return True
        self._accumulated.add()
        return False

    def end(self) -> None:
        """See `LoopWatch`."""
        super().end()
        self._unsaved.close()
