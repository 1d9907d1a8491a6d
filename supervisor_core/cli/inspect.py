"""``tb-supervisor inspect``: the runs in a logdir, from their events files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, islice
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from supervisor_core.cli import WrongInput, check_logdir, directories
from supervisor_core.cli.sentences import (
    LOSS_IS_NOT_FINITE,
    failure_lines,
    last_good_lines,
    restart_lines,
    trouble_lines,
)
from supervisor_core.cli.text import STATES, Output, literal, overview, runs_bar
from supervisor_core.cli.timeline import timeline
from supervisor_core.errors import SupervisorError
from supervisor_core.log import printable
from supervisor_core.run.logdir_watch import LogdirWatch
from supervisor_core.run.model import Run, RunState
from supervisor_core.run.run_json import as_json, plain, run_json
from supervisor_core.run.snapshot import LogdirSnapshot, WatchedRun

FOLLOW_SECS = 2.0
"""How often ``--follow`` snapshots again."""

NOT_READ_STATUS = 1
FAIL_ON_STATUS = 3

SHOWN_PROBLEMS = 5
"""Of each run; ``--json`` has a hundred of each file."""
_PIECES = 10_000
"""Of a JSON text that are written at once."""
SHOWN_TROUBLES = 10
"""Lines of each kind below the table of all runs."""
UNBOUNDED = 100_000
"""Columns of a pipe: there lines are as long as they need to be."""


def _states(context: click.Context, parameter: click.Parameter, value: str) -> tuple[RunState, ...]:
    """Return states of runs that were given with commas between them."""
    given = {word.strip() for word in value.split(",")} - {""}
    if strange := sorted(given - STATES.keys()):
        raise click.BadParameter(f"{printable(strange[0])!r} is not a state; expected {', '.join(STATES)}.")
    return tuple(state for state in STATES if state in given)


@click.command(
    short_help="Show the runs in a logdir: state, step, checkpoint, restarts.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor inspect /runs\n"
    "  tb-supervisor inspect --run mnist /runs\n"
    "  tb-supervisor inspect --fail-on lost,failed,stalled /runs",
)
@click.argument("logdir", shell_complete=directories)
@click.option("--run", "name", metavar="RUN", help="Show one run's timeline instead of the table of all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --follow, one line per change.")
@click.option("--follow", is_flag=True, help="Keep watching, until Ctrl-C.")
@click.option(
    "--fail-on",
    callback=_states,
    default="",
    show_default=False,
    metavar="STATES",
    help="Exit with status 3 if a run is in one of these states, for example lost,failed,stalled.",
)
@click.pass_context
def inspect(
    context: click.Context,
    logdir: str,
    name: str | None,
    as_json: bool,
    follow: bool,
    fail_on: tuple[RunState, ...],
) -> None:
    """Show the runs in and below LOGDIR: state, step, steps per second, checkpoint age, restarts, goodput.

    Reads the events files of any program. Values of a run without telemetry are inferred, and marked.

    Exit status: 0 if everything was read; 1 if a part could not be read; 2 if LOGDIR is not a directory, has no runs,
    or not the one of --run; 3 if --fail-on applies.
    """
    check_logdir(logdir)
    try:
        watch = LogdirWatch(logdir)
        with runs_bar("reading") as on_progress:
            snapshot = watch.refresh(on_progress)
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    if not follow:
        _check_run(snapshot, logdir, name)
    snapshots = [snapshot]
    with suppress(KeyboardInterrupt) if follow else nullcontext():
        later = _following(watch, snapshots) if follow else iter(())
        if as_json:
            _print_json(snapshots[0], later, logdir, name, follow)
        else:
            _print_text(snapshots[0], later, name, follow)
    context.exit(_status(snapshots[-1], name, fail_on))


def _status(snapshot: LogdirSnapshot, name: str | None, fail_on: Sequence[RunState]) -> int:
    runs = _asked_for(snapshot, name)
    failed = [f"{item.run.name} ({item.run.state})" for item in runs if item.run.state in fail_on]
    if failed:
        more = f" and {len(failed) - 10:,} more" if len(failed) > 10 else ""
        click.echo(printable(f"In a state of --fail-on: {', '.join(failed[:10])}{more}."), err=True)
        return FAIL_ON_STATUS
    return NOT_READ_STATUS if snapshot.problems or any(_not_read(item) for item in runs) else 0


def _asked_for(snapshot: LogdirSnapshot, name: str | None) -> list[WatchedRun]:
    return [item for key, item in snapshot.runs.items() if name is None or key == name]


def _not_read(item: WatchedRun) -> list[str]:
    """Return what of a run could not be read. An empty file holds nothing, and one that ends within a record is being
    written, or was when its process was killed: neither is a fault."""
    files = [file for file in item.files if not (file.skipped and file.size_bytes == 0)]
    texts = [f"{file.path}: {file.skipped}" for file in files if file.skipped]
    for file in files:
        for problem in file.problems:
            where = "" if problem.offset is None else f" at byte {problem.offset:,}"
            texts.append(f"{file.path}{where}: {problem.text}")
    whole = [item.problem] if item.problem and item.problem not in texts else []
    return whole + texts


def _check_run(snapshot: LogdirSnapshot, logdir: str, name: str | None) -> None:
    if not snapshot.runs:
        if snapshot.problems:
            raise WrongInput(f"{logdir} cannot be read: {snapshot.problems[0]}")
        raise WrongInput(f"There are no events files in {logdir} or below it.")
    if name is not None and name not in snapshot.runs:
        some = ", ".join(list(snapshot.runs)[:10]) + (", ..." if len(snapshot.runs) > 10 else "")
        raise WrongInput(f"{logdir} has no run {name!r}; it has {some}.")


def _print_json(
    snapshot: LogdirSnapshot, later: Iterator[LogdirSnapshot], logdir: str, name: str | None, follow: bool
) -> None:
    for item in _changes(snapshot, later):
        if follow:
            click.echo(json.dumps(_object(item, logdir, name)))
            continue
        # Piece by piece: of ten thousand sessions the pieces of the whole text take more memory than the run.
        pieces = json.JSONEncoder(indent=2).iterencode(_object(item, logdir, name))
        while text := "".join(islice(pieces, _PIECES)):
            click.echo(text, nl=False)
        click.echo()


def _print_text(snapshot: LogdirSnapshot, later: Iterator[LogdirSnapshot], name: str | None, follow: bool) -> None:
    terminal, unbounded = Output(highlight=False), Output(highlight=False, width=UNBOUNDED)

    def view(item: LogdirSnapshot) -> RenderableType:
        return _view(item, name, terminal.width, terminal.width if terminal.is_terminal else None)

    if terminal.is_terminal and follow:
        with Live(view(snapshot), console=terminal, auto_refresh=False) as live:
            for item in later:
                live.update(view(item), refresh=True)
        return
    # Where even a name is longer than the terminal is wide, the terminal itself breaks the line of the table.
    console = terminal if terminal.is_terminal and name is not None else unbounded
    for item in _changes(snapshot, later):
        console.print(view(item))


def _view(snapshot: LogdirSnapshot, name: str | None, bars: int, width: int | None) -> RenderableType:
    """Return what is shown, with bars of one width, and a table of runs within another."""
    parts: list[RenderableType] = []
    if name is None:
        parts.append(overview([item.run for item in snapshot.runs.values()], snapshot.at, width))
        parts += _troubles([item.run for item in snapshot.runs.values()], snapshot.at)
    elif name in snapshot.runs:
        parts.append(timeline(snapshot.runs[name].run, snapshot.at, bars))
    else:
        parts.append(Text(printable(f"There is no run {name!r} yet.")))
    parts += [_problem(problem) for problem in snapshot.problems]
    for item in _asked_for(snapshot, name):
        texts = [text for text in _not_read(item) if text not in snapshot.problems]
        parts += [_problem(text, item.run.name) for text in texts[:SHOWN_PROBLEMS]]
        if len(texts) > SHOWN_PROBLEMS:
            parts.append(_problem(f"and {len(texts) - SHOWN_PROBLEMS:,} more", item.run.name))
    return Group(*parts)


def _troubles(runs: Sequence[Run], now: float) -> list[RenderableType]:
    """Return what the table does not show: why runs have failed or were restarted; what those that are alive cannot
    write, and a loss that is not finite."""
    lines, notes = [], []
    for run in runs:
        texts = trouble_lines(run)
        if run.state in ("running", "stalled") and run.loss_finite is False:
            texts += [LOSS_IS_NOT_FINITE, *last_good_lines(run)]
        texts += failure_lines(run)
        lines += [Text(f"{printable(run.name)}: {printable(text)}", style="bold red") for text in texts]
        notes += [Text(f"{printable(run.name)}: {printable(text)}") for text in restart_lines(run, now)]
    return [*_limited(lines, "bold red"), *_limited(notes, "")]


def _limited(lines: Sequence[Text], style: str) -> list[RenderableType]:
    left = len(lines) - SHOWN_TROUBLES
    more = [Text(f"and {left:,} more such lines", style=style)] if left > 0 else []
    return [*lines[:SHOWN_TROUBLES], *more]


def _problem(text: str, run: str | None = None) -> Text:
    whose = "" if run is None else f"{literal(run)}: "
    return Text.from_markup(f"[bold red]not read[/bold red] {whose}{literal(text)}")


def _object(snapshot: LogdirSnapshot, logdir: str, name: str | None) -> dict[str, Any]:
    return {
        "v": SCHEMA_VERSION,
        "logdir": logdir,
        "at": snapshot.at,
        "problems": list(snapshot.problems),
        "runs": [run_object(item, snapshot.at) for item in _asked_for(snapshot, name)],
    }


def _marks(snapshot: LogdirSnapshot) -> dict[str, tuple[object, ...]]:
    """What has to differ for a run to be shown again."""
    return {name: (item.run.state, item.records) for name, item in snapshot.runs.items()}


def _changes(snapshot: LogdirSnapshot, later: Iterator[LogdirSnapshot]) -> Iterator[LogdirSnapshot]:
    """Yield a snapshot, and each later one in which a run has to be shown again."""
    before = None
    for item in chain([snapshot], later):
        if _marks(item) != before:
            before = _marks(item)
            yield item


def _following(watch: LogdirWatch, snapshots: list[LogdirSnapshot]) -> Iterator[LogdirSnapshot]:
    """Yield each later look, and keep the newest in ``snapshots``."""
    never = threading.Event()
    while not never.wait(FOLLOW_SECS):
        snapshots[:] = [watch.refresh()]
        yield snapshots[0]


SCHEMA_VERSION = 1


def run_object(watched: WatchedRun, now: float) -> dict[str, Any]:
    """Return one run as plain values, with nothing in it that JSON cannot hold."""
    run = watched.run
    good = [item for item in run.checkpoints if item.ok and item.at]
    values = run_json(watched)
    found: dict[str, Any] = plain(
        {
            **values,
            "trouble": trouble_lines(run),
            "checkpoint_age_secs": max(0.0, now - (good[-1].at or 0.0)) if good else None,
            "launches": [{**as_json(item), "last_words": item.stderr} for item in run.launches],
            "workers": [{**as_json(item), "spans": as_json(item.spans)} for item in run.workers],
            "problems": [*_problem_of_run(watched), *values["problems"]],
        }
    )
    return found


def _problem_of_run(watched: WatchedRun) -> list[dict[str, Any]]:
    """Return the problem of the run as a whole, unless it is one of its files'."""
    about_a_file = {f"{problem.path}: {problem.text}" for problem in watched.file_problems}
    if watched.problem is None or watched.problem in about_a_file:
        return []
    return [{"path": None, "offset": None, "kind": "run", "text": watched.problem}]
