"""A training without a framework, for `test_run`: program.py LOGDIR STEPS [what happens] [at which step]

Its loss depends on every random state and on the data's order, so equal bits at the end prove an exact resume. With
``TRIAL_BROKEN=1`` it depends on a variable that no checkpoint has, too. With ``TRIAL_OBSERVE=1`` it says what was
observed of its resume, and logs to standard error. ``TRIAL_VERIFY=3`` is `Options.verify_resume`. With
``TRIAL_LOG=0`` it logs no loss.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time

import numpy as np

import supervisor_core


class Model:
    """A weight that each step changes."""

    def __init__(self) -> None:
        self.weight = np.zeros(8)

    def state_dict(self) -> dict[str, object]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.weight = np.asarray(state["weight"])


class Data:
    """A shuffled order, and the position in it."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.order = self.rng.permutation(1000)
        self.position = 0

    def __next__(self) -> float:
        self.position += 1
        return float(self.order[self.position - 1])

    def get_state(self) -> dict[str, object]:
        return {"order": self.order, "position": self.position}

    def set_state(self, state: dict[str, object]) -> None:
        self.order, self.position = np.asarray(state["order"]), int(str(state["position"]))


def main() -> None:
    """Train, and print the bits at the end."""
    logdir, steps = sys.argv[1], int(sys.argv[2])
    event, at = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 4 else ("nothing", -1)
    is_broken, is_observed = (os.environ.get(name) == "1" for name in ("TRIAL_BROKEN", "TRIAL_OBSERVE"))
    if is_observed:
        logging.basicConfig(level=logging.INFO)
    carried = 0.0
    options = supervisor_core.Options(verify_resume=int(os.environ.get("TRIAL_VERIFY", "0")))
    random.seed(1)
    np.random.seed(2)
    model, data = Model(), Data()
    with supervisor_core.supervise(
        logdir, state={"model": model, "data": data}, options=options, save_secs=None, save_steps=4
    ) as run:
        if run.exactness is not None:
            print("exact" if run.exactness.is_exact else run.exactness.reasons, flush=True)
        for step in run.steps(steps):
            run.wait_until_saved()  # so that it is known which checkpoints there are
            model.weight = model.weight * 0.9 + next(data) + random.random() * np.random.standard_normal(8) + carried
            carried += is_broken
            if os.environ.get("TRIAL_LOG") != "0":
                run.log({"loss": model.weight.sum()})
            if step == at:
                happen(event, run)
        print("left", flush=True)
    if is_observed and run.exactness is not None:
        print("observed", run.exactness.observed, flush=True)
    print(run.global_step, model.weight.tobytes().hex(), flush=True)


def happen(event: str, run: supervisor_core.Run) -> None:
    """What is to happen in the middle of a step."""
    if run.writer is not None:
        run.writer.flush()
    os.kill(os.getpid(), signal.SIGKILL if event == "kill" else signal.SIGTERM)
    while not run.should_stop():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
