"""What the variables around a loop have that a checkpoint of it does not: `LoopFrame`.

A training that keeps something in a variable (an optimizer that was not given, a batch fetched ahead, a position, a
generator of its own) goes on otherwise after a resume. The variables of the program's functions around the loop, and of
their modules, are compared before the first step and after it, with what the program's own objects and functions among
them hold; those that are still the same, at each save. Only states are compared: whether a number is for the log alone
is not known.
"""

from __future__ import annotations

import functools
import gc
import inspect
import io
import math
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import BuiltinMethodType, CellType, FrameType, FunctionType, GeneratorType, MappingProxyType, MethodType
from typing import Any, NamedTuple

import torch

from supervisor_core.torch.accelerated import unprepared
from supervisor_core.torch.workers import comparable_state, generators_within, is_generator
from supervisor_core.training.objects import Environment, Part, is_environment

CARRIED = (
    "A step has changed the tensors in {}: if a later step uses what is left there, as a batch fetched ahead, a hidden "
    "state or a mean, it is not captured. Fetch the batch in the step that uses it, or keep the tensor in a dict that "
    "is in state."
)
GENERATOR = "The random generator in {} is not captured. Keep it in a variable, and add it to state."
ITERATOR = (
    "The position of the iterator {0} is not captured, if the training takes its batches from it. Give its loader to "
    "supervised(), or let the number of the step decide the batch."
)
NUMBER = (
    "The first step has changed the number in {}, which begins again with each session: if the training depends on it, "
    "as on a position, let the number of the step decide, or keep it in a dict that is in state."
)
ENUMERATED = (
    "The numbers of enumerate() around the loop begin again at 0 where an epoch goes on: if more than the log depends "
    "on them, use loop.batch."
)
UNSEEN = "The variable {} cannot be looked at ({}): if the training keeps something in it, it is not captured."
OBJECT = 'The state of {0} is not captured. Add it to state: state={{"{0}": {0}}}.'
_OF_VARIABLES = (CARRIED, NUMBER)
"""What is said of the present value of a variable, and once of all: the others are of the object that it had."""

MOST_PARTS = 8
"""The most parts of a list or dict, and the most numbers of a tensor, that are looked at."""
MOST_TENSORS = 64
"""The most tensors of a module that are looked at."""
WITHIN = "\0"
"""Stands in a name before what no expression reaches, as a default of a function; and before the names of a function
or module around the one with the loop."""
DEPTH = 2
"""The number of levels of objects within objects that are looked into."""


class _Seen(NamedTuple):
    """A value, what there is to say if a step changes it (empty: nothing), and what differs then."""

    value: Any
    limit: str = ""
    mark: Any = None


class LoopFrame:
    """See the module's docstring. It holds no frame, and what is in one until the first step has ended.

    Args:
        frame: what asks for the first step.
        captured: the objects that checkpoints have.
        is_range: also name iterators and numbers, where the loop's own data are not known.
        given: objects that are looked into wherever they are, by name: the model, the loader.
    """

    def __init__(
        self,
        frame: FrameType | None,
        captured: Iterable[Any],
        *,
        is_range: bool,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.known = Known(captured)
        self._given, self._is_range = given, is_range
        self._optimizing: list[Any] = []
        self._unseen: dict[str, str] = {}
        self._found: dict[str, list[str]] = {}
        self._before: dict[str, _Seen] = {}
        self._later: list[tuple[str, _Seen]] = []
        self._are_the_item: set[str] | None = None
        for name, value in self._parts(frame):
            with self._looks_at(name):
                if _is_optimizing(value) or is_environment(value):
                    self._name(OBJECT, name)
                    self._optimizing.append(value)
                elif is_range and _is_iterator(value):
                    self._name(ITERATOR, name)
                elif (seen := self._look(value)).limit:
                    self._before[name] = seen

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint does not capture: sentences. What the first step has left as it was is compared again: a
        mean of the weights may change in some steps only."""
        for name, seen in list(self._later):
            value = seen.value()
            with self._looks_at(name):
                if value is None or self._look(value).mark != seen.mark:
                    self._later.remove((name, seen))
                    if value is not None:
                        self._name(seen.limit, name)
        sentences = []
        for limit, names in self._found.items():
            parts = [", ".join(sorted(names))] if limit in _OF_VARIABLES else names
            sentences += [limit.format(part) for part in parts]
        return (*sentences, *dict.fromkeys(self._unseen.values()))

    def step_ended(self, frame: FrameType | None, item: Any = None) -> bool:
        """A step has ended. Return whether the next one is to be looked at, too.

        Args:
            frame: what asks for the next step.
            item: what the loop has yielded: a number that was it in two steps is the loop's own variable.
        """
        present = dict(self._parts(frame))
        if self._are_the_item is not None:
            for name in self._are_the_item:
                if present.get(name) != item:
                    self._name(NUMBER, name)
            return False
        self._are_the_item = set()
        for name, (value, limit, mark) in sorted(self._before.items()):
            with self._looks_at(name):
                now = self._look(present.get(name) if limit in _OF_VARIABLES else value)
                if now.value is None or (limit == CARRIED != now.limit):
                    continue
                if now.value is not value or now.mark != mark:
                    if type(now.value) is int and now.value == item:
                        self._are_the_item.add(name)
                    else:
                        self._name(limit, name)
                elif limit != NUMBER:
                    looks = map(self._look, _few(value, self.known) if limit == CARRIED else (value,))
                    self._later += [(name, look._replace(value=_weak(look.value))) for look in looks if look.limit]
        self._before = {}
        return bool(self._are_the_item)

    def names(self, optimizer: Any) -> bool:
        """Return whether an optimizer is one of the variables that are named."""
        return any(optimizer is item for item in self._optimizing)

    def _name(self, limit: str, name: str) -> None:
        names, shown = self._found.setdefault(limit, []), _shown(name)
        names += [] if shown in names else [shown]

    def _parts(self, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
        """Yield the variables, and what they hold, by name; what cannot be looked at ends no training."""
        seen: set[int] = set()
        for name, value in (*_variables(frame), *self._given.items()):
            found: list[tuple[str, Any]] = []
            with self._looks_at(name):
                found += self._inside(name, value, DEPTH, seen)
            yield from found
        for name, value in self._given.items():  # a generator deep in a dataset
            for path, part in () if isinstance(value, torch.nn.Module) else generators_within(value):
                if id(part) not in seen and part not in self.known:
                    yield name + path, part

    @contextmanager
    def _looks_at(self, name: str) -> Iterator[None]:
        """Let what a value of the program's own raises be a limit, and not end the training."""
        try:
            yield
        except Exception as error:
            self._unseen[name] = UNSEEN.format(_shown(name), f"{type(error).__name__}: {error}")

    def _inside(self, name: str, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
        value = unprepared(value)
        if (id(value) in seen and not isinstance(value, (int, float))) or value in self.known:
            return
        seen.add(id(value))
        yield name, value
        if depth and not is_environment(value):
            for suffix, part in _held(value):
                yield from self._inside(name + suffix, part, depth - 1, seen)

    def _look(self, value: Any) -> _Seen:
        few = _few(value, self.known)
        if isinstance(value, torch.nn.Module):
            tensors = (part for part in (*value.parameters(), *value.buffers()) if part not in self.known)
            return _Seen(value, OBJECT, [_array_mark(tensor) for tensor in islice(tensors, MOST_TENSORS)])
        if any(map(is_array, few)) or (isinstance(value, (list, deque)) and not value):
            size = len(value) if isinstance(value, _CONTAINERS) else 0  # a list may be filled; a dict may be a cache
            return _Seen(value, CARRIED, (size, [_array_mark(part) for part in few]))
        if is_generator(value):
            return _Seen(value, GENERATOR, comparable_state(value))
        numbers = [part for part in few if _counts(part)] if self._is_range else []
        return _Seen(value, NUMBER, numbers) if numbers else _Seen(value)


class Known:
    """What checkpoints have: `in` tells whether a value is, or is a part of, one of the captured objects."""

    def __init__(self, captured: Iterable[Any]) -> None:
        self._ids: set[Any] = {id(torch.default_generator)}
        self._kept: list[Any] = []  # so that no other object gets their ids
        for item in captured:
            self._add(item)

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, torch.nn.Module):
            return False  # some of its tensors may be
        state = value.state if isinstance(value, torch.optim.Optimizer) else value
        return not self._ids.isdisjoint((id(value), id(state), _memory_of(value)))

    def _add(self, item: Any) -> None:
        if id(item) in self._ids or isinstance(item, (int, float, str, type)):
            return
        self._ids |= {id(item), _memory_of(item)} - {None}
        parts: list[Any] = [*getattr(item, "_schedulers", ())]
        if isinstance(item, torch.nn.Module):
            parts += (*item.parameters(), *item.buffers())
        elif isinstance(item, (torch.optim.Optimizer, Environment)):
            parts.append(item.target if isinstance(item, Environment) else item.state)
            self._kept += parts
        elif type(item) in (dict, list, tuple):
            parts += item.values() if isinstance(item, dict) else item
        elif not isinstance(item, Part) and is_own(type(item).__module__):
            held = getattr(item, "__dict__", {}).values()  # a captured object returns what it has as its state
            parts += (part for part in held if isinstance(part, (torch.nn.Module, torch.Tensor)))
        for part in parts:
            self._add(part)


def asking(*modules: str) -> FrameType | None:
    """Return the frame of the program that asks for something, behind those of these modules and this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in modules:
        frame = frame.f_back
    return frame


def is_enumerated() -> bool:
    """Return whether an ``enumerate`` asks for the present item: one over a generator that is running."""
    objects = gc.get_objects()
    if enumerate not in map(type, objects):  # a look at each object of the process takes 10 ms
        return False
    found = (inner for item in objects if type(item) is enumerate for inner in gc.get_referents(item))
    return any(isinstance(inner, GeneratorType) and inner.gi_running for inner in found)


def is_own(module: str | None) -> bool:
    """Return whether a module is the program's own, not one of a package that is installed."""
    name = module or ""
    if name.partition(".")[0] in (*sys.stdlib_module_names, "torch", "numpy", "supervisor_core"):
        return name == "__main__"
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    return name == "__main__" or (bool(path) and "site-packages" not in path and "dist-packages" not in path)


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor or an array."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, torch.Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def _memory_of(value: Any) -> Any:
    """Return where a tensor's numbers are; None where it has no place of its own."""
    try:
        place = value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0
    except (RuntimeError, NotImplementedError):  # of a kind without storage
        return None
    return ("memory", place) if place else None


def _weak(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


_EMPTY = CellType()


def _held(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds: what stands behind the value's name, and the part."""
    within: tuple[Any, ...] = ()
    attributes: Iterable[tuple[str, Any]] = ()
    if isinstance(value, (dict, list, tuple)):
        for key, part in islice(value.items() if isinstance(value, dict) else enumerate(value), MOST_PARTS):
            if is_generator(part) or _is_optimizing(part) or isinstance(part, torch.nn.Module):
                yield f"[{key!r}]", part
    elif isinstance(value, functools.partial):
        within = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, (MethodType, BuiltinMethodType)) or type(value).__name__ == "method-wrapper":
        within = (value.__self__,)
    elif isinstance(value, torch.nn.Module):
        modules = islice(value.named_modules(prefix=""), MOST_TENSORS)
        own = ((f"{path}." if path else "", module) for path, module in modules if is_own(type(module).__module__))
        attributes = ((path + name, part) for path, module in own for name, part in _attributes(module))
    elif isinstance(value, FunctionType) and is_own(value.__module__):
        cells = (cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY)
        within = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells)
        attributes = vars(value).items()
    elif not isinstance(value, (type, FunctionType)) and is_own(type(value).__module__):
        attributes = _attributes(value)
    yield from ((f".{name}", part) for name, part in attributes)
    yield from ((f"{WITHIN}{at}", part) for at, part in enumerate(within))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object's own attributes, with the numbers that its class has in their places."""
    of_class = {name: part for name, part in vars(type(value)).items() if _counts(part)}
    attributes = {**of_class, **getattr(value, "__dict__", {})}
    yield from ((name, part) for name, part in attributes.items() if name not in _OF_MODULES)


_OF_MODULES = frozenset(vars(torch.nn.Module()))


def _is_optimizing(value: Any) -> bool:
    """Return whether a value is of a kind that each step needs: an optimizer, a scheduler, a scaler in use."""
    if isinstance(value, torch.amp.GradScaler):
        return bool(value.is_enabled())
    return isinstance(value, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of the function with the loop, of the program's functions around it, and of their modules,
    each of these with names of its own; a generator, as of a progress bar, may stand between loop and body."""
    of_functions: list[Mapping[str, Any]] = []
    of_modules: dict[int, Mapping[str, Any]] = {}
    while frame is not None:
        present = frame.f_locals
        of_modules.setdefault(id(frame.f_globals), frame.f_globals)
        if present is not frame.f_globals:
            of_functions.append(dict(present))
        if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(present, dict):
            present.clear()  # a copy that the frame would keep, with the tensors in it; the variables are elsewhere
        is_between, frame = frame.f_code.co_flags & inspect.CO_GENERATOR, frame.f_back
        if frame is not None and not is_between and not is_own(frame.f_globals.get("__name__")):
            break
    for number, names in enumerate((*of_functions, *of_modules.values())):
        own = ((name, value) for name, value in names.items() if not (name.startswith("__") and name.endswith("__")))
        yield from ((WITHIN * number + name, value) for name, value in own)  # Python's own: __warningregistry__


def _shown(name: str) -> str:
    return name.lstrip(WITHIN).partition(WITHIN)[0]


def _few(value: Any, known: Known, depth: int = DEPTH) -> tuple[Any, ...]:
    """Return the first parts of a list or dict, and of those within it, but for known ones; else the value alone."""
    if value in known:
        return ()
    if not isinstance(value, _CONTAINERS):
        return (value,)
    parts = islice(value.values() if isinstance(value, dict) else value, MOST_PARTS if depth else 0)
    return tuple(islice((leaf for part in parts for leaf in _few(part, known, depth - 1)), MOST_PARTS))


_CONTAINERS = (list, tuple, dict, deque)


def _counts(value: Any) -> bool:
    """Return whether a number may be a position or a best value: a whole one, infinity, or one from 10^6."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole or (isinstance(value, float) and (math.isinf(value) or abs(value) >= 1e6))


def _array_mark(value: Any) -> Any:
    """Return what differs when a tensor or array is another, or has been changed in place."""
    if not isinstance(value, torch.Tensor):
        return (id(value), repr(value.flat[:MOST_PARTS])) if is_array(value) else None
    try:
        return id(value), value._version, repr(value.detach().view(-1)[:MOST_PARTS].tolist())
    except (RuntimeError, NotImplementedError):  # of a kind without these, as a DTensor, or not contiguous
        return id(value), value._version if not value.is_inference() else 0


def _is_iterator(value: Any) -> bool:
    if isinstance(value, GeneratorType) and (value.gi_frame is None or value.gi_running):
        return False  # it is over, or it is the loop's own
    if isinstance(value, io.IOBase):
        return not value.closed and value.readable() and not value.writable()
    return isinstance(value, Iterator)
