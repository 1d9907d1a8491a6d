"""Keras: `BackupAndRestore` every few batches, with the backup before the newest kept as well."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from benchmarks.faults.programs import WEIGHTS, Asked, Steps, initial, say


class Model(keras.Model):
    """Weights that rise by one with each step."""

    def __init__(self, floats: int) -> None:
        super().__init__()
        self.values = [
            self.add_weight(name=f"weight_{number}", shape=(floats,), initializer="zeros") for number in range(WEIGHTS)
        ]
        for number, value in enumerate(self.values):
            value.assign(initial(number, floats))

    def call(self, x: Any) -> Any:
        """Return what the loss is the negative of."""
        return keras.ops.sum(x) * 0.0 + sum(keras.ops.sum(value) for value in self.values)


class Backup(keras.callbacks.BackupAndRestore):
    """Says what was saved."""

    def _save_model(self) -> None:
        super()._save_model()
        say("saved", int(self.model.optimizer.iterations))


class Said(keras.callbacks.Callback):
    """Says the steps. Comes after the backup."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def on_train_begin(self, logs: Any = None) -> None:
        """Say what was restored."""
        self._steps.begin(int(self.model.optimizer.iterations), [np.asarray(value) for value in self.model.values])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Say the step."""
        step = int(self.model.optimizer.iterations)
        self._steps.did(step)
        if self._steps.is_over(step):
            self.model.stop_training = True


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    model = Model(asked.floats)
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss=lambda y, found: -found)
    x = np.zeros((1, 1), np.float32)
    model(x)
    backup = Backup(asked.directory, save_freq=asked.save_every, double_checkpoint=True, delete_checkpoint=False)

    def data() -> Any:
        while True:
            yield x, x

    model.fit(data(), steps_per_epoch=1_000_000, epochs=1, verbose=0, callbacks=[backup, Said(Steps(asked))])
    say("end")
