"""Each change of a file in turn fails: once, or together with all that follow for a while."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.faults import truth
from benchmarks.faults.kills import judge_resume
from benchmarks.faults.launcher import Process
from benchmarks.faults.syscalls import Strike, counted, may_strike
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

SKIPPED = None if may_strike() else "not here: no seccomp filter that reports calls"
_OPTIONS = {"retry_initial_secs": 0.05, "retry_max_secs": 0.2}
_STEPS = 120


@dataclass(frozen=True)
class Failure:
    """A row: which error, and for how long."""

    error: int
    secs: float | None
    facade: str = "supervisor"
    by_process: bool = False

    @property
    def name(self) -> str:
        """What the row is called."""
        how = "once" if self.secs is None else f"for {self.secs:g} s"
        facade = "" if self.facade == "supervisor" else ", MonitoredTrainingSession"
        process = ", the saver process writes" if self.by_process else ""
        return f"{errno.errorcode[self.error]} {how}, at each change of a file in turn{facade}{process}"


def _fail(trial: Trial, trials: int, failure: Failure) -> Iterator[Outcome]:
    """Train a run in sessions, in each of which one change fails; each is judged by its files and by the next one."""
    common: dict[str, Any] = {
        "facade": failure.facade,
        "by_process": failure.by_process,
        "resource": trial.rng.random() < 0.5,
        "floats": trial.rng.choice([64, 4096]),
        "keep": 3,
        "steps": _STEPS,
        "pause_secs": 0.005,
        "options": _OPTIONS,
    }
    count = trial.directory / "count"
    trial.train(struck=Strike(below=str(trial.logdir), count_file=str(count)), **common).wait()
    calls, done = max(20, counted(count)), 0
    newest = reported = truth.checkpoints(trial.logdir).whole[-1]
    while done < trials:
        before = truth.events_files(trial.logdir)
        # Half of them among the calls of the start, of which there are fewer than of the saves.
        at = trial.rng.randint(1, calls if trial.rng.random() < 0.5 else min(calls, 40))
        strike = Strike(below=str(trial.logdir), at=at, error=failure.error, secs=failure.secs)
        training = trial.train(struck=strike, **common)
        training.wait()
        struck = next((line for line in training.said if line[0] == "struck"), None)
        findings = Findings()
        _judge(findings, training, failure, newest, reported)
        written = truth.events(path for path in truth.events_files(trial.logdir) if path not in before)
        _judge_events(findings, training, written)
        on_disk = truth.checkpoints(trial.logdir)
        findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
        newest = on_disk.whole[-1] if on_disk.whole else 0
        if training.returncode == 0:
            findings.lose(newest < (training.last("step") or 0), f"the newest is {newest}{training.story()}")
        reported = max([reported, *written.saved])
        findings.wrong[:] = [f"{text} (failed: {struck})" for text in findings.wrong]
        if struck is None and findings.outcome().survived:
            continue  # there were fewer calls: no trial
        done += 1
        if done == trials:
            last = trial.train(**common | {"steps": 2})
            judge_resume(findings, last, int(last.until("ready")[0]), newest, reported)
            last.wait()
        yield findings.outcome()


def _judge(findings: Findings, training: Process, failure: Failure, newest: int, reported: int) -> None:
    """A session trains to its end, unless it was refused at its start by an error that names the cause."""
    first = training.last("ready")
    unsynced = [" ".join(words) for word, *words in training.said if word == "unsynced"]
    cause = os.strerror(failure.error)
    findings.fault(any(cause not in text for text in unsynced), f"closing the program's own writer raised {unsynced}")
    if first is not None:
        judge_resume(findings, training, first, newest, reported)
        findings.fault(training.returncode != 0, f"training ended with {training.returncode}{training.story()}")
        return
    text = training.errors.read_text(errors="replace")
    refused = training.returncode == 1 and cause in text
    findings.fault(not refused, f"the start ended with {training.returncode}, without {cause!r}{training.story()}")


def _judge_events(findings: Findings, training: Process, written: truth.Events) -> None:
    first, flushed = training.last("ready"), training.last("flushed")
    if first is None or flushed is None:
        return
    missing = sorted(set(range(first + 1, flushed + 1)) - set(written.losses))
    findings.lose(bool(missing), f"{len(missing)} events are gone, the first of step {missing[:1]}")


_ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.ESTALE)
FAILURES = (
    *(Failure(error, secs) for error in _ERRORS for secs in (None, 0.5)),
    Failure(errno.EIO, None, "monitored"),
    Failure(errno.ENOSPC, 0.5, "monitored"),
    Failure(errno.ENOSPC, 0.5, by_process=True),
    Failure(errno.EIO, None, by_process=True),
)
_SURVIVED = "all steps are done, all events and the last step are saved; or the start is refused, with the cause"
_OWN_WRITER = "; closing the program's own writer may raise that a sync failed, with the cause"
FAULTS = tuple(
    Fault(
        name=failure.name,
        survived=_SURVIVED + (_OWN_WRITER if failure.facade == "monitored" else ""),
        long=200,
        short=3,
        quick=1 if failure == FAILURES[0] else 0,
        batch=20,
        run=partial(_fail, failure=failure),
    )
    for failure in FAILURES
)
