"""The peers' programs: each trains a few weights that rise by one with each step, and saves as its documentation says.

They say the lines that `training` says, and ``saved STEP`` once the peer's own call has returned, or its callback has
come: from then on the step counts as saved. Each takes the options that keep most. `Asked` is what they are asked for.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.faults import hanging

WEIGHTS = 4


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a peer's program trains."""

    directory: str
    steps: int | None = None
    """How many to do in this session; None: until it is ended."""
    save_every: int = 10
    floats: int = 4096
    pause_secs: float = 0.005
    hang: str | None = None
    """How it hangs at the eightieth step of the session; see `hanging`."""
    lockless_host: str | None = None
    """The process has another host's name, and no file locks; of interest to ours alone."""


class Steps:
    """What each program does around its steps."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._first = 0

    def begin(self, step: int, values: list[Any]) -> None:
        """Say which step was restored, and whether the restored values are of that step."""
        say("ready", step)
        if any((value - initial(number, len(value)) != step).any() for number, value in enumerate(values)):
            say("torn")
        self._first = step

    def did(self, step: int) -> None:
        """Say that a step was done, and do what is asked for there."""
        if step % 10 == 0:
            say("step", step)
        if self._asked.hang is not None and step - self._first == 80:
            say("hangs", step)
            hanging.hang(self._asked.hang, self._asked.directory)
        time.sleep(self._asked.pause_secs)

    def is_over(self, step: int) -> bool:
        """Say whether the session has done its steps."""
        return self._asked.steps is not None and step - self._first >= self._asked.steps


def initial(number: int, floats: int) -> Any:
    """Return what a weight begins with: integers that do not compress, so that a float holds each of their sums."""
    return np.random.default_rng(number).integers(0, 2**20, floats).astype(np.float32)


def say(*words: object) -> None:
    """Say a line on standard output, at once and whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
