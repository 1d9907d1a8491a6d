"""The rows of docs/faults.md: what was done, how often it was survived, and what was lost or wrong."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.faults.trial import Fault, Outcome

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
MARK = "<!-- measured: everything below this line is written by `make faults ARGS=--write` -->\n"
OURS = "ours"
"""The column of this project, where systems stand side by side."""


@dataclass
class Row:
    """One fault, and the outcomes of its trials."""

    family: str
    fault: Fault
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: str | None = None
    """Why there were none."""

    @property
    def survived(self) -> int:
        """How many trials left all as it must be."""
        return sum(outcome.survived for outcome in self.outcomes)

    @property
    def lost(self) -> int:
        """How many lost work."""
        return sum(bool(outcome.lost) for outcome in self.outcomes)

    @property
    def wrong(self) -> int:
        """How many did, said or left something wrong."""
        return sum(bool(outcome.wrong) for outcome in self.outcomes)

    @property
    def note(self) -> str:
        """What was measured besides."""
        if self.skipped is not None:
            return self.skipped
        secs = [outcome.secs for outcome in self.outcomes if outcome.secs is not None]
        return f"{statistics.median(secs):.1f} s, at most {max(secs):.1f} s" if secs else ""


def to_text(rows: Iterable[Row]) -> str:
    """Return rows for a terminal."""
    lines = [f"{'family':10} {'fault':72} {'trials':>6} {'surv.':>6} {'lost':>5} {'wrong':>5}"]
    for row in rows:
        numbers = f"{len(row.outcomes):6} {row.survived:6} {row.lost:5} {row.wrong:5}"
        name = row.fault.name if row.fault.column is None else f"{row.fault.column}: {row.fault.name}"
        lines.append(f"{row.family:10} {name[:72]:72} {numbers}  {row.note}")
    return "\n".join(lines)


def to_markdown(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table."""
    rows = list(rows)
    if any(row.fault.column is not None for row in rows):
        return _side_by_side(rows)
    lines = [
        "| fault | trials | survived | lost | wrong | survived means | after |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for row in rows:
        numbers = f"{len(row.outcomes)} | {row.survived} | {row.lost} | {row.wrong}"
        name = row.fault.name.replace("|", "\\|")
        lines.append(f"| {name} | {numbers} | {row.fault.survived} | {row.note} |")
    return "\n".join(lines) + "\n"


def _side_by_side(rows: list[Row]) -> str:
    """Return a table with a line for each fault and a column for each system: how many trials were survived."""
    columns = list(dict.fromkeys(row.fault.column or "" for row in rows))
    lines = [f"| fault | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    cells = {(row.fault.name, row.fault.column): row for row in rows}
    for name in dict.fromkeys(row.fault.name for row in rows):
        found = [cells.get((name, column)) for column in columns]
        texts = [f"{row.survived} of {len(row.outcomes)}" if row and row.outcomes else "-" for row in found]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def write_page(families: dict[str, list[Row]], order: Iterable[str], machine: str) -> None:
    """Put what was measured of some families into the page, in the place of what it said of them."""
    head, _, measured = PAGE.read_text().partition(MARK)
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?\n)(?=\n## |\Z)", measured, re.MULTILINE | re.DOTALL))
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    for family, rows in families.items():
        sections[family] = f"Measured on {day}: {machine}\n\n{to_markdown(rows)}"
    text = "".join(f"\n## {name}\n\n{sections[name]}" for name in order if name in sections)
    PAGE.write_text(head + MARK + text)
