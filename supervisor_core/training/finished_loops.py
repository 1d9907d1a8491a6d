"""The loops of this process that came to their end: one that begins again with nothing left to do is an error.

A program that loops over epochs around a supervised loop, which counts the epochs of all sessions itself, would train
the first of them only, and report that it has completed. A new process that finds a finished run ends quietly: a
restarter may start it again.
"""

from __future__ import annotations

import os

STEPS_ONCE = "Write one loop over all of them, as run.steps() yields it."

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
