"""What the terminal shows: numbers, durations, moments, other programs' text; tables, that of all runs; progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape, render
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table

from supervisor_core.log import printable
from supervisor_core.run.model import Run, RunState
from supervisor_core.run.words import DAY_SECS, UNKNOWN, count, duration, rate, share


def ago(at: float | None, now: float) -> str:
    """Return how long ago a moment was, in words; "-" where `since` is."""
    secs = since(at, now)
    return UNKNOWN if secs == UNKNOWN else f"{secs} ago"


def since(at: float | None, now: float) -> str:
    """Return how long ago a moment was; "-" for None, for the zero that some writers leave, and for more than a day
    ahead, which no wrong clock explains."""
    return duration(max(0.0, now - at)) if at and at - now < DAY_SECS else UNKNOWN


def moment(at: float | None) -> str:
    """Return a moment in local time, to the second; "-" for None, for the zero that some writers leave, and for what is
    outside the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else UNKNOWN
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def size(number: int | None) -> str:
    """Return bytes in the unit that fits, by thousands; "-" for None."""
    if number is None:
        return UNKNOWN
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}" if unit != "B" else f"{number} B"
        value /= 1000
    return f"{value:,.3g} TB"


SHOWN_ROWS = 20
"""Limit of the rows of a table; ``--json`` has all."""

Item = TypeVar("Item")


class Output(Console):
    """Standard output. Raises for a closed pipe, which the command group reports."""

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
    """Return text as markup that shows it unchanged; control characters become escapes. No tag may follow at once."""
    return escape(printable(text) + " ")[:-1]  # some versions of rich double a backslash at the end, some do not


def bold(text: str) -> str:
    """Return text as markup that shows it in bold, and otherwise unchanged."""
    shown = literal(text)
    last = shown[len(shown.rstrip("\\")) :]  # before a tag each backslash has to be doubled
    return f"[bold]{shown}{last}[/bold]"


def listed(items: Sequence[Item], columns: Mapping[str, Callable[[Item], str]]) -> list[RenderableType]:
    """Return a table of the last `SHOWN_ROWS` items, in a list; nothing without any.

    Args:
        items: a row each.
        columns: heading -> what makes the cell of an item, as markup.
    """
    if not items:
        return []
    table = headed(*columns)
    for item in items[-SHOWN_ROWS:]:
        table.add_row(*(cell(item) for cell in columns.values()))
    return [table]


# A glyph of its own for each state: colour is never the only sign.
STATES: dict[RunState, tuple[str, str]] = {
    "running": ("▶", "green"),
    "stalled": ("‖", "bold red"),
    "lost": ("✗", "bold red"),
    "stopped": ("■", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "unknown": ("·", "dim"),
}


def state(run: Run) -> str:
    """Return a run's state as marked-up text."""
    glyph, style = STATES[run.state]
    return f"[{style}]{glyph} {run.state}[/{style}]"


def overview(runs: Iterable[Run], now: float, width: int | None = None) -> Table:
    """Return the table of runs, one line each.

    Args:
        runs: what to show.
        now: the wall time that ages refer to.
        width: columns of the terminal; None for a pipe. A name is never cut nor wrapped: where the table is too wide,
            columns go, the least urgent first, and a footnote names them.
    """
    shown = list(runs)
    columns = {name: [cell(run, now) for run in shown] for name, cell in _COLUMNS.items()}
    widths = {
        name: max(cell_len(name), *(cell_len(render(text).plain) for text in cells)) if cells else cell_len(name)
        for name, cells in columns.items()
    }
    left = []
    if width is not None:
        for name in _LEAST_URGENT:
            if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
                break
            left.append(name)
            del widths[name]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    if left:
        table.caption = f"no room for: {', '.join(left)}"
        table.caption_justify = "left"
    for name, needed in widths.items():
        is_text = name in ("run", "state")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True, min_width=needed)
    for row in zip(*(columns[name] for name in widths), strict=True):
        table.add_row(*row)
    return table


def _checkpoint(run: Run, now: float) -> str:
    """Return the age of the newest good checkpoint and the interval; for a run that has ended its step, at which a
    restart would resume."""
    good = [item for item in run.checkpoints if item.ok]
    if not good:
        return UNKNOWN
    if run.state not in ("running", "stalled"):
        return UNKNOWN if good[-1].step is None else f"at step {count(good[-1].step)}"
    interval = run.advice.present_interval_secs
    return since(good[-1].at, now) + (f" of {duration(interval)}" if interval else "")


_COLUMNS: Mapping[str, Callable[[Run, float], str]] = {
    "run": lambda run, now: literal(run.name),
    "state": lambda run, now: state(run),
    "step": lambda run, now: count(run.step),
    "steps/s": lambda run, now: rate(run.steps_per_sec),
    "checkpoint": _checkpoint,
    "restarts": lambda run, now: count(len(run.restarts)),
    "goodput": lambda run, now: share(run.goodput.ratio) if not run.goodput.inferred else UNKNOWN,
    "silent": lambda run, now: since(run.last_event_at, now),
}
_GAP = 2
_LEAST_URGENT = ("steps/s", "goodput", "restarts", "silent", "checkpoint", "step")


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
