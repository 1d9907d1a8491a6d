"""Programs under ``tb-supervisor run``: what dies is started again at once, and no process outlives its launch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks.faults import hanging, restarted
from benchmarks.faults.launcher import TrialError
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

ORPHANS_SECS = 1.0
OWN_SHARE_SECS = 0.3
WAIT_SECS = 60.0
COMMAND = [sys.executable, "-c", "from supervisor_core.cli import main; main()", "run"]


class Supervised:
    """A ``tb-supervisor run``, or a peer of it, and its program's processes. A context manager that leaves none behind.

    Args:
        directory: for the run and the list of processes.
        program: the program's arguments, after the interpreter.
        options: the command's own.
        interpreter: what comes before them.
        peer: another command, which takes the program's arguments.
    """

    def __init__(
        self,
        directory: Path,
        program: list[str],
        *options: str,
        interpreter: tuple[str, ...] = (sys.executable,),
        peer: list[str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._list = directory / "processes"
        self.log = directory / "log"
        ours = [*COMMAND, "--logdir", str(directory / "run"), *options, "--", *interpreter]
        command = [*(ours if peer is None else peer), *program]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = self._process.pid

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for pid in [*self.children, *(pid for pid, _ in self.started)]:
            if runs(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @property
    def started(self) -> list[tuple[int, float]]:
        """The program's processes so far, with the monotonic time of their start."""
        lines = self._list.read_text().splitlines() if self._list.exists() else []
        return [(int(pid), float(at)) for pid, _, at in (line.partition(" ") for line in lines) if at]

    @property
    def children(self) -> list[int]:
        """The restarter's own children: the keeper."""
        with suppress(OSError):
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        return []

    def await_started(self, count: int) -> list[tuple[int, float]]:
        """Wait until that number of processes of the program have been started."""
        deadline = time.monotonic() + WAIT_SECS
        while len(self.started) < count:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise TrialError(f"{len(self.started)} of {count} processes were started{self.story()}")
            time.sleep(0.005)
        return self.started

    def wait(self, timeout_secs: float = WAIT_SECS) -> int | None:
        """Wait for the restarter's end; return its status, None if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_secs)
        return None

    def story(self) -> str:
        """Return the end of its log, for a report."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f" (status {self._process.poll()}; log: {' / '.join(line[-200:] for line in lines[-4:])})"


def runs(pid: int) -> bool:
    """Say whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def small(mode: str, directory: Path) -> list[str]:
    """Return the arguments of the small program."""
    return ["-m", "benchmarks.faults.restarted", str(directory), mode]


def _killed(trial: Trial, trials: int, which: str) -> Iterator[Outcome]:
    """Kill one process of four: within a second no other is left, or, of the program, all are new."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        findings = Findings()
        with Supervised(directory, small("stays", directory), "--max-backoff", "0.001") as restarter:
            processes = [pid for pid, _ in restarter.await_started(3)]
            keepers = restarter.children
            victim = {"restarter": restarter.pid, "keeper": keepers[0], "leader": processes[0]}[which]
            time.sleep(trial.rng.uniform(0.0, 0.05))
            os.kill(victim, signal.SIGKILL)
            killed = time.monotonic()
            left = [*processes, *(keepers if which == "restarter" else [])]
            while (left := [pid for pid in left if runs(pid)]) and time.monotonic() < killed + 10.0:
                time.sleep(0.002)
            secs = time.monotonic() - killed
            late = secs > ORPHANS_SECS * trial.patience
            findings.fault(late, f"{len(left) or 'some'} processes still ran {secs:.1f} s after {which} was killed")
            if which == "restarter":
                restarter.wait()
            else:
                restarter.await_started(4)
        yield findings.outcome(secs)


def _share(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Kill a program that makes progress: the time up to the start of the next one's interpreter is the restarter's."""
    directory, interpreter_secs = trial.directory / "run", _interpreter_secs()
    with Supervised(directory, small("stays", directory), "--max-backoff", "0.001", "--no-progress-limit", "1000",
                    "--identical-limit", "1000", "--restarts-per-hour", "1000") as restarter:  # fmt: skip
        for number in range(trials):
            processes = restarter.await_started(3 * (number + 1))
            findings = Findings()
            killed = time.monotonic()
            os.kill(processes[-3][0], signal.SIGKILL)
            secs = restarter.await_started(3 * (number + 1) + 1)[3 * (number + 1)][1] - killed
            own = secs - interpreter_secs
            late = own > OWN_SHARE_SECS * trial.patience
            findings.fault(late, f"the next launch began {own:.2f} s after the death, the interpreter's start left out")
            yield findings.outcome(own)


def _interpreter_secs() -> float:
    """Return how long the small program takes from its start until it writes its line; the least of some tries."""
    tries = []
    for _ in range(5):
        started = time.monotonic()
        code = "import time; from benchmarks.faults import restarted; print(time.monotonic())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        tries.append(float(done.stdout) - started)
    return min(tries)


def _loop(trial: Trial, trials: int) -> Iterator[Outcome]:
    """A program that crashes at once is given up, with the status for it."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        findings = Findings()
        with Supervised(directory, small("crashes", directory), "--max-backoff", "0.1") as restarter:
            status = restarter.wait()
            launches = len(restarter.started)
            findings.fault(status != 93, f"ended with {status}, not with 93{restarter.story()}")
            findings.fault(not 2 <= launches <= 4, f"{launches} launches of a program that always crashes")
        yield findings.outcome()


def _flaky(trial: Trial, trials: int) -> Iterator[Outcome]:
    """A program that crashes in each launch, and gets further in each, is never given up."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        findings = Findings()
        with Supervised(directory, small("flaky", directory), "--max-backoff", "0.1") as restarter:
            status = restarter.wait(2 * WAIT_SECS)
            launches = len(restarter.started)
            findings.fault(status != 0, f"ended with {status}{restarter.story()}")
            findings.lose(launches < restarted.LAUNCHES, f"given up after {launches} launches that made progress")
        yield findings.outcome()


def _hang(trial: Trial, trials: int, kind: str) -> Iterator[Outcome]:
    """A training that hangs is ended, after its stacks were taken, and started again."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        config = {"logdir": str(directory / "run"), "hang": kind, "pause_secs": 0.1, "save_secs": 5.0}
        program = ["-W", "ignore", "-m", "benchmarks.faults.training", json.dumps(config)]
        findings = Findings()
        with Supervised(directory, program, "--stop-timeout", "3s", "--hang-timeout", "6s") as restarter:
            deadline = time.monotonic() + 3 * WAIT_SECS
            while (text := restarter.log.read_text(errors="replace")).count(" started: process ") < 2:
                if time.monotonic() > deadline:
                    raise TrialError(f"no second launch{restarter.story()}")
                time.sleep(0.1)
            ended = [line for line in text.splitlines() if " hangs: " in line]
            findings.fault(not ended, f"the log does not say that it hung{restarter.story()}")
            paths = [Path(line.rpartition("stacks: ")[2].strip()) for line in ended if "stacks: " in line]
            stacks = "".join(path.read_text(errors="replace") for path in paths if path.is_file())
            found = "".join(ended) + re.sub(r'", line (\d+)', r":\1", stacks)  # as faulthandler writes a frame
            right = any(line in found for line in hanging.lines_of(kind))
            findings.fault(not right, f"no word of {hanging.lines_of(kind)}: {ended}, {stacks[-300:]}")
        yield findings.outcome()


FAULTS = (
    *(
        Fault(
            name=f"kill -9 of the {which}",
            survived=f"within {ORPHANS_SECS:g} s none of the program's processes is left{then}",
            long=long,
            short=5,
            batch=20,
            run=partial(_killed, which=which),
        )
        for which, then, long in (
            ("restarter", "", 400),
            ("keeper", "; it is started again", 300),
            ("leader", "; it is started again", 300),
        )
    ),
    Fault(
        name="restarted a hundred times: the restarter's own share",
        survived=f"at most {OWN_SHARE_SECS:g} s from the program's death to the next one's start",
        long=100,
        short=5,
        batch=100,
        run=_share,
    ),
    Fault(name="crash loop", survived="given up after three launches, with status 93", long=20, short=2, run=_loop),
    Fault(
        name="flaky, but it gets further each time",
        survived=f"never given up: after {restarted.LAUNCHES} launches it is done",
        long=20,
        short=1,
        run=_flaky,
    ),
    *(
        Fault(
            name=f"a training hangs ({name}) under tb-supervisor run",
            survived="stacks are taken, it is ended and started again; the log or its stacks name the line",
            long=20,
            short=0,
            run=partial(_hang, kind=kind),
        )
        for kind, name in (("gil", "the interpreter's lock is held"), ("lock", "a lock"))
    ),
)
