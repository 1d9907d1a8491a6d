"""What decides whether a Trainer's resume is exact: what its checkpoints do not hold, and what has to be the same."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import IterableDataset
from transformers import TrainerControl

from supervisor_core.torch.tensors import KINDS, random_sources
from supervisor_core.training import random_state
from supervisor_core.training.state import digest
from supervisor_core.training.tree import copy_tree

SKIPS_NOTHING = "ignore_data_skip is set: after a resume the epoch's data begin at their start."
ONLY_MODEL = "save_only_model is set: optimizer, scheduler and random states are not saved."
DRAWS = "The data draw random numbers when a batch is made: those of the first batches after a resume are others."
STREAM = "The dataset is a stream: whether it yields the same samples again is not known."
CALLBACKS = "The state of {} is not restored: set restore_callback_states_from_checkpoint=True."

NO_EVALUATION = "At the stop an evaluation was due and was left out: the random numbers that it draws were not drawn."


def limits(args: Any, state: Any, loader: Any) -> tuple[str, ...]:
    """Return what the Trainer's checkpoints do not bring back: sentences.

    Reads the dataset's first sample to see whether it draws random numbers; the random states are set back.
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
    """Return whether making a batch changes a random state of this process."""
    before = random_state.capture(random_sources())
    try:
        with suppress(Exception):  # the Trainer raises it, too, with more to say
            sample = dataset[0]
            if collate is not None:
                collate([sample])
        return _digest(random_state.capture(random_sources())) != _digest(before)
    finally:
        random_state.restore(random_sources(), before)


def _digest(states: Any) -> str:
    return digest(copy_tree(states, KINDS))
