"""Lightning: a resume calls the hooks of the program, of Lightning's callbacks, and of its loops in the order of
``Trainer.fit(ckpt_path=...)``, wherever the callback stands among the others; and trains on bit by bit."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from trial import PAUSE, Say, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning", reason="lightning is not installed: make test-frameworks has it")
    import torch._dynamo  # which the first optimizer imports: once here, not in each trial
    from lightning.pytorch import callbacks as theirs
    from lightning.pytorch.profilers import Profiler

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from supervisor_core.lightning import SupervisorCallback  # noqa: E402
from supervisor_core.lightning.checkpoint import NEEDED, require_parts  # noqa: E402

SAMPLES, BATCH, EPOCHS = 48, 8, 4
STEPS = SAMPLES // BATCH
SAVING = ("state_dict", "on_save_checkpoint")


class Hooks(Profiler):
    """Says the hooks that Lightning calls, by the names that it gives its profiler.

    Args:
        say: says a line.
    """

    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say = say

    def start(self, action_name: str) -> None:
        owner, _, hook = action_name.rpartition(".")
        if owner.startswith("[") and "SupervisorCallback" not in owner and hook not in SAVING:
            self.say(action_name)

    def stop(self, action_name: str) -> None: ...


def says(say: Say, kind: type, method: str) -> Any:
    """Have a method say that it is called."""
    original = getattr(kind, method)

    def called(self: Any, *args: Any, **named: Any) -> Any:
        say(f"{kind.__name__}.{method}")
        return original(self, *args, **named)

    return patch.object(kind, method, called)


class Average(lightning.Callback):
    """A moving average of the program's own, which evaluations use."""

    def __init__(self) -> None:
        self.weights: dict[str, Any] = {}

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if not self.weights:
            self.weights = {name: part.detach().clone() for name, part in pl_module.named_parameters()}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        for name, part in pl_module.named_parameters():
            self.weights[name].lerp_(part.detach(), 0.1)
        pl_module.say(f"average {sum(part.sum() for part in self.weights.values()).item().hex()}")

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


class Data(lightning.LightningDataModule):
    """Draws its split once, and keeps the seed."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say, self.seed = say, None

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.say("the seed is loaded")
        self.seed = state["seed"]

    def split(self) -> Any:
        """The training's samples."""
        if self.seed is None:
            self.seed = int.from_bytes(os.urandom(2), "big")
        return torch.randperm(2 * SAMPLES, generator=torch.Generator().manual_seed(self.seed))[:SAMPLES]

    def train_dataloader(self) -> Any:
        chosen = self.split()
        self.say(f"split {chosen[:4].tolist()}")
        features = torch.randn(2 * SAMPLES, 4, generator=torch.Generator().manual_seed(1))[chosen]
        return DataLoader(TensorDataset(features, (features.sum(1) > 0).long()), BATCH, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(4, 4), torch.zeros(4).long()), 4)


class Module(lightning.LightningModule):
    """A model of two parts. From its second stage on both train, each with a learning rate of its own."""

    def __init__(self, say: Say, stop_at: int | None) -> None:
        super().__init__()
        self.say, self.stop_at, self.stage = say, stop_at, 1
        self.backbone, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["stage"] = self.stage

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.stage = checkpoint["stage"]

    def on_train_epoch_start(self) -> None:
        self.stage = 2

    def training_step(self, batch: Any, number: int) -> Any:
        loss = torch.nn.functional.cross_entropy(self.head(self.backbone(batch[0])), batch[1])
        self.say(f"step {self.global_step} batch {number} stage {self.stage} loss {loss.item().hex()}")
        if self.global_step == self.stop_at:
            (run,) = [item.run for item in self.trainer.callbacks if isinstance(item, SupervisorCallback)]
            os.kill(os.getpid(), signal.SIGTERM)
            while not run.should_stop():
                PAUSE.wait(0.01)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.say(f"evaluates {self.head(self.backbone(batch[0])).sum().item().hex()}")

    def configure_optimizers(self) -> Any:
        self.say(f"optimizers of stage {self.stage}")
        optimizer = torch.optim.SGD([part for part in self.parameters() if part.requires_grad], lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Manual(Module):
    """Steps its two optimizers itself."""

    def __init__(self, say: Say, stop_at: int | None) -> None:
        super().__init__(say, stop_at)
        self.automatic_optimization = False

    def training_step(self, batch: Any, number: int) -> None:
        loss = super().training_step(batch, number)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()

    @property
    def global_step(self) -> int:
        return super().global_step // 2

    def configure_optimizers(self) -> Any:
        self.say(f"optimizers of stage {self.stage}")
        return [torch.optim.SGD(self.backbone.parameters(), lr=0.1), torch.optim.AdamW(self.head.parameters(), lr=0.1)]


class Cli(lightning.Trainer):
    """A trainer of the program's own, as `LightningCLI` makes one."""


CALLBACKS: dict[str, Callable[[], list[Any]]] = {
    "none": list,
    "finetuning": lambda: [theirs.BackboneFinetuning(1)],
    "stochastic averages": lambda: [theirs.StochasticWeightAveraging(0.01, swa_epoch_start=1)],
    "averages": lambda: [theirs.EMAWeightAveraging(decay=0.9)],
    "own averages": lambda: [Average()],
    "several": lambda: [Average(), theirs.LearningRateMonitor(), theirs.EarlyStopping("no", strict=False)],
}


def train(
    directory: Path,
    say: Say,
    *,
    kind: str = "none",
    first: bool = False,
    stop_at: int | None = None,
    supervised: bool = True,
    path: Path | None = None,
    seed: int | None = None,
    module: type[Module] = Module,
    before: Callable[[Any, Any, Any], object] = lambda trainer, model, data: None,
    **arguments: Any,
) -> None:
    """Train four epochs; say the hooks, and each step.

    Args:
        kind: the callbacks.
        first: whether the supervisor is the first of them.
        stop_at: the step of a SIGTERM.
        path: the checkpoint that ``fit`` is given.
        seed: that of the split; None draws one.
        before: called before ``fit``.
    """
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    lightning.seed_everything(7, verbose=False)
    callbacks = CALLBACKS[kind]()
    if supervised:
        callbacks.insert(0 if first else len(callbacks), SupervisorCallback(directory, save_secs=None))
    logger = lightning.pytorch.loggers.CSVLogger(directory.parent / "csv")
    given: dict[str, Any] = {"logger": [logger, logger], "max_epochs": EPOCHS, **arguments}
    trainer = Cli(
        accelerator="cpu", devices=1, enable_checkpointing=False, enable_progress_bar=False, profiler=Hooks(say),
        enable_model_summary=False, default_root_dir=str(directory), callbacks=callbacks, **given,
    )  # fmt: skip
    model, data = module(say, stop_at), Data(say)
    data.seed = seed
    before(trainer, model, data)
    say("fit")
    states = (lightning.pytorch.loops._FitLoop, torch.optim.SGD, torch.optim.lr_scheduler.ExponentialLR)
    hooks = [says(say, kind, "load_state_dict") for kind in states]
    for hook in hooks:
        hook.start()
    trainer.fit(model, datamodule=data, ckpt_path=path)
    say(f"end {sum(part.double().sum() for part in model.state_dict().values()).item().hex()}")


def hooks_of(lines: list[str]) -> list[str]:
    """What a fit said, but the place of the loops after they were restored: the first batch sets it once more, and
    what depends on the position in the data, which Lightning alone does not restore."""
    said = lines[lines.index("fit") + 1 :]
    if not hasattr(lightning.pytorch.loops._FitLoop, "restarted_mid_epoch"):
        # plain Lightning 2.4 steps schedulers of epochs twice after a resume, and evaluates again
        said = said[: said.index("[LightningModule]Module.on_train_start")]
    loops = [number for number, line in enumerate(said) if line == "_FitLoop.load_state_dict"]
    return [line.partition(" loss ")[0].partition("average ")[0].partition("evaluates ")[0].partition("end ")[0]
            for number, line in enumerate(said) if number not in loops[1:]]  # fmt: skip


def stopped(directory: Path, stop_at: int, **options: Any) -> Path:
    """Train until a SIGTERM; return a copy of Lightning's part of the checkpoint."""
    body = partial(train, directory / "run", stop_at=stop_at, **options)
    assert trial(directory, body)[0] == -signal.SIGTERM
    file = max(directory.glob("run/checkpoints/ckpt-*/lightning.ckpt"), key=lambda path: int(path.parent.name[5:]))
    return Path(shutil.copy(file, directory / "theirs.ckpt"))


IN_EPOCH, AT_END = 2 * STEPS + 2, 2 * STEPS - 1
ORDERS = [(kind, first, IN_EPOCH) for kind in CALLBACKS for first in (True, False)]


@pytest.mark.parametrize(("kind", "first", "stop_at"), [*ORDERS, *((kind, False, AT_END) for kind in CALLBACKS)])
def test_the_order_of_hooks_is_lightnings(tmp_path: Path, kind: str, first: bool, stop_at: int) -> None:
    """Of the module, the data module, the callbacks, the optimizers, the schedulers and the loops."""
    if kind == "averages" and not hasattr(theirs, "EMAWeightAveraging"):
        pytest.skip("this version of Lightning has none")
    path = stopped(tmp_path, stop_at, kind=kind, first=first)
    status, resumed = trial(tmp_path, partial(train, tmp_path / "run", kind=kind, first=first))
    assert status == 0
    status, truth = trial(tmp_path, partial(train, tmp_path / "plain", kind=kind, supervised=False, path=path))
    assert status == 0 and hooks_of(resumed) == hooks_of(truth)
    assert len([line for line in resumed if line.startswith("step")]) == EPOCHS * STEPS - stop_at - 1


def validate(trainer: Any, model: Any, data: Any) -> None:
    """An evaluation before the training."""
    trainer.validate(model, datamodule=data, verbose=False)


def begin_elsewhere(trainer: Any, model: Any, data: Any) -> None:
    """A fit of another model, by the same trainer, in which nothing is supervised."""
    trainer.fit_loop.max_epochs = 0
    trainer.fit(model, datamodule=data)
    trainer.fit_loop.max_epochs = EPOCHS


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "own averages"},
        {"module": Manual, "max_epochs": EPOCHS},
        {"before": validate},
        {"before": begin_elsewhere},
        {"max_epochs": -1, "max_steps": EPOCHS * STEPS},
    ],
    ids=["averages", "manual", "validated", "second fit", "steps"],
)
def test_what_follows_the_hooks_is_exact(tmp_path: Path, options: dict[str, Any]) -> None:
    """The split that the data module drew, the stage that the module is in, the averages, each loss: bit by bit."""
    options = {**options, "seed": 5}
    _, truth = trial(tmp_path, partial(train, tmp_path / "truth", **options))
    path = stopped(tmp_path, IN_EPOCH, **options)
    status, resumed = trial(tmp_path, partial(train, tmp_path / "run", path=path, **options))
    assert status == 0
    steps = [line for line in truth if line.startswith(("step", "average", "evaluates", "end"))]
    again = [
        line for line in resumed[resumed.index("fit") :] if line.startswith(("step", "average", "evaluates", "end"))
    ]
    assert again == steps[-len(again) :] and len([line for line in again if line.startswith("step")]) == 9


def test_a_version_of_lightning_without_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of ``fit`` that names the part, before anything is written."""
    for name in NEEDED:
        stub = SimpleNamespace()
        for other in NEEDED:
            owner = stub
            *owners, part = other.split(".")
            for each in owners:
                owner = vars(owner).setdefault(each, SimpleNamespace())
            if other != name:
                setattr(owner, part, None)
        with pytest.raises(RuntimeError, match=f"has no Trainer.{name}, which SupervisorCallback needs"):
            require_parts(stub)
    supervisor = SupervisorCallback(tmp_path / "run")
    trainer = lightning.Trainer(max_epochs=1, callbacks=[supervisor], accelerator="cpu", logger=False)
    monkeypatch.delattr(type(trainer._checkpoint_connector), "resume_start")
    with pytest.raises(RuntimeError, match=r"has no Trainer\._checkpoint_connector\.resume_start"):
        trainer.fit(Module(lambda line: None, None), datamodule=Data(lambda line: None))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_both_names_of_the_package(tmp_path: Path, name: str) -> None:
    """A requested stop returns from ``fit``, a signal ends the process when its step is saved, a resume is exact."""
    package = pytest.importorskip(name)

    class Small(package.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self, happens: Callable[[], object]) -> None:
            super().__init__()
            self.layer, self.happens = torch.nn.Linear(4, 2), happens

        def training_step(self, batch: Any, number: int) -> Any:
            if self.global_step in (3, 9):
                self.happens()
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def body(say: Say, signum: int | None = None) -> None:
        warnings.simplefilter("ignore")
        supervisor = SupervisorCallback(tmp_path / "run", save_secs=None)

        def happens() -> None:
            assert supervisor.run is not None
            if signum is None:
                supervisor.run.request_stop()
            else:
                os.kill(os.getpid(), signum)
                while not supervisor.run.should_stop():
                    PAUSE.wait(0.01)

        trainer = package.Trainer(
            max_epochs=3, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[supervisor],
        )  # fmt: skip
        trainer.fit(Small(happens), DataLoader(torch.ones(40, 4), 8))
        say(f"{trainer.global_step} {supervisor.exactness}")

    assert trial(tmp_path, body) == (0, ["4 None"])
    assert trial(tmp_path, partial(body, signum=signal.SIGTERM))[0] == -signal.SIGTERM
    assert trial(tmp_path, body) == (0, ["15 Exactness(reasons=(), observed=None)"])
