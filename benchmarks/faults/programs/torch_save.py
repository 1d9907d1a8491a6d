"""PyTorch as its tutorial on torchrun has it: one snapshot, saved in place by `torch.save`, loaded if it exists."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from benchmarks.faults.programs import WEIGHTS, Asked, Steps, initial, say


def main(values: dict[str, Any]) -> None:
    """Train."""
    asked = Asked(**values)
    os.makedirs(asked.directory, exist_ok=True)
    path = os.path.join(asked.directory, "snapshot.pt")
    steps, step = Steps(asked), 0
    model = torch.nn.ParameterList([torch.from_numpy(initial(n, asked.floats)) for n in range(WEIGHTS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    if os.path.exists(path):
        snapshot = torch.load(path, weights_only=True)
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        step = snapshot["step"]
    steps.begin(step, [weight.detach().numpy() for weight in model])
    while not steps.is_over(step):
        optimizer.zero_grad()
        (-sum(weight.sum() for weight in model)).backward()
        optimizer.step()
        step += 1
        if step % asked.save_every == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
            say("saved", step)
        steps.did(step)
    say("end")


if __name__ == "__main__":  # what torchrun starts
    import json

    main(json.loads(sys.argv[1]))
