"""The position of a loop over step numbers, ``supervised(range(max_steps), ...)``: the program draws its own batches.

The position is the number of the next step, so a resume costs the same at every step: nothing is drawn or loaded again.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from supervisor_core.training.objects import Part

OTHER_LOOP = (
    "The checkpoint is of a loop over {}, and this one is over {}. Write the loop as it was when it was saved, or use "
    "another logdir."
)


class RangePosition(Part):
    """See the module's docstring; it has what `LoaderPosition` has for the loop.

    Args:
        steps: the numbers of the steps, one after the other.
    """

    limits: tuple[str, ...] = ()

    def __init__(self, steps: range) -> None:
        self._stop = steps.stop
        self.epoch = 0
        self.batch = steps.start
        """The number of the next step."""
        self.is_over = False

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"next": self.batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position; where the present range begins does not matter.

        Raises:
            ValueError: if it is one of a loader.
        """
        if "next" not in state:
            raise ValueError(OTHER_LOOP.format("a loader's batches", "a range"))
        self.batch = int(state["next"])

    def batches(self) -> range:
        """Return the numbers that are left."""
        return range(self.batch, self._stop)

    def generators(self) -> list[Any]:
        """Return none."""
        return []

    def next_epoch(self) -> None:
        """The range is over. It is not saved that it is: a later session may have a longer one."""
        self.epoch = 1


def counts_steps(loader: Any, epochs: int) -> TypeGuard[range]:
    """Return whether a loader is the numbers of the steps: a ``range`` that counts by one, and is passed through once.
    Any other is a sequence like others."""
    return isinstance(loader, range) and loader.step == 1 and loader.start >= 0 and epochs == 1
