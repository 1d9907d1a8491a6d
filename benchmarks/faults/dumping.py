"""A program without TensorFlow, whose threads call, raise and allocate while its stacks are taken."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from supervisor_core.engine.hang_stacks import DeadManTimer
from supervisor_core.process.stacks import python_stacks


def main(config: dict[str, Any]) -> None:
    """Take stacks, half of them by the walk over frames, half by the timer's signal; say how many."""
    half = config["dumps"] // 2
    descriptor = os.open(config["file"], os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    timer, stop = DeadManTimer(descriptor), threading.Event()
    for number in range(4):
        threading.Thread(target=work, args=(stop, number), daemon=True).start()
    walks = threading.Thread(target=walk, args=(half,))
    walks.start()
    fired, deadline = 0, time.monotonic() + 120.0
    while fired < half and time.monotonic() < deadline:
        os.ftruncate(descriptor, 0)
        timer.arm(0.0003)
        while os.fstat(descriptor).st_size == 0 and time.monotonic() < deadline:
            descend(8)
        fired += os.fstat(descriptor).st_size > 0
    walks.join()
    timer.close()
    stop.set()
    os.write(1, f"dumped {fired + half}\n".encode())


def walk(count: int) -> None:
    """Take all threads' stacks."""
    for _ in range(count):
        python_stacks()
        time.sleep(0.0001)


def work(stop: threading.Event, number: int) -> None:
    """Make and leave frames."""
    while not stop.is_set():
        try:
            descend(number + 3)
        except ValueError:
            continue
        time.sleep(0.001)


def descend(depth: int) -> list[Any]:
    """Call itself; raise now and then."""
    if depth == 0:
        if time.monotonic_ns() % 7 == 0:
            raise ValueError("now and then")
        return [[number] for number in range(20)]
    try:
        return descend(depth - 1)
    except ValueError:
        return []
