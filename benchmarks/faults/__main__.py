"""Makes the trials, prints the table, and ends with status 1 unless all were survived.

    python -m benchmarks.faults [--only FAMILY ...] [--short | --quick] [--seed N] [--jobs N] [--write]

A trial that was not survived is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from benchmarks.faults.launcher import TENSORFLOW_ENVIRONMENT, Launchers, TrialError
from benchmarks.faults.small_disk import may_mount
from benchmarks.faults.table import OURS, Row, to_text, write_page
from benchmarks.faults.trial import Fault, Outcome, Trial
from benchmarks.machine import describe

FAMILIES = (
    "kills",
    "placed",
    "writes",
    "damages",
    "zombies",
    "forks",
    "signals",
    "endings",
    "clocks",
    "retention",
    "disks",
    "hangs",
    "culprit",
    "restarts",
    "wrappers",
    "messages",
    "peers",
)


@dataclass(frozen=True)
class Batch:
    """Some trials of one fault, in one directory."""

    row: Row
    number: int
    trials: int

    @property
    def name(self) -> str:
        """What the random numbers, and the directory, are made of."""
        rows = importlib.import_module(f"benchmarks.faults.{self.row.family}").FAULTS
        return f"{self.row.family}-{rows.index(self.row.fault)}-{self.number}"


def main() -> None:
    """Make the trials that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description="Harm trainings, and look.")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=FAMILIES, help="which families")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", dest="size", action="store_const", const="short", help="a quarter of the trials")
    size.add_argument("--quick", dest="size", action="store_const", const="quick", help="the few of the tests")
    parser.add_argument("--trials", type=int, help="how many of each fault, instead")
    parser.add_argument("--seed", type=int, help="of the random numbers (default: the time)")
    parser.add_argument("--batch", help="one batch alone, as a report names it")
    parser.add_argument("--jobs", type=int, default=2 * len(os.sched_getaffinity(0)), help="at a time (%(default)s)")
    parser.add_argument("--patience", type=float, help="times the limits, for a busy machine (--short: 6; else 1)")
    parser.add_argument("--keep", action="store_true", help="keep the trials' directories")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--write", action="store_true", help="write the result into docs/faults.md")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="the interpreter of an environment that has the extra 'faults'"
    )
    arguments = parser.parse_args()
    if arguments.patience is None:
        arguments.patience = 6.0 if arguments.size == "short" else 1.0
    if arguments.write and (arguments.size or arguments.batch):
        parser.error("--write takes whole rows: leave out --short, --quick and --batch")
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 2**32
    os.environ.update(TENSORFLOW_ENVIRONMENT)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background: all trainings would ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not may_mount():
        print("no mounts of one's own here: full disks are made by a limit on file sizes", file=sys.stderr)
    machine, started = describe(), time.monotonic()
    families = {name: rows_of(name, arguments.peers_python) for name in arguments.only}
    batches = [
        batch
        for rows in families.values()
        for row in rows
        for batch in batches_of(row, arguments.trials or getattr(row.fault, arguments.size or "long"))
        if arguments.batch in (None, batch.name)
    ]
    run(batches, seed, arguments)
    rows = [row for found in families.values() for row in found if row.outcomes or row.skipped]
    if any(row.fault.column not in (None, OURS) for row in rows if row.outcomes):
        machine = (
            f"{machine}; peers: {importlib.import_module('benchmarks.faults.peers').versions(arguments.peers_python)}"
        )
    limits = "" if arguments.patience == 1.0 else f", limits of time x {arguments.patience:g}"
    machine = f"{machine}; seed {seed}, {time.monotonic() - started:.0f} s{limits}"
    print(to_text(rows), machine, sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps([as_json(row) for row in rows], indent=1))
    if arguments.write:
        write_page(families, FAMILIES, f"{machine}.")
    sys.exit(any(row.survived < len(row.outcomes) for row in rows if row.fault.column in (None, OURS)))


def rows_of(family: str, peers_python: str) -> list[Row]:
    """Return a family's rows, still empty."""
    module = importlib.import_module(f"benchmarks.faults.{family}")
    skipped = module.missing(peers_python) if hasattr(module, "missing") else getattr(module, "SKIPPED", None)
    return [
        Row(family, fault, skipped=_missing(fault) if fault.column == OURS else skipped or _missing(fault))
        for fault in module.FAULTS
    ]


def _missing(fault: Fault) -> str | None:
    """Say what a fault's trials need and is not there; None for nothing."""
    if fault.needs and importlib.util.find_spec(fault.needs) is None:
        return f"{fault.needs} is not installed"
    return None if _runs(fault.starts_with) else f"{fault.starts_with[0]} is missing, or refused"


@cache
def _runs(command: tuple[str, ...]) -> bool:
    if not command:
        return True
    return (
        shutil.which(command[0]) is not None and not subprocess.run([*command, "true"], capture_output=True).returncode
    )


def batches_of(row: Row, trials: int) -> list[Batch]:
    """Divide the trials of a fault into batches."""
    size = row.fault.batch
    if row.skipped is not None:
        return []
    return [Batch(row, number, min(size, trials - at)) for number, at in enumerate(range(0, trials, size))]


def run(batches: list[Batch], seed: int, arguments: argparse.Namespace) -> None:
    """Make the trials of some batches, ``jobs`` at a time."""
    parent = tempfile.mkdtemp(prefix="faults-")
    with ThreadPoolExecutor(arguments.jobs) as pool, Launchers(Path(parent), arguments.peers_python) as launchers:
        futures: list[tuple[Batch, Future[list[Outcome]]]] = []
        try:
            for batch in batches:
                home = Path(parent, batch.name)
                futures.append((batch, pool.submit(make, batch, launchers, home, seed, arguments.patience)))
            for batch, future in futures:
                report(batch, future.result(), seed)
                if not arguments.keep:
                    shutil.rmtree(Path(parent, batch.name), ignore_errors=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if arguments.keep:
        print(f"kept: {parent}")
    else:
        shutil.rmtree(parent, ignore_errors=True)


def make(batch: Batch, launchers: Launchers, home: Path, seed: int, patience: float) -> list[Outcome]:
    """Make the trials of one batch. What keeps one from being judged counts as wrong."""
    home.mkdir(parents=True)
    outcomes: list[Outcome] = []
    fault: Fault = batch.row.fault
    rng = random.Random(f"{seed}/{batch.name}")
    with closing(Trial(launchers, home, rng, patience)) as trial:
        try:
            for outcome in fault.run(trial, batch.trials):
                outcomes.append(outcome)
        except TrialError as error:
            outcomes.append(Outcome(wrong=(str(error),)))
        except Exception:
            outcomes.append(Outcome(wrong=(traceback.format_exc(),)))
    return outcomes


def report(batch: Batch, outcomes: list[Outcome], seed: int) -> None:
    """Count the outcomes of a batch, and print each trial that was not survived."""
    batch.row.outcomes.extend(outcomes)
    survived = sum(outcome.survived for outcome in outcomes)
    print(f"{batch.name}: {batch.row.fault.name}: {survived} of {len(outcomes)} survived", file=sys.stderr)
    for number, outcome in enumerate(outcomes):
        if outcome.note is not None:
            print(f"{batch.row.fault.name}: trial {number}: {outcome.note}", file=sys.stderr)
        for kind, texts in (("lost", outcome.lost), ("wrong", outcome.wrong)):
            for text in texts:
                print(f"{batch.row.fault.name}: trial {number}: {kind}: {text}", file=sys.stderr)
    if survived < len(outcomes):
        again = f"--only {batch.row.family} --batch {batch.name} --seed {seed} --keep"
        print(f"  again: python -m benchmarks.faults {again}", file=sys.stderr)


def as_json(row: Row) -> dict[str, object]:
    """Return a row as plain values."""
    return {
        "family": row.family,
        "fault": row.fault.name,
        "skipped": row.skipped,
        "trials": len(row.outcomes),
        "survived": row.survived,
        "lost": row.lost,
        "wrong": row.wrong,
        "outcomes": [asdict(outcome) for outcome in row.outcomes],
    }


if __name__ == "__main__":
    main()
