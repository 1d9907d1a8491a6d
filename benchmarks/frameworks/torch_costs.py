"""PyTorch: `supervised` beside the same loop without it, and `torch.save`."""

from __future__ import annotations

import os
from itertools import cycle
from typing import Any

import torch
from torch.distributed import checkpoint

from benchmarks.frameworks import OURS
from benchmarks.frameworks.measuring import NEVER, OPTIONS, SIDE, Measuring
from supervisor_core.torch import supervised


def main() -> None:
    measuring = Measuring.of_arguments()
    torch.set_num_threads(1)
    model = torch.nn.Linear(SIDE, SIDE, bias=False)
    bare, own = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))  # nothing to update: no gradients
    batches, plain = [0] * 1000, cycle([0] * 1000)
    loop = supervised(
        batches,
        measuring.directory / "run",
        epochs=NEVER,
        model=model,
        optimizer=own,
        save_secs=None,
        max_to_keep=1,
        options=OPTIONS,
    )
    steps = iter(loop)
    count = 0

    def ours() -> None:
        next(steps)
        loop._steps._note()  # as the optimizer's hook does; the optimizer itself takes 20 us, and varies by more

    def nothing() -> None:
        next(plain)

    def by_hand() -> None:
        nonlocal count
        nothing()
        count += 1
        if count % NEVER == 0:
            saved_by_hand()

    def saved_by_hand() -> None:
        state: dict[str, Any] = {"model": model.state_dict(), "optimizer": bare.state_dict(), "step": count}
        torch.save(state, measuring.directory / "by-hand.pt")

    def saved() -> None:
        loop.save()
        next(steps)

    def durable() -> None:
        saved()
        loop.run.wait_until_saved()

    def durable_by_hand() -> None:
        saved_by_hand()
        descriptor = os.open(measuring.directory / "by-hand.pt", os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def by_dcp() -> None:
        checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=measuring.directory / "dcp").result()

    def between() -> None:
        loop.run.wait_until_saved()
        own.step()

    between()
    measuring.per_step({OURS: ours, "`if step % n == 0: torch.save(...)`": by_hand}, bare=nothing)
    measuring.per_save({OURS: saved, "torch.save, nothing synced": saved_by_hand}, between=between)
    synced = {OURS: durable, "torch.save and fsync": durable_by_hand, "DCP's async_save, awaited": by_dcp}
    measuring.per_durable_save(synced, between=between)
    loop.run.request_stop()
    list(steps)
    measuring.write("torch")


if __name__ == "__main__":
    main()
