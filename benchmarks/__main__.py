"""Every measurement, one after the other.

    python -m benchmarks [--quick] [--only NAME ...] [--write] [--python INTERPRETER]

--write puts what was measured into docs/benchmarks.md, in place of what it said of those areas.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.machine import describe, noise
from benchmarks.report import Row, print_table, to_markdown

AREAS = (
    "step",
    "supervise",
    "frameworks",
    "checkpoint",
    "writer",
    "reader",
    "data",
    "fuzz",
    "goodput",
    "scrape",
    "fleet",
    "notify",
    "pages",
    "imports",
    "restart",
    "tab",
    "tab_browser",
    "tab_views",
)
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
MARK = "<!-- measured: everything below this line is written by `make bench ARGS=--write` -->\n"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, beside the peers, in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a smoke test, not a measurement")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=AREAS, help="which areas")
    parser.add_argument("--write", action="store_true", help=f"write the result into docs/{PAGE.name}")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="the interpreter of an environment that has the frameworks",
    )
    arguments = parser.parse_args()
    if arguments.write and arguments.quick:
        parser.error("--write takes a whole measurement: leave out --quick")
    for area in arguments.only:
        print(f"measuring: {area}", file=sys.stderr)
        before = f"{describe()}. Noise before: {noise()}."
        module = importlib.import_module(f"benchmarks.{area}")
        others = (arguments.python,) if area == "frameworks" else ()
        found = list(module.rows(arguments.quick, *others))
        machine = f"{before} After: {noise()}."
        print_table(found)
        print(machine)
        if arguments.write:
            PAGE.write_text(with_section(PAGE.read_text(), area, machine, found))


def with_section(page: str, area: str, machine: str, rows: list[Row]) -> str:
    """Return the page with what was measured of an area in the place of what it said of it."""
    head, _, measured = page.partition(MARK)
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?\n)(?=\n## |\Z)", measured, re.MULTILINE | re.DOTALL))
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    sections[area] = f"Measured on {day}: {machine}\n\n{to_markdown(rows)}"
    return head + MARK + "".join(f"\n## {name}\n\n{sections[name]}" for name in AREAS if name in sections)


if __name__ == "__main__":
    main()
