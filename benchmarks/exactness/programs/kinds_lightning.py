"""Lightning: what changes between epochs in the module, in its callbacks, or comes from a data module's state; under
ours."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, Callback, EMAWeightAveraging
from torch.utils.data import DataLoader, Subset, TensorDataset

from benchmarks.exactness.programs import (
    EPOCHS,
    SAMPLES,
    Asked,
    Interruption,
    is_any,
    say_batch,
    say_end,
    say_logged_reasons,
)  # fmt: skip
from benchmarks.exactness.programs.lightning_fit import Verdict
from benchmarks.exactness.programs.shapes import FEATURES, LABELS
from supervisor_core.lightning import SupervisorCallback

TRAINED, BATCH = 60, 6


class Split(lightning.LightningDataModule):
    """Trains on some of the digits, which its seed chooses.

    Args:
        seed: another one in each session; the state has that of the first.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seed = state_dict["seed"]

    def train_dataloader(self) -> Any:
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.seed))[:TRAINED]
        data = TensorDataset(torch.arange(SAMPLES), FEATURES, LABELS)
        return DataLoader(Subset(data, order.tolist()), BATCH, shuffle=True)


class Module(lightning.LightningModule):
    """A classifier, which counts the batches that it was trained on."""

    def __init__(self, options: dict[str, Any], interruption: Interruption) -> None:
        super().__init__()
        self.kind, self.captured, self.interruption = options["kind"], options["captured"], interruption
        self.backbone, self.drop, self.last = torch.nn.Linear(64, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 10)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def on_train_epoch_start(self) -> None:
        """Set the dropout's rate, once."""
        if self.kind == "dropout" and not self.captured and self.current_epoch == 1:
            self.drop.p = 0.6

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        """Set it by the epoch: in its middle, where a resume begins, Lightning begins none."""
        if self.kind == "dropout" and self.captured:
            self.drop.p = 0.6 if self.current_epoch else 0.1

    def training_step(self, batch: Any, index: int) -> Any:
        """Return the loss."""
        ids, features, labels = batch
        self.count += 1
        loss = torch.nn.functional.cross_entropy(self.last(self.drop(torch.relu(self.backbone(features)))), labels)
        say_batch(int(self.count), ids.tolist(), loss.item())
        self.interruption.look(int(self.count))
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimizer of what is trained at the start."""
        return torch.optim.SGD([part for part in self.parameters() if part.requires_grad], lr=0.05, momentum=0.9)


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    options = asked.options
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
    split = Split(4 if has_saved() else 3)
    callbacks: list[Callback] = []
    if options["kind"] == "finetuning":
        callbacks = [BackboneFinetuning(1, verbose=False)]
    elif options["kind"] == "average":
        callbacks = [EMAWeightAveraging(use_buffers=False, decay=0.9)]
    if asked.system == "ours":
        say_logged_reasons()
        supervisor = SupervisorCallback(asked.directory, save_secs=None, save_steps=asked.save_every)
        own = [supervisor, Verdict(supervisor)]
        callbacks = [*own, *callbacks] if options["captured"] else [*callbacks, *own]
    module = Module(options, Interruption(asked, has_saved))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=callbacks,
    )  # fmt: skip
    trainer.fit(module, split)
    states = module.state_dict()
    say_end(int(states["count"]), [value.detach().cpu().numpy() for value in states.values()])
