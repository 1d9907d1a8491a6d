"""SIGTERM and SIGINT, once and twice: to loops that ask whether to stop, that never ask, that hang, on a full disk."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.small_disk import SmallDisk
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

GRACE_SECS = 5.0
SLACK_SECS = 1.5
"""What a loaded machine may take to run, and to see, the end of a process."""


@dataclass(frozen=True)
class Ending:
    """A row: what is sent, to what kind of loop, and what must come of it."""

    name: str
    signum: signal.Signals
    loop: str = "asks"
    again: bool = False
    """A second signal, a second after the first, if the process has not ended by then."""
    full: bool = False
    """The disk is full from just before the signal on."""
    saves: bool = True
    """Whether the last step must be saved; if not, the newest checkpoint stays."""
    within_secs: float = GRACE_SECS
    """How long it may take from the last signal on; with clean-up, until that runs: then the interpreter takes a second
    or two for TensorFlow's own end."""
    cleans_up: bool = False
    """Whether the program's own clean-up must run."""
    facade: str = "supervisor"

    @property
    def survived(self) -> str:
        """What it means that one was survived."""
        end = "the program's clean-up ran" if self.cleans_up else "the process ended"
        parts = [f"{end} within {self.within_secs:g} s (+ {SLACK_SECS:g} s)", "the status is the signal's"]
        parts.append("the last step is saved" if self.saves else "the newest checkpoint stays")
        if not self.full:
            parts.append("a stop record names the signal")
        return "; ".join(parts)


def _send(trial: Trial, trials: int, ending: Ending) -> Iterator[Outcome]:
    """Send the signals, and look at the status, the time, the checkpoints and the stop record."""
    for number in range(trials):
        with SmallDisk(trial.directory / f"disk-{number}") as disk:
            yield _sent(trial, disk, ending)
            trial.close()


def _sent(trial: Trial, disk: SmallDisk, ending: Ending) -> Outcome:
    logdir = disk.path / "run"
    options = {"stop_timeout_secs": GRACE_SECS * trial.patience}
    interval = 3600 if ending.saves else 0.1  # where the last save counts, no other one helps
    training = trial.train(
        logdir, facade=ending.facade, loop=ending.loop, options=options, save_secs=interval,
        resource=trial.rng.random() < 0.5,
    )  # fmt: skip
    training.until("hangs" if ending.loop == "hangs" else "ready")
    while not truth.checkpoints(logdir).whole:
        training.listen(0.2)
    training.listen(trial.rng.uniform(0.3, 1.0))
    if ending.full:
        disk.fill(training)
    kept, at_signal = truth.named_step(logdir), training.last("step") or 0
    sent = time.monotonic()
    training.kill(ending.signum)
    if ending.again:
        training.listen(1.0)
        sent = sent if training.returncode is not None else time.monotonic()
        training.kill(ending.signum)
    findings = Findings()
    status = training.wait()
    secs = (training.said_at.get("cleaned", time.monotonic()) if ending.cleans_up else time.monotonic()) - sent
    findings.fault(status != -ending.signum, f"ended with {status}{training.story()}")
    late = secs - (ending.within_secs + SLACK_SECS) * trial.patience
    findings.fault(late > 0, f"ended after {secs:.1f} s, {late:.1f} s too late")
    unclean = ending.cleans_up and ["cleaned"] not in training.said
    findings.fault(unclean, f"the program's clean-up did not run{training.story()}")
    on_disk = truth.checkpoints(logdir)
    findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
    newest = on_disk.whole[-1] if on_disk.whole else -1
    findings.fault(on_disk.named != newest, f"the state file names {on_disk.named}, the newest is {newest}")
    if ending.saves:
        findings.lose(newest < at_signal, f"the newest checkpoint is {newest}; the signal came after step {at_signal}")
    else:
        findings.lose(newest < (kept or 0), f"checkpoint {kept} is gone")
    if not ending.full:
        _judge_record(findings, logdir, ending, newest)
    return findings.outcome(secs)


def _judge_record(findings: Findings, logdir: Path, ending: Ending, newest: int) -> None:
    stops = truth.events(truth.events_files(logdir)).of_kind("stop")
    found = [(stop["reason"], stop["signal"], stop["final_checkpoint_step"]) for stop in stops]
    finals = [newest] if ending.saves else [newest, None]
    expected = [[("signal", ending.signum.name, final)] for final in finals]
    findings.fault(found not in expected, f"stop records: {found}, expected one of {expected}")


_TERM, _INT = signal.SIGTERM, signal.SIGINT
ENDINGS = (
    Ending("SIGTERM, the loop asks", _TERM),
    Ending("SIGTERM, the loop asks, MonitoredTrainingSession", _TERM, facade="monitored"),
    Ending("SIGTERM, the loop never asks", _TERM, "never"),
    Ending("SIGTERM, a run hangs", _TERM, "hangs"),
    Ending("SIGTERM, the disk is full", _TERM, full=True, saves=False),
    Ending("SIGTERM, the disk is full and the loop never asks", _TERM, "never", full=True, saves=False),
    Ending("SIGTERM twice, a run hangs", _TERM, "hangs", again=True, saves=False, within_secs=1.0),
    Ending("SIGTERM twice, the disk is full", _TERM, again=True, full=True, saves=False, within_secs=1.0),
    Ending("SIGINT, the loop asks", _INT, cleans_up=True),
    Ending("SIGINT, the loop asks, MonitoredTrainingSession", _INT, cleans_up=True, facade="monitored"),
    Ending("SIGINT, the loop never asks", _INT, "never", cleans_up=True),
    Ending("SIGINT, a run hangs", _INT, "hangs"),
    Ending("SIGINT, the disk is full", _INT, full=True, saves=False, cleans_up=True),
    Ending("SIGINT twice, a run hangs", _INT, "hangs", again=True, saves=False, within_secs=1.0),
)
_QUICK = ("SIGTERM, the loop asks", "SIGTERM, the loop never asks", "SIGINT, the loop never asks")
FAULTS = tuple(
    Fault(
        name=ending.name,
        survived=ending.survived,
        long=20,
        short=1,
        quick=1 if ending.name in _QUICK else 0,
        run=partial(_send, ending=ending),
    )
    for ending in ENDINGS
)
