"""Public names of a package whose modules are loaded when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        modules: public name -> the module that defines it, relative to ``supervisor_core``.
    """

    def get(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"supervisor_core.{module}"), name)
        except ModuleNotFoundError as error:
            if error.name != "tensorflow":
                raise
            raise ImportError(
                f"{package}.{name} needs TensorFlow, which is not installed: "
                "pip install 'tensorboard-plugin-supervisor[tensorflow]'"
            ) from error

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
