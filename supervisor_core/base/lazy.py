"""Public names of a package whose modules are loaded when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from supervisor_core.base.systems import POSIX_MODULES

FRAMEWORKS = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "torch": "PyTorch",
    "lightning": "Lightning",
    "transformers": "Transformers",
    "jax": "JAX",
    "orbax": "Orbax",
}
"""Modules that an extra of this package installs, and what people call them. An adapter's extra has its name."""


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        modules: module, relative to ``supervisor_core`` -> the public names that it defines, with spaces between them.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"supervisor_core.{module}"), name)
        except ModuleNotFoundError as error:
            remedy = _remedy(package, error.name or "")
            if remedy is None:
                raise
            raise ImportError(f"{package}.{name} needs {remedy}") from error

    def public_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, public_names


def _remedy(package: str, missing: str) -> str | None:
    """Return what a name of a package needs that is not installed, and how to install it; None if it is not known."""
    missing = missing.partition(".")[0]
    if missing in POSIX_MODULES:
        return "Linux or macOS; on Windows there is Linux in WSL. What reads a logdir works here, too"
    if missing not in FRAMEWORKS:
        return None
    adapter = package.rpartition(".")[2]
    if adapter == "keras" != missing:
        return (
            f"a backend of Keras. It looked for {FRAMEWORKS[missing]}, which is not installed: install tensorflow, "
            "torch or jax, and set the environment's KERAS_BACKEND to its name"
        )
    if missing in ("jax", "orbax") and sys.version_info < (3, 11):
        return f"{FRAMEWORKS[missing]}, which is not installed and needs Python 3.11 or newer"
    from supervisor_core.base.install import install_command

    extra = adapter if adapter in FRAMEWORKS else missing
    return f"{FRAMEWORKS[missing]}, which is not installed: {install_command(extra)}"
