"""Endings with each facade: an exception and ``sys.exit(3)`` in the loop, SIGHUP, SIGQUIT, SIGTERM in an evaluation and
as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.launcher import TrialError
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial
from benchmarks.faults.wrapped import FACADES, READY_STEP
from benchmarks.faults.wrappers import PROGRAM, STOP_SECS, saved_step
from supervisor_core.options import Options

WAIT_SECS = 120.0
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass(frozen=True)
class Ending:
    """What is done, and what must come of it."""

    name: str
    event: str = ""
    signum: signal.Signals | None = None
    is_first: bool = False
    """Whether it is the first process of a namespace."""
    within_secs: float = STOP_SECS
    status: int = 0
    reason: str = "signal"

    @property
    def survived(self) -> str:
        """What it means that one was survived."""
        if self.signum is None:
            return f"status {self.status}; a stop record with the error; no checkpoint after it, the one before stays"
        status = f"status {self.status}" if self.is_first else "the end is the signal's"
        return f"{status} within {self.within_secs:g} s; the last step is saved; a stop record names the signal"


_TERM = signal.SIGTERM
ENDINGS = (
    Ending("an exception in the loop", "raises", status=1, reason="error"),
    Ending("sys.exit(3) in the loop", "exits", status=3, reason="error"),
    Ending("SIGHUP", signum=signal.SIGHUP, status=-signal.SIGHUP),
    Ending("SIGQUIT", signum=signal.SIGQUIT, status=-signal.SIGQUIT),
    Ending("SIGTERM in an evaluation", "evaluates", _TERM, within_secs=Options().signal_grace_secs, status=-_TERM),
    Ending("SIGTERM as process 1", signum=_TERM, is_first=True, status=128 + _TERM),
)


def _ended(trial: Trial, trials: int, ending: Ending, facade: str) -> Iterator[Outcome]:
    """End one like this; look at the status, the checkpoints and the stop record."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        directory.mkdir(parents=True)
        at = READY_STEP + trial.rng.randrange(40)
        event = (ending.event, str(at)) if ending.event else ()
        command = [*(NAMESPACE if ending.is_first else ()), *PROGRAM, str(directory), facade, *event]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        with open(directory / "log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            yield _judged(trial, ending, facade, directory, process)
        finally:
            process.kill()
            process.wait()


def _judged(trial: Trial, ending: Ending, facade: str, directory: Path, process: subprocess.Popen[bytes]) -> Outcome:
    secs, findings = ending.within_secs * trial.patience, Findings()
    _await(directory / "processes", process, directory)
    before = saved_step(directory / "run", facade) if ending.signum is None else 0
    sent = time.monotonic()
    if ending.signum is not None:
        time.sleep(trial.rng.uniform(0.0, 0.2))
        sent = time.monotonic()
        os.kill(_child(process.pid) if ending.is_first else process.pid, ending.signum)
    try:
        status: int | None = process.wait(WAIT_SECS)
    except subprocess.TimeoutExpired:
        status = None
    took = time.monotonic() - sent
    story = " / ".join((directory / "log").read_text(errors="replace").splitlines()[-3:])
    findings.fault(status != ending.status, f"ended with {status}, not {ending.status} ({story})")
    done, saved = int((directory / "steps").read_text()), saved_step(directory / "run", facade)
    events = truth.events(truth.events_files(directory / "run"))
    if ending.signum is None:
        findings.lose(saved < before, f"step {before} was saved, the newest is {saved}")
        finals = [save["step"] for save in events.of_kind("checkpoint") if save["trigger"] in ("final", "signal")]
        findings.fault(bool(finals), f"saved after the error: {finals}")
    else:
        findings.fault(took > secs, f"ended after {took:.1f} s ({story})")
        findings.lose(saved < done, f"step {done} was done, {saved} is saved ({story})")
    reasons = [stop["reason"] for stop in events.of_kind("stop")]
    findings.fault(reasons != [ending.reason], f"stop records: {reasons}")
    return findings.outcome(took if ending.signum is not None else None)


def _await(path: Path, process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TrialError(f"it has not come to its step: {(directory / 'log').read_text(errors='replace')[-500:]}")
        time.sleep(0.005)


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


FAULTS = tuple(
    Fault(
        name=f"{ending.name}, {facade}",
        survived=ending.survived,
        long=20,
        short=1,
        batch=10,
        needs="torch" if facade.startswith("torch") else None,
        starts_with=NAMESPACE if ending.is_first else (),
        run=partial(_ended, ending=ending, facade=facade),
    )
    for ending in ENDINGS
    for facade in FACADES
)
