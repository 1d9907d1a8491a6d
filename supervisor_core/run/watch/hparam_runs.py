"""`HParamsByPlace`: the hyperparameters of runs that are written into another directory than their scalars.

A run without any of its own has, in this order,

1. those of the nearest directory above it: Keras writes them into ``run-0``, and scalars into ``run-0/train``;
   TensorBoard's HParams plugin counts both as one;
2. those of a run right below it that holds nothing else, or one point of each tag, as PyTorch's ``add_hparams`` leaves
   it, in a directory that is named by the time: the newest of these, else the only one of another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from supervisor_core.events.hparams import HParam
from supervisor_core.run.model.snapshot import WatchedRun

ROOT = "."
"""The name of the run in the logdir itself."""
BY_TIME = r"\d{9,10}\.\d+"
"""What ``add_hparams`` names its directory by, as a regular expression."""


class HParamsByPlace:
    """Gives runs the hyperparameters of their neighbours, again and again. Used by one thread at a time.

    Example:
        >>> HParamsByPlace().joined({})
        {}
    """

    def __init__(self) -> None:
        self._joined: dict[str, tuple[WatchedRun, WatchedRun]] = {}
        """Each run that was given some, as it came and as it was handed out."""

    def joined(self, runs: Mapping[str, WatchedRun]) -> dict[str, WatchedRun]:
        """Return the runs by name; a run that has not changed is the same object as before.

        Args:
            runs: by name, as the logdir has them.
        """
        before, self._joined = self._joined, {}
        found = dict(runs)
        owners = {name: watched.run.hparams for name, watched in runs.items() if watched.run.hparams}
        if not owners:
            return found
        below = _below(runs, owners)
        for name, watched in runs.items():
            if name in owners:
                continue
            hparams = next((owners[above] for above in _above(name) if above in owners), None) or below.get(name)
            if hparams is None:
                continue
            known = before.get(name)
            if known is None or known[0] is not watched or known[1].run.hparams != hparams:
                known = watched, replace(watched, run=replace(watched.run, hparams=hparams))
            self._joined[name] = known
            found[name] = known[1]
        return found


def _above(name: str) -> Iterator[str]:
    """Yield the names of the directories above a run, the nearest first; not the logdir: what it has is its own."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _below(
    runs: Mapping[str, WatchedRun], owners: Mapping[str, Mapping[str, HParam]]
) -> dict[str, Mapping[str, HParam]]:
    """Return the hyperparameters that runs without any have in a run below them."""
    parts: dict[str, list[str]] = {}
    for name in owners:
        above, _, _ = name.rpartition("/")
        if (above or ROOT) in runs and name != ROOT and _is_summary(runs[name]):
            parts.setdefault(above or ROOT, []).append(name)
    found = {}
    for above, names in parts.items():
        by_time = [name for name in names if re.fullmatch(BY_TIME, name.rpartition("/")[2])]
        if by_time:
            found[above] = owners[max(by_time, key=lambda name: float(name.rpartition("/")[2]))]
        elif len(names) == 1 and above != ROOT:
            found[above] = owners[names[0]]
    return found


def _is_summary(watched: WatchedRun) -> bool:
    """Return whether a run holds no more than one point of each tag."""
    run = watched.run
    return run.first_step == run.max_step and watched.records <= run.scalar_tags + _OTHER_RECORDS


_OTHER_RECORDS = 8
"""Of a run that holds hyperparameters only: versions of the file and of the writer, the plugin's own."""
