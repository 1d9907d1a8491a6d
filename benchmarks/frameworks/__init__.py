"""What each adapter costs a training, beside the framework's own way to save: per step, and per save.

The frameworks are gigabytes: they are measured by the interpreter that ``--python`` names, each in a process of its
own, and left out where that one does not have them.

A step: what the adapter does for one step above what the same loop does without it; of a callback, its hooks of a step
as the framework calls them, with nothing due. A save: what the training's thread does for one, of a model of 100 MB;
what is written in the background only takes its share of the processors. Both are that thread's processor time, which
other work on the machine hardly changes. PyTorch's save is measured in all threads, too, until it is durable.

    python -m benchmarks --only frameworks --python ENVIRONMENT/bin/python [--write]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Row

OURS = "ours"
COPY = "one memory copy"
NAMES = {
    "numpy": "supervise with arrays of numpy",
    "torch": "PyTorch",
    "keras": "Keras",
    "lightning": "Lightning",
    "jax": "JAX",
    "transformers": "Transformers",
}
STEP_GOAL_US = 1.0
DURABLE_GOAL = 1.1


def rows(quick: bool, python: str = sys.executable) -> Iterator[Row]:
    for name, title in NAMES.items():
        taken = measured(name, quick, python)
        if taken is None:
            yield Row("frameworks", title, "", None, {}, "", None, f"not measured: {python} does not have it")
            continue
        about = taken["about"]
        best = {who: min(times) for who, times in taken["step_us"].items()}
        mine, median = best.pop(OURS), statistics.median(taken["step_us"][OURS])
        goal, count = f"at most {STEP_GOAL_US:g} us", len(taken["step_us"][OURS])
        note = f"{about}; best of {count} turns of {taken['steps']} steps, our median is {median:.3g} us"
        yield Row("frameworks", f"{title}: a step", "us", mine, best, goal, mine <= STEP_GOAL_US, note)
        held = {who: statistics.median(times) for who, times in taken["save_ms"].items()}
        mine, lowest = held.pop(OURS), min(taken["save_ms"][OURS])
        met = mine <= min(time for who, time in held.items() if who != COPY)
        note = f"medians of {len(taken['save_ms'][OURS])}, our best is {lowest:.3g} ms"
        what = f"{title}: a save of {taken['megabytes']:,} MB, in the training's thread"
        yield Row("frameworks", what, "ms", mine, held, "less than each peer", met, note)
        if taken["durable_ms"]:
            spent = {who: statistics.median(times) for who, times in taken["durable_ms"].items()}
            mine = spent.pop(OURS)
            what = f"{title}: a save of {taken['megabytes']:,} MB until it is durable, all threads"
            goal = f"at most {DURABLE_GOAL:g} times the cheapest peer"
            note = f"{about}; medians of {len(taken['durable_ms'][OURS])}; ours is read back as well"
            yield Row("frameworks", what, "ms", mine, spent, goal, mine <= DURABLE_GOAL * min(spent.values()), note)


def measured(name: str, quick: bool, python: str) -> dict[str, Any] | None:
    """Return what was measured of a framework; None where the interpreter does not have it."""
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    has = [python, "-c", f"import sys, importlib.util; sys.exit(importlib.util.find_spec({name!r}) is None)"]
    if subprocess.run(has, env=environment, check=False).returncode:
        return None
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        command = [python, "-m", f"benchmarks.frameworks.{name}_costs", directory, str(result), str(int(quick))]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        taken: dict[str, Any] = json.loads(result.read_text())
    return taken
