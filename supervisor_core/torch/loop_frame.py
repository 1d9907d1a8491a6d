"""What the variables around a loop have that a checkpoint of it does not: `LoopFrame`.

A training that keeps something in a variable (an optimizer that was not given, a batch fetched ahead, a position, a
generator of its own) goes on otherwise after a resume. The variables of the function with the loop, and of its module,
are looked at before the first step and after it, with what the program's own objects and functions among them hold.
"""

from __future__ import annotations

import dis
import functools
import inspect
import io
import math
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import BuiltinMethodType, FrameType, FunctionType, GeneratorType, MethodType, MethodWrapperType
from typing import Any

import torch

from supervisor_core.training.state import access

CARRIED = (
    "The first step has changed the tensors in {}: if a step uses what the step before has left there, as a batch "
    "fetched ahead or a hidden state, it is not captured. Fetch the batch in the step that uses it, or keep the tensor "
    "in a dict that is in state."
)
GENERATOR = 'The random generator {0} is not captured. Add it to state: state={{"{0}": {0}}}.'
HIDDEN = "The random generator in {} is not captured. Keep it in a variable, and add it to state."
ITERATOR = (
    "The position of the iterator {0} is not captured, if the training takes its batches from it. Give its loader to "
    "supervised(), or let the number of the step decide the batch."
)
NUMBER = (
    "The first step has changed the number in {}, which begins again with each session: if the training depends on it, "
    "as on a position, let the number of the step decide, or keep it in a dict that is in state."
)
UNSEEN = "The variable {} cannot be looked at ({}): if the training keeps something in it, it is not captured."
OBJECT = 'The state of {0} is not captured. Add it to state: state={{"{0}": {0}}}.'

MOST_PARTS = 8
"""The most parts of a list or dict, and the most numbers of a tensor, that are looked at."""
MOST_TENSORS = 64
"""The most tensors of a module that are looked at."""
WITHIN = "\0"
"""Stands in a name before what no expression reaches, as a default of a function."""
DEPTH = 2
"""The number of levels of objects within objects that are looked into."""


@dataclass(frozen=True)
class _Part:
    """Something in a variable, and what it was like."""

    value: Any
    mark: Any
    limit: str


class LoopFrame:
    """See the module's docstring. It holds no frame, and what is in one until the first step has ended.

    Args:
        frame: what asks for the first step.
        captured: the objects that checkpoints have.
        is_range: also name iterators and numbers, where the loop's own data are not known.
    """

    def __init__(self, frame: FrameType | None, captured: Iterable[Any], *, is_range: bool) -> None:
        self._known = _Known(captured)
        self._is_range = is_range
        self._before: dict[str, _Part] = {}
        self._unseen: dict[str, str] = {}
        limits = []
        for name, value in self._parts(frame):
            with self._looks_at(name):
                if _is_optimizing(value):
                    limits.append(OBJECT.format(_shown(name)))
                elif is_range and _is_iterator(value):
                    limits.append(ITERATOR.format(_shown(name)))
                elif limit := self._limit(value, is_hidden=WITHIN in name):
                    self._before[name] = _Part(value, self._mark(value), limit)
        self.limits: tuple[str, ...] = (*limits, *self._unseen.values())
        """What a checkpoint does not capture: sentences."""

    def step_ended(self, frame: FrameType | None) -> None:
        """The first step has ended; called once.

        Args:
            frame: what asks for the second step.
        """
        present = dict(self._parts(frame))
        changed: dict[str, list[str]] = {CARRIED: [], NUMBER: []}
        for name, part in self._before.items():
            now = part.value if part.limit in (GENERATOR, HIDDEN, OBJECT) else present.get(name)
            with self._looks_at(name):
                if now is None or (part.limit == CARRIED and not _has_array(now)):
                    continue
                if now is not part.value or self._mark(now) != part.mark:
                    changed.setdefault(part.limit, []).append(_shown(name))
        carried, numbers = changed.pop(CARRIED), changed.pop(NUMBER)
        self.limits = (
            *dict.fromkeys((*self.limits, *self._unseen.values())),
            *(limit.format(name) for limit, names in sorted(changed.items()) for name in sorted(names)),
            *((CARRIED.format(", ".join(sorted(carried))),) if carried else ()),
            *((NUMBER.format(", ".join(sorted(numbers))),) if numbers else ()),
        )
        self._before = {}

    def _parts(self, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
        """Yield the variables, and what they hold, by name; what cannot be looked at ends no training."""
        seen: set[int] = set()
        for name, value in _variables(frame):
            found: list[tuple[str, Any]] = []
            with self._looks_at(name):
                found += self._inside(name, value, DEPTH, seen)
            yield from found

    @contextmanager
    def _looks_at(self, name: str) -> Iterator[None]:
        """Let what a value of the program's own raises be a limit, and not end the training."""
        try:
            yield
        except Exception as error:
            self._unseen[name] = UNSEEN.format(_shown(name), f"{type(error).__name__}: {error}")

    def _inside(self, name: str, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
        is_shared = id(value) in seen and not isinstance(value, (int, float))
        if is_shared or value in self._known:
            return
        seen.add(id(value))
        yield name, value
        if depth:
            for suffix, part in _held(value):
                yield from self._inside(name + suffix, part, depth - 1, seen)

    def _limit(self, value: Any, *, is_hidden: bool) -> str:
        """Return what there is to say where a step changes a value; empty where there is nothing."""
        if isinstance(value, torch.nn.Module):
            return OBJECT
        if _has_array(value):
            return CARRIED
        if _is_generator(value):
            return HIDDEN if is_hidden else GENERATOR
        if self._is_range and isinstance(value, io.IOBase):
            return ITERATOR
        return NUMBER if self._is_range and _has_number(value) else ""

    def _mark(self, value: Any) -> Any:
        """Return what differs when a value has changed."""
        if isinstance(value, torch.nn.Module):
            tensors = (part for part in (*value.parameters(), *value.buffers()) if part not in self._known)
            return [_array_mark(tensor) for tensor in islice(tensors, MOST_TENSORS)]
        if _has_array(value):
            return [_array_mark(part) for part in _few(value) if part not in self._known]
        if _is_generator(value):
            return _state_of(value)
        return _read_bytes(value) if isinstance(value, io.IOBase) else [part for part in _few(value) if _counts(part)]


class _Known:
    """What checkpoints have: `in` tells whether a value is, or is a part of, one of the captured objects."""

    def __init__(self, captured: Iterable[Any]) -> None:
        self._ids = {id(torch.default_generator)}
        self._memory: set[int] = set()
        self._kept: list[Any] = []
        for item in captured:
            self._add(item)

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, torch.nn.Module):
            return False  # some of its tensors may be
        if isinstance(value, torch.optim.Optimizer):
            return bool({id(value), id(value.state)} & self._ids)
        return id(value) in self._ids or _memory_of(value) in self._memory

    def _add(self, item: Any) -> None:
        self._ids.add(id(item))
        if isinstance(item, torch.nn.Module):
            tensors = (*item.parameters(), *item.buffers())
            self._ids |= {id(tensor) for tensor in tensors}
            self._memory |= {_memory_of(tensor) for tensor in tensors} - {0}
        elif isinstance(item, torch.optim.Optimizer):
            self._kept.append(item.state)
            self._ids.add(id(item.state))
        elif isinstance(item, dict):
            self._ids |= {id(part) for part in item.values() if _is_array(part)}
        for part in getattr(item, "_schedulers", ()):
            self._add(part)


def _shown(name: str) -> str:
    """Return a name as it is shown: that of the function, where no expression reaches what is in it."""
    return name.partition(WITHIN)[0]


def _held(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds: what stands behind the value's name, and the part."""
    within: tuple[Any, ...] = ()
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in islice(value.items(), MOST_PARTS) if _matters(part))
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{at}]", part) for at, part in enumerate(value[:MOST_PARTS]) if _matters(part))
    elif isinstance(value, functools.partial):
        within = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, (MethodType, BuiltinMethodType, MethodWrapperType)):
        within = (value.__self__,)
    elif isinstance(value, FunctionType):
        if _is_own(value.__module__):
            within = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *_cells_of(value))
            yield from ((f".{name}", part) for name, part in vars(value).items())
    elif not isinstance(value, type) and _is_own(type(value).__module__):
        of_class = {name: part for name, part in vars(type(value)).items() if _counts(part)}
        attributes = {**of_class, **getattr(value, "__dict__", {})}
        yield from ((f".{name}", part) for name, part in attributes.items() if name not in _OF_MODULES)
    yield from ((f"{WITHIN}{at}", part) for at, part in enumerate(within))


_OF_MODULES = frozenset(vars(torch.nn.Module()))


def _cells_of(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not set yet


def _is_own(module: str | None) -> bool:
    """Return whether a module is the program's own, not one of a package that is installed."""
    name = module or ""
    if name == "__main__":
        return True
    root = name.partition(".")[0]
    if root in sys.stdlib_module_names or root in ("torch", "numpy", "supervisor_core"):
        return False
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    return bool(path) and "site-packages" not in path and "dist-packages" not in path


def _matters(value: Any) -> bool:
    """Return whether a part of a list or dict is looked at by itself."""
    return _is_generator(value) or _is_optimizing(value) or isinstance(value, torch.nn.Module)


def _is_optimizing(value: Any) -> bool:
    """Return whether a value is of a kind that each step needs: an optimizer, a scheduler, a scaler in use."""
    if isinstance(value, torch.amp.GradScaler):
        return bool(value.is_enabled())
    return isinstance(value, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))


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


def _few(value: Any) -> tuple[Any, ...]:
    """Return the first parts of a list or dict; else the value alone."""
    if isinstance(value, dict):
        return tuple(islice(value.values(), MOST_PARTS))
    return tuple(value[:MOST_PARTS]) if isinstance(value, (list, tuple)) else (value,)


def _has_array(value: Any) -> bool:
    """Return whether a value is a tensor, or a batch of some."""
    return any(map(_is_array, _few(value)))


def _has_number(value: Any) -> bool:
    return any(map(_counts, _few(value)))


def _counts(value: Any) -> bool:
    """Return whether a number may be a position or a best value: a whole one, infinity, or a power of ten from 10^6."""
    if isinstance(value, float):
        size = abs(value)
        return math.isinf(value) or (size >= 1e6 and math.log10(size).is_integer())
    return isinstance(value, int) and not isinstance(value, bool)


def _memory_of(value: Any) -> int:
    """Return where a tensor's numbers are; 0 where it has no place of its own."""
    if not isinstance(value, torch.Tensor):
        return 0
    try:
        return int(value.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # of a kind without storage
        return 0


def _array_mark(value: Any) -> Any:
    """Return what differs when a tensor or array is another, or has been changed in place."""
    if not isinstance(value, torch.Tensor):
        return (id(value), repr(value.flat[:MOST_PARTS])) if _is_array(value) else None
    if value.is_inference() or not value.is_contiguous() or value.layout != torch.strided:
        return id(value)
    try:
        first = repr(value.detach().view(-1)[:MOST_PARTS].tolist())
    except (RuntimeError, NotImplementedError):  # of a kind whose numbers cannot be had alone, as a DTensor
        first = ""
    return id(value), value._version, first


def _read_bytes(file: io.IOBase) -> int:
    """Return how far a file was read; -1 where it is written, closed, or cannot tell."""
    try:
        return file.tell() if file.readable() and not file.writable() else -1
    except (OSError, ValueError):
        return -1


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
