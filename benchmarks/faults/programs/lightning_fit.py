"""Lightning: `ModelCheckpoint` every few steps and on an exception, all kept, resumed by ``ckpt_path="last"``."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from benchmarks.faults.programs import WEIGHTS, Asked, Steps, initial, say


class Model(lightning.LightningModule):
    """Weights that rise by one with each step."""

    def __init__(self, floats: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.from_numpy(initial(n, floats)) for n in range(WEIGHTS)])

    def training_step(self, batch: Any, index: int) -> Any:
        """Return the loss."""
        return -sum(weight.sum() for weight in self.weights)

    def configure_optimizers(self) -> Any:
        """Return plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=1.0)


class Checkpoints(ModelCheckpoint):
    """Says what was saved, once the file that is resumed from is there, too."""

    def on_train_batch_end(self, trainer: Any, *arguments: Any) -> None:
        """Save, as it does."""
        before = self._last_global_step_saved
        super().on_train_batch_end(trainer, *arguments)
        if self._last_global_step_saved != before:
            say("saved", self._last_global_step_saved)


class Said(Callback):
    """Says the steps."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Say what was restored."""
        self._steps.begin(trainer.global_step, [weight.detach().numpy() for weight in pl_module.weights])

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Say the step."""
        self._steps.did(trainer.global_step)
        if self._steps.is_over(trainer.global_step):
            trainer.should_stop = True


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    checkpoints = Checkpoints(
        dirpath=asked.directory, every_n_train_steps=asked.save_every, save_top_k=-1, save_last=True,
        save_on_exception=True, enable_version_counter=False,
    )  # fmt: skip
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=-1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Said(Steps(asked)), checkpoints],
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(torch.zeros(100_000, 1), batch_size=1)
    trainer.fit(Model(asked.floats), loader, ckpt_path="last")
    say("end")
