"""`FitPosition`: where a training stands in its data: which ``fit`` of the program, epoch, batch.

``fit`` cannot begin in the middle of an epoch. So the random states at the epoch's start are kept with the position: a
resume sets them, lets ``fit`` begin the epoch again, and loads the batches that were consumed without training on them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from supervisor_core.training import random_state
from supervisor_core.training.objects import Part
from supervisor_core.training.position import FitNumber
from supervisor_core.training.random_state import RandomSource, process_sources


class FitPosition(Part):
    """The position of one ``fit``.

    Args:
        fit: which one it is.
    """

    def __init__(self, fit: FitNumber) -> None:
        self.fit = fit
        self.epoch = 0
        self.batch = 0
        """Batches consumed in this epoch."""
        self.is_evaluating = False
        """Whether the epoch's evaluation had begun."""
        self.is_over = False
        """Whether ``fit`` has ended."""
        self.start: dict[str, Any] | None = None
        self.saved: Mapping[str, Any] | None = None
        """What was loaded."""
        self.is_read = False
        """Whether the resume has been judged."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position; the one that was loaded until `is_read`."""
        if self.saved is not None and not self.is_read:
            return dict(self.saved)
        return {
            "fit": self.fit.number,
            "epoch": self.epoch,
            "batch": self.batch,
            "evaluating": self.is_evaluating,
            "over": self.is_over,
            "start": self.start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position, if it is one of this ``fit``."""
        self.saved = state
        self.fit.load(int(state["fit"]))
        if self.fit.is_this or self.fit.is_later:
            self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
            self.is_evaluating, self.is_over = bool(state["evaluating"]), bool(state["over"])
            self.start = state["start"]

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins: keep the random states that its order is drawn from."""
        self.epoch, self.batch, self.is_evaluating = epoch, 0, False
        self.start = random_state.capture(random_sources())

    def end_epoch(self, *, is_over: bool) -> None:
        """The last epoch has ended, or the training was stopped early."""
        self.epoch, self.batch, self.start, self.is_over = self.epoch + 1, 0, None, is_over


def random_sources() -> tuple[RandomSource, ...]:
    """Return the random sources of this process: python's, numpy's, Keras's own, and PyTorch's on each device."""
    from keras.src.random.seed_generator import global_seed_generator  # of layers and functions without a seed

    before = random.getstate()
    seed = global_seed_generator().state  # the first call draws its seed from python's source
    random.setstate(before)
    sources = [
        *process_sources(),
        RandomSource("keras", lambda: np.array(keras.ops.convert_to_numpy(seed.value)), seed.assign),
    ]
    if "torch" in sys.modules:
        from supervisor_core.torch.tensors import torch_sources

        sources += map(_with_numpy_states, torch_sources())
    return tuple(sources)


def _with_numpy_states(source: RandomSource) -> RandomSource:
    """Return a source of PyTorch's whose states are arrays of numpy, as all of Keras's are."""
    tensor = sys.modules["torch"].tensor
    return RandomSource(source.name, lambda: source.get().numpy(), lambda state: source.set(tensor(state)))
