"""A child is forked in the middle of a training: whatever it does, it is no part of the run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.launcher import Process, TrialError
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

_CHILD_STATUS = {"raises": 1, "exits": 0, "leaves": 0}
_CRASH = -signal.SIGSEGV
"""How the interpreter ends in a forked child that comes to its end with a monitored session, TensorFlow's own too."""


def _fork(trial: Trial, trials: int, kind: str, facade: str) -> Iterator[Outcome]:
    """Train a hundred steps, and fork at the twentieth."""
    for number in range(trials):
        logdir = trial.directory / f"run-{number}"
        floats = trial.rng.choice([64, 65536])
        training = trial.train(logdir, facade=facade, fork=kind, steps=150, floats=floats, pause_secs=0.01)
        findings = Findings()
        if kind in _CHILD_STATUS:
            status = _status_of_child(training, findings)
            expected = (None, _CHILD_STATUS[kind], *([_CRASH] if facade == "monitored" else []))
            findings.fault(status not in expected, f"the child ended with {status}{training.story()}")
        if training.wait() != 0:
            findings.wrong.append(f"the parent failed{training.story()}")
        first = int(training.said[0][1])
        findings.lose(training.last("left") != first + 150, f"the last checkpoint is of step {training.last('left')}")
        events = truth.events(truth.events_files(logdir))
        stops = events.of_kind("stop")
        findings.fault(
            [(stop["reason"], stop["step"]) for stop in stops] != [("completed", first + 150)],
            f"stop records: {stops}",
        )
        findings.lose(sorted(events.losses) != list(range(first + 1, first + 151)), "events are gone, or there twice")
        _judge_next(trial, findings, training, logdir)
        yield findings.outcome()


def _status_of_child(training: Process, findings: Findings) -> int | None:
    """Return how the child ended, which its parent says; None where it hangs, which is noted."""
    training.until("forked")
    try:
        return int(training.until("child")[0])
    except TrialError as error:
        findings.wrong.append(f"the child hangs: {error}")
        return None


def _judge_next(trial: Trial, findings: Findings, training: Process, logdir: Path) -> None:
    """See that the logdir is free when the parent has ended, though a child may live."""
    next_one = trial.train(logdir, steps=1)
    try:
        resumed = int(next_one.until("ready")[0])
        findings.fault(resumed != training.last("left"), f"the next session resumes at {resumed}")
    except TrialError as error:
        findings.wrong.append(f"the next session does not start: {error}")
    next_one.kill(signal.SIGKILL)
    next_one.wait()


_SAME = "the parent trains on, completes and is saved; no record of the child; the logdir is free afterwards"
_KINDS = (
    ("raises", "a forked child raises in the block"),
    ("exits", "a forked child calls sys.exit(0) in the block"),
    ("leaves", "a forked child leaves the block"),
    ("stays", "a forked child outlives the training"),
    ("pool", "a multiprocessing pool (fork) in the loop"),
)
FAULTS = tuple(
    Fault(
        name=f"{name}, {title}",
        survived=_SAME,
        long=20,
        short=1,
        quick=1 if facade == "supervisor" and kind == "leaves" else 0,
        run=partial(_fork, kind=kind, facade=facade),
    )
    for facade, title in (("supervisor", "Supervisor"), ("monitored", "MonitoredTrainingSession"))
    for kind, name in _KINDS
)
