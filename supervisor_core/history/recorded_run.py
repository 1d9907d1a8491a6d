"""`open_run` and `open_runs`: runs of any writer, as plain objects and tables of Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from supervisor_core.base.errors import EventsError
from supervisor_core.events.columns import Columns, ColumnStore, read_columns
from supervisor_core.events.directory import DirectoryTree, is_events_file
from supervisor_core.events.hparams import HParam
from supervisor_core.history.formats import Coded, arrow_array, arrow_schema, pyarrow
from supervisor_core.history.notebook import run_html, runs_html
from supervisor_core.history.rows import SCALARS, Table
from supervisor_core.history.scalars import ScalarColumns
from supervisor_core.run.fold.points import ScalarSummary, scalar_summary
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Restart, Run, RunState, Session
from supervisor_core.run.model.snapshot import LogdirSnapshot, RunPlace, WatchedRun, find_run, known_as, runs_near
from supervisor_core.run.model.words import counted
from supervisor_core.run.watch.hparam_runs import BY_TIME
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import absolute, local_path

_OF_ONE_TAG = Table(name="scalars", columns=SCALARS.columns[2:])
_INSTEAD = "export it as .csv"
_OF_RUNS = Table(name="scalars", columns=(SCALARS.columns[0], *SCALARS.columns[2:]))


def open_run(path: str | os.PathLike[str]) -> RecordedRun:
    """Return a run as it is now, from the events files in a directory, whoever wrote them.

    Nothing of it changes later: open it again to see what is new. Only the points of `RecordedRun.scalars` are read
    when they are first asked for. In a notebook it is shown as the report that ``tb-supervisor report --run`` writes.

    Args:
        path: the run's directory, one of its events files, or an address such as ``gs://bucket/runs/a``.

    Raises:
        EventsError: if there are no events files; the text says what is there instead.

    Example::

        run = supervisor_core.open_run("/runs/digits")
        print(run.state, len(run.restarts))
        loss = run.scalars("loss").to_pandas()
        loss[loss.kept].plot(x="running_time", y="value")
    """
    directory = _directory_of(os.fspath(path))
    watch = LogdirWatch(directory, include=rf"^(\.|{BY_TIME})$")
    snapshot = watch.refresh()
    watched = snapshot.runs.get(".")
    if watched is None:
        raise EventsError(_no_run(directory, snapshot))
    name = os.path.basename(absolute(directory).rstrip("/")) or directory
    return RecordedRun(name, watched, snapshot.at, directory)


def open_runs(
    logdir: str | os.PathLike[str], *, include: str | None = None, exclude: str | None = None
) -> RecordedRuns:
    """Return all runs in and below a directory as they are now; see `open_run`.

    Args:
        logdir: the directory, or an address.
        include: a regular expression that a run's name must match somewhere.
        exclude: one that it must not match anywhere.

    Raises:
        EventsError: if there are no runs; the text says why, where that is known.
        ValueError: if an expression is invalid.

    Example::

        runs = supervisor_core.open_runs("/runs", include="lr=")
        loss = runs.scalars("loss").to_pandas()
        loss[loss.kept].groupby("run").value.min()
    """
    given = os.fspath(logdir)
    snapshot = LogdirWatch(given, include, exclude, kept_ticks=1).refresh()
    if not snapshot.runs:
        wanted = "" if include is None and exclude is None else " of a run whose name is asked for"
        said = snapshot.problems[0] if snapshot.problems else f"There are no events files in {given} or below{wanted}."
        raise EventsError(said)
    return RecordedRuns(given, snapshot)


class RecordedRun:
    """One run as its files were when it was opened: see `open_run`.

    Example::

        for restart in run.restarts:
            print(restart.at, restart.reason, restart.rewind_steps)
    """

    def __init__(self, name: str, watched: WatchedRun, at: float, logdir: str) -> None:
        self.name = name
        """As TensorBoard shows it; of one that was opened by itself, the name of its directory."""
        self.directory = watched.directory
        """The directory of its events files."""
        self.at = at
        """When it was looked at, in seconds since 1970."""
        self.model: Run = replace(watched.run, name=name)
        """Everything else that is known of it."""
        self.problems: tuple[str, ...] = tuple(watched.not_read)
        """What of its files could not be read, in sentences."""
        self._watched, self._logdir = watched, logdir

    @property
    def state(self) -> RunState:
        """``running``, ``stalled``, ``lost``, ``stopped``, ``completed``, ``failed`` or ``unknown``."""
        return self.model.state

    @property
    def sessions(self) -> tuple[Session, ...]:
        """One for each process that trained, in order."""
        return self.model.sessions

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """What is between one session and the next."""
        return self.model.restarts

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Every save, failed ones included."""
        return self.model.checkpoints

    @property
    def hparams(self) -> Mapping[str, HParam]:
        """Its hyperparameters, as TensorBoard's HParams plugin has them; of one that was opened by itself, those too
        that PyTorch's ``add_hparams`` wrote below its directory."""
        return self.model.hparams

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of each package that it recorded."""
        return self.model.versions

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, or to be said, the worst first; ``sentence`` is what the tab shows."""
        return findings(self._watched, self.at)

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that has values, sorted. Reads all points."""
        return self._columns.tags

    def scalars(self, tag: str) -> Any:
        """Return every value of a tag, as a ``pyarrow.Table``; ``to_pandas()`` makes a data frame of it.

        Its columns are ``step``, ``wall_time`` in seconds since 1970, ``running_time`` in seconds without downtime,
        ``value``, ``session``, and ``kept``: False where a later session did the step again. Values come in the order
        in which they were written.

        Raises:
            EventsError: if the run has no such tag, or pyarrow is not installed.
        """
        return self._table(self._columns, tag, _OF_ONE_TAG)

    def summary(self, tag: str) -> ScalarSummary:
        """Return the kept values of a tag in a few numbers: the last, the smallest and the largest with their steps.

        Raises:
            EventsError: if the run has no such tag.
        """
        return scalar_summary(self._files(self._columns, tag), self._known.segments)

    def _files(self, store: ColumnStore, tag: str) -> Mapping[str, Columns]:
        files = store.by_file(tag)
        if not files:
            raise EventsError(f"The run {self.name!r} has no tag {tag!r}: {_known_tags(tag, store.tags)}")
        return files

    def _table(self, store: ColumnStore, tag: str, table: Table) -> Any:
        arrow, files = pyarrow(_INSTEAD), self._files(store, tag)
        schema = arrow_schema(arrow, table)
        pieces = []
        for path, points in files.items():
            runs = Coded(np.zeros(len(points), np.int32), [plain(self.name)])
            columns = {"run": runs, **self._known.of(path, points)}
            arrays = [arrow_array(arrow, columns[field.name], field.type) for field in schema]
            pieces.append(arrow.Table.from_arrays(arrays, schema=schema))
        return arrow.concat_tables(pieces).unify_dictionaries().combine_chunks()

    @cached_property
    def _known(self) -> ScalarColumns:
        return ScalarColumns(self.model)

    @cached_property
    def _columns(self) -> ColumnStore:
        return read_columns(self.directory)

    def __repr__(self) -> str:
        parts: list[str] = [self.state]
        if self.model.step is not None:
            parts.append(f"step {self.model.step:,}")
        parts += [counted(len(self.sessions), "session"), counted(len(self.restarts), "restart")]
        return f"<run {self.name!r}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return run_html(self.name, self._watched, self.at, self._logdir)


class RecordedRuns:
    """Runs as they were when they were opened, in the order of their names: see `open_runs`.

    Example::

        runs["a/digits"].state
        [run.name for run in runs if run.restarts]
    """

    def __init__(self, logdir: str, snapshot: LogdirSnapshot) -> None:
        self.logdir = logdir
        """As it was given."""
        self.at = snapshot.at
        """When they were looked at, in seconds since 1970."""
        self.problems: tuple[str, ...] = snapshot.problems
        """What about the logdir could not be looked at; each run has its own."""
        self._runs: Mapping[str, RecordedRun] = {
            name: RecordedRun(name, watched, snapshot.at, logdir) for name, watched in snapshot.runs.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each."""
        return tuple(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RecordedRun]:
        return iter(self._runs.values())

    def __contains__(self, name: object) -> bool:
        """Whether there is a run of exactly this name."""
        return name in self._runs

    def __getitem__(self, name: str) -> RecordedRun:
        """Return a run by its name, the label of its metrics, its directory, or the end of one of these.

        Raises:
            EventsError: if there is none, or several could be meant.
            TypeError: if it is no text.
        """
        if not isinstance(name, str):
            raise TypeError(f"A run is asked for by its name, not {name!r}; list(runs) has them in order.")
        places = {run.name: RunPlace(run.directory, run._watched.own_name) for run in self}
        found = find_run(name, places)
        if found is None:
            raise EventsError(f"{self.logdir} has no run {name!r}; {known_as(name, self._runs)}")
        return self._runs[found]

    def scalars(self, tag: str) -> Any:
        """Return every value of a tag of all runs, as `RecordedRun.scalars` does, with the run's name as the first
        column, ``run``. Runs that have no such tag have no rows. Holds the points of that tag only.

        Raises:
            EventsError: if no run has such a tag, or pyarrow is not installed.
        """
        arrow = pyarrow(_INSTEAD)
        tags: set[str] = set()
        pieces = []
        for run in self:
            store = read_columns(run.directory, tag, tags)
            if store.tags:
                pieces.append(run._table(store, tag, _OF_RUNS))
        if not pieces:
            raise EventsError(f"No run of {self.logdir} has a tag {tag!r}: {_known_tags(tag, sorted(tags))}")
        return arrow.concat_tables(pieces).unify_dictionaries().combine_chunks()

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'run')} of {self.logdir!r}>"

    def _repr_html_(self) -> str:
        return runs_html(self.logdir, [(run.name, run._watched) for run in self], self.at)


def _known_tags(tag: str, tags: Sequence[str]) -> str:
    """Return what to say after *there is no such tag*: which ones may be meant, else the first of them."""
    if near := runs_near(tag, tags):
        return f"did you mean {' or '.join(map(repr, near))}? There {_are(len(tags), 'tag')}."
    if not tags:
        return "there are no values in its files."
    return f"there {_are(len(tags), 'tag')}: {', '.join(map(repr, tags[:10]))}{', ...' if len(tags) > 10 else ''}."


def _directory_of(path: str) -> str:
    """Return the directory of a run, absolute where it is local."""
    local = local_path(path)
    if local is not None and os.path.isfile(local):
        if not is_events_file(os.path.basename(local)):
            raise EventsError(f"{path} is a file without tfevents in its name; give the directory of events files.")
        path = os.path.dirname(local) or "."
    return absolute(path)


def _no_run(directory: str, snapshot: LogdirSnapshot) -> str:
    """Return why there is no run in a directory itself."""
    if snapshot.problems:
        return snapshot.problems[0]
    tree = DirectoryTree(directory)
    tree.refresh()
    below = [name for name, _ in tree.runs()]
    if not below:
        return f"{directory} has no events files: no file in it, or below it, has tfevents in its name."
    more = ", ..." if len(below) > 5 else ""
    named = ", ".join(map(repr, below[:5]))
    return (
        f"{directory} has no events files of its own. Below it {_are(len(below), 'run')}: {named}{more}. Use open_runs."
    )


def _are(number: int, noun: str) -> str:
    return f"{'is' if number == 1 else 'are'} {counted(number, noun)}"
