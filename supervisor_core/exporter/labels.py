"""`run_labels`: the ``run`` label of every run, no two the same, whatever the runs are called and where they lie.

`logdir_labels`: the ``logdir`` label of every logdir.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor_core.metrics.render import label_text


@dataclass(frozen=True, slots=True)
class RunPlace:
    """What a run's label is made of."""

    logdir: str
    """As the exporter was given it."""
    name: str
    """The run's directory relative to that; ``.`` for the logdir itself."""
    own_name: str | None
    """The label under which the run's own process serves it; None where it is not known."""


def run_labels(runs: Sequence[RunPlace]) -> list[str]:
    """Return a label for each run: the first of these that no other run has.

    1. the name that its own process serves it under, so that both series are of one run;
    2. its name below the logdir; the logdir's last part for the logdir itself;
    3. the same with the logdir's last part before it;
    4. the same with the whole logdir before it; with a number, if even that is not its own.

    Runs that would have the same label all go on to the next kind, so that no label depends on who came first.

    Example:
        >>> run_labels([RunPlace("/logs", "1", "digits"), RunPlace("/logs", "2", None), RunPlace("/old", "2", None)])
        ['digits', 'logs/2', 'old/2']
    """
    choices = [[label_text(label) for label in _choices(run)] for run in runs]
    levels = [0] * len(runs)
    while True:
        labels = [choice[level] for choice, level in zip(choices, levels, strict=True)]
        count = Counter(labels)
        clashing = [
            index for index, label in enumerate(labels) if count[label] > 1 and levels[index] < len(choices[index]) - 1
        ]
        if not clashing:
            return _numbered(labels)
        for index in clashing:
            levels[index] += 1


def logdir_labels(logdirs: Sequence[str]) -> list[str]:
    """Return the ``logdir`` label of every logdir: its path; with a number, if it is there twice."""
    return _numbered([label_text(logdir) for logdir in logdirs])


def _choices(run: RunPlace) -> list[str]:
    logdir = run.logdir.rstrip("/") or "/"
    last = logdir.rpartition("/")[2] or logdir
    below = last if run.name == "." else run.name
    qualified = [last, logdir] if run.name == "." else [f"{last}/{run.name}", f"{logdir.rstrip('/')}/{run.name}"]
    return [*([run.own_name] if run.own_name else []), below, *qualified]


def _numbered(labels: list[str]) -> list[str]:
    """Tell apart what nothing else does: bytes that are no text may be shown as other text is written."""
    taken: set[str] = set()
    numbered = []
    for label in labels:
        candidate, number = label, 1
        while candidate in taken:
            number += 1
            candidate = f"{label} ({number})"
        taken.add(candidate)
        numbered.append(candidate)
    return numbered
