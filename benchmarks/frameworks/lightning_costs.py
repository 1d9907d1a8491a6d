"""Lightning: `SupervisorCallback` beside `ModelCheckpoint`, by their hooks in a `fit`."""

from __future__ import annotations

import warnings
from typing import Any

import lightning
import torch

from benchmarks.frameworks import OURS
from benchmarks.frameworks.measuring import NEVER, OPTIONS, SIDE, Measuring
from supervisor_core.lightning import SupervisorCallback


class Model(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(SIDE, SIDE, bias=False)

    def training_step(self, batch: Any) -> Any:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Measure(lightning.Callback):  # type: ignore[misc]
    """Measures in the second batch of a fit, then ends it."""

    def __init__(self, measuring: Measuring, ours: SupervisorCallback) -> None:
        self.measuring, self.ours = measuring, ours

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx != 1:
            return
        measuring, ours, run = self.measuring, self.ours, self.ours.run
        assert run is not None

        (current,) = trainer.fit_loop._data_fetcher.combined_loader._iterator.iterators

        def hooks(callback: Any) -> Any:
            def step() -> None:
                callback.on_train_batch_start(trainer, pl_module, batch, batch_idx)
                ours._last_step = -1  # so that the optimizer has stepped since
                callback.on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

            return step

        ours_of_hooks = hooks(ours)

        def our_step() -> None:
            ours_of_hooks()
            ours._before_fetch(current)  # as the wrapped loader does

        def saved() -> None:
            run.ask_for_save()
            run.save_if_due()

        def by_the_trainer() -> None:
            trainer.save_checkpoint(measuring.directory / "by-the-trainer.ckpt")

        def between() -> None:
            run.wait_until_saved()
            run.count_step()

        checkpoint = lightning.pytorch.callbacks.ModelCheckpoint(measuring.directory, every_n_train_steps=NEVER)
        steps = {OURS: our_step, "ModelCheckpoint": hooks(checkpoint)}
        measuring.per_step(steps, bare=hooks(lightning.Callback()))
        measuring.per_save({OURS: saved, "the Trainer's save, as ModelCheckpoint's": by_the_trainer}, between=between)
        trainer.should_stop = True


def main() -> None:
    measuring = Measuring.of_arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ours = SupervisorCallback(measuring.directory / "run", save_secs=None, max_to_keep=1, options=OPTIONS)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[ours, Measure(measuring, ours)],
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(4, SIDE), batch_size=1))
    measuring.write("lightning", "torch")


if __name__ == "__main__":
    main()
