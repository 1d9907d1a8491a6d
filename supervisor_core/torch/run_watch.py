"""PyTorch's objects in `supervisor_core.supervise`, and what is looked at around its loop over steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from supervisor_core.torch.accelerated import unprepared
from supervisor_core.torch.loop_frame import LoopFrame
from supervisor_core.torch.module_state import NAME, ModuleState
from supervisor_core.torch.optimizer_steps import OptimizerSteps, UnsavedOptimizers
from supervisor_core.torch.tensors import KINDS, model_facts, random_sources, thread_facts, unwrapped
from supervisor_core.training.objects import flattened
from supervisor_core.training.position import Accumulated
from supervisor_core.training.state import TrainingState, without_step


def state_of(objects: Mapping[str, Any]) -> TrainingState:
    """Return the state of a program's objects, as `supervisor_core.supervise` saves it.

    Args:
        objects: the objects by name, and dicts, lists and tuples of them.
    """
    objects, by_step = without_step(objects)
    flat = {name: unwrapped(unprepared(item)) for name, item in flattened(objects).items()}
    models = {name: item for name, item in flat.items() if isinstance(item, torch.nn.Module)}
    modules = ModuleState(models)
    return TrainingState(
        objects={**flat, NAME: modules},
        kinds=KINDS,
        sources=random_sources,
        facts=lambda: {**thread_facts(), **model_facts(*models.values(), with_dtype=False)},
        watch=RunWatch(flat, objects, modules),
        can_be_read_in_place=True,
        data_by_step=by_step,
    )


class RunWatch(OptimizerSteps):
    """See `supervisor_core.training.step_loop.LoopWatch`. Each pass is a step; after one without a step of an optimizer
    nothing is saved while there are gradients.

    Args:
        objects: the objects that checkpoints have, by name.
        given: what the program has given: objects, and dicts and lists of them.
        modules: what checkpoints have of the models besides.
    """

    def __init__(self, objects: Mapping[str, Any], given: Mapping[str, Any], modules: ModuleState) -> None:
        super().__init__({name: item for name, item in objects.items() if isinstance(item, torch.optim.Optimizer)})
        self._modules = modules
        self._captured = (*objects.values(), *given.values())
        kinds = (torch.nn.Module, torch.optim.Optimizer)
        self._given = {name: item for name, item in objects.items() if isinstance(item, kinds)}
        self._unsaved = UnsavedOptimizers(self._captured)
        self._accumulated = Accumulated()
        self._frame: LoopFrame | None = None
        self._looks = False

    @property
    def sees_data(self) -> bool:
        """See `LoopWatch`."""
        return self._frame is not None

    @property
    def limits(self) -> tuple[str, ...]:
        """See `LoopWatch`."""
        of_frame = () if self._frame is None else self._frame.limits
        return (*self._accumulated.limits, *super().limits, *of_frame, *self._unsaved.limits)

    @property
    def is_at_boundary(self) -> bool:
        """See `LoopWatch`."""
        return self._accumulated.is_at_boundary

    def loop_begins(self, frame: FrameType, *, has_data: bool) -> list[tuple[str, str, str]]:
        """See `LoopWatch`."""
        self.begin()
        self._frame = LoopFrame(frame, self._captured, is_range=not has_data, given=self._given, has_arguments=False)
        self._unsaved.start(self._frame)
        self._looks = True
        self._modules.values_now = self._frame.kept
        return self._frame.differing(self._modules.values_then)

    def pass_ended(self, frame: FrameType, step: int) -> bool:
        """See `LoopWatch`."""
        if self._looks:
            assert self._frame is not None
            self._looks = self._frame.step_ended(frame, step)
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
