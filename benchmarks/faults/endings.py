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
from benchmarks.faults.launcher import Process, TrialError
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial
from benchmarks.faults.wrapped import FACADES, READY_STEP
from benchmarks.faults.wrappers import PROGRAM, STOP_SECS, saved_step
from supervisor_core.base.options import STOP_TIMEOUT_SECS

WAIT_SECS = 120.0
_PROGRAMS = {
    "Supervisor": "programs.graph_loop",
    "supervise": "programs.graph_loop",
    "torch for": "programs.torch_loop",
    "torch with": "programs.torch_loop",
}
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
    Ending("SIGTERM in an evaluation", "evaluates", _TERM, within_secs=STOP_TIMEOUT_SECS, status=-_TERM),
    Ending("SIGTERM as process 1", signum=_TERM, is_first=True, status=128 + _TERM),
)


def _ended(trial: Trial, trials: int, ending: Ending, facade: str) -> Iterator[Outcome]:
    """End one like this; look at the status, the checkpoints and the stop record."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        directory.mkdir(parents=True)
        at = READY_STEP + trial.rng.randrange(40) if ending.event else 0
        if not ending.is_first:
            asked = {
                "directory": str(directory),
                "facade": facade,
                "event": ending.event,
                "at": at,
            }
            yield _judged(trial, ending, facade, directory, trial.start(_PROGRAMS[facade], asked))
            continue
        with First([*NAMESPACE, *PROGRAM, str(directory), facade], directory / "log") as process:
            yield _judged(trial, ending, facade, directory, process)


class First:
    """The first process of a namespace, with what is asked of a `Process`; a context manager."""

    def __init__(self, command: list[str], log: Path) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment
            )
        self._log = log

    def __enter__(self) -> First:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def returncode(self) -> int | None:
        """The status of `unshare`, once it has ended."""
        return self._process.poll()

    def kill(self, signum: int) -> None:
        """Send a signal to the first process of the namespace."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signum)

    def wait(self, timeout_secs: float) -> int:
        """See `Process.wait`."""
        try:
            return self._process.wait(timeout_secs)
        except subprocess.TimeoutExpired as error:
            raise TrialError(f"it did not end within {timeout_secs:g} s{self.story()}") from error

    def story(self) -> str:
        """See `Process.story`."""
        return f" ({' / '.join(self._log.read_text(errors='replace').splitlines()[-3:])})"


def _judged(trial: Trial, ending: Ending, facade: str, directory: Path, process: Process | First) -> Outcome:
    secs, findings = ending.within_secs * trial.patience, Findings()
    _await(directory / "processes", process)
    before = saved_step(directory / "run", facade) if ending.signum is None else 0
    sent = time.monotonic()
    if ending.signum is not None:
        time.sleep(trial.rng.uniform(0.0, 0.2))
        sent = time.monotonic()
        process.kill(ending.signum)
    status = process.wait(WAIT_SECS)
    took, story = time.monotonic() - sent, process.story()
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


def _await(path: Path, process: Process | First) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not path.exists():
        if process.returncode is not None or time.monotonic() > deadline:
            raise TrialError(f"it has not come to its step{process.story()}")
        time.sleep(0.005)


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
