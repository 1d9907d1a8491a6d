"""A training by one of the adapters that obeys commands from its standard input. Run as a program.

    python adapters_program.py FRAMEWORK LOGDIR ADDRESS BUDGET_SECS

    go      steps, 20 ms each (this is how it begins)
    hold    hang inside the next step that is in the middle between two saves
    stop    end as planned

It says ``training`` after its second step of the session, ``held`` when it hangs, and ``stopped`` once training has
ended.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import numpy as np

from supervisor_core.base.options import Options

SAY = os.fdopen(os.dup(1), "w")
"""Where this program says something: frameworks print, too, and from now on to standard error."""
os.dup2(2, 1)

SAVE_STEPS, BATCH, SAMPLES, FOREVER = 25, 4, 64, 10**6


class Gate:
    """What each step passes."""

    def __init__(self) -> None:
        self.request_stop: Callable[[], object] = bool
        self._free, self._stops, self._pause = threading.Event(), threading.Event(), threading.Event()
        self._free.set()
        self._steps = 0
        threading.Thread(target=self._obey, daemon=True).start()

    def _obey(self) -> None:
        for line in sys.stdin:
            command = line.strip()
            if command == "hold":
                self._free.clear()
            if command == "stop":
                self._stops.set()
            if command in ("go", "stop"):
                self._free.set()

    def step(self) -> None:
        """Be in a step."""
        self._steps += 1
        if self._steps == 3:
            print("training", file=SAY, flush=True)
        if not self._free.is_set() and self._steps % SAVE_STEPS == SAVE_STEPS // 2:
            print("held", file=SAY, flush=True)
            self._free.wait()
        self._pause.wait(0.02)
        if self._stops.is_set():
            self.request_stop()


def data() -> tuple[Any, Any]:
    """Return the samples, and their labels."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((SAMPLES, 8)).astype(np.float32)
    return inputs, (inputs.sum(1) > 0).astype(np.int32)


def by_keras(gate: Gate, logdir: str, options: Options) -> None:
    """Train with ``fit``."""
    import keras

    from supervisor_core.keras import SupervisorCallback

    supervisor = SupervisorCallback(logdir, save_steps=SAVE_STEPS, options=options)
    gate.request_stop = lambda: supervisor.run.request_stop()
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    steps = keras.callbacks.LambdaCallback()
    steps.on_train_batch_begin = lambda batch, logs=None: gate.step()
    model.fit(*data(), batch_size=BATCH, epochs=FOREVER, verbose=0, callbacks=[supervisor, steps])


def torch_loader() -> Any:
    """Return the samples as PyTorch loads them."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    inputs, labels = data()
    return DataLoader(TensorDataset(torch.tensor(inputs), torch.tensor(labels).long()), batch_size=BATCH, shuffle=True)


def by_torch(gate: Gate, logdir: str, options: Options) -> None:
    """Train in a loop."""
    import torch

    from supervisor_core.torch import supervised

    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop = supervised(
        torch_loader(), logdir, epochs=FOREVER, model=model, optimizer=optimizer, save_steps=SAVE_STEPS, options=options
    )
    gate.request_stop = lambda: loop.request_stop()
    for inputs, labels in loop:
        gate.step()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def by_lightning(gate: Gate, logdir: str, options: Options) -> None:
    """Train with a `Trainer` of Lightning."""
    import lightning
    import torch

    from supervisor_core.lightning import SupervisorCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)

        def training_step(self, batch: Any, number: int) -> Any:
            gate.step()
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    supervisor = SupervisorCallback(logdir, save_steps=SAVE_STEPS, options=options)
    gate.request_stop = lambda: supervisor.run.request_stop()
    trainer = lightning.Trainer(
        max_epochs=FOREVER, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[supervisor],
    )  # fmt: skip
    trainer.fit(Model(), torch_loader())


def by_transformers(gate: Gate, logdir: str, options: Options) -> None:
    """Train with a `Trainer` of Transformers."""
    import torch
    from transformers import Trainer, TrainingArguments

    from supervisor_core.transformers import SupervisorCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)

        def forward(self, inputs: Any, labels: Any) -> Any:
            gate.step()
            return {"loss": torch.nn.functional.cross_entropy(self.layer(inputs), labels)}

    supervisor = SupervisorCallback(save_steps=SAVE_STEPS, options=options)
    gate.request_stop = lambda: supervisor.run.request_stop()
    arguments = TrainingArguments(
        output_dir=logdir, num_train_epochs=1000, per_device_train_batch_size=BATCH, use_cpu=True, report_to=[],
        save_strategy="no", save_total_limit=2, disable_tqdm=True,
    )  # fmt: skip
    samples = [{"inputs": item, "labels": int(label)} for item, label in zip(*data(), strict=True)]
    trainer = Trainer(model=Model(), args=arguments, train_dataset=samples, callbacks=[supervisor])
    trainer.train(resume_from_checkpoint=supervisor.resume_from())


def by_jax(gate: Gate, logdir: str, options: Options) -> None:
    """Train in a loop over JAX arrays."""
    import jax
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    inputs, labels = data()

    @jax.jit
    def train_step(params: Any) -> Any:
        def loss_of(params: Any) -> Any:
            return -jax.nn.log_softmax(inputs @ params)[jnp.arange(SAMPLES), labels].mean()

        return params - 0.01 * jax.grad(loss_of)(params)

    with supervised(logdir, state=jnp.zeros((8, 2)), save_steps=SAVE_STEPS, options=options) as run:
        gate.request_stop = run.request_stop
        for _ in run.steps(FOREVER):
            gate.step()
            run.state = train_step(run.state)


TRAIN = {
    "keras": by_keras,
    "torch": by_torch,
    "lightning": by_lightning,
    "transformers": by_transformers,
    "jax": by_jax,
}


if __name__ == "__main__":
    framework, logdir, address, budget_secs = sys.argv[1:]
    options = Options(
        run_name=framework,
        metrics_address=address,
        heartbeat_secs=1.0,
        hang_timeout_secs={"training": float(budget_secs)},
    )
    TRAIN[framework](Gate(), logdir, options)
    print("stopped", file=SAY, flush=True)
