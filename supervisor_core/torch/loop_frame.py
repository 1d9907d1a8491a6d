"""What a loop has that a checkpoint of it does not: `LoopFrame`.

A training that keeps something in a variable (an optimizer that was not given, a batch fetched ahead, a best value) or
in an attribute (a dropout's rate, a dataset's flag) goes on otherwise after a resume. States are compared, by value:

    attributes           of the models, optimizers and modules in variables, and of what the loader's dataset reaches:
                         at each save (`Attributes`)
    tensors, generators  and modules in variables: after the first step; those that are still the same at each save
    plain values         in variables, and in the program's own objects: at the start of each epoch of a loop over
                         epochs, else at each save. What changes in each step is for the log, unless its first values
                         follow a rule, as a temperature does; in a loop over a range a whole number may be a position

Whether a value is for the log alone is not known.
"""

from __future__ import annotations

import gc
import io
import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import FrameType, GeneratorType, MappingProxyType
from typing import Any, NamedTuple

import torch

from supervisor_core.run.fold.recomputed import is_measured
from supervisor_core.torch.accelerated import unprepared
from supervisor_core.torch.attributes import ABSENT, Attributes, is_public, limits_of, looked_into, plain
from supervisor_core.torch.workers import comparable_state, generators_within, is_generator
from supervisor_core.training.objects import Environment, Part, is_environment
from supervisor_core.training.state import COMPARED
from supervisor_core.training.variables import WITHIN, asking, is_own, shown, variables_of

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
ENUMERATED = (
    "The numbers of enumerate() around the loop begin again at 0 where an epoch goes on: if more than the log depends "
    "on them, use loop.batch."
)
VALUE = COMPARED + (
    "{} has changed since the session began, and no checkpoint has it: if the training depends on it, keep it in a "
    "dict, and add that to state."
)
UNSEEN = "The variable {} cannot be looked at ({}): if the training keeps something in it, it is not captured."
OBJECT = 'The state of {0} is not captured. Add it to state: state={{"{0}": {0}}}.'
GIVEN = "The state of {0} is not captured. Give it to supervised(): {1}={0}."

MOST_PARTS = 8
"""The most parts of a list or dict, and the most numbers of a tensor, that are looked at."""
MOST_LETTERS = 60
"""Of a value that is written down."""
MOST_TENSORS = 64
"""The most tensors of a module that are looked at."""
FIRST_STEPS = 2
"""How many steps show which values change in each step."""
DEPTH = 2
"""The number of levels of objects within objects that are looked into."""
_DAY_SECS = 86400.0


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
        is_range: the loop's own data are not known: also name iterators and whole numbers.
        given: objects that are looked into wherever they are, by name: models, optimizers, the loader.
        epoch: returns the number of the present epoch; None where the program has no loop over epochs of its own.
        has_arguments: whether optimizers and the like are arguments of their own, and not in state.
    """

    def __init__(
        self,
        frame: FrameType | None,
        captured: Iterable[Any],
        *,
        is_range: bool,
        given: Mapping[str, Any] = MappingProxyType({}),
        epoch: Callable[[], int] | None = None,
        has_arguments: bool = True,
    ) -> None:
        self.known = Known(captured)
        self._given, self._is_range, self._epoch, self._has_arguments = given, is_range, epoch, has_arguments
        self._first_epoch = epoch() if epoch is not None else 0
        self._code = None if frame is None else frame.f_code
        self._optimizing: list[Any] = []
        self._unseen: dict[str, str] = {}
        self._found: dict[str, list[str]] = {}
        self._before: dict[str, _Seen] = {}
        self._later: list[tuple[str, _Seen]] = []
        self._own: dict[str, Callable[[], Any]] = {}
        self._kept: dict[str, Any] = {}
        self._carried: set[str] = set()
        """What the restored checkpoint has a value of: later ones have it, too, whether it changes here or not."""
        self._steps = 0
        parts, within = dict(self._parts(frame)), list[tuple[str, Any]]()
        for name, value in (*given.items(), *parts.items()):
            with self._looks_at(name):
                if name in given or isinstance(value, torch.nn.Module):
                    within += looked_into(shown(name), value)
        self.attributes = Attributes(within)
        for name, value in parts.items():
            with self._looks_at(name):
                if _is_optimizing(value) or is_environment(value):
                    self._name(OBJECT, name, value)
                    self._optimizing.append(value)
                elif is_range and _is_iterator(value):
                    self._name(ITERATOR, name)
                elif (seen := self._look(value)).limit:
                    self._before[name] = seen
                elif is_own(type(value).__module__) and value not in self.attributes:
                    self._own[name] = _weak(value)
        self._values = {name: [value] for name, value in self._plain(frame)}

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
                        self._name(seen.limit, name, value)
        sentences = []
        for limit, names in self._found.items():
            sentences += [limit.format(part) for part in ([", ".join(sorted(names))] if limit == CARRIED else names)]
        if self._epoch is None:
            self.compare(asking("supervisor_core"))
        of_values = limits_of(map(shown, self._kept), VALUE) + limits_of(self.attributes.changed())
        return (*sentences, *of_values, *dict.fromkeys(self._unseen.values()))

    def kept(self) -> dict[str, str]:
        """Return what a checkpoint says of values that it does not restore: what `differing` compares."""
        if self._epoch is None:
            self.compare(asking("supervisor_core"))
        carried = {name: self.attributes.value(name) for name in self._carried if name not in self._values}
        found = {**carried, **self._kept, **self.attributes.changed()}
        return {
            name.replace(WITHIN, "^"): repr(value)[:MOST_LETTERS]
            for name, value in found.items()
            if value is not ABSENT
        }

    def differing(self, saved: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Return which values are not those of `kept`, as the session begins: name, before, now."""
        found = []
        for key, before in saved.items():
            name = key.replace("^", WITHIN)
            self._carried.add(name)
            if name in self._values:
                self._kept[name] = self._values[name][0]
            value = self._values[name][0] if name in self._values else self.attributes.value(name)
            now = repr(value)[:MOST_LETTERS]
            found += [(shown(name), before, now)] if value is not ABSENT and now != before else []
        return sorted(found)

    def step_ended(self, frame: FrameType | None, item: Any = None) -> bool:
        """A step has ended. Return whether the next one is to be looked at, too.

        Args:
            frame: what asks for the next step.
            item: what the loop has yielded: a number that is it is the loop's own variable.
        """
        self._steps += 1
        self.attributes.step_ended()
        for name, value in self._plain(frame):
            values = self._values.get(name, [])
            if len(values) == self._steps and value != values[-1]:
                values.append(value)
            if self._steps == FIRST_STEPS and type(item) is type(value) is int and value == item and len(values) > 1:
                del self._values[name]
        if self._steps == FIRST_STEPS:
            return False
        present = dict(self._parts(frame))
        for name, (value, limit, mark) in sorted(self._before.items()):
            with self._looks_at(name):
                seen = self._look(present.get(name) if limit == CARRIED else value)
                if seen.value is None or (limit == CARRIED != seen.limit):
                    continue
                if seen.value is not value or seen.mark != mark:
                    self._name(limit, name, value)
                    continue
                looks = map(self._look, _few(value, self.known) if limit == CARRIED else (value,))
                self._later += [(name, look._replace(value=_weak(look.value))) for look in looks if look.limit]
        self._before = {}
        return True

    def compare(self, frame: FrameType | None, *, is_whole: bool = True) -> None:
        """See which plain values are kept.

        Args:
            frame: what asks for the next batch.
            is_whole: whether the program has begun the epoch, and set values again; else those that change in a step
                are left out.
        """
        if frame is None or frame.f_code is not self._code:
            return  # another function than that with the loop, as at the end of the process
        present = dict(self._plain(frame))
        for name, values in self._values.items():
            if name in present:
                value, least = present[name], min(self._steps, FIRST_STEPS if is_whole else 1)
                self._kept.pop(name, None)
                is_other = value != values[0] or name in self._carried
                if is_other and self._is_state(name, value, values, len(values) > least):
                    self._kept[name] = value

    def names(self, optimizer: Any) -> bool:
        """Return whether an optimizer is one of the variables that are named."""
        return any(optimizer is item for item in self._optimizing)

    def _is_state(self, name: str, value: Any, values: list[Any], in_each_step: bool) -> bool:
        """Return whether a value that has changed may decide how the training goes on: no count, time or message."""
        last = shown(name).rpartition(".")[2].lower()
        if "epoch" in last or (is_measured(last) and last != "wait") or _is_moment(value):
            return False
        if len(values) > 1 and (values[0] is None or isinstance(values[0], bool)):
            return False  # the session's own: it has begun
        if in_each_step:
            return (self._is_range and type(value) is int) or _follows_a_rule(values)
        if self._epoch is not None and type(value) is type(values[0]) is int:
            return bool(value - values[0] != self._epoch() - self._first_epoch)  # else it counts epochs
        return not isinstance(value, str) or value.isidentifier()

    def _plain(self, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
        """Yield the plain values of variables, and of the program's own objects in them, by name."""
        for name, value in variables_of(frame):
            if (found := plain(value)) is not ABSENT and value not in self.known:
                yield name, found
        for name, reference in self._own.items():
            for key, value in _attributes(reference()):
                if is_public(key) and (found := plain(value)) is not ABSENT:
                    yield f"{name}.{key}", found

    def _name(self, limit: str, name: str, value: Any = None) -> None:
        own = shown(name)
        if limit == OBJECT and self._has_arguments and (argument := _argument(value, own)):
            limit = GIVEN.format("{0}", argument)
        names = self._found.setdefault(limit, [])
        names += [] if own in names else [own]

    def _parts(self, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
        """Yield the variables, and what they hold, by name; what cannot be looked at ends no training."""
        seen: set[int] = set()
        for name, value in (*variables_of(frame), *self._given.items()):
            found: list[tuple[str, Any]] = []
            with self._looks_at(name):
                found += self._inside(name, value, DEPTH, seen)
            yield from found
        for name, value in self._given.items():  # a generator deep in a dataset
            for path, part in generators_within(getattr(value, "dataset", None)):
                if id(part) not in seen and part not in self.known:
                    yield f"{name}.dataset{path}", part

    @contextmanager
    def _looks_at(self, name: str) -> Iterator[None]:
        """Let what a value of the program's own raises be a limit, and not end the training."""
        try:
            yield
        except Exception as error:
            self._unseen[name] = UNSEEN.format(shown(name), f"{type(error).__name__}: {error}")

    def _inside(self, name: str, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
        value = unprepared(value)
        if id(value) in seen or value in self.known:
            return
        seen.add(id(value))
        yield name, value
        if depth and not is_environment(value):
            for suffix, part in _held(value):
                yield from self._inside(name + suffix, part, depth - 1, seen)

    def _look(self, value: Any) -> _Seen:
        few = _few(value, self.known)
        if isinstance(value, torch.nn.Module) and not self.known.has_module(value):
            tensors = (part for part in (*value.parameters(), *value.buffers()) if part not in self.known)
            return _Seen(value, OBJECT, [_array_mark(tensor) for tensor in islice(tensors, MOST_TENSORS)])
        if any(map(is_array, few)) or (isinstance(value, (list, deque)) and not value):
            size = len(value) if isinstance(value, _CONTAINERS) else 0  # a list may be filled; a dict may be a cache
            return _Seen(value, CARRIED, (size, [_array_mark(part) for part in few]))
        return _Seen(value, GENERATOR, comparable_state(value)) if is_generator(value) else _Seen(value)


class Known:
    """What checkpoints have: `in` tells whether a value is, or is a part of, one of the captured objects."""

    def __init__(self, captured: Iterable[Any]) -> None:
        self._ids: set[Any] = {id(torch.default_generator)}
        self._modules = weakref.WeakSet[torch.nn.Module]()
        self._kept: list[Any] = []  # so that no other object gets their ids
        for item in captured:
            self._add(item)

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, torch.nn.Module):
            return False  # some of its tensors may be
        state = value.state if isinstance(value, torch.optim.Optimizer) else value
        return not self._ids.isdisjoint((id(value), id(state), _memory_of(value)))

    def has_module(self, module: torch.nn.Module) -> bool:
        """Return whether a checkpoint has all of a module, also tensors that have come since."""
        return module in self._modules

    def _add(self, item: Any) -> None:
        if id(item) in self._ids or isinstance(item, (int, float, str, type)):
            return
        self._ids |= {id(item), _memory_of(item)} - {None}
        parts: list[Any] = [*getattr(item, "_schedulers", ())]
        if isinstance(item, torch.nn.Module):
            self._modules.update(item.modules())
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


def is_enumerated() -> bool:
    """Return whether an ``enumerate`` asks for the present item: one over a generator that is running."""
    objects = gc.get_objects()
    if enumerate not in map(type, objects):  # a look at each object of the process takes 10 ms
        return False
    found = (inner for item in objects if type(item) is enumerate for inner in gc.get_referents(item))
    return any(isinstance(inner, GeneratorType) and inner.gi_running for inner in found)


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


def _held(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds: what stands behind the value's name, and the part."""
    if isinstance(value, (dict, list, tuple)):
        for key, part in islice(value.items() if isinstance(value, dict) else enumerate(value), MOST_PARTS):
            if is_generator(part) or _is_optimizing(part) or isinstance(part, torch.nn.Module):
                yield f"[{key!r}]", part
    elif isinstance(value, torch.nn.Module):
        for path, module in islice(value.named_modules(prefix=""), MOST_TENSORS):
            if is_own(type(module).__module__):
                prefix = f".{path}." if path else "."
                yield from ((prefix + name, part) for name, part in _attributes(module))
    elif not isinstance(value, type) and is_own(type(value).__module__):
        yield from ((f".{name}", part) for name, part in _attributes(value))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object's own attributes, with the plain ones that its class has in their places."""
    of_class = {name: part for name, part in vars(type(value)).items() if plain(part) is part}
    attributes = {**of_class, **getattr(value, "__dict__", {})}
    yield from ((name, part) for name, part in attributes.items() if name not in _OF_MODULES)


_OF_MODULES = frozenset(vars(torch.nn.Module()))


def _is_optimizing(value: Any) -> bool:
    """Return whether a value is of a kind that each step needs: an optimizer, a scheduler, a scaler in use."""
    if isinstance(value, torch.amp.GradScaler):
        return bool(value.is_enabled())
    return isinstance(value, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))


def _argument(value: Any, name: str) -> str | None:
    """Return the argument of `supervised` that captures an object; None for none of its own."""
    kinds = {"optimizer": torch.optim.Optimizer, "scheduler": torch.optim.lr_scheduler.LRScheduler}
    kinds |= {"scaler": torch.amp.GradScaler, "ema": torch.optim.swa_utils.AveragedModel}
    found = next((argument for argument, kind in kinds.items() if isinstance(value, kind)), None)
    return "ema" if found is None and "ema" in name.lower() else found


def _few(value: Any, known: Known, depth: int = DEPTH) -> tuple[Any, ...]:
    """Return the first parts of a list or dict, and of those within it, but for known ones; else the value alone."""
    if value in known:
        return ()
    if not isinstance(value, _CONTAINERS):
        return (value,)
    parts = islice(value.values() if isinstance(value, dict) else value, MOST_PARTS if depth else 0)
    return tuple(islice((leaf for part in parts for leaf in _few(part, known, depth - 1)), MOST_PARTS))


_CONTAINERS = (list, tuple, dict, deque)


def _is_moment(value: Any) -> bool:
    """Return whether a number is a clock's of today."""
    clocks = (time.time, time.monotonic, time.perf_counter)
    return isinstance(value, float) and value > 1e3 and any(abs(value - clock()) < _DAY_SECS for clock in clocks)


def _follows_a_rule(values: list[Any]) -> bool:
    """Return whether the first values of a number are those of a schedule: equal differences, or equal ratios."""
    if len(values) <= FIRST_STEPS or any(type(value) is not float for value in values):
        return False
    one, two, three = values
    return math.isclose(two - one, three - two, rel_tol=1e-9) or math.isclose(two * two, one * three, rel_tol=1e-9)


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
