"""A small training with each adapter: hostile_program.py ADAPTER LOGDIR STEPS [OPTION=VALUE ...].

Says which checkpoint it has resumed from, and at which step it ended.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Any

from supervisor_core import Options, supervise

logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", force=True)


def say(restored: str | None, step: int) -> None:
    """Say what was resumed from, and where."""
    print(f"resumed {'nothing' if restored is None else os.path.basename(restored)} {step}", flush=True)


def plain(logdir: str, steps: int, options: Options) -> None:
    """`supervise`, with an array of numpy."""
    import numpy as np

    class Model:
        weights = np.zeros(4)

        def state_dict(self) -> dict[str, Any]:
            return {"weights": self.weights}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.weights = state["weights"] + 0.0

    model = Model()
    with supervise(logdir, state={"model": model}, options=options, save_steps=2) as run:
        say(run.restored, run.global_step)
        for _ in run.steps(steps):
            model.weights = model.weights + 1
            run.wait_until_saved()


def torch_loop(logdir: str, steps: int, options: Options, *, sharded: bool = False) -> None:
    """PyTorch's loop; of a model that is split over two ranks, if it shall be."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from supervisor_core.torch import supervised

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: Any = torch.nn.Linear(4, 2)
    if sharded:
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("gloo")
        model = fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
    loop = supervised(
        DataLoader(data, 4), logdir, model=model, optimizer=optimizer, options=options, save_steps=2, save_secs=None
    )
    with loop:
        for number, (features, labels) in enumerate(loop):
            if not number:
                say(loop.run.restored, loop.run.global_step)
            torch.nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            loop.run.wait_until_saved()
            if loop.run.global_step + 1 >= steps:
                break
    if sharded:
        torch.distributed.destroy_process_group()


def torch_shards(logdir: str, steps: int, options: Options) -> None:
    """See `torch_loop`."""
    torch_loop(logdir, steps, options, sharded=True)


def lightning_fit(logdir: str, steps: int, options: Options) -> None:
    """Lightning's Trainer."""
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from supervisor_core.lightning import SupervisorCallback

    class Model(lightning.LightningModule):
        def __init__(self, width: int = 4, rate: Any = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(width, 2)

        def training_step(self, batch: Any, number: int) -> Any:
            run = supervisor.run
            assert run is not None
            run.wait_until_saved()
            if run.global_step >= steps - 1:
                run.request_stop()
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def on_train_start(self) -> None:
            assert supervisor.run is not None
            say(supervisor.run.restored, supervisor.run.global_step)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    supervisor = SupervisorCallback(logdir, options=options, save_steps=2, save_secs=None)
    models = os.environ.get("MODELS")
    own = [lightning.pytorch.callbacks.ModelCheckpoint(dirpath=models, every_n_train_steps=3)] if models else []
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=bool(own), enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=logdir, max_epochs=1, callbacks=[supervisor, *own],
    )  # fmt: skip
    data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
    model = Model(rate=logging.LogRecord) if os.environ.get("ODD_HYPERPARAMETERS") else Model()
    trainer.fit(model, DataLoader(data, 4))


def transformers_train(logdir: str, steps: int, options: Options) -> None:
    """Transformers' Trainer."""
    import torch
    from transformers import Trainer, TrainingArguments

    from supervisor_core.transformers import SupervisorCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, features: Any, labels: Any) -> Any:
            output = self.layer(features)
            return {"loss": torch.nn.functional.cross_entropy(output, labels), "logits": output}

    torch.manual_seed(0)
    data: Any = [{"features": torch.randn(4), "labels": number % 2} for number in range(64)]
    arguments = TrainingArguments(
        logdir, max_steps=steps, save_steps=2, per_device_train_batch_size=4, report_to=[], disable_tqdm=True,
        use_cpu=True, logging_steps=1,
    )  # fmt: skip
    supervisor = SupervisorCallback(options=options, save_secs=None)
    trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[supervisor])
    path = supervisor.resume_from()
    say(path, 0 if path is None else int(path.rpartition("-")[2]))
    trainer.train(resume_from_checkpoint=path)


def keras_fit(logdir: str, steps: int, options: Options) -> None:
    """Keras' fit, on JAX: TensorFlow takes longer to import."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    supervisor = SupervisorCallback(logdir, options=options, save_steps=2, save_secs=None)

    said: list[int] = []  # a callback's own attributes are restored

    class Wait(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            run = supervisor.run
            if run is not None and supervisor.is_training:
                run.wait_until_saved()
                if not said:
                    say(run.restored, run.global_step)
                said.append(run.global_step)
                if run.global_step >= steps - 1:
                    run.request_stop()

    features, labels = np.random.rand(64, 4), np.random.randint(2, size=64)
    model.fit(features, labels, batch_size=4, epochs=1, verbose=0, callbacks=[supervisor, Wait()])


def jax_loop(logdir: str, steps: int, options: Options) -> None:
    """JAX's loop."""
    import jax
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    update = jax.jit(lambda state: {"w": state["w"] + 1.0, "n": state["n"] + 1})
    state = {"w": jnp.zeros((4, 2)), "n": jnp.zeros((), int)}
    with supervised(logdir, state=state, options=options, save_steps=2, save_secs=None) as run:
        say(run.run.restored, run.run.global_step)
        for _ in run.steps(steps):
            run.state = update(run.state)
            run.run.wait_until_saved()


def graph() -> tuple[Any, Any]:
    """A model of TensorFlow's graph mode: its global step, and what makes one."""
    import tensorflow as tf

    step = tf.compat.v1.train.get_or_create_global_step()
    weights = tf.compat.v1.get_variable("weights", [4], initializer=tf.compat.v1.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([weights.assign_add([1.0] * 4)]):
        return step, tf.compat.v1.assign_add(step, 1)


def graph_supervisor(logdir: str, steps: int, options: Options) -> None:
    """The `Supervisor` of TensorFlow's graph mode."""
    import tensorflow as tf

    from supervisor_core import Supervisor

    with tf.Graph().as_default():
        step, train = graph()
        supervisor = Supervisor(logdir=logdir, options=options, save_model_secs=600)
        with supervisor.managed_session() as session:
            first = int(session.run(step))
            say(f"model.ckpt-{first}" if first else None, first)
            for _ in range(first, steps):
                session.run(train)


def graph_monitored(logdir: str, steps: int, options: Options) -> None:
    """The `MonitoredTrainingSession` of TensorFlow's graph mode."""
    import tensorflow as tf

    from supervisor_core import MonitoredTrainingSession

    with tf.Graph().as_default():
        step, train = graph()
        with MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_steps=2, options=options) as session:
            first = int(session.run(step))
            say(f"model.ckpt-{first}" if first else None, first)
            for _ in range(first, steps):
                session.run(train)


ADAPTERS = {
    "Supervisor": graph_supervisor,
    "MonitoredTrainingSession": graph_monitored,
    "supervise": plain,
    "torch": torch_loop,
    "sharded": torch_shards,
    "lightning": lightning_fit,
    "transformers": transformers_train,
    "keras": keras_fit,
    "jax": jax_loop,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    adapter, logdir, steps, *given = sys.argv[1:]
    named: dict[str, Any] = {name: value == "True" for name, _, value in (item.partition("=") for item in given)}
    ADAPTERS[adapter](logdir, int(steps), Options(**named))
    print("done", flush=True)
