"""What trainings of these tests consist of, and how readers see them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from supervisor_core.run.model.run import Run
from supervisor_core.run.watch.logdir_watch import LogdirWatch

PROGRAM = Path(__file__).with_name("program.py")


class Part:
    """An object with a state."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def training(logdir: Path, *arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, with more in its environment."""
    command = [sys.executable, str(PROGRAM), str(logdir), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


def run_of(logdir: Path) -> Run:
    """The run as every reader sees it."""
    (item,) = LogdirWatch(str(logdir)).refresh().runs.values()
    return item.run
