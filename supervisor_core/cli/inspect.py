"""``tb-supervisor inspect``: what is known of the runs in a logdir, from their events files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from supervisor_core.checkpoint.filesystem import local_path
from supervisor_core.cli.inspect_json import SCHEMA_VERSION, run_json
from supervisor_core.cli.overview import overview
from supervisor_core.cli.timeline import timeline
from supervisor_core.errors import SupervisorError
from supervisor_core.watch.logdir_watch import LogdirWatch
from supervisor_core.watch.snapshot import Snapshot

FOLLOW_SECS = 2.0
"""How often ``--follow`` looks again."""

OnProgress = Callable[[int, int], None]


class WrongInput(click.ClickException):
    """What was typed cannot be carried out: one line, status 2."""

    exit_code = 2


@click.command()
@click.argument("logdir")
@click.option("--run", "name", metavar="RUN", help="Show one run's timeline instead of the table of all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --follow, one line per change.")
@click.option("--follow", is_flag=True, help="Go on looking, until Ctrl-C.")
@click.pass_context
def inspect(context: click.Context, logdir: str, name: str | None, as_json: bool, follow: bool) -> None:
    """Show the runs in and below LOGDIR: state, step, steps per second, checkpoint age, restarts, goodput.

    Reads the events files of any writer. A run that tells nothing of itself is inferred from what it wrote, and marked.

    Exit status: 0 if LOGDIR was read; 1 if some of it could not be; 2 if it is no directory, has no runs, or not the
    one that was asked for.
    """
    _check(logdir)
    try:
        watch = LogdirWatch(logdir)
        with _progress() as on_progress:
            snapshot = watch.refresh(on_progress)
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    if not follow:
        _check_run(snapshot, logdir, name)
    with suppress(KeyboardInterrupt) if follow else nullcontext():
        if as_json:
            _print_json(watch, snapshot, logdir, name, follow)
        else:
            _print_text(watch, snapshot, name, follow)
    context.exit(1 if snapshot.problems else 0)


def _check(logdir: str) -> None:
    local = local_path(logdir)
    if local is None or os.path.isdir(local):
        return
    if os.path.exists(local):
        raise WrongInput(f"{logdir} is a file; give the directory that it is in.")
    raise WrongInput(f"{logdir} does not exist.")


def _check_run(snapshot: Snapshot, logdir: str, name: str | None) -> None:
    if not snapshot.runs:
        if snapshot.problems:
            raise WrongInput(f"{logdir} cannot be read: {snapshot.problems[0]}")
        raise WrongInput(f"There are no events files in {logdir} or below it.")
    if name is not None and name not in snapshot.runs:
        some = ", ".join(list(snapshot.runs)[:10]) + (", ..." if len(snapshot.runs) > 10 else "")
        raise WrongInput(f"{logdir} has no run {name!r}; it has {some}.")


def _print_json(watch: LogdirWatch, snapshot: Snapshot, logdir: str, name: str | None, follow: bool) -> None:
    click.echo(json.dumps(_object(snapshot, logdir, name), indent=None if follow else 2))
    if follow:
        before = _marks(snapshot)
        for later in _following(watch):
            if _marks(later) != before:
                before = _marks(later)
                click.echo(json.dumps(_object(later, logdir, name)))


def _print_text(watch: LogdirWatch, snapshot: Snapshot, name: str | None, follow: bool) -> None:
    console = Console(highlight=False)
    if not follow:
        console.print(_view(snapshot, name, console.width))
    elif console.is_terminal:
        with Live(_view(snapshot, name, console.width), console=console, auto_refresh=False) as live:
            for later in _following(watch):
                live.update(_view(later, name, console.width), refresh=True)
    else:
        before = _marks(snapshot)
        console.print(_view(snapshot, name, console.width))
        for later in _following(watch):
            if _marks(later) != before:
                before = _marks(later)
                console.print(_view(later, name, console.width))


def _view(snapshot: Snapshot, name: str | None, width: int) -> RenderableType:
    parts: list[RenderableType] = []
    if name is None:
        parts.append(overview([item.run for item in snapshot.runs.values()], snapshot.at))
    elif name in snapshot.runs:
        parts.append(timeline(snapshot.runs[name].run, snapshot.at, width))
    else:
        parts.append(Text(f"There is no run {name!r} yet."))
    parts += [Text.from_markup(f"[bold red]not read[/bold red] {escape(problem)}") for problem in snapshot.problems]
    return Group(*parts)


def _object(snapshot: Snapshot, logdir: str, name: str | None) -> dict[str, Any]:
    return {
        "v": SCHEMA_VERSION,
        "logdir": logdir,
        "at": snapshot.at,
        "problems": list(snapshot.problems),
        "runs": [
            run_json(item.run, item.files, snapshot.at)
            for item in snapshot.runs.values()
            if name is None or item.run.name == name
        ],
    }


def _marks(snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
    """What has to differ for a run to be shown again."""
    return {name: (item.run.state, item.records) for name, item in snapshot.runs.items()}


def _following(watch: LogdirWatch) -> Iterator[Snapshot]:
    never = threading.Event()
    while not never.wait(FOLLOW_SECS):
        yield watch.refresh()


@contextmanager
def _progress() -> Iterator[OnProgress | None]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
