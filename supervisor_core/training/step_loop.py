"""The loop over a run's steps: what `Run.steps` returns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

from supervisor_core.engine.loop_exit import LoopExit, loop_exit
from supervisor_core.training.finished_loops import STEPS_ONCE, finished, refuse_again


class LoopWatch(Protocol):
    """What a framework looks at around a loop over steps."""

    made: int
    """Set to 0 when a pass begins."""

    @property
    def sees_data(self) -> bool:
        """Whether the loop's variables are looked at: those with a position in the data are named."""

    @property
    def limits(self) -> tuple[str, ...]:
        """What a checkpoint of this moment does not capture: sentences."""

    def loop_begins(self, frame: FrameType, *, has_data: bool) -> None:
        """Look at the variables around the loop.

        Args:
            frame: what asks for the first step.
            has_data: whether the position in the data is captured.
        """

    def pass_ended(self, frame: FrameType) -> bool:
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
    if watch is not None:
        watch.loop_begins(sys._getframe(1), has_data=run.state.has_data)
    try:
        while run._step < goal.until and not (is_stopped() and (watch is None or watch.is_at_boundary)):
            point.is_in_step = True
            if watch is not None:
                watch.made = 0
            yield run._step
            is_whole = watch is None or watch.pass_ended(sys._getframe(1))
            point.is_in_step = False
            if is_whole:
                run.step()
            else:
                run.count_step()
    finally:
        if watch is not None:
            watch.end()
        point.leave()
    finished(run.logdir, "steps", until, run.global_step)
