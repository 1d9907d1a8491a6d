"""A training hangs: the stall is seen in time, by its own record or from outside, and with the line that hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults import hanging, truth
from benchmarks.faults.launcher import Process
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

STEP_SECS = 0.1
HANGS_AT = 40
"""The step: by then the budget is a learned one."""
SEEN_WITHIN_SECS = 10.0
TIMES_BUDGET = 1.5
GIVE_UP_SECS = 45.0


def _hang(trial: Trial, trials: int, kind: str) -> Iterator[Outcome]:
    """Let a training with steps of 100 ms hang, and look for the stall."""
    for number in range(trials):
        logdir = trial.directory / f"run-{number}"
        facade = trial.rng.choice(["supervisor", "monitored"])
        training = trial.train(logdir, facade=facade, hang=kind, pause_secs=STEP_SECS, save_secs=3600)
        training.until("hangs")
        hung = time.monotonic()
        findings = Findings()
        early = truth.events(truth.events_files(logdir)).of_kind("stall")
        findings.fault(bool(early), f"a stall before the hang: {early}")
        seen = _await_stall(training, logdir, hung, from_outside=kind == "gil")
        secs = time.monotonic() - hung
        if seen is None:
            findings.wrong.append(f"not seen within {GIVE_UP_SECS:g} s{training.story()}")
            secs = GIVE_UP_SECS
        else:
            limit = SEEN_WITHIN_SECS * trial.patience
            findings.fault(secs > limit, f"seen only after {secs:.1f} s")
            budget = seen["timeout_secs"]
            late = budget is not None and secs > TIMES_BUDGET * trial.patience * budget + STEP_SECS
            findings.fault(late, f"seen after {secs:.1f} s, with a budget of {budget:.1f} s")
            lines = hanging.lines_of(kind)
            found = Path((seen["location"] or "").partition(" ")[0]).name
            findings.fault(found not in lines, f"location {seen['location']!r}, not {' or '.join(sorted(lines))}")
        trial.close()
        yield findings.outcome(secs)


def _await_stall(training: Process, logdir: Path, hung: float, from_outside: bool) -> dict[str, Any] | None:
    """Return the stall as soon as it is seen: its record, or, of a blocked interpreter, what ``inspect`` shows."""
    while time.monotonic() - hung < GIVE_UP_SECS:
        training.listen(0.1)
        if from_outside:
            if time.monotonic() - hung > 3.0 and (found := stalls(logdir)):
                return found[-1]
        elif found := truth.events(truth.events_files(logdir)).of_kind("stall"):
            return found[0]
    return None


def stalls(logdir: Path) -> list[dict[str, Any]]:
    """Return the stalls that ``tb-supervisor inspect`` shows of a run."""
    code = "from supervisor_core.cli import main; main()"
    command = [sys.executable, "-c", code, "inspect", "--json", str(logdir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    [run] = json.loads(done.stdout)["runs"]
    found: list[dict[str, Any]] = run["stalls"]
    return found


_KINDS = (
    ("gil", "native code that holds the interpreter's lock"),
    ("native", "a run of TensorFlow's that does not return"),
    ("lock", "a lock that is never released"),
    ("busy", "a loop in Python"),
    ("sleep", "a sleep"),
    ("read", "a read of a FIFO to which no process writes"),
    ("child", "a worker process that never answers"),
)
FAULTS = tuple(
    Fault(
        name=f"a step hangs: {name}",
        survived=f"seen within {SEEN_WITHIN_SECS:g} s and {TIMES_BUDGET:g} x the budget, at the line that hangs",
        long=20,
        short=0 if kind == "gil" else 1,
        run=partial(_hang, kind=kind),
    )
    for kind, name in _KINDS
)
