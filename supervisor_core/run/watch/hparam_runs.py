"""`HParamsByPlace`: the hyperparameters of runs that are written into another directory than their scalars.

The directory that ``add_hparams`` makes while its parent trains is no training itself: it is not running.

A run without any of its own has, in this order,

1. those of the nearest directory above it: Keras writes them into ``run-0``, and scalars into ``run-0/train``;
   TensorBoard's HParams plugin counts both as one;
2. those of the newest run right below it that is named by the time, as PyTorch's ``add_hparams`` does, and holds
   nothing else, or one point of each tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

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
        below: dict[str, Mapping[str, HParam]] = {}
        summaries: set[str] = set()
        for name in sorted(owners, key=lambda name: (len(name), name)):  # of two times the later one is last
            above, _, last = name.rpartition("/")
            if re.fullmatch(BY_TIME, last) and _is_summary(runs[name]):
                below[above or ROOT] = owners[name]
                summaries.add(name)
        for name, watched in runs.items() if owners else ():
            *above_it, _ = accumulate(name.split("/"), "{}/{}".format)
            hparams = owners.get(name) or next((owners[above] for above in reversed(above_it) if above in owners), None)
            hparams = hparams or below.get(name)
            is_no_training = name in summaries and watched.run.state == "running"
            if hparams is None or (name in owners and not is_no_training):
                continue
            known = before.get(name)
            if known is None or known[0] is not watched or known[1].run.hparams != hparams:
                run = replace(watched.run, hparams=hparams)
                known = watched, replace(watched, run=replace(run, state="unknown") if is_no_training else run)
            self._joined[name] = known
            found[name] = known[1]
        return found


def _is_summary(watched: WatchedRun) -> bool:
    """Return whether a run holds no more than one point of each tag."""
    run = watched.run
    return run.first_step == run.max_step and watched.records <= run.scalar_tags + _OTHER_RECORDS


_OTHER_RECORDS = 8
"""Of a run that holds hyperparameters only: versions of the file and of the writer, the plugin's own."""
