"""The objects of a program whose states a checkpoint holds: how to reach a state, and what names the states have.

A dict, list or tuple of objects is saved as its objects, each under a name of its own: ``model.0``, ``model.critic``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple


class Access(NamedTuple):
    """How to get the state of an object, and how to set it."""

    get: Callable[[], Any]
    set: Callable[[Any], object]


class Part:
    """An adapter's own object among the objects of a training, with ``state_dict`` and ``load_state_dict``.

    Those of the program are asked for their state at a session's begin, and after a restore. These say themselves what
    of theirs may be looked at.
    """

    shift: str | None = None
    """What the last restored state differs in from the saved one: a sentence; None where it does not."""

    def probe(self) -> Any:
        """Return what can be checked of its state: without side effects, copies of arrays, and other ranks."""
        return None


_METHODS = (("state_dict", "load_state_dict"), ("get_state", "set_state"), ("getstate", "setstate"))

_MOST_LETTERS = 1000
"""Of a name in a state."""

_MOST_LEVELS = 16
"""How many dicts and lists inside each other are searched for objects."""


def access(name: str, target: Any) -> Access:
    """Return how to reach an object's state.

    Raises:
        TypeError: if it has no pair of methods for that.
    """
    if isinstance(target, Access):
        return target
    if type(target) is dict:
        return Access(lambda: target, partial(_set_dict, target))
    if (found := _methods_of(target)) is not None:
        return found
    expected = " or ".join("/".join(pair) for pair in _METHODS[:2])
    raise TypeError(
        f"state[{name!r}] is a {type(target).__module__}.{type(target).__qualname__}; expected an object with "
        f"{expected}, or a dict."
    )


def flattened(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objects by name, with those that dicts, lists and tuples hold in place of these.

    Args:
        objects: objects, and dicts, lists and tuples of them, by name. A None in a list is left out. What a dict has
            besides objects, as numbers and arrays, stays under the dict's own name.

    Raises:
        TypeError: if these are not given by name, or something in a list with objects has no state.
        ValueError: if two objects have the same name.

    Example:
        >>> import random
        >>> one, two = random.Random(1), random.Random(2)
        >>> list(flattened({"model": one, "others": [one, {"second": two}], "best": {"loss": 1e9}}))
        ['model', 'others.0', 'others.1.second', 'best']
    """
    if not isinstance(objects, Mapping):
        raise TypeError(f"state is a {type(objects).__qualname__}; expected a dict of objects by name.")
    found: dict[str, Any] = {}
    for name, target in objects.items():
        for each, part in _parts(name, target):
            if not isinstance(name, str) or not 0 < len(each) <= _MOST_LETTERS:
                raise TypeError(f"state has the name {each!r:.80}; expected a text of 1 to {_MOST_LETTERS:,} letters.")
            if each in found:
                raise ValueError(f"Two objects have the name {each!r} in checkpoints; give one of them another name.")
            found[each] = part
    return found


def _parts(name: str, target: Any) -> Iterator[tuple[str, Any]]:
    if not _holds_objects(target):
        yield name, Environment(name, target) if is_environment(target) else target
        return
    items = dict(target if isinstance(target, dict) else enumerate(target))
    own = {key for key, item in items.items() if _has_state(item) or _holds_objects(item)}
    for key, item in items.items():
        if key in own:
            yield from _parts(f"{name}.{key}", item)
        elif item is not None and not isinstance(target, dict):
            access(f"{name}.{key}", item)  # which raises the error
    if isinstance(target, dict):
        yield name, _rest(target, own)


def _rest(target: dict[Any, Any], own: set[Any]) -> Access:
    """Return how to reach what a dict has besides objects; also what it gets later."""

    def values() -> dict[Any, Any]:
        return {key: item for key, item in target.items() if key not in own}

    def set_values(state: Mapping[Any, Any]) -> None:
        for key in values():
            del target[key]
        target.update({key: item for key, item in state.items() if key not in own})

    return Access(values, set_values)


def _holds_objects(target: Any, level: int = 0) -> bool:
    if type(target) not in (dict, list, tuple) or level > _MOST_LEVELS:
        return False
    items = target.values() if isinstance(target, dict) else target
    return any(_has_state(item) or _holds_objects(item, level + 1) for item in items)


def _has_state(target: Any) -> bool:
    if type(target) in (int, float, str, bool, type(None), dict, list, tuple):
        return False
    return isinstance(target, Access) or _methods_of(target) is not None or is_environment(target)


def _methods_of(target: Any) -> Access | None:
    if isinstance(target, type):
        return None
    for getter, setter in _METHODS:
        methods = attribute(target, getter), attribute(target, setter)
        if all(map(callable, methods)):
            return Access(*methods)
    if has(target, "bit_generator"):  # numpy.random.Generator
        generator = target.bit_generator
        return Access(lambda: generator.state, lambda state: setattr(generator, "state", state))
    return None


def _set_dict(target: dict[Any, Any], state: Mapping[Any, Any]) -> None:
    """Set a dict, and those within it, in place: the program's own variables are the same objects."""
    before = dict(target)
    target.clear()
    for key, value in state.items():
        if type(inner := before.get(key)) is dict and isinstance(value, dict):
            _set_dict(inner, value)
            value = inner
        target[key] = value


def is_environment(target: Any) -> bool:
    """Return whether an object is an environment, as of reinforcement learning, that keeps its state to itself."""
    if isinstance(target, (type, Part, Access)) or _methods_of(target) is not None:
        return False
    return all(callable(attribute(target, name)) for name in ("reset", "step"))


def has(target: Any, name: str) -> bool:
    """Return whether an object has an attribute of this name, and does not just answer to any, as Flax's `Rngs` does:
    what it answers with may draw a random number."""
    if not hasattr(target, name):
        return False
    return inspect.getattr_static(target, name, None) is not None or not hasattr(target, "no_attribute_of_anything")


def attribute(target: Any, name: str) -> Any:
    """Return an object's attribute; None where it has none."""
    return getattr(target, name) if has(target, name) else None


class Environment(Part):
    """An environment, as gymnasium's, without methods for its state: its random generators are saved.

    Args:
        name: the environment's, in the state.
        target: the environment; one that is made of several has them in ``envs``.
    """

    def __init__(self, name: str, target: Any) -> None:
        self._name = name
        self._target = target

    @property
    def limit(self) -> str:
        """What a checkpoint does not capture: a sentence."""
        return (
            f'"{self._name}" ({type(self._target).__name__}) has no state that can be saved: after a resume its '
            "episode begins again. Give it get_state() and set_state()."
        )

    @property
    def target(self) -> Any:
        """The environment."""
        return self._target

    def _generators(self) -> list[Access]:
        envs = getattr(self._target, "envs", None)
        every = [self._target, *(envs if isinstance(envs, (list, tuple)) else ())]
        found = (getattr(item, "np_random", None) for item in every)
        return [reach for item in found if item is not None and (reach := _methods_of(item)) is not None]

    def state_dict(self) -> dict[str, Any]:
        """Return the states of its random generators."""
        return {"np_random": [reach.get() for reach in self._generators()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the states of its random generators."""
        for reach, saved in zip(self._generators(), state["np_random"], strict=False):
            reach.set(saved)

    def probe(self) -> Any:
        """See `Part.probe`."""
        return self.state_dict()
