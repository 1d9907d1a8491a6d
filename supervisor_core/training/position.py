"""Where a training stands, as far as the adapters have it in common: in which ``fit`` of the program (`FitNumber`), how
many batches after its last step (`Accumulated`), and whether its epochs are as long as before (`EpochLength`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from supervisor_core.training.objects import Part
from supervisor_core.training.random_state import RandomSource

BATCHES = "number of batches in an epoch"
"""The name of this fact in checkpoints."""

_LOG = logging.getLogger("supervisor_core")

MANY = 1000
NO_STEP = (
    "%d batches, and the optimizer has made no step: nothing is saved after them. If another optimizer makes the "
    "steps, give that one to the training's session."
)
ACCUMULATED = "It was saved with the gradients of {} accumulated batches, which are not captured."


SHORT = (
    "Epoch {} has ended after {} {}, and the first whole one had {}: after a resume the data ({}) leave samples out. {}"
)


class EpochLength:
    """The length of a run's epochs. After a resume one may be shorter than the first whole one, where the data do not
    begin again: the run leaves samples out, and is completed nevertheless.

    Args:
        advice: what to use instead: a sentence.
        unit: what is counted.
    """

    def __init__(self, advice: str, unit: str = "batches") -> None:
        self._advice, self._unit = advice, unit
        self.whole: int | None = None
        """That of the first whole epoch."""
        self._is_resumed = self._is_said = False

    def resume(self, whole: int | None) -> None:
        """A checkpoint was restored, with this length."""
        self.whole, self._is_resumed = whole, True

    def ended(self, epoch: int, length: int, data: Any) -> str | None:
        """An epoch was passed through to its end. Return what is to be said of it, once: a sentence."""
        if self.whole is None:
            self.whole = length
        elif self._is_resumed and not self._is_said and length < self.whole:
            self._is_said = True
            return SHORT.format(epoch, length, self._unit, self.whole, type(data).__name__, self._advice)
        return None


class Stateful(Protocol):
    """An object whose state can be saved and set."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state."""


class FitNumber:
    """Which ``fit`` of the program, of those with the same logdir, is under way; the first one has the number 0.

    A program may call ``fit`` more than once. A checkpoint is of one of them: those before it are over, and those after
    it have not begun. One that an exception has ended is under way: the next one goes on with it.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        """What a checkpoint of it is saved under."""
        self._call = number
        self.has_returned = False
        """Whether it has returned to the program, and not by an exception."""
        self.is_loaded = False
        """Whether a checkpoint was loaded, of whichever ``fit``."""
        self.is_this = False
        """Whether the loaded checkpoint is of this ``fit``."""
        self.is_later = False
        """Whether it is of a later one: this one is over."""

    @classmethod
    def next(cls, logdir: str) -> FitNumber:
        """Return the number of the ``fit`` that begins."""
        directory = os.path.realpath(logdir)
        before = _FITS.get(directory)
        _FITS[directory] = present = cls(0 if before is None else before._call + before.has_returned)
        return present

    def load(self, number: int) -> None:
        """A checkpoint was loaded, of the ``fit`` with this number."""
        self.is_loaded, self.is_this, self.is_later = True, number == self.number, number > self.number
        if self.is_later:
            self.number = number  # nothing is saved under this number in between

    def sources(self, sources: Callable[[], tuple[RandomSource, ...]]) -> tuple[RandomSource, ...]:
        """Return random sources; those that a checkpoint of another ``fit`` does not set."""
        if self.is_loaded and not self.is_this:
            return tuple(source._replace(set=lambda state: None) for source in sources())
        return sources()


_FITS: dict[str, FitNumber] = {}
"""By logdir: the last ``fit`` in this process."""


class OfThisFit(Part):
    """An object whose state is set only where the checkpoint is of the present ``fit``. It is not probed: what it asks
    for its state has not begun yet.

    Args:
        fit: the present one; its checkpoint is loaded before.
    """

    def __init__(self, fit: FitNumber, target: Stateful) -> None:
        self._fit = fit
        self.state_dict = target.state_dict
        self._load = target.load_state_dict

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state, or leave the object as it is."""
        if self._fit.is_this:
            self._load(state)


class Accumulated:
    """The batches since the last step: their gradients are accumulated, and no checkpoint holds those."""

    def __init__(self) -> None:
        self.count = 0
        self._longest = 0

    def add(self) -> None:
        """A batch has ended that made no step."""
        self.count += 1
        if self.count == MANY:
            _LOG.warning(NO_STEP, MANY)

    def stepped(self) -> None:
        """A batch has ended that made a step."""
        self._longest = max(self._longest, self.count)
        self.count = 0

    @property
    def is_longest(self) -> bool:
        """Whether more batches than ever have made no step: training may make none any more."""
        return self.count > self._longest

    @property
    def is_at_boundary(self) -> bool:
        """Whether the training can stop here: no gradients are accumulated, or more batches than ever made no step."""
        return not self.count or self.is_longest

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""
        return (ACCUMULATED.format(self.count),) if self.count else ()


LOADER = (
    "The loader ({}) yields batches in a way of its own: whether they are the same again is not known. Give it "
    "state_dict() and load_state_dict()."
)
SAMPLER = (
    "The sampler ({}) is one of the program's own: whether the order of the data is the same again is not known. Give "
    "it a set_epoch(epoch) that alone decides the order."
)
FRAMEWORKS = frozenset({"torch", "torchdata"})
"""Packages whose loaders and samplers draw their order at an epoch's start, from its number and the random states."""
MOST_SAMPLERS = 16
"""How many samplers inside each other are looked at."""


def all_samplers(loader: Any) -> list[Any]:
    """Return the samplers of a loader, and those inside of them."""
    found: list[Any] = []
    for item in chain([loader], found):  # with those that are found in them
        for name in ("sampler", "batch_sampler"):
            inner = getattr(item, name, None)
            if inner is not None and len(found) < MOST_SAMPLERS and all(inner is not each for each in found):
                found.append(inner)
    return found


def is_known_loader(loader: Any, frameworks: frozenset[str] = FRAMEWORKS) -> bool:
    """Return whether a loader is a sequence, or iterated by methods of some packages, and not by one of its own."""
    if isinstance(loader, Sequence):
        return True
    methods = [getattr(type(loader), name) for name in ("__iter__", "_get_iterator") if hasattr(type(loader), name)]
    return all(_package(method) in frameworks for method in methods)


def unknown_order(loader: Any) -> tuple[str, ...]:
    """Return why it is not known that a loader yields the same batches again: sentences."""
    if not is_known_loader(loader):
        return (LOADER.format(type(loader).__name__),)
    for sampler in all_samplers(loader):
        is_known = _package(type(sampler)) in {*FRAMEWORKS, "accelerate"} or isinstance(sampler, Sequence)
        if not is_known and not callable(getattr(sampler, "set_epoch", None)):
            return (SAMPLER.format(type(sampler).__name__),)
    return ()


def _package(item: Callable[..., Any]) -> str:
    return str(getattr(item, "__module__", "")).partition(".")[0]
