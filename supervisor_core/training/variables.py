"""The variables around a loop: of the program's functions that ask for its next step, and of their modules; and what
objects hold."""

from __future__ import annotations

import inspect
import logging
import random
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import FrameType
from typing import Any

from supervisor_core.training.objects import access

WITHIN = "^"
"""Stands before the names of a function or module around the one with the loop."""


def asking(*modules: str) -> FrameType | None:
    """Return the frame of the program that asks for something, behind those of these packages."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(modules):
        frame = frame.f_back
    return frame


@cache
def is_own(module: str | None) -> bool:
    """Return whether a module is the program's own, not one of a package that is installed."""
    name = module or ""
    if name.partition(".")[0] in (*sys.stdlib_module_names, "torch", "numpy", "supervisor_core"):
        return name == "__main__"
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    return name == "__main__" or (bool(path) and "site-packages" not in path and "dist-packages" not in path)


def variables_of(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of the function with the loop, of the program's functions around it, and of their modules,
    each of these with names of its own; a generator, as of a progress bar, may stand between loop and body."""
    of_functions: list[Mapping[str, Any]] = []
    of_modules: dict[int, Mapping[str, Any]] = {}
    while frame is not None:
        present = frame.f_locals
        if is_own(frame.f_globals.get("__name__")):
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


def shown(name: str) -> str:
    """Return the name of a variable, as the program has it."""
    return name.lstrip(WITHIN)


MOST_OBJECTS = 256
"""The most objects within a dataset that are looked at."""


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor or an array."""
    kind = type(value)
    return hasattr(kind, "shape") and hasattr(kind, "dtype") and hasattr(kind, "tolist")


def generators_within(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the random generators that an object holds, in its attributes and in lists and dicts, with their paths."""
    return (found for found in reachable(value) if is_generator(found[1]))


def reachable(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object and what it holds, in its attributes and in lists and dicts, with their paths."""
    found, seen = [("", value)], {id(value)}
    for path, item in found:  # with those that are found in them
        yield path, item
        for suffix, part in () if is_generator(item) else _parts(item):
            if len(found) < MOST_OBJECTS and id(part) not in seen and not (isinstance(part, _PLAIN) or is_array(part)):
                seen.add(id(part))
                found.append((path + suffix, part))


_PLAIN = (str, bytes, int, float, type, type(sys), type(None), logging.Logger)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", value[key]) for key in list(value)[:MOST_OBJECTS])
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{at}]", part) for at, part in enumerate(value[:MOST_OBJECTS]))
    elif isinstance(attributes := getattr(value, "__dict__", None), dict):
        yield from ((f".{name}", part) for name, part in list(attributes.items()))


def is_generator(value: Any) -> bool:
    """Return whether a value is a random generator with a state of its own."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds: tuple[type, ...] = (random.Random,) if torch is None else (torch.Generator, random.Random)
    if numpy is not None:
        kinds = (*kinds, numpy.random.Generator, numpy.random.RandomState)
    return isinstance(value, kinds) and not isinstance(value, random.SystemRandom)


def comparable_state(generator: Any) -> str:
    """Return a generator's state, to be compared."""
    state = access("", generator).get()
    return repr(state.tolist() if is_array(state) else state)
