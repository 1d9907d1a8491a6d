"""Every measurement, one after the other.

    python -m benchmarks [--quick] [--only NAME ...] [--write]

--write puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.machine import describe, noise
from benchmarks.report import Row, print_table, to_markdown

AREAS = ("step", "checkpoint", "writer", "scrape", "imports")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
MARK = "<!-- measured: everything below this line is written by `make bench ARGS=--write` -->\n"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, beside the peers, in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a smoke test, not a measurement")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=AREAS, help="which areas")
    parser.add_argument("--write", action="store_true", help=f"write the result into docs/{PAGE.name}")
    arguments = parser.parse_args()
    if arguments.write and (arguments.quick or set(arguments.only) != set(AREAS)):
        parser.error("--write takes a whole measurement: leave out --quick and --only")
    before = f"{describe()}. Noise before: {noise()}."
    measured: list[Row] = []
    for area in arguments.only:
        print(f"measuring: {area}", file=sys.stderr)
        found = list(importlib.import_module(f"benchmarks.{area}").rows(arguments.quick))
        print_table(found)
        measured += found
    machine = f"{before} After: {noise()}."
    print(machine)
    if arguments.write:
        day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        head = PAGE.read_text().split(MARK)[0]
        PAGE.write_text(f"{head}{MARK}\nMeasured on {day}: {machine}\n\n{to_markdown(measured)}")


if __name__ == "__main__":
    main()
