"""A supervised training without TensorFlow, to be started by a shell: each step is in ``steps`` once it is done.

    python -m benchmarks.faults.wrapped DIRECTORY FACADE

``supervise``: a counter. ``torch``: a model, and a loader with a worker.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.restarted import enter

READY_STEP = 3
PAUSE_SECS = 0.01


class Counter:
    """The state of a training that only counts."""

    steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a count."""
        self.steps = int(state["steps"])


def main(directory: Path, facade: str) -> None:
    """Train until it is stopped."""
    pause = threading.Event()
    for steps in {"supervise": counting, "torch": torch_steps}[facade](str(directory / "run")):
        (directory / "steps.new").write_text(str(steps))
        os.replace(directory / "steps.new", directory / "steps")
        if steps == READY_STEP:
            enter(directory)
        os.write(1, b"step %d\n" % steps)
        pause.wait(PAUSE_SECS)


def counting(logdir: str) -> Iterator[int]:
    """Yield the number of steps under `supervise`, within each."""
    from supervisor_core import supervise

    counter = Counter()
    with supervise(logdir, state={"counter": counter}, save_secs=None) as run:
        for _ in run.steps(1_000_000):
            counter.steps += 1
            yield counter.steps


def torch_steps(logdir: str) -> Iterator[int]:
    """Yield the number of steps of a PyTorch loop, within each."""
    import torch

    from supervisor_core.torch import supervised

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.ones(1_000_000, 4))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
    batches = supervised(loader, logdir, epochs=1000, model=model, optimizer=optimizer, save_secs=None)
    for steps, (batch,) in enumerate(batches, 1):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        yield steps


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
