"""Sessions of a training, one after the other in one process: begin_program.py FACADE LOGDIR SESSIONS

SESSIONS is a JSON list of the arguments of each session. The program says the verdict of each resume, each step, and
the error that ends it; after an error the next one begins.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np

BATCHES, BATCH = 4, 4
Options: Any = {"save_secs": None, "save_steps": 1000}


class Session(NamedTuple):
    """What a session is to do."""

    epochs: int = 1
    """How many of `BATCHES` batches the run has."""
    bad: str = ""
    """What an object of the program does when it is asked for its state."""
    stop: int = 1000
    """The step after which it asks for the end."""

    def step(self, run: Any) -> None:
        """A step is made."""
        say(f"step {run.global_step}")
        if run.global_step + 1 >= self.stop:
            run.request_stop()


class Bad:
    """An object whose state cannot be saved."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def state_dict(self) -> Any:
        """Return no state."""
        if self.kind == "raises":
            raise AttributeError("no attribute 'weights'")
        return {} if self.kind == "fine" else {"hook": lambda: None}

    def load_state_dict(self, state: Any) -> None:
        """Take anything."""

    get_state, set_state = state_dict, load_state_dict


def say(line: str) -> None:
    """A kill loses none."""
    print(line, flush=True)


def verdict(exactness: Any) -> None:
    """Say the verdict of a resume."""
    if exactness is not None:
        say(" ".join(("exact", *exactness.reasons)))


def torch_model() -> Any:
    """A model with a convolution."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(12, 2))


def torch_samples() -> Any:
    """A dataset in memory."""
    import torch

    features = torch.randn(BATCH * BATCHES, 2, 2, 2, generator=torch.Generator().manual_seed(1))
    return [(row, number % 2) for number, row in enumerate(features)]


def with_torch(logdir: str, session: Session) -> None:
    """`supervisor_core.torch.supervised`."""
    import torch

    from supervisor_core.torch import supervised

    model = torch_model()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(torch_samples(), BATCH, shuffle=True)
    state = {"bad": Bad(session.bad)} if session.bad else {}
    loop = supervised(loader, logdir, epochs=session.epochs, model=model, optimizer=optimizer, state=state, **Options)
    said = False
    for features, labels in loop:
        if not said:
            verdict(loop.exactness)
            said = True
        torch.nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
        session.step(loop.run)


def with_lightning(logdir: str, session: Session) -> None:
    """`supervisor_core.lightning.SupervisorCallback`."""
    import lightning
    import torch

    from supervisor_core.lightning import SupervisorCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch_model()
            self.said = False

        def training_step(self, batch: Any, number: int) -> Any:
            if not self.said:
                verdict(supervisor.exactness)
                self.said = True
            session.step(supervisor.run)
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    class BadCallback(Bad, lightning.Callback):  # type: ignore[misc]
        pass

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    supervisor = SupervisorCallback(logdir, **Options)
    callbacks = [supervisor, *([BadCallback(session.bad)] if session.bad else [])]
    trainer = lightning.Trainer(
        max_epochs=session.epochs, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(torch_samples(), BATCH, shuffle=True)
    trainer.fit(Module(), loader)


def with_transformers(logdir: str, session: Session) -> None:
    """`supervisor_core.transformers.SupervisorCallback`; it has no state of the program's."""
    import torch
    import transformers

    from supervisor_core.transformers import SupervisorCallback

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch_model()

        def forward(self, features: Any, labels: Any) -> Any:
            return {"loss": torch.nn.functional.cross_entropy(self.model(features), labels)}

    class Steps(transformers.TrainerCallback):
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            verdict(supervisor.exactness)

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            session.step(supervisor.run)

    args = transformers.TrainingArguments(
        output_dir=logdir, num_train_epochs=session.epochs, per_device_train_batch_size=BATCH, save_strategy="no",
        report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
    )  # fmt: skip
    supervisor = SupervisorCallback(**Options)
    samples = [{"features": features, "labels": label} for features, label in torch_samples()]
    trainer = transformers.Trainer(model=Module(), args=args, train_dataset=samples, callbacks=[supervisor, Steps()])
    trainer.remove_callback(transformers.PrinterCallback)
    with supervisor:
        trainer.train(resume_from_checkpoint=supervisor.resume_from())


def with_jax(logdir: str, session: Session) -> None:
    """`supervisor_core.jax.supervised`."""
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    state = {"params": jnp.zeros(4), **({"bad": Bad(session.bad)} if session.bad else {})}
    with supervised(logdir, state=state, **Options) as run:
        verdict(run.exactness)
        for _ in run.steps(session.epochs * BATCHES):
            run.state = {**run.state, "params": run.state["params"] + 1}
            session.step(run.run)


def with_keras(logdir: str, session: Session) -> None:
    """`supervisor_core.keras.SupervisorCallback`, on JAX."""
    import keras

    from supervisor_core.keras import SupervisorCallback

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")

    class Steps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if not epoch or epoch == supervisor._position.epoch:
                verdict(supervisor.exactness)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if supervisor.is_training:
                session.step(supervisor.run)

    class BadCallback(Bad, keras.callbacks.Callback):  # type: ignore[misc]
        pass

    supervisor = SupervisorCallback(logdir, **Options)
    callbacks = [supervisor, Steps(), *([BadCallback(session.bad)] if session.bad else [])]
    x, y = np.ones((BATCH * BATCHES, 4), "float32"), np.ones((BATCH * BATCHES, 2), "float32")
    model.fit(x, y, batch_size=BATCH, epochs=session.epochs, verbose=0, callbacks=callbacks)


FACADES = {
    "torch": with_torch,
    "lightning": with_lightning,
    "transformers": with_transformers,
    "jax": with_jax,
    "keras": with_keras,
}


def main() -> None:
    """Make the sessions."""
    facade, logdir, sessions = sys.argv[1:]
    warnings.simplefilter("ignore")
    os.environ.setdefault("KERAS_BACKEND", "jax")
    for given in json.loads(sessions):
        failure = None
        try:
            FACADES[facade](logdir, Session(**given))
        except Exception as error:
            failure = error
        say("done" if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure


if __name__ == "__main__":
    main()
