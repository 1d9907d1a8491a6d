"""What the terminal shows: moments, sizes, other programs' text, tables, progress, and sentences about a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.log import printable
from supervisor_core.events.losses import LOSS
from supervisor_core.run.judge.finding import Finding, Severity
from supervisor_core.run.model.run import Advice, Restart, Run, RunState
from supervisor_core.run.model.words import DAY_SECS, UNKNOWN, count, counted, duration, in_a_line, share


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


UNBOUNDED = 100_000
"""Columns of a pipe: its lines are as long as they need to be."""
SHOWN_ROWS = 20
"""Limit of the rows of a table; ``--json`` has all."""

_CUT = 120
"""Letters of a cell in a column that is cut."""
_SHORT = 22
"""A column is not wrapped if no cell is longer, and there is room."""
_GAP = 2
"""After a column."""

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


class Fitted:
    """A table whose short columns are wrapped only where the terminal is too narrow for them: no text is cut.

    Args:
        columns: heading -> cells, as markup.
        numbers: headings of columns that are flush right.
    """

    def __init__(self, columns: Mapping[str, Sequence[str]], numbers: Collection[str] = ()) -> None:
        self._columns, self._numbers = columns, numbers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table for this width."""
        texts = {
            heading: [Text.from_markup(text) for text in (heading, *cells)] for heading, cells in self._columns.items()
        }
        widths = {heading: max(text.cell_len for text in found) for heading, found in texts.items()}
        words = {
            heading: min(_SHORT, max(cell_len(word) for text in found for word in ("", *text.plain.split())))
            for heading, found in texts.items()
        }
        room = options.max_width - _GAP * len(widths) - sum(words.values())
        if room >= 0:
            for heading in sorted(widths, key=lambda heading: (widths[heading] > _SHORT, widths[heading])):
                more = widths[heading] - words[heading]
                given = more if more <= room else 0 if widths[heading] <= _SHORT else room
                words[heading] += given
                room -= given
            # Wrapped here: versions of rich share out the room differently.
            for heading, found in texts.items():
                texts[heading] = [
                    Text("\n").join(text.wrap(console, words[heading], overflow="fold")) for text in found
                ]
        table = headed()
        for heading, (title, *_) in texts.items():
            table.add_column(title, overflow="fold", justify="right" if heading in self._numbers else "left")
        for row in zip(*(cells for _, *cells in texts.values()), strict=True):
            table.add_row(*row)
        yield table


def literal(text: str) -> str:
    """Return text as markup that shows it unchanged; control characters become escapes. No tag may follow at once."""
    return escape(printable(text) + " ")[:-1]  # some versions of rich double a backslash at the end, some do not


def bold(text: str) -> str:
    """Return text as markup that shows it in bold, and otherwise unchanged."""
    shown = literal(text)
    last = shown[len(shown.rstrip("\\")) :]  # before a tag each backslash has to be doubled
    return f"[bold]{shown}{last}[/bold]"


def known(items: Sequence[Item], columns: Mapping[str, Callable[[Item], str]]) -> dict[str, list[str]]:
    """Return the cells of a table by their heading, without columns in which nothing is known."""
    cells = {heading: [cell(item) for item in items] for heading, cell in columns.items()}
    return {heading: texts for heading, texts in cells.items() if any(text not in ("", UNKNOWN) for text in texts)}


def listed(
    items: Sequence[Item], columns: Mapping[str, Callable[[Item], str]], cut: str | None = None
) -> list[RenderableType]:
    """Return a table of the last `SHOWN_ROWS` items, in a list; nothing without any. A column in which nothing is known
    is left out.

    Args:
        items: a row each.
        columns: heading -> what makes the cell of an item, as markup.
        cut: the heading of a column whose longer cells are cut; the whole texts follow the table.
    """
    if not items:
        return []
    shown = items[-SHOWN_ROWS:]
    cells = known(shown, columns)
    whole_texts = []
    for number, markup in enumerate(cells.get(cut or "", ())):
        text = Text.from_markup(markup)
        if cut is not None and len(text.plain) > _CUT:
            first = next(iter(cells))
            whole_texts.append(Text(f"{first} {Text.from_markup(cells[first][number]).plain}: {text.plain}"))
            cells[cut][number] = f"{literal(in_a_line(text.plain)[:_CUT])} ..."
    return [Fitted(cells), *whole_texts] if cells else []


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


OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""

SHOW_AFTER_SECS = 2.0
"""A command that works for less shows no progress."""
_LOOK_SECS = 0.1
"""How often it is asked whether a command works that long."""


@contextmanager
def progress_bar(
    *columns: ProgressColumn, clock: Clock = SYSTEM_CLOCK, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar while the body runs, if that takes long and standard error is a terminal.

    Args:
        columns: of the bar.
        clock: says how long it takes.
        console: the terminal. Default: standard error.

    Returns:
        What sets the bar's ``completed``, ``total`` and ``description``.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda **given: None
        return
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, get_time=clock.monotonic)
    task, began, ended = bar.add_task("reading", total=None), clock.monotonic(), threading.Event()

    def show() -> None:
        while not ended.wait(_LOOK_SECS):
            if clock.monotonic() - began >= SHOW_AFTER_SECS:
                bar.start()
                return

    thread = threading.Thread(target=show, name="progress-bar", daemon=True)
    thread.start()
    try:
        yield partial(bar.update, task)
    finally:
        ended.set()
        thread.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def runs_bar(what: str, *, clock: Clock = SYSTEM_CLOCK, console: Console | None = None) -> Iterator[OnProgress]:
    """Show how many runs are read, as `progress_bar` does.

    Args:
        what: what is done, the first word of the line.
        clock: as there.
        console: as there.
    """
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeElapsedColumn())
    with progress_bar(*columns, clock=clock, console=console) as update:
        yield lambda done, total: update(completed=done, total=total)


# A run in sentences: findings with their ages, restarts, values, advice.

SHOWN_REASONS = 5
"""Reasons against an exact resume; ``--json`` has all."""
SHOWN_NONFINITE = 5
"""Tags with values that are not finite; ``--json`` has all."""

STYLES: dict[Severity, str] = {"page": "bold red", "warn": "yellow", "info": ""}


def by_its_clock(run: Run, now: float) -> float:
    """Return the present time by the clock of a run's machine, from which ages of the run's times count."""
    return now + (run.clock_skew_secs or 0.0)


def with_age(finding: Finding, now: float) -> str:
    """Return what a finding says, and for how long that has been so."""
    age = since(finding.since, now)
    return finding.text if age == UNKNOWN else f"{finding.text} (for {age})"


def finding_lines(found: Sequence[Finding], now: float) -> list[Text]:
    """Return all of some findings: text, since when, cost; and what to do in a line of its own, to be pasted: not the
    command that shows this."""
    lines = []
    for finding in found:
        age = since(finding.since, now)
        when = "" if age == UNKNOWN else f" (for {age}, since {moment(finding.since)})"
        lines.append(Text(printable(finding.text), style=STYLES[finding.severity]).append(when, style="dim"))
        if finding.cost is not None:
            lines.append(Text(f"  {printable(finding.cost)}"))
        is_this = finding.is_command and (finding.action or "").startswith("tb-supervisor inspect ")
        if finding.action is not None and not is_this:
            # Not wrapped: the terminal itself may break the line, and it can still be copied whole.
            line = Text(f"  do: {printable(finding.action)}", style="bold")
            line.no_wrap = finding.is_command
            line.overflow = "ignore" if finding.is_command else None
            lines.append(line)
    return lines


def again_text(restart: Restart) -> str:
    """Return how many steps were recomputed after a restart, with bounds where it is not known exactly; empty where
    nothing is known."""
    least, most = restart.rewind_steps, restart.rewind_steps_most
    if least is not None and least == most:
        return f"{counted(least, 'step')} recomputed"
    if not least:
        return "" if most is None else f"at most {counted(most, 'step')} recomputed"
    return f"at least {counted(least, 'step')} recomputed" + ("" if most is None else f", at most {count(most)}")


def resume_lines(run: Run) -> list[str]:
    """Return what was observed of the newest session's resume, and all reasons why it was not exact, and why the next
    one will not be, where there are several, a line each."""
    newest = run.sessions[-1] if run.sessions else None
    if newest is None:
        return []
    check = newest.resume_check
    observed = [] if check is None or not check.is_equal else [f"Resume: {check.text}."]
    of_next = _reason_lines("The next resume, not exact", run.next_resume_lacks)
    return [*observed, *_reason_lines("Not an exact resume", newest.why_not_exact or ()), *of_next]


def _reason_lines(what: str, reasons: Sequence[str]) -> list[str]:
    if len(reasons) < 2:
        return []
    lines = [f"{what}: {reason}" for reason in reasons[:SHOWN_REASONS]]
    more = len(reasons) - len(lines)
    return [*lines, f"{what}: other reasons: {more}; --json has all."] if more > 0 else lines


def nonfinite_lines(run: Run) -> list[str]:
    """Return which tags have values that are NaN or infinite, a line each; those that look like a loss first."""
    found = sorted(run.nonfinite_tags, key=lambda item: LOSS.search(item.tag) is None)
    lines = [
        f"Not finite: {item.tag}: {count(item.values)} {'value is' if item.values == 1 else 'values are'} NaN or "
        f"infinite, {_steps(item.first_step, item.last_step)}."
        for item in found[:SHOWN_NONFINITE]
    ]
    if len(found) > SHOWN_NONFINITE:
        lines.append(f"Not finite: {count(len(found) - SHOWN_NONFINITE)} more tags (--json has all).")
    return lines


def _steps(first: int, last: int) -> str:
    return f"step {count(first)}" if first == last else f"steps {count(first)} to {count(last)}"


def advice_text(advice: Advice) -> str | None:
    """Return the recommended checkpoint interval, in one sentence; None where there is none."""
    if advice.recommended_interval_secs is None:
        return None
    text = f"Recommended checkpoint interval: {duration(advice.recommended_interval_secs)}"
    if advice.recommended_cost_ratio is not None:
        text += f" (expected cost {share(advice.recommended_cost_ratio)} of the time)"
    text += f", from {advice.failures} failures"
    if advice.present_interval_secs:
        text += f"; present interval {duration(advice.present_interval_secs)}"
        if advice.present_cost_ratio is not None:
            text += f" ({share(advice.present_cost_ratio)})"
    return text + "."
