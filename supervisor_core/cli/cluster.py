"""A run's cluster on a terminal: recoveries, and the other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from supervisor_core.cli.quantities import UNKNOWN, count, duration, moment, since
from supervisor_core.cli.tables import SHOWN_ROWS, headed, literal, newest
from supervisor_core.log import printable
from supervisor_core.run.model import Recovery, Run, WorkerHistory
from supervisor_core.run.status import WorkerState

RESTARTED = "↺"
OF_STATE: dict[WorkerState, str] = {
    "waiting": "·",
    "running": "█",
    "stalled": "!",
    "lost": "▒",
    "failed": "▓",
    "stopped": " ",
}
SHOWN_CHARACTERS = 200
"""How much of an error's text is shown."""
_FIRST: tuple[WorkerState, ...] = ("failed", "lost", "stalled", "waiting", "running", "stopped")
"""Which workers are preferred where there is no room for all."""
_FINAL: tuple[WorkerState, ...] = ("failed", "lost", "stopped")
"""States that are so for good, or until the process is started again."""


def recoveries(items: Sequence[Recovery]) -> Table:
    """Return the restarts within sessions, the newest."""
    made = headed("recovered", "took", "steps", "error")
    for item in newest(items):
        steps = UNKNOWN
        if item.to_step is not None:
            steps = f"back from {count(item.from_step)} to {count(item.to_step)}"
        times = f" (the last of {item.losses})" if item.losses > 1 else ""
        made.add_row(moment(item.at), duration(item.secs), steps, literal(_in_a_line(item.error)) + times)
    return made


def workers(run: Run, now: float) -> RenderableType:
    """Return the cluster's other processes, as its chief last reported them."""
    made = headed("worker", "state", "silent", "step", "steps", "starts", "host and process")
    notes: list[RenderableType] = []
    for item in shown(run.workers):
        made.add_row(
            literal(item.name),
            _state(run, item),
            since(item.last_seen_at, now),
            count(item.step),
            count(item.steps),
            count(item.starts),
            literal(" ".join(str(part) for part in (item.host, item.pid) if part is not None)) or UNKNOWN,
        )
        why = item.error or (f"waiting for {item.waiting_for}" if item.waiting_for else None)
        if why is not None:
            notes.append(Text(printable(f"{item.name}: {_in_a_line(why)}")))
    left = len(run.workers) - SHOWN_ROWS
    if left > 0:
        notes.append(Text(f"and {left:,} more"))
    return Group(made, *notes)


def lanes(run: Run) -> Iterator[tuple[str, list[tuple[float, float, str]]]]:
    """Return a lane for each worker that is shown: its name, and its states over time."""
    for item in shown(run.workers):
        begun = [
            (span.since, span.since, RESTARTED)
            for before, span in pairwise(item.spans)
            if span.started_at != before.started_at
        ]
        yield item.name, [*((span.since, span.until, OF_STATE[span.state]) for span in item.spans), *begun]


def shown(items: Sequence[WorkerHistory]) -> Sequence[WorkerHistory]:
    """Return the workers that there is room for, in their order; those in trouble come first."""
    if len(items) <= SHOWN_ROWS:
        return items
    chosen = sorted(items, key=lambda item: _FIRST.index(item.state))[:SHOWN_ROWS]
    names = {item.name for item in chosen}
    return [item for item in items if item.name in names]


def _in_a_line(error: str) -> str:
    words = " ".join(error.split())
    return words if len(words) <= SHOWN_CHARACTERS else f"{words[:SHOWN_CHARACTERS]} ..."


def _state(run: Run, item: WorkerHistory) -> str:
    """A state that a dead chief, or an earlier one, reported is the past."""
    is_present = run.state in ("running", "stalled") and item.session == run.sessions[-1].id
    if not is_present and item.state not in _FINAL:
        return f"was {item.state}"
    return f"[bold red]{item.state}[/bold red]" if item.state in ("failed", "lost", "stalled") else item.state
