"""What ``tb-supervisor inspect`` and ``verify`` report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_TB_SUPERVISOR = [sys.executable, "-c", "from supervisor_core.cli import main; main(prog_name='tb-supervisor')"]
_COMMAND = [*_TB_SUPERVISOR, "inspect"]


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """The run as the command reports it."""

    state: str
    outcomes: tuple[str, ...]
    """How each session ended."""
    resumed_at: tuple[int | None, ...]
    """The step at which each later session resumed."""
    again: tuple[tuple[int | None, int | None], ...]
    """How many steps each later session recomputed, at least and at most."""
    checkpoints: int
    """Good ones."""


def inspect_run(run: Path) -> Inspected | None:
    """Return what ``inspect --json`` reports of a run; None without a report."""
    asked = subprocess.run([*_COMMAND, str(run), "--json"], capture_output=True, text=True, check=False)
    try:
        (inspected,) = json.loads(asked.stdout)["runs"]
    except ValueError:
        return None
    return Inspected(
        state=inspected["state"],
        outcomes=tuple(session["outcome"] for session in inspected["sessions"]),
        resumed_at=tuple(restart["to_step"] for restart in inspected["restarts"]),
        again=tuple((restart["rewind_steps"], restart["rewind_steps_most"]) for restart in inspected["restarts"]),
        checkpoints=sum(checkpoint["ok"] for checkpoint in inspected["checkpoints"]),
    )


def newest_checkpoint(run: Path) -> tuple[int | None, str | None]:
    """Return the step that ``verify --json`` says a restart would resume from, and what is wrong with the run."""
    asked = subprocess.run([*_TB_SUPERVISOR, "verify", "--json", str(run)], capture_output=True, text=True, check=False)
    try:
        (verified,) = json.loads(asked.stdout)["runs"]
    except ValueError:
        return None, None
    return verified["resume_step"], verified["problem"]


def show_run(logdir: Path, name: str, width: int) -> str:
    """Return what ``inspect --run`` prints, for a terminal of that many columns."""
    environment = {**os.environ, "COLUMNS": str(width)}
    asked = subprocess.run(
        [*_COMMAND, str(logdir), "--run", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment,
    )
    return asked.stdout
