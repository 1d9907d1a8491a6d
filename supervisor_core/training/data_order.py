"""Which loaders of PyTorch yield the same batches again from the same random states, and what is said of the others.

Known by the packages that they come from, without importing one: a subclass with an ``__iter__`` of its own, and a
sampler of the program's own, may keep anything from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

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
