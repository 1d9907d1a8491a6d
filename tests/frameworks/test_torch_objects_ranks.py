"""Several models and optimizers on several ranks, replicated or split, and a second loader: killed and resumed."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from trial import Job, launch

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each rank
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from supervisor_core.errors import RanksError  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.shards import shards_of  # noqa: E402

pytestmark = pytest.mark.timeout(400)
PAUSE = threading.Event()  # never set


def _bits(*models: Any) -> str:
    parts = [part for model in models for part in model.parameters()]
    whole = [part.full_tensor() if hasattr(part, "full_tensor") else part for part in parts]
    return float(torch.cat([part.detach().reshape(-1).double() for part in whole]).sum()).hex()


def train_gan(directory: str, plan: dict[str, Any] | None) -> None:
    """A generator, and a critic, on each rank; each has its own noise. Says each step's bits."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    dist.init_process_group("gloo")
    rank, plan = dist.get_rank(), plan or {}
    torch.set_num_threads(1)
    torch.manual_seed(7)
    networks = [torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)]
    if plan.get("fsdp"):
        from torch.distributed.fsdp import fully_shard

        models: list[Any] = [fully_shard(network) for network in networks]
    else:
        models = [torch.nn.parallel.DistributedDataParallel(network) for network in networks]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    data, extra = torch.randn(24, 3), torch.randn(10, 3)
    torch.manual_seed(rank)
    loader, other = (DataLoader(item, 2, sampler=DistributedSampler(item)) for item in (data, extra))
    loop = supervised(
        loader, Path(directory) / "run", epochs=2, model=models, optimizer={"g": optimizers[0], "c": optimizers[1]},
        save_secs=None, save_steps=4,
    )  # fmt: skip
    unlabeled = loop.also(other)
    with open(Path(directory) / f"rank-{rank}", "a", buffering=1) as said, loop:
        is_first = True
        for real in loop:
            if is_first and loop.exactness is not None:
                print(" ".join(("exact", *loop.exactness.reasons)), file=said)
            is_first = False
            loop.run.wait_until_saved()
            if rank == 1 and plan.get("kill") == loop.global_step:
                os.kill(os.getpid(), signal.SIGKILL)
            more = next(unlabeled)
            optimizers[1].zero_grad()
            (models[1](models[0](torch.randn(2, 2)).detach()) - models[1](real) - models[1](more)).mean().backward()
            optimizers[1].step()
            if loop.global_step % 3 == 0:
                optimizers[0].zero_grad()
                (-models[1](models[0](torch.randn(2, 2)))).mean().backward()
                optimizers[0].step()
            print(f"{loop.global_step} {unlabeled.epoch} {more.sum().item().hex()} {_bits(*models)}", file=said)
    dist.destroy_process_group()


@pytest.mark.parametrize("fsdp", [False, True], ids=["replicated", "split"])
def test_several_models_on_several_ranks(tmp_path: Path, fsdp: bool) -> None:
    """A rank is killed: each one goes on with the same bits, and the second loader's part of it."""
    if fsdp and not hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("this PyTorch has no fully_shard: 2.6 has")

    def start(directory: Path, plan: dict[str, Any] | None, **options: int) -> None:
        launch(train_gan, str(directory), plan, **options)

    truth = Job(tmp_path / "truth", start).run({"fsdp": fsdp})
    assert len(truth[0]) == 12 and truth[0] != truth[1]
    job = Job(tmp_path / "killed", start)
    job.run({"kill": 7, "fsdp": fsdp})
    for (verdict, *after), expected in zip(job.run({"fsdp": fsdp}), truth, strict=True):
        assert (verdict, after) == ("exact", expected[4:])


def test_an_optimizer_of_two_models_of_which_one_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state could not be split as the model is: it is an error that names both."""
    models = {"model.0": torch.nn.Linear(2, 1), "model.1": torch.nn.Linear(2, 1)}
    monkeypatch.setattr("supervisor_core.torch.shards.is_sharded", lambda model: model is models["model.1"])
    both = torch.optim.SGD([part for model in models.values() for part in model.parameters()])
    alone = torch.optim.SGD(models["model.0"].parameters())
    with pytest.raises(RanksError, match=r"'optimizer\.1' has parameters of model\.0 and model\.1"):
        shards_of(models, {"optimizer.0": alone, "optimizer.1": both})
    assert list(shards_of(models, {"optimizer.0": alone})) == ["model.1"]
