"""What the programs of the frameworks have in common: turns, and where the result goes.

Times are processor times of the training's thread: on a machine with other work they say what an idle one would show.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from supervisor_core import Options

Call = Callable[[], object]
MEGABYTES = 100
SIDE = 5000
"""A matrix of so many rows and columns of 4 bytes has `MEGABYTES`."""
OPTIONS = Options(handle_signals=False, save_on_stop=False)
NEVER = 10**9
"""Steps between saves where nothing falls due."""


@dataclass
class Measuring:
    """One framework's measurement.

    Args:
        directory: for checkpoints and logs.
        result: the file of what was measured.
        turns: how often each contender takes its turn at steps.
        steps: how many steps a turn has.
        saves: how often each saves.
    """

    directory: Path
    result: Path
    turns: int = 100
    steps: int = 1000
    saves: int = 5
    step_us: dict[str, list[float]] = field(default_factory=dict)
    save_ms: dict[str, list[float]] = field(default_factory=dict)
    durable_ms: dict[str, list[float]] = field(default_factory=dict)
    """What a save takes of the processors in all threads, until it is durable."""

    @classmethod
    def of_arguments(cls) -> Measuring:
        directory, result, quick = sys.argv[1:4]
        logging.disable(logging.WARNING)
        if int(quick):
            return cls(Path(directory), Path(result), turns=3, steps=100, saves=2)
        return cls(Path(directory), Path(result))

    def per_step(self, contenders: dict[str, Call], bare: Call) -> None:
        """Let each do steps in turns, and subtract what the loop takes that calls nothing, or does nothing else.

        Args:
            contenders: each does one step.
            bare: one step without any of them.
        """
        taken: dict[str, list[float]] = {name: [] for name in (*contenders, "")}
        for _ in range(self.turns):
            for name, step in {**contenders, "": bare}.items():
                started = time.thread_time()
                for _ in range(self.steps):
                    step()
                taken[name].append((time.thread_time() - started) / self.steps * 1e6)
        floor = min(taken.pop(""))
        self.step_us = {name: [value - floor for value in values] for name, values in taken.items()}

    def per_save(self, contenders: dict[str, Call], between: Call) -> None:
        """Let each save in turns; the first turn is to get warm.

        Args:
            contenders: each saves, as far as the training waits for it.
            between: trains for a step, once nothing is written any more.
        """
        self.save_ms = self._in_turns(contenders, between, time.thread_time)

    def per_durable_save(self, contenders: dict[str, Call], between: Call) -> None:
        """Let each save in turns, and wait until it is on the disk; the first turn is to get warm.

        Args:
            contenders: each saves, and waits.
            between: trains for a step.
        """
        self.durable_ms = self._in_turns(contenders, between, time.process_time)

    def _in_turns(
        self, contenders: dict[str, Call], between: Call, clock: Callable[[], float]
    ) -> dict[str, list[float]]:
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(self.saves + 1):
            for name, save in contenders.items():
                between()
                started = clock()
                save()
                taken[name].append((clock() - started) * 1e3)
        between()
        return {name: values[1:] for name, values in taken.items()}

    def write(self, *packages: str) -> None:
        """Write the result.

        Args:
            packages: those measured.
        """
        found = {
            "step_us": self.step_us, "save_ms": self.save_ms, "durable_ms": self.durable_ms, "steps": self.steps,
            "megabytes": MEGABYTES,
            "about": ", ".join(f"{name} {version(name)}" for name in packages),
        }  # fmt: skip
        self.result.write_text(json.dumps(found))
