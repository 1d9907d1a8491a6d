"""A small program under ``tb-supervisor run``, without TensorFlow: it has processes of its own, crashes, or trains.

    python -m benchmarks.faults.restarted DIRECTORY MODE

Each process writes a line ``PID MONOTONIC`` to ``DIRECTORY/processes`` when it starts, the program first. Modes:
``stays``: it waits, with a child and a grandchild. ``crashes``: it raises. ``flaky``: it does ten steps and crashes, in
one of several ways; with the twelfth launch it is done.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

LAUNCHES = 12
STEPS = 10


def main(directory: Path, mode: str) -> None:
    """Do as the mode says."""
    enter(directory)
    if mode == "crashes":
        raise ValueError("as asked")
    if mode == "flaky":
        train(directory)
        return
    if os.fork() == 0:
        enter(directory)
        if os.fork() == 0:
            enter(directory)
    while True:
        signal.pause()


def enter(directory: Path) -> None:
    """Write down that this process runs."""
    with open(directory / "processes", "a") as file:
        file.write(f"{os.getpid()} {time.monotonic()!r}\n")


def train(directory: Path) -> None:
    """Do some steps more than all launches before, and end as a flaky program does."""
    from supervisor_core.events import EventsWriter

    launch = len((directory / "processes").read_text().splitlines())
    writer = EventsWriter(str(directory / "run"))
    for step in range((launch - 1) * STEPS + 1, launch * STEPS + 1):
        writer.scalar("loss", 1.0 / step, step)
    writer.close()
    if launch >= LAUNCHES:
        return
    how = random.choice(["raises", "exits", "killed", "aborts"])
    if how == "raises":
        raise OSError("the network is away")
    if how == "exits":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGABRT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
