"""One fit, which says the bits of what it computes.

    keras_program.py LOGDIR [EVENT PLACE] [--twice]
    keras_program.py LOGDIR --in-one-process
    keras_program.py LOGDIR --of-a-generator

EVENT is a signal, "error", or "interrupt", after which the program lives on and fits again; PLACE an epoch and a
batch, as "1 4", or "test 1 0" for the evaluation after an epoch.
"""

from __future__ import annotations

import code
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np

from supervisor_core import Options
from supervisor_core.engine.progress import Progress
from supervisor_core.keras import SupervisorCallback
from supervisor_core.keras.state import values_of
from supervisor_core.training.tree import NumpyArrays, copy_tree

PAUSE = threading.Event()  # never set
SAMPLES, BATCH, EPOCHS = 45, 8, 3


def say(line: str) -> None:
    """A kill loses none."""
    print(line, flush=True)


class Saying(keras.callbacks.Callback):
    """Says the bits of each batch's loss and weights; before it an event may happen."""

    def __init__(self, supervisor: Any, what: tuple[str, str]) -> None:
        super().__init__()
        self.supervisor, self.what, self.epoch, self.seen = supervisor, what, 0, ""

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Any) -> None:
        pass

    def on_train_begin(self, logs: Any = None) -> None:
        if self.supervisor.exactness is not None:
            say(" ".join(("exact", *self.supervisor.exactness.reasons)))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def happen(self, place: str) -> None:
        if self.supervisor.run is not None:
            self.supervisor.run.wait_until_saved()  # so that it is known which checkpoints there are
            event(self, place, *self.what)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.happen(f"{self.epoch} {batch}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.supervisor.run is None or self.supervisor.is_training:
            say(f"{self.epoch} {batch} {float(logs['loss']).hex()}")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.happen(f"test {self.epoch} {batch}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        say(f"epoch {epoch} {rate} " + " ".join(f"{name} {float(value).hex()}" for name, value in logs.items()))


def event(saying: Any, place: str, name: str, wanted: str) -> None:
    """Have something happen at a place."""
    if place != wanted:
        return
    if name == "error":
        raise ArithmeticError("the loss exploded")
    if name == "interrupt":
        raise KeyboardInterrupt
    os.kill(os.getpid(), getattr(signal, name))
    while not saying.supervisor.run.should_stop():
        PAUSE.wait(0.01)


def samples() -> tuple[Any, Any]:
    """A dataset in memory."""
    x = np.random.default_rng(1).normal(size=(SAMPLES, 4)).astype("float32")
    return x, np.arange(SAMPLES) % 2


def model_of(**options: Any) -> Any:
    """A model with dropout, normalization, an average of its weights and momentum."""
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(2)]
    )
    optimizer = keras.optimizers.AdamW(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


def fit(model: Any, logdir: Path, what: tuple[str, str], epochs: int = EPOCHS) -> None:
    """Fit, with an evaluation after each epoch, and callbacks that have state."""
    patient = Options(stop_timeout_secs=3600.0)  # a step that is compiled takes its time on a busy machine
    supervisor = SupervisorCallback(logdir, options=patient, save_secs=None, save_steps=4)
    callbacks = keras.callbacks
    x, y = samples()
    history = model.fit(
        x, y, batch_size=BATCH, epochs=epochs, verbose=0, validation_data=samples(),
        callbacks=[
            callbacks.SwapEMAWeights(), supervisor, Saying(supervisor, what),
            callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True),
            callbacks.ReduceLROnPlateau("val_loss", patience=1, min_delta=9, factor=0.5),
        ],
    )  # fmt: skip
    say(f"history {[value.hex() for value in history.history.get('val_loss', [])]}")
    say("end " + float(sum(np.abs(weights).sum() for weights in model.get_weights())).hex())


def in_one_process(logdir: Path) -> None:
    """Two batches a call: fit, and fit in another logdir with an interrupt between two calls. The last call of each
    epoch may take longer than the others: a smaller batch is compiled for."""
    longer: list[bool] = []
    first_call = Progress.first_call
    Progress.first_call = lambda progress, is_step: (longer.append(is_step), first_call(progress, is_step))[1]
    for place in ("", "2 2"):
        keras.utils.set_random_seed(0)
        try:
            fit(model_of(steps_per_execution=2), logdir / f"at {place}", ("interrupt", place))
        except KeyboardInterrupt:
            fit(model_of(steps_per_execution=2), logdir / f"at {place}", ("", ""))
    assert longer == [False] * (EPOCHS + 2 + 2), longer  # before the interrupt, and again from the second epoch on


def of_a_generator(logdir: Path) -> None:
    """Keras begins a step, and finds then that the data has ended; say whether an evaluation begins within a step."""

    class Looks(keras.callbacks.Callback):
        def on_test_begin(self, logs: Any = None) -> None:
            say(f"within a step: {supervisor.run.save_point.is_in_step}")

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    supervisor = SupervisorCallback(logdir, save_secs=None)
    x, y = samples()
    batches = ((x[at : at + BATCH], y[at : at + BATCH]) for at in range(0, SAMPLES, BATCH))
    model_of().fit(batches, verbose=0, validation_data=samples(), callbacks=[supervisor, Looks()])


def check_copies() -> None:
    """What was captured is of its moment: no later update reaches it, also where it is made in place."""
    variable = keras.Variable(np.ones(4, "float32"))
    captured = copy_tree(values_of([variable]), (NumpyArrays(),))
    variable.assign_add(np.ones(4, "float32"))
    assert captured[0][1].value.tolist() == [1.0] * 4, captured


def main() -> None:
    """Fit, once or twice."""
    logdir, *rest = sys.argv[1:]
    if rest == ["--in-one-process"]:
        in_one_process(Path(logdir))
        return
    if rest == ["--of-a-generator"]:
        of_a_generator(Path(logdir))
        return
    count = 2 if "--twice" in rest else 1
    check_copies()
    given = [item for item in rest if item != "--twice"]
    keras.utils.set_random_seed(0)
    model = model_of()
    for number in range(count):
        what = (given[0], given[1]) if given and number == count - 1 else ("", "")
        if what[0] == "interrupt":
            cell = code.InteractiveInterpreter({"fit": fit, "given": (model, Path(logdir), what)})
            cell.runsource("fit(*given)")
            say(f"interrupted by {type(sys.last_value).__name__}")
            what = ("", "")
        try:
            fit(model, Path(logdir), what)
        except ArithmeticError as error:
            say(f"error {error}")


if __name__ == "__main__":
    main()
