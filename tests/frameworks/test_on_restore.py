"""`Options.on_restore`, for each facade whose structure can change within a training: the function is called once, with
the saved states, before they are restored; what is trained then has the bits of an uninterrupted training."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from trial import Say, trial

STEPS, GROWS, STOP = 9, 3, 5
"""All steps; before which one the structure changes; after how many the first session stops."""


def torch_parts() -> tuple[Any, Any, Callable[..., None]]:
    """A model, an optimizer of its head, and what adds the body's group to it."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.Adam(model[1].parameters(), lr=0.1)

    def unfreeze() -> None:
        if len(optimizer.param_groups) == 1:
            optimizer.add_param_group({"params": model[0].parameters()})

    return model, optimizer, unfreeze


def bits(model: Any) -> str:
    """The bits of the sum of a model's weights."""
    return f"end {sum(part.detach().double().sum() for part in model.parameters()).item().hex()}"


def by_supervise(logdir: Path, say: Say, stop: int) -> None:
    """`supervise`."""
    import torch

    from supervisor_core import Options, supervise

    model, optimizer, unfreeze = torch_parts()

    def restore(saved: Any) -> None:
        say(f"restore {len(saved['optimizer']['param_groups'])}")
        unfreeze()

    state = {"model": model, "optimizer": optimizer, "data": "step"}
    with supervise(logdir, state=state, options=Options(on_restore=restore), save_secs=None) as run:
        for step in run.steps(STEPS):
            if step == GROWS:
                unfreeze()
            optimizer.zero_grad()
            model(torch.tensor([1.0, step])).square().sum().backward()
            optimizer.step()
            if step + 1 == stop:
                run.request_stop()
    say(bits(model))


def by_lightning(logdir: Path, say: Say, stop: int) -> None:
    """Lightning, whose connector restores the optimizers."""
    import torch
    from lightning.pytorch import LightningModule, Trainer

    from supervisor_core import Options
    from supervisor_core.lightning import SupervisorCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.made, self.unfreeze = torch_parts()

        def on_train_batch_start(self, batch: Any, index: int) -> None:
            if self.trainer.global_step == GROWS:
                self.unfreeze()

        def training_step(self, batch: Any) -> Any:
            if self.trainer.global_step + 1 == stop:
                supervisor.run.request_stop()  # type: ignore[union-attr]
            return self.layers(batch).square().sum()

        def configure_optimizers(self) -> Any:
            return self.made

    def restore(saved: Any) -> None:
        (optimizer,) = saved["optimizer_states"]
        say(f"restore {len(optimizer['param_groups'])}")
        module.unfreeze()

    module = Module()
    supervisor = SupervisorCallback(logdir, options=Options(on_restore=restore), save_secs=None)
    trainer = Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[supervisor], max_epochs=3,
    )  # fmt: skip
    data = [torch.tensor([1.0, float(number)]) for number in range(STEPS // 3)]
    trainer.fit(module, torch.utils.data.DataLoader(data, 1))
    say(bits(module.layers))


def by_jax(logdir: Path, say: Say, stop: int) -> None:
    """JAX, whose state gets another array."""
    import jax.numpy as jnp

    from supervisor_core import Options
    from supervisor_core.jax import supervised

    def grow() -> None:
        run.state = {"params": {**run.state["params"], "body": jnp.ones(2)}}

    def restore(saved: Any) -> None:
        say(f"restore {len(saved['params'])}")
        grow()

    run = supervised(
        logdir, state={"params": {"head": jnp.ones(2)}}, data="step", options=Options(on_restore=restore),
        save_secs=None,
    )  # fmt: skip
    with run:
        for step in run.steps(STEPS):
            if step == GROWS:
                grow()
            run.state = {"params": {name: part * 0.9 + step for name, part in run.state["params"].items()}}
            if step + 1 == stop:
                run.request_stop()
    say(f"end {sum(float(part.sum()) for part in run.state['params'].values()).hex()} {len(run.state['params'])}")


def by_keras(logdir: Path, say: Say, stop: int) -> None:
    """Keras: a model is compiled as it is, so it grows between two calls of ``fit``, and needs no function."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    class Stops(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if supervisor.is_training and supervisor.run.global_step + 1 == stop:
                supervisor.run.request_stop()

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    keras.utils.set_random_seed(1)
    values = np.random.default_rng(2).random((4 * GROWS, 3), np.float32)
    supervisor = SupervisorCallback(logdir, save_secs=None)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    for epochs in (1, 2):
        if epochs == 2:
            model.add(keras.layers.Dense(1))
        model.compile("adam", "mse")
        model.fit(values, values.sum(1), batch_size=4, epochs=epochs, verbose=0, callbacks=[Stops(), supervisor])
        if stop and epochs == 2:
            return
    say(f"end {sum(float(part.sum(dtype='float64')) for part in model.get_weights()).hex()}")


FACADES: dict[str, tuple[str, Callable[[Path, Say, int], None], list[str]]] = {
    "supervise": ("torch", by_supervise, ["restore 2"]),
    "lightning": ("lightning", by_lightning, ["restore 2"]),
    "jax": ("jax", by_jax, ["restore 2"]),
    "keras": ("torch", by_keras, []),
}


@pytest.mark.parametrize("facade", FACADES)
def test_a_structure_that_changed_is_restored(tmp_path: Path, facade: str) -> None:
    """See the module's docstring."""
    needs, train, said_first = FACADES[facade]
    if not find_spec(needs):
        pytest.skip(f"{needs} is not installed: make test-frameworks has it")
    if needs != "jax":  # which is imported in the processes only
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module({"lightning": "lightning.pytorch"}.get(needs, needs))

    def said(logdir: str, stop: int) -> list[str]:
        def body(say: Say) -> None:
            warnings.simplefilter("ignore")
            train(tmp_path / logdir, say, stop)

        status, lines = trial(tmp_path, body)
        assert status == 0
        return lines

    (truth,) = said("truth", 0)
    said("run", STOP)
    assert said("run", 0) == [*said_first, truth]
