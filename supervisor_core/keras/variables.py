"""`ModelVariables`: everything of a Keras model that changes: weights, seeds, optimizer, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import ml_dtypes
import numpy as np

from supervisor_core.errors import CheckpointError
from supervisor_core.training.state import summary
from supervisor_core.training.tree import Copied, NumpyArrays

_NUMPY = NumpyArrays()

_PARTS: Mapping[str, Callable[[Any], list[Any]]] = {
    "trainable": lambda model: model.trainable_variables,
    "other": lambda model: model.non_trainable_variables,  # the layers' seeds are among them
    "optimizer": lambda model: [] if model.optimizer is None else model.optimizer.variables,
    "metrics": lambda model: model.metrics_variables,
}


class ModelVariables:
    """The variables of a model. They are saved in their order: names change with what a program builds before.

    Args:
        model: a compiled and built model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._loaded: Mapping[str, Any] | None = None
        self.metrics: list[list[Any]] | None = None
        """What is saved in place of the metrics, while an evaluation uses these; None otherwise."""

    def state_dict(self) -> dict[str, Any]:
        """Return the variables of each part: name and value."""
        sync(self._model)
        state = {name: values_of(part(self._model)) for name, part in _PARTS.items()}
        if self.metrics is not None:
            state["metrics"] = self.metrics
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the variables, and keep the state for `load_again`."""
        for part, saved in state.items():
            variables = _PARTS[part](self._model)
            if len(variables) != len(saved):
                raise CheckpointError(
                    f"the checkpoint has {len(saved)} variables of the part {part!r}, the model has {len(variables)}."
                )
            for variable, (path, value, *_) in zip(variables, saved, strict=True):
                found, wanted = list(map(int, value.shape)), list(map(int, variable.shape))
                if found != wanted:
                    raise CheckpointError(f"{path} has the shape {found}; in the model {variable.path} has {wanted}.")
        self._loaded = state
        self._assign(state)

    def load_again(self) -> None:
        """Set the variables to what was loaded last; once."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            sync(self._model)
            self._assign(loaded)

    def _assign(self, state: Mapping[str, Any]) -> None:
        for part, saved in state.items():
            for variable, (_, value, *packed) in zip(_PARTS[part](self._model), saved, strict=True):
                variable.assign(value.view(getattr(ml_dtypes, packed[0])) if packed else value)


def metrics_of(model: Any) -> list[list[Any]]:
    """Return the metrics' variables, as `ModelVariables` saves them."""
    sync(model)
    return values_of(model.metrics_variables)


def watched(model: Any) -> dict[str, list[Any]]:
    """Return the weights, to note digests of: views where that is possible. None with JAX, which keeps them elsewhere
    during an epoch."""
    if keras.backend.backend() == "jax":
        return {}
    values = [variable.value for variable in model.trainable_variables]
    return {"model": [value if hasattr(value, "tolist") else value.numpy() for value in values]}


def facts_of(model: Any) -> dict[str, str]:
    """Return what of a model has to be the same for an exact resume."""
    variables = [item.value for item in model.variables]
    return {
        "dtype policy": summary(layer.dtype_policy.name for layer in model._flatten_layers()),
        "type of device": summary(sorted(set(map(_device_of, variables)))),
    }


def _device_of(value: Any) -> str:
    """Return the type of device of a variable's value, as the backend names it."""
    if callable(devices := getattr(value, "devices", None)):  # JAX
        return ", ".join(sorted({device.platform for device in devices()}))
    device = getattr(value, "device", "")
    return str(getattr(device, "type", None) or str(device).rpartition("device:")[2].partition(":")[0]).lower()


def values_of(variables: list[Any]) -> list[list[Any]]:
    """Return names and values, copied once. Formats that safetensors' numpy part has not, as bfloat16, become
    integers, with the format's name."""
    backend = keras.backend.backend()
    found = []
    for variable in variables:
        value = variable.value
        if backend == "tensorflow" and hasattr(value, "numpy"):
            value = np.asarray(value.numpy())  # one copy; convert_to_numpy makes two
        else:
            value = np.asarray(keras.ops.convert_to_numpy(value))
        packed = [value.dtype.name] if value.dtype.kind == "V" else []  # of ml_dtypes
        if packed:
            value = value.view(f"u{value.dtype.itemsize}")
        is_own = backend in ("tensorflow", "jax") and value.flags.writeable and value.flags.c_contiguous
        found.append([variable.path, Copied(_NUMPY.name, value) if is_own else value, *packed])
    return found


def sync(model: Any) -> None:
    """Write the values of a ``fit`` that is under way into the variables; JAX holds them elsewhere."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
