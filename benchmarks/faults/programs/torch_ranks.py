"""One rank of a training in several processes, in a process that has imported PyTorch. One of them hangs at a step."""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which an optimizer imports
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import supervisor_core.torch.loop  # noqa: F401
from supervisor_core.base.options import Options
from supervisor_core.torch import supervised

SAMPLES, BATCH = 4000, 4
EVALUATION_SECS = SAVE_SECS = 5.0
"""Hang timeouts of these phases: by default they are longer than a trial."""


class Hang:
    """What hangs, on this rank at a step.

    Args:
        config: the trial's.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.is_here = config["rank"] == config["victim"]
        self.place, self.how, self.step = config["place"], config["how"], config["step"]
        self.reached = 0

    def at(self, place: str) -> None:
        """Hang if it is this place's turn."""
        if self.is_here and place == self.place and self.reached >= self.step:
            print("hangs", flush=True)
            stuck(self.how)


def stuck(how: str) -> None:
    """Never return."""
    forever = threading.Event()
    while True:
        if how == "waits":
            forever.wait()
        elif how == "sleeps":
            time.sleep(0.2)
        else:
            sum(range(1000))


class Data(Dataset[Any]):
    """Samples, one of which does not come.

    Args:
        hang: what hangs.
        bad: the sample at which a worker process hangs, which does not know the step.
    """

    def __init__(self, hang: Hang, bad: int | None) -> None:
        self.hang, self.bad = hang, bad

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            self.hang.reached = self.hang.step
        self.hang.at("loader")
        return torch.full((4,), float(index % 7))


class Own:
    """An object whose state is saved, of each rank.

    Args:
        hang: what hangs.
    """

    def __init__(self, hang: Hang) -> None:
        self.hang = hang

    def state_dict(self) -> dict[str, int]:
        """Return its state."""
        self.hang.at("save")
        return {"value": 1}

    def load_state_dict(self, state: Any) -> None:
        """Take anything."""


def evaluate(hang: Hang, model: Any, *, together: bool) -> None:
    """Compare some samples, on all ranks or on one."""
    hang.at("evaluation")
    with torch.no_grad():
        total = model(torch.ones(2, 4)).sum()
    if together:
        dist.all_reduce(total)


def train(config: dict[str, Any]) -> None:
    """Train until it is killed."""
    rank, size = config["rank"], config["size"]
    torch.set_num_threads(1)
    meeting = f"file://{config['directory']}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    side = dist.new_group(backend="gloo")
    torch.manual_seed(rank)
    hang = Hang(config)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    sampler: Any = DistributedSampler(Data(hang, None), size, rank, shuffle=False)
    bad = list(sampler)[config["step"] * BATCH] if config["workers"] and config["place"] == "loader" else None
    data = Data(hang, bad if hang.is_here else None)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=config["workers"])
    step, pause = config["step"], threading.Event()
    secs = {"evaluating": EVALUATION_SECS, "checkpointing": SAVE_SECS}
    if config["place"] == "save":
        secs["training"] = (
            SAVE_SECS  # what waits for a save has the hang timeout that is given, and none that is learned
        )
    loop = supervised(
        loader, Path(config["directory"]) / "run", model=model, optimizer=optimizer, state={"own": Own(hang)},
        save_secs=None, save_steps=step + 5 if config["place"] == "save" else None,
        options=Options(hang_timeout_secs=secs),
    )  # fmt: skip
    with loop:
        for batch in loop:
            hang.reached += 1
            hang.at("user code")
            loss = model(batch).mean()
            if config["place"] == "collective" and hang.is_here and hang.reached >= step:
                print("hangs", flush=True)
                dist.all_reduce(torch.ones(1), group=side)  # which no other rank calls
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            pause.wait(config["pause_secs"])
            if config["place"] == "evaluation" and hang.reached == step and (config["together"] or hang.is_here):
                with loop.phase("evaluating") if config["has_phase"] else nullcontext():
                    evaluate(hang, model.module, together=config["together"])


def main(config: dict[str, Any]) -> None:
    """Train as a rank that a launcher has started."""
    os.environ.update(RANK=str(config["rank"]), LOCAL_RANK=str(config["rank"]), WORLD_SIZE=str(config["size"]))
    try:
        train(config)
    finally:
        os._exit(1)  # the other ranks are killed, too
