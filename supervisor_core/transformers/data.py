"""What decides whether a Trainer's resume is exact: what its checkpoints do not hold, and what has to be the same."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import IterableDataset
from transformers import TrainerControl

from supervisor_core.torch.tensors import random_sources
from supervisor_core.training import random_state

SKIPS_NOTHING = "ignore_data_skip is set: after a resume the epoch's data begin at their start."
ONLY_MODEL = "save_only_model is set: optimizer, scheduler and random states are not saved."
DRAWS = "The data draw random numbers when a batch is made: those of the first batches after a resume are others."
STREAM = "The dataset is a stream: whether it yields the same samples again is not known."
CALLBACKS = "The state of {} is not restored: set restore_callback_states_from_checkpoint=True."

PROBED = 32
"""Samples that are read at a session's start to see whether they draw random numbers."""
NO_EVALUATION = "At the stop an evaluation was due and was left out: the random numbers that it draws were not drawn."


class DrawWatch:
    """Sees whether making a batch changes a random state of this process.

    The Trainer makes the batches of a step between the end of the step before and its own beginning, where nothing else
    draws, but for an evaluation and the begin of an epoch.
    """

    def __init__(self) -> None:
        self.found = False
        """Whether a batch did."""
        self._before: Any = None
        self._steps = 0

    def begin(self) -> None:
        """The next batches are about to be made. After 100 steps one in 16 is looked at: that takes some 0.1 ms."""
        self._steps += 1
        is_looked_at = self._steps <= 100 or self._steps % 16 == 0
        self._before = _process_states() if is_looked_at and not self.found else None

    def end(self) -> None:
        """They are made."""
        before, self._before = self._before, None
        if before is not None:
            self.found = _process_states() != before

    def forget(self) -> None:
        """Something else may draw before they are made."""
        self._before = None


def limits(args: Any, state: Any, loader: Any) -> tuple[str, ...]:
    """Return what the Trainer's checkpoints do not bring back: sentences.

    Reads some of the dataset's samples to see whether one draws random numbers; the random states are set back.
    """
    found = []
    if args.ignore_data_skip:
        found.append(SKIPS_NOTHING)
    if args.save_only_model:
        found.append(ONLY_MODEL)
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, IterableDataset):
        found.append(STREAM)
    elif dataset is not None and _draws(dataset, getattr(loader, "collate_fn", None)):
        found.append(DRAWS)
    if not getattr(args, "restore_callback_states_from_checkpoint", False):
        stateful = {name for name in state.stateful_callbacks if name != TrainerControl.__name__}
        if stateful:
            found.append(CALLBACKS.format(", ".join(sorted(stateful))))
    return tuple(found)


def facts(args: Any, state: Any, loader: Any) -> dict[str, str]:
    """Return what has to be the same for an exact resume."""
    found = {
        "seed": str(args.seed),
        "seed of the data": str(args.data_seed),
        "batch size": str(args.per_device_train_batch_size),
        "number of accumulated batches": str(args.gradient_accumulation_steps),
        "number of steps in all": str(state.max_steps),
        "number of workers": str(args.dataloader_num_workers),
        "number of threads": str(torch.get_num_threads()),
    }
    dataset = getattr(loader, "dataset", None)
    if dataset is not None and hasattr(dataset, "__len__"):
        found["number of samples"] = str(len(dataset))
    return found


def _draws(dataset: Any, collate: Any) -> bool:
    """Return whether making a batch of one of some samples, from first to last, changes a random state."""
    states, before = random_state.capture(random_sources()), _process_states()
    last = len(dataset) - 1 if hasattr(dataset, "__len__") else 0
    try:
        with suppress(Exception):  # the Trainer raises it, too, with more to say
            for place in sorted({number * last // (PROBED - 1) for number in range(PROBED)}):
                sample = dataset[place]
                if collate is not None:
                    collate([sample])
                if _process_states() != before:
                    break
        return _process_states() != before
    finally:
        random_state.restore(random_sources(), states)


def _process_states() -> tuple[Any, ...]:
    """Return the random states that a dataset may draw from, to be compared."""
    numpy: Any = sys.modules.get("numpy")
    of_numpy = None
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        of_numpy = (name, keys.tobytes(), *rest)
    return random.getstate(), of_numpy, torch.get_rng_state().numpy().tobytes()
