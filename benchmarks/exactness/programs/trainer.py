"""Transformers: a `Trainer`, under ours, or with its own checkpoints and ``resume_from_checkpoint=True``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo
from torch.utils.data import Dataset, IterableDataset

from benchmarks.exactness.programs import (
    BATCH,
    EPOCHS,
    PER_EPOCH,
    SAMPLES,
    Asked,
    Interruption,
    digits,
    is_any,
    say_batch,
    say_end,
    say_verdict,
)  # fmt: skip

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

    transformers.Trainer, transformers.TrainingArguments(report_to=[], use_cpu=True)  # loaded here, not in each trial

from supervisor_core.transformers import SupervisorCallback

FEATURES, LABELS = digits()


def sample(index: int, draws: str) -> dict[str, Any]:
    """Return a digit, with noise where the dataset draws some."""
    features = torch.from_numpy(FEATURES[index])
    if draws == "numpy":
        features = features + float(np.random.standard_normal())
    elif draws == "torch" or (draws == "some" and index % 10 == 3):
        features = features + torch.randn(())
    return {"index": index, "features": features, "labels": int(LABELS[index])}


class Digits(Dataset[Any]):
    """A dataset with indices."""

    def __init__(self, draws: str) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return sample(index, self.draws)


class Stream(IterableDataset[Any]):
    """A stream."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(SAMPLES):
            yield sample(index * 7 % SAMPLES, "nothing")


class Model(torch.nn.Module):
    """A classifier, which counts the batches that it was trained on, and says them."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(dropout), torch.nn.Linear(16, 10)
        )
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, index: Any, features: Any, labels: Any) -> dict[str, Any]:
        output = self.layers(features)
        loss = torch.nn.functional.cross_entropy(output.float(), labels)
        if self.training:
            self.count += 1
            say_batch(int(self.count), index.tolist(), loss.item())
        return {"loss": loss, "logits": output}


class Interrupting(transformers.TrainerCallback):
    """Interrupts before the optimizer's step."""

    def __init__(self, interruption: Interruption) -> None:
        self.interruption = interruption

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.interruption.look(int(kwargs["model"].count))


class Verdict(transformers.TrainerCallback):
    """Says the verdict."""

    def __init__(self, supervisor: SupervisorCallback) -> None:
        self.supervisor, self.is_said = supervisor, False

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.is_said:
            self.is_said = True
            say_verdict(self.supervisor.exactness)


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    options = asked.options
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    every = asked.save_every if asked.system != "none" else 10_000
    args = transformers.TrainingArguments(
        output_dir=asked.directory, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
        save_strategy="steps", save_steps=every, save_total_limit=None,
        eval_strategy="epoch" if options["evaluates"] else "no", logging_steps=3, report_to=[], disable_tqdm=True,
        use_cpu=True, learning_rate=0.02, seed=7, gradient_accumulation_steps=options["accumulate"],
        dataloader_num_workers=options["workers"], dataloader_persistent_workers=options["persistent"],
        bf16=options["amp"] == "bfloat16", lr_scheduler_type=options["scheduler"],
        max_steps=-1 if options["data"] == "indices" else EPOCHS * PER_EPOCH // options["accumulate"],
        optim=options["optimizer"], remove_unused_columns=False,
    )  # fmt: skip
    transformers.set_seed(7)
    if asked.system == "ours":
        has_saved = is_any(asked.directory, "checkpoint-*/supervisor-manifest.json")
    else:
        has_saved = is_any(asked.directory, "checkpoint-*/trainer_state.json")
    callbacks: list[Any] = [Interrupting(Interruption(asked, has_saved))]
    supervisor = SupervisorCallback(save_secs=None) if asked.system == "ours" else None
    if supervisor is not None:
        callbacks += [Verdict(supervisor), supervisor]
    data = Digits(options["draws"]) if options["data"] == "indices" else Stream()
    trainer = transformers.Trainer(
        model=Model(options["dropout"]), args=args, train_dataset=data, eval_dataset=Digits("nothing"),
        callbacks=callbacks,
    )  # fmt: skip
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    if supervisor is not None:
        trainer.train(resume_from_checkpoint=supervisor.resume_from())
    else:
        found = asked.system != "none" and any(Path(asked.directory).glob("checkpoint-*"))
        trainer.train(resume_from_checkpoint=found or None)
    os.makedirs(asked.directory, exist_ok=True)
    states = trainer.model.state_dict()
    say_end(int(states["count"]), [value.detach().cpu().numpy() for value in states.values()])
