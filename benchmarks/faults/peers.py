"""The same faults, put to ours and to what others offer for saving and resuming, side by side.

Each system trains weights that all equal the step, and says what it restored. A step counts as saved once the system's
own call has returned or its callback has come; ours, once a record says so. Rows that a system has no answer to by
design (one file, no second one to fall back to) are tried like all others.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults import damages, hanging, truth
from benchmarks.faults.hangs import GIVE_UP_SECS, SEEN_WITHIN_SECS, stalls
from benchmarks.faults.launcher import Process, TrialError
from benchmarks.faults.programs import Asked
from benchmarks.faults.restarts import ORPHANS_SECS, Supervised, runs, small
from benchmarks.faults.signals import GRACE_SECS, SLACK_SECS
from benchmarks.faults.syscalls import Strike, may_strike
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

MODULES = ("torch", "lightning", "transformers", "orbax", "keras")
"""What the peers' programs import."""
MAY_STRIKE = may_strike()
START_SECS = 120.0


@dataclass(frozen=True)
class System:
    """A column of the table."""

    column: str
    program: str
    data: str
    """The files of its checkpoints that hold the values, as a pattern for `Path.rglob`."""

    def start(self, trial: Trial, directory: Path, *, struck: Strike | None = None, **asked: Any) -> Process:
        """Start a session; see `Asked`."""
        return trial.start(self.program, asdict(Asked(directory=str(directory), **asked)), struck)

    def saved(self, session: Process, directory: Path) -> int:
        """Return the last step that a session called saved; 0 if it saved none."""
        return session.last("saved") or 0


@dataclass(frozen=True)
class Ours(System):
    """A `Supervisor` in TensorFlow's graph mode."""

    def start(self, trial: Trial, directory: Path, *, struck: Strike | None = None, **asked: Any) -> Process:
        """Start a session."""
        wanted = Asked(directory=str(directory), **asked)
        return trial.train(
            directory, struck=struck, steps=wanted.steps, floats=wanted.floats, pause_secs=wanted.pause_secs, keep=3,
            save_secs=0.05 if wanted.save_every < 1000 else 3600.0, hang=wanted.hang,
            lockless_host=wanted.lockless_host,
            options={"lease_timeout_secs": 0.3} if wanted.lockless_host else {},
        )  # fmt: skip

    def saved(self, session: Process, directory: Path) -> int:
        """Return what the records of the run's events call saved."""
        return max(truth.events(truth.events_files(directory)).saved, default=0)


OURS = Ours("ours", "training", "model.ckpt-*.data-*")
SYSTEMS = (
    OURS,
    System("Keras", "programs.keras_backup", "latest.weights.h5"),
    System("torch", "programs.torch_save", "snapshot.pt"),
    System("Lightning", "programs.lightning_fit", "last.ckpt"),
    System("HF Trainer", "programs.hf_trainer", "model.safetensors"),
    System("Orbax", "programs.orbax_manager", "d/*"),
)


def _resume(findings: Findings, trial: Trial, system: System, directory: Path, least: int, what: str = "saved") -> None:
    """Let a next session start: it must, and at a whole checkpoint no older than what was saved."""
    session = system.start(trial, directory, steps=1)
    try:
        first = int(session.until("ready", START_SECS)[0])
    except TrialError as error:
        findings.lost.append(f"no session starts any more, though {least} had been {what}: {error}")
        return
    session.wait()
    findings.lose(first < least, f"resumed at {first}, though {least} had been {what}")
    findings.fault(["torn"] in session.said, f"what was restored at {first} is not whole")


def _kill(trial: Trial, number: int, system: System, directory: Path, placed: bool) -> Iterator[Outcome]:
    """Kill a session that has saved, and see where the next one begins."""
    strike = Strike(below=str(directory), at=trial.rng.randint(1, 80), act="kill") if placed else None
    findings = Findings()
    session = system.start(trial, directory, struck=strike, steps=400)
    if not placed:
        session.until("step", START_SECS)
        session.listen(trial.rng.uniform(0.1, 0.8))
        session.kill(signal.SIGKILL)
    session.wait()
    _resume(findings, trial, system, directory, system.saved(session, directory))
    yield findings.outcome()


def _damage(trial: Trial, number: int, system: System, directory: Path, harm: Any) -> Iterator[Outcome]:
    """Damage the newest file of values: the next session starts at an older whole one, or finds nothing changed."""
    session = system.start(trial, directory, steps=60)
    session.wait()
    files = [path for path in directory.rglob(system.data) if path.is_file() and path.stat().st_size >= 4096]
    harm(max(files, key=lambda path: (path.stat().st_mtime_ns, path.stat().st_size)), trial.rng)
    findings = Findings()
    _resume(findings, trial, system, directory, 1, "saved before")
    yield findings.outcome()


def _fail(
    trial: Trial, number: int, system: System, directory: Path, error: int, secs: float | None
) -> Iterator[Outcome]:
    """Let a change of a file fail while it trains: it goes on to its end, and what it called saved is there."""
    armed = trial.directory / f"armed-{number}"
    strike = Strike(below=str(directory), at=trial.rng.randint(1, 25), error=error, secs=secs, armed_by=str(armed))
    session = system.start(trial, directory, struck=strike, steps=250)
    session.until("step", START_SECS)
    armed.touch()
    findings = Findings()
    status = session.wait()
    findings.fault(["struck"] not in [line[:1] for line in session.said], "no change of a file was met")
    findings.fault(status != 0, f"training ended with {status}{session.story()}")
    _resume(findings, trial, system, directory, system.saved(session, directory))
    yield findings.outcome()


def _terminate(trial: Trial, number: int, system: System, directory: Path) -> Iterator[Outcome]:
    """Send SIGTERM to a training that has not saved lately: it ends in time, and its last step is saved."""
    session = system.start(trial, directory, save_every=1_000_000)
    session.until("step", START_SECS)
    session.listen(trial.rng.uniform(0.2, 0.6))
    done, sent = session.last("step") or 0, time.monotonic()
    session.kill(signal.SIGTERM)
    findings = Findings()
    try:
        session.wait(GRACE_SECS + SLACK_SECS * trial.patience)
    except TrialError:
        findings.wrong.append(f"it still ran {time.monotonic() - sent:.1f} s after SIGTERM")
        session.kill(signal.SIGKILL)
        session.wait()
    secs = time.monotonic() - sent
    _resume(findings, trial, system, directory, done, "done")
    yield findings.outcome(secs)


def _two(trial: Trial, number: int, system: System, directory: Path) -> Iterator[Outcome]:
    """Start a second training in the same directory: it is refused, and the first one goes on undisturbed."""
    first = system.start(trial, directory)
    first.until("step", START_SECS)
    second = system.start(trial, directory)
    findings = Findings()
    try:
        second.until("step", START_SECS)
        findings.wrong.append("a second training began to write into the same directory")
    except TrialError:
        findings.fault(second.returncode in (0, None), f"the second one was not refused{second.story()}")
    first.until("step", START_SECS)
    for session in (second, first):
        session.kill(signal.SIGKILL)
        session.wait()
    _resume(findings, trial, system, directory, system.saved(first, directory))
    yield findings.outcome()


def _zombie(trial: Trial, number: int, system: System, directory: Path) -> Iterator[Outcome]:
    """Suspend a training, let another one take over, and wake the first: it must not undo what the second saved."""
    first = system.start(trial, directory, lockless_host="host-a")
    first.until("step", START_SECS)
    first.listen(trial.rng.uniform(0.05, 0.4))
    first.kill(signal.SIGSTOP)
    time.sleep(0.6)  # past the timeout
    second = system.start(trial, directory, lockless_host="host-b", steps=150)
    findings = Findings()
    second.until("ready", START_SECS)
    second.wait()
    saved = system.saved(second, directory)
    first.kill(signal.SIGCONT)
    first.listen(1.0)
    first.kill(signal.SIGKILL)
    first.wait()
    time.sleep(0.6)
    _resume(findings, trial, system, directory, saved)
    yield findings.outcome()


def _hang(trial: Trial, number: int, system: System, directory: Path, how: str) -> Iterator[Outcome]:
    """Let a step hang: within ten seconds it is said, by whatever the system says it, and with the line."""
    session = system.start(trial, directory, hang=how, pause_secs=0.1)
    session.until("hangs", START_SECS)
    hung, before = time.monotonic(), session.errors.stat().st_size
    lines, seen, said = hanging.lines_of(how), "", len(session.said)
    limit = SEEN_WITHIN_SECS * trial.patience
    secs = GIVE_UP_SECS
    # Of what is seen in time the line may come later.
    while (passed := time.monotonic() - hung) < (limit if not seen else 2 * limit) and not any(
        x in seen for x in lines
    ):
        session.listen(0.2)
        seen = session.errors.read_text(errors="replace")[before:]
        seen += " ".join(" ".join(line) for line in session.said[said:])
        if system is OURS:
            found = truth.events(truth.events_files(directory)).of_kind("stall") if how != "gil" else stalls(directory)
            seen = found[-1]["location"] or "at an unknown line" if found else ""
        if session.returncode is not None:
            seen += f"ended with {session.returncode}"
        secs = min(secs, passed) if seen else secs
    findings = Findings()
    findings.fault(not seen, f"nothing is said within {SEEN_WITHIN_SECS:g} s")
    findings.fault(bool(seen) and not any(line in seen for line in lines), f"not the line that hangs: {seen[-200:]}")
    yield findings.outcome(secs if seen else None)


def _launched(trial: Trial, directory: Path, system: System) -> Supervised:
    """Start a small program under the system's own restarter."""
    torchrun = [trial.peers_python, "-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
    peer = None if system is OURS else torchrun
    return Supervised(directory, small("stays", directory), "--max-backoff", "0.001", peer=peer)


def _launcher_killed(trial: Trial, number: int, system: System, directory: Path) -> Iterator[Outcome]:
    """Kill the restarter: within a second no process of its program is left."""
    with _launched(trial, directory, system) as restarter:
        processes = [pid for pid, _ in restarter.await_started(3)]
        os.kill(restarter.pid, signal.SIGKILL)
        killed = time.monotonic()
        while any(map(runs, processes)) and time.monotonic() < killed + ORPHANS_SECS * trial.patience:
            time.sleep(0.01)
        findings = Findings()
        left = sum(map(runs, processes))
        findings.fault(left > 0, f"{left} processes still run {ORPHANS_SECS:g} s after their restarter was killed")
    yield findings.outcome()


def _program_killed(trial: Trial, number: int, system: System, directory: Path) -> Iterator[Outcome]:
    """Kill the program: it is started again, and none of its processes is left from before."""
    with _launched(trial, directory, system) as restarter:
        processes = [pid for pid, _ in restarter.await_started(3)]
        os.kill(processes[0], signal.SIGKILL)
        killed = time.monotonic()
        restarter.await_started(4)
        secs = time.monotonic() - killed
        findings = Findings()
        left = sum(map(runs, processes))
        findings.fault(left > 0, f"{left} processes of the launch before still run beside the next one")
    yield findings.outcome(secs)


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str
    run: Callable[..., Iterator[Outcome]]
    """Makes one trial of one system."""
    struck: bool = False
    columns: tuple[str, ...] = ()
    """The systems that have what is tried; none given: all."""


KINDS = (
    Kind("kill -9 at a random instant", partial(_kill, placed=False)),
    Kind("kill -9 at a change of a file", partial(_kill, placed=True), struck=True),
    Kind("newest checkpoint: data cut", partial(_damage, harm=damages.cut)),
    Kind("newest checkpoint: a bit of the data flipped", partial(_damage, harm=damages.flip)),
    Kind("newest checkpoint: data missing", partial(_damage, harm=damages.remove)),
    Kind("EIO once, at a change of a file", partial(_fail, error=errno.EIO, secs=None), struck=True),
    Kind("ENOSPC for 0.5 s", partial(_fail, error=errno.ENOSPC, secs=0.5), struck=True),
    Kind("ESTALE once, at a change of a file", partial(_fail, error=errno.ESTALE, secs=None), struck=True),
    Kind("SIGTERM: the last step is saved within 5 s", _terminate),
    Kind("a second training in the same directory", _two),
    Kind("a step hangs (a lock): seen within 10 s, at the right line", partial(_hang, how="lock")),
    Kind("a step hangs (the interpreter's lock is held): the same", partial(_hang, how="gil")),
    Kind("kill -9 of the restarter: no process is left", _launcher_killed, columns=("ours", "torch")),
    Kind("kill -9 of the program: started again, none is left", _program_killed, columns=("ours", "torch")),
    Kind("suspended, another takes over, the first wakes up", _zombie),
)


def _trials(trial: Trial, trials: int, kind: Kind, system: System) -> Iterator[Outcome]:
    """Make trials, each in a directory of its own."""
    for number in range(trials):
        directory = trial.directory / f"run-{number}"
        yield from kind.run(trial, number, system, directory)
        trial.close()
        shutil.rmtree(directory, ignore_errors=True)


FAULTS = tuple(
    Fault(
        name=kind.name,
        column=system.column,
        survived="the next session starts, at a whole checkpoint no older than what had been called saved",
        long=20,
        short=0,
        batch=5,
        run=partial(_trials, kind=kind, system=system),
    )
    for kind in KINDS
    if MAY_STRIKE or not kind.struck
    for system in SYSTEMS
    if not kind.columns or system.column in kind.columns
)


def missing(python: str) -> str | None:
    """Say what the peers' interpreter lacks; None if nothing."""
    code = f"import importlib.util as u; print(*[n for n in {MODULES!r} if u.find_spec(n) is None])"
    found = _output(python, code).split()
    return f"not installed: {', '.join(found)} (the extra 'faults')" if found else None


def versions(python: str) -> str:
    """Return the peers' versions."""
    names = ("keras", "torch", "lightning", "transformers", "orbax-checkpoint", "jax")
    code = f"import importlib.metadata as m; print(', '.join(f'{{n}} {{m.version(n)}}' for n in {names!r}))"
    return _output(python, code).strip()


def _output(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
