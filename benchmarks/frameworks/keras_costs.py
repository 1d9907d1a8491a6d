"""Keras: `SupervisorCallback` beside `ModelCheckpoint` and `BackupAndRestore`, by their hooks in a `fit`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from benchmarks.frameworks import OURS
from benchmarks.frameworks.measuring import NEVER, OPTIONS, SIDE, Measuring
from supervisor_core.keras import SupervisorCallback


class Measure(keras.callbacks.Callback):  # type: ignore[misc]
    """Measures in the second batch of a fit, then ends it."""

    def __init__(self, measuring: Measuring, ours: SupervisorCallback) -> None:
        super().__init__()
        self.measuring, self.ours = measuring, ours

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch != 1:
            return
        measuring, ours, run = self.measuring, self.ours, self.ours.run
        assert run is not None

        def hooks(callback: Any) -> Any:
            def step() -> None:
                callback.on_train_batch_begin(batch, logs)
                callback.on_train_batch_end(batch, logs)

            return step

        def saved() -> None:
            run.ask_for_save()
            ours.on_train_batch_end(batch, logs)

        callbacks = {
            OURS: ours,
            "ModelCheckpoint": self.prepared(model_checkpoint(measuring, NEVER)),
            "BackupAndRestore": self.prepared(backup(measuring, NEVER)),
        }
        none = keras.callbacks.Callback()
        measuring.per_step({name: hooks(callback) for name, callback in callbacks.items()}, bare=hooks(none))
        savers = {
            OURS: saved,
            "ModelCheckpoint": hooks(self.prepared(model_checkpoint(measuring, 1))),
            "BackupAndRestore": hooks(self.prepared(backup(measuring, 1))),
        }
        measuring.per_save(savers, between=run.wait_until_saved)
        self.model.stop_training = True

    def prepared(self, callback: Any) -> Any:
        """Return a callback as it is in a fit."""
        callback.set_params(self.params)
        callback.set_model(self.model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        return callback


def model_checkpoint(measuring: Measuring, every: int) -> Any:
    return keras.callbacks.ModelCheckpoint(str(measuring.directory / f"{every}.keras"), save_freq=every)


def backup(measuring: Measuring, every: int) -> Any:
    return keras.callbacks.BackupAndRestore(str(measuring.directory / f"backup-{every}"), save_freq=every)


def main() -> None:
    measuring = Measuring.of_arguments()
    model = keras.Sequential([keras.layers.Input((SIDE,)), keras.layers.Dense(SIDE, use_bias=False)])
    model.compile(optimizer="sgd", loss="mse")
    ours = SupervisorCallback(measuring.directory / "run", save_secs=None, max_to_keep=1, options=OPTIONS)
    x = np.zeros((4, SIDE), np.float32)
    model.fit(x, x, batch_size=1, verbose=0, callbacks=[ours, Measure(measuring, ours)])
    measuring.write("keras")


if __name__ == "__main__":
    main()
