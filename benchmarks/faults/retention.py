"""Killed between the state file and the deletions that follow it: the next session lets go of the same ones."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults import truth
from benchmarks.faults.trial import Fault, Findings, Outcome, Trial

_KEEP = 3
_OWN = "model.ckpt-best"
"""A checkpoint that the program's user put aside under such a name."""


def _kill(trial: Trial, trials: int, random_instant: bool) -> Iterator[Outcome]:
    """Kill a run again and again; after each kill let a session save and end, and count what is on disk."""
    common: dict[str, Any] = {"keep": _KEEP, "save_secs": 0.01, "pause_secs": 0.005, "floats": 256}
    put_aside: dict[str, bytes] = {}
    reported: list[int] = []
    for number in range(trials):
        before = truth.events_files(trial.logdir)
        if random_instant:
            harmed = trial.train(**common)
            harmed.until("ready")
            harmed.listen(trial.rng.uniform(0.1, 0.5))
            harmed.kill(signal.SIGKILL)
        else:
            after = trial.rng.random() < 0.5
            harmed = trial.train(kill_at_removal=trial.rng.randrange(1, 12), kill_after_removal=after, **common)
        harmed.wait()
        reported = [*reported, *truth.checkpoints(trial.logdir).whole]  # some are there before a record says so
        _age_temporary_files(trial.logdir)
        next_one = trial.train(steps=trial.rng.choice([30, 60]), **common)
        next_one.until("ready")
        status = next_one.wait()
        findings = Findings()
        findings.fault(status != 0, f"the next session ended with {status}{next_one.story()}")
        written = [path for path in truth.events_files(trial.logdir) if path not in before]
        reported = [*reported, *truth.events(written).saved]
        on_disk = truth.checkpoints(trial.logdir)
        wanted = sorted(set(reported))[-_KEEP:]
        gone = set(wanted) - set(on_disk.whole)
        leaked = set(on_disk.whole) - set(wanted)
        findings.lose(bool(gone), f"wrongly deleted: {sorted(gone)}")
        findings.fault(bool(leaked), f"left behind: {sorted(leaked)}, of {wanted}")
        findings.fault(bool(on_disk.broken), f"not whole: {on_disk.broken}")
        pieces = _pieces(trial.logdir, on_disk.whole)
        findings.fault(bool(pieces), f"pieces left behind: {pieces}")
        changed = [name for name, data in put_aside.items() if _content(trial.logdir / name) != data]
        findings.lose(bool(changed), f"files that were put aside were changed or deleted: {changed}")
        if number == 0 and on_disk.whole:
            put_aside = _put_aside(trial.logdir, on_disk.whole[-1])
        yield findings.outcome()


def _age_temporary_files(logdir: Path) -> None:
    """Let ten minutes go by for them: a new one could be of a save under way, TensorFlow's own, too."""
    for path in logdir.rglob("*.tmp*"):
        if "_temp_" not in str(path):
            written = path.stat().st_mtime - 600
            os.utime(path, (written, written))


def _pieces(logdir: Path, whole: tuple[int, ...]) -> list[str]:
    names = {f"model.ckpt-{step}" for step in whole} | {_OWN}
    found = [path.name for path in logdir.iterdir() if path.name.startswith("model.ckpt")]
    return sorted(name for name in found if re.sub(r"\.(index|meta|data-.*)$", "", name) not in names)


def _put_aside(logdir: Path, step: int) -> dict[str, bytes]:
    """Copy a checkpoint under another name, as a user does with the best one."""
    kept = {}
    for path in logdir.glob(f"model.ckpt-{step}.*"):
        name = path.name.replace(f"model.ckpt-{step}", _OWN)
        kept[name] = path.read_bytes()
        (logdir / name).write_bytes(kept[name])
    return kept


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


_SURVIVED = f"after the next session exactly the newest {_KEEP} are on disk, and what the user put aside"
FAULTS = (
    Fault(
        name="killed at a removal of an old checkpoint's file, before or after it",
        survived=_SURVIVED,
        long=200,
        short=10,
        quick=2,
        batch=10,
        run=lambda trial, trials: _kill(trial, trials, random_instant=False),
    ),
    Fault(
        name="kill -9 at a random instant while checkpoints are saved all the time",
        survived=_SURVIVED,
        long=200,
        short=10,
        batch=10,
        run=lambda trial, trials: _kill(trial, trials, random_instant=True),
    ),
)
