"""The runs of some logdirs, a line each: those that go on or need somebody, with the reason; then those that are over.

On a terminal names are never cut. Where there is no room for them, what several have in common is printed once, above
them; a name that is longer still has a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from textwrap import wrap
from typing import get_args

from rich.cells import cell_len
from rich.text import Text

from supervisor_core.base.log import printable
from supervisor_core.cli.logdirs import shared_parts
from supervisor_core.cli.look import SeenRun
from supervisor_core.cli.text import STYLES, by_its_clock, moment, since, state, with_age
from supervisor_core.events.losses import ACCURACY, LOSS, qualifier
from supervisor_core.run.judge.finding import SEVERITIES, Finding
from supervisor_core.run.judge.findings import Standing
from supervisor_core.run.model.run import LIVE, Run
from supervisor_core.run.model.words import UNKNOWN, count, duration, rate, share

_GAP = 2
_LEAST_NAME = 20
"""Columns of a terminal that names get at least, before other columns are left out for them."""
_GROUP = 3
"""How many names must have a directory in common for that to be printed once."""

Cell = Callable[[SeenRun, float], str]
"""Returns text; of the state, markup."""


def overview(runs: Sequence[SeenRun], now: float, width: int | None = None) -> list[Text]:
    """Return the lines that show all runs.

    Args:
        runs: by name.
        now: the wall time that ages refer to.
        width: columns of the terminal; None for a pipe: then each run is one line with every column.
    """
    over = [seen for seen in runs if _is_over(seen)]
    others = [seen for seen in worst_first(runs) if not _is_over(seen)]
    lines = [Text(counts(runs), style="bold")] if len(runs) > 1 else []
    if others or not over:
        lines += [*([Text()] if lines and width else []), *_Table(others, now, width).lines(_COLUMNS, _LEAST_URGENT)]
    if over:
        full = {
            **_OVER,
            "started": lambda seen, now: moment(seen.run.sessions[0].started_at if seen.run.sessions else None),
        }
        table = _Table(over, now, width)
        lines += [
            *([Text()] if lines and width else []),
            *table.lines(full if table.fits(full) else _OVER, _LEAST_URGENT_OVER),
        ]
    return lines


def worst_first(runs: Iterable[SeenRun]) -> list[SeenRun]:
    """Return runs in the order of the table: those that need somebody, by severity; the others; those that are over."""
    return sorted(runs, key=lambda seen: (_is_over(seen), *_urgency(seen)))


def reason(seen: SeenRun) -> Finding | None:
    """Return why a run needs somebody: its worst finding; None where it does not."""
    worst = seen.findings[0] if seen.findings else None
    return worst if worst is not None and worst.severity != "info" else None


def _is_over(seen: SeenRun) -> bool:
    """Say whether a run is shown as one that is over: also one that has ceased to write, and records no state."""
    return seen.standing == "over" or (seen.standing == "unknown" and not seen.run.launches)


def _urgency(seen: SeenRun) -> tuple[int, float]:
    worst = reason(seen)
    if worst is None:
        return len(SEVERITIES), 0.0
    return list(SEVERITIES).index(worst.severity), -(worst.since or 0.0)  # the newest first, as in the tab


def counts(runs: Sequence[SeenRun]) -> str:
    """Return how many runs need somebody, are fine, are over, and are unknown."""
    found = [seen.standing for seen in runs]
    numbers = {standing: found.count(standing) for standing in get_args(Standing)}
    words = {"needs_you": "needs you" if numbers["needs_you"] == 1 else "need you"}
    return " · ".join(f"{number:,} {words.get(name, name)}" for name, number in numbers.items() if number)


def _checkpoint(run: Run, now: float) -> str:
    """Return the age of the newest good checkpoint and the interval; for a run that has ended its step, at which a
    restart would resume."""
    good = [item for item in run.checkpoints if item.ok and item.is_there is not False]
    if not good:
        return UNKNOWN
    if run.state not in LIVE:
        return UNKNOWN if good[-1].step is None else f"at step {count(good[-1].step)}"
    interval = run.advice.present_interval_secs
    return since(good[-1].at, now) + (f" of {duration(interval)}" if interval else "")


_COLUMNS: Mapping[str, Cell] = {
    "state": lambda seen, now: state(seen.run),
    "step": lambda seen, now: count(seen.run.step),
    "steps/s": lambda seen, now: rate(seen.run.steps_per_sec),
    "checkpoint": lambda seen, now: _checkpoint(seen.run, by_its_clock(seen.run, now)),
    "restarts": lambda seen, now: count(len(seen.run.restarts)),
    "goodput": lambda seen, now: share(seen.run.goodput.ratio) if not seen.run.goodput.inferred else UNKNOWN,
    "silent": lambda seen, now: since(seen.run.last_event_at, by_its_clock(seen.run, now)),
}
_LEAST_URGENT = ("steps/s", "goodput", "restarts", "silent", "checkpoint", "step")


def _date(run: Run) -> str:
    return moment(run.sessions[0].started_at).partition(" ")[0] if run.sessions else UNKNOWN


def lasted(run: Run) -> str:
    """Return how long it is from the begin of a run's first session to the end of its last."""
    starts = [item.started_at for item in run.sessions if item.started_at and isfinite(item.started_at)]
    ends = [item.ended_at for item in run.sessions if item.ended_at and isfinite(item.ended_at)]
    return duration(max(ends) - min(starts)) if starts and ends and max(ends) > min(starts) else UNKNOWN


def _last_value(run: Run, is_loss: bool) -> str:
    """Return the newest value of the most prominent loss or accuracy, with what it is of, unless of the training."""
    pattern = LOSS if is_loss else ACCURACY
    found = next((item for item in run.last_values if pattern.search(item.tag)), None)
    if found is None:
        return UNKNOWN
    of = qualifier(found.tag)
    if of.replace(" ", "").isdigit():  # loss_1: TensorFlow numbers a name that is there already
        of = found.tag
    return f"{printable(of)} {number(found.value)}" if of else number(found.value)


def _state_of_over(seen: SeenRun) -> str:
    if seen.watched.copy_of is not None:
        return "copy"
    return UNKNOWN if seen.run.state == "unknown" else state(seen.run)


def number(value: float) -> str:
    """Return a value of a scalar in four digits."""
    return f"{value:.4g}" if isfinite(value) else str(value).replace("nan", "NaN")


_OVER: Mapping[str, Cell] = {
    "state": lambda seen, now: _state_of_over(seen),
    "started": lambda seen, now: _date(seen.run),
    "lasted": lambda seen, now: lasted(seen.run),
    "step": lambda seen, now: count(seen.run.step),
    "sessions": lambda seen, now: count(len(seen.run.sessions) or None),
    "loss": lambda seen, now: _last_value(seen.run, True),
    "accuracy": lambda seen, now: _last_value(seen.run, False),
}
_LEAST_URGENT_OVER = ("accuracy", "sessions", "loss", "lasted", "started", "step")


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cells: Sequence[Text]
    width: int

    @property
    def is_text(self) -> bool:
        return self.heading == "state"

    def put(self, row: Text, cell: Text) -> None:
        """Add a cell to a row."""
        space = " " * (self.width - cell_len(cell.plain))
        row.append(" " * _GAP + ("" if self.is_text else space))
        row.append_text(cell)
        row.append(space if self.is_text else "")


class _Table:
    def __init__(self, runs: Sequence[SeenRun], now: float, width: int | None) -> None:
        self._runs, self._now, self._width = runs, now, width
        self._names = [printable(seen.run.name) for seen in runs]
        self._longest = max(map(cell_len, ("run", *self._names)))

    def fits(self, columns: Mapping[str, Cell]) -> bool:
        """Say whether there is room for all columns and names."""
        return self._width is None or self._room(self._made(columns)) >= self._longest

    def lines(self, columns: Mapping[str, Cell], least_urgent: Sequence[str]) -> Iterator[Text]:
        """Yield the head, each run, and which columns there is no room for."""
        made = self._made(columns)
        left = []
        for name in least_urgent:
            if self._room(made) >= min(self._longest, _LEAST_NAME):
                break
            if made.pop(name, None) is not None:
                left.append(name)
        room = self._room(made)
        named = [(name, index) for index, name in enumerate(self._names)]
        rows = list(_tree(named)) if room < self._longest else [*named]
        labels = [cell_len(label) for label, index in rows if index is not None]
        name_width = max((each for each in (*labels, 3) if each <= room), default=3)
        shown = list(made.values())
        yield self._row("run", [(each, Text(each.heading)) for each in shown], name_width, "bold")
        for label, index in rows:
            if index is None:
                yield Text(label, style="dim")
                continue
            if cell_len(label) > name_width:
                yield Text(label)
                label = ""
            row = self._row(label, [(each, each.cells[index]) for each in shown], name_width)
            yield from self._with_reason(row, self._runs[index])
        if left:
            yield Text(f"no room for: {', '.join(left)}", style="dim")

    def _made(self, columns: Mapping[str, Cell]) -> dict[str, _Column]:
        """Return the columns by heading; on a terminal without those in which nothing is known."""
        made = {}
        for heading, cell in columns.items():
            text = Text.from_markup if heading == "state" else Text
            cells = [text(cell(seen, self._now)) for seen in self._runs]
            is_known = any(each.plain != UNKNOWN for each in cells)
            if is_known or self._width is None or not cells:
                width = max([cell_len(heading), *(cell_len(each.plain) for each in cells)])
                made[heading] = _Column(heading, cells, width)
        return made

    def _room(self, columns: Mapping[str, _Column]) -> int:
        """Return how many columns of the terminal there are for names."""
        if self._width is None:
            return self._longest
        return self._width - sum(each.width + _GAP for each in columns.values())

    def _row(self, label: str, cells: Sequence[tuple[_Column, Text]], name_width: int, style: str = "") -> Text:
        row = Text(label + " " * (name_width - cell_len(label)), style=style)
        for column, cell in cells:
            column.put(row, cell)
        row.rstrip()
        return row

    def _with_reason(self, row: Text, seen: SeenRun) -> Iterator[Text]:
        worst = reason(seen)
        if worst is None:
            yield row
            return
        text, style = printable(with_age(worst, self._now)), STYLES[worst.severity]
        if self._width is None:
            row.append(" " * _GAP)
            row.append(text, style=style)
            yield row
            return
        yield row
        for line in _wrapped(text, max(20, self._width - 4)):
            yield Text(f"    {line}", style=style)


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a sentence; the age at its end is not divided."""
    whole = re.sub(r"\(for [^()]*\)$", lambda age: age[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    lines = wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _tree(rows: Sequence[tuple[str, int]], indent: str = "") -> Iterator[tuple[str, int | None]]:
    """Yield the names, and above those that have directories in common these, once."""
    for top, grouped in groupby(rows, key=lambda row: row[0].partition("/")[0] if "/" in row[0] else None):
        group = list(grouped)
        if top is None or len(group) < _GROUP:
            yield from ((indent + name, index) for name, index in group)
            continue
        shared = "/".join(shared_parts([name.split("/")[:-1] for name, _ in group])) + "/"
        yield indent + shared, None
        yield from _tree([(name.removeprefix(shared), index) for name, index in group], f"{indent}  ")
