"""Lightning: an interrupted fit goes on bit by bit, from a checkpoint that Lightning reads, or says by name why not."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning", reason="lightning is not installed: make test-frameworks has it")
    import torch._dynamo  # which the first optimizer imports: once here, not in each trial

from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from supervisor_core.lightning import SupervisorCallback  # noqa: E402
from supervisor_core.lightning.loaders import AHEAD  # noqa: E402
from supervisor_core.torch.position import WORKERS_DRAW  # noqa: E402
from supervisor_core.watch.logdir_watch import LogdirWatch  # noqa: E402

PAUSE = threading.Event()  # never set
SAMPLES, BATCH, EPOCHS = 45, 8, 3
Say = Callable[[str], None]
Event = Callable[["Model", int], None]


class Stream(IterableDataset[Any]):
    """Samples without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(samples())


def samples() -> Any:
    """A dataset in memory."""
    features = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(torch.arange(SAMPLES), features, torch.arange(SAMPLES) % 2)


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(samples(), BATCH, shuffle=True),
    "two workers": lambda: DataLoader(samples(), BATCH, shuffle=True, num_workers=2),
    "without a length": lambda: DataLoader(Stream(), BATCH),
}


class Model(lightning.LightningModule):
    """A model with dropout; says the samples and the bits of the loss of each batch that it trains on."""

    def __init__(self, say: Say, event: Event) -> None:
        super().__init__()
        self.say, self.event = say, event
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))

    @property
    def run(self) -> Any:
        """The session."""
        return next(item for item in self.trainer.callbacks if isinstance(item, SupervisorCallback)).run

    def training_step(self, batch: Any, number: int) -> Any:
        """Say what is trained on."""
        supervisor = next(item for item in self.trainer.callbacks if isinstance(item, SupervisorCallback))
        if self.run.global_step and supervisor.exactness is not None and not self.said:
            self.say(" ".join(("exact", *supervisor.exactness.reasons)))
        self.said = True
        self.run.wait_until_saved()  # so that it is known which checkpoints there are
        self.event(self, self.run.global_step)
        ids, features, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(features), labels)
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.say(f"{self.current_epoch} {number} {self.trainer.global_step} {ids.tolist()} {loss.item().hex()} {rate}")
        return loss

    said = False

    def validation_step(self, batch: Any, number: int) -> None:
        """An evaluation that draws random numbers."""
        torch.rand(1)
        self.log("val", torch.nn.functional.cross_entropy(self.layers(batch[1]), batch[2]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(
    directory: Path,
    say: Say,
    kind: str = "shuffled",
    *,
    event: Event = lambda model, step: None,
    fits: tuple[int, ...] = (EPOCHS,),
    model: type[Model] = Model,
    validates: bool = True,
    save_steps: int | None = 4,
    **arguments: Any,
) -> None:
    """Train; say the verdict of a resume, then each batch."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    given: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": str(directory),
    }  # fmt: skip
    lightning.seed_everything(7, verbose=False)
    supervisor = SupervisorCallback(directory, save_secs=None, save_steps=save_steps)
    trainer = lightning.Trainer(max_epochs=fits[0], callbacks=[supervisor], **{**given, **arguments})
    module = model(say, event)
    for epochs in fits:
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(module, LOADERS[kind](), DataLoader(samples(), BATCH) if validates else None)
        assert supervisor.run is None
    say("end " + sum(part.double().sum() for part in module.state_dict().values()).item().hex())


def at(step: int, signum: int) -> Event:
    """An event: this signal at that step."""

    def event(model: Model, now: int) -> None:
        if now == step:
            os.kill(os.getpid(), signum)
            while not model.run.should_stop():
                PAUSE.wait(0.01)

    return event


def run_of(directory: Path) -> Any:
    """The run model of a logdir."""
    (item,) = LogdirWatch(str(directory)).refresh().runs.values()
    return item.run


@pytest.mark.parametrize("kind", LOADERS)
def test_a_killed_fit_goes_on_bit_by_bit(tmp_path: Path, trial_in: ModuleType, kind: str) -> None:
    """In the middle of the second epoch: the same samples in the same order, the same bits of each loss, and of the
    model at the end; the same learning rates, numbers of steps and epochs."""
    _, truth = trial_in.trial(tmp_path, lambda say: train(tmp_path / "truth", say, kind))
    run = tmp_path / "run"
    status, first = trial_in.trial(tmp_path, lambda say: train(run, say, kind, event=at(10, signal.SIGKILL)))
    assert status == -signal.SIGKILL and truth[: len(first)] == first
    status, (verdict, *second) = trial_in.trial(tmp_path, lambda say: train(run, say, kind))
    reasons = {"two workers": (WORKERS_DRAW,), "without a length": (AHEAD,)}.get(kind, ())
    assert (status, verdict) == (0, " ".join(("exact", *reasons)))
    assert len(truth) == 19 and second == truth[8:]


def test_sigterm_saves_the_step_and_the_next_session_goes_on(tmp_path: Path, trial_in: ModuleType) -> None:
    """The process ends by the signal when the step under way is saved; two sessions have the steps of one. Lightning
    reads the checkpoint."""
    _, truth = trial_in.trial(tmp_path, lambda say: train(tmp_path / "truth", say))
    run = tmp_path / "run"
    status, first = trial_in.trial(tmp_path, lambda say: train(run, say, event=at(8, signal.SIGTERM), save_steps=None))
    assert (status, len(first)) == (-signal.SIGTERM, 9)
    status, (verdict, *second) = trial_in.trial(tmp_path, lambda say: train(run, say, save_steps=None))
    assert (status, verdict) == (0, "exact") and [*first, *second] == truth
    one, two = run_of(run).sessions
    assert (one.outcome, one.last_step, two.restored_step, two.resume_exact) == ("signal", 9, 9, True)
    assert (two.outcome, two.last_step) == ("completed", 18)
    assert [(item.step, item.trigger) for item in run_of(run).checkpoints] == [(9, "signal"), (18, "final")]
    file = torch.load(run / "checkpoints" / "ckpt-9" / "lightning.ckpt", weights_only=True)
    assert (file["epoch"], file["global_step"], len(file["optimizer_states"])) == (1, 9, 1)
