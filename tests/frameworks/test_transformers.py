"""Hugging Face's Trainer: an interrupted training goes on bit by bit from a sealed checkpoint, or says why not."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-frameworks has it")

from supervisor_core.errors import NoUsableCheckpointError  # noqa: E402
from supervisor_core.transformers import SupervisorCallback  # noqa: E402
from supervisor_core.transformers import data as hf_data  # noqa: E402
from supervisor_core.transformers import sealing  # noqa: E402
from supervisor_core.watch.logdir_watch import LogdirWatch  # noqa: E402

PAUSE = threading.Event()  # never set
SAMPLES, BATCH, EPOCHS = 45, 8, 3
Say = Callable[[str], None]
Event = Callable[[Any, int], None]


class Samples(torch.utils.data.Dataset[Any]):
    """Numbered samples; with ``draws``, noise is added to them."""

    def __init__(self, draws: bool = False) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.randn(4) if self.draws else torch.sin(torch.arange(4.0) + index)
        return {"index": index, "features": noise, "labels": index % 2}


class Model(torch.nn.Module):
    """A model with dropout; says the samples and the bits of the loss of each batch that it trains on."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say = say
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))

    def forward(self, index: Any, features: Any, labels: Any) -> dict[str, Any]:
        output = self.layers(features)
        loss = torch.nn.functional.cross_entropy(output, labels)
        if self.training:
            self.say(f"{index.tolist()} {loss.item().hex()}")
        return {"loss": loss, "logits": output}


class Happens(transformers.TrainerCallback):
    """Calls the event of a test in the middle of each step."""

    def __init__(self, event: Event, supervisor: SupervisorCallback) -> None:
        self.event = event
        self.supervisor = supervisor

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.supervisor.run.wait_until_saved()  # so that it is known which checkpoints there are
        self.event(self.supervisor.run, state.global_step)


def train(
    directory: Path,
    say: Say,
    *,
    event: Event = lambda run, step: None,
    draws: bool = False,
    within: bool = False,
    calls: int = 1,
    callbacks: tuple[Any, ...] = (),
    **arguments: Any,
) -> None:
    """Train; say the verdict of a resume, then each batch."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given: dict[str, Any] = {
        "output_dir": str(directory), "num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH,
        "save_strategy": "steps", "save_steps": 4, "save_total_limit": 2, "logging_steps": 3, "report_to": [],
        "disable_tqdm": True, "use_cpu": True, "learning_rate": 0.05, "seed": 7,
    }  # fmt: skip
    args = transformers.TrainingArguments(**{**given, **arguments})
    transformers.set_seed(7)
    supervisor = SupervisorCallback(save_secs=None)
    trainer = transformers.Trainer(
        model=Model(say), args=args, train_dataset=Samples(draws), eval_dataset=Samples(),
        callbacks=[Verdict(supervisor, say), supervisor, Happens(event, supervisor), *callbacks],
    )  # fmt: skip
    for _ in range(calls):
        if within:
            with supervisor:
                trainer.train(resume_from_checkpoint=supervisor.resume_from())
        else:
            trainer.train(resume_from_checkpoint=supervisor.resume_from())
    say("end " + sum(part.double().sum() for part in trainer.model.state_dict().values()).item().hex())


class Verdict(transformers.TrainerCallback):
    """Says the verdict of a resume, before the first step."""

    def __init__(self, supervisor: SupervisorCallback, say: Say) -> None:
        self.supervisor, self.say = supervisor, say

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        exactness, self.supervisor = self.supervisor.exactness if self.supervisor else None, None
        if exactness is not None:
            self.say(" ".join(("exact", *exactness.reasons)))


def at(step: int, signum: int) -> Event:
    """An event: this signal at that step."""

    def event(run: Any, now: int) -> None:
        if now == step:
            os.kill(os.getpid(), signum)
            while not run.should_stop():
                PAUSE.wait(0.01)

    return event


def run_of(directory: Path) -> Any:
    """The run model of a logdir."""
    (item,) = LogdirWatch(str(directory)).refresh().runs.values()
    return item.run


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_accumulation_steps": 2, "save_steps": 2},
        {"dataloader_num_workers": 2},
        {"eval_strategy": "steps", "eval_steps": 2, "lr_scheduler_type": "cosine"},
    ],
    ids=["plain", "accumulation", "two workers", "evaluation"],
)
def test_a_killed_training_goes_on_bit_by_bit(
    tmp_path: Path, trial_in: ModuleType, arguments: dict[str, Any]
) -> None:
    """In the middle of the second epoch: the same samples in the same order, the same bits of each loss and of the
    model at the end."""
    _, truth = trial_in.trial(tmp_path, lambda say: train(tmp_path / "truth", say, **arguments))
    run, step = tmp_path / "run", 5 if "gradient_accumulation_steps" in arguments else 10
    status, first = trial_in.trial(tmp_path, lambda say: train(run, say, event=at(step, signal.SIGKILL), **arguments))
    assert status == -signal.SIGKILL and truth[: len(first)] == first
    status, (verdict, *second) = trial_in.trial(tmp_path, lambda say: train(run, say, **arguments))
    assert (status, verdict) == (0, "exact")
    assert second == truth[-len(second) :] and len(truth) // 3 < len(second) < len(truth)
