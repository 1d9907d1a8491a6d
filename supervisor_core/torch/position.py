"""`LoaderPosition`: where a training stands in its data: epoch, batch, and how to come back to it exactly.

What a loader yields in an epoch depends on the random states at the epoch's start: the sampler's seed, and the seed of
the workers, are drawn then. So these states are kept with the position. A resume sets them, starts the epoch again,
leaves out the batches that were consumed, and then sets the random states of the save (`TrainingState`).

    torchdata's StatefulDataLoader, or another loader with ``state_dict``    its own position is loaded, unless its
                                                    dataset is a stream of Hugging Face's (`_is_own`)
    a dataset with indices, no worker processes     the sampler's indices are drawn again, no batch is loaded
    with worker processes, and ``replay=False``     the same; what the dataset draws in the workers is not the same: it
                                                    is seen whether it draws (`Draws`)
    any other, and with ``replay=True``             the batches are loaded again, and dropped

A subclass of ``DataLoader``, and one with a sampler that is not PyTorch's own, is another one: what it yields is up to
its ``__iter__``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, zip_longest
from typing import Any, TypeGuard

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from supervisor_core.torch.workers import Draws, iterate
from supervisor_core.training import random_state
from supervisor_core.training.objects import Part
from supervisor_core.training.position import BATCHES, EpochLength, all_samplers, is_known_loader, unknown_order
from supervisor_core.training.random_state import RandomSource

WORKERS_DRAW = (
    "Random numbers that the dataset draws in the DataLoader's workers are not captured. If it draws some, use "
    "replay=True."
)


WORKERS_STAY = (
    "Random numbers that the dataset draws in the DataLoader's persistent workers are not captured: they go on from "
    "the epoch before. If it draws some, use persistent_workers=False and replay=True."
)


WORKERS_BEGIN = (
    "Random numbers that the dataset draws in the workers of a loader with its own state_dict are not captured: each "
    "worker begins with its first seed again. If it draws some, use a DataLoader and replay=True."
)


ONCE = (
    "An iterator, as zip(), map() or a generator make it, can be iterated only once: give a DataLoader, a list, or an "
    "object whose __iter__ begins again."
)


EMPTY = f"The loader ({{}}) yields no batch at the start of an epoch. {ONCE}"

PLAIN = "Use a plain DataLoader, or replay=True, which is exact."

STILL_THERE = (
    "The loader ({}) yields no batch at the start of an epoch: after a resume its dataset does not begin again. "
    + PLAIN
)


_SAMPLERS = (
    BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
)  # fmt: skip
"""What they yield depends on the random states at their beginning alone; subclasses may do as they like."""


class LoaderPosition(Part):
    """The position of a training in its loader's data, over all epochs.

    Args:
        sources: returns the random sources of this process.
        replay: load the consumed batches again on a resume, whatever the loader, also one with its own ``state_dict``.
        ranks: how many processes share the data.
        batch_size: samples in a batch of this process. With it the position is one of samples, so that the batch size
            may change; None where it is not known, or the batches are counted elsewhere. A loader with its own
            ``state_dict`` counts in its own way.
        own_state: use the loader's own ``state_dict``, if it has one.
        sets_epoch: tell the samplers the epoch when it begins; False where the framework's loop does that for its own,
            and the program for others.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        sources: Callable[[], tuple[RandomSource, ...]],
        *,
        replay: bool = False,
        ranks: int = 1,
        batch_size: int | None = None,
        own_state: bool = True,
        sets_epoch: bool = True,
    ) -> None:
        self._loader = loader
        self._ranks = ranks
        self._sources = sources
        self._replay = replay
        self._sets_epoch = sets_epoch
        self.epoch = 0
        self.batch = 0
        """Batches consumed in this epoch."""
        self.is_over = False
        """Whether the program has left the epoch's other batches out."""
        self._follows = False
        """Whether the present epoch follows another one, so that until it begins the loader's own state is of that."""
        self._start: dict[str, Any] | None = None
        self._loaded: dict[str, Any] | None = None
        self.draws = Draws(loader)
        """Whether the data are seen to draw random numbers."""
        self._is_stateful = own_state and not replay and _is_own(loader)
        self._length, self._is_resumed = EpochLength(PLAIN), False
        self._batch_size = None if self._is_stateful else batch_size

    @property
    def limits(self) -> tuple[str, ...]:
        """What a resume cannot bring back: sentences."""
        loader: Any = self._loader
        may_draw = getattr(loader, "num_workers", 0) and self.draws.in_workers is not False
        if self._is_stateful:
            return (WORKERS_BEGIN,) if may_draw and not hasattr(getattr(loader, "dataset", None), "state_dict") else ()
        found = list(unknown_order(loader))
        if may_draw and isinstance(loader, DataLoader) and is_known_loader(loader):
            if loader.persistent_workers:
                found.append(WORKERS_STAY)
            elif self._skips and self.batch not in (0, batches_of(loader)):  # an epoch's start draws new seeds
                found.append(WORKERS_DRAW)
        return tuple(found)

    @property
    def _skips(self) -> bool:
        """Whether a resume leaves batches out without loading them."""
        loader: Any = self._loader
        if self._replay or type(loader) is not DataLoader or isinstance(loader.dataset, IterableDataset):
            return False
        return all(
            type(item) in (*_SAMPLERS, list, tuple, range) or type(item).__module__ == "accelerate.data_loader"
            for item in all_samplers(self._loader)
        )

    def probe(self) -> Any:
        """See `Part.probe`. torchdata's loaders are not asked: they begin an iteration to return their state."""
        modules = {kind.__module__.partition(".")[0] for kind in type(self._loader).__mro__}
        if not self._is_stateful or "torchdata" in modules:
            return None
        return self._loader.state_dict()  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        state: dict[str, Any] = {"epoch": self.epoch, "batch": self.batch, "start": self._start}
        if self._ranks > 1:
            state["ranks"] = self._ranks
        if self._batch_size is not None:
            state["batch_size"] = self._batch_size
        if self._is_stateful:
            state["loader"] = self._loader.state_dict()  # type: ignore[attr-defined]
            state["follows"] = self._follows
        if self._start is None or self.is_over:  # what is drawn next is of an epoch that has not begun
            state["generators"] = self._generator_states()
        if self._start is None and not self._sets_epoch:
            state["epochs"] = self._told_epochs()
        if self._length.whole is not None:
            state["whole"] = self._length.whole
        if draws := self.draws.state_dict():
            state["draws"] = draws
        if self.is_over:
            state["over"] = True
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position with the next `batches`.

        That of another number of ranks, or batch size, becomes the one before which the same number of samples was
        consumed, or fewer.

        Raises:
            ValueError: if it is one of a loop over a range.
        """
        if "epoch" not in state:
            raise ValueError(OTHER_LOOP.format("a range", "a loader's batches"))
        self.shift = None
        ranks, size, present = int(state.get("ranks", 1)), state.get("batch_size"), self._batch_size
        sizes = (1, 1) if size is None or present is None else (int(size), present)
        before, now = ranks * sizes[0], self._ranks * sizes[1]
        if ranks != self._ranks or sizes[0] != sizes[1]:
            consumed = int(state["batch"]) * before
            state = {**state, "batch": consumed // now, "loader": None}
            if sizes[0] != sizes[1]:
                self.shift = _shift(min(consumed, self._samples or consumed) - state["batch"] * now)
        self.epoch, self.batch, self._start = int(state["epoch"]), int(state["batch"]), state["start"]
        self._loaded, self.is_over = state, bool(state.get("over"))
        self._length.resume(state.get("whole") if before == now else None)
        self._is_resumed = True
        self._follows = bool(state.get("follows"))
        self.draws.load_state_dict(state.get("draws", {}))
        if self._is_stateful and state.get("loader") is not None:
            self._loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]  # before iter()
            if self.is_over or (self._start is None and self._follows):
                iterate(self._loader)  # what is left of the epoch before: the next iteration is the present one's
        self._set_generators(state.get("generators", ()))

    def batches(self) -> Iterator[Any]:
        """Return the batches that are left of the present epoch, after a restore those after the position. Fetches the
        first one.

        Raises:
            ValueError: if the loader yields nothing, and is not known to be empty.
        """
        if self.is_over:
            self._loaded = None
            return iter(())
        iterator = self._begun()
        first = list(islice(iterator, 1))
        if not first and not self.batch and batches_of(self._loader) != 0:
            text = STILL_THERE if self._is_stateful and self._is_resumed else EMPTY
            raise ValueError(text.format(type(self._loader).__name__))
        return chain(first, iterator)

    def _begun(self) -> Iterator[Any]:
        loaded, self._loaded = self._loaded, None
        if loaded is None or loaded["start"] is None:
            if self._sets_epoch or loaded is not None:
                self._tell((loaded or {}).get("epochs", ()))
            random = random_state.capture(self._sources())
            self._start = {"random": random, "generators": self._generator_states(), "epochs": self._told_epochs()}
            return self._iterate(self._loader)
        present = random_state.capture(self._sources())
        if self._is_stateful and loaded.get("loader") is not None:
            iterator = self._iterate(self._loader)  # torchdata's draws a seed then, as it had done before the save
            random_state.restore(self._sources(), present)
            return iterator
        random_state.restore(self._sources(), loaded["start"]["random"])
        self._tell(loaded["start"].get("epochs", ()))
        self._set_generators(loaded["start"]["generators"])
        iterator = self._after(int(loaded["batch"]))
        random_state.restore(self._sources(), present)
        return iterator

    def next_epoch(self) -> str | None:
        """The present epoch is over; return what is to be said of it. See `EpochLength`."""
        is_whole = self._start is not None and not self.is_over  # else the program has left the rest out
        said = self._length.ended(self.epoch, self.batch, self._loader) if is_whole else None
        self._follows = self._follows or self._start is not None
        self.epoch, self.batch, self._start, self.is_over = self.epoch + 1, 0, None, False
        return said

    def let_go(self) -> None:
        """Hold the loader no more: nothing is saved or iterated any more."""
        self._loader = ()

    @property
    def _samples(self) -> int | None:
        return samples_of(self._loader)

    def _iterate(self, loader: Any) -> Iterator[Any]:
        """Return ``iter(loader)``. Persistent workers are kept: only the first epoch's iterator draws a seed for them.
        Where a resume makes one for a later epoch, a copy of the generator draws it."""
        is_later = self.epoch and getattr(loader, "persistent_workers", False)
        if not is_later or getattr(loader, "_iterator", loader) is not None:
            return iterate(loader)
        given, copy = loader.generator, torch.Generator()
        copy.set_state(torch.get_rng_state() if given is None else given.get_state())
        loader.generator = copy
        try:
            return iterate(loader)
        finally:
            loader.generator = given

    def _listening(self) -> list[Any]:
        return [item for item in all_samplers(self._loader) if callable(getattr(item, "set_epoch", None))]

    def _told_epochs(self) -> list[int | None]:
        """Return what they were told; None where they do not show it."""
        shown = (getattr(item, "epoch", None) for item in self._listening())
        return [epoch if isinstance(epoch, int) else None for epoch in shown]

    def _tell(self, epochs: Sequence[int | None]) -> None:
        """Tell each of them its epoch; the present one where none is given."""
        for sampler, epoch in zip_longest(self._listening(), epochs):
            if sampler is not None:
                sampler.set_epoch(self.epoch if epoch is None else epoch)

    def _generator_states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self.generators()]

    def _set_generators(self, states: Iterable[torch.Tensor]) -> None:
        for generator, state in zip(self.generators(), states, strict=False):
            generator.set_state(state)

    def generators(self) -> list[torch.Generator]:
        """Return the random generators of the loader and its samplers: their states belong to the position."""
        found = [getattr(self._loader, "generator", None)]
        found += [getattr(sampler, "generator", None) for sampler in all_samplers(self._loader)]
        return [
            item
            for number, item in enumerate(found)
            if isinstance(item, torch.Generator) and item not in found[:number]
        ]

    def _after(self, count: int) -> Iterator[Any]:
        """Return the iterator of an epoch after its first batches, with everything drawn that they had drawn."""
        loader = self._loader
        if not self._skips:
            return _without(self._iterate(loader), count)
        assert isinstance(loader, DataLoader)
        skipping = _Skipping(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler, count)
        iterator: Iterator[Any] = self._iterate(_copy_with(loader, skipping))
        skipping.draw()
        return iterator


def _is_own(loader: Any) -> bool:
    """Return whether the position in a loader's data is its own ``state_dict``. A stream of Hugging Face's begins each
    later epoch where a state that was loaded began, so its batches are loaded again instead."""
    kinds = type(getattr(loader, "dataset", None)).__mro__
    is_stream = any(
        kind.__module__.partition(".")[0] == "datasets" and kind.__name__ == "IterableDataset" for kind in kinds
    )
    return not is_stream and all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict"))


def batches_of(loader: Any) -> int:
    """Return the number of batches in an epoch; -1 where it is not known."""
    if not isinstance(getattr(loader, "dataset", None), IterableDataset):  # it warns, once asked, where more come
        with suppress(TypeError, NotImplementedError):
            return len(loader)
    return -1


def samples_of(loader: Any) -> int | None:
    """Return the number of samples in a loader's dataset; None where it is not known."""
    with suppress(Exception):  # accelerate's shard of a stream has a __len__ that fails
        return len(loader.dataset)
    return None


def batch_size_of(loader: Any) -> int | None:
    """Return how many samples are in each batch of a loader; None where that is not known."""
    found = [getattr(item, "batch_size", None) for item in (loader, getattr(loader, "batch_sampler", None))]
    return next((size for size in found if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)


def loader_facts(loader: Any) -> dict[str, str]:
    """Return what of a loader has to be the same for an exact resume."""
    facts = {}
    if hasattr(loader, "num_workers"):
        facts["number of workers"] = str(loader.num_workers)
    if (size := batch_size_of(loader)) is not None or hasattr(loader, "batch_size"):
        facts["batch size"] = str(size)
    if (samples := samples_of(loader)) is not None:
        facts["number of samples"] = str(samples)
    if (batches := batches_of(loader)) >= 0:
        facts[BATCHES] = str(batches)
    return facts


def _shift(repeated: int) -> str:
    if repeated <= 0:
        return "The data go on after the samples that were consumed."
    return f"The data go on before the last consumed samples: about {repeated} of this epoch will repeat."


def _without(items: Iterator[Any], count: int) -> Iterator[Any]:
    """Return what follows the first items. Without any, the first is taken ahead: only then has a sampler drawn.

    Raises:
        ValueError: if nothing comes.
    """
    if not sum(1 for _ in islice(items, count)) and count:
        raise ValueError(EMPTY.format(type(items).__name__))
    return items if count else chain(list(islice(items, 1)), items)


class _Skipping:
    """A sampler, of indices or of batches of them, without its first items."""

    def __init__(self, inner: Iterable[Any], count: int) -> None:
        self._inner = inner
        self._count = count
        self._iterator: Iterator[Any] | None = None

    def draw(self) -> None:
        """Draw the items that are left out, and what the sampler draws for all of them."""
        if self._iterator is None:
            self._iterator = _without(iter(self._inner), self._count)

    def __iter__(self) -> Iterator[Any]:
        self.draw()
        assert self._iterator is not None
        yield from self._iterator


def _copy_with(loader: DataLoader[Any], sampler: Any) -> DataLoader[Any]:
    """Return a loader like this one, with another sampler (of batches, where it makes batches)."""
    names = (
        "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
        "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
    )  # fmt: skip
    options = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
    if not loader.num_workers:
        options.pop("prefetch_factor", None)
        options.pop("multiprocessing_context", None)
    if not options.get("pin_memory_device"):
        options.pop("pin_memory_device", None)
    if loader.batch_sampler is not None:
        return DataLoader(loader.dataset, batch_sampler=sampler, **options)
    return DataLoader(loader.dataset, batch_size=None, sampler=sampler, **options)


OTHER_LOOP = (
    "The checkpoint is of a loop over {}, and this one is over {}. Write the loop as it was when it was saved, or use "
    "another logdir."
)


class RangePosition(Part):
    """See the module's docstring; it has what `LoaderPosition` has for the loop.

    Args:
        steps: the numbers of the steps, one after the other.
    """

    limits: tuple[str, ...] = ()

    def __init__(self, steps: range) -> None:
        self._stop = steps.stop
        self.epoch = 0
        self.batch = steps.start
        """The number of the next step."""
        self.is_over = False

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"next": self.batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position; where the present range begins does not matter.

        Raises:
            ValueError: if it is one of a loader.
        """
        if "next" not in state:
            raise ValueError(OTHER_LOOP.format("a loader's batches", "a range"))
        self.batch = int(state["next"])

    def batches(self) -> range:
        """Return the numbers that are left."""
        return range(self.batch, self._stop)

    def let_go(self) -> None:
        """See `LoaderPosition.let_go`."""

    def generators(self) -> list[Any]:
        """Return none."""
        return []

    def next_epoch(self) -> str | None:
        """The range is over. It is not saved that it is: a later session may have a longer one."""
        self.epoch = 1
        return None


def counts_steps(loader: Any, epochs: int) -> TypeGuard[range]:
    """Return whether a loader is the numbers of the steps: a ``range`` that counts by one, and is passed through once.
    Any other is a sequence like others."""
    return isinstance(loader, range) and loader.step == 1 and loader.start >= 0 and epochs == 1
