"""`FitCall`: what a callback has to know of the ``fit`` that it is called in: its other callbacks, and its data.

Keras gives a callback neither, so they are read off the frames that call it. Where they are not there (another
trainer's ``fit``), the checkpoint names what it does not capture.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import keras

from supervisor_core.training.position import unknown_order

UNKNOWN_DATA = "The order of the samples is not known to be the same: the data are {}."
UNSEEDED = (
    "The order of the samples is drawn by TensorFlow without a seed: call keras.utils.set_random_seed() at the "
    "program's start."
)
RESHUFFLED = (
    "A tf.data.Dataset with {} has another order in a process of its own: cache it, or shuffle without reshuffling."
)
THREADED = "The order of a PyDataset's batches is drawn in a thread: pass shuffle=False to fit()."
GENERATOR = "The data are a generator, whose position is not captured: use a PyDataset."
STEPS = "With steps_per_epoch the data go on over epochs, and their position is not captured."
LOADER_GENERATOR = "The DataLoader has a random generator of its own, which is not captured."
LOADER_WORKERS = "Random numbers that the dataset draws in the DataLoader's workers are not captured."
EPOCH_HOOK = "What the PyDataset changes at an epoch's end is not captured."
NO_SIBLINGS = "The states of the other callbacks are not captured: this fit() does not show them."

_UNSEEDED_GRAPH = 87654321  # what TensorFlow's get_seed returns without a global seed


@dataclass(kw_only=True)
class FitCall:
    """One call of ``fit``."""

    list: Any = None
    """Its `keras.callbacks.CallbackList`."""
    epoch_iterator: Any = None
    data: Any = None
    """What it was given as ``x``."""
    is_replayable: bool = False
    """Whether the data can be begun again."""
    limits: tuple[str, ...] = ()
    """What of its data cannot be captured: sentences."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What has to be the same for an exact resume."""


def fit_call(callback: Any) -> FitCall:
    """Return the call of ``fit`` whose ``on_train_begin`` is under way."""
    found = FitCall()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if found.list is None and isinstance(owner, keras.callbacks.CallbackList) and callback in owner.callbacks:
            found.list = owner
        if frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals:
            _see_data(found, frame.f_locals)
            break
        frame = frame.f_back
    else:
        found.limits = (UNKNOWN_DATA.format("not shown by this fit()"),)
    if found.list is None:
        found.limits = (*found.limits, NO_SIBLINGS)
    return found


def _see_data(found: FitCall, values: Mapping[str, Any]) -> None:
    iterator = found.epoch_iterator = values["epoch_iterator"]
    found.data = values.get("x")
    found.is_replayable = type(iterator.data_adapter).__name__ != "GeneratorDataAdapter"
    found.limits = tuple(_limits(iterator.data_adapter, values))
    facts = {
        "backend": keras.backend.backend(),
        "number of batches": iterator.num_batches,
        "batch size": iterator.data_adapter.batch_size,
        "number of steps per execution": iterator.steps_per_execution,
    }
    if facts["backend"] == "tensorflow" and _is_seeded():
        facts["seed of TensorFlow"] = _seed()
    found.facts = {name: str(value) for name, value in facts.items() if value is not None}


def _limits(adapter: Any, values: Mapping[str, Any]) -> list[str]:
    data, shuffle, backend = values.get("x"), values.get("shuffle"), keras.backend.backend()
    kind = type(adapter).__name__
    limits = []
    if values.get("steps_per_epoch") and kind != "GeneratorDataAdapter":
        limits.append(STEPS)
    if kind == "ArrayDataAdapter":
        if shuffle and backend == "tensorflow" and not _is_seeded():
            limits.append(UNSEEDED)
    elif kind == "TFDatasetAdapter":
        limits += [RESHUFFLED.format(name) for name in _drawing(data)]
    elif kind == "PyDatasetAdapter":
        hooks = {
            getattr(type(data), name) is getattr(keras.utils.PyDataset, name)
            for name in ("on_epoch_begin", "on_epoch_end")
        }
        if hooks != {True}:
            limits.append(EPOCH_HOOK)
        if shuffle and (backend == "tensorflow" or data.workers > 1 or data.use_multiprocessing):  # type: ignore[union-attr]
            limits.append(THREADED)
    elif kind == "TorchDataLoaderAdapter":
        samplers = (data, getattr(data, "sampler", None), getattr(data, "batch_sampler", None))
        if any(getattr(item, "generator", None) is not None for item in samplers):
            limits.append(LOADER_GENERATOR)
        if getattr(data, "num_workers", 0):
            limits.append(LOADER_WORKERS)
        limits += unknown_order(data)
    elif kind == "GeneratorDataAdapter":
        limits.append(GENERATOR)
    else:
        limits.append(UNKNOWN_DATA.format(f"a {type(data).__module__}.{type(data).__qualname__}"))
    return limits


def _is_seeded() -> bool:
    return _seed() != _UNSEEDED_GRAPH


def _seed() -> int:
    return int(sys.modules["tensorflow"].compat.v1.random.get_seed(1)[0])


def _drawing(dataset: Any) -> list[str]:
    """Return the parts of a ``tf.data.Dataset`` whose order differs from one iterator to the next."""
    found = []
    name = type(dataset).__name__.strip("_")
    if "Shuffle" in name and getattr(dataset, "_reshuffle_each_iteration", True) is not False:
        found.append("shuffle()")
    elif "Shuffle" in name and not _is_seeded():
        return [UNSEEDED]
    elif any(word in name for word in ("Random", "Generator", "Sample")):
        found.append(name)
    inputs = getattr(dataset, "_inputs", None)
    for item in inputs() if callable(inputs) else ():
        found += _drawing(item)
    return found
