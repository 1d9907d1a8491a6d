"""kill -9 at a random instant: of a training, of its start, of the restore."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.launcher import Process
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial


def _kill(trial: Trial, trials: int, facade: str, by_process: bool = False) -> Iterator[Outcome]:
    """Kill a run again and again; each session is judged by where the next one resumes."""
    resource, floats = trial.rng.random() < 0.5, trial.rng.choice([64, 4096, 65536])
    findings, newest, reported = None, 0, -1
    for number in range(trials + 1):
        before = truth.events_files(trial.logdir)
        training = trial.train(facade=facade, resource=resource, floats=floats, by_process=by_process)
        early = number not in (0, trials) and trial.rng.random() < 0.2
        if early:
            training.listen(trial.rng.uniform(0.0, 0.3))
        else:
            first = int(training.until("ready")[0])
            if findings is not None:
                judge_resume(findings, training, first, newest, reported)
                yield findings.outcome()
            if number == trials:
                return
            training.listen(trial.rng.uniform(0.0, 0.6))
        if early and findings is not None:
            yield from _judged_early(findings, training, newest, reported)
        training.kill(signal.SIGKILL)
        training.wait()
        findings = Findings()
        written = [path for path in truth.events_files(trial.logdir) if path not in before]
        judge_events(findings, training, written)
        reported = max([reported, *truth.events(written).saved])
        on_disk = truth.checkpoints(trial.logdir)
        findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
        newest = on_disk.whole[-1] if on_disk.whole else 0


def _judged_early(findings: Findings, training: Process, newest: int, reported: int) -> Iterator[Outcome]:
    """Judge the kill before by a session that is killed at its start, as far as it came."""
    first = training.last("ready")
    if first is not None:
        judge_resume(findings, training, first, newest, reported)
    yield findings.outcome()


def judge_resume(findings: Findings, training: Process, first: int, newest: int, reported: int) -> None:
    """Compare where a session resumed with what was whole on disk, and with what records called saved."""
    findings.fault(first != newest, f"resumed at {first}, not at the newest whole checkpoint, {newest}")
    findings.lose(first < reported, f"resumed at {first}, though {reported} had been reported saved")
    findings.fault(any(line[0] == "torn" for line in training.said), f"what was restored at {first} mixes steps")


def judge_events(findings: Findings, training: Process, written: list[Path]) -> None:
    """See that each event which a killed session flushed can be read, by TensorBoard too."""
    flushed = training.last("flushed")
    if flushed is None:
        return
    first = training.last("ready") or 0
    try:
        losses = set(truth.events(written).losses)
    except ValueError as error:
        findings.wrong.append(str(error))
        return
    missing = [step for step in range(first + 1, flushed + 1) if step not in losses]
    findings.lose(bool(missing), f"{len(missing)} flushed events are gone, the first at step {missing[:1]}")
    found = truth.read_by_tensorboard(written)
    findings.lose(found < flushed - first, f"TensorBoard reads {found} of {flushed - first} flushed events")


def _kill_writer(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Kill a process that does nothing but append."""
    for number in range(trials):
        logdir = trial.directory / f"run-{number}"
        batch, durable = trial.rng.choice([1, 7, 50, 500]), trial.rng.random() < 0.5
        appending = trial.start("appending", {"logdir": str(logdir), "batch": batch, "durable": durable})
        appending.until("flushed")
        appending.listen(trial.rng.uniform(0.0, 0.15))
        appending.kill(signal.SIGKILL)
        appending.wait()
        findings = Findings()
        judge_events(findings, appending, truth.events_files(logdir))
        yield findings.outcome()


def _kill_saver(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Kill the saver process again and again, most often within a write; the checkpoints of the run are judged."""
    resource = trial.rng.random() < 0.5
    training = trial.train(resource=resource, floats=1 << 20, by_process=True, save_secs=0.01)
    training.until("ready")
    for _ in range(trials - 1):
        training.listen(trial.rng.uniform(0.0, 0.3))
        killed = _kill_children(training.pid)
        findings = Findings()
        findings.fault(training.returncode is not None, f"training has ended with {training.returncode}")
        if not killed:
            findings.wrong.append("there was no saver process")
        yield findings.outcome()
    training.kill(signal.SIGTERM)
    training.wait()
    findings, on_disk = Findings(), truth.checkpoints(trial.logdir)
    findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
    last = training.last("step") or 0
    findings.lose(not on_disk.whole or on_disk.whole[-1] < last, f"the newest is {on_disk.whole[-1:]} of {last}")
    yield findings.outcome()


def _kill_children(pid: int) -> bool:
    """Kill the processes that one has started; wait for one for a while."""
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        found = [
            int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
        ]
        for child in found:
            os.kill(child, signal.SIGKILL)
        if found:
            return True
        time.sleep(0.01)
    return False


FAULTS = (
    Fault(
        name="kill -9 at a random instant, Supervisor",
        survived="all flushed events are there; the next session resumes at the newest whole checkpoint",
        long=200,
        short=30,
        quick=3,
        batch=10,
        run=lambda trial, trials: _kill(trial, trials, "supervisor"),
    ),
    Fault(
        name="kill -9 at a random instant, MonitoredTrainingSession",
        survived="the same",
        long=200,
        short=10,
        batch=10,
        run=lambda trial, trials: _kill(trial, trials, "monitored"),
    ),
    Fault(
        name="kill -9 at a random instant, Supervisor, the saver process writes",
        survived="the same",
        long=200,
        short=10,
        batch=10,
        run=lambda trial, trials: _kill(trial, trials, "supervisor", by_process=True),
    ),
    Fault(
        name="kill -9 of the saver process at a random instant",
        survived="training goes on; every checkpoint is whole, and the last step is saved",
        long=200,
        short=10,
        batch=20,
        run=_kill_saver,
    ),
    Fault(
        name="kill -9 at a random instant, a process that appends events (no TensorFlow)",
        survived="all flushed events are there",
        long=200,
        short=50,
        quick=3,
        batch=20,
        run=_kill_writer,
    ),
)
