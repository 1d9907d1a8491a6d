"""`Looking`: looks at all logdirs of a command, as at one list of runs, with what is to be said of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from supervisor_core.base.errors import SupervisorError
from supervisor_core.cli import WrongInput
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, common_directory, name_in, no_runs
from supervisor_core.cli.text import runs_bar
from supervisor_core.metrics.labels import labels_of
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import Standing, findings, standing
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import LogdirSnapshot, RunPlace, WatchedRun, find_run, known_as
from supervisor_core.run.watch.copies import CopyMarks
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.whole_run import WholeRuns
from supervisor_core.storage.local import local_path


@dataclass(frozen=True, slots=True)
class SeenRun:
    """One run at one moment. Its name is relative to what all logdirs have in common."""

    watched: WatchedRun
    findings: tuple[Finding, ...] = ()
    label: str = ""
    """What metrics and alerts call it."""

    @property
    def run(self) -> Run:
        """The run."""
        return self.watched.run

    @property
    def standing(self) -> Standing:
        """Whether it needs somebody."""
        return standing(self.run.state, self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All runs of some logdirs at one moment."""

    at: float
    runs: Mapping[str, SeenRun] = field(default_factory=dict)
    """By name, in the order of the names."""
    problems: tuple[str, ...] = ()
    """What about the logdirs could not be looked at."""

    def asked_for(self, name: str | None) -> list[SeenRun]:
        """Return all runs, or the one of a name; nothing where there is none."""
        if name is None:
            return list(self.runs.values())
        places = {run: RunPlace(seen.watched.directory, seen.watched.own_name) for run, seen in self.runs.items()}
        found = find_run(name, places)
        return [] if found is None else [self.runs[found]]


class Looking:
    """Looks at logdirs.

    Args:
        logdirs: at least one.
        include: a regular expression that a run's name, in its logdir, must match somewhere.
        exclude: one that it must not match anywhere.
        cache: see `LogdirWatch`.
        all_saves: whether also saves that say nothing of the present are wanted of all runs.
        whole: the run of which the histories of threads and workers are wanted; True: of all; None: of none.

    Raises:
        EventsError: if no file system for a remote path is installed.
    """

    def __init__(
        self,
        logdirs: Sequence[GivenLogdir],
        include: str | None = None,
        exclude: str | None = None,
        *,
        cache: str | None = None,
        all_saves: bool = False,
        whole: str | Literal[True] | None = True,
    ) -> None:
        is_one = isinstance(whole, str) and cache is not None
        kept_ticks = 1 if whole is None or is_one else None
        self._watches = [
            LogdirWatch(
                logdir.path,
                logdir.include(include),
                exclude,
                kept_ticks=kept_ticks,
                all_saves=all_saves or kept_ticks is None,
                cache=cache,
            )
            for logdir in logdirs
        ]
        self._whole = (whole, WholeRuns()) if isinstance(whole, str) and is_one else None
        self._copies = CopyMarks[tuple[str, str]]()
        self.directory = common_directory(logdirs)
        """What the names of runs are relative to, as it was given. `path`: the same, absolute where it is local."""
        local = local_path(self.directory)
        self.path = self.directory.rstrip("/") if local is None else os.path.abspath(local)

    def look(self, on_progress: Callable[[int, int], None] | None = None) -> Look:
        """Return the runs as they are now. Raises nothing: what could not be read is a problem.

        Args:
            on_progress: called after each run with the number of runs read, and of all runs found so far.
        """
        snapshots: list[LogdirSnapshot] = []
        for watch in self._watches:
            before = sum(len(each.runs) for each in snapshots)

            def progressed(done: int, total: int, before: int = before) -> None:
                if on_progress is not None:
                    on_progress(before + done, before + total)

            snapshots.append(watch.refresh(progressed))
        runs: dict[str, SeenRun] = {}
        found = {(each.logdir, run): watched for each in snapshots for run, watched in each.runs.items()}
        if len(snapshots) > 1:  # a copy may be in another logdir than what it is a copy of
            found = self._copies.marked(found)
        labels = labels_of({(logdir, run): (logdir, run, watched) for (logdir, run), watched in found.items()})
        for (logdir, run), watched in found.items():
            label = labels[logdir, run]
            said = findings(watched, snapshots[-1].at)
            if len(snapshots) > 1:
                watched = replace(watched, run=replace(watched.run, name=name_in(self.directory, logdir, run)))
            runs[watched.run.name] = SeenRun(watched, said, label)
        look = Look(
            at=snapshots[-1].at,
            runs=runs if len(snapshots) == 1 else dict(sorted(runs.items())),
            problems=tuple(problem for each in snapshots for problem in each.problems),
        )
        if self._whole is None:
            return look
        name, whole = self._whole
        detailed = {seen.run.name: replace(seen, watched=whole.of(seen.watched)) for seen in look.asked_for(name)}
        return replace(look, runs={**look.runs, **detailed})

    def close(self) -> None:
        """Bring the cache up to date, and close it."""
        for watch in self._watches:
            watch.close()


def looking_at(runs: GivenRuns, **how: Any) -> Looking:
    """Return what looks at the runs of a command.

    Args:
        runs: which.
        how: more arguments of `Looking`.

    Raises:
        WrongInput: if a logdir cannot be looked at.
    """
    try:
        return Looking(runs.existing(), runs.include, runs.exclude, cache=runs.cache, **how)
    except SupervisorError as error:
        raise WrongInput(str(error)) from error


def first_look(looking: Looking) -> Look:
    """Return the runs as they are now; a terminal shows how many are read."""
    with runs_bar("reading") as on_progress:
        return looking.look(on_progress)


def check_run(look: Look, logdirs: Sequence[str], name: str | None) -> None:
    """Check that there are runs, and the one of a name if one is given.

    Raises:
        WrongInput: if not.
    """
    where = " or ".join(logdirs)
    if not look.runs:
        if look.problems:
            raise WrongInput(f"{where} cannot be read: {look.problems[0]}")
        raise no_runs("events files", logdirs)
    if name is not None and not look.asked_for(name):
        raise WrongInput(f"{where} has no run {name!r}; {known_as(name, look.runs)}")
