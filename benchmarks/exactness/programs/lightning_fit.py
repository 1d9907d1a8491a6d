"""Lightning: a `Trainer`, under ours, or with `ModelCheckpoint(save_last=True)` and ``ckpt_path="last"``."""

from __future__ import annotations

import logging
import random
import warnings
from typing import Any

import numpy as np
import torch
import torch._dynamo

from benchmarks.exactness.programs import (
    EPOCHS,
    Asked,
    Interruption,
    is_any,
    say_batch,
    say_end,
    say_verdict,
)  # fmt: skip
from benchmarks.exactness.programs.torch_loop import Digits, loader_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)  # loaded here, not in each trial


class Module(lightning.LightningModule):
    """The classifier of digits."""

    def __init__(self, options: dict[str, Any], interruption: Interruption) -> None:
        super().__init__()
        self.options, self.interruption = options, interruption
        self.digits = Digits(options["dropout"])

    def training_step(self, batch: Any, index: int) -> Any:
        """Return the loss."""
        ids, features, labels = batch
        self.digits.count += 1
        loss = torch.nn.functional.cross_entropy(self.digits(features.float()).float(), labels)
        say_batch(int(self.digits.count), ids.tolist(), loss.item())
        self.interruption.look(int(self.digits.count))
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """Look at some samples."""
        self.digits(batch[1].float())

    def configure_optimizers(self) -> Any:
        """Return what is asked for."""
        if self.options["optimizer"] == "AdamW":
            optimizer: Any = torch.optim.AdamW(self.parameters(), lr=0.01)
        else:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        if self.options["scheduler"] == "none":
            return optimizer
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Verdict(Callback):
    """Says the verdict."""

    def __init__(self, supervisor: Any) -> None:
        self.supervisor, self.is_said = supervisor, False

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Say it before the first batch."""
        if not self.is_said:
            self.is_said = True
            say_verdict(self.supervisor.exactness)


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    options = asked.options
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    has_saved, callbacks = is_any(asked.directory, "**/last.ckpt"), []
    if asked.system == "ours":
        from supervisor_core.lightning import SupervisorCallback

        has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
        supervisor = SupervisorCallback(
            asked.directory, save_secs=None, save_steps=asked.save_every, replay=options["replay"]
        )
        callbacks = [supervisor, Verdict(supervisor)]
    elif asked.system != "none":
        callbacks = [
            ModelCheckpoint(
                dirpath=asked.directory, every_n_train_steps=asked.save_every, save_top_k=-1, save_last=True
            )
        ]
    if options["ema"]:
        from lightning.pytorch.callbacks import EMAWeightAveraging

        callbacks.append(EMAWeightAveraging(use_buffers=False, decay=0.9))
    module = Module(options, Interruption(asked, has_saved))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=asked.system not in ("none", "ours"),
        callbacks=callbacks,
        accumulate_grad_batches=options["accumulate"], num_sanity_val_steps=0,
        precision="32-true" if options["amp"] == "none" else "bf16-mixed",
    )  # fmt: skip
    validation = loader_of({**options, "workers": 0, "loader": "map", "draws": "nothing"})
    given = {"ckpt_path": "last"} if asked.system not in ("none", "ours") else {}
    trainer.fit(module, loader_of(options), validation if options["evaluates"] else None, **given)
    states = module.state_dict()
    say_end(int(states["digits.count"]), [value.detach().cpu().numpy() for value in states.values()])
