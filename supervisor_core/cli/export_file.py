"""What ``tb-supervisor export -o FILE`` does: one table in one file."""

from __future__ import annotations

import os

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from supervisor_core.cli import WrongInput, checked_target
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, common_directory, name_in, no_runs
from supervisor_core.cli.look import first_look, looking_at
from supervisor_core.cli.text import progress_bar
from supervisor_core.history.rows import CHECKPOINTS, SCALARS, TABLES, rows_of
from supervisor_core.history.scalar_columns import ScalarColumns
from supervisor_core.history.scalar_pass import RunPoints, ScalarPass
from supervisor_core.history.table import HistoryTable
from supervisor_core.history.table_file import FORMATS, TableFile
from supervisor_core.log import printable
from supervisor_core.run.snapshot import WatchedRun
from supervisor_core.run.words import counted

TABLE_NAMES = (SCALARS.name, *(table.name for table in TABLES))
"""Each table that a file can hold; the first is that of a file of which nothing else is said."""

_BAR = (
    *(TextColumn("exporting"), BarColumn(), MofNCompleteColumn()),
    *(TextColumn("runs, {task.description} values"), TimeElapsedColumn()),
)
_SHOWN_PROBLEMS = 5
"""Of one run."""


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
