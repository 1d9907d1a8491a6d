"""`run_labels`: the ``run`` label of every run, no two the same, whatever the runs are called and where they lie.

`logdir_labels`: the ``logdir`` label of every logdir.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from supervisor_core.metrics.render import label_text
from supervisor_core.run.model.snapshot import WatchedRun

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class RunLocation:
    """What a run's label is made of."""

    logdir: str
    """As the exporter was given it."""
    name: str
    """The run's directory relative to that; ``.`` for the logdir itself."""
    own_name: str | None
    """`WatchedRun.own_name`."""
    served: str | None = None
    """The label that it has been given before; None for a run that is new."""


def run_labels(runs: Sequence[RunLocation]) -> list[str]:
    """Return a label for each run: the first of these that no other run has.

    1. the name that its own process serves metrics under, so that both series are of one run;
    2. its name below the logdir; the logdir's last part for the logdir itself;
    3. the same with the logdir's last part before it;
    4. the same with the whole logdir before it; with a number, if even that is not its own.

    Runs that would have the same label all go on to the next kind, so that no label depends on who came first. But
    whoever writes a run's events files can write any name into them: a run's own name counts only if no other run can
    be called so by its directory, and no other has been served under it before. So a new run, whatever it calls
    itself, changes no other's label.

    Takes time in proportion to the runs.

    Example:
        >>> locations = [("/logs", "1", "digits"), ("/logs", "2", None), ("/old", "2", None)]
        >>> run_labels([RunLocation(*location) for location in locations])
        ['digits', 'logs/2', 'old/2']
    """
    of_directory = [[label_text(label) for label in _of_directory(run)] for run in runs]
    directories = {label for labels in of_directory for label in labels}
    own_names = [label_text(run.own_name) if run.own_name else None for run in runs]
    claims: dict[str, list[int]] = {}
    choosing: list[_Choosing] = []
    refused: list[_Choosing] = []
    labels = [""] * len(runs)
    for index, (own, choices) in enumerate(zip(own_names, of_directory, strict=True)):
        if own is None or own in choices:
            choosing.append(_Choosing(index, choices if own is None else [own, *choices]))
        elif own in directories:
            refused.append(_Choosing(index, choices))
        else:
            claims.setdefault(own, []).append(index)
    for own, indexes in claims.items():
        served = [index for index in indexes if runs[index].served == own]
        kept = (indexes if len(indexes) == 1 else served)[:1]
        for index in kept:
            labels[index] = own
        refused += [_Choosing(index, of_directory[index]) for index in indexes if index not in kept]
    for run in _chosen(choosing, refused):
        labels[run.index] = run.label
    return _numbered(labels)


def labels_of(runs: Mapping[_Key, tuple[str, str, WatchedRun]]) -> dict[_Key, str]:
    """Return what an exporter of the same logdirs calls each run: for a silence.

    Args:
        runs: logdir, name below it, and run.
    """
    locations = [RunLocation(logdir, name, watched.own_name) for logdir, name, watched in runs.values()]
    return dict(zip(runs, run_labels(locations), strict=True))


def logdir_labels(logdirs: Sequence[str]) -> list[str]:
    """Return the ``logdir`` label of every logdir: its path; with a number, if it is there twice."""
    return _numbered([label_text(logdir) for logdir in logdirs])


@dataclass(slots=True)
class _Choosing:
    """A run that is called by its directory."""

    index: int
    choices: list[str]
    level: int = 0

    @property
    def label(self) -> str:
        return self.choices[self.level]

    @property
    def is_last(self) -> bool:
        return self.level == len(self.choices) - 1


def _chosen(choosing: list[_Choosing], later: list[_Choosing]) -> list[_Choosing]:
    """Have each run choose its first label that no other has; some begin a round later. A label that has been left is
    free for who comes then."""
    holders: defaultdict[str, list[_Choosing]] = defaultdict(list)
    moving, entering = choosing, later
    while moving or entering:
        for run in moving:
            holders[run.label].append(run)
        leaving = []
        for label in {run.label for run in moving}:
            if len(held := holders[label]) > 1:  # all go on that can
                leaving += [run for run in held if not run.is_last]
                holders[label] = [run for run in held if run.is_last]
        for run in leaving:
            run.level += 1
        moving, entering = leaving + entering, []
    return [*choosing, *later]


def _of_directory(run: RunLocation) -> list[str]:
    logdir = run.logdir.rstrip("/") or "/"
    last = logdir.rpartition("/")[2] or logdir
    below = last if run.name == "." else run.name
    qualified = [last, logdir] if run.name == "." else [f"{last}/{run.name}", f"{logdir.rstrip('/')}/{run.name}"]
    return [below, *qualified]


def _numbered(labels: Sequence[str]) -> list[str]:
    """Number labels that look the same: bytes that are not text may be shown as other text is written."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    numbered = []
    for label in labels:
        candidate, number = label, numbers.get(label, 1)
        while candidate in taken:
            number += 1
            candidate = f"{label} ({number})"
        numbers[label] = number
        taken.add(candidate)
        numbered.append(candidate)
    return numbered
