"""The newest checkpoint is damaged, or the state file is: the next session takes the newest whole one, and says why."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults import truth
from benchmarks.faults.launcher import Process
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

Harm = Callable[[Path, str, random.Random], None]
"""Harms a logdir, of which the newest checkpoint's name is given."""

DATA, INDEX = ".data-00000-of-00001", ".index"


def cut(path: Path, rng: random.Random) -> None:
    """Cut a file somewhere."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def flip(path: Path, rng: random.Random) -> None:
    """Change one bit somewhere in a file."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def zero(path: Path, rng: random.Random) -> None:
    """Put zeros from somewhere on, as a file system does after a power cut."""
    data = path.read_bytes()
    at = rng.randrange(len(data))
    path.write_bytes(data[:at] + bytes(len(data) - at))


def remove(path: Path, rng: random.Random) -> None:
    """Take a file away."""
    path.unlink()


def fifo(path: Path, rng: random.Random) -> None:
    """Put a named pipe in a file's place, to which no process writes."""
    path.unlink()
    os.mkfifo(path)


def directory(path: Path, rng: random.Random) -> None:
    """Put a directory in a file's place."""
    path.unlink()
    path.mkdir()


def of_newest(ending: str, harm: Callable[[Path, random.Random], None]) -> Harm:
    """Harm one file of the newest checkpoint."""
    return lambda logdir, newest, rng: harm(logdir / (newest + ending), rng)


def of_state(harm: Callable[[Path, random.Random], None]) -> Harm:
    """Harm the state file."""
    return lambda logdir, newest, rng: harm(logdir / "checkpoint", rng)


def point_elsewhere(path: Path, rng: random.Random) -> None:
    """Let the state file name checkpoints that are not there."""
    name = rng.choice(["/nowhere/model.ckpt-999999", "model.ckpt-999999", "../other/model.ckpt-1"])
    path.write_text(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')


def of_own(logdir: Path, newest: str, rng: random.Random) -> None:
    """Take away, or harm, what the project keeps in the logdir for itself: the lock file and the ledgers."""
    for path in (*logdir.glob(".supervisor*"), *logdir.glob(".supervisor*/*")):
        if path.is_dir():
            if rng.random() < 0.3:
                shutil.rmtree(path)
        elif path.exists():
            rng.choice([cut, flip, zero, remove])(path, rng)


def of_events(logdir: Path, newest: str, rng: random.Random) -> None:
    """Harm an events file."""
    rng.choice([cut, flip, zero, remove, fifo, directory])(rng.choice(truth.events_files(logdir)), rng)


def both(logdir: Path, newest: str, rng: random.Random) -> None:
    """Damage the two newest checkpoints, each in its way."""
    second = sorted(truth.checkpoints(logdir).whole)[-2]
    for name in (newest, f"model.ckpt-{second}"):
        rng.choice([cut, flip, remove])(logdir / (name + rng.choice([DATA, INDEX])), rng)


def _fall_back(trial: Trial, trials: int, harm: Harm, named: bool = False) -> Iterator[Outcome]:
    """Train a run, and harm a copy of it for each trial. ``named``: nothing can be saved, and the error names why."""
    floats = _train_run(trial)
    for number in range(trials):
        logdir = trial.copy_run(f"copy-{number}")
        files = {path: path.read_bytes() for path in logdir.iterdir() if path.is_file()}
        before = truth.checkpoints(logdir).whole
        harm(logdir, f"model.ckpt-{before[-1]}", trial.rng)
        untouched = [step for step in before if _is_untouched(logdir, step, files)]
        written = truth.events_files(logdir)
        training = trial.train(logdir, steps=3, save_secs=3600, floats=floats)
        yield _judge(training, logdir, before, untouched, written, named)
        shutil.rmtree(logdir)


def _train_run(trial: Trial) -> int:
    """Leave a run with some whole checkpoints; return how many numbers its variables have."""
    floats = trial.rng.choice([16, 1024, 65536])
    training = trial.train(steps=60, floats=floats, resource=trial.rng.random() < 0.5, save_secs=0.02, pause_secs=0.01)
    training.wait()
    assert len(truth.checkpoints(trial.logdir).whole) >= 3, training.story()
    return floats


def _is_untouched(logdir: Path, step: int, files: dict[Path, bytes]) -> bool:
    """Say whether a checkpoint's files are as they were; what is no regular file is not opened."""
    own = [path for path in files if path.name in (f"model.ckpt-{step}{DATA}", f"model.ckpt-{step}{INDEX}")]
    return all(path.is_file() and path.read_bytes() == files[path] for path in own)


def _judge(
    training: Process, logdir: Path, before: tuple[int, ...], untouched: list[int], written: list[Path], named: bool
) -> Outcome:
    findings, newest = Findings(), before[-1]
    first = int(training.until("ready")[0])
    status = training.wait()
    expected = 1 if named else 0
    findings.fault(status != expected, f"ended with {status}{training.story()}")
    unnamed = named and "Is a directory" not in training.errors.read_text()
    findings.fault(unnamed, f"the error does not name the directory{training.story()}")
    findings.fault(any(line[0] == "torn" for line in training.said), "what was restored mixes steps")
    # A bit may be flipped where no value depends on it: such a checkpoint is good, by TensorFlow's reading.
    good = first == newest and truth.damage(str(logdir / f"model.ckpt-{newest}"), newest) is None
    findings.fault(first != untouched[-1] and not good, f"resumed at {first}; untouched were {untouched}")
    if first != newest:
        new = [path for path in truth.events_files(logdir) if path not in written]
        [session] = truth.events(new).of_kind("session")
        reasons = [item["reason"] for item in session["skipped"] if item["path"].endswith(f"-{newest}")]
        said = bool(reasons) and bool(reasons[0]) and "Graph execution error" not in reasons[0]
        findings.fault(not said, f"why {newest} was passed over is not said: {session['skipped']}")
        left = [path.name for path in logdir.rglob(f"*model.ckpt-{newest}.*") if not path.name.endswith(".meta")]
        findings.lose(not left, "nothing is left of the damaged checkpoint")
    return findings.outcome()


def _no_index(trial: Trial, trials: int) -> Iterator[Outcome]:
    """Take all index files and the state file away, as a partial copy does: nothing may be deleted, nothing started."""
    floats = _train_run(trial)
    for number in range(trials):
        logdir = trial.copy_run(f"copy-{number}")
        for path in (*logdir.glob("*.index"), logdir / "checkpoint"):
            path.unlink()
        if trial.rng.random() < 0.5:  # as a copy with a shell's * does
            for path in logdir.glob(".*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        long_ago = 1_500_000_000
        for path in logdir.iterdir():
            os.utime(path, (long_ago, long_ago))
        kept = {path.name for path in logdir.iterdir() if ".data-" in path.name or path.name.endswith(".meta")}
        training = trial.train(logdir, steps=5, save_secs=0.02, pause_secs=0.02, floats=floats)
        status = training.wait()
        findings = Findings()
        gone = kept - {path.name for path in logdir.rglob("*")}
        findings.lose(bool(gone), f"deleted: {sorted(gone)}")
        findings.fault(status == 0, f"started at step {training.last('ready')} without an error")
        findings.fault("model.ckpt" not in training.errors.read_text(), "the error names no file")
        yield findings.outcome()
        shutil.rmtree(logdir)


_SAME = "resumes at the newest whole one, says what was passed over and why, deletes nothing of it"
_STATE = "resumes at the newest whole checkpoint"
_HARMS: tuple[tuple[str, str, Harm], ...] = (
    ("newest checkpoint: data cut", _SAME, of_newest(DATA, cut)),
    ("newest checkpoint: a bit of the data flipped", _SAME, of_newest(DATA, flip)),
    ("newest checkpoint: data zero from somewhere on", _SAME, of_newest(DATA, zero)),
    ("newest checkpoint: data missing", _SAME, of_newest(DATA, remove)),
    ("newest checkpoint: a FIFO in place of the data", _SAME, of_newest(DATA, fifo)),
    ("newest checkpoint: a directory in place of the data", _SAME, of_newest(DATA, directory)),
    ("newest checkpoint: index cut", _SAME, of_newest(INDEX, cut)),
    ("newest checkpoint: a bit of the index flipped", _SAME, of_newest(INDEX, flip)),
    ("newest checkpoint: index zero from somewhere on", _SAME, of_newest(INDEX, zero)),
    ("newest checkpoint: index missing", _SAME, of_newest(INDEX, remove)),
    ("newest checkpoint: a FIFO in place of the index", _SAME, of_newest(INDEX, fifo)),
    ("newest checkpoint: a directory in place of the index", _SAME, of_newest(INDEX, directory)),
    ("two newest checkpoints damaged", _SAME, both),
    ("state file cut", _STATE, of_state(cut)),
    ("a bit of the state file flipped", _STATE, of_state(flip)),
    ("state file zero from somewhere on", _STATE, of_state(zero)),
    ("a FIFO in place of the state file", _STATE, of_state(fifo)),
    ("state file missing", _STATE, of_state(remove)),
    ("state file names checkpoints that are not there", _STATE, of_state(point_elsewhere)),
    ("an events file cut, overwritten or missing", _STATE, of_events),
    ("lock file and ledgers cut, overwritten or missing", _STATE, of_own),
)
_QUICK = ("newest checkpoint: a bit of the data flipped", "newest checkpoint: index missing", "state file cut")

FAULTS = (
    *(
        Fault(
            name=name,
            survived=survived,
            long=100,
            short=1,
            quick=int(name in _QUICK),
            batch=8,
            run=partial(_fall_back, harm=harm),
        )
        for name, survived, harm in _HARMS
    ),
    Fault(
        name="a directory in place of the state file",
        survived="resumes at the newest whole checkpoint; saves fail with an error that names it",
        long=100,
        short=1,
        batch=8,
        run=partial(_fall_back, harm=of_state(directory), named=True),
    ),
    Fault(
        name="all index files and the state file missing",
        survived="an error that names them, no start at step 0, nothing deleted",
        long=100,
        short=1,
        batch=8,
        run=_no_index,
    ),
)
