"""`Fault`: a row of the table: what is done to a training, how often, and what must be left. `Trial` is one of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults.config import Config
from benchmarks.faults.launcher import Launchers, Process
from benchmarks.faults.syscalls import Strike


@dataclass(frozen=True)
class Outcome:
    """The result of one trial; it was survived if nothing was lost and nothing was wrong."""

    lost: tuple[str, ...] = ()
    """Work that was promised to be kept, and is gone."""
    wrong: tuple[str, ...] = ()
    """What should not have been done, said or left."""
    secs: float | None = None
    """How long the ending took, where that is asked for."""
    note: str | None = None
    """What of it is to be reported though it was survived."""

    @property
    def survived(self) -> bool:
        """Whether all is as it must be."""
        return not self.lost and not self.wrong


@dataclass
class Findings:
    """Collects what a trial finds."""

    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def lose(self, condition: bool, text: str) -> None:
        """Note that work is gone, if it is."""
        if condition:
            self.lost.append(text)

    def fault(self, condition: bool, text: str) -> None:
        """Note that something is wrong, if it is."""
        if condition:
            self.wrong.append(text)

    def outcome(self, secs: float | None = None) -> Outcome:
        """Return them."""
        return Outcome(tuple(self.lost), tuple(self.wrong), secs)


class Trial:
    """What a batch of trials works with: a directory of its own, its random numbers, and processes that end with it.

    Args:
        launchers: start the processes; they know the peers' interpreter.
        directory: its own, empty.
        rng: its random numbers: the same for the same seed, family, row and batch.
        patience: how many times the stop timeout an ending gets, and may take.
    """

    def __init__(self, launchers: Launchers, directory: Path, rng: random.Random, patience: float = 1.0) -> None:
        self.directory = directory
        self.patience = patience
        self.rng = rng
        self.peers_python = launchers.peers_python
        self._launchers = launchers
        self._processes: list[Process] = []

    @property
    def logdir(self) -> Path:
        """The run's directory, made by the first training."""
        return self.directory / "run"

    def train(self, logdir: Path | None = None, *, struck: Strike | None = None, **config: Any) -> Process:
        """Start a training; see `Config`, and `Strike`."""
        return self.start("training", asdict(Config(logdir=str(logdir or self.logdir), **config)), struck)

    def start(self, program: str, config: dict[str, Any], struck: Strike | None = None) -> Process:
        """Start a program of this package."""
        errors = self.directory / f"errors-{len(self._processes)}.txt"
        process = self._launchers.start(f"benchmarks.faults.{program}", config, errors, struck)
        self._processes.append(process)
        return process

    def copy_run(self, name: str) -> Path:
        """Return a copy of the run's directory, of that name."""
        copy = self.directory / name
        shutil.copytree(self.logdir, copy, symlinks=True)
        return copy

    def close(self) -> None:
        """End what was started."""
        for process in self._processes:
            process.close()
        self._processes.clear()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row of the table."""

    name: str
    survived: str
    """What it means that a trial was survived, in one clause."""
    long: int
    """Trials of ``make faults``."""
    short: int
    """Trials of the shortened run."""
    quick: int = 0
    """Trials in the project's tests."""
    batch: int = 1
    """How many trials share a directory: one run that is harmed again and again."""
    needs: str | None = None
    """A module without which the trials are left out; None for none."""
    starts_with: tuple[str, ...] = ()
    """A command that starts its processes: where this user may not run it, the trials are left out."""
    column: str | None = None
    """In a table that sets a fault's trials on several systems side by side: the system. Else None."""
    run: Callable[[Trial, int], Iterator[Outcome]]
    """Makes the given number of trials; yields the outcome of each."""
