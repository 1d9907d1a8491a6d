"""`SavePoint`: when the state of a training can be captured; one for `supervise` and all adapters.

A state is whole between two steps. Within a step it may be that of the next one already: a checkpoint that is asked for
is saved when the step has ended. An adapter that knows more says so by `SavePoint.moment`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from supervisor_core.events.telemetry import Trigger
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


@dataclass(frozen=True)
class SavePolicy:
    """When a training is saved, and what is kept."""

    save_secs: float | None = 600.0
    """Seconds between checkpoints; None saves none by time."""
    save_steps: int | None = None
    """Steps between checkpoints; None saves none by steps."""
    max_to_keep: int | None = 5
    keep_every_n_hours: float | None = None

    def __post_init__(self) -> None:
        secs, steps = self.save_secs, self.save_steps
        if secs is not None and (isinstance(secs, bool) or not isinstance(secs, (int, float)) or not secs > 0):
            raise ValueError(f"save_secs is {secs!r}; expected a number of seconds above 0, or None.")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ValueError(f"save_steps is {steps!r}; expected a number of steps from 1, or None.")


class Due:
    """When the next checkpoint falls due: planned by the saver, or asked for by any thread, or a signal.

    Without a lock, which a signal handler could not take: an ask is noted before `at` is set, and a plan looks for one
    after it has set `at`. So whichever comes last, an ask that no save has served stays due.
    """

    __slots__ = ("_save_step", "asked_by", "at", "note_step", "step")

    def __init__(self) -> None:
        self.at = math.inf
        """Monotonic time of the next save by time."""
        self.step: float = math.inf
        """Step of the next save by steps, or of the next note, whichever comes first."""
        self._save_step: float = math.inf
        self.note_step: float = math.inf
        """Step whose state is noted next."""
        self.asked_by: Trigger | None = None
        """What the next one was asked for by; None if it is by time or by steps."""

    def ask(self, trigger: Trigger) -> None:
        """Let the next checkpoint fall due at the end of the present step."""
        self.asked_by = trigger
        self.at = -math.inf

    def plan(self, at: float, step: float) -> None:
        """Set when the next one falls due by itself; one that was asked for stays due."""
        self._save_step, self.at = step, at
        self.step = min(step, self.note_step)
        if self.asked_by is not None:
            self.at = -math.inf

    def plan_note(self, step: float) -> None:
        """Set after which step the state is noted next; infinity: after none."""
        self.note_step = step
        self.step = min(self._save_step, step)

    def is_save(self, step: int, now: float) -> bool:
        """Return whether a checkpoint is due after this step, at this monotonic time."""
        return now >= self.at or step >= self._save_step
