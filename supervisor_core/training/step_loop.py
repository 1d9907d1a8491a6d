"""The loop over a run's steps: what `Run.steps` returns."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from supervisor_core.engine.loop_exit import LoopExit, loop_exit
from supervisor_core.training.values import Values
from supervisor_core.training.variables import asking


class LoopWatch(Protocol):
    """What a framework looks at around a loop over steps."""

    made: int
    """Set to 0 when a pass begins."""

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""

    def loop_begins(self, values: Values) -> None:
        """The loop begins, with what compares its values."""

    def pass_ended(self) -> bool:
        """The loop asks for its next step; return whether this moment's state can be saved."""

    @property
    def is_at_boundary(self) -> bool:
        """Whether the training can stop here."""

    def end(self) -> None:
        """The loop has ended."""


def steps_of(run: Any, until: int) -> Iterator[int]:
    """Return what yields the number of each step that is left; see `Run.steps`.

    Args:
        run: a `Run`, whose module imports this one.
        until: the run's last step.

    Raises:
        ValueError: if that is no number from 0.
    """
    try:
        is_number = not isinstance(until, bool) and until >= 0
    except TypeError:
        is_number = False
    if not is_number:
        raise ValueError(f"steps() was given {until!r}; expected the number of steps of the whole run, from 0.")
    return _steps(run, until) if run.is_entered else _session(run, until)


def _session(run: Any, until: int) -> Iterator[int]:
    """Yield the steps of a run that was not entered: its session begins and ends with the loop."""
    error: BaseException | None = None
    left: LoopExit | None = None
    try:
        run.__enter__()
        yield from _steps(run, until)
    except GeneratorExit:  # the loop was left in its body
        left = loop_exit()
        raise
    except BaseException as raised:
        error = raised
        raise
    finally:
        if left is None:
            run.__exit__(None if error is None else type(error), error, None)
        else:
            run.left_by(left)


def _steps(run: Any, until: int) -> Iterator[int]:
    is_stopped, point, goal, watch = run.stop_probe(), run.save_point, run.goal, run.state.watch
    refuse_again(run.logdir, "steps", until, run.global_step, STEPS_ONCE)
    goal.limit({"steps": until}, run.global_step)
    goal.is_left = False
    values, looks = run.state.loop_values(), True
    run.watch_values(values, asking("supervisor_core"))
    if watch is not None:
        watch.loop_begins(values)
    try:
        while run._step < goal.until and not (is_stopped() and (watch is None or watch.is_at_boundary)):
            point.is_in_step = True
            if watch is not None:
                watch.made = 0
            yield run._step
            if looks:
                looks = run.first_step_ended(asking("supervisor_core"), run._step)
            is_whole = watch is None or watch.pass_ended()
            point.is_in_step = False
            if is_whole:
                run.step()
            else:
                run.count_step()
    except GeneratorExit:
        goal.is_left = True
        raise
    finally:
        values.compare(asking("supervisor_core"))
        if watch is not None:
            watch.end()
        point.leave()
    finished(run.logdir, "steps", until, run.global_step)


_LOG = logging.getLogger("supervisor_core")

STEPS_ONCE = "Write one loop over all of them, as run.steps() yields it."

LEFT_EARLY = (
    "After a resume the loop over {} steps was left at step {}. If its data have ended, they did not go on where they "
    'were: add their loader to state, as "data". If the training is completed, call finish() before the loop is left.'
)

MARK = "finished"
"""The counter of a checkpoint that says that the program has finished the training, and the begin of the names of those
that say which limits it had then."""

_FINISHED: dict[tuple[str, str], int] = {}
"""By logdir and what is counted: how far the loops of this process went that came to their end."""


def refuse_again(logdir: str, what: str, until: int, done: int, instead: str) -> None:
    """Do nothing, but where a loop has nothing left to do, and one of this process came to that end before.

    Args:
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
        self.is_left = False
        """Whether the loop over them was left in its body."""

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
