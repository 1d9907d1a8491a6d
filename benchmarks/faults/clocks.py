"""The wall clock is set, between two sessions or within one: step, rewind, downtime and order stay right.

The clock is that of the process (`time.time`), set off before it starts or at a step; the files' times are set off
likewise. What a session resumes at is judged by the files; what is shown of the run, by ``tb-supervisor inspect``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.faults import truth
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

HOUR = 3600.0


@dataclass(frozen=True)
class Setting:
    """How the clocks of three sessions differ from the machine's, in seconds; the last one is right."""

    name: str
    first: float = 0.0
    second: float = 0.0
    jump: float | None = None
    """What the first session's clock is off by from its fiftieth step on."""


def _set(trial: Trial, trials: int, setting: Setting) -> Iterator[Outcome]:
    """Three sessions: one is killed, one is stopped, the last is seen after its end by SIGTERM."""
    for number in range(trials):
        logdir = trial.directory / f"run-{number}"
        findings = Findings()
        jump = None if setting.jump is None else (50, setting.jump)
        lasts, firsts = [], []
        for index, off in enumerate((setting.first, setting.second, 0.0)):
            before = _times(logdir)
            expected = truth.checkpoints(logdir).resumable
            training = trial.train(logdir, clock_secs=off, clock_jump=jump if index == 0 else None, pause_secs=0.002)
            first = int(training.until("ready")[0])
            findings.fault(first not in expected, f"session {index + 1} resumed at {first}, not at {expected}")
            while (training.last("step") or 0) < first + 100:
                training.until("step")
            training.listen(trial.rng.uniform(0.0, 0.3))
            training.kill(signal.SIGKILL if index == 0 else signal.SIGTERM)
            training.wait()
            written = [path for path in truth.events_files(logdir) if path not in before]
            firsts.append(first)
            lasts.append(max(*truth.events(written).losses, training.last("step") or 0))
            _shift(logdir, before, off if jump is None or index else setting.jump or 0.0)
        offs = (setting.jump or setting.first, setting.second, 0.0)
        _judge(findings, _inspect(logdir), firsts, lasts, offs)
        yield findings.outcome()


def _times(logdir: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in logdir.rglob("*")}


def _shift(logdir: Path, before: dict[Path, float], secs: float) -> None:
    """Set the times of what a session has written off, as its machine's clock would have."""
    for path, written in _times(logdir).items():
        if secs and before.get(path) != written:
            os.utime(path, (written + secs, written + secs))


def _inspect(logdir: Path) -> dict[str, Any]:
    code = "from supervisor_core.cli import main; main()"
    command = [sys.executable, "-c", code, "inspect", "--json", str(logdir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    [run] = json.loads(done.stdout)["runs"]
    found: dict[str, Any] = run
    return found


def _judge(
    findings: Findings, run: dict[str, Any], firsts: list[int], lasts: list[int], offs: tuple[float, ...]
) -> None:
    sessions, restarts = run["sessions"], run["restarts"]
    attempts = [session["attempt"] for session in sessions]
    findings.fault(attempts != [1, 2, 3], f"sessions in the order {attempts}")
    outcomes = [session["outcome"] for session in sessions]
    findings.fault(outcomes != ["lost", "signal", "signal"], f"sessions ended {outcomes}")
    findings.fault(run["state"] != "stopped", f"state {run['state']} after SIGTERM")
    findings.fault(run["step"] != lasts[2], f"step {run['step']}, of {lasts[2]}")
    restored = [session["first_step"] or 0 for session in sessions]
    findings.fault(restored != firsts, f"restored steps {restored}, of {firsts}")
    rewinds = [restart["rewind_steps"] for restart in restarts]
    true = [max(0, last - first) for last, first in zip(lasts[:2], firsts[1:], strict=True)]
    # Of a killed session the last steps may not be known, or up to ten are in its page alone: the process says
    # every tenth, and the latest summaries did not reach the disk.
    findings.fault(
        len(rewinds) != 2 or any(not -10 <= true - found <= 20 for true, found in zip(true, rewinds, strict=True)),
        f"rewinds {rewinds}, of {true}",
    )
    downtimes = [restart["downtime_secs"] for restart in restarts]
    # A clock that was set forward looks like a machine that was off; one that was set back does not.
    most = [60.0 + max(0.0, later - earlier) for earlier, later in pairwise(offs)]
    right = len(downtimes) == 2 and all(0 <= (secs or 0) < limit for secs, limit in zip(downtimes, most, strict=True))
    findings.fault(not right, f"downtimes of {downtimes} s")


_SETTINGS = (
    Setting("clock set back an hour between sessions", first=HOUR),
    Setting("clock set forward an hour between sessions", first=-HOUR),
    Setting("clock back, then forward again", second=-HOUR),
    Setting("clock forward, then back again", second=HOUR),
    Setting("clock set back an hour within a session", jump=-HOUR),
    Setting("clock set forward an hour within a session", jump=HOUR),
)
FAULTS = tuple(
    Fault(
        name=setting.name,
        survived="resumes at the newest whole checkpoint; order, states, step, rewind and downtime are right",
        long=20,
        short=1,
        quick=1 if setting.name == "clock set back an hour between sessions" else 0,
        run=partial(_set, setting=setting),
    )
    for setting in _SETTINGS
)
