"""What a module has that is in no ``state_dict`` comes back with it: buffers that are not persistent, which parameters
are trained, which modules are in training mode. For each facade that trains modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from supervisor_core import supervise  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.module_state import ModuleState  # noqa: E402
from supervisor_core.training.position import _FITS  # noqa: E402

STEPS, EPOCHS, STOP = 5, 3, 8
"""Per epoch; in all; the step after which the first session stops."""


class Digits(Dataset[Any]):
    """Samples that their number decides."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([index % 3, index % 5, index % 7, 1.0]), "labels": torch.tensor(index % 2)}


class Net(torch.nn.Module):  # type: ignore[misc]
    """Learns, with a mean that no checkpoint of a ``state_dict`` has, and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop, self.b = torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        self.mean.lerp_(x.detach().mean(0), 0.1)
        output = self.b(self.drop(self.a(x - self.mean + self.table)))
        return {"loss": torch.nn.functional.cross_entropy(output, labels), "logits": output}

    def change(self) -> None:
        """Train no more of the first layer, and leave nothing out."""
        self.a.requires_grad_(False)
        self.drop.eval()


def _bits(net: Net) -> str:
    return " ".join(part.detach().double().sum().item().hex() for part in (*net.parameters(), net.mean))


def _by_supervised(logdir: Path, stop: bool) -> tuple[str, Any]:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loop = supervised(DataLoader(Digits(), 4), logdir, epochs=EPOCHS, model=net, optimizer=optimizer)
    for epoch in loop.epochs():
        if epoch == 1 and loop.batch == 0:
            net.change()
        for batch in loop:
            optimizer.zero_grad()
            net(**batch)["loss"].backward()
            optimizer.step()
            if stop and loop.global_step + 1 == STOP:
                loop.request_stop()
    return _bits(net), loop.exactness


def _by_supervise(logdir: Path, stop: bool) -> tuple[str, Any]:
    net, batches = Net(), list(DataLoader(Digits(), 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state = {"model": net, "optimizer": optimizer, "data": {}}
    with supervise(logdir, state=state) as run:
        for step in run.steps(STEPS * EPOCHS):
            if step == STEPS:
                net.change()
            optimizer.zero_grad()
            net(**batches[step % STEPS])["loss"].backward()
            optimizer.step()
            if stop and step + 1 == STOP:
                run.request_stop()
    return _bits(net), run.exactness


def _by_lightning(logdir: Path, stop: bool) -> tuple[str, Any]:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed: make test-frameworks has it")
    from supervisor_core.lightning import SupervisorCallback

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def on_train_batch_start(self, batch: Any, index: int) -> None:
            if self.current_epoch == 1 and index == 0:
                self.net.change()

        def training_step(self, batch: Any, index: int) -> Any:
            if stop and self.trainer.global_step + 1 == STOP:
                supervisor.run.request_stop()  # type: ignore[union-attr]
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    supervisor, module = SupervisorCallback(logdir), Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[supervisor],
    )  # fmt: skip
    trainer.fit(module, DataLoader(Digits(), 4))
    return _bits(module.net), supervisor.exactness


def _by_trainer(logdir: Path, stop: bool) -> tuple[str, Any]:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: make test-frameworks has it"
    )
    from supervisor_core.transformers import SupervisorCallback

    class Changes(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == STEPS:
                net.change()
            if stop and state.global_step + 1 == STOP:
                supervisor.run.request_stop()  # type: ignore[union-attr]

    supervisor, net = SupervisorCallback(), Net()
    args = transformers.TrainingArguments(
        output_dir=str(logdir), num_train_epochs=EPOCHS, per_device_train_batch_size=4, optim="sgd", use_cpu=True,
        report_to=[], disable_tqdm=True, learning_rate=0.1, save_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(net, args, train_dataset=Digits(), callbacks=[supervisor, Changes()])
    with supervisor:
        trainer.train(resume_from_checkpoint=supervisor.resume_from())
    return _bits(net), supervisor.exactness


FACADES: dict[str, Callable[[Path, bool], tuple[str, Any]]] = {
    "supervised": _by_supervised,
    "supervise": _by_supervise,
    "Lightning": _by_lightning,
    "Transformers": _by_trainer,
}


@pytest.mark.filterwarnings("ignore")  # of the frameworks
@pytest.mark.parametrize("facade", FACADES)
def test_what_no_state_dict_has_comes_back(tmp_path: Path, facade: str) -> None:
    """The same bits at the end as without a stop, and no reason."""
    train = FACADES[facade]
    found = []
    for logdir, stop in ((tmp_path / "whole", False), (tmp_path / "run", True), (tmp_path / "run", False)):
        torch.manual_seed(0)
        _FITS.clear()  # as in another process: else Lightning's second fit would be one that follows
        found.append(train(logdir, stop))
    (whole, _), (half, _), (resumed, exactness) = found
    assert resumed == whole != half
    assert exactness is not None and exactness.verdict == "not observed"


def test_what_has_not_changed_is_not_saved() -> None:
    """What a program builds it builds again: a checkpoint does not grow by masks and tables. What has is set in
    another; not the modes of a model that is evaluated as a whole, after which it trains again."""
    net, other = Net(), Net()
    state = ModuleState({"net": net})
    assert state.state_dict() == {"net": {}}
    net.eval()
    assert state.state_dict() == {"net": {}}
    net.train()
    net.change()
    net.mean += 1
    found = state.state_dict()["net"]
    assert (found["modes"], set(found["trained"]), list(found["buffers"])) == (
        {"drop": False}, {"a.weight", "a.bias"}, ["mean"],
    )  # fmt: skip
    saved = {"net": {**found, "trained": {"a.weight": False, "gone": True}}}
    ModuleState({"net": other}).load_state_dict(saved)
    assert not other.drop.training and not other.a.weight.requires_grad and other.a.bias.requires_grad
    assert other.mean.tolist() == [1.0] * 4


KERAS = """
import sys
import keras, numpy as np
from supervisor_core.keras import SupervisorCallback

keras.utils.set_random_seed(1)
x = np.random.rand(40, 4).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
supervisor, stop = SupervisorCallback(sys.argv[1], save_secs=None), int(sys.argv[2])


class Freezes(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.layers[0].trainable = False

    def on_train_batch_begin(self, batch, logs=None):
        if supervisor.run is not None and supervisor.run.global_step == stop - 1:
            supervisor.run.request_stop()


model.fit(x, x.sum(1), epochs=3, batch_size=8, verbose=0, shuffle=False, callbacks=[supervisor, Freezes()])
print(sum(float(np.abs(np.asarray(part)).sum()) for part in model.get_weights()).hex())
print("" if supervisor.exactness is None else supervisor.exactness.verdict)
"""


@pytest.mark.timeout(900)  # each process imports Keras, and compiles its steps
@pytest.mark.parametrize("backend", [name for name in ("tensorflow", "torch") if find_spec(name)])
def test_what_a_callback_froze_in_keras_comes_back(tmp_path: Path, backend: str) -> None:
    """With PyTorch bit by bit. A step that was compiled before trains the layer on, which a resume does not: named."""
    if not find_spec("keras"):
        pytest.skip("keras is not installed: make test-frameworks has it")
    program = tmp_path / "train.py"
    program.write_text(KERAS)

    def fit(name: str, stop: int) -> list[str]:
        environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, str(program), str(tmp_path / name), str(stop)]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.split(
            "\n"
        )

    whole = fit("whole", 0)[0]
    assert fit("run", 8)[0] != whole
    resumed, verdict, _ = fit("run", 0)
    assert (resumed, verdict) == (whole, "not observed") if backend == "torch" else "trainable was changed" in verdict
