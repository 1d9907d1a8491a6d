"""The table of `docs/stopping.md`: what ends how, and where a facade differs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs/stopping.md"
FACADES = {
    "graph": "graph",
    "supervise": "supervise",
    "torch_with": "PyTorch",
    "torch_for": "PyTorch `for`",
    "jax": "JAX",
    "keras": "Keras",
    "lightning": "Lightning",
    "transformers": "Transformers",
}
"""Facades as the tests call them, and as the page does."""
BEFORE_312 = " before Python 3.12"
NOBODYS = ("the child's own", "trains on")


class Row(NamedTuple):
    """One cause, for one facade."""

    saved: str
    recorded: str
    status: str
    at_most: str


def table() -> dict[str, dict[str, Row | None]]:
    """Cause -> facade -> what the page says; None where it says that the cause does not exist for it."""
    found = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            cause, *cells, differs = line.split("|")[1:-1]
            name = re.match(r" `([^`]+)`", cause)
            assert name is not None
            row = Row(*(cell.strip().strip("`") for cell in cells))
            found[name.group(1)] = {facade: _differing(row, differs.strip(), said) for facade, said in FACADES.items()}
    return found


def _differing(row: Row, differs: str, facade: str) -> Row | None:
    """The row of one facade: the last column is ``only NAMES``, or ``NAMES: saved, recorded, status; ...``."""
    called = {facade, facade + BEFORE_312} if sys.version_info < (3, 12) else {facade}
    if differs.startswith("only "):
        return row if facade in _names(differs.removeprefix("only ")) else None
    for part in filter(None, differs.split("; ")):
        names, _, said = part.partition(": ")
        if called & set(_names(names)):
            if said == "cannot happen":
                return None
            cells = [cell.strip().strip("`") for cell in said.split(", ")]
            return Row(*cells, *row[len(cells) :])
    return row


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.replace(" and ", ", ").split(", ")]
