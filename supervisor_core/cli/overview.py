"""The table of all runs: one line each."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from supervisor_core.cli.quantities import UNKNOWN, count, duration, rate, share, since
from supervisor_core.run.model import Run, RunState

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


def overview(runs: Iterable[Run], now: float) -> Table:
    """Return the table of runs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("step", "steps/s", "checkpoint", "restarts", "goodput", "silent"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            escape(run.name),
            state(run),
            count(run.step),
            rate(run.steps_per_sec),
            _checkpoint(run, now),
            count(len(run.restarts)),
            share(run.goodput.ratio) if not run.goodput.inferred else UNKNOWN,
            since(run.last_event_at, now),
        )
    return table


def _checkpoint(run: Run, now: float) -> str:
    """The newest good checkpoint's age, and the interval that it is to be held against."""
    good = [item for item in run.checkpoints if item.ok]
    if not good:
        return UNKNOWN
    interval = run.advice.present_interval_secs
    return since(good[-1].at, now) + (f" of {duration(interval)}" if interval else "")
