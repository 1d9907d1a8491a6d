"""A run that is complete and is started again with more epochs or steps: it does those, on every facade, and what it
has then is what one longer run has, bit by bit."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trial import Say, trial

BATCHES = 4
"""In an epoch."""


def run_steps(logdir: Path, epochs: int, say: Say) -> None:
    """`Run.steps`."""
    import random

    import supervisor_core

    random.seed(1)
    total = {"sum": 0.0}
    run = supervisor_core.supervise(str(logdir), state={"total": total})
    for step in run.steps(epochs * BATCHES):
        total["sum"] += random.random() * step
        say("step")
    say(f"end {total['sum'].hex()}")


def jax_loop(logdir: Path, epochs: int, say: Say) -> None:
    """JAX."""
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    with supervised(logdir, state={"weight": jnp.zeros(3)}) as run:
        for step in run.steps(epochs * BATCHES):
            run.state = {"weight": run.state["weight"] * 0.9 + step}
            say("step")
    say(f"end {float(run.state['weight'].sum()).hex()}")


def torch_parts() -> tuple[Any, Any, Any]:
    """A dataset, a model and its optimizer."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
    features = torch.randn(4 * BATCHES, 3, generator=torch.Generator().manual_seed(2))
    return torch.utils.data.TensorDataset(features), model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def weights(model: Any) -> str:
    """The bits of the sum of a model's weights."""
    return f"end {sum(part.detach().double().sum() for part in model.parameters()).item().hex()}"


def torch_loop(logdir: Path, epochs: int, say: Say, *, counts: str, kind: str = "DataLoader") -> None:
    """PyTorch."""
    import torch

    from supervisor_core.torch import supervised

    data, model, optimizer = torch_parts()
    if kind == "DataLoader":
        loader: Any = torch.utils.data.DataLoader(data, 4, shuffle=True)
    else:
        loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(data, 4, shuffle=True)
    limits = {"steps": epochs * BATCHES} if counts == "steps" else {"epochs": epochs}
    loop = supervised(loader, logdir, model=model, optimizer=optimizer, **limits)
    for _ in loop.epochs() if counts == "loop" else range(1):
        for (batch,) in loop:
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            say("step")
    say(weights(model))


def lightning_fit(logdir: Path, epochs: int, say: Say, *, counts: str = "epochs", kind: str = "DataLoader") -> None:
    """Lightning."""
    import torch
    from lightning.pytorch import LightningModule, Trainer, seed_everything

    from supervisor_core.lightning import SupervisorCallback

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.data, self.layers, _ = torch_parts()

        def training_step(self, batch: Any) -> Any:
            say("step")
            return self.layers(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    seed_everything(3, verbose=False)
    limits = {"max_steps": epochs * BATCHES} if counts == "steps" else {"max_epochs": epochs}
    trainer = Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[SupervisorCallback(logdir)], **limits,
    )  # fmt: skip
    model = Model()
    if kind == "DataLoader":
        loader: Any = torch.utils.data.DataLoader(model.data, 4, shuffle=True)
    else:
        loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(model.data, 4, shuffle=True)
    trainer.fit(model, loader)
    assert trainer.current_epoch == epochs
    say(weights(model))


def transformers_train(logdir: Path, epochs: int, say: Say, *, counts: str = "epochs") -> None:
    """Transformers."""
    import transformers

    from supervisor_core.transformers import SupervisorCallback

    class Model(transformers.PreTrainedModel):  # type: ignore[misc]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.data, self.layers, _ = torch_parts()
            self.post_init()

        def _init_weights(self, module: Any) -> None:
            pass

        def forward(self, values: Any, labels: Any = None) -> dict[str, Any]:
            say("step")
            return {"loss": self.layers(values).pow(2).mean()}

    model = Model(transformers.PretrainedConfig())
    supervisor = SupervisorCallback()
    data = [{"values": values, "labels": values[:1]} for (values,) in model.data]
    limits = {"max_steps": epochs * BATCHES} if counts == "steps" else {"num_train_epochs": epochs}
    args = transformers.TrainingArguments(
        output_dir=str(logdir), per_device_train_batch_size=4, report_to=[], disable_tqdm=True, use_cpu=True,
        lr_scheduler_type="constant", save_strategy="epoch", **limits,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=args, train_dataset=data, callbacks=[supervisor])
    trainer.train(resume_from_checkpoint=supervisor.resume_from())
    say(weights(model))


def keras_fit(logdir: Path, epochs: int, say: Say) -> None:
    """Keras."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            say("step")

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    values = np.random.default_rng(2).random((4 * BATCHES, 3), np.float32)
    callbacks = [Steps(), SupervisorCallback(logdir)]
    model.fit(values, values.sum(1), batch_size=4, epochs=epochs, verbose=0, callbacks=callbacks)
    say(f"end {sum(float(part.sum(dtype='float64')) for part in model.get_weights()).hex()}")


FACADES: dict[str, tuple[str, Callable[..., None]]] = {
    "steps": ("numpy", run_steps),
    "jax": ("jax", jax_loop),
    "torch epochs": ("torch", partial(torch_loop, counts="epochs")),
    "torch steps": ("torch", partial(torch_loop, counts="steps")),
    "torch loop over epochs": ("torch", partial(torch_loop, counts="loop")),
    "torchdata": ("torchdata", partial(torch_loop, counts="epochs", kind="torchdata")),
    "lightning": ("lightning", lightning_fit),
    "lightning steps": ("lightning", partial(lightning_fit, counts="steps")),
    "lightning torchdata": ("lightning", partial(lightning_fit, kind="torchdata")),
    "transformers": ("transformers", transformers_train),
    "transformers steps": ("transformers", partial(transformers_train, counts="steps")),
    "keras": ("torch", keras_fit),  # TensorFlow, which may be in use here, cannot be used in a forked process
}


@pytest.mark.parametrize("facade", FACADES)
def test_a_longer_training_goes_on(tmp_path: Path, facade: str) -> None:
    """One epoch, then two, then three: one more each time; one, then three: two more. The end is that of three."""
    needs, train = FACADES[facade]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(needs, reason=f"{needs} is not installed: make test-frameworks has it")
        importlib.import_module({"lightning": "lightning.pytorch"}.get(needs, needs))

    def end_of(logdir: str, epochs: int, more: int) -> str:
        def body(say: Say) -> None:
            warnings.simplefilter("ignore")
            train(tmp_path / logdir, epochs, say)

        status, said = trial(tmp_path, body)
        assert (status, said.count("step")) == (0, more * BATCHES)
        return said[-1]

    truth = end_of("truth", 3, 3)
    for epochs in (1, 2, 3):
        end = end_of("one by one", epochs, 1)
    end_of("leap", 1, 1)
    assert end == truth == end_of("leap", 3, 2)
    assert end_of("leap", 3, 0) == truth
