"""One training, on any facade, in which something goes wrong: facade_program.py FACADE LOGDIR STEPS [NAME=VALUE ...]

    nan_at=9      from this step on the batches are NaN: so is the loss, and then the weight
    raises=4      raise after this many steps of this process with a loss that is not finite, after the update
    kill_at=15    end by SIGKILL in this step
    file_at=5     in this step a file takes the place of the directory of the checkpoints, for `file_for` steps
    file_for=6
    save_on_error=1
    save_at=5     ask for a checkpoint within this step, after its update, and begin a phase that would save what is due
    every=100     steps between checkpoints, in place of 2
    stop_at=15    get SIGTERM in this step
    verify=3      `Options.verify_resume`
    broken=1      the batches depend on a variable that no checkpoint has; with Keras they are drawn without a seed
    log=1         log the loss where the facade logs nothing by itself; log=0: nowhere
    notify_at=5   say something of the run within this step, in a thread, and something before the session begins
    events=1      say each event of the run
    finish_at=5   the program finishes the training within this step, after its update, in a loop of its own
    talk=1        before each step obey standard input: a command a line, each answered with a line of JSON. ``step``
                  does one step, ``status`` says what the metrics say, ``chdir DIRECTORY`` changes the directory;
                  ``stop``, or the end of the input, ends the training
    apart=1       `Supervisor` and the Trainer save elsewhere than in the logdir

The environment variable OPTIONS has more options, as JSON; with BECOME_NOBODY the program runs as the user nobody.

Two checkpoints are kept. In each step the saves before it have ended. At the end it says the sum of the weights.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from supervisor_core import Options
from supervisor_core.training import state_notes

state_notes.FREE_SECS = math.inf  # each due digest is noted, however busy the machine is
FACADE, LOGDIR, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
GIVEN = {name: int(value) for name, value in (item.split("=") for item in sys.argv[4:])}
KEPT, EVERY = 2, GIVEN.get("every", 2)
GIVEN_OPTIONS: dict[str, Any] = {
    "save_on_error": bool(GIVEN.get("save_on_error")),
    "retry_initial_secs": 0.01,
    "retry_max_secs": 0.02,
    "metrics_linger_secs": 0,
    "verify_resume": GIVEN.get("verify", 0),
    "on_event": (lambda event: print("event", event["kind"], flush=True)) if "events" in GIVEN else None,
    **json.loads(os.environ.get("OPTIONS", "{}")),
}
OPTIONS = Options(**GIVEN_OPTIONS)
DIRECTORY = Path(LOGDIR, "checkpoints")


class Story:
    """What happens in which step."""

    def __init__(self) -> None:
        self.bad = 0
        self.now = -1
        self.carried = 0.0
        self.run: Any = None
        """What has ``run_status``."""
        self.has_begun = self.is_stopped = False
        self.stop: Callable[[], object] = bool
        """Asks the session to end."""
        self.notify: Callable[..., object] = bool
        """Says something of the run."""
        self.flush: Callable[[], object] = bool
        """Has what was logged so far written."""
        self.must_stop: Callable[[], object] = lambda: True
        """Returns whether a signal has asked the session to end."""
        self.save: Callable[[], object] = bool
        """Asks for a checkpoint."""
        self.finish: Callable[[], object] = bool
        """Finishes the training."""
        self.phase: Callable[[str], AbstractContextManager[None]] = nullcontext
        """Returns a block that is in a phase of the session."""

    def batch(self, step: int) -> float:
        """Return the batch of a step, at its begin."""
        self.happen(step)
        self.carried += GIVEN.get("broken", 0)
        return math.nan if step >= GIVEN.get("nan_at", STEPS) else 1.0 + 0.125 * self.carried

    def happen(self, step: int) -> None:
        """Do what is due at the begin of a step."""
        away, self.now = DIRECTORY.with_name("away"), step
        if "talk" in GIVEN and not self.obey():
            self.is_stopped = True
            self.stop()
        if step == GIVEN.get("kill_at"):
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if step == GIVEN.get("stop_at"):
            signal.raise_signal(signal.SIGTERM)
            while not self.must_stop():
                time.sleep(0.01)
        if step == GIVEN.get("file_at"):
            DIRECTORY.rename(away)
            DIRECTORY.write_text("a file where the directory was")
        if step == GIVEN.get("file_at", STEPS) + GIVEN.get("file_for", 6):
            DIRECTORY.unlink()
            away.rename(DIRECTORY)

    def obey(self) -> bool:
        """Obey commands up to the next step; return whether there is to be one."""
        if not self.has_begun:
            self.has_begun = True
            print(json.dumps({"begun": self.run.run_status().global_step or 0}), flush=True)
        for line in sys.stdin:
            word, _, argument = line.strip().partition(" ")
            if word == "chdir":
                os.chdir(argument)
            if word == "stop":
                return False
            found = self.run.run_status()
            session, newest = found.session, found.checkpoint.last_success
            status = {
                "step": found.global_step,
                "saved": None if newest is None else newest.step,
                "path": None if newest is None else newest.path,
                "failures": session.save_failures_in_a_row,
                "error": session.save_error,
                "events_failing": found.events_failing,
            }
            print(json.dumps(status), flush=True)
            if word == "step":
                return True
        return False

    def stepped(self, loss: float) -> None:
        """The update of a step is made."""
        if self.now == GIVEN.get("save_at"):
            self.save()
            with self.phase("evaluating"):
                pass
        if self.now == GIVEN.get("notify_at"):
            for severity in ("page", "warn", "info"):
                thread = threading.Thread(target=self.notify, args=(f"this is {severity}", severity))
                thread.start()
                thread.join()
        if self.now == GIVEN.get("finish_at"):
            self.finish()
        self.bad += not math.isfinite(loss)
        if self.bad == GIVEN.get("raises", 0) and self.bad:
            raise FloatingPointError(f"the loss is {loss}")

    def speaks_by(self, notify: Callable[..., object]) -> None:
        """Say things of the run this way from now on; the session has not begun."""
        self.notify = notify
        if "notify_at" in GIVEN:
            notify("too early")


STORY = Story()


def use(run: Any, save: Callable[[], object] | None = None) -> None:
    """Let the story act upon a session."""
    STORY.save, STORY.phase, STORY.must_stop = save or run.save, run.phase, run.should_stop
    STORY.run, STORY.stop = run, run.request_stop
    STORY.flush = run.writer.flush if run.writer is not None else bool


def say_weights(*parts: Any) -> None:
    """Say the sum of the weights at the end of a training, which tells how many updates were made."""
    print("weights", sum(float(part.sum()) for part in parts), flush=True)


def supervise() -> None:
    """`supervise`, with an array of numpy's."""
    import numpy as np

    import supervisor_core

    class Weight:
        value = np.zeros(3, np.float32)

        def state_dict(self) -> dict[str, Any]:
            return {"value": self.value}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.value = np.array(state["value"])

    weight = Weight()
    run = supervisor_core.supervise(
        LOGDIR, state={"weight": weight}, options=OPTIONS, save_secs=None, save_steps=EVERY, max_to_keep=KEPT
    )
    STORY.speaks_by(run.notify)
    with run:
        use(run)
        STORY.finish = run.finish
        for step in run.steps(STEPS):
            run.wait_until_saved()
            loss = STORY.batch(step) * (weight.value + 1).sum()
            weight.value = weight.value + 1 + 0 * loss
            if GIVEN.get("log", 1):
                run.log("loss", loss)
            STORY.stepped(loss)
    say_weights(weight.value)


def torch_loop(within: bool) -> None:
    """PyTorch: the ``with`` form, or the ``for`` form."""
    import torch

    from supervisor_core.torch import supervised

    torch.set_num_threads(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = supervised(
        [1.0] * STEPS, LOGDIR, model=model, optimizer=optimizer, options=OPTIONS, save_secs=None, save_steps=EVERY,
        max_to_keep=KEPT,
    )  # fmt: skip

    STORY.finish = loop.finish
    STORY.speaks_by(loop.notify)

    def train() -> None:
        for _ in loop:
            use(loop.run, loop.save if within else loop.run.save)
            loop.run.wait_until_saved()
            loss = model(torch.full((1, 3), STORY.batch(loop.run.global_step))).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if GIVEN.get("log", 1):
                loop.log("loss", loss)
            STORY.stepped(loss.item())

    if within:
        with loop:
            train()
    else:
        train()
    say_weights(*(part.detach() for part in model.parameters()))


def lightning_fit() -> None:
    """Lightning; nothing is logged."""
    import lightning
    import torch

    from supervisor_core.lightning import SupervisorCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            run = supervisor.run
            assert run is not None
            use(run)
            run.wait_until_saved()
            self.loss = self.layer(batch * STORY.batch(run.global_step)).sum()
            return self.loss

        def on_train_batch_end(self, *arguments: Any) -> None:
            if GIVEN.get("log") and supervisor.run is not None:
                supervisor.run.log("loss", self.loss)
            STORY.stepped(self.loss.item())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    supervisor = SupervisorCallback(LOGDIR, options=OPTIONS, save_secs=None, save_steps=EVERY, max_to_keep=KEPT)
    STORY.speaks_by(supervisor.notify)
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[supervisor], accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=LOGDIR,
    )  # fmt: skip
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(STEPS, 3)))
    say_weights(*(part.detach() for part in model.parameters()))


def keras_fit() -> None:
    """Keras; its callbacks see an average of the loss."""
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    class Steps(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if supervisor.is_training and supervisor.run is not None:
                use(supervisor.run)
                supervisor.run.wait_until_saved()
                STORY.happen(supervisor.run.global_step)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if supervisor.is_training and supervisor.run is not None:
                if GIVEN.get("log"):
                    supervisor.run.log("loss", logs["loss"], supervisor.run.global_step - 1)
                STORY.stepped(logs["loss"])

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    keras.utils.set_random_seed(1)
    values = np.ones((STEPS, 3), np.float32)
    if GIVEN.get("broken"):
        values += np.random.default_rng().random((STEPS, 3), np.float32)
    values[GIVEN.get("nan_at", STEPS) :] = math.nan
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    supervisor = SupervisorCallback(LOGDIR, options=OPTIONS, save_secs=None, save_steps=EVERY, max_to_keep=KEPT)
    STORY.speaks_by(supervisor.notify)
    model.fit(values, np.ones(STEPS), batch_size=1, shuffle=False, epochs=1, verbose=0, callbacks=[Steps(), supervisor])
    say_weights(*model.get_weights())


def jax_loop() -> None:
    """JAX."""
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    run = supervised(
        LOGDIR, state={"weight": jnp.zeros(3)}, options=OPTIONS, save_secs=None, save_steps=EVERY, max_to_keep=KEPT
    )
    STORY.speaks_by(run.notify)
    with run:
        use(run.run)
        STORY.finish = run.finish
        for step in run.steps(STEPS):
            run.run.wait_until_saved()
            loss = (run.state["weight"] + 1).sum() * STORY.batch(step)
            run.state = {"weight": run.state["weight"] + 1 + 0 * loss}
            if GIVEN.get("log", 1):
                run.log("loss", loss)
            STORY.stepped(float(loss))
    say_weights(run.state["weight"])


def trainer() -> None:
    """Hugging Face's Trainer, which saves and deletes by itself, and hides a loss that is NaN."""
    import torch
    import transformers

    from supervisor_core.transformers import SupervisorCallback

    class Model(transformers.PreTrainedModel):  # type: ignore[misc]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(3, 1)
            self.post_init()

        def _init_weights(self, module: Any) -> None:
            pass

        def forward(self, values: Any, labels: Any = None) -> dict[str, Any]:
            assert supervisor.run is not None
            self.loss = self.layer(values * STORY.batch(supervisor.run.global_step)).sum()
            return {"loss": self.loss}

    class Steps(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *arguments: Any, **named: Any) -> None:
            assert supervisor.run is not None
            use(supervisor.run)
            supervisor.run.wait_until_saved()

        def on_step_end(self, *arguments: Any, **named: Any) -> None:
            STORY.stepped(model.loss.item())

    data = [{"values": torch.ones(3), "labels": torch.ones(1)} for _ in range(STEPS)]
    args = transformers.TrainingArguments(
        output_dir=f"{LOGDIR}-checkpoints" if "apart" in GIVEN else LOGDIR, max_steps=STEPS,
        per_device_train_batch_size=1, save_strategy="steps", save_steps=EVERY,
        save_total_limit=KEPT, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True, max_grad_norm=0,
    )  # fmt: skip
    model = Model(transformers.PretrainedConfig())
    supervisor = SupervisorCallback(LOGDIR, options=OPTIONS, save_secs=None)
    STORY.speaks_by(supervisor.notify)
    own = transformers.Trainer(model=model, args=args, train_dataset=data, callbacks=[supervisor, Steps()])
    with supervisor:
        own.train(resume_from_checkpoint=supervisor.resume_from())
    say_weights(*(part.detach() for part in model.parameters()))


def graph() -> tuple[Any, Any, Callable[[Any, Any], None]]:
    """Return TensorFlow's interface, the global step, and what does one step in a session and logs its loss."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    step = v1.train.get_or_create_global_step()
    batch = v1.placeholder_with_default(tf.constant(1.0), [])
    weight = v1.get_variable("weight", [3], initializer=v1.zeros_initializer())
    loss = tf.reduce_sum(weight + 1) * batch
    with tf.control_dependencies([loss]):
        train_op = tf.group(weight.assign_add(tf.ones([3]) + 0 * loss), v1.assign_add(step, 1))

    def train(session: Any, writer: Any) -> None:
        STORY.flush = writer.flush
        now = int(session.run(step))
        value, _ = session.run([loss, train_op], {batch: STORY.batch(now)})
        writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=value)]), now)
        STORY.stepped(float(value))

    return v1, step, train


def supervisor_loop() -> None:
    """`Supervisor`; the checkpoints are in a directory of their own."""
    import supervisor_core

    v1, step, train = graph()
    is_apart = "apart" in GIVEN or "talk" not in GIVEN
    supervisor = supervisor_core.Supervisor(
        logdir=LOGDIR, saver=v1.train.Saver(max_to_keep=KEPT), save_model_secs=0.1 if "talk" in GIVEN else 100_000,
        global_step=step, summary_op=None, checkpoint_basename="checkpoints/model.ckpt" if is_apart else "model.ckpt",
        options=OPTIONS,
    )  # fmt: skip
    STORY.speaks_by(supervisor.notify)
    STORY.run, STORY.stop = supervisor, supervisor.request_stop
    if "talk" not in GIVEN:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
    with supervisor.managed_session() as session:
        while not supervisor.should_stop() and (now := int(session.run(step))) < STEPS:
            train(session, supervisor.summary_writer)
            if (now + 1) % EVERY == 0 and "talk" not in GIVEN:
                try:
                    supervisor.save_checkpoint()
                except OSError as error:
                    print(f"not saved: {error}", flush=True)


def monitored() -> None:
    """`MonitoredTrainingSession`."""
    import supervisor_core

    v1, _, train = graph()
    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir=LOGDIR, save_checkpoint_steps=EVERY, save_checkpoint_secs=None, save_summaries_steps=None,
        save_summaries_secs=None, log_step_count_steps=None, options=OPTIONS,
        scaffold=supervisor_core.Scaffold(saver=v1.train.Saver(max_to_keep=KEPT)),
        hooks=[v1.train.StopAtStepHook(last_step=STEPS)],
    ) as session:  # fmt: skip
        STORY.notify, STORY.run = session.notify, session
        while not (session.should_stop() or STORY.is_stopped):
            train(session, v1.summary.FileWriterCache.get(LOGDIR))


FACADES: dict[str, Callable[[], None]] = {
    "supervise": supervise,
    "torch": lambda: torch_loop(within=True),
    "torch, for": lambda: torch_loop(within=False),
    "lightning": lightning_fit,
    "keras": keras_fit,
    "jax": jax_loop,
    "transformers": trainer,
    "Supervisor": supervisor_loop,
    "MonitoredTrainingSession": monitored,
}


def become_nobody() -> None:
    """Give up the rights of root, but that to read everything: the interpreter may be in root's home."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    read_everything = 1 << 2  # CAP_DAC_READ_SEARCH
    header = struct.pack("=Ii", 0x20080522, 0)
    if libc.capset(header, struct.pack("=6I", read_everything, read_everything, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset failed")


if __name__ == "__main__":
    if os.environ.get("BECOME_NOBODY"):
        become_nobody()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", force=True)
    FACADES[FACADE]()
    print("the end", flush=True)
