"""A training that obeys its standard input, for `test_logdirs`:

    logdir_program.py FACADE LOGDIR [OPTIONS]

OPTIONS are those of `supervisor_core.Options`, as JSON. Before each step it reads commands, one per line, and answers
each with one line of JSON: ``step`` does one step, ``status`` says what the metrics say, ``chdir DIRECTORY`` changes
the working directory. ``stop``, or the end of the input, ends the training as its framework ends one.

With ``BECOME_NOBODY`` in its environment it trains as the user nobody.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor_core import Options

STEPS = 100_000
RETRIES: dict[str, Any] = {"retry_initial_secs": 0.05, "retry_max_secs": 0.2, "heartbeat_secs": 1.0}

NOBODY = 65534
_KEEP_CAPABILITIES, _CAPABILITIES_VERSION = 8, 0x20080522
_READ_EVERYTHING = 1 << 2  # CAP_DAC_READ_SEARCH


class Talk:
    """What is said between two steps.

    Args:
        session: returns what has ``run_status``.
    """

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._has_begun = False

    def step(self) -> bool:
        """Obey commands up to the next step; return whether there is to be one."""
        if not self._has_begun:
            self._has_begun = True
            self.say(begun=self._session().run_status().global_step or 0)
        for line in sys.stdin:
            word, _, argument = line.strip().partition(" ")
            if word == "chdir":
                os.chdir(argument)
            if word == "stop":
                return False
            self.status()
            if word == "step":
                return True
        return False

    def status(self) -> None:
        """Say what the metrics say."""
        found = self._session().run_status()
        saves, newest = found.checkpoint, found.checkpoint.last_success
        self.say(
            step=found.global_step,
            saved=None if newest is None else newest.step,
            path=None if newest is None else newest.path,
            failures=saves.failures_in_a_row,
            error=saves.last_error,
            events_failing=found.events_failing,
        )

    def say(self, **values: Any) -> None:
        """Write one answer."""
        print(json.dumps(values), flush=True)


def counting() -> Any:
    """Return a training op of TensorFlow's, in the default graph: it counts the steps."""
    import tensorflow as tf

    v1 = tf.compat.v1
    weights = v1.get_variable("weights", [4], initializer=v1.zeros_initializer())
    return tf.group(v1.assign_add(v1.train.get_or_create_global_step(), 1), v1.assign_add(weights, tf.ones(4)))


def supervisor_apart(logdir: str, options: Options) -> None:
    """The same; its checkpoints are elsewhere than its events."""
    supervisor(logdir, options, "checkpoints/model.ckpt")


def supervisor(logdir: str, options: Options, basename: str = "model.ckpt") -> None:
    """`supervisor_core.Supervisor`."""
    import tensorflow as tf

    import supervisor_core

    with tf.Graph().as_default():
        train_op = counting()
        sv = supervisor_core.Supervisor(
            logdir=logdir, save_model_secs=0.1, save_summaries_secs=0, options=options, checkpoint_basename=basename
        )
        talk = Talk(lambda: sv)
        with sv.managed_session() as sess:
            while not sv.should_stop() and talk.step():
                sess.run(train_op)


def monitored(logdir: str, options: Options) -> None:
    """`supervisor_core.MonitoredTrainingSession`."""
    import tensorflow as tf

    import supervisor_core

    with tf.Graph().as_default():
        train_op = counting()
        with supervisor_core.MonitoredTrainingSession(
            checkpoint_dir=logdir, save_checkpoint_steps=1, save_summaries_steps=None, options=options
        ) as sess:
            talk = Talk(lambda: sess)
            while not sess.should_stop() and talk.step():
                sess.run(train_op)


class Part:
    """An object with a state."""

    value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def supervise(logdir: str, options: Options) -> None:
    """`supervisor_core.supervise`."""
    import supervisor_core

    part = Part()
    with supervisor_core.supervise(
        logdir, state={"part": part}, save_secs=None, save_steps=1, options=options
    ) as session:
        talk = Talk(lambda: session)
        for _ in session.steps(STEPS):
            if not talk.step():
                break
            part.value += 1


def loader() -> Any:
    """A loader of PyTorch's with more batches than are needed."""
    import torch

    torch.set_num_threads(1)
    data = torch.utils.data.TensorDataset(torch.arange(STEPS, dtype=torch.float32).reshape(-1, 1))
    return torch.utils.data.DataLoader(data, batch_size=1)


def torch(logdir: str, options: Options) -> None:
    """`supervisor_core.torch.supervised`."""
    import torch

    from supervisor_core.torch import supervised

    batches, model = loader(), torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    with supervised(
        batches, logdir, model=model, optimizer=optimizer, save_secs=None, save_steps=1, options=options
    ) as loop:
        talk = Talk(lambda: loop.run)
        for (batch,) in loop:
            if not talk.step():
                break
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()


def jax(logdir: str, options: Options) -> None:
    """`supervisor_core.jax.supervised`."""
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    with supervised(logdir, state={"weights": jnp.zeros(4)}, save_secs=None, save_steps=1, options=options) as session:
        talk = Talk(lambda: session.run)
        for _ in session.steps(STEPS):
            if not talk.step():
                break
            session.state = {"weights": session.state["weights"] + 1}


def keras(logdir: str, options: Options) -> None:
    """`supervisor_core.keras.SupervisorCallback`."""
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    supervised = SupervisorCallback(logdir, save_secs=None, save_steps=1, options=options)
    talk = Talk(lambda: supervised.run)

    class Talking(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if supervised.is_training and not talk.step():
                supervised.run.request_stop()

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    x = np.zeros((1000, 1))
    model.fit(x, x, batch_size=1, shuffle=False, verbose=0, callbacks=[supervised, Talking()])


def lightning(logdir: str, options: Options) -> None:
    """`supervisor_core.lightning.SupervisorCallback`."""
    import lightning
    import torch

    from supervisor_core.lightning import SupervisorCallback

    supervised = SupervisorCallback(logdir, save_secs=None, save_steps=1, options=options)
    talk = Talk(lambda: supervised.run)

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            if not talk.step():
                supervised.run.request_stop()
            return self.layer(batch[0]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[supervised],
    )  # fmt: skip
    trainer.fit(Model(), loader())


def transformers_apart(logdir: str, options: Options) -> None:
    """`supervisor_core.transformers.SupervisorCallback`; the Trainer saves elsewhere than in the logdir."""
    transformers(f"{logdir}-checkpoints", options, logdir)


def transformers(output_dir: str, options: Options, logdir: str | None = None) -> None:
    """`supervisor_core.transformers.SupervisorCallback`; the logdir is where the Trainer saves."""
    import torch
    import transformers

    from supervisor_core.transformers import SupervisorCallback

    class Numbers(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"labels": torch.ones(1)}

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, labels: Any) -> dict[str, Any]:
            return {"loss": self.layer(labels).sum()}

    class Talking(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not talk.step():
                supervised.run.request_stop()

    torch.set_num_threads(1)
    supervised = SupervisorCallback(logdir, save_secs=None, options=options)
    talk = Talk(lambda: supervised.run)
    args = transformers.TrainingArguments(
        output_dir=output_dir, max_steps=STEPS, per_device_train_batch_size=1, save_strategy="steps", save_steps=1,
        save_total_limit=5, report_to=[], disable_tqdm=True, use_cpu=True, logging_steps=STEPS,
    )  # fmt: skip
    trainer = transformers.Trainer(model=Model(), args=args, train_dataset=Numbers(), callbacks=[supervised, Talking()])
    with supervised:
        trainer.train(resume_from_checkpoint=supervised.resume_from())


FACADES: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        supervisor, supervisor_apart, monitored, supervise, torch, jax, keras, lightning, transformers,
        transformers_apart,
    )
}  # fmt: skip


def become_nobody() -> None:
    """Give up the rights of root, but that to read everything: the interpreter may be in root's home."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    if libc.capset(header, struct.pack("=6I", _READ_EVERYTHING, _READ_EVERYTHING, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset failed")


def main() -> None:
    """Train."""
    warnings.simplefilter("ignore")
    facade, logdir, *given = sys.argv[1:]
    if os.environ.get("BECOME_NOBODY"):
        become_nobody()
    FACADES[facade](logdir, Options(**{**RETRIES, **json.loads(given[0] if given else "{}")}))
    print(json.dumps({"ended": True}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main()
