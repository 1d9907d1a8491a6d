"""`Known`: what of a program's objects checkpoints have."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from supervisor_core.training.objects import Environment, Part


class Known:
    """What checkpoints have: `in` tells whether a value is, or is a part of, one of the captured objects."""

    def __init__(self, captured: Iterable[Any]) -> None:
        self._ids = {id(torch.default_generator)}
        self._memory: set[int] = set()
        self.shapes: set[Any] = set()
        """The shapes of the models' parameters, but for scalars."""
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
            self.shapes |= {tensor.shape for tensor in item.parameters() if tensor.dim()}
            self._memory |= {_memory_of(tensor) for tensor in tensors} - {0}
        elif isinstance(item, torch.Tensor):
            self._memory |= {_memory_of(item)} - {0}
        elif isinstance(item, torch.optim.Optimizer):
            self._kept.append(item.state)
            self._ids.add(id(item.state))
        elif isinstance(item, Environment):
            self._ids.add(id(item.target))
        elif type(item) in (dict, list, tuple):
            for part in item.values() if isinstance(item, dict) else item:
                if is_array(part):
                    self._ids.add(id(part))
                elif id(part) not in self._ids and not isinstance(part, (int, float, str)):
                    self._add(part)
        elif not isinstance(item, (type, Part)) and is_own(type(item).__module__):
            for part in getattr(item, "__dict__", {}).values():  # a captured object returns what it has as its state
                if isinstance(part, (torch.nn.Module, torch.Tensor)):
                    self._add(part)
        for part in getattr(item, "_schedulers", ()):
            self._add(part)


def is_own(module: str | None) -> bool:
    """Return whether a module is the program's own, not one of a package that is installed."""
    name = module or ""
    if name == "__main__":
        return True
    root = name.partition(".")[0]
    if root in sys.stdlib_module_names or root in ("torch", "numpy", "supervisor_core"):
        return False
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    return bool(path) and "site-packages" not in path and "dist-packages" not in path


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor or an array."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, torch.Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def _memory_of(value: Any) -> int:
    """Return where a tensor's numbers are; 0 where it has no place of its own."""
    if not isinstance(value, torch.Tensor):
        return 0
    try:
        return int(value.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # of a kind without storage
        return 0
