"""The tables of a run: how they look, and how many rows of each are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from supervisor_core.log import printable

SHOWN_ROWS = 20
"""Rows of a table that are shown; ``--json`` has all."""

Item = TypeVar("Item")


class Output(Console):
    """Standard output. A pipe that was closed is an error here, which the command group reports."""

    def on_broken_pipe(self) -> None:
        """Raise the error again; rich would exit with status 1."""
        raise


def headed(*columns: str) -> Table:
    """Return an empty table with these headings."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def literal(text: str) -> str:
    """Return text as markup that shows just that, with what a terminal would obey as escapes."""
    return escape(printable(text))


def newest(items: Sequence[Item]) -> Sequence[Item]:
    """Return the last of them, as many as are shown."""
    return items[-SHOWN_ROWS:]
