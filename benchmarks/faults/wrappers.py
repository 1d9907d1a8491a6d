"""A stop signal to ``tb-supervisor run`` whose training was started by a shell, a pipeline or another wrapper."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.restarts import Supervised
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

STOP_SECS, SLACK_SECS = 5.0, 1.5
SCRIPTS = {
    "./train.sh": "{}\necho done\n",
    "./train.sh with exec": "exec {}\n",
    "./train.sh with a trap": "trap 'echo cleaning up' TERM INT\n{}\necho done\n",
    "./train.sh with a trap that passes it on": "trap 'kill -TERM $!' TERM INT\n{} &\nwait $!\n",
    "./start.sh, in the background": "{} &\n",
}
STATUSES = {
    "./train.sh with a trap that passes it on": {signal.SIGTERM: 143, signal.SIGINT: 130},
}
"""Those that the script itself ends with; in all other cases the end is the signal."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
PROGRAM = (sys.executable, "-W", "ignore", "-m", "benchmarks.faults.wrapped")


def command(wrapper: str, directory: Path, facade: str) -> list[str]:
    """Return the command that starts a training in a wrapper."""
    program = [*PROGRAM, str(directory), facade]
    line = shlex.join(program)
    if (text := SCRIPTS.get(wrapper)) is not None:
        script = directory / "train.sh"
        script.write_text("#!/bin/bash\n" + text.format(line))
        script.chmod(0o755)
        return [str(script)]
    if wrapper == "timeout":
        return ["timeout", "600", *program]
    tail = "; echo done" if wrapper == "bash -c" else f" | tee {shlex.quote(str(directory / 'tee'))}"
    return ["bash", "-c", line + tail]


def sealed_step(manifest: Path) -> int:
    """Return the step of a sealed checkpoint; -1 if a file that its manifest names is missing, or of another size."""
    try:
        seal = json.loads(manifest.read_text())
        is_whole = all((manifest.parent / name).stat().st_size == size for name, size, _ in seal["files"])
    except FileNotFoundError:  # or it is being deleted
        return -1
    return int(seal["counters"]["step"]) if is_whole else -1


def saved_step(logdir: Path, facade: str) -> int:
    """Return the step of the newest whole checkpoint; 0 without one."""
    if facade == "Supervisor":
        return max(truth.checkpoints(logdir).whole, default=0)
    found = logdir.glob("checkpoints/ckpt-*/supervisor-manifest.json")
    return max((sealed_step(path) for path in found if path.parent.name[5:].isdigit()), default=0)


def _stopped(trial: Trial, trials: int, wrapper: str, facade: str) -> Iterator[Outcome]:
    """Stop it by SIGTERM and SIGINT in turn: the last step is saved, and the end is the signal's."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        directory.mkdir(parents=True)
        findings, signum = Findings(), SIGNALS[number % 2]
        secs = STOP_SECS * trial.patience
        options = ("--stop-timeout", f"{2 * secs:g}s")
        with Supervised(directory, command(wrapper, directory, facade), *options, interpreter=()) as restarter:
            restarter.await_started(1)
            time.sleep(trial.rng.uniform(0.0, 0.2))
            sent = time.monotonic()
            os.kill(restarter.pid, signum)
            status = restarter.wait()
            took = time.monotonic() - sent
            expected = STATUSES.get(wrapper, {}).get(signum, -signum)
            findings.fault(status != expected, f"{signum.name}: ended with {status}, not {expected}{restarter.story()}")
            late = took > secs + SLACK_SECS
            findings.fault(late, f"{signum.name}: ended after {took:.1f} s{restarter.story()}")
        done = int((directory / "steps").read_text())
        saved = saved_step(directory / "run", facade)
        findings.lose(saved < done, f"{signum.name}: step {done} was done, {saved} is saved{restarter.story()}")
        stops = truth.events(truth.events_files(directory / "run")).of_kind("stop")
        reasons = [stop["reason"] for stop in stops]
        findings.fault(reasons != ["signal"], f"{signum.name}: stop records: {reasons}")
        yield findings.outcome(took)


def _fault(wrapper: str, facade: str, long: int, needs: str | None = None) -> Fault:
    return Fault(
        name=f"{wrapper}, {facade}",
        survived=f"the last step is saved; the end is the signal's within {STOP_SECS:g} s (+ {SLACK_SECS:g} s); a stop "
        "record names the signal",
        long=long,
        short=2,
        batch=20,
        run=partial(_stopped, wrapper=wrapper, facade=facade),
        needs=needs,
    )


FAULTS = (
    *(_fault(wrapper, "supervise", 20) for wrapper in ("bash -c", "| tee", "timeout", *SCRIPTS)),
    *(_fault(wrapper, "Supervisor", 20) for wrapper in ("bash -c", "| tee")),
    *(_fault(wrapper, "torch for", 20, "torch") for wrapper in ("bash -c", "| tee")),
)
