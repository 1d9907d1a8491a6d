"""Two chiefs: one is suspended past its lock where there are no locks, another takes over, and the first wakes up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.faults import truth
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

_TIMEOUT_SECS = 0.3


def _zombie(trial: Trial, trials: int, facade: str) -> Iterator[Outcome]:
    """Suspend a chief at a random instant, have another publish, wake the first, and see what it does."""
    options = {"lease_timeout_secs": _TIMEOUT_SECS}
    floats = trial.rng.choice([64, 65536])
    for _ in range(trials):
        common: dict[str, Any] = {"facade": facade, "floats": floats, "options": options, "pause_secs": 0.005}
        before = truth.events_files(trial.logdir)
        first = trial.train(lockless_host="host-a", **common)
        first.until("ready")
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
        findings.fault(bool(grown), f"the chief that was taken over appended to its events: {grown} bytes")
        time.sleep(2 * _TIMEOUT_SECS)  # one that was killed has not let go
        third = trial.train(steps=1, lockless_host="host-c", facade=facade, floats=floats, options=options)
        at = int(third.until("ready")[0])
        third.wait()
        findings.lose(at < saved, f"rolled back: resumed at {at}, though {saved} had been reported saved ({ending})")
        on_disk = truth.checkpoints(trial.logdir)
        findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
        yield findings.outcome()


FAULTS = (
    Fault(
        name="chief suspended past its lock (no flock), another takes over, the first wakes up",
        survived="the first appends no record and ends; the next session resumes at the second's last checkpoint",
        long=160,
        short=32,
        quick=2,
        batch=4,
        run=lambda trial, trials: _zombie(trial, trials, "supervisor"),
    ),
    Fault(
        name="the same, MonitoredTrainingSession",
        survived="the same",
        long=40,
        short=8,
        batch=4,
        run=lambda trial, trials: _zombie(trial, trials, "monitored"),
    ),
)
