"""`Looking`: looks at all logdirs of a command, as at one list of runs, with what is to be said of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from supervisor_core.cli.logdirs import Logdir, common_directory, name_in
from supervisor_core.run.finding import Finding
from supervisor_core.run.findings import Standing, findings, standing
from supervisor_core.run.logdir_watch import LogdirWatch
from supervisor_core.run.model import Run
from supervisor_core.run.snapshot import LogdirSnapshot, WatchedRun

NEAR_NAMES = 10
"""How many names an error lists."""


@dataclass(frozen=True, slots=True)
class SeenRun:
    """One run at one moment. Its name is relative to what all logdirs have in common."""

    watched: WatchedRun
    findings: tuple[Finding, ...] = ()

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
        found = found_name(self.runs, name)
        return [] if found is None else [self.runs[found]]


class Looking:
    """Looks at logdirs.

    Args:
        logdirs: at least one.

    Raises:
        EventsError: if no file system for a remote path is installed.
    """

    def __init__(self, logdirs: Sequence[Logdir]) -> None:
        self._watches = [LogdirWatch(logdir.path, logdir.include) for logdir in logdirs]
        self.directory = common_directory(logdirs)
        """What the names of runs are relative to."""

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
        for each in snapshots:
            for run, watched in each.runs.items():
                said = findings(watched, each.at)
                if len(snapshots) > 1:
                    name = name_in(self.directory, each.logdir, run)
                    watched = replace(watched, run=replace(watched.run, name=name))
                runs[watched.run.name] = SeenRun(watched, said)
        return Look(
            at=snapshots[-1].at,
            runs=runs if len(snapshots) == 1 else dict(sorted(runs.items())),
            problems=tuple(problem for each in snapshots for problem in each.problems),
        )


def found_name(names: Mapping[str, object], given: str) -> str | None:
    """Return which name is meant: the one that was given, or the only one that ends with its parts; None without one.

    Example:
        >>> found_name({"a/mnist": 0, "b/cifar": 0}, "cifar"), found_name({"a/x": 0, "b/x": 0}, "x")
        ('b/cifar', None)
    """
    if given in names:
        return given
    ends = [name for name in names if name.endswith(f"/{given}")]
    return ends[0] if len(ends) == 1 else None


def near_names(names: Mapping[str, object], given: str) -> str:
    """Return the names to choose from instead of one that is not there, the likely ones first."""
    ends = [name for name in names if name.endswith(f"/{given}")]
    near = dict.fromkeys((*ends, *get_close_matches(given, names, NEAR_NAMES, 0.5), *names))
    return ", ".join(list(near)[:NEAR_NAMES]) + (", ..." if len(near) > NEAR_NAMES else "")
