"""The fast reader against the plain one of the tests, on files that are damaged at random, for as long as is wished.

Each seed makes a file of all kinds of records, damages it, and reads it at once and as it grows. A difference is
printed with its seed and ends the run with status 1.

    python -m benchmarks.fuzz [--secs 120] [--seed N] [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from benchmarks.report import Row

REFERENCE = Path(__file__).parents[1] / "tests" / "events" / "reference.py"
SECS, QUICK_SECS = 120.0, 5.0


def reference() -> ModuleType:
    """Return the plain reader of the tests."""
    spec = importlib.util.spec_from_file_location("events_reference", REFERENCE)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fuzz(secs: float, seed: int) -> tuple[int, list[str]]:
    """Return how many files were compared, and the differences."""
    plain, until, first, differences = reference(), time.monotonic() + secs, seed, []
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "events.out.tfevents.1700000000.host")
        while time.monotonic() < until and len(differences) < 10:
            try:
                difference = plain.compare(seed, path)
            except Exception as error:  # whatever it raises is what is looked for
                difference = f"seed {seed}: {type(error).__name__}: {error}"
            if difference:
                differences.append(difference)
                print(difference, file=sys.stderr)
            seed += 1
    return seed - first, differences


def rows(quick: bool) -> Iterable[Row]:
    secs = QUICK_SECS if quick else SECS
    seed = time.time_ns() % 2**32
    files, differences = fuzz(secs, seed)
    note = f"{files:,} damaged files in {secs:g} s, each read at once and as it grew; first seed {seed}"
    found = float(len(differences))
    yield Row("fuzz", "files that are not read as the plain reader reads them", "", found, {}, "0", found == 0, note)


def main() -> None:
    """Compare until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz")
    parser.add_argument("--secs", type=float, default=SECS, help="for how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="the first seed, to see a difference again")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SECS:g} seconds")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 2**32
    files, differences = fuzz(QUICK_SECS if arguments.quick else arguments.secs, seed)
    print(f"{files:,} files from seed {seed} on, {len(differences)} differences")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
