"""``tb-supervisor export``: scalars, and the history of runs, one table in one file."""

from __future__ import annotations

import json
import os

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from supervisor_core.base.errors import SupervisorError
from supervisor_core.base.log import printable
from supervisor_core.cli import WrongInput, checked_target, paths, require_system, writing
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, common_directory, given_runs, name_in, no_runs
from supervisor_core.cli.look import first_look, looking_at
from supervisor_core.cli.text import progress_bar
from supervisor_core.history.formats import FORMATS, TableFile
from supervisor_core.history.rows import CHECKPOINTS, SCALARS, TABLES, Table, rows_of
from supervisor_core.history.scalars import RunPoints, ScalarColumns, ScalarPass
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


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return

    tables = {
        table.name: {"columns": {column.name: {"type": column.type, "text": column.text} for column in table.columns}}
        for table in (*TABLES, SCALARS)
    }
    click.echo(json.dumps(tables, indent=2))
    context.exit()


@click.command(
    short_help="Write scalars, or the history of runs, into a file.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor export -o runs.parquet /runs\n"
    "  tb-supervisor export -o restarts.csv --table restarts /runs",
)
@given_runs
@click.option(
    "--output",
    "-o",
    "output",
    required=True,
    metavar="FILE",
    shell_complete=paths,
    help="A file .parquet, .csv or .jsonl, replaced if it exists.",
)
@click.option("--table", type=click.Choice(TABLE_NAMES), default=TABLE_NAMES[0], help="The table.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print tables and columns as JSON, and exit.",
)
def export(runs: GivenRuns, output: str, table: str) -> None:
    """Write values or history of the runs in and below each LOGDIR, of any writer: one table of all runs, which is
    there as a whole or not at all. Parquet needs pyarrow, which the extra [data] installs.

    Exit status: 0 if all was written; 1 if a part of LOGDIR could not be read; 2 if LOGDIR is not a directory, FILE
    cannot be written, or an argument is wrong; 74 if the disk is full.
    """
    require_system("export", "linux", "darwin")
    local_output = local_path(output)
    if not local_output:
        raise WrongInput(f"--output is {output!r}; expected a local file; a bucket may be mounted there.")
    if os.path.splitext(local_output)[1].lower() not in FORMATS:
        raise WrongInput(f"--output is {output}; expected a file that ends in {', '.join(FORMATS)}.")
    try:
        with writing(output):
            is_whole = export_file(local_output, table, runs)
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    if not is_whole:
        click.get_current_context().exit(1)


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

    def history(self, table: Table) -> None:
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
