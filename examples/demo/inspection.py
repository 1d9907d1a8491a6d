"""What ``tb-supervisor inspect``, ``verify`` and ``report`` say of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TB_SUPERVISOR = (sys.executable, "-c", "from supervisor_core.cli import main; main(prog_name='tb-supervisor')")


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
    inspected = reported("inspect", run)
    if inspected is None:
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
    verified = reported("verify", run)
    return (None, None) if verified is None else (verified["resume_step"], verified["problem"])


def show_run(logdir: Path, name: str, width: int) -> str:
    """Return what ``inspect --run`` prints, for a terminal of that many columns."""
    return "".join(tb_supervisor("inspect", str(logdir), "--run", name, columns=width))


def write_report(logdir: Path, name: str, target: Path) -> str | None:
    """Write the page of the run as a file; return why it could not be written, in one line, or None."""
    target.parent.mkdir(parents=True, exist_ok=True)
    said, failed = tb_supervisor("report", str(logdir), "--run", name, "--html", str(target))
    return None if said else failed.strip().rpartition("\n")[2]


def reported(command: str, run: Path) -> Any:
    """Return what a command reports of one run, as it comes from JSON; None without a report."""
    try:
        (found,) = json.loads(tb_supervisor(command, str(run), "--json")[0])["runs"]
    except ValueError:
        return None
    return found


def tb_supervisor(*arguments: str, columns: int = 80) -> tuple[str, str]:
    """Run ``tb-supervisor``; return what it prints to stdout and to stderr, for a terminal of that many columns."""
    environment = {**os.environ, "COLUMNS": str(columns)}
    asked = subprocess.run([*TB_SUPERVISOR, *arguments], capture_output=True, text=True, check=False, env=environment)
    return asked.stdout, asked.stderr
