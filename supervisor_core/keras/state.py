"""`ModelVariables`: everything of a Keras model that changes: weights, seeds, optimizer, metrics."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import keras
import ml_dtypes
import numpy as np

from supervisor_core.base.errors import CheckpointError
from supervisor_core.training import random_state
from supervisor_core.training.objects import Access, Part, access
from supervisor_core.training.position import EpochLength, FitNumber
from supervisor_core.training.random_state import RandomSource, process_sources
from supervisor_core.training.state import probe, summary
from supervisor_core.training.tree import Copied, NumpyArrays, check_tree

_NUMPY = NumpyArrays()

_PARTS: Mapping[str, Callable[[Any], list[Any]]] = {
    "trainable": lambda model: model.trainable_variables,
    "other": lambda model: model.non_trainable_variables,  # the layers' seeds are among them
    "optimizer": lambda model: [] if model.optimizer is None else model.optimizer.variables,
    "metrics": lambda model: model.metrics_variables,
}


TRAINABLE = (
    "A layer's trainable was changed in fit(), after the step had been compiled: a resume compiles it as it is now. "
    "Change it before compile() and fit()."
)


class ModelVariables:
    """The variables of a model, and which of its layers are trainable. They are saved in their order: names change with
    what a program builds before.

    Args:
        model: a compiled and built model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._loaded: Mapping[str, Any] | None = None
        self._trainable = self._layers_trainable()
        self.metrics: list[list[Any]] | None = None
        """What is saved in place of the metrics, while an evaluation uses these; None otherwise."""

    def state_dict(self) -> dict[str, Any]:
        """Return the variables of each part: name and value."""
        sync(self._model)
        state: dict[str, Any] = {name: values_of(part(self._model)) for name, part in _PARTS.items()}
        state["layers"] = self._layers_trainable()
        if self.metrics is not None:
            state["metrics"] = self.metrics
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set what is trainable, then the variables, and keep the state for `load_again`."""
        layers = list(self._model._flatten_layers())
        flags, state = state.get("layers", ()), {part: saved for part, saved in state.items() if part in _PARTS}
        if len(flags) == len(layers):
            for layer, is_trainable in zip(layers, flags, strict=True):  # one that holds others sets theirs, too
                if layer.trainable != is_trainable:
                    layer.trainable = is_trainable
        self._trainable = self._layers_trainable()
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

    @property
    def limits(self) -> tuple[str, ...]:
        """What a resume does not bring back: sentences. PyTorch compiles no step."""
        is_changed = keras.backend.backend() != "torch" and self._layers_trainable() != self._trainable
        return (TRAINABLE,) if is_changed else ()

    def _layers_trainable(self) -> list[bool]:
        return [bool(layer.trainable) for layer in self._model._flatten_layers()]

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


class FitPosition(Part):
    """The position of one ``fit``.

    Args:
        fit: which one it is.
        batches: the size and number of the data's batches, which decide the length of an epoch.
    """

    def __init__(self, fit: FitNumber, batches: str = "") -> None:
        self.fit, self._batches = fit, batches
        self.epoch = 0
        self.batch = 0
        """Batches consumed in this epoch."""
        self.is_evaluating = False
        """Whether the epoch's evaluation had begun."""
        self.is_over = False
        """Whether ``fit`` has ended."""
        self.start: dict[str, Any] | None = None
        self.saved: Mapping[str, Any] | None = None
        """What was loaded."""
        self.is_read = False
        """Whether the resume has been judged."""
        self.length = EpochLength("Give fit() data that begin again with each epoch.")

    def state_dict(self) -> dict[str, Any]:
        """Return the position; the one that was loaded until `is_read`."""
        if self.saved is not None and not self.is_read:
            return dict(self.saved)
        return {
            "fit": self.fit.number,
            "epoch": self.epoch,
            "batch": self.batch,
            "evaluating": self.is_evaluating,
            "over": self.is_over,
            "start": self.start,
            "whole": self.length.whole,
            "batches": self._batches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position, if it is one of this ``fit``."""
        self.saved = state
        self.fit.load(int(state["fit"]))
        if self.fit.is_this or self.fit.is_later:
            self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
            self.is_evaluating, self.is_over = bool(state["evaluating"]), bool(state["over"])
            self.start = state["start"]
            is_same = self.fit.is_this and state.get("batches") == self._batches
            self.length.resume(state.get("whole") if is_same else None)

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins: keep the random states that its order is drawn from."""
        self.epoch, self.batch, self.is_evaluating = epoch, 0, False
        self.start = random_state.capture(random_sources())

    def end_epoch(self, *, is_over: bool) -> None:
        """The last epoch has ended, or the training was stopped early."""
        self.epoch, self.batch, self.start, self.is_over = self.epoch + 1, 0, None, is_over


def random_sources() -> tuple[RandomSource, ...]:
    """Return the random sources of this process: python's, numpy's, Keras's own, and PyTorch's on each device."""
    from keras.src.random.seed_generator import global_seed_generator  # of layers and functions without a seed

    before = random.getstate()
    seed = global_seed_generator().state  # the first call draws its seed from python's source
    random.setstate(before)
    sources = [
        *process_sources(),
        RandomSource("keras", lambda: np.array(keras.ops.convert_to_numpy(seed.value)), seed.assign),
    ]
    if "torch" in sys.modules:
        from supervisor_core.torch.tensors import torch_sources

        sources += map(_with_numpy_states, torch_sources())
    return tuple(sources)


def _with_numpy_states(source: RandomSource) -> RandomSource:
    """Return a source of PyTorch's whose states are arrays of numpy, as all of Keras's are."""
    tensor = sys.modules["torch"].tensor
    return RandomSource(source.name, lambda: source.get().numpy(), lambda state: source.set(tensor(state)))


NOT_CAPTURED = "{} of the callback {} is not captured: give it get_state() and set_state()."

# Attributes that Keras sets, and configuration that it changes: monitor_op's first use turns the sign of min_delta.
_KERAS_SETS = {"model", "_model", "params", "_params", "min_delta", "monitor_op"}
# They show progress, or swap what is swapped back before a checkpoint is saved.
_WITHOUT_STATE = (keras.callbacks.ProgbarLogger, keras.callbacks.SwapEMAWeights)
_KINDS = (NumpyArrays(),)


class Siblings:
    """The states of callbacks.

    Args:
        callbacks: the callbacks of a ``fit``, without ours.
    """

    def __init__(self, callbacks: list[Any]) -> None:
        self._callbacks = [item for item in callbacks if not isinstance(item, _WITHOUT_STATE)]
        self._before: list[dict[str, Any]] | None = None
        self._loaded: list[Any] | None = None
        self.held: list[Any] | None = None
        """What is saved in place of the present states, while an evaluation runs; None otherwise."""

    @property
    def limits(self) -> tuple[str, ...]:
        """What is not captured: sentences."""
        found = []
        for item in self._callbacks:
            own = type(item).__module__.partition(".")[0] != "keras" and _access(item) is None
            found += [
                NOT_CAPTURED.format(name, type(item).__name__)
                for name, value in (vars(item).items() if own else ())
                if name not in _KERAS_SETS and not callable(value) and not _can_be_saved(value)
            ]
        return tuple(found)

    @property
    def names(self) -> str:
        """The callbacks' names."""
        return ", ".join(type(item).__name__ for item in self._callbacks) or "none"

    def begin(self) -> None:
        """The first epoch begins: what is set now is configuration."""
        if self._before is None:
            self._before = [{name: _base(value) for name, value in vars(item).items()} for item in self._callbacks]

    def probe(self) -> None:
        """See after the first batch whether the states can be saved.

        Raises:
            CheckpointError: if a callback does not return its state, or one with a value that cannot be saved.
        """
        for item in self._callbacks:
            if (pair := _access(item)) is not None:
                probe(pair.get, _KINDS, f"The state of the callback {type(item).__name__}")

    def state_dict(self) -> dict[str, Any]:
        """Return the states, by the callbacks' order."""
        return {"callbacks": self.states() if self.held is None else self.held}

    def states(self) -> list[Any]:
        """Return the states of this moment."""
        before = self._before or [{} for _ in self._callbacks]
        return [
            [type(item).__name__, self._state(item, base)] for item, base in zip(self._callbacks, before, strict=True)
        ]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the states for `apply`: Keras sets callbacks back when ``fit`` begins."""
        left = [(name, saved) for name, saved in state["callbacks"]]
        self._loaded = []
        for item in self._callbacks:
            found = next((pair for pair in left if pair[0] == type(item).__name__), None)
            if found is not None:
                left.remove(found)
            self._loaded.append(None if found is None else found[1])

    def apply(self, *, last: bool = True) -> None:
        """Set the states that were loaded.

        Args:
            last: do not keep them for another call.
        """
        if self._loaded is None:
            return
        for number, (item, state) in enumerate(zip(self._callbacks, self._loaded, strict=True)):
            if state is None:
                continue
            if (pair := _access(item)) is not None:
                pair.set(state)
                continue
            for name, value in (self._before[number] if self._before else {}).items():
                if name not in _KERAS_SETS and _can_be_saved(value):
                    setattr(item, name, _base(value))
            for name, value in state.items():
                setattr(item, name, copy.deepcopy(value))
        if last:
            self._loaded = None

    def _state(self, item: Any, before: dict[str, Any]) -> Any:
        if (pair := _access(item)) is not None:
            return pair.get()
        return {
            name: value
            for name, value in vars(item).items()
            if name not in _KERAS_SETS
            and not (name in before and _is_same(before[name], value))
            and _can_be_saved(value)
        }


def _access(item: Any) -> Access | None:
    try:
        return access(type(item).__name__, item)
    except TypeError:
        return None


def _can_be_saved(value: Any) -> bool:
    try:
        check_tree(value, _KINDS)
    except CheckpointError:
        return False
    return True


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other) and type(one) is type(other)
    except (ValueError, TypeError):  # arrays
        return False


def _base(value: Any) -> Any:
    """Return a value as it is now; a container's later changes do not reach it."""
    return copy.copy(value) if isinstance(value, (list, dict, set)) else value
