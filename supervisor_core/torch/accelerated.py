"""What accelerate's ``prepare()`` wraps: the objects inside, and the position in the data of a prepared loader.

A prepared loader fetches one batch ahead, or one for each rank where rank 0 hands them out. A resume leaves out what
was consumed and fetches the batch that was ahead again: from the random states from which it was fetched before.
accelerate is not imported: what it has wrapped, it has imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from supervisor_core.torch.position import LoaderPosition, batch_size_of, batches_of
from supervisor_core.torch.workers import EVERY, FIRST, process_states
from supervisor_core.training import random_state
from supervisor_core.training.position import all_samplers
from supervisor_core.training.random_state import RandomSource

SKIPS = (
    "The loader leaves out batches (skip_first_batches): supervised() leaves out the consumed ones by itself. Give it "
    "the loader that prepare() has returned."
)
ENGINE = (
    "The optimizer is {}'s: its state is split over the ranks by an engine of its own, which supervised() does not "
    "save. Use accelerate with DistributedDataParallel or FSDP."
)
_ENGINES = {"deepspeed": "DeepSpeed", "megatron_lm": "Megatron-LM"}


def unprepared(value: Any) -> Any:
    """Return the optimizer, scheduler or loader that accelerate has wrapped; anything else as it is."""
    if _is(value, "optimizer", "AcceleratedOptimizer"):
        return value.optimizer
    if _is(value, "scheduler", "AcceleratedScheduler"):
        return value.scheduler
    return value.base_dataloader if is_prepared(value) else value


def refuse_prepared(loader: Any, *optimizers: Any) -> None:
    """Do nothing for what can be supervised.

    Raises:
        ValueError: if accelerate has prepared a loader that leaves out batches, or the optimizer for an engine.
    """
    for optimizer in optimizers:
        engine = type(optimizer).__module__.rpartition(".")[2]
        if _is(optimizer, "optimizer", "AcceleratedOptimizer") and engine in _ENGINES:
            raise ValueError(ENGINE.format(_ENGINES[engine]))
    samplers = all_samplers(unprepared(loader))
    if any(_is(item, "data_loader", "SkipBatchSampler") for item in samplers) or (
        is_prepared(loader) and loader.skip_batches
    ):
        raise ValueError(SKIPS)


def is_prepared(loader: Any) -> bool:
    """Return whether accelerate has wrapped a loader."""
    return _is(loader, "data_loader", "DataLoaderAdapter")


def scaler_of(*optimizers: Any) -> Any:
    """Return the ``GradScaler`` that accelerate has made for its optimizers; None where there is none."""
    prepared = (item for item in optimizers if _is(item, "optimizer", "AcceleratedOptimizer"))
    return next((item.scaler for item in prepared if item.scaler is not None), None)


def _is(value: Any, module: str, name: str) -> bool:
    found = sys.modules.get(f"accelerate.{module}")
    return found is not None and isinstance(value, getattr(found, name))


class PreparedPosition(LoaderPosition):
    """The position in the data of a loader that accelerate has prepared; see `LoaderPosition`.

    Args:
        loader: what ``prepare()`` has returned.
        sources: returns the random sources of this process.
        replay: see `LoaderPosition`.
        ranks: how many processes share the data.
    """

    def __init__(
        self, loader: Any, sources: Callable[[], tuple[RandomSource, ...]], *, replay: bool = False, ranks: int = 1
    ) -> None:
        base, size = unprepared(loader), batch_size_of(loader)
        self._hands_out = _is(loader, "data_loader", "DataLoaderDispatcher")
        divided = loader if self._hands_out else getattr(base, "batch_sampler", None)
        is_split = bool(getattr(divided, "split_batches", False))
        if size is not None and is_split:
            size //= ranks
        super().__init__(base, sources, replay=replay, ranks=ranks, batch_size=size, own_state=False)
        self._prepared = loader
        self._group = ranks if self._hands_out and not is_split else 1
        self._fetches: _Fetches | None = None
        self._begins: dict[str, Any] | None = None
        self._ahead: dict[str, Any] | None = None

    @property
    def _skips(self) -> bool:
        return not self._hands_out and super()._skips  # it completes the last batch with samples of the first one

    def state_dict(self) -> dict[str, Any]:
        """See `LoaderPosition.state_dict`."""
        state = super().state_dict()
        ahead = self._ahead if self._fetches is None else self._fetches.before
        if ahead is not None and self._start is not None:
            state["ahead"] = ahead
        if any(seeds := self._seeds()):
            state["seeds"] = seeds
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `LoaderPosition.load_state_dict`."""
        super().load_state_dict(state)
        is_same = self.batch == state["batch"] and state.get("ranks", 1) == self._ranks
        self._fetches, self._ahead = None, state.get("ahead") if is_same else None
        for sampler, seed in zip(all_samplers(self._loader), state.get("seeds", ()), strict=False):
            if seed is not None:
                sampler.initial_seed = seed

    def let_go(self) -> None:
        """See `LoaderPosition.let_go`."""
        super().let_go()
        self._prepared = self._fetches = None

    def _seeds(self) -> list[int | None]:
        """Return the seeds from which samplers shuffle by the epoch's number; None for others."""
        seeds = (getattr(item, "initial_seed", None) for item in all_samplers(self._loader))
        return [seed if isinstance(seed, int) else None for seed in seeds]

    def batches(self) -> Iterator[Any]:
        """See `LoaderPosition.batches`."""
        try:
            return super().batches()
        finally:
            self._prepared.skip_batches = 0  # they are dropped

    def _begun(self) -> Iterator[Any]:
        """See `LoaderPosition._begun`: what is iterated is the prepared loader, over the one inside."""
        loader, sources = self._prepared, self._sources
        is_resumed = self._loaded is not None and self._loaded["start"] is not None
        count = self.batch if is_resumed else 0
        is_skipped = is_resumed and self._skips
        if is_skipped and 0 <= batches_of(loader) <= count:
            return super()._begun()  # nothing is left of the epoch
        present = random_state.capture(sources()) if is_resumed else None  # before the loader synchronizes the ranks'

        def begin() -> Iterator[Any]:
            loader.base_dataloader = self._loader
            items = super(PreparedPosition, self)._begun()
            fetches = _Fetches(items, sources, self._group, in_process=not getattr(self._loader, "num_workers", 0))
            fetches.draws = self._fetches is not None and self._fetches.draws
            if present is not None:
                random_state.restore(sources(), present)
                fetches.resume(0 if is_skipped else count, self._begins, self._ahead, present)
            self._fetches, self._ahead = fetches, None
            return fetches

        loader.skip_batches = 0 if is_skipped else count
        loader.iteration = self.epoch
        loader.base_dataloader = _StandIn(self._loader, begin)
        return iter(loader)

    def _after(self, count: int) -> Iterator[Any]:
        if self._skips:
            return super()._after(count)
        items = self._iterate(self._loader)
        self._begins = random_state.capture(self._sources())
        return items  # the prepared loader fetches the consumed ones, and drops them


def position_of(
    loader: Any, sources: Callable[[], tuple[RandomSource, ...]], *, replay: bool = False, ranks: int = 1
) -> LoaderPosition:
    """Return the position in the data of any loader, prepared or not; see `LoaderPosition`.

    Raises:
        TypeError: if it cannot be iterated over.
    """
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(f"The loader is a {type(loader).__name__}; expected a DataLoader, or any other iterable.")
    if is_prepared(loader):
        return PreparedPosition(loader, sources, replay=replay, ranks=ranks)
    return LoaderPosition(loader, sources, replay=replay, ranks=ranks, batch_size=batch_size_of(loader))


class _StandIn:
    """Stands in for the loader inside of a prepared one, until an iteration begins.

    Args:
        begin: begins the iteration.
    """

    def __init__(self, loader: Any, begin: Callable[[], Iterator[Any]]) -> None:
        self._loader = loader
        self._begin = begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class _Fetches:
    """What a loader fetches, and the random states before the last fetch: kept once a fetch was seen to draw.

    Args:
        items: the loader's iterator.
        sources: returns the random sources of this process.
        group: how many fetches make one batch of the prepared loader.
        in_process: whether fetches can draw from the random states of this process.
    """

    def __init__(
        self, items: Iterator[Any], sources: Callable[[], tuple[RandomSource, ...]], group: int, *, in_process: bool
    ) -> None:
        self._items = items
        self._sources = sources
        self._group = group
        self._in_process = in_process
        self.draws = False
        """Whether a fetch was seen to draw random numbers in this process."""
        self._number = 0
        self._next_look = 0 if in_process else sys.maxsize
        self._resumed = -1
        self._begins: dict[str, Any] | None = None
        self._ahead: dict[str, Any] | None = None
        self._present: dict[str, Any] = {}
        self._states: tuple[object, ...] = ()
        self.before: dict[str, Any] | None = None
        """The random states before the last batch was fetched; None where no fetch was seen to draw."""

    def resume(
        self, at: int, begins: dict[str, Any] | None, ahead: dict[str, Any] | None, present: dict[str, Any]
    ) -> None:
        """Fetch the batch that was ahead from the states from which it was fetched before.

        Args:
            at: its number; those before it are fetched to be dropped.
            begins: the states of the epoch's start, for those; None where there are none.
            ahead: the states for the batch that was ahead; None where no fetch drew.
            present: the states after it: those of the save.
        """
        self._resumed, self._begins, self._present = at, begins, present
        self._ahead = ahead if begins is None or at else None
        self.draws = self._in_process and ahead is not None
        self._next_look = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        number = self._number
        self._number += 1
        if number < self._next_look:
            return next(self._items)
        return self._look(*divmod(number, self._group))

    def _look(self, batch: int, fetch: int) -> Any:
        """Fetch one part of a batch, and see whether that draws."""
        if not fetch:
            self._set_before(batch)
            self.before = random_state.capture(self._sources()) if self._in_process else None
            self._states = process_states() if self._in_process and not self.draws else ()
        is_last = fetch == self._group - 1
        try:
            return next(self._items)
        except StopIteration:
            is_last = True
            raise
        finally:
            if is_last:
                self._batch_ended(batch)

    def _set_before(self, batch: int) -> None:
        if not batch and self._begins is not None:
            random_state.restore(self._sources(), self._begins)
        if batch == self._resumed and self._ahead is not None:
            random_state.restore(self._sources(), self._ahead)

    def _batch_ended(self, batch: int) -> None:
        self.draws = self.draws or (self._in_process and process_states() != self._states)
        if not self.draws:
            self.before = None
        if batch == self._resumed:
            random_state.restore(self._sources(), self._present)
        if batch < self._resumed or (self._in_process and (self.draws or batch < self._resumed + FIRST)):
            return
        self._next_look = self._number + EVERY * self._group if self._in_process else sys.maxsize
