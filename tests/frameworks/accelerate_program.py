"""A training with accelerate, of the form of its nlp_example: accelerate launch accelerate_program.py DIRECTORY [PLAN].

Each rank says what it does into a file of its own. PLAN is JSON: how it trains, and where which rank is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from supervisor_core.torch import supervised

SAMPLES, BATCH, EPOCHS, LENGTH = 45, 4, 2, 6


class Samples(Dataset[Any]):
    """Numbered samples, of which some tokens are masked at random."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        tokens = (torch.arange(LENGTH) * 7 + index) % 32
        return index, torch.where(torch.rand(LENGTH) < 0.3 + 0.1 * random.random(), 0, tokens), index % 2


class Classifier(torch.nn.Module):
    """A small text classifier with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 8)
        self.dropout = torch.nn.Dropout(0.2)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, tokens: Any) -> Any:
        """Return the logits."""
        return self.head(self.dropout(self.embedding(tokens)).mean(1))


def train(directory: str, plan: dict[str, Any] | None = None) -> None:
    """Train; say each batch's samples and the bits of its loss into ``directory/rank-R``."""
    plan = plan or {}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    AcceleratorState._reset_state(reset_partial_state=True)  # of the process that this one was forked from
    accelerator = Accelerator(
        cpu=True,
        mixed_precision=plan.get("precision", "no"),
        gradient_accumulation_steps=plan.get("accumulation", 1),
    )
    rank = accelerator.process_index
    said = open(Path(directory) / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    torch.set_num_threads(1)
    set_seed(42)
    model: Any = Classifier()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    samples, several = Samples(), accelerator.num_processes > 1
    sampler: Any = DistributedSampler(samples) if several else None
    loader: Any = DataLoader(samples, BATCH, shuffle=not several, sampler=sampler)
    scheduler: Any = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=40)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    loop = supervised(
        loader, Path(directory) / "run", epochs=EPOCHS, model=model, optimizer=optimizer, scheduler=scheduler,
        save_secs=None, save_steps=plan.get("save_steps", 3),
    )  # fmt: skip
    with loop:
        is_first = True
        for ids, tokens, labels in loop:
            if is_first and loop.exactness is not None:
                print(" ".join(("exact", *loop.exactness.reasons)), file=said)
            is_first = False
            loop.run.wait_until_saved()
            if plan.get("kill") == loop.run.global_step and rank == plan.get("rank", 0):
                os.kill(os.getpid(), signal.SIGKILL)
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(tokens), labels)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            shown = loss.item().hex(), scheduler.get_last_lr()[0].hex()
            print(f"{loop.epoch} {loop.batch} {ids.tolist()} {' '.join(shown)}", file=said)
    total: Any = sum(part.detach().double().sum() for part in model.parameters())
    print(f"end {loop.run.global_step} {total.item().hex()}", file=said)
    accelerator.end_training()


if __name__ == "__main__":
    train(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else None)
