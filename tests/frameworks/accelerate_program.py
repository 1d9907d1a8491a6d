"""A training with accelerate, of the form of its nlp_example: accelerate launch accelerate_program.py DIRECTORY [PLAN].

Each rank says what it does into a file of its own. PLAN is JSON: how it trains, and where which rank is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset, IterableDataset

from supervisor_core.torch import supervised

SAMPLES, BATCH, EPOCHS, LENGTH = 45, 4, 2, 6


def sample(index: int, *, draws: bool) -> tuple[int, Any, int]:
    """Return tokens and a label; with ``draws``, some tokens are masked at random."""
    tokens = (torch.arange(LENGTH) * 7 + index) % 32
    if draws:
        tokens = torch.where(torch.rand(LENGTH) < 0.3 + 0.1 * random.random(), 0, tokens)
    return index, tokens, index % 2


class Samples(Dataset[Any]):
    """Numbered samples.

    Args:
        draws: see `sample`.
    """

    def __init__(self, *, draws: bool = False) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        return sample(index, draws=self.draws)


class Stream(IterableDataset[Any]):
    """The same samples, one after the other.

    Args:
        draws: see `sample`.
    """

    def __init__(self, *, draws: bool = False) -> None:
        self.draws = draws

    def __iter__(self) -> Iterator[Any]:
        return (sample(index, draws=self.draws) for index in range(SAMPLES))


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


def train(directory: str, plan: dict[str, Any] | None = None, **options: Any) -> None:
    """Train; say each batch's samples and the bits of its loss into ``directory/rank-R``."""
    plan = plan or {}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    accumulation = plan.get("accumulation", 1)
    AcceleratorState._reset_state(reset_partial_state=True)  # of the process that this one was forked from
    accelerator = Accelerator(
        cpu=True,
        mixed_precision=plan.get("precision", "no"),
        gradient_accumulation_steps=accumulation,
        dataloader_config=DataLoaderConfiguration(**plan.get("loader", {})),
    )
    rank = accelerator.process_index
    said = open(Path(directory) / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    torch.set_num_threads(1)
    set_seed(42 + rank * plan.get("own_seeds", False))
    model: Any = Classifier()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws, workers = plan.get("draws", False), plan.get("workers", 0)
    batch = BATCH * (accelerator.num_processes if plan.get("loader", {}).get("split_batches") else 1)
    if plan.get("stream"):
        loader: Any = DataLoader(Stream(draws=draws), batch, num_workers=workers)
    else:
        loader = DataLoader(Samples(draws=draws), batch, shuffle=True, num_workers=workers)
    scheduler: Any = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=40)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    loop = supervised(
        loader, Path(directory) / "run", epochs=EPOCHS, model=model, optimizer=optimizer, scheduler=scheduler,
        **{"save_secs": None, "save_steps": plan.get("save_steps", 3), "replay": plan.get("replay", False), **options},
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
