"""The other processes of a run, and the sessions of TensorFlow that were lost with them, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from rich.console import RenderableType
from rich.text import Text

from supervisor_core.cli.sentences import by_its_clock
from supervisor_core.cli.text import SHOWN_ROWS, listed, literal, moment, since
from supervisor_core.events.telemetry import WorkerState
from supervisor_core.log import printable
from supervisor_core.run.cluster import place_text
from supervisor_core.run.model import LIVE, Recovery, Run, WorkerHistory
from supervisor_core.run.words import UNKNOWN, count, duration, in_a_line, pace_text

RESTARTED = "↺"
OF_STATE: dict[WorkerState, str] = {
    "waiting": "·",
    "running": "█",
    "stalled": "!",
    "lost": "▒",
    "failed": "▓",
    "stopped": " ",
}
_FIRST: tuple[WorkerState, ...] = ("failed", "lost", "stalled", "waiting", "running", "stopped")
"""Which workers are preferred where there is no room for all."""
_FINAL: tuple[WorkerState, ...] = ("failed", "lost", "stopped")
"""States that are so for good, or until the process is started again."""


def _steps_back(item: Recovery) -> str:
    return UNKNOWN if item.restored_step is None else f"back from {count(item.step)} to {count(item.restored_step)}"


RECOVERIES: Mapping[str, Callable[[Recovery], str]] = {
    "recovered": lambda item: moment(item.at),
    "took": lambda item: duration(item.secs),
    "steps": _steps_back,
    "error": lambda item: literal(in_a_line(item.error)) + (f" (the last of {item.losses})" if item.losses > 1 else ""),
}


def workers(run: Run, now: float) -> list[RenderableType]:
    """Return the cluster's other processes, as they last reported themselves, or as their chief reported them."""
    columns: dict[str, Callable[[WorkerHistory], str]] = {
        "worker": lambda item: literal(item.name),
        "state": lambda item: _state(run, item),
        "silent": lambda item: since(item.last_seen_at, by_its_clock(run, now)),
        "step": lambda item: count(item.step),
        "steps": lambda item: count(item.steps),
        "step, of it own": lambda item: pace_text(item.pace),
        "starts": lambda item: count(item.starts),
        "host and process": lambda item: (
            literal(" ".join(str(part) for part in (item.host, item.pid) if part is not None)) or UNKNOWN
        ),
    }
    parts = listed(shown(run.workers), columns)
    for item in shown(run.workers):
        why = item.error or (f"waiting for {item.waiting_for}" if item.waiting_for else None) or place_text(item)
        if why is not None:
            parts.append(Text(printable(f"{item.name}: {in_a_line(why)}")))
    left = len(run.workers) - SHOWN_ROWS
    return [*parts, Text(f"and {left:,} more")] if left > 0 else parts


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


def _state(run: Run, item: WorkerHistory) -> str:
    """A state that a dead chief, or an earlier one, reported is the past."""
    is_present = run.state in LIVE and item.session == run.sessions[-1].id
    if not is_present and item.state not in _FINAL:
        return f"was {item.state}"
    return f"[bold red]{item.state}[/bold red]" if item.state in ("failed", "lost", "stalled") else item.state
