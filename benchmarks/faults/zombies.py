"""Two chiefs: one is suspended past its lock where there are no locks, another takes over, and the first wakes up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.faults import truth
from benchmarks.faults.launcher import TrialError
from benchmarks.faults.syscalls import Strike, may_strike
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

_TIMEOUT_SECS = 0.3


def _zombie(trial: Trial, trials: int, facade: str, placed: bool = False) -> Iterator[Outcome]:
    """Suspend a chief at a random instant, have another publish, wake the first, and see what it does.

    ``placed``: just before a change of a file, after the last look at the lock. That one change it may make.
    """
    options = {"lease_timeout_secs": _TIMEOUT_SECS}
    floats = trial.rng.choice([64, 65536])
    for _ in range(trials):
        common: dict[str, Any] = {"facade": facade, "floats": floats, "options": options, "pause_secs": 0.005}
        before = truth.events_files(trial.logdir)
        armed = trial.directory / "armed"
        armed.unlink(missing_ok=True)
        strike = Strike(below=str(trial.logdir), act="stop", at=trial.rng.randint(1, 60), armed_by=str(armed))
        first = trial.train(struck=strike if placed else None, lockless_host="host-a", **common)
        first.until("ready")
        if placed:
            armed.touch()
            first.until("struck")
        else:
            first.listen(trial.rng.uniform(0.05, 0.6))
            first.kill(signal.SIGSTOP)
        first_files = [path for path in truth.events_files(trial.logdir) if path not in before]
        first.listen(2 * _TIMEOUT_SECS)
        second = trial.train(lockless_host="host-b", **common)
        resumed = int(second.until("ready")[0])
        while (truth.named_step(trial.logdir) or 0) <= resumed:
            second.until("step")
        ending = trial.rng.choice(["trains on", "stopped", "killed"])
        if ending != "trains on":
            second.kill(signal.SIGTERM if ending == "stopped" else signal.SIGKILL)
            second.wait()
        sizes = {path: path.stat().st_size for path in first_files}
        first.kill(signal.SIGCONT)
        findings = Findings()
        status = first.wait()
        findings.fault(status == 0, "the chief that was taken over ended as if nothing had happened")
        if ending == "trains on":
            second.until("step")
            second.kill(signal.SIGTERM)
            second.wait()
        second_files = [path for path in truth.events_files(trial.logdir) if path not in (*before, *first_files)]
        saved = max(truth.events(second_files).saved, default=-1)
        grown = {path.name: path.stat().st_size - size for path, size in sizes.items() if path.stat().st_size != size}
        findings.fault(
            bool(grown) and not placed, f"the chief that was taken over appended to its events: {grown} bytes"
        )
        time.sleep(2 * _TIMEOUT_SECS)  # one that was killed has not let go
        third = trial.train(steps=1, lockless_host="host-c", facade=facade, floats=floats, options=options)
        at = int(third.until("ready")[0])
        third.wait()
        findings.lose(at < saved, f"rolled back: resumed at {at}, though {saved} had been reported saved ({ending})")
        on_disk = truth.checkpoints(trial.logdir)
        findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
        yield findings.outcome()


def _paused(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Suspend a chief past its lock while no other comes: it goes on as if nothing had been."""
    for number in range(trials):
        logdir = trial.directory / f"run-{number}"
        options = {"lease_timeout_secs": _TIMEOUT_SECS}
        training = trial.train(logdir, lockless_host="host-a", options=options, steps=150, pause_secs=0.005)
        training.until("step")
        training.listen(trial.rng.uniform(0.0, 0.4))
        training.kill(signal.SIGSTOP)
        time.sleep(trial.rng.uniform(1.0, 4.0) * _TIMEOUT_SECS)
        training.kill(signal.SIGCONT)
        findings = Findings()
        status = training.wait()
        findings.fault(status != 0, f"ended with {status}{training.story()}")
        events, on_disk = truth.events(truth.events_files(logdir)), truth.checkpoints(logdir)
        findings.lose(sorted(events.losses) != list(range(1, 151)), "events are gone, or there twice")
        findings.lose(on_disk.whole[-1:] != (150,), f"the newest checkpoint is {on_disk.whole[-1:]}")
        findings.fault(bool(events.of_kind("stall")), "a stall was recorded, though the process was stopped")
        yield findings.outcome()


def _second(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Start a second training in a logdir: it is refused, and the first goes on undisturbed."""
    first = trial.train(pause_secs=0.005)
    first.until("step")
    for _ in range(trials):
        second = trial.train()
        findings = Findings()
        try:
            second.until("ready")
            findings.wrong.append("a second training began in the same logdir")
            second.kill(signal.SIGKILL)
            second.wait()
        except TrialError:
            refused = second.returncode == 1 and "in use" in second.errors.read_text(errors="replace")
            findings.fault(not refused, f"the second one was not refused by name{second.story()}")
        first.until("step")
        yield findings.outcome()


FAULTS = (
    Fault(
        name="chief suspended past its lock (no flock), another takes over, the first wakes up",
        survived="the first appends no record and ends; the next session resumes at the second's last checkpoint",
        long=200,
        short=16,
        quick=2,
        batch=4,
        run=lambda trial, trials: _zombie(trial, trials, "supervisor"),
    ),
    Fault(
        name="the same, MonitoredTrainingSession",
        survived="the same",
        long=200,
        short=4,
        batch=4,
        run=lambda trial, trials: _zombie(trial, trials, "monitored"),
    ),
    *(
        Fault(
            name="chief suspended just before a change of a file, another takes over, the first wakes up",
            survived="the first makes that change at most, and ends; the next resumes at the second's last checkpoint",
            long=200,
            short=4,
            batch=4,
            run=lambda trial, trials: _zombie(trial, trials, "supervisor", placed=True),
        )
        for _ in range(may_strike())
    ),
    Fault(
        name="chief suspended past its lock, no other comes, it wakes up",
        survived="it goes on to its end; all events and the last step are saved; no stall is recorded",
        long=200,
        short=4,
        batch=4,
        run=_paused,
    ),
    Fault(
        name="a second training in the same logdir",
        survived="it is refused, by name; the first goes on",
        long=200,
        short=4,
        batch=10,
        run=_second,
    ),
)
