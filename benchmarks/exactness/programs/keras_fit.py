"""Keras: a ``model.fit``, under ours, or with `BackupAndRestore`; the backend is chosen by who imports this."""

from __future__ import annotations

import os
import random
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.exactness.programs import (
    BATCH,
    EPOCHS,
    PER_EPOCH,
    SAMPLES,
    Asked,
    Interruption,
    digits,
    is_any,
    say_batch,
    say_end,
    say_verdict,
)  # fmt: skip
from supervisor_core.keras import SupervisorCallback

tf: Any = import_module("tensorflow") if find_spec("tensorflow") else None
"""Imported by ``fit`` on each backend, where it is installed: once here, not in each trial."""
FEATURES, LABELS = digits()
MOST = 3 * EPOCHS * PER_EPOCH
"""Batches that the model can remember."""


class Remembering(keras.layers.Layer):
    """Passes the features on, and keeps the numbers of the samples that were trained on, batch by batch."""

    def build(self, shape: Any) -> None:
        self.count = self.add_weight(name="count", shape=(), initializer="zeros", trainable=False)
        self.seen = self.add_weight(name="seen", shape=(MOST, BATCH), initializer="zeros", trainable=False)

    def call(self, ids: Any, features: Any, training: bool = False) -> Any:
        if training:
            ops = keras.ops
            places = ops.one_hot(ops.arange(ops.shape(ids)[0]), BATCH)
            row = ops.matmul(ops.cast(ids, "float32")[None] + 1.0, places)  # 0 where the batch is smaller
            here = ops.one_hot(ops.cast(self.count, "int32"), MOST)
            self.seen.assign(self.seen + here[:, None] * row)
            self.count.assign(self.count + 1.0)
        return features


class Stateless(keras.callbacks.Callback):
    """Has nothing to save."""

    def get_state(self) -> dict[str, Any]:
        """Nothing of this is the training's."""
        return {}

    def set_state(self, state: Any) -> None:
        """See `get_state`."""


class Saying(Stateless):
    """Says each batch; interrupts between the batches. Before the supervisor's callback, which may end the process."""

    def __init__(self, memory: Remembering, interruption: Interruption, supervisor: Any) -> None:
        super().__init__()
        self.memory, self.interruption, self.supervisor = memory, interruption, supervisor
        self.said: int | None = None

    def count(self) -> int:
        """Return the number of batches that the model was trained on."""
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # else the variables are empty within an epoch
        return int(keras.ops.convert_to_numpy(self.memory.count))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Interrupt."""
        if self.supervisor is None or (self.supervisor.run is not None and self.supervisor.is_training):
            count = self.count()
            self.said = count if self.said is None else self.said
            self.interruption.look(count + 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Say the batches of this step; the loss is that of the epoch so far."""
        if self.said is None or logs is None:
            return
        count = self.count()
        seen = keras.ops.convert_to_numpy(self.memory.seen)
        for number in range(self.said, count):
            ids = [int(value) - 1 for value in seen[number] if value]
            say_batch(number + 1, ids, float(logs["loss"]))
        self.said = count


class SayingVerdict(Stateless):
    """Says the verdict; after the supervisor's callback."""

    def __init__(self, supervisor: SupervisorCallback) -> None:
        super().__init__()
        self.supervisor = supervisor

    def on_train_begin(self, logs: Any = None) -> None:
        """Say it."""
        say_verdict(self.supervisor.exactness)


class Sequence(keras.utils.PyDataset):
    """Batches in an order of their own."""

    def __len__(self) -> int:
        return PER_EPOCH

    def __getitem__(self, index: int) -> Any:
        part = np.random.default_rng(5).permutation(SAMPLES)[index * BATCH : (index + 1) * BATCH]
        return {"ids": part, "features": FEATURES[part]}, LABELS[part]


class Drawing(Sequence):
    """The same, with noise from numpy's random state."""

    def __getitem__(self, index: int) -> Any:
        inputs, labels = super().__getitem__(index)
        return {**inputs, "features": inputs["features"] + np.float32(np.random.standard_normal())}, labels


def data_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``fit``."""
    kind, shuffle = options["data"], options["shuffle"]
    arrays = ({"ids": np.arange(SAMPLES), "features": FEATURES}, LABELS)
    if kind == "arrays":
        return {"x": arrays[0], "y": arrays[1], "batch_size": BATCH, "shuffle": shuffle}
    if kind.startswith("tf.data"):
        dataset = tf.data.Dataset.from_tensor_slices(arrays)
        if shuffle:
            dataset = dataset.shuffle(SAMPLES, reshuffle_each_iteration=kind != "tf.data")
        return {"x": dataset.batch(BATCH)}
    if kind == "DataLoader":
        import torch

        samples = [({"ids": n, "features": FEATURES[n]}, int(LABELS[n])) for n in range(SAMPLES)]
        return {"x": torch.utils.data.DataLoader(samples, BATCH, shuffle=shuffle)}
    return {"x": (Drawing if kind == "PyDataset that draws" else Sequence)(), "shuffle": shuffle}


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    options = asked.options
    warnings.simplefilter("ignore")
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_compilation_cache_dir", str(Path(asked.directory).parents[1] / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    keras.utils.set_random_seed(0)
    random.seed(0)
    layers = keras.layers
    policy = "mixed_bfloat16" if options["amp"] else "float32"
    inputs = {"ids": keras.Input((), dtype="int32"), "features": keras.Input((64,))}
    memory = Remembering(dtype="float32")
    hidden = memory(inputs["ids"], inputs["features"])
    hidden = layers.Dense(16, dtype=policy)(hidden)
    hidden = layers.BatchNormalization(dtype=policy)(hidden)
    hidden = layers.Dropout(0.3, dtype=policy)(hidden) if options["dropout"] else hidden
    model = keras.Model(inputs, layers.Dense(10, dtype="float32")(hidden))
    kind = {"AdamW": keras.optimizers.AdamW, "SGD": keras.optimizers.SGD}[options["optimizer"]]
    ema = {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": None} if options["ema"] else {}
    accumulated = {"gradient_accumulation_steps": options["accumulate"]} if options["accumulate"] > 1 else {}
    model.compile(
        kind(0.01, **ema, **accumulated), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=options["steps per execution"], jit_compile=keras.backend.backend() == "jax",
    )  # fmt: skip
    callbacks: list[Any] = []
    supervisor, has_saved = None, is_any(asked.directory, "backup/latest.weights.h5")
    if asked.system == "ours":
        supervisor = SupervisorCallback(asked.directory, save_secs=None, save_steps=asked.save_every)
        has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
        callbacks += [supervisor, SayingVerdict(supervisor)]
    elif asked.system != "none":
        callbacks.append(
            keras.callbacks.BackupAndRestore(os.path.join(asked.directory, "backup"), save_freq=asked.save_every)
        )
    callbacks.insert(0, Saying(memory, Interruption(asked, has_saved), supervisor))
    if options["callbacks"]:
        callbacks += [
            keras.callbacks.EarlyStopping("loss", patience=1, min_delta=0.4),
            keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=9, factor=0.5),
        ]
    validation = {"validation_data": ({"ids": np.arange(16), "features": FEATURES[:16]}, LABELS[:16])}
    model.fit(
        epochs=EPOCHS, verbose=0, callbacks=callbacks, **data_of(options),
        **(validation if options["evaluates"] else {}),
    )  # fmt: skip
    optimizer = [keras.ops.convert_to_numpy(value) for value in model.optimizer.variables]
    say_end(int(keras.ops.convert_to_numpy(memory.count)), [*model.get_weights(), *optimizer])
