"""What the machine was like while it measured: a measurement without that is half a measurement."""

from __future__ import annotations

import os
import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version


def describe() -> str:
    """Return processor count, load and the versions measured, in a line."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    packages = []
    for name in ("tensorflow", "tensorboard", "tensorboardX", "torch", "google-crc32c"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            packages.append(f"{name} absent")
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, load {load}; Python {platform.python_version()}, {', '.join(packages)}"


def noise() -> str:
    """Return how much the same piece of work varied, from run to run, in a line."""
    times = []
    for _ in range(200):
        started = time.perf_counter()
        sum(range(50_000))
        times.append(time.perf_counter() - started)
    cut = statistics.quantiles(times, n=20)
    middle = statistics.median(times)
    low, high = cut[0] / middle, cut[-1] / middle
    return f"the same loop, 200 times: 5 % took less than {low:.2f} of the median, 5 % more than {high:.2f}"
