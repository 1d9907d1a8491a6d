"""Bars on standard error while a command reads, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


@contextmanager
def progress_bar(*columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    """Show a bar; give what sets its ``completed``, ``total`` and ``description``."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda **given: None
        return
    with Progress(*columns, console=console, transient=True) as progress:
        yield partial(progress.update, progress.add_task("reading", total=None))


@contextmanager
def runs_bar(what: str) -> Iterator[OnProgress]:
    """Show how many runs are read."""
    with progress_bar(TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("runs")) as update:
        yield lambda done, total: update(completed=done, total=total)
