"""`LoaderPosition`: where a training stands in its data: epoch, batch, and how to come back to it exactly.

What a loader yields in an epoch depends on the random states at the epoch's start: the sampler's seed, and the seed of
the workers, are drawn then. So these states are kept with the position. A resume sets them, starts the epoch again,
leaves out the batches that were consumed, and then sets the random states of the save (`TrainingState`).

    torchdata's StatefulDataLoader, or another loader with ``state_dict``    its own position is loaded
    a dataset with indices, no worker processes     the sampler's indices are drawn again, no batch is loaded
    with worker processes, and ``replay=False``     the same; what the dataset draws in the workers is not the same
    any other, and with ``replay=True``             the batches are loaded again, and dropped
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from supervisor_core.training import random_state
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


class LoaderPosition:
    """The position of a training in its loader's data, over all epochs.

    Args:
        loader: the loader.
        sources: returns the random sources of this process.
        replay: load the consumed batches again on a resume, whatever the loader.
        ranks: how many processes share the data.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        sources: Callable[[], tuple[RandomSource, ...]],
        *,
        replay: bool = False,
        ranks: int = 1,
    ) -> None:
        self._loader = loader
        self._ranks = ranks
        self._sources = sources
        self._replay = replay
        self.epoch = 0
        self.batch = 0
        """Batches consumed in this epoch."""
        self._start: dict[str, Any] | None = None
        self._loaded: dict[str, Any] | None = None
        self._is_stateful = callable(getattr(loader, "state_dict", None)) and callable(
            getattr(loader, "load_state_dict", None)
        )

    @property
    def limits(self) -> tuple[str, ...]:
        """What a resume cannot bring back: sentences."""
        if self._is_stateful:
            draws_unseen = getattr(self._loader, "num_workers", 0) and not hasattr(
                getattr(self._loader, "dataset", None), "state_dict"
            )
            return (WORKERS_BEGIN,) if draws_unseen else ()
        if not isinstance(self._loader, DataLoader):
            return ()
        if self._loader.persistent_workers:
            return (WORKERS_STAY,)
        return (WORKERS_DRAW,) if self._loader.num_workers and not self._replays else ()

    @property
    def _replays(self) -> bool:
        loader = self._loader
        if self._replay or self._is_stateful or not isinstance(loader, DataLoader):
            return True
        return isinstance(loader.dataset, IterableDataset)

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        state: dict[str, Any] = {"epoch": self.epoch, "batch": self.batch, "start": self._start}
        if self._ranks > 1:
            state["ranks"] = self._ranks
        if self._is_stateful:
            state["loader"] = self._loader.state_dict()  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position with the next `batches`.

        That of another number of ranks becomes the one before which the same number of samples was consumed, or fewer.
        """
        if (ranks := int(state.get("ranks", 1))) != self._ranks:
            state = {**state, "batch": int(state["batch"]) * ranks // self._ranks, "loader": None}
        self.epoch, self.batch, self._start = int(state["epoch"]), int(state["batch"]), state["start"]
        self._loaded = state
        if self._is_stateful and state.get("loader") is not None:
            self._loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]  # before iter()

    def batches(self) -> Iterator[Any]:
        """Yield the batches that are left of the present epoch, after a restore those after the position."""
        loaded, self._loaded = self._loaded, None
        if loaded is None or loaded["start"] is None:
            self._begin_epoch()
            yield from self._loader
        elif self._is_stateful and loaded.get("loader") is not None:
            yield from self._loader
        else:
            present = random_state.capture(self._sources())
            random_state.restore(self._sources(), loaded["start"]["random"])
            self._set_generators(loaded["start"])
            iterator = self._after(int(loaded["batch"]))
            random_state.restore(self._sources(), present)
            yield from iterator

    def next_epoch(self) -> None:
        """The present epoch is over."""
        self.epoch, self.batch, self._start = self.epoch + 1, 0, None

    def _begin_epoch(self) -> None:
        for sampler in self._samplers():
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(self.epoch)
        self._start = {
            "random": random_state.capture(self._sources()),
            "generators": [generator.get_state() for generator in self._generators()],
        }
        if getattr(self._loader, "persistent_workers", False) and getattr(self._loader, "_iterator", None) is not None:
            # A new iterator draws a seed for its workers, one that is kept does not; a resume makes a new one.
            torch.empty((), dtype=torch.int64).random_(generator=getattr(self._loader, "generator", None))

    def _set_generators(self, start: dict[str, Any]) -> None:
        for sampler in self._samplers():
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(self.epoch)
        for generator, state in zip(self._generators(), start["generators"], strict=False):
            generator.set_state(state)

    def _samplers(self) -> list[Any]:
        loader = self._loader
        found = [getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
        found += [getattr(item, "sampler", None) for item in found]
        return [item for number, item in enumerate(found) if item is not None and item not in found[:number]]

    def _generators(self) -> list[torch.Generator]:
        found = [getattr(self._loader, "generator", None)]
        found += [getattr(sampler, "generator", None) for sampler in self._samplers()]
        return [
            item
            for number, item in enumerate(found)
            if isinstance(item, torch.Generator) and item not in found[:number]
        ]

    def _after(self, count: int) -> Iterator[Any]:
        """Return the iterator of an epoch after its first batches, with everything drawn that they had drawn."""
        loader = self._loader
        if self._replays or not isinstance(loader, DataLoader):
            iterator = iter(loader)
            for _ in islice(iterator, count):
                pass
            return iterator
        skipping = _Skipping(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler, count)
        iterator = iter(_copy_with(loader, skipping))
        skipping.draw()
        return iterator


class _Skipping:
    """A sampler, of indices or of batches of them, without its first items."""

    def __init__(self, inner: Iterable[Any], count: int) -> None:
        self._inner = inner
        self._count = count
        self._iterator: Iterator[Any] | None = None

    def draw(self) -> None:
        """Draw the items that are left out, and what the sampler draws for all of them."""
        if self._iterator is None:
            self._iterator = iter(self._inner)
            for _ in islice(self._iterator, self._count):
                pass

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
