"""Transformers: what a callback of the `Trainer` changes in the model between epochs, under ours."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

from benchmarks.exactness.programs import (
    BATCH,
    EPOCHS,
    Asked,
    Interruption,
    is_any,
    say_batch,
    say_end,
    say_logged_reasons,
)  # fmt: skip
from benchmarks.exactness.programs.trainer import Digits, Interrupting, Verdict, transformers
from supervisor_core.transformers import SupervisorCallback


class Model(torch.nn.Module):
    """A classifier, which counts the batches that it was trained on, and says them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(64, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 10)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, index: Any, features: Any, labels: Any) -> dict[str, Any]:
        output = self.last(self.drop(torch.relu(self.first(features))))
        loss = torch.nn.functional.cross_entropy(output, labels)
        if self.training:
            self.count += 1
            say_batch(int(self.count), index.tolist(), loss.item())
        return {"loss": loss, "logits": output}


class Changing(transformers.TrainerCallback):
    """Freezes a layer until the second epoch, or sets the dropout's rate in it; or in each, by its number."""

    def __init__(self, kind: str, captured: bool) -> None:
        self.kind, self.captured = kind, captured

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.kind == "unfreezes":
            model.first.requires_grad_(False)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        epoch = int(state.epoch or 0)
        if not self.captured and epoch != 1:
            return
        if self.kind == "unfreezes":
            model.first.requires_grad_(epoch >= 1)
        else:
            model.drop.p = 0.6 if epoch else 0.1


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    options = asked.options
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    args = transformers.TrainingArguments(
        output_dir=asked.directory, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, save_strategy="steps",
        save_steps=asked.save_every if asked.system != "none" else 10_000, save_total_limit=None, report_to=[],
        disable_tqdm=True, use_cpu=True, learning_rate=0.05, seed=7, optim="sgd", remove_unused_columns=False,
    )  # fmt: skip
    transformers.set_seed(7)
    has_saved = is_any(asked.directory, "checkpoint-*/supervisor-manifest.json")
    callbacks: list[Any] = [Interrupting(Interruption(asked, has_saved))]
    changing, supervisor = Changing(options["kind"], options["captured"]), SupervisorCallback(save_secs=None)
    own = [Verdict(supervisor), supervisor] if asked.system == "ours" else []
    say_logged_reasons()
    callbacks += [*own, changing] if options.get("first") else [changing, *own]
    trainer = transformers.Trainer(model=Model(), args=args, train_dataset=Digits("nothing"), callbacks=callbacks)
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    trainer.train(resume_from_checkpoint=supervisor.resume_from() if own else None)
    os.makedirs(asked.directory, exist_ok=True)
    states = trainer.model.state_dict()
    say_end(int(states["count"]), [value.detach().cpu().numpy() for value in states.values()])
