"""Transformers: `SupervisorCallback` beside the Trainer's own flow and its own saving, by their hooks in a training."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers

from benchmarks.frameworks import OURS
from benchmarks.frameworks.measuring import OPTIONS, SIDE, Measuring
from supervisor_core.transformers import SupervisorCallback


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(SIDE, SIDE, bias=False)

    def forward(self, features: Any, labels: Any) -> dict[str, Any]:
        return {"loss": (self.layer(features)[:, 0] - labels).square().mean()}


class Samples(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"features": torch.zeros(SIDE), "labels": 0.0}


class Measure(transformers.TrainerCallback):
    """Measures in the second step of a training, then ends it."""

    def __init__(self, measuring: Measuring, ours: SupervisorCallback) -> None:
        self.measuring, self.ours = measuring, ours
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step != 2:
            return
        measuring, ours, run = self.measuring, self.ours, self.ours.run
        assert run is not None

        def hooks(callback: Any) -> Any:
            def step() -> None:
                callback.on_step_begin(args, state, control, **others)
                callback.on_step_end(args, state, control, **others)

            return step

        def by_the_trainer() -> None:
            self.trainer._save_checkpoint(self.trainer.model, trial=None)

        def saved() -> None:
            control.should_save = True
            ours.on_step_end(args, state, control, **others)
            by_the_trainer()
            ours.on_save(args, state, control, **others)
            control.should_save = False

        def between() -> None:
            run.wait_until_saved()
            state.global_step += 1  # of another name each

        callbacks = {OURS: ours, "the Trainer's own flow": transformers.trainer_callback.DefaultFlowCallback()}
        none = transformers.TrainerCallback()
        measuring.per_step({name: hooks(callback) for name, callback in callbacks.items()}, bare=hooks(none))
        measuring.per_save({OURS: saved, "the Trainer's own saving": by_the_trainer}, between=between)
        control.should_training_stop = True


def main() -> None:
    measuring = Measuring.of_arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    args = transformers.TrainingArguments(
        output_dir=str(measuring.directory / "run"), per_device_train_batch_size=1, save_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=True, optim="sgd", save_total_limit=1,
    )  # fmt: skip
    ours = SupervisorCallback(save_secs=None, options=OPTIONS)
    measure = Measure(measuring, ours)
    trainer = measure.trainer = transformers.Trainer(
        model=Model(), args=args, train_dataset=Samples(), callbacks=[ours, measure]
    )
    trainer.train()
    measuring.write("transformers", "torch")


if __name__ == "__main__":
    main()
