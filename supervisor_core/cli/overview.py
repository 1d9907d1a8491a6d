"""The table of all runs: one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rich.cells import cell_len
from rich.markup import render
from rich.table import Table

from supervisor_core.cli.text import UNKNOWN, count, duration, literal, rate, share, since
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
    """What is known of the newest good checkpoint: its age, against the interval, while the run is alive; its step,
    at which a restart would resume, once it is not."""
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
