"""Killed at a placed instant: just before the k-th change of some file, or the k-th read of the restore."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.faults import truth
from benchmarks.faults.kills import judge_events, judge_resume
from benchmarks.faults.syscalls import Strike, may_strike
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

SKIPPED = None if may_strike() else "not here: no seccomp filter that reports calls"


@dataclass(frozen=True)
class Place:
    """A row: at which calls the process is killed."""

    name: str
    names: str = ""
    calls: tuple[str, ...] = ()
    reads: bool = False
    at_most: int = 40
    """The last call that is tried."""
    moment: str = "any"
    """``any``: while it trains and saves; ``end``: from SIGTERM on."""
    facade: str = "supervisor"


def _kill(trial: Trial, trials: int, place: Place) -> Iterator[Outcome]:
    """Kill a run again and again; each session is judged by where the next one resumes."""
    common: dict[str, Any] = {
        "facade": place.facade,
        "resource": trial.rng.random() < 0.5,
        "floats": trial.rng.choice([64, 4096, 65536]),
        "keep": 3,
    }
    first = trial.train(steps=20, **common)
    first.until("ready")
    first.wait()
    reported, done = max(truth.events(truth.events_files(trial.logdir)).saved, default=-1), 0
    newest = truth.checkpoints(trial.logdir).whole[-1]
    while done < trials:
        before = truth.events_files(trial.logdir)
        armed = trial.directory / f"armed-{done}"
        armed.unlink(missing_ok=True)
        strike = Strike(
            below=str(trial.logdir), names=place.names, calls=place.calls, reads=place.reads, act="kill",
            at=trial.rng.randint(1, place.at_most), armed_by=str(armed) if place.moment == "end" else None,
        )  # fmt: skip
        interval = 3600 if place.moment == "end" else 0.05
        training = trial.train(struck=strike, steps=400, save_secs=interval, **common)
        if place.moment == "end":
            training.until("step")
            armed.touch()
            training.kill(signal.SIGTERM)
        status = training.wait()
        findings = Findings()
        resumed = training.last("ready")
        if resumed is not None:
            judge_resume(findings, training, resumed, newest, reported)
        written = [path for path in truth.events_files(trial.logdir) if path not in before]
        judge_events(findings, training, written)
        reported = max([reported, *truth.events(written).saved])
        on_disk = truth.checkpoints(trial.logdir)
        findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
        newest = on_disk.whole[-1] if on_disk.whole else 0
        struck = next((line for line in training.said if line[0] == "struck"), None)
        if struck is None:
            expected = -signal.SIGTERM if place.moment == "end" else 0
            findings.fault(status != expected, f"ended with {status} without a strike{training.story()}")
            if findings.outcome().survived:
                continue  # there were fewer such calls: no trial
        last = trial.train(steps=2, save_secs=3600, **common)
        resumed = int(last.until("ready")[0])
        judge_resume(findings, last, resumed, newest, reported)
        findings.fault(last.wait() != 0, f"the next session ended with {last.returncode}{last.story()}")
        newest = reported = max(newest, *truth.checkpoints(trial.logdir).whole)
        findings.wrong[:] = [f"{text} (killed at {struck})" for text in findings.wrong]
        done += 1
        yield findings.outcome()


_CHECKPOINT = r"model\.ckpt"
_STATE = r"(^|/)checkpoint(\.tmp\w*)?$"
_OWN = r"(^|/)(\.supervisor|events\.|graph\.)"
_REMOVALS = ("unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2")
PLACES = (
    Place("killed at a write, sync or rename of a checkpoint's files", _CHECKPOINT),
    Place("killed at a change of the state file", _STATE, at_most=12),
    Place("killed at a removal or a rename of a checkpoint's file", _CHECKPOINT, _REMOVALS),
    Place("killed at a change of the start (lock, ledger, events, graph)", _OWN),
    Place("killed at a read of the restore", _CHECKPOINT, reads=True),
    Place("killed at a change of the ending, after SIGTERM", moment="end"),
    Place("killed at any change, MonitoredTrainingSession", at_most=80, facade="monitored"),
)
FAULTS = tuple(
    Fault(
        name=place.name,
        survived="all flushed events are there; the next session resumes at the newest whole checkpoint",
        long=200,
        short=4,
        quick=1 if number == 0 else 0,
        batch=20,
        run=partial(_kill, place=place),
    )
    for number, place in enumerate(PLACES)
)
