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
from benchmarks.faults.syscalls import Strike, may_strike
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

STEP_SECS = 0.1
SEEN_WITHIN_SECS = 10.0
TIMES_BUDGET = 1.5
GIVE_UP_SECS = 45.0
SERVICE_BUDGET_SECS = 4.0
DUMPS = 1000


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
        seen, secs = _await_stall(training, logdir, hung, from_outside=kind == "gil")
        if seen is None:
            findings.wrong.append(f"not seen within {GIVE_UP_SECS:g} s{training.story()}")
        else:
            limit = SEEN_WITHIN_SECS * trial.patience
            findings.fault(secs > limit, f"seen only after {secs:.1f} s")
            timeout_secs = seen["timeout_secs"]
            late = timeout_secs is not None and secs > TIMES_BUDGET * trial.patience * timeout_secs + STEP_SECS
            findings.fault(late, f"seen after {secs:.1f} s, with a hang timeout of {timeout_secs:.1f} s")
            lines = hanging.lines_of(kind)
            found = Path((seen["location"] or "").partition(" ")[0]).name
            findings.fault(found not in lines, f"location {seen['location']!r}, not {' or '.join(sorted(lines))}")
        trial.close()
        yield findings.outcome(secs)


def _await_stall(
    training: Process, logdir: Path, hung: float, from_outside: bool
) -> tuple[dict[str, Any] | None, float]:
    """Return the stall and when it was seen first: its record, or, of a blocked interpreter, what ``inspect`` shows.

    From outside the line comes some seconds after that: it is waited for.
    """
    seen, secs = None, GIVE_UP_SECS
    while (passed := time.monotonic() - hung) < GIVE_UP_SECS:
        training.listen(0.1)
        if not from_outside:
            found = truth.events(truth.events_files(logdir)).of_kind("stall")
        else:
            found = stalls(logdir) if passed > 3.0 else []
        if found:
            seen, secs = found[0], min(secs, time.monotonic() - hung)
            if not from_outside or seen["location"] is not None:
                break
    return seen, secs


def stalls(logdir: Path) -> list[dict[str, Any]]:
    """Return the stalls that ``tb-supervisor inspect`` shows of a run."""
    code = "from supervisor_core.cli import main; main()"
    command = [sys.executable, "-c", code, "inspect", "--json", str(logdir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    [run] = json.loads(done.stdout)["runs"]
    found: list[dict[str, Any]] = run["stalls"]
    return found


def _service(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Let each write of a checkpoint hang, as on a mount that is dead: the hung save is seen, and training goes on."""
    for number in range(trials):
        logdir, armed = trial.directory / f"run-{number}", trial.directory / f"armed-{number}"
        strike = Strike(
            below=str(logdir),
            names=r"model\.ckpt",
            act="hang",
            at=trial.rng.randint(1, 10),
            secs=1e6,
            armed_by=str(armed),
        )
        options = {"hang_timeout_secs": {"checkpointing": SERVICE_BUDGET_SECS}}
        training = trial.train(logdir, struck=strike, options=options, pause_secs=0.05, save_secs=0.2)
        training.until("step")
        armed.touch()
        training.until("struck")
        hung, step = time.monotonic(), training.last("step") or 0
        found: list[dict[str, Any]] = []
        while not found and time.monotonic() < hung + GIVE_UP_SECS:
            training.listen(0.1)
            found = truth.events(truth.events_files(logdir)).of_kind("stall")
        secs = time.monotonic() - hung
        findings = Findings()
        limit = TIMES_BUDGET * SERVICE_BUDGET_SECS * trial.patience
        findings.fault(not found or secs > limit, f"seen after {secs:.1f} s{training.story()}")
        findings.fault(bool(found) and not found[0]["service"], f"not called a service's: {found[:1]}")
        frames = [frame for stack in (found[0]["stacks"] if found else {}).values() for frame in stack]
        findings.fault(not any("checkpoint_writer.py" in frame for frame in frames), "no stack of the save")
        findings.fault((training.last("step") or 0) <= step, f"training does not go on{training.story()}")
        trial.close()
        yield findings.outcome(secs)


def _dump(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Take a thousand stacks of a process whose threads are busy: it must not crash."""
    for number in range(trials):
        file = trial.directory / f"dumps-{number}"
        dumping = trial.start("dumping", {"file": str(file), "dumps": DUMPS})
        findings = Findings()
        status = dumping.wait()
        findings.fault(status != 0, f"ended with {status}{dumping.story()}")
        findings.fault(dumping.last("dumped") != DUMPS, f"{dumping.last('dumped')} of {DUMPS} were taken")
        file.unlink(missing_ok=True)
        yield findings.outcome()


_KINDS = (
    ("gil", "native code that holds the interpreter's lock"),
    ("native", "a run of TensorFlow's that does not return"),
    ("lock", "a lock that is never released"),
    ("busy", "a loop in Python"),
    ("sleep", "a sleep"),
    ("read", "a read of a FIFO to which no process writes"),
    ("child", "a worker process that never answers"),
)
FAULTS = (
    *(
        Fault(
            name=f"a step hangs: {name}",
            survived=f"seen within {SEEN_WITHIN_SECS:g} s and {TIMES_BUDGET:g} x the hang timeout, at the right line",
            long=20,
            short=0 if kind == "gil" else 1,
            run=partial(_hang, kind=kind),
        )
        for kind, name in _KINDS
    ),
    *(
        Fault(
            name="a save hangs: no write of a checkpoint returns",
            survived=f"seen within {TIMES_BUDGET:g} x the hang timeout, with the save's stack; training goes on",
            long=20,
            short=1,
            run=_service,
        )
        for _ in range(may_strike())
    ),
    Fault(
        name=f"{DUMPS} times the stacks of a process whose threads are busy (no TensorFlow)",
        survived="it does not crash, and all were taken",
        long=20,
        short=1,
        batch=20,
        run=_dump,
    ),
)
