"""Keras on PyTorch: what a callback changes in the model between epochs, under ours."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.exactness.programs import EPOCHS, Asked, Interruption, is_any, say_end, say_logged_reasons
from benchmarks.exactness.programs.keras_torch import keras_fit

keras = keras_fit.keras


class Changing(keras_fit.Stateless):
    """Freezes a layer from the second epoch on, or sets the dropout's rate in it; or in each, by its number."""

    def __init__(self, kind: str, captured: bool) -> None:
        super().__init__()
        self.kind, self.captured = kind, captured

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Change it."""
        if not self.captured and epoch != 1:
            return
        if self.kind == "freezes":
            self.model.get_layer("first").trainable = epoch < 1
        else:
            self.model.get_layer("drop").rate = 0.6 if epoch else 0.1


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    kind, captured = asked.options["kind"], asked.options["captured"]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    keras.utils.set_random_seed(0)
    random.seed(0)
    layers = keras.layers
    inputs = {"ids": keras.Input((), dtype="int32"), "features": keras.Input((64,))}
    memory = keras_fit.Remembering(dtype="float32")
    hidden = layers.Dense(16, name="first")(memory(inputs["ids"], inputs["features"]))
    model = keras.Model(inputs, layers.Dense(10)(layers.Dropout(0.1, name="drop")(hidden)))
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
    supervisor, callbacks = None, [Changing(kind, captured)]
    if asked.system == "ours":
        say_logged_reasons()
        supervisor = keras_fit.SupervisorCallback(asked.directory, save_secs=None, save_steps=asked.save_every)
        callbacks += [supervisor, keras_fit.SayingVerdict(supervisor)]
    callbacks.insert(0, keras_fit.Saying(memory, Interruption(asked, has_saved), supervisor))
    data = keras_fit.data_of({"data": "arrays", "shuffle": True})
    model.fit(epochs=EPOCHS, verbose=0, callbacks=callbacks, **data)
    variables = [np.asarray(keras.ops.convert_to_numpy(value)) for value in model.optimizer.variables]
    say_end(int(keras.ops.convert_to_numpy(memory.count)), [*model.get_weights(), *variables])
