"""A training in several processes: torchrun --nproc-per-node 2 ranks_program.py DIRECTORY [PLAN].

Each rank says what it does into a file of its own. PLAN is JSON: what to do at which step, on which rank.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from supervisor_core.base.errors import CheckpointError
from supervisor_core.engine import worker_registry
from supervisor_core.process.outside import TRACER_VARIABLE
from supervisor_core.torch import supervised
from supervisor_core.training import run as training_run

PAUSE = threading.Event()  # never set
worker_registry.LAST_READ_SECS = 60.0  # rank 0 reads that the others have ended, however busy the machine is
ERRORS = {"disk": OSError(28, "No space left on device"), "state": CheckpointError("a list that contains itself")}
SAMPLES, BATCH, EPOCHS = 44, 4, 3


class Drawing(Dataset[Any]):
    """A dataset that augments its samples with random numbers."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        return index, torch.randn(4) + index % 2, index % 2


def act(plan: dict[str, Any], loop: Any, rank: int) -> None:
    """Do what the plan has for this rank at this step: to itself, its launcher, or its node's restarter."""
    if (
        plan.get("act") in (None, "leave", "show", "state")
        or loop.run.global_step != plan["step"]
        or rank != plan.get("rank", 0)
    ):
        return
    if plan.get("once") and loop.exactness is not None:
        return
    if plan["act"] == "fail":
        raise ArithmeticError("the loss exploded")
    if plan["act"] == "full":
        loop.run._saver._store.save = Mock(side_effect=ERRORS[plan["error"]])
        training_run.STOP_GRACE_SECS = 1.0  # the last save is tried again that long
        return
    if plan["act"] == "hang":
        PAUSE.wait()
    if plan["act"] == "evaluate":
        with loop.phase("evaluating"):
            while not (Path(loop.run.logdir).parent / "goes").exists():
                PAUSE.wait(0.01)
        return
    if plan["act"] == "wait":
        directory = Path(loop.run.logdir).parent
        (directory / "waits").touch()
        while not loop.run._coord.should_stop() and not (directory / "goes").exists():
            PAUSE.wait(0.01)
        return
    pids = {"launcher": os.getppid(), **dict.fromkeys(("node", "lost"), int(os.environ.get(TRACER_VARIABLE, 0)))}
    os.kill(pids.get(plan["act"], os.getpid()), signal.SIGKILL if plan["act"] in ("kill", "lost") else signal.SIGTERM)
    while not loop.run._coord.should_stop():  # the signal is here: the next agreement has it
        PAUSE.wait(0.01)


class Own:
    """An object of the program's on each rank.

    Args:
        fails: whether it does not return its state.
    """

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def state_dict(self) -> dict[str, int]:
        """Return its state."""
        return {"value": 1 // (not self.fails)}

    def load_state_dict(self, state: Any) -> None:
        """Take anything."""


class Telling:
    """Prints the error that ends the block.

    Args:
        file: where to; None prints nothing.
        others: files of all ranks that are waited for, until there is something in each: the launcher ends the others
            as soon as one has failed.
    """

    def __init__(self, file: Any, others: Iterable[Path] = ()) -> None:
        self._file = file
        self._others = tuple(others)

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """End."""
        if self._file is not None:
            print(f"{type(error).__name__}: {error}", file=self._file)
        while not all(path.exists() and path.stat().st_size for path in self._others):
            time.sleep(0.01)


def total(parts: Iterable[Any]) -> str:
    """Return the bits of the sum of tensors, of which each rank may have a part."""
    whole = [part.full_tensor() if hasattr(part, "full_tensor") else part for part in parts]
    sums: Any = torch.cat([part.detach().reshape(-1).double() for part in whole]).sum()
    return str(sums.item().hex())


def own_epochs(loop: Any) -> Iterator[Any]:
    """Yield the batches of a program with a loop over epochs of its own."""
    for _ in loop.epochs():
        yield from loop


def train_forked(directory: str, plan: dict[str, Any] | None) -> None:
    """Train as a process that the launcher started, and not forked: without the launcher's signal handlers."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    train(directory, plan)


def train(directory: str, plan: dict[str, Any] | None = None, **options: Any) -> None:
    """Train under DDP; say each step's samples and the bits of its loss into ``directory/rank-R``."""
    plan = plan or {}
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    said = open(Path(directory) / f"rank-{rank}", "a", buffering=1)  # noqa: SIM115
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    random.seed(rank)
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    )
    network = network.to(getattr(torch, plan.get("dtype", "float32")))
    if plan.get("fsdp"):
        from torch.distributed.fsdp import fully_shard

        network[1] = torch.nn.LayerNorm(8)
        model: Any = fully_shard(network)
    else:
        model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    dataset = Drawing()
    loader: Any = DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset), num_workers=plan.get("workers", 0))
    if steps := plan.get("steps", 0):
        loader = range(steps)
    fails = plan.get("act") == "state"
    loop = supervised(
        loader, Path(directory) / "run", epochs=1 if steps else EPOCHS, model=model, optimizer=optimizer,
        state={"own": Own(fails and rank == plan["rank"])} if fails else None, save_secs=None,
        **{"save_steps": 4, **options},
    )  # fmt: skip
    told = said if plan.get("act") in ("full", "state") else None
    others = [Path(directory) / f"rank-{each}" for each in range(dist.get_world_size())] if fails else []
    has_said = False
    with Telling(told, others), nullcontext() if plan.get("bare") else loop:
        for batch in own_epochs(loop) if plan.get("epochs") else loop:
            is_first, has_said = not has_said, True
            if is_first and loop.exactness is not None:
                print(" ".join(("exact", *loop.exactness.reasons)), file=said)
                if plan.get("act") == "show":
                    moments = [each["exp_avg"] for each in optimizer.state.values()]
                    print(total([*model.parameters(), *moments]), file=said)
                    break
            loop.run.wait_until_saved()
            act(plan, loop, rank)
            ids, features, labels = (
                (torch.randint(9, (BATCH,)), torch.randn(BATCH, 4), torch.randint(2, (BATCH,))) if steps else batch
            )
            loss = torch.nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"{loop.epoch} {loop.batch} {ids.tolist()} {loss.item().hex()}", file=said)
            if loop.global_step == plan.get("finish_at"):
                loop.finish()
            if plan.get("act") == "leave" and loop.run.global_step == plan["step"] - 1:
                break
    print(f"end {total(model.parameters())}", file=said)
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else None)
