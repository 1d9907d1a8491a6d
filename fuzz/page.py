"""The table of docs/security.md: how long each target was fuzzed, and what came of it."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

from fuzz.targets import HERE, TARGETS, Target

PAGE = HERE.parent / "docs" / "security.md"
MARK = "<!-- measured: everything below this line is written by `make fuzz ARGS=--write` -->\n"
_HEAD = """
| target | reads | holds for every input | executions | seconds | features | inputs | mended findings | on |
|---|---|---|---:|---:|---:|---:|---:|---|
"""


def write_row(target: Target, executions: int, secs: int, features: int, corpus: int, page: Path = PAGE) -> None:
    """Put the figures of one target into the page, in the place of what it said of it."""
    head, _, measured = page.read_text().partition(MARK)
    rows = dict(re.findall(r"^(\| `(?:\w+)` )(.*\n)", measured, re.MULTILINE))
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    figures = f"{executions:,} | {secs:,} | {features:,} | {corpus:,} | {mended(target)} | {day}"
    rows[_first(target)] = f"| {target.reads} | {target.promise} | {figures} |\n"
    lines = (_first(each) + rows[_first(each)] for each in TARGETS.values() if _first(each) in rows)
    page.write_text(head + MARK + _HEAD + "".join(lines))


def mended(target: Target) -> int:
    """How many inputs broke the promise once."""
    return len(list(target.findings.glob("*")))


def _first(target: Target) -> str:
    return f"| `{target.name}` "
