"""`Values`: what a training keeps where no checkpoint has it, as a dropout's rate, a transform or a mean in a variable.

States are looked at, and no source. What the first step finds is compared at each save:

    plain values          attributes of models, optimizers, callbacks, of what a loader's parts reach, of the program's
                          own objects; variables around the loop. Objects among them are compared by kind and attributes
    tensors, generators,  in variables and attributes: those that are in no state
    modules, schedulers

A plain value that has changed is written into the checkpoint, and compared at the end of the first step after a resume:
a program that sets it by the number of its step or epoch has set it by then. What changes in each of the first steps is
for the log, unless its first values follow a rule. Whether a value is for the log alone is not known.
"""

from __future__ import annotations

import io
import math
import sys
import time
import weakref
from collections import ChainMap, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import islice, pairwise
from types import FrameType, FunctionType, GeneratorType, ModuleType, NoneType
from typing import Any, NamedTuple

from supervisor_core.run.fold.recomputed import is_measured
from supervisor_core.training.objects import Environment, Part, attribute, has, is_environment
from supervisor_core.training.variables import (
    asking,
    comparable_state,
    generators_within,
    is_array,
    is_generator,
    is_own,
    reachable,
    shown,
    variables_of,
)

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
OBJECT = 'The state of {0} is not captured. Add it to state: state={{"{0}": {0}}}.'
UNSEEN = "The variable {} cannot be looked at ({}): if the training keeps something in it, it is not captured."

ABSENT: Any = object()
"""No value, or none that is plain."""
MOST_PARTS, MOST_VALUES, MOST_TENSORS = 8, 64, 64
"""The most parts of a list or dict, and numbers of a tensor, that are looked at; of one of plain values; the most
tensors and modules of a module."""
MOST_LETTERS = 60
"""Of a value that is written down."""
FIRST_STEPS = 4
"""How many steps show which values change in each step, and by which rule."""
DEPTH = 2
"""The number of levels of objects within objects that are looked into."""
_DAY_SECS = 86400.0
_SCALARS = frozenset((int, float, bool, str, type(None)))
_CONTAINERS = (list, tuple, dict, deque)
_SET = frozenset(("training", "stop_training", "train_function", "test_function", "predict_function"))
"""Attributes that frameworks set."""
_NO_PARTS = (type, ModuleType, io.IOBase, Iterator, Part)


class _Space(NamedTuple):
    """Values by name: attributes of an object, or variables."""

    name: str
    kind: type
    held: Mapping[str, Any]
    keys: tuple[str, ...]
    before: tuple[Any, ...]
    """The plain ones, as they were."""
    parts: tuple[str, ...]
    ids: tuple[int, ...]
    texts: tuple[str, ...]
    """The others, which are replaced by others."""

    def is_same(self) -> bool:
        """Return whether nothing has changed: most often, and quick."""
        held = self.held
        if self.parts and tuple(map(id, map(held.get, self.parts))) != self.ids:
            return False
        return not _differ(tuple(map(held.get, self.keys)), self.before)

    def changed(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, value before, value now."""
        held, prefix = self.held, f"{self.name}." if self.name else ""
        for key, was in zip(self.keys, self.before, strict=True):
            if (now := plain(held.get(key))) is not ABSENT and now != was:
                yield prefix + key, was, now
        for key, one, was in zip(self.parts, self.ids, self.texts, strict=True):
            value = held.get(key)
            if id(value) != one and (now := described(value, with_values="(" in was)) not in (was, None):
                yield prefix + key, was, now


class _Seen(NamedTuple):
    """A value, what there is to say if a step changes it (empty: nothing), and what differs then."""

    value: Any
    limit: str = ""
    mark: Any = None


class Values:
    """See the module's docstring. It holds no frame. A comparison takes less than a millisecond for 1,000 modules.

    Args:
        captured: the objects that checkpoints have.
        given: objects that are looked into wherever they are, by name: models, optimizers, the loader, callbacks.
        is_range: the loop's own data are not known: also name iterators, and counts of steps.
        by_steps: the loop is one over numbers: a whole number that changes by others in each step may be a position.
        epoch: returns the number of the present epoch; None where the program has no loop over epochs of its own.
        present: returns what is in the state now, where each step makes new arrays; None where steps change them.
        words: other sentences, in place of `CARRIED`, `OBJECT` and `GENERATOR`.
        argument: returns the sentence for an object that an argument of its own captures, given it and its name.
        unwrap: returns what is inside of a wrapper.
        is_generator: whether a value is a random generator, or key.
    """

    def __init__(
        self,
        captured: Iterable[Any],
        given: Mapping[str, Any],
        *,
        is_range: bool = False,
        by_steps: bool = False,
        epoch: Callable[[], int] | None = None,
        present: Callable[[], Iterable[Any]] | None = None,
        words: Mapping[str, str] | None = None,
        argument: Callable[[Any, str], str | None] = lambda value, name: None,
        unwrap: Callable[[Any], Any] = lambda value: value,
        is_generator: Callable[[Any], bool] = is_generator,
    ) -> None:
        self.known = Known(captured if present is None else ())
        self._given, self._is_range, self._by_steps, self._epoch = dict(given), is_range, by_steps, epoch
        self._present, self._words, self._argument, self._unwrap = present, words or {}, argument, unwrap
        self._is_generator = is_generator
        self._first_epoch = epoch() if epoch is not None else 0
        self.decided: Mapping[str, bool] = {}
        """See `Options.kept_values`."""
        self._code: Any = None
        self._optimizing: list[Any] = []
        self._unseen: dict[str, str] = {}
        self._found: dict[str, list[str]] = {}
        self._seen: dict[str, _Seen] = {}
        self._held: dict[int, _Space] = {}
        """Of the given objects, by the number of their attributes."""
        self._own: dict[int, _Space] = {}
        """Of the program's own objects in variables."""
        self._first: dict[str, list[Any]] = {}
        """The first values of what has changed in the first steps."""
        self._counters: set[str] = set()
        self._kept: dict[str, Any] = {}
        self._then: Mapping[str, tuple[str, ...]] = {}
        """What the restored checkpoint has values of: later ones have it, too, whether it changes here or not."""
        self._steps = 0
        self._holders: dict[str, Mapping[str, Any]] = {}

    def begin(self, frame: FrameType | None, then: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str, str]]:
        """Look at everything before the first batch. Return which values of the data are not those of the restored
        checkpoint: name, before, now.

        Args:
            frame: what asks for it; None for a framework's own loop.
            then: what the restored checkpoint has of values.
        """
        self._code, self._then = None if frame is None else frame.f_code, then
        parts = dict(self._parts(frame))
        for name, value in (*self._given.items(), *parts.items()):
            with self._looks_at(name):
                if name in self._given or _is_module(value) or has(value, "dataset"):
                    for path, item in _looked_into(shown(name), value):
                        _add(self._held, path, item)
                    if _is_module(value):
                        for path, item in value.named_modules():
                            _add(self._held, ".".join(filter(None, (shown(name), path))), item, "_modules")
        for name, value in parts.items():
            with self._looks_at(name):
                if has(value, "param_groups") or is_environment(value):
                    self._name(OBJECT, name, value)
                    self._optimizing.append(value)
                elif self._is_range and _is_iterator(value):
                    self._name(ITERATOR, name)
                elif (seen := self._look(value)).limit:
                    self._seen[name] = seen._replace(value=self._reference(name, value))
                elif is_own(type(value).__module__) and id(getattr(value, "__dict__", None)) not in self._held:
                    _add(self._own, name, value)
        named = {space.name for space in (*self._held.values(), *self._own.values())}
        self._variables = _space("", dict(variables_of(frame)), known=self.known, named=named)
        self._kinds = tuple(name for name, value in self._given.items() if has(value, "dataset"))
        return self._differing(is_early=True)

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""
        frame = self._frame()
        self._compare_seen({} if frame is None else dict(variables_of(frame)))
        sentences: list[str] = []
        for limit, names in self._found.items():
            text = self._words.get(limit, limit)
            sentences += map(text.format, [", ".join(sorted(names))] if limit == CARRIED else names)
        return (*sentences, *dict.fromkeys(self._unseen.values()))

    def now(self) -> dict[str, tuple[str, ...]]:
        """Return what a checkpoint says of values that it does not restore: their texts now, and after one and two more
        steps by their rules."""
        if self._epoch is None:
            self.compare(self._frame())
        found = {**self._kept, **{name: now for name, _, now in self._states(self._held.values())}}
        for name in self._then.keys() - found.keys():
            if (now := self._value(name)) is not ABSENT:
                found[name] = now
        return {name: self._texts(name, value) for name, value in sorted(found.items())}

    def step_ended(self, frame: FrameType | None, item: Any = None) -> list[tuple[str, str, str]]:
        """One of the first steps has ended (`is_over`). After the first one return which values are not those of the
        restored checkpoint: name, before, now.

        Args:
            frame: what asks for the next step.
            item: what the loop has yielded: a number that is it is the loop's own variable.
        """
        self._steps += 1
        self._refresh(frame)
        spaces = (*self._held.values(), *self._own.values(), self._variables)
        changed = {name: (was, now) for name, was, now in self._changed(spaces)}
        for name in changed.keys() | self._first.keys():
            was, now = changed[name] if name in changed else (self._first[name][0],) * 2
            self._first.setdefault(name, [was] * self._steps).append(now)
            if type(item) is type(now) is int and now == item and self.is_over:
                self._counters.add(name)
        if self._steps > 1:
            return []
        self._compare_seen(dict(self._parts(frame)) if frame is not None else {}, is_first=True)
        return self._differing(is_early=False)

    @property
    def is_over(self) -> bool:
        """Whether `step_ended` has nothing more to look at."""
        return self._steps >= FIRST_STEPS

    def compare(self, frame: FrameType | None, *, is_whole: bool = True) -> None:
        """See which variables are kept.

        Args:
            frame: what asks for the next batch.
            is_whole: whether the program has begun the epoch, and set values again; else those that change in a step
                are left out.
        """
        if frame is not None and self._code is not None and frame.f_code is not self._code:
            return  # another function than that with the loop, as at the end of the process
        self._refresh(frame)
        states = self._states((*self._own.values(), self._variables), is_whole)
        self._kept = {name: now for name, _, now in states}

    def names(self, optimizer: Any) -> bool:
        """Return whether an optimizer is one of the variables that are named."""
        return any(optimizer is item for item in self._optimizing)

    def _differing(self, *, is_early: bool) -> list[tuple[str, str, str]]:
        found = []
        for name, texts in self._then.items():
            is_due = _is_of(name, self._kinds) is is_early and self._decided(name) is not False
            now = self._value(name) if is_due else ABSENT
            if now is not ABSENT and not any(_is_same(text, _text(now)) for text in texts):
                found.append((shown(name), texts[0], _text(now)))
        return sorted(found)

    def _frame(self) -> FrameType | None:
        return None if self._code is None else asking("supervisor_core")

    def _refresh(self, frame: FrameType | None) -> None:
        if frame is None or self._code is None:
            return
        self._variables = self._variables._replace(held=dict(variables_of(frame)))
        for spaces in (self._held, self._own):  # a variable may have another object of the same kind
            for key, space in spaces.items():
                value = self._variables.held.get(space.name)
                if value is not None and type(value) is space.kind and id(vars(value)) != key:
                    spaces[key] = space._replace(held=vars(value))

    def _changed(self, spaces: Iterable[_Space]) -> Iterator[tuple[str, Any, Any]]:
        for space in spaces:
            if not space.is_same():
                with self._looks_at(space.name):
                    yield from list(space.changed())

    def _states(self, spaces: Iterable[_Space], is_whole: bool = True) -> Iterator[tuple[str, Any, Any]]:
        """Yield what has changed and may decide how the training goes on: no count, time or message."""
        for name, was, now in self._changed(spaces):
            if (is_kept := self._decided(name)) is not None:
                if is_kept:
                    yield name, was, now
                continue
            values = self._first.get(name, [was])
            steps = [one != other for one, other in pairwise(values)]
            in_each_step = all(steps[1:] or steps) if is_whole else any(steps)
            if name in self._then or self._is_state(name, now, values, bool(steps) and in_each_step):
                yield name, was, now

    def _decided(self, name: str) -> bool | None:
        """Return what the program says of a value, or of what holds it."""
        own = shown(name)
        for decided, is_kept in self.decided.items():
            if own == decided or own.startswith((f"{decided}.", f"{decided}[")):
                return is_kept
        return None

    def _is_state(self, name: str, value: Any, values: list[Any], in_each_step: bool) -> bool:
        last = shown(name).rpartition(".")[2].lower()
        if name in self._counters or "epoch" in last or (is_measured(last) and last != "wait") or _is_moment(value):
            return False
        if len(values) > 1 and (values[0] is None or isinstance(values[0], bool)):
            return False  # the session's own: it has begun
        if in_each_step:
            if type(value) is int:
                is_position = self._is_range or (self._by_steps and values[-1] - values[-2] != 1)
                return bool(is_position) and not _is_of(name, self._given)
            return _rule(values) is not None
        if self._epoch is not None and type(value) is type(values[0]) is int:
            return bool(value - values[0] != self._epoch() - self._first_epoch)  # else it counts epochs
        return not isinstance(value, str) or isinstance(value, Described) or not any(map(str.isspace, value))

    def _value(self, name: str) -> Any:
        """Return the present value of a name; `ABSENT` for none."""
        for space in (*self._held.values(), *self._own.values(), self._variables):
            key = name.removeprefix(f"{space.name}." if space.name else "")
            if key in space.keys and (key != name or not space.name):
                return plain(space.held.get(key))
            if key in space.parts and (key != name or not space.name):
                return described(space.held.get(key)) or ABSENT
        return ABSENT

    def _texts(self, name: str, value: Any) -> tuple[str, ...]:
        rule = _rule(self._first.get(name, []))
        found = [value]
        if rule is not None and type(value) in (int, float):
            for _ in range(2):
                found.append(type(value)(rule[0] * found[-1] + rule[1]))
        return tuple(map(_text, found))

    def _compare_seen(self, present: Mapping[str, Any], *, is_first: bool = False) -> None:
        """Name the tensors, generators and modules that are others than before the first step."""
        if self._present is not None:
            self.known = Known(self._present())
        for name, (reference, limit, mark) in list(self._seen.items()):
            with self._looks_at(name):
                is_rebound = limit == CARRIED or self._present is not None
                value = reference()
                seen = self._look(present.get(name, value) if is_rebound else value)
                if seen.value is None or (is_rebound and limit != seen.limit):
                    if is_first or seen.value is None:
                        del self._seen[name]
                elif seen.mark != mark:
                    del self._seen[name]
                    self._name(limit, name, value)

    def _reference(self, name: str, value: Any) -> Callable[[], Any]:
        """Return what returns a value of now: an attribute may be another one."""
        if (holder := self._holders.get(name)) is not None:
            return partial(holder.get, name.rpartition(".")[2])
        return _weak(value)

    def _name(self, limit: str, name: str, value: Any = None) -> None:
        own = shown(name)
        if self._decided(name) is False:
            return
        if limit == OBJECT:
            limit = self._argument(value, own) or limit
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
        value = self._unwrap(value)
        if id(value) in seen or isinstance(value, type) or value in self.known:
            return
        seen.add(id(value))
        yield name, value
        if depth and not is_environment(value):
            for suffix, part, holder in _within(value):
                if holder is not None:
                    self._holders[name + suffix] = holder
                yield from self._inside(name + suffix, part, depth - 1, seen)

    def _look(self, value: Any) -> _Seen:
        if _is_module(value) and not self.known.has_module(value):
            tensors = (part for part in (*value.parameters(), *value.buffers()) if part not in self.known)
            return _Seen(value, OBJECT, [_array_mark(tensor) for tensor in islice(tensors, MOST_TENSORS)])
        if _is_stepped(value):
            state = value.state_dict().items()
            return _Seen(value, OBJECT, {key: found for key, item in state if (found := plain(item)) is not ABSENT})
        if self._is_generator(value) and value not in self.known:
            return _Seen(value, GENERATOR, comparable_state(value) if is_generator(value) else id(value))
        few = _few(value, self.known)
        if any(map(is_array, few)) or (isinstance(value, (list, deque)) and not value):
            size = len(value) if isinstance(value, _CONTAINERS) else 0  # a list may be filled; a dict may be a cache
            return _Seen(value, CARRIED, (size, [_array_mark(part) for part in few]))
        return _Seen(value)


class Known:
    """What checkpoints have: `in` tells whether a value is, or is a part of, one of the captured objects."""

    def __init__(self, captured: Iterable[Any]) -> None:
        torch = sys.modules.get("torch")
        self._found: dict[Any, Callable[[], Any]] = {}
        """By identity, and by memory: what returns the object, or None once it is gone and another may have both."""
        self._modules = weakref.WeakSet[Any]()
        captured = (*captured, *(() if torch is None else (torch.default_generator,)))
        for item in captured:
            self._add(item)

    def __contains__(self, value: Any) -> bool:
        if _is_module(value):
            return False  # some of its tensors may be
        state = value.state if has(value, "param_groups") else value
        keys = (id(value), id(state), _memory_of(value))
        return any(self._found[key]() is not None for key in keys if key in self._found)

    def has_module(self, module: Any) -> bool:
        """Return whether a checkpoint has all of a module, also tensors that have come since."""
        return module in self._modules

    def _add(self, item: Any) -> None:
        if id(item) in self._found or isinstance(item, (int, float, str, type, NoneType)):
            return
        self._found |= dict.fromkeys({id(item), _memory_of(item)} - {None}, _weak(item))
        parts: list[Any] = [*(attribute(item, "_schedulers") or ())]
        if _is_module(item):
            self._modules.update(item.modules())
            parts += (*item.parameters(), *item.buffers())
        elif isinstance(item, Environment) or has(item, "param_groups"):
            parts.append(item.target if isinstance(item, Environment) else item.state)
        elif type(item) in (dict, list, tuple):
            parts += item.values() if isinstance(item, dict) else item
        elif not isinstance(item, Part) and is_own(type(item).__module__):
            held = getattr(item, "__dict__", {}).values()  # a captured object returns what it has as its state
            parts += (part for part in held if _is_module(part) or is_array(part))
        for part in parts:
            self._add(part)


def plain(value: Any, depth: int = 2) -> Any:
    """Return a value of numbers, texts and flags, lists and dicts as tuples; `ABSENT` for any other."""
    if type(value) in _SCALARS:
        return value
    if type(value) not in (list, tuple, dict, set, deque) or len(value) > MOST_VALUES or not depth:
        return ABSENT
    found = []
    for item in value.items() if isinstance(value, dict) else value:
        if (part := plain(item, depth - 1)) is ABSENT:
            is_known = isinstance(item, FunctionType) or _is_module(item) or is_own(type(item).__module__)
            part = described(item, with_values=False) if is_known else None
            if part is None:
                return ABSENT
        found.append(part)
    return tuple(found)


class Described(str):
    """The kind of an object, and its attributes."""


def described(value: Any, *, with_values: bool = True) -> str | None:
    """Return the kind of an object, and its plain attributes where it is the program's or PyTorch's; None for what is
    no such object."""
    if value is None or type(value) in _SCALARS or isinstance(value, (*_NO_PARTS, *_CONTAINERS)) or is_array(value):
        return Described(value.__qualname__) if isinstance(value, type) else None
    if isinstance(value, FunctionType):
        return Described(value.__qualname__)
    kind, held = type(value), getattr(value, "__dict__", None)
    if type(held) is not dict or not with_values or not (is_own(kind.__module__) or kind.__module__[:6] == "torch."):
        return Described(kind.__name__) if callable(value) or type(held) is dict else None
    found = (f"{key}={item}" for key, item in sorted(held.items()) if is_public(key) and plain(item) is not ABSENT)
    return Described(f"{kind.__name__}({', '.join(found)})")


@cache
def is_public(name: str) -> bool:
    """Return whether an attribute may be a setting: the modes of modules are saved with them."""
    return not name.startswith("_") and name not in _SET and "epoch" not in name


def _add(spaces: dict[int, _Space], name: str, item: Any, attribute: str = "__dict__") -> None:
    held = getattr(item, attribute, None)
    if type(held) is dict and held and id(held) not in spaces:
        of_class: dict[str, Any] = {}
        if attribute == "__dict__" and is_own(type(item).__module__):
            of_class = {
                key: part for key, part in vars(type(item)).items() if is_public(key) and type(part) in _SCALARS
            }
        is_mixed = bool(of_class.keys() - held.keys())
        spaces[id(held)] = _space(name, ChainMap(held, of_class) if is_mixed else held, kind=type(item))


def _space(
    name: str, held: Mapping[str, Any], *, kind: type = dict, known: Known | None = None, named: Collection[str] = ()
) -> _Space:
    keys, before, parts, texts = [], [], [], []
    for key, value in held.items():
        if name and not is_public(key):  # most of a module's
            continue
        with suppress(Exception):  # of the program's own, which is named elsewhere
            if known is not None and value in known:
                continue
            if (found := plain(value)) is not ABSENT:
                keys.append(key)
                before.append(found)
            elif (text := described(value, with_values=key not in named)) is not None:
                parts.append(key)
                texts.append(text)
    ids = tuple(id(held[key]) for key in parts)
    return _Space(name, kind, held, tuple(keys), tuple(before), tuple(parts), ids, tuple(texts))


def _differ(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    try:
        return now != before
    except Exception:  # an array stands where a number was, or an object whose comparison fails
        return True


def _looked_into(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects whose attributes are compared: the modules of a module, the layers of a model, and what the
    dataset, the samplers and the ``collate_fn`` of a loader reach."""
    layers = attribute(value, "_flatten_layers")
    if callable(layers):  # of Keras, on PyTorch, too
        yield from ((f"{name}.layers[{at}]" if at else name, item) for at, item in enumerate(layers()))
    elif _is_module(value):
        yield from ((f"{name}.{path}" if path else name, item) for path, item in value.named_modules())
    elif not has(value, "dataset"):
        yield name, value
    for part in ("dataset", "collate_fn", "sampler", "batch_sampler"):
        if not has(inner := attribute(value, part), "state_dict"):
            yield from ((f"{name}.{part}{path}", item) for path, item in reachable(inner))


def _is_module(value: Any) -> bool:
    nn = getattr(sys.modules.get("torch"), "nn", None)
    return nn is not None and isinstance(value, nn.Module)


def _is_stepped(value: Any) -> bool:
    """Return whether a value is a scheduler, or a scaler in use: without a step it is as it is built."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    is_scaler = isinstance(value, torch.amp.GradScaler) and bool(value.is_enabled())
    return is_scaler or isinstance(value, torch.optim.lr_scheduler.LRScheduler)


def _memory_of(value: Any) -> Any:
    """Return where a tensor's numbers are; None where it has no place of its own."""
    try:
        place = value.untyped_storage().data_ptr() if hasattr(type(value), "untyped_storage") else 0
    except (RuntimeError, NotImplementedError):  # of a kind without storage
        return None
    return ("memory", place) if place else None


def _weak(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _within(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what a value holds: what stands behind the value's name, the part, and the attributes that have it."""
    if isinstance(value, (dict, list, tuple)):
        for key, part in islice(value.items() if isinstance(value, dict) else enumerate(value), MOST_PARTS):
            if is_generator(part) or has(part, "param_groups") or _is_module(part) or _is_owned(part):
                yield f"[{key!r}]", part, None
    elif _is_module(value):
        for path, module in islice(value.named_modules(prefix=""), MOST_TENSORS):
            if is_own(type(module).__module__):
                prefix = f".{path}." if path else "."
                held = vars(module)
                yield from ((prefix + name, part, held) for name, part in held.items() if name not in _of_modules())
    elif _is_owned(value):
        yield from ((f".{name}", part, vars(value)) for name, part in vars(value).items())


def _is_owned(value: Any) -> bool:
    is_object = type(getattr(value, "__dict__", None)) is dict and not isinstance(value, (type, FunctionType))
    return is_object and is_own(type(value).__module__)


@cache
def _of_modules() -> frozenset[str]:
    return frozenset(vars(sys.modules["torch"].nn.Module()))


def _few(value: Any, known: Known, depth: int = 2 * DEPTH) -> tuple[Any, ...]:
    """Return the first parts of a list or dict, and of those within it, but for known ones; else the value alone."""
    if value in known:
        return ()
    if not isinstance(value, _CONTAINERS):
        return (value,)
    parts = islice(value.values() if isinstance(value, dict) else value, MOST_PARTS if depth else 0)
    return tuple(islice((leaf for part in parts for leaf in _few(part, known, depth - 1)), MOST_PARTS))


def _is_moment(value: Any) -> bool:
    """Return whether a number is a clock's of today."""
    clocks = (time.time, time.monotonic, time.perf_counter)
    return isinstance(value, float) and value > 1e3 and any(abs(value - clock()) < _DAY_SECS for clock in clocks)


def _rule(values: list[Any]) -> tuple[float, float] | None:
    """Return factor and addend where the first values of a number follow such a rule, as a schedule's."""
    if len(values) <= FIRST_STEPS or any(type(value) not in (int, float) for value in values[1:]):
        return None
    one, two, three = (after - before for before, after in pairwise(values[1:]))
    if not one or not math.isclose(two * two, one * three, rel_tol=1e-6):
        return None
    return two / one, values[2] - two / one * values[1]


def _text(value: Any) -> str:
    return (str(value) if isinstance(value, Described) else repr(value))[:MOST_LETTERS]


def _is_same(saved: str, now: str) -> bool:
    try:
        return saved == now or math.isclose(float(saved), float(now), rel_tol=1e-6)
    except ValueError:
        return False


def _is_of(name: str, given: Iterable[str]) -> bool:
    return any(name.startswith(f"{each}.") for each in given)


def _array_mark(value: Any) -> Any:
    """Return what differs when a tensor or array is another, or has been changed in place."""
    if type(value).__module__ == "numpy":
        return id(value), repr(value.flat[:MOST_PARTS] if hasattr(value, "flat") else value)
    if not hasattr(type(value), "_version"):
        return id(value) if is_array(value) else None
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
