"""The variables around a loop: of the program's functions that ask for its next step, and of their modules."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

WITHIN = "\0"
"""Stands before the names of a function or module around the one with the loop."""


def asking(*modules: str) -> FrameType | None:
    """Return the frame of the program that asks for something, behind those of these packages."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(modules):
        frame = frame.f_back
    return frame


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
