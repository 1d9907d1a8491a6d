"""Trainings that are over: loops of this process that came to their end, and runs that the program has finished.

A loop that begins again with nothing left to do is an error.

A program that loops over epochs around a supervised loop, which counts the epochs of all sessions itself, would train
the first of them only, and report that it has completed. A new process that finds a finished run ends quietly: a
restarter may start it again.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping

_LOG = logging.getLogger("supervisor_core")

STEPS_ONCE = "Write one loop over all of them, as run.steps() yields it."

MARK = "finished"
"""The counter of a checkpoint that says that the program has finished the training, and the begin of the names of those
that say which limits it had then."""

_FINISHED: dict[tuple[str, str], int] = {}
"""By logdir and what is counted: how far the loops of this process went that came to their end."""


def refuse_again(logdir: str, what: str, until: int, done: int, instead: str) -> None:
    """Do nothing, but where a loop has nothing left to do, and one of this process came to that end before.

    Args:
        logdir: the run's directory.
        what: what is counted, as "steps".
        until: how many there are, over all sessions.
        done: how many are done.
        instead: what to write instead: a sentence.

    Raises:
        ValueError: for a loop that does it all again.
    """
    if done >= until and until <= _FINISHED.get((os.path.realpath(logdir), what), -1):
        raise ValueError(
            f"Nothing is left to do: the run in {logdir} has {done} of {until} {what}, and a loop of this process has "
            f"come to that end before. They are counted over all sessions of a run. {instead} For another training use "
            "another logdir."
        )


def finished(logdir: str, what: str, until: int, done: int) -> None:
    """Remember that a loop has ended, if it came to its end; see `refuse_again`."""
    if done >= until:
        key = os.path.realpath(logdir), what
        _FINISHED[key] = max(until, _FINISHED.get(key, until))


class Goal:
    """Where a training ends: at its limits, or where the program finishes it.

    Args:
        counters: those of the checkpoints; see `TrainingState.counters`.
        logdir: the run's directory, for the log.
    """

    def __init__(self, counters: dict[str, int], logdir: str) -> None:
        self._counters = counters
        self._logdir = logdir
        self._limits: Mapping[str, int] = {}
        self.until = math.inf
        """The number of steps after which the training is over; below 0 where the program has finished it."""

    @property
    def is_finished(self) -> bool:
        """Whether the program has finished the training, in this session or in one before it."""
        return self.until < 0

    def finish(self) -> None:
        """The program finishes the training: the next checkpoint says so, and which limits there were."""
        self._counters[MARK] = 1
        self._counters.update({f"{MARK}_{what}": until for what, until in self._limits.items()})
        self.until = -1

    def restored(self) -> None:
        """A checkpoint was restored, and its counters."""
        self.until = -1 if self._counters.get(MARK) else math.inf

    def limit(self, limits: Mapping[str, int], step: int) -> None:
        """Set the limits. A training that was finished goes on where one of them was raised since then, or is gone.

        Args:
            limits: what is counted, as "steps", and how many there are.
            step: the number of steps done.
        """
        self._limits, until = limits, limits.get("steps", math.inf)
        marks = {name: value for name, value in self._counters.items() if name.partition("_")[0] == MARK}
        before = {name.removeprefix(f"{MARK}_"): value for name, value in marks.items() if name != MARK}
        raised = [what for what, value in before.items() if limits.get(what, math.inf) > value]
        self.until = -1 if marks and not raised else until
        if self.is_finished:
            more = f"give it more {' or '.join(before)}; else " if before else ""
            _LOG.info(
                "The training in %s was finished at step %d: nothing is left to do. To train on, %suse another logdir.",
                self._logdir, step, more,
            )  # fmt: skip
        elif marks:
            for name in marks:
                del self._counters[name]
            _LOG.info("The training was finished at step %d; it goes on: there are more %s now.", step, raised[0])
