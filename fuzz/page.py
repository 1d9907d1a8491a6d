"""The table of docs/security.md: how long each target was fuzzed, and what came of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from fuzz.targets import HERE, TARGETS, Target

PAGE = HERE.parent / "docs" / "security.md"
MARK = "<!-- measured: everything below this line is written by `make fuzz ARGS=--write` -->\n"
_HEAD = """
| target | reads | holds for every input | executions | seconds | of a processor | features | inputs | mended | on |
|---|---|---|---:|---:|---:|---:|---:|---:|---|
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of fuzzing one target."""

    target: Target
    executions: int
    secs: int
    processor_secs: int
    """What it had of the processors in that time."""
    features: int
    corpus: int
    """Inputs that reach something that no other does."""
    broken: tuple[Path, ...]
    """Inputs that break the promise."""


def write_row(result: Result, page: Path = PAGE) -> None:
    """Put the figures of one target into the page, in the place of what it said of it."""
    head, _, measured = page.read_text().partition(MARK)
    rows = dict(re.findall(r"^(\| `(?:\w+)` )(.*\n)", measured, re.MULTILINE))
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    target = result.target
    figures = (result.executions, result.secs, result.processor_secs, result.features, result.corpus, mended(target))
    cells = [target.reads, target.promise, *(f"{figure:,}" for figure in figures), day]
    rows[_first(target)] = f"| {' | '.join(cells)} |\n"
    lines = (_first(each) + rows[_first(each)] for each in TARGETS.values() if _first(each) in rows)
    page.write_text(head + MARK + _HEAD + "".join(lines))


def mended(target: Target) -> int:
    """How many inputs broke the promise once."""
    return len(list(target.findings.glob("*")))


def _first(target: Target) -> str:
    return f"| `{target.name}` "
