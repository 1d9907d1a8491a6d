"""A run whose epochs are shorter after a resume has left samples out: that is said, once, on every facade, before it is
completed. A run whose epochs are as long as before, or that leaves an epoch itself, says nothing."""

from __future__ import annotations

import importlib
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from trial import Event, Say, at, run_of, trial

BATCHES, EPOCHS = 6, 4


class Sticks:
    """Data with a state of their own, whose later epochs begin where a loaded state began.

    Args:
        value: returns a batch.
        begins: whether they begin at all.
    """

    def __init__(self, value: Callable[[float], Any], begins: bool = True) -> None:
        self.value, self.begins, self.first, self.now = value, begins, 0, 0

    def state_dict(self) -> dict[str, int]:
        return {"now": self.now}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.first = state["now"]

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.first, BATCHES):
            self.now = number + 1
            yield self.value(float(number))
        if self.first and not self.begins:
            self.first = BATCHES


def steps(logdir: Path, say: Say, event: Event, sticks: bool) -> None:
    """`Run.steps`, left with its data."""
    import supervisor_core

    def samples() -> Iterator[float]:
        for _ in range(run.global_step // BATCHES, EPOCHS):
            yield from data

    data = Sticks(float)
    kept = {"data": data} if sticks else {}
    total = {"sum": 0.0}  # the loop ends with its data, or when the program says so
    with supervisor_core.supervise(logdir, state={"total": total, **kept}, save_secs=None) as run:
        for step, value in zip(run.steps(EPOCHS * BATCHES), samples(), strict=False):
            event(run, step)
            total["sum"] += value
            say("step")
            if step == EPOCHS * BATCHES - 2 and not sticks:
                run.finish()


def torch_loop(logdir: Path, say: Say, event: Event, sticks: bool, *, is_within: bool = False) -> None:
    """PyTorch."""
    import torch

    from supervisor_core.torch import supervised

    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data: Any = Sticks(lambda number: torch.full((8, 1), number))
    data = data if sticks else list(data)
    loop = supervised(data, logdir, epochs=EPOCHS, model=model, optimizer=optimizer, save_secs=None)
    for _ in loop.epochs() if is_within else range(1):
        for batch in loop:
            event(loop, loop.global_step)
            say("step")
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            if is_within and not sticks and loop.epoch == 2 and loop.batch == 2:
                break


def lightning_fit(logdir: Path, say: Say, event: Event, sticks: bool) -> None:
    """Lightning."""
    import torch
    from lightning.pytorch import LightningModule, Trainer

    from supervisor_core.lightning import SupervisorCallback

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any) -> Any:
            event(supervisor.run, self.trainer.global_step)
            say("step")
            return self.layer(batch).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    class Known(Sticks):
        def __len__(self) -> int:
            return BATCHES

    data: Any = Known(lambda number: torch.full((8, 1), number))
    data = data if sticks else torch.utils.data.DataLoader(list(data), batch_size=None)
    supervisor = SupervisorCallback(logdir, save_secs=None)
    trainer = Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[supervisor], max_epochs=EPOCHS,
    )  # fmt: skip
    trainer.fit(Model(), data)


def transformers_train(logdir: Path, say: Say, event: Event, sticks: bool) -> None:
    """Transformers: the Trainer leaves the consumed samples out, over the epochs of a stream, too."""
    import torch
    import transformers

    from supervisor_core.transformers import SupervisorCallback

    class Model(transformers.PreTrainedModel):  # type: ignore[misc]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, 1)
            self.post_init()

        def _init_weights(self, module: Any) -> None:
            pass

        def forward(self, values: Any, labels: Any = None) -> dict[str, Any]:
            say("step")
            return {"loss": self.layer(values).pow(2).mean()}

    class Stops(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            event(supervisor.run, state.global_step)

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            yield from samples

    samples = [{"values": torch.full((1,), float(number)), "labels": torch.zeros(1)} for number in range(BATCHES)]
    supervisor = SupervisorCallback(save_secs=None)
    args = transformers.TrainingArguments(
        output_dir=str(logdir), per_device_train_batch_size=1, report_to=[], disable_tqdm=True, use_cpu=True,
        save_strategy="no", max_steps=EPOCHS * BATCHES,
    )  # fmt: skip
    data: Any = Stream() if sticks else samples
    model = Model(transformers.PretrainedConfig())
    trainer = transformers.Trainer(model=model, args=args, train_dataset=data, callbacks=[Stops(), supervisor])
    trainer.train(resume_from_checkpoint=supervisor.resume_from())


def keras_fit(logdir: Path, say: Say, event: Event, sticks: bool) -> None:
    """Keras: the batches that were consumed are passed again, and not before each later epoch."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras
    import numpy as np

    from supervisor_core.keras import SupervisorCallback

    class Steps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if supervisor.is_training:
                event(supervisor.run, supervisor.run.global_step)
                say("step")

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    class Shrinks(keras.utils.PyDataset):  # type: ignore[misc]
        """One whose later epochs are shorter in a process that has resumed."""

        def __len__(self) -> int:
            return BATCHES - 2 * (sticks and supervisor.run is not None and bool(supervisor.run.restored))

        def __getitem__(self, index: int) -> Any:
            return np.full((8, 1), float(index)), np.zeros((8, 1))

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    supervisor = SupervisorCallback(logdir, save_secs=None)
    model.fit(Shrinks(), epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[Steps(), supervisor])


def jax_loop(logdir: Path, say: Say, event: Event, sticks: bool) -> None:
    """JAX, left with its data."""
    import jax.numpy as jnp

    from supervisor_core.jax import supervised

    with supervised(logdir, state={"weight": jnp.zeros(3)}, data="step", save_secs=None) as run:
        samples = range(EPOCHS * BATCHES - 2 * bool(sticks and run.run.restored))
        for step, value in zip(run.steps(EPOCHS * BATCHES), list(samples)[run.global_step :], strict=False):
            event(run, step)
            run.state = {"weight": run.state["weight"] * 0.9 + value}
            say("step")


FACADES: dict[str, tuple[str, Callable[..., None]]] = {
    "steps": ("numpy", steps),
    "torch": ("torch", torch_loop),
    "torch loop over epochs": ("torch", partial(torch_loop, is_within=True)),
    "lightning": ("lightning", lightning_fit),
    "transformers": ("transformers", transformers_train),
    "keras": ("torch", keras_fit),
    "jax": ("jax", jax_loop),
}


@pytest.mark.parametrize("sticks", [True, False], ids=["shorter", "as long"])
@pytest.mark.parametrize("facade", FACADES)
def test_a_shorter_run_says_so(tmp_path: Path, facade: str, sticks: bool) -> None:
    """Stopped in the second epoch, and started again: the run is completed, and says if it has left samples out."""
    needs, train = FACADES[facade]
    if not find_spec(needs):
        pytest.skip(f"{needs} is not installed: make test-frameworks has it")
    if needs != "jax":  # which is imported in the processes only
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module({"lightning": "lightning.pytorch"}.get(needs, needs))

    def body(say: Say, event: Event) -> None:
        warnings.simplefilter("ignore")
        train(tmp_path / "run", say, event, sticks)

    status, before = trial(tmp_path, lambda say: body(say, at(BATCHES + 1, signal.SIGTERM)))
    assert status == -signal.SIGTERM
    status, after = trial(tmp_path, lambda say: body(say, lambda run, step: None))
    run = run_of(tmp_path / "run")
    assert (status, run.sessions[-1].outcome) == (0, "completed")
    texts = [notice.text for notice in run.notices]
    if sticks:
        assert len(before) + len(after) < EPOCHS * BATCHES or facade == "transformers"  # which adds an epoch
        assert len(texts) == 1 and "after a resume" in texts[0].lower(), texts
    else:
        assert not texts
