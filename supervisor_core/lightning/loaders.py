"""The training's loaders, wrapped: each batch that Lightning fetches passes here, and so does the moment before.

Before a batch is fetched everything that belongs to the one before it has ended: its step, the hooks, a validation.
That is where a training is saved and restored. Lightning begins a pass over its loaders more than once before it
fetches a batch, so a pass draws nothing until then.

It fetches one batch ahead of a loader without a length, to know which one is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from supervisor_core.torch.position import LoaderPosition
from supervisor_core.torch.tensors import model_facts, random_sources
from supervisor_core.training.objects import Part
from supervisor_core.training.position import FitNumber
from supervisor_core.training.ranks import NUMBER

AHEAD = (
    "The loader has no length, so Lightning fetches one batch ahead: if the data draw random numbers, those of the "
    "first batch after a resume are others."
)
SEVERAL_AHEAD = "There are several loaders, and one has no length: how many batches are consumed is not known."

_OWN = frozenset({"_inner", "_watch", "is_exact", "position", "resume"})


class SupervisedLoader:
    """A loader, of any kind, with its position. What else it has is the loader's own.

    Args:
        loader: the loader.
        watch: called before each fetch with the pass that fetches; returns whether it is one of the training.
        replay: see `LoaderPosition`.
        ranks: how many processes share the data.
    """

    _inner: Any
    _watch: Callable[[Pass], bool]
    is_exact: bool
    """Whether it has a length, so that Lightning fetches nothing ahead."""
    position: LoaderPosition
    resume: dict[str, Any] | None
    """The position at which the next pass begins; None for the start of the data."""

    def __init__(self, loader: Any, watch: Callable[[Pass], bool], *, replay: bool, ranks: int = 1) -> None:
        self._inner = loader
        self._watch = watch
        self.is_exact = is_exact = _has_length(loader)  # otherwise its own state is one batch ahead
        self.position = LoaderPosition(
            loader, random_sources, replay=replay, ranks=ranks, own_state=is_exact, sets_epoch=False
        )
        self.resume = None

    def __iter__(self) -> Iterator[Any]:
        return Pass(self)

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    def state(self) -> dict[str, Any]:
        """Return the position."""
        return self.position.state_dict() if self.resume is None else self.resume

    def begin(self, epoch: int) -> str | None:
        """Be at the start of the data; see `LoaderPosition.next_epoch`."""
        said = self.position.next_epoch()
        self.position.epoch = epoch
        return said


class Pass:
    """One pass over a loader.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: SupervisedLoader) -> None:
        self.loader = loader
        self.fetched = 0
        """Calls so far."""
        self.is_at_start = False
        """Whether the position is at the start of this pass."""
        self.counts = False
        """Whether a batch is consumed when it is fetched; where not, the training counts."""
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        is_training = self.loader._watch(self)
        self.fetched += 1
        if self._iterator is None:
            self._iterator = self.loader.position.batches() if is_training else iter(self.loader._inner)
        is_ahead = is_training and self.fetched > 1 and not self.loader.is_exact  # the first draws for the whole pass
        batch = self.loader.position.draws.fetch(self._iterator) if is_ahead else next(self._iterator)
        if self.counts:
            self.loader.position.batch += 1
        return batch


class LoaderStates(Part):
    """The positions of a training in its data: which ``fit`` of the program, and where each loader stands.

    Args:
        fit: which one it is.
        loaders: returns the loaders, in their order.
        epoch: returns the number of epochs done.
        notify: says something of the run.
        ranks: how many processes share the data.
    """

    def __init__(
        self,
        fit: FitNumber,
        loaders: Callable[[], list[SupervisedLoader]],
        epoch: Callable[[], int],
        notify: Callable[[str], object],
        ranks: int = 1,
    ) -> None:
        self._notify = notify
        self._fit = fit
        self._loaders = loaders
        self._epoch = epoch
        self._ranks = ranks
        self._loaded: dict[str, Any] | None = None
        self._saved_ranks = ranks

    @property
    def limits(self) -> tuple[str, ...]:
        """What a resume cannot bring back: sentences."""
        loaders = self._loaders()
        found = [text for loader in loaders for text in loader.position.limits]
        if not all(loader.is_exact for loader in loaders):
            if len(loaders) > 1:
                found.append(SEVERAL_AHEAD)
            elif loaders[0].position.draws.here is not False:
                found.append(AHEAD)
        return tuple(dict.fromkeys(found))

    def probe(self) -> Any:
        """See `Part.probe`."""
        return [loader.position.probe() for loader in self._loaders()]

    def state_dict(self) -> dict[str, Any]:
        """Return the positions; those that were loaded until `set_positions`."""
        if self._loaded is not None:
            return self._loaded
        return {"fit": self._fit.number, "loaders": [loader.state() for loader in self._loaders()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take positions, if they are of this ``fit``."""
        self._loaded = state
        self._saved_ranks = max((int(item.get("ranks", 1)) for item in state["loaders"]), default=self._ranks)

    def present_batch(self, saved: int) -> int:
        """Return after how many batches of an epoch as many samples are consumed as after this many when it was saved,
        or fewer: another number of processes may have shared them."""
        return saved * self._saved_ranks // self._ranks

    def set_positions(self) -> None:
        """Have the next pass over each loader begin where it stood."""
        loaded, self._loaded = self._loaded, None
        if self._fit.is_this and loaded is not None:
            for loader, state in zip(self._loaders(), loaded["loaders"], strict=False):
                loader.resume = state

    def end_epoch(self) -> None:
        """The data of the last epoch are over: a longer training goes on with the next one."""
        for loader in self._loaders():
            self._next(loader)

    def _next(self, loader: SupervisedLoader) -> None:
        if (said := loader.begin(self._epoch())) is not None:
            self._notify(said)

    def before_fetch(self, passes: list[Any], *, ahead: bool) -> None:
        """Have each pass that has fetched nothing begin where it has to.

        Args:
            passes: the training's, in the loaders' order.
            ahead: whether Lightning fetches ahead, and may begin this pass again.
        """
        for item in passes:
            if not isinstance(item, Pass) or item.is_at_start:
                continue
            item.is_at_start = True
            item.counts = not ahead and len(self._loaders()) > 1
            loader = item.loader
            if loader.resume is None:
                self._next(loader)
                continue
            loader.position.load_state_dict(loader.resume)
            if not ahead:
                loader.resume = None


def facts_of(trainer: Any, loaders: list[SupervisedLoader]) -> dict[str, str]:
    """Return what has to be the same for an exact resume."""
    facts = {
        "number of loaders": str(len(loaders)),
        "number of accumulated batches": str(trainer.accumulate_grad_batches),
        "number of batches in an epoch": str(trainer.num_training_batches),
        "number of threads": str(torch.get_num_threads()),
        "precision": str(trainer.precision),
        NUMBER: str(trainer.world_size),
        **model_facts(trainer.lightning_module, with_dtype=True),
    }
    for name, key in (("number of workers", "num_workers"), ("batch size", "batch_size")):
        found = [str(getattr(loader, key)) for loader in loaders if hasattr(loader, key)]
        if found:
            facts[name] = ", ".join(found)
    return facts


def _has_length(loader: Any) -> bool:
    try:
        len(loader)
    except (TypeError, NotImplementedError):
        return False
    return True
