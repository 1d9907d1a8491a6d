"""`EpochPass`: the epochs of a program that has a loop over them of its own, ``for epoch in loop.epochs():``.

In an epoch there is what the program does before its batches, the loop over the batches, and what follows them, as an
evaluation or ``scheduler.step()``. A checkpoint is of a moment between two batches, or of the epoch's end:

    before the batches      nothing is saved; a resume within the epoch comes here again, and the random states are set
                            to those of the save when the batches begin
    after the last batch    a checkpoint says that the batches are over: a resume goes on with what follows them
    what follows them       nothing is saved, but for a signal: a copy of the moment before, which is kept meanwhile
    the epoch's end         the position is that of the next epoch; the same step is saved once more if that is due

So what follows the batches is done once in what a resume continues, wherever the process is killed. A training that
ends within an epoch ends its session when the loop over the batches ends: what follows them is not in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Protocol

from supervisor_core.engine.loop_exit import loop_exit
from supervisor_core.torch.optimizer_steps import OptimizerSteps
from supervisor_core.torch.position import LoaderPosition
from supervisor_core.torch.range_position import RangePosition
from supervisor_core.training import random_state
from supervisor_core.training.in_loop import end_of_epoch
from supervisor_core.training.position import Accumulated
from supervisor_core.training.run import Run

LEFT_AFTER = "It was saved when the loop over epochs had been left: what follows the batches may be left out."
NOT_ITERATED = (
    "The epoch has ended, and its batches were not asked for: iterate over the loop in it, as in "
    "`for epoch in loop.epochs():` and `for batch in loop:`, in place of the loader."
)
AGAIN = "The batches of this epoch were iterated before: iterate over the loop once in each epoch."


class Loop(Protocol):
    """What this needs of a `SupervisedLoop`."""

    run: Run
    _position: LoaderPosition | RangePosition
    _steps: OptimizerSteps
    _accumulated: Accumulated
    _has_ended: bool

    def _has_epoch(self) -> bool: ...
    def _batches(self) -> Generator[Any, None, bool]: ...
    def _body_left(self) -> None: ...
    def _end_session(self) -> None: ...


class EpochPass:
    """See the module's docstring.

    Args:
        loop: the session's.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._is_asked = self._is_after = False
        self._random: Any = None
        self._after = ExitStack()
        self.limits: tuple[str, ...] = ()
        """What a checkpoint of this moment does not capture: sentences."""
        self.is_open = False
        """Whether the loop over the batches is under way."""
        self.is_whole = False
        """Whether the state is that of the moment after a batch, and its step is counted."""

    def epochs(self) -> Generator[int, None, None]:
        """Yield the epochs that are left."""
        loop, run, position = self._loop, self._loop.run, self._loop._position
        while not loop._has_ended and loop._has_epoch():
            self._is_asked = False
            if position.batch:  # a resume
                self._random = random_state.capture(run.state.sources())
                loop._steps.made_before()
            yield position.epoch
            if self._has_ended():
                return
            if self.is_open:  # the program has caught what has ended the loop over the batches
                self._left_by_break()
            if not self._is_asked:
                raise RuntimeError(NOT_ITERATED)
            self._is_after = False
            self._after.close()
            position.next_epoch()
            run.state_changed()
            if loop._accumulated.is_at_boundary:
                run.save_if_due()

    def batches(self) -> Generator[Any, None, None]:
        """Yield the batches that are left of the present epoch."""
        loop = self._loop
        if loop._has_ended:
            return
        if self._is_asked:
            raise RuntimeError(AGAIN)
        self._is_asked = self.is_open = True
        if self._random is not None:
            random_state.restore(loop.run.state.sources(), self._random)
            self._random = None
        try:
            is_over = yield from loop._batches()
        except GeneratorExit:
            if loop_exit().is_by_error is False:
                self._left_by_break()
            raise
        self.is_open = False
        if is_over:
            self._follows()
        else:
            loop._end_session()

    def _has_ended(self) -> bool:
        return self._loop._has_ended

    def left(self) -> None:
        """The loop over the epochs was left by ``break`` or an exception, after the batches."""
        if not self._is_after:
            return
        self.limits = (LEFT_AFTER,)
        position = self._loop._position
        if position.is_over:
            position.is_over = False  # both loops were left, one after the other: as one is left in its body
        else:
            position.next_epoch()
        self._after.close()
        self._loop.run.state_changed()

    def _left_by_break(self) -> None:
        """The loop over the batches was left by ``break``: this epoch has no more of them."""
        self._loop._position.is_over = True
        self._loop._body_left()
        self.is_open = False
        self._follows()

    def _follows(self) -> None:
        """What follows the batches begins."""
        self.is_whole = self._is_after = True
        self._after.enter_context(end_of_epoch(self._loop.run))
        self.is_whole = False
