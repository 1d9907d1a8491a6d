"""`SavePoint`: when the state of a training can be captured; one for `supervise` and all adapters.

A state is whole between two steps. Within a step it may be that of the next one already: a checkpoint that is asked for
is saved when the step has ended. An adapter that knows more says so by `SavePoint.moment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from supervisor_core.training.state import TrainingState


class SavePoint:
    """See the module's docstring. Called by the training's thread.

    Args:
        state: what is captured; a checkpoint of a moment within a step says that it is one.
        step: returns the number of steps done.
    """

    def __init__(self, state: TrainingState, step: Callable[[], int]) -> None:
        self._state = state
        self._step = step
        self.is_in_step = False
        """Whether a step is under way."""
        self.moment: Callable[[], AbstractContextManager[int | None]] = self._present
        """Returns a block within which the state of this moment can be captured, as a phase begins that does not train.
        It yields the state's step; None where that is not possible now."""

    def leave(self) -> None:
        """The training is left where it is: in the body of a step that may have been made, or not."""
        self._state.is_mid_step |= self.is_in_step
        self.is_in_step = False

    @contextmanager
    def _present(self) -> Iterator[int | None]:
        before = self._state.is_mid_step
        self._state.is_mid_step |= self.is_in_step
        try:
            yield self._step()
        finally:
            self._state.is_mid_step = before


class Phases(Protocol):
    """What has phases: a `Run`."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """See `supervisor_core.Run.phase`."""


class OpenPhase:
    """The phase of a session that a framework's callbacks begin in one call and end in another; one at a time."""

    def __init__(self) -> None:
        self.name = ""
        """Its name; empty where there is none."""
        self._block: AbstractContextManager[None] | None = None

    def enter(self, run: Phases, name: str) -> None:
        """Be in a phase from now on, and in no other.

        Args:
            run: the session.
            name: see `supervisor_core.Run.phase`.
        """
        if name == self.name:
            return
        self.leave()
        self._block, self.name = run.phase(name), name
        self._block.__enter__()

    def leave(self) -> None:
        """Be in no such phase any more."""
        block, self._block, self.name = self._block, None, ""
        if block is not None:
            block.__exit__(None, None, None)
