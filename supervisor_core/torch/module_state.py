"""`ModuleState`: what modules have that is in no ``state_dict``: buffers that are not persistent, which parameters are
trained, and which modules are in training mode.

Saved is what has changed since the modules were given: what the program builds, it builds again.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from supervisor_core.base.errors import CheckpointError
from supervisor_core.training.objects import Part

NAME = "module state"
"""The name of this state among the objects of a training."""


FILE = "supervisor-modules.safetensors"
"""Its file in the checkpoint of a framework that saves by itself."""


class _Built(NamedTuple):
    """A module, as the program has built it."""

    modules: dict[str, Any]
    parameters: dict[str, Any]
    modes: list[bool]
    trained: list[bool]
    buffers: dict[str, tuple[Any, int]]
    """By the names of those that are not persistent: a reference to the tensor, and its version."""


class ModuleState(Part):
    """See the module's docstring.

    Args:
        modules: by their names in checkpoints; what is no module is left out.
    """

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self._modules = {name: item for name, item in modules.items() if isinstance(item, torch.nn.Module)}
        self._built = {name: _built(item) for name, item in self._modules.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what has changed: names of modules by mode, of parameters by whether they are trained, buffers."""
        return {name: _changed(item, self._built[name]) for name, item in self._modules.items()}

    def probe(self) -> Any:
        """See `Part.probe`."""
        return self.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set it. What the present modules do not have is left out."""
        for name, saved in state.items():
            if name in self._modules:
                _set(self._built[name], saved)

    def write(self, directory: str) -> None:
        """Add a file to a framework's own checkpoint, if something has changed."""
        from safetensors.torch import save_file  # Transformers brings it, and PyTorch does not

        state = self.state_dict()
        buffers = {
            f"{name}/{key}": value.detach().cpu().contiguous()
            for name, of_model in state.items()
            for key, value in of_model.pop("buffers", {}).items()
        }
        if buffers or any(state.values()):
            save_file(buffers, os.path.join(directory, FILE), {"modules": json.dumps(state)})

    def read(self, directory: str) -> None:
        """Set what `write` has written there.

        Raises:
            CheckpointError: if the file cannot be read.
        """
        from safetensors import SafetensorError, safe_open

        path = os.path.join(directory, FILE)
        if not os.path.exists(path):
            return
        try:
            with safe_open(path, framework="pt") as file:
                state = json.loads((file.metadata() or {})["modules"])
                for key in file.keys():  # noqa: SIM118
                    name, _, buffer = key.partition("/")
                    state[name].setdefault("buffers", {})[buffer] = file.get_tensor(key)
            self.load_state_dict(state)
        except (SafetensorError, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _built(root: Any) -> _Built:
    modules, parameters = dict(root.named_modules()), dict(root.named_parameters())
    modes, trained = [item.training for item in modules.values()], [item.requires_grad for item in parameters.values()]
    buffers = {name: (weakref.ref(item), item._version) for name, item in _unsaved_buffers(modules).items()}
    return _Built(modules, parameters, modes, trained, buffers)


def _unsaved_buffers(modules: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        f"{path}.{name}" if path else name: module._buffers.get(name)
        for path, module in modules.items()
        for name in module._non_persistent_buffers_set
    }
    return {name: item for name, item in found.items() if _is_plain(item)}


def _is_plain(item: Any) -> bool:
    """Return whether it is a tensor that a checkpoint can hold, and not one that is split over processes."""
    is_tensor = isinstance(item, torch.Tensor) and not item.is_inference() and not hasattr(item, "full_tensor")
    is_there = is_tensor and not torch.nn.parameter.is_lazy(item) and not item.is_meta
    return is_there and item.layout is torch.strided and not item.is_quantized


def _changed(root: Any, built: _Built) -> dict[str, Any]:
    modes = [item.training for item in built.modules.values()]
    trained = [item.requires_grad for item in built.parameters.values()]
    state: dict[str, Any] = {}
    if modes != built.modes and root.training:  # else it is being evaluated: what follows trains again
        state["modes"] = {
            name: now for name, was, now in zip(built.modules, built.modes, modes, strict=True) if was != now
        }
    if trained != built.trained:
        state["trained"] = {
            name: now for name, was, now in zip(built.parameters, built.trained, trained, strict=True) if was != now
        }
    buffers = {name: item for name, item in _unsaved_buffers(built.modules).items() if _is_other(item, built, name)}
    return {**state, "buffers": buffers} if buffers else state


def _is_other(item: Any, built: _Built, name: str) -> bool:
    reference, version = built.buffers.get(name, (lambda: None, 0))
    return reference() is not item or item._version != version


def _set(built: _Built, saved: Mapping[str, Any]) -> None:
    for name, mode in saved.get("modes", {}).items():
        if name in built.modules:
            built.modules[name].training = bool(mode)
    for name, is_trained in saved.get("trained", {}).items():
        if name in built.parameters:
            built.parameters[name].requires_grad_(bool(is_trained))
    for name, value in saved.get("buffers", {}).items():
        path, _, key = name.rpartition(".")
        owner = built.modules.get(path)
        if owner is None or key not in owner._non_persistent_buffers_set:
            continue
        present = owner._buffers.get(key)
        if present is not None and present.shape == value.shape and present.dtype == value.dtype:
            with torch.no_grad():
                present.copy_(value)
        else:
            near = [item.device for item in (present, *built.parameters.values()) if item is not None][:1]
            owner._buffers[key] = value.to(near[0]) if near else value
