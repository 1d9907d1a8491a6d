"""What the variables around a loop have that a checkpoint of it does not: `LoopFrame`.

A training that keeps something in a variable (a batch fetched ahead, a hidden state, a generator of its own) goes on
otherwise after a resume. The variables of the function with the loop, and of its module, are looked at before the first
step and after it. What is kept elsewhere, as in an object's attributes, is not seen.
"""

from __future__ import annotations

import dis
import inspect
import io
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import FrameType, GeneratorType
from typing import Any

import torch

from supervisor_core.training.state import access

CARRIED = (
    "The first step has put another tensor into {}: if a step uses what the step before has left there, as a batch "
    "fetched ahead or a hidden state, it is not captured. Fetch the batch in the step that uses it, or keep the tensor "
    "in a dict that is in state."
)
GENERATOR = 'The random generator {0} is not captured. Add it to state: state={{"{0}": {0}}}.'
ITERATOR = (
    "The position of the iterator {0} is not captured, if the training takes its batches from it. Give its loader to "
    "supervised(), or let the number of the step decide the batch."
)


MOST_PARTS = 8
"""So many parts of a list or dict are looked at."""


class LoopFrame:
    """See the module's docstring. It holds no frame, and what is in one until the first step has ended.

    Args:
        frame: what asks for the first step.
        captured: the objects that checkpoints have.
        has_iterators: also name iterators, where the loop's own data are not known.
    """

    def __init__(self, frame: FrameType | None, captured: Iterable[Any], *, has_iterators: bool) -> None:
        known = {id(item) for item in (*captured, torch.default_generator)}
        self._tensors: dict[str, Any] = {}
        self._generators: dict[str, tuple[Any, str]] = {}
        limits = []
        for name, value in _variables(frame):
            if id(value) in known:
                continue
            if _has_array(value):
                self._tensors[name] = value
            elif _is_generator(value):
                self._generators[name] = value, _state_of(value)
            elif has_iterators and _is_iterator(value):
                limits.append(ITERATOR.format(name))
        self.limits: tuple[str, ...] = tuple(limits)
        """What a checkpoint does not capture: sentences."""

    def step_ended(self, frame: FrameType | None) -> None:
        """The first step has ended; called once.

        Args:
            frame: what asks for the second step.
        """
        present = dict(_variables(frame))
        changed = [
            name for name, before in self._tensors.items() if _has_array(now := present.get(name)) and now is not before
        ]
        drawn = [name for name, (generator, state) in self._generators.items() if _state_of(generator) != state]
        carried = (CARRIED.format(", ".join(sorted(changed))),) if changed else ()
        self.limits = (*self.limits, *map(GENERATOR.format, sorted(drawn)), *carried)
        self._tensors, self._generators = {}, {}


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, and the one behind it where a generator, as of a progress bar, stands between loop and body."""
    while frame is not None:
        yield frame
        frame = frame.f_back if frame.f_code.co_flags & inspect.CO_GENERATOR else None


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a loop and its module, but for those that the loop sets itself with each batch."""
    found: dict[str, Any] = {}
    set_here: set[str] = set()
    for each in _frames(frame):
        found = {**each.f_globals, **_locals_of(each), **found}
        set_here |= _targets(each)
    yield from ((name, value) for name, value in found.items() if name not in set_here)


def _targets(frame: FrameType) -> set[str]:
    """Return the names that a frame sets next, to what it now asks for: those behind ``for``."""
    found: set[str] = set()
    for step in dis.get_instructions(frame.f_code):
        if step.offset <= frame.f_lasti:
            continue
        if step.opname.startswith("STORE_FAST_LOAD"):
            return {*found, step.argval[0]}
        if step.opname.startswith(("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")):
            found |= {step.argval} if isinstance(step.argval, str) else set(step.argval)
        elif not step.opname.startswith(("UNPACK_", "EXTENDED_ARG", "NOP", "SWAP", "COPY")):
            break
    return found


def _locals_of(frame: FrameType) -> dict[str, Any]:
    variables = frame.f_locals
    found = dict(variables)
    if sys.version_info < (3, 13) and variables is not frame.f_globals and isinstance(variables, dict):
        variables.clear()  # a copy that the frame would keep, with the tensors in it; the variables are elsewhere
    return found


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, torch.Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def _has_array(value: Any) -> bool:
    """Return whether a value is a tensor, or a batch of some."""
    if isinstance(value, Mapping):
        value = tuple(islice(value.values(), MOST_PARTS))
    if isinstance(value, (list, tuple)):
        return any(map(_is_array, value[:MOST_PARTS]))
    return _is_array(value)


def _is_generator(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if numpy is not None:
        kinds = (*kinds, numpy.random.Generator, numpy.random.RandomState)
    return isinstance(value, kinds) and not isinstance(value, random.SystemRandom)


def _is_iterator(value: Any) -> bool:
    if isinstance(value, GeneratorType) and (value.gi_frame is None or value.gi_running):
        return False  # it is over, or it is the loop's own
    return isinstance(value, Iterator) and not isinstance(value, io.IOBase)


def _state_of(generator: Any) -> str:
    state = access("", generator).get()
    return repr(state.tolist() if isinstance(state, torch.Tensor) else state)
