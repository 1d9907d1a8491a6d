"""A supervised training of one facade, to be started by a shell or alone: each step is in ``steps`` once it is done.

    python -m benchmarks.faults.wrapped DIRECTORY FACADE [EVENT STEP]

``Supervisor``: a graph's global step. ``supervise``: a counter. ``torch for``, ``torch with``: a model, and a loader
with a worker.
At the step of the event it ``raises``, ``exits`` with status 3, or ``evaluates`` until it is stopped; before, it saves
every 50 ms where it is to break, else at its end only.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.faults.restarted import enter

READY_STEP = 3
PAUSE_SECS = 0.01
FACADES = ("Supervisor", "supervise", "torch for", "torch with")


class Counter:
    """The state of a training that only counts."""

    steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a count."""
        self.steps = int(state["steps"])


class Body:
    """What the body of a loop does besides the step.

    Args:
        directory: where the steps are noted.
        event: what happens.
        at: the number of the step at which it happens.
    """

    def __init__(self, directory: Path, event: str = "", at: int = 0) -> None:
        self._directory = directory
        self._event = event
        self._at = at
        self._pause = threading.Event()
        self.logdir = str(directory / "run")
        self.save_secs = 0.05 if event in ("raises", "exits") else None

    def __call__(self, steps: int, phase: Callable[[str], AbstractContextManager[None]] | None) -> None:
        """Called in a step, once its work is done; ``phase`` is the session's, where it has one."""
        directory = self._directory
        (directory / "steps.new").write_text(str(steps))
        os.replace(directory / "steps.new", directory / "steps")
        if steps == (self._at or READY_STEP):
            enter(directory)
        os.write(1, b"step %d\n" % steps)
        self._pause.wait(PAUSE_SECS)
        if steps == self._at:
            self._happen(phase)

    def _happen(self, phase: Callable[[str], AbstractContextManager[None]] | None) -> None:
        if self._event == "raises":
            raise ArithmeticError("the loss is not finite")
        if self._event == "exits":
            sys.exit(3)
        with nullcontext() if phase is None else phase("evaluating"):
            self._pause.wait(600)


def graph(body: Body) -> None:
    """Train under `Supervisor`."""
    import tensorflow as tf

    from supervisor_core import Supervisor

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    rise = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    save_secs = body.save_secs or 3600
    supervisor = Supervisor(logdir=body.logdir, save_model_secs=save_secs, save_summaries_secs=0, summary_op=None)
    with supervisor.managed_session() as sess:
        while not supervisor.should_stop():
            body(int(sess.run(rise)), None)


def counting(body: Body) -> None:
    """Count under `supervise`."""
    from supervisor_core import supervise

    counter = Counter()
    with supervise(body.logdir, state={"counter": counter}, save_secs=body.save_secs) as run:
        while not run.should_stop():
            counter.steps += 1
            run.step()
            body(counter.steps, run.phase)


def torch_steps(body: Body, *, enters: bool) -> None:
    """Train in a loop of PyTorch, as a bare ``for`` or in a ``with`` statement."""
    import torch

    from supervisor_core.torch import supervised

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.ones(1_000_000, 4))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
    batches = supervised(loader, body.logdir, epochs=1000, model=model, optimizer=optimizer, save_secs=body.save_secs)
    with batches if enters else nullcontext():
        for steps, (batch,) in enumerate(batches, 1):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            body(steps, batches.run.phase)


def started(config: dict[str, Any]) -> None:
    """Train as a `Launcher` asks for it."""
    main(config["facade"], Body(Path(config["directory"]), config["event"], config["at"]))


def main(facade: str, body: Body) -> None:
    """Train until it is stopped."""
    if facade == "Supervisor":
        graph(body)
    elif facade == "supervise":
        counting(body)
    else:
        torch_steps(body, enters=facade == "torch with")


if __name__ == "__main__":
    main(sys.argv[2], Body(Path(sys.argv[1]), *sys.argv[3:4], *map(int, sys.argv[4:5])))
