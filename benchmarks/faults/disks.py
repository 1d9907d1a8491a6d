"""The disk is full for a while: training goes on, and what could not be written is written when there is room."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.launcher import HANG_SECS, Process, TrialError
from benchmarks.faults.small_disk import SmallDisk
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

_OPTIONS = {"retry_initial_secs": 0.1, "retry_max_secs": 0.5}


def _fill(trial: Trial, trials: int, facade: str, kill: bool = False) -> Iterator[Outcome]:
    """Fill the disk under a training at a random instant, for a while; then make room, or kill it first."""
    for number in range(trials):
        with SmallDisk(trial.directory / f"disk-{number}") as disk:
            logdir = disk.path / "run"
            floats = trial.rng.choice([64, 65536])
            training = trial.train(
                logdir, facade=facade, floats=floats, save_secs=0.1, options=_OPTIONS, pause_secs=0.005, keep=3
            )
            training.until("ready")
            _await_save(training, logdir, 0)
            training.listen(trial.rng.uniform(0.0, 0.3))
            disk.fill(training)
            findings = Findings()
            started = training.last("step") or 0
            training.listen(trial.rng.uniform(0.5, 2.0))
            findings.fault(training.returncode is not None, f"training ended{training.story()}")
            findings.fault((training.last("step") or 0) <= started, "training does not go on while the disk is full")
            if kill:
                training.kill(signal.SIGKILL)
                training.wait()
                disk.free(training)
                _judge_killed(trial, findings, logdir, facade, floats)
            else:
                disk.free(training)
                _judge_healed(findings, training, logdir)
            trial.close()
        yield findings.outcome()


def _await_save(training: Process, logdir: Path, after: int) -> None:
    """Wait until the state file names a later step."""
    deadline = time.monotonic() + HANG_SECS
    while (truth.named_step(logdir) or -1) <= after:
        if time.monotonic() > deadline:
            raise TrialError(f"no checkpoint after step {after} within {HANG_SECS:g} s{training.story()}")
        training.until("step")


def _judge_healed(findings: Findings, training: Process, logdir: Path) -> None:
    """With room again, checkpoints are saved and every event is there."""
    _await_save(training, logdir, training.last("step") or 0)
    training.kill(signal.SIGTERM)
    findings.fault(training.wait() != -signal.SIGTERM, f"ended with {training.returncode}{training.story()}")
    events = truth.events(truth.events_files(logdir))
    flushed = training.last("flushed") or 0
    missing = set(range(1, flushed + 1)) - set(events.losses)
    findings.lose(bool(missing), f"{len(missing)} of {flushed} events are gone")
    errors = [record["error"] for record in events.of_kind("checkpoint") if record["error"]]
    findings.fault(not errors, "no record says that a save failed")
    on_disk = truth.checkpoints(logdir)
    findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
    last = training.last("step") or 0
    findings.lose(not on_disk.whole or on_disk.whole[-1] < last, f"newest is {on_disk.whole[-1:]}, the last {last}")
    findings.fault(len(on_disk.whole) > 3, f"checkpoints are left behind: {on_disk.whole}")


def _judge_killed(trial: Trial, findings: Findings, logdir: Path, facade: str, floats: int) -> None:
    """Killed while the disk was full, it resumes at what was whole."""
    on_disk = truth.checkpoints(logdir)
    findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
    next_one = trial.train(logdir, facade=facade, floats=floats, steps=2)
    first = int(next_one.until("ready")[0])
    findings.fault(first not in on_disk.resumable, f"resumed at {first}, not at one of {on_disk.resumable}")
    findings.fault(next_one.wait() != 0, f"ended with {next_one.returncode}{next_one.story()}")


_HEALED = "training goes on; with room again all events are written and checkpoints saved; a failed save is recorded"
FAULTS = (
    Fault(
        name="disk full for a while, Supervisor",
        survived=_HEALED,
        long=20,
        short=4,
        quick=1,
        run=lambda trial, trials: _fill(trial, trials, "supervisor"),
    ),
    Fault(
        name="disk full for a while, MonitoredTrainingSession",
        survived="the same",
        long=20,
        short=2,
        run=lambda trial, trials: _fill(trial, trials, "monitored"),
    ),
    Fault(
        name="disk full, then kill -9",
        survived="the next session resumes at the newest whole checkpoint",
        long=20,
        short=2,
        run=lambda trial, trials: _fill(trial, trials, "supervisor", kill=True),
    ),
)
