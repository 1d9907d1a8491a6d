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
import sys
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import (
    BuiltinMethodType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
)
from typing import Any

import torch

from supervisor_core.torch.accelerated import unprepared
from supervisor_core.torch.draws import comparable_state, generators_within, is_generator
from supervisor_core.torch.known import Known, is_array, is_own
from supervisor_core.torch.number_use import enumerated, is_only_logged
from supervisor_core.training.objects import is_environment

CARRIED = (
    "The first step has changed the tensors in {}: if a step uses what the step before has left there, as a batch "
    "fetched ahead or a hidden state, it is not captured. Fetch the batch in the step that uses it, or keep the tensor "
    "in a dict that is in state."
)
OFTEN = (
    "A step has changed the tensors in {}, which have the shape of weights, and are not captured: keep them in a dict "
    "that is in state, or in an object with state_dict()."
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
ENUMERATED = (
    "{}, which enumerate() sets, begins again at 0 where an epoch goes on, and is not only logged: use loop.batch."
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
        given: objects that are looked into wherever they are, by name: the model, the loader.
        outer: of the function with the loop over the epochs, whose variables are looked at, too.
    """

    def __init__(
        self,
        frame: FrameType | None,
        captured: Iterable[Any],
        *,
        is_range: bool,
        given: Mapping[str, Any] = MappingProxyType({}),
        outer: CodeType | None = None,
    ) -> None:
        self._outer = outer
        self.known = Known(captured)
        self._given = given
        self._named: list[Any] = []
        self._is_range = is_range
        self._before: dict[str, _Part] = {}
        self._unseen: dict[str, str] = {}
        limits = []
        for name, value in self._parts(frame):
            with self._looks_at(name):
                if _is_optimizing(value) or is_environment(value):
                    limits.append(OBJECT.format(_shown(name)))
                    self._named.append(value)
                elif is_range and _is_iterator(value):
                    limits.append(ITERATOR.format(_shown(name)))
                elif limit := self._limit(value, is_hidden=WITHIN in name):
                    self._before[name] = _Part(value, self._mark(value), limit)
        self._limits: tuple[str, ...] = tuple(limits)
        self._later: dict[str, _Part] = {}
        self.enumerated = ""
        """The variable that ``enumerate`` sets in the loop, if more than the log depends on it; empty otherwise."""

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint does not capture: sentences. What has not changed in the first step is looked at again: a
        mean of the weights may change in some steps only."""
        for name, part in list(self._later.items()):
            value = part.value()
            with self._looks_at(name):
                if value is None or self._mark(value) != part.mark:
                    del self._later[name]
                    if value is not None and (text := part.limit.format(_shown(name))) not in self._limits:
                        self._limits = (*self._limits, text)
        return (*self._limits, *dict.fromkeys(self._unseen.values()))

    def step_ended(self, frame: FrameType | None) -> None:
        """The first step has ended; called once.

        Args:
            frame: what asks for the second step.
        """
        present = dict(self._parts(frame))
        number = enumerated(_body(frame)) if frame is not None else ""
        self.enumerated = "" if not number or _is_only_logged(number, frame) else number
        changed: dict[str, list[str]] = {CARRIED: [], NUMBER: []}
        for name, part in self._before.items():
            now = part.value if part.limit in (GENERATOR, HIDDEN, OBJECT) else present.get(name)
            with self._looks_at(name):
                if now is None or (part.limit == CARRIED and not _has_array(now, self.known)):
                    continue
                is_changed = now is not part.value or self._mark(now) != part.mark
                if is_changed and part.limit == NUMBER and _is_only_logged(name, frame):
                    continue
                if is_changed:
                    changed.setdefault(part.limit, []).append(_shown(name))
                else:
                    self._look_again_at(name, part)
        carried, numbers = changed.pop(CARRIED), changed.pop(NUMBER)
        self._limits = (
            *self._limits,
            *(limit.format(name) for limit, names in sorted(changed.items()) for name in sorted(names)),
            *((CARRIED.format(", ".join(sorted(carried))),) if carried else ()),
            *((NUMBER.format(", ".join(sorted(numbers))),) if numbers else ()),
        )
        self._before = {}

    def _look_again_at(self, name: str, part: _Part) -> None:
        """Remember what may change in a later step: models, generators, and tensors in the shape of a weight."""
        if part.limit in (GENERATOR, HIDDEN, OBJECT):
            self._later[name] = _Part(_weak(part.value), part.mark, part.limit)
        elif part.limit == CARRIED:
            for number, leaf in enumerate(_few(part.value)):
                if isinstance(leaf, torch.Tensor) and leaf not in self.known and leaf.shape in self.known.shapes:
                    self._later[f"{name}{WITHIN}{number}"] = _Part(_weak(leaf), self._mark(leaf), OFTEN)

    def names(self, value: Any) -> bool:
        """Return whether an optimizer or scheduler is one of the variables that are named."""
        return any(value is item or getattr(item, "optimizer", None) is value for item in self._named)

    def _parts(self, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
        """Yield the variables, and what they hold, by name; what cannot be looked at ends no training."""
        seen: set[int] = set()
        for name, value in (*_variables(frame, self._outer), *self._given.items()):
            found: list[tuple[str, Any]] = []
            with self._looks_at(name):
                found += self._inside(name, value, DEPTH, seen)
            yield from found
        for name, value in self._given.items():  # a generator deep in a dataset
            for path, part in () if isinstance(value, torch.nn.Module) else generators_within(value):
                if id(part) not in seen and part not in self.known:
                    yield f"{name}{path}{WITHIN}", part

    @contextmanager
    def _looks_at(self, name: str) -> Iterator[None]:
        """Let what a value of the program's own raises be a limit, and not end the training."""
        try:
            yield
        except Exception as error:
            self._unseen[name] = UNSEEN.format(_shown(name), f"{type(error).__name__}: {error}")

    def _inside(self, name: str, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
        value = unprepared(value)
        is_shared = id(value) in seen and not isinstance(value, (int, float))
        if is_shared or value in self.known:
            return
        seen.add(id(value))
        yield name, value
        if depth and not is_environment(value):
            for suffix, part in _held(value):
                yield from self._inside(name + suffix, part, depth - 1, seen)

    def _limit(self, value: Any, *, is_hidden: bool) -> str:
        """Return what there is to say where a step changes a value; empty where there is nothing."""
        if isinstance(value, torch.nn.Module):
            return OBJECT
        if _has_array(value, self.known) or _is_empty(value):
            return CARRIED
        if is_generator(value):
            return HIDDEN if is_hidden else GENERATOR
        if self._is_range and isinstance(value, io.IOBase):
            return ITERATOR
        return NUMBER if self._is_range and _has_number(value, self.known) else ""

    def _mark(self, value: Any) -> Any:
        """Return what differs when a value has changed."""
        if isinstance(value, torch.nn.Module):
            tensors = (part for part in (*value.parameters(), *value.buffers()) if part not in self.known)
            return [_array_mark(tensor) for tensor in islice(tensors, MOST_TENSORS)]
        if _has_array(value, self.known) or _is_empty(value):
            size = len(value) if isinstance(value, _CONTAINERS) else 0
            return size, [_array_mark(part) for part in _few(value, self.known) if part not in self.known]
        if is_generator(value):
            return comparable_state(value)
        return (
            _read_bytes(value)
            if isinstance(value, io.IOBase)
            else [part for part in _few(value, self.known) if _counts(part)]
        )


def asking(*modules: str) -> FrameType | None:
    """Return the frame of the program that asks for something, behind those of these modules and this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in modules:
        frame = frame.f_back
    return frame


def _weak(value: Any) -> Callable[[], Any]:
    """Return what returns a value as long as the program has it."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


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
        if is_own(value.__module__):
            within = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *_cells_of(value))
            yield from ((f".{name}", part) for name, part in vars(value).items())
    elif isinstance(value, torch.nn.Module):
        for path, module in islice(value.named_modules(), MOST_TENSORS):
            if is_own(type(module).__module__):
                yield from ((f".{path}.{name}" if path else f".{name}", part) for name, part in _attributes(module))
    elif not isinstance(value, type) and is_own(type(value).__module__):
        yield from ((f".{name}", part) for name, part in _attributes(value))
    yield from ((f"{WITHIN}{at}", part) for at, part in enumerate(within))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object's own attributes, with the numbers that its class has in their places."""
    of_class = {name: part for name, part in vars(type(value)).items() if _counts(part)}
    attributes = {**of_class, **getattr(value, "__dict__", {})}
    yield from ((name, part) for name, part in attributes.items() if name not in _OF_MODULES)


_OF_MODULES = frozenset(vars(torch.nn.Module()))


def _cells_of(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not set yet


def _matters(value: Any) -> bool:
    """Return whether a part of a list or dict is looked at by itself."""
    return is_generator(value) or _is_optimizing(value) or isinstance(value, torch.nn.Module)


def _is_optimizing(value: Any) -> bool:
    """Return whether a value is of a kind that each step needs: an optimizer, a scheduler, a scaler in use."""
    if isinstance(value, torch.amp.GradScaler):
        return bool(value.is_enabled())
    return isinstance(value, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))


def _is_only_logged(name: str, frame: FrameType | None) -> bool:
    """Return whether a number is one of the loop's own variables, and only for the log."""
    return frame is not None and is_only_logged(name, _body(frame), dict(_variables(frame, None)))


def _body(frame: FrameType) -> FrameType:
    """Return the frame with the loop's body."""
    *_, body = _frames(frame, None)
    return body


def _frames(frame: FrameType | None, outer: CodeType | None) -> Iterator[FrameType]:
    """Yield a frame, and the one behind it where a generator, as of a progress bar, stands between loop and body; then
    that of the outer function around it."""
    around = frame
    while frame is not None:
        yield frame
        frame = frame.f_back if frame.f_code.co_flags & inspect.CO_GENERATOR else None
    while outer is not None and around is not None and around.f_code is not outer:
        around = around.f_back
    if outer is not None and around is not None:
        yield around


def _variables(frame: FrameType | None, outer: CodeType | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a loop and its module, but for those that the loop sets itself with each batch."""
    found: dict[str, Any] = {}
    set_here: set[str] = set()
    for each in _frames(frame, outer):
        found = {**found, **{**each.f_globals, **_locals_of(each), **found}}
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


def _few(value: Any, known: Container[Any] = (), depth: int = DEPTH) -> tuple[Any, ...]:
    """Return the first parts of a list or dict, and of those within it, but for known ones; else the value alone."""
    if not isinstance(value, _CONTAINERS):
        return (value,)
    parts = islice(value.values() if isinstance(value, dict) else value, MOST_PARTS)
    within = (part for part in parts if depth and part not in known)
    return tuple(islice((leaf for part in within for leaf in _few(part, known, depth - 1)), MOST_PARTS))


_CONTAINERS = (list, tuple, dict, deque)


def _is_empty(value: Any) -> bool:
    """Return whether a value is a list that may be filled, as a replay buffer. A dict may be a cache."""
    return isinstance(value, (list, deque)) and not value


def _has_array(value: Any, known: Container[Any] = ()) -> bool:
    """Return whether a value is a tensor, or a batch of some that are not known."""
    return any(map(is_array, _few(value, known)))


def _has_number(value: Any, known: Container[Any] = ()) -> bool:
    return any(map(_counts, _few(value, known)))


def _counts(value: Any) -> bool:
    """Return whether a number may be a position or a best value: a whole one, infinity, or a power of ten from 10^6."""
    if isinstance(value, float):
        size = abs(value)
        return math.isinf(value) or (size >= 1e6 and math.log10(size).is_integer())
    return isinstance(value, int) and not isinstance(value, bool)


def _array_mark(value: Any) -> Any:
    """Return what differs when a tensor or array is another, or has been changed in place."""
    if not isinstance(value, torch.Tensor):
        return (id(value), repr(value.flat[:MOST_PARTS])) if is_array(value) else None
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


def _is_iterator(value: Any) -> bool:
    if isinstance(value, GeneratorType) and (value.gi_frame is None or value.gi_running):
        return False  # it is over, or it is the loop's own
    return isinstance(value, Iterator) and not isinstance(value, io.IOBase)
