"""Hugging Face's `Trainer`: saves every few steps and at SIGTERM, resumes from `get_last_checkpoint`."""

from __future__ import annotations

import os
from typing import Any

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.faults.programs import WEIGHTS, Asked, Steps, initial, say


class Model(torch.nn.Module):
    """Weights that rise by one with each step."""

    def __init__(self, floats: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.from_numpy(initial(n, floats)) for n in range(WEIGHTS)])

    def forward(self, x: Any) -> dict[str, Any]:
        """Return the loss."""
        return {"loss": -sum(weight.sum() for weight in self.weights)}


class Said(transformers.TrainerCallback):
    """Says the steps, and what was saved."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say what was restored."""
        self._steps.begin(state.global_step, [weight.detach().numpy() for weight in kwargs["model"].weights])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say the step."""
        self._steps.did(state.global_step)
        if self._steps.is_over(state.global_step):
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say what was saved."""
        say("saved", state.global_step)


class Data(torch.utils.data.Dataset):
    """Examples."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.zeros(1)}


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    os.makedirs(asked.directory, exist_ok=True)
    arguments = transformers.TrainingArguments(
        output_dir=asked.directory, max_steps=10_000_000, save_steps=asked.save_every, save_total_limit=3,
        logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=1.0, optim="sgd",
        lr_scheduler_type="constant", max_grad_norm=0.0, per_device_train_batch_size=1, ignore_data_skip=True,
        enable_jit_checkpoint=True, remove_unused_columns=False,
    )  # fmt: skip
    said = Said(Steps(asked))
    trainer = transformers.Trainer(model=Model(asked.floats), args=arguments, train_dataset=Data(), callbacks=[said])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(asked.directory))
    say("end")
