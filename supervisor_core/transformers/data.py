"""What decides whether a Trainer's resume is exact: what its checkpoints do not hold, and what has to be the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler
from transformers import TrainerControl

from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.torch.position import samples_of
from supervisor_core.torch.tensors import model_facts, model_limits, random_sources, unwrapped
from supervisor_core.torch.workers import SOURCES, process_states
from supervisor_core.training import random_state
from supervisor_core.training.position import FRAMEWORKS, EpochLength, is_known_loader
from supervisor_core.training.ranks import NUMBER

SKIPS_NOTHING = "ignore_data_skip is set: after a resume the epoch's data begin at their start."
ONLY_MODEL = "save_only_model is set: optimizer, scheduler and random states are not saved."
DRAWS = "The data draw random numbers when a batch is made: those of the first batches after a resume are others."
UNKNOWN = (
    "Random numbers were drawn in the training: whether the data drew them is not known. If they did, those of the "
    "first batches after a resume are others."
)
STREAM = "The dataset is a stream: whether it yields the same samples again is not known."
SAMPLER = "The sampler is a {}: whether the order of the data is the same again is not known."
LOADER = "The loader ({}) yields batches in a way of its own, which the Trainer leaves out when it skips batches."
DISPATCH = "Rank 0 hands out the batches (dispatch_batches): after a resume others may come, with other random numbers."
EVALUATION_WORKERS = (
    "dataloader_persistent_workers is set: the workers of the evaluation draw a random number when they start, after a "
    "resume once more."
)
CALLBACKS = "The state of {} is not restored: set restore_callback_states_from_checkpoint=True."

DOUBTS: tuple[tuple[str, ...], ...] = ((), (UNKNOWN,), (DRAWS,))
"""What is said of data that do not draw, that may, and that do."""

PROBED = 32
"""Samples that are read at a session's start to see whether they draw random numbers."""
NO_EVALUATION = "At the stop an evaluation was due and was left out: the random numbers that it draws were not drawn."


FIRST = 100
"""Batches that are looked at one by one."""
EVERY = 1000
"""Steps between two looks after them."""

_Source = Callable[[], object]
"""Returns a random state, to be compared."""


class DrawWatch:
    """Sees whether making a batch changes a random state of this process: Python's, NumPy's or PyTorch's.

    The Trainer makes the batches of a step between the end of the step before and its own beginning, where nothing else
    draws, but for an evaluation and the begin of an epoch. The first `FIRST` batches are looked at one by one. Then
    each state that nothing has changed so far is compared every `EVERY` steps, and at each save: where it is still the
    same, no batch in between has drawn from it. One that the training itself changes is looked at with each batch. So
    is one that has changed between two looks: whether the data did is not known until the next change is seen.
    """

    def __init__(self) -> None:
        self.found = False
        """Whether a batch did."""
        self.unknown: set[_Source] = set()
        """The states that have changed, and it is not known whether for a batch."""
        self.skips = 0
        """How many steps may end before `begin` has to be called again; the caller counts them."""
        self.before: dict[_Source, object] | None = None
        """The states before the batches that are being made; None where they are not looked at."""
        self._after: dict[_Source, object] = {}
        """The states after the last batches, of those that are looked at with each."""
        self._still: dict[_Source, object] = {}
        """The states at the last look, of the others."""
        self._watched = set(SOURCES)
        self._shared: set[_Source] = set()
        """Those from which the training draws, too."""
        self._batches = 0
        self._steps = 0
        """Since the last look."""

    @property
    def doubt(self) -> int:
        """Whether the data draw, as an index into `DOUBTS`."""
        return 2 if self.found else 1 if self.unknown else 0

    def begin(self) -> None:
        """A step has ended: the next batches are about to be made."""
        if self.found:
            self.skips = sys.maxsize
            return
        now = {source: source() for source in self._watched}
        self._shared |= {source for source, state in self._after.items() if now.get(source, state) != state}
        self.unknown -= self._shared
        self.before, self._after = now or None, {}
        self._batches += bool(now)
        if self._batches == FIRST and len(self._watched) == len(SOURCES):
            self._watched = set(self._shared)
            self._steps = EVERY
        self._steps += 1 if self._watched else EVERY
        if self._steps >= EVERY:
            self.compare()
        self.skips = 0 if self._watched else EVERY - 1

    def end(self) -> None:
        """They are made; called where `before` is not None."""
        before, self.before = self.before or {}, None
        after = {source: source() for source in before}
        self.found = self.found or after != before
        self._after = {} if self.skips else after  # what changes them until the next look may be a batch

    def compare(self) -> None:
        """Compare the states that are not looked at with each batch with those of the last look."""
        if self.found:
            return
        self._steps = 0
        now = {source: source() for source in SOURCES if source not in self._watched}
        changed = {source for source, state in now.items() if self._still.get(source, state) != state}
        self._still = now
        self.unknown |= changed
        self._watched |= changed
        if changed:
            self.skips = 0

    def close(self) -> None:
        """Something else is about to draw, as an evaluation does: look before, and begin again after it."""
        self.compare()
        self.reset()

    def reset(self) -> None:
        """Something else may have drawn since the last look, or is about to."""
        self.before, self._after, self._still = None, {}, {}
        self.skips, self._steps = 0, EVERY


class EpochSteps:
    """Where the present epoch began, and how long epochs are, in steps; see `EpochLength`.

    Args:
        saved: that of the restored checkpoint; None for a new run.
        facts: what this training has: with another batch size, epochs have another length.
    """

    def __init__(self, saved: Manifest | None = None, facts: Mapping[str, str] | None = None) -> None:
        self._length = EpochLength("Use a dataset with indices, whose position the Trainer restores.", "steps")
        self._began: int | None = None
        self._resumed_at = 0
        if saved is not None and facts is not None:
            is_same = all(saved.facts.get(name) == facts.get(name) for name in DECIDES_LENGTH)
            self._length.resume(saved.counters.get(WHOLE) if is_same else None)
            self._began = saved.counters.get(BEGAN)

    def counters(self, epoch: float) -> dict[str, int]:
        """Return the counters of a checkpoint: epochs done, and what there is of these; at an epoch's end its begin is
        that of no epoch under way."""
        found = {BEGAN: None if epoch.is_integer() else self._began, WHOLE: self._length.whole}
        return {"epoch": int(epoch), **{name: value for name, value in found.items() if value is not None}}

    def begin(self, step: int) -> None:
        """An epoch begins, or is gone on with."""
        self._began, self._resumed_at = step if self._began is None else self._began, step

    def end(self, state: Any, control: Any, loader: Any) -> str | None:
        """It ends. Return what is to be said; see `EpochLength.ended`. One that the Trainer's limit or a callback has
        stopped is not whole; without any sample the Trainer stops by itself."""
        step, began = state.global_step, self._began
        self._began = None
        if began is None or control.should_epoch_stop or (control.should_training_stop and step > self._resumed_at):
            return None
        dataset = getattr(loader, "dataset", None)
        return self._length.ended(int(state.epoch or 0), step - began, loader if dataset is None else dataset)


DECIDES_LENGTH = ("batch size", "number of accumulated batches", NUMBER)
"""Names of facts."""
BEGAN, WHOLE = "epoch_began", "epoch_steps"
"""The counters of a checkpoint that have the step at which its epoch began, and the steps of the first whole epoch."""


def limits(args: Any, state: Any, loader: Any, model: Any) -> tuple[str, ...]:
    """Return what the Trainer's checkpoints do not bring back: sentences.

    Reads some of the dataset's samples to see whether one draws random numbers; the random states are set back.
    """
    found = []
    if args.ignore_data_skip:
        found.append(SKIPS_NOTHING)
    if args.save_only_model:
        found.append(ONLY_MODEL)
    if args.dataloader_persistent_workers and args.dataloader_num_workers and args.eval_strategy != "no":
        found.append(EVALUATION_WORKERS)
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, IterableDataset):
        found.append(STREAM)
    elif dataset is not None and _draws(dataset, getattr(loader, "collate_fn", None)):
        found.append(DRAWS)
    batches, sampler = samplers_of(loader)
    if batches is not None and type(batches) is not BatchSampler:
        found.append(SAMPLER.format(type(batches).__name__))
    elif not (sampler is None or type(sampler) is SequentialSampler or hasattr(sampler, "set_epoch")):
        found.append(SAMPLER.format(type(sampler).__name__))
    if loader is not None and not is_known_loader(loader, FRAMEWORKS | {"accelerate"}):
        found.append(LOADER.format(type(loader).__name__))
    if args.world_size > 1 and type(loader).__name__ == "DataLoaderDispatcher":
        found.append(DISPATCH)
    if not getattr(args, "restore_callback_states_from_checkpoint", False):
        stateful = {name for name in state.stateful_callbacks if name != TrainerControl.__name__}
        if stateful:
            found.append(CALLBACKS.format(", ".join(sorted(stateful))))
    if model is not None and args.ddp_broadcast_buffers is False:
        found += model_limits(args.world_size, model)
    return tuple(found)


def start_workers_unseen(loader: Any) -> None:
    """Let persistent workers that start after a resume take their seed from a generator of their own: in the training
    that goes on they have started before, and draw no random number."""
    loader = getattr(loader, "base_dataloader", loader)  # accelerate's wraps one
    if getattr(loader, "persistent_workers", False) and loader.generator is None:
        loader.generator = torch.Generator()


def samplers_of(loader: Any) -> tuple[Any, Any]:
    """Return what makes the batches, and what draws the order of the data; None if absent."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None, None
    found = getattr(loader, "batch_sampler", None)
    while (inner := getattr(found, "batch_sampler", None)) is not None:  # accelerate's divide it, or skip
        found = inner
    return found, getattr(loader if found is None else found, "sampler", None)


def facts(args: Any, state: Any, loader: Any, model: Any) -> dict[str, str]:
    """Return what has to be the same for an exact resume."""
    found = {
        "seed": str(args.seed),
        "seed of the data": str(args.data_seed),
        "batch size": str(args.per_device_train_batch_size),
        "number of accumulated batches": str(args.gradient_accumulation_steps),
        "number of steps in all": str(state.max_steps),
        "number of workers": str(args.dataloader_num_workers),
        "number of threads": str(torch.get_num_threads()),
        "mixed precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "none",
        NUMBER: str(args.world_size),
        **model_facts(unwrapped(model), with_dtype=True),
    }
    if (samples := samples_of(loader)) is not None:
        found["number of samples"] = str(samples)
    return found


def _draws(dataset: Any, collate: Any) -> bool:
    """Return whether making a batch of one of some samples, from first to last, changes a random state."""
    states, before = random_state.capture(random_sources()), process_states()
    last = len(dataset) - 1 if hasattr(dataset, "__len__") else 0
    try:
        with suppress(Exception):  # the Trainer raises it, too, with more to say
            for index in sorted({number * last // (PROBED - 1) for number in range(PROBED)}):
                sample = dataset[index]
                if collate is not None:
                    collate([sample])
                if process_states() != before:
                    break
        return process_states() != before
    finally:
        random_state.restore(random_sources(), states)
