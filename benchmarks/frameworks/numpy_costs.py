"""`supervise` with a state of numpy's arrays, beside the same loop without it, one memory copy, and pickle."""

from __future__ import annotations

import pickle
from itertools import count
from typing import Any

import numpy as np

from benchmarks.frameworks import COPY, OURS
from benchmarks.frameworks.measuring import NEVER, OPTIONS, SIDE, Measuring
from supervisor_core import supervise


class Model:
    def __init__(self) -> None:
        self.weights = np.ones((SIDE, SIDE), np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


def main() -> None:
    measuring = Measuring.of_arguments()
    model, plain = Model(), count()
    other = np.zeros_like(model.weights)
    logdir = measuring.directory / "run"
    with supervise(logdir, state={"model": model}, save_secs=None, max_to_keep=1, options=OPTIONS) as run:
        steps = iter(run.steps(NEVER))

        def by_hand() -> None:
            if next(plain) % NEVER == NEVER - 1:
                pickled()

        def pickled() -> None:
            with (measuring.directory / "by-hand").open("wb") as file:
                pickle.dump(model.state_dict(), file, protocol=5)

        def saved() -> None:
            run.save()
            next(steps)

        def between() -> None:
            run.wait_until_saved()
            model.weights += 1

        next(steps)
        contenders = {OURS: lambda: next(steps), "`if step % n == 0: pickle.dump(...)`": by_hand}
        measuring.per_step(contenders, bare=lambda: next(plain))
        savers = {OURS: saved, COPY: lambda: np.copyto(other, model.weights), "pickle, nothing synced": pickled}
        measuring.per_save(savers, between=between)
        run.request_stop()
    measuring.write("numpy")


if __name__ == "__main__":
    main()
