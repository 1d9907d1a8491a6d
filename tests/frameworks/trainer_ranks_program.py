"""A Trainer in several processes: torchrun --nproc-per-node 2 trainer_ranks_program.py DIRECTORY [PLAN].

Each rank says what it does into a file of its own. PLAN is JSON: what to do at which step, on which rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.state import AcceleratorState
from torch.utils.data import Dataset

from supervisor_core.engine import worker_registry
from supervisor_core.transformers import SupervisorCallback

PAUSE = threading.Event()  # never set
worker_registry.LAST_READ_SECS = 60.0  # rank 0 reads that the others have ended, however busy the machine is
SAMPLES, BATCH, EPOCHS = 45, 4, 3


class Samples(Dataset[Any]):
    """Numbered samples."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "features": torch.sin(torch.arange(4.0) + index), "labels": index % 2}


class Model(torch.nn.Module):
    """A model with dropout; says the samples and the bits of the loss of each batch that it trains on."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self.file = file
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
        )

    def forward(self, index: Any, features: Any, labels: Any) -> dict[str, Any]:
        output = self.layers(features)
        loss = torch.nn.functional.cross_entropy(output, labels)
        if self.training:
            print(f"{index.tolist()} {loss.item().hex()}", file=self.file)
        return {"loss": loss, "logits": output}


class Happens(transformers.TrainerCallback):
    """Says the verdict of a resume; does what the plan has for this rank, in the middle of a step."""

    def __init__(self, supervisor: SupervisorCallback, plan: dict[str, Any], file: Any) -> None:
        self.supervisor, self.plan, self.file = supervisor, plan, file

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        file, self.file = self.file, None
        if file is not None and (exactness := self.supervisor.exactness) is not None:
            print(" ".join(("exact", *exactness.reasons)), file=file)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        run: Any = self.supervisor.run
        run.wait_until_saved()  # on rank 0, and so on all of them: they meet in the next step
        plan = self.plan
        if plan.get("step") != state.global_step or plan["rank"] != args.process_index:
            return
        if plan.get("once") and run.exactness is not None:
            return
        if plan.get("hangs"):
            PAUSE.wait()
        os.kill(os.getppid() if plan.get("launcher") else os.getpid(), getattr(signal, plan["signal"]))
        while not run._coord.should_stop():  # the next agreement has it
            PAUSE.wait(0.01)


def train_forked(directory: str, plan: dict[str, Any] | None) -> None:
    """Train as a process that the launcher started, and not forked: without what it has set."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    AcceleratorState._reset_state(reset_partial_state=True)
    train(directory, plan)


def load_onto_cpu() -> None:
    """Have the Trainer load its files: PyTorch 2.6 cannot load onto "cpu:0", which it asks for."""
    load = torch.load

    def patched(*args: Any, map_location: Any = None, **named: Any) -> Any:
        return load(*args, map_location="cpu", **named)

    torch.load = patched


def train(directory: str, plan: dict[str, Any] | None = None) -> None:
    """Train; say each step's samples and the bits of its loss into ``directory/rank-R``."""
    plan = plan or {}
    load_onto_cpu()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    given: dict[str, Any] = {
        "num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH, "save_strategy": "no", "logging_steps": 3,
        "report_to": [], "disable_tqdm": True, "use_cpu": True, "ddp_backend": "gloo", "learning_rate": 0.05,
        "seed": 7, "eval_strategy": "epoch",
    }  # fmt: skip
    args = transformers.TrainingArguments(str(Path(directory) / "run"), **{**given, **plan.get("arguments", {})})
    said = open(Path(directory) / f"rank-{args.process_index}", "a", buffering=1)  # noqa: SIM115
    transformers.set_seed(7)
    supervisor = SupervisorCallback(save_secs=None, save_steps=plan.get("save_steps", 4))
    trainer = transformers.Trainer(
        model=Model(said), args=args, train_dataset=Samples(), eval_dataset=Samples(),
        callbacks=[supervisor, Happens(supervisor, plan, said)],
    )  # fmt: skip
    torch.manual_seed(args.process_index)  # each rank draws its own
    with supervisor:
        trainer.train(resume_from_checkpoint=supervisor.resume_from())
    total: Any = sum(part.double().sum() for part in trainer.model.state_dict().values())
    print(f"end {total.item().hex()}", file=said)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else None)
