"""``tb-supervisor export``: scalars, and the history of runs, as tables in files: one table in one file, or all in a
directory."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from supervisor_core.base.errors import EventsError, SupervisorError
from supervisor_core.base.log import printable
from supervisor_core.cli import WrongInput, checked_target, paths, require_system, seconds_option, writing
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, common_directory, given_runs, name_in, no_runs
from supervisor_core.cli.look import Look, Looking, first_look, looking_at
from supervisor_core.cli.serving import configure_log
from supervisor_core.cli.text import progress_bar
from supervisor_core.history.archive import Archive, Export
from supervisor_core.history.formats import JsonLines, Parquet
from supervisor_core.history.rows import CHECKPOINTS, SCALARS, TABLES, rows_of
from supervisor_core.history.scalars import RunPoints, ScalarColumns, ScalarPass
from supervisor_core.history.table import FlatTable, HistoryTable
from supervisor_core.history.table_file import FORMATS, TableFile
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.words import counted
from supervisor_core.storage.local import local_path

TABLE_NAMES = (SCALARS.name, *(table.name for table in TABLES))
"""Tables of an export file; the first is the default."""

_BAR = (
    *(TextColumn("exporting"), BarColumn(), MofNCompleteColumn()),
    *(TextColumn("runs, {task.description} values"), TimeElapsedColumn()),
)
_SHOWN_PROBLEMS = 5
"""Of one run."""


wait: Callable[[float], object] = threading.Event().wait
"""Waits for these seconds."""
_LOG = logging.getLogger("supervisor_core")
_OTHER_FILES = (".json", ".ndjson", ".tsv", ".txt", ".pq", ".arrow", ".feather", ".xlsx", ".gz", ".zip", ".zst")
"""Endings of names that are meant to be files, in formats that there are not."""


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return

    def columns(table: FlatTable) -> dict[str, Any]:
        return {"columns": {column.name: {"type": column.type, "text": column.text} for column in table.columns}}

    tables = {table.name: {"key": ["logdir", *table.key], "day": table.day, **columns(table)} for table in TABLES}
    click.echo(json.dumps({**tables, SCALARS.name: columns(SCALARS)}, indent=2))
    context.exit()


@click.command(
    short_help="Write scalars, and the history of runs, into files.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor export -o runs.parquet /runs\n"
    "  tb-supervisor export -o restarts.csv --table restarts /runs\n"
    "  tb-supervisor export --follow -o history /runs",
)
@given_runs
@click.option(
    "--output",
    "-o",
    "output",
    required=True,
    metavar="FILE|DIR",
    shell_complete=paths,
    help="A file .parquet, .csv or .jsonl, replaced if it exists; or a directory, created if it is missing.",
)
@click.option(
    "--table",
    metavar="TABLE",
    help="The table in FILE: scalars, sessions, session_days, restarts, checkpoints, notices or findings.  "
    "[default: scalars]",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["parquet", "jsonl"]),
    help="Of the files in DIR. Parquet needs pyarrow, which the extra [data] installs.  [default: parquet]",
)
@click.option("--follow", is_flag=True, help="Bring DIR up to date again and again, until Ctrl-C or SIGTERM.")
@seconds_option("--interval", "How often --follow looks.", default="5m", least=1.0, most=86_400.0)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print tables and columns as JSON, and exit.",
)
def export(
    runs: GivenRuns,
    output: str,
    table: str | None,
    format_name: str | None,
    follow: bool,
    interval_secs: float,
) -> None:
    """Write values and history of the runs in and below each LOGDIR, of any writer.

    Into FILE: one table of all runs, the scalars if nothing else is said. It is there as a whole or not at all.

    Into DIR: sessions, session_days, restarts, checkpoints, notices and findings, in files by day. A row replaces the
    one with its key, so it may be called as often as you like. Rows of runs that were deleted stay. A file is replaced
    as a whole: a kill at any time leaves none torn.

    Exit status: 0 if all was written, or after Ctrl-C with --follow; 1 if a part of LOGDIR could not be read; 2 if
    LOGDIR is not a directory, FILE or DIR cannot be written, or an argument is wrong; 74 if the disk is full.
    """
    require_system("export", "linux", "darwin")
    local_output = local_path(output)
    if not local_output:
        raise WrongInput(f"--output is {output!r}; expected a local directory or file; a bucket may be mounted there.")
    is_file = is_file_name(local_output)
    if is_file and (follow or format_name is not None):
        wrong = "--follow brings a directory up to date" if follow else "--format is of the files in a directory"
        raise click.UsageError(f"{wrong}, and {output} is one file, whose ending says its format.")
    if not is_file and table is not None:
        raise click.UsageError(f"--table is of one file; name one that ends in .parquet, .csv or .jsonl, not {output}.")
    if not is_file and local_output.lower().endswith(_OTHER_FILES) and not os.path.isdir(local_output):
        raise click.UsageError(
            f"{output} is a file of no known format; expected the ending .parquet, .csv or .jsonl, or a directory."
        )
    if table is not None and table not in TABLE_NAMES:
        raise click.UsageError(f"--table is {table!r}; expected {', '.join(TABLE_NAMES[:-1])} or {TABLE_NAMES[-1]}.")
    configure_log()
    try:
        with writing(output):
            if is_file:
                is_whole = export_file(local_output, table or TABLE_NAMES[0], runs)
            else:
                is_whole = _export_directory(local_output, runs, format_name, interval_secs if follow else None)
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    if not is_whole:
        click.get_current_context().exit(1)


def _export_directory(directory: str, runs: GivenRuns, format_name: str | None, follow_secs: float | None) -> bool:
    """Bring a directory up to date, once or until interrupted; return whether all could be read the first time."""
    form = JsonLines() if format_name == "jsonl" else Parquet()
    looking = looking_at(runs, all_saves=True, whole=None)
    with (
        Archive(directory, looking.path, form) as archive,
        suppress(KeyboardInterrupt) if follow_secs is not None else nullcontext(),
    ):
        exporting = Export(archive, looking.path)
        look = first_look(looking)
        _store(exporting, look, directory)
        if follow_secs is not None:
            _follow(exporting, looking, directory, follow_secs)
    for problem in look.problems:
        click.echo(printable(problem), err=True)
    return not look.problems and all(seen.watched.read_ok for seen in look.runs.values())


def _store(exporting: Export, look: Look, directory: str) -> None:
    changed = exporting.update((seen.watched, seen.findings) for seen in look.runs.values())
    found = ", ".join(f"{number:,} {name}" for name, number in changed.items() if number)
    if found:
        click.echo(printable(f"{directory}: {found}"))


def _follow(exporting: Export, looking: Looking, directory: str, interval_secs: float) -> None:
    """Look and store until interrupted. What could not be stored is tried again at the next look."""
    failed = False
    while True:
        wait(interval_secs)
        try:
            _store(exporting, looking.look(), directory)
            failed = False
        except (EventsError, OSError) as error:
            if not failed:
                _LOG.warning("%s could not be brought up to date, and is tried again: %s", directory, error)
            failed = True


def is_file_name(output: str) -> bool:
    """Say whether an output is meant to be one file: by its ending, unless it is a directory."""
    return os.path.splitext(output)[1].lower() in FORMATS and not os.path.isdir(output)


def export_file(output: str, table: str, runs: GivenRuns) -> bool:
    """Write a table of all runs into a file, and say how much it is; return whether all could be read.

    Args:
        output: the file.
        table: one of `TABLE_NAMES`.
        runs: which; the cache has no scalars.

    Raises:
        EventsError, OSError: if it cannot be written.
        WrongInput: if no file can be there.
    """
    path, ending = checked_target(output), os.path.splitext(output)[1].lower()
    writing = _Writing(path, ending, runs)
    if table == SCALARS.name:
        writing.scalars()
    else:
        (chosen,) = (each for each in TABLES if each.name == table)
        writing.history(chosen)
    click.echo(printable(f"{output}: {writing.rows:,} {table} of {counted(writing.runs, 'run')}."))
    for problem in writing.problems:
        click.echo(printable(problem), err=True)
    return not writing.problems


class _Writing:
    """One file, and what there is to be said of it afterwards."""

    def __init__(self, path: str, ending: str, given: GivenRuns) -> None:
        self._path, self._ending, self._given = path, ending, given
        self.rows, self.runs = 0, 0
        self.problems: list[str] = []

    def scalars(self) -> None:
        logdirs = self._given.existing()
        directory = common_directory(logdirs)
        with TableFile(self._path, SCALARS, self._ending) as file, progress_bar(*_BAR) as update:
            points = 0

            def add(more: int) -> None:
                nonlocal points
                points += more
                update(description=f"{points:,}")

            add(0)
            for logdir in logdirs:
                reading = ScalarPass(logdir.path, logdir.include(self._given.include), self._given.exclude)

                def take(found: RunPoints, logdir: GivenLogdir = logdir) -> None:
                    run = found.watched.run
                    is_one = len(logdirs) == 1
                    name = run.name if is_one else name_in(directory, logdir.path, run.name)
                    columns = ScalarColumns(run)
                    for path, by_tag in found.pieces:
                        file.write(columns.rows(name, path, by_tag))
                    self._note(name, found.watched)

                def progressed(done: int, total: int, before: int = self.runs) -> None:
                    update(completed=before + done, total=before + total)

                reading.read(take, progressed, add)
                self.problems += reading.problems
            self._check()
        self.rows = file.rows

    def history(self, table: HistoryTable) -> None:
        looking = looking_at(self._given, all_saves=table is CHECKPOINTS, whole=None)
        look = first_look(looking)
        looking.close()
        self.problems += look.problems
        with TableFile(self._path, table, self._ending) as file:
            for name, seen in look.runs.items():
                found = rows_of(looking.path, seen.watched, seen.findings)
                file.write_rows(row for each, row in found if each is table)
                self._note(name, seen.watched)
            self._check()
        self.rows = file.rows

    def _check(self) -> None:
        """Check that there are runs: a file without any would replace one that has some."""
        if self.runs:
            return
        if self.problems:
            raise WrongInput(f"{self._given.logdirs[0]} cannot be read: {self.problems[0]}")
        raise no_runs("events files", self._given.logdirs)

    def _note(self, name: str, watched: WatchedRun) -> None:
        self.runs += 1
        texts = watched.not_read
        self.problems += [f"{name}: {text}" for text in texts[:_SHOWN_PROBLEMS]]
        if len(texts) > _SHOWN_PROBLEMS:
            self.problems.append(f"{name}: and {len(texts) - _SHOWN_PROBLEMS:,} more")
