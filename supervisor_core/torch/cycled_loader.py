"""`CycledLoader`: a loader besides the loop's own, which begins again at its end: `SupervisedLoop.also` returns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from supervisor_core.torch.position import EMPTY, LoaderPosition
from supervisor_core.training.objects import Part


class CycledLoader(Part):
    """An iterator without an end over a loader's batches; its position is saved and restored.

    Args:
        name: its name in checkpoints.
        position: the position in the loader's data.
        has_begun: whether the session has, so that the position is restored.
    """

    def __init__(self, name: str, position: LoaderPosition, has_begun: Callable[[], bool]) -> None:
        self.name = name
        self._position = position
        self._has_begun = has_begun
        self._iterator: Iterator[Any] | None = None
        self._loaded: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """How often the loader has come to its end."""
        return self._position.epoch

    @property
    def batch(self) -> int:
        """The number of batches taken since then."""
        return self._position.batch

    @property
    def limits(self) -> tuple[str, ...]:
        """What a resume cannot bring back: sentences."""
        return tuple(f"{self.name}: {text}" for text in self._position.limits)

    def generators(self) -> list[Any]:
        """See `LoaderPosition.generators`."""
        return self._position.generators()

    def __iter__(self) -> Iterator[Any]:
        """Return this."""
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            RuntimeError: before the loop has begun.
            ValueError: if the loader yields no batch at all.
        """
        position = self._position
        if self._iterator is None:
            if not self._has_begun():
                raise RuntimeError(
                    "The first batch of an also(loader) was asked for before the loop: its position is restored when "
                    "the loop begins. Call next() in the loop's body."
                )
            self._iterator, self._loaded = position.batches(), None
        for batch in self._iterator:
            position.batch += 1
            return batch
        position.next_epoch()
        self._iterator = position.batches()
        for batch in self._iterator:
            position.batch += 1
            return batch
        raise ValueError(EMPTY.format("given to also()"))

    def state_dict(self) -> dict[str, Any]:
        """Return the position. Before the first batch a loader is not asked for a state of its own: some begin an
        iteration to return it."""
        if self._iterator is not None:
            return self._position.state_dict()
        if self._loaded is not None:
            return self._loaded
        generators = [generator.get_state() for generator in self.generators()]
        return {"epoch": 0, "batch": 0, "start": None, "generators": generators}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position with the next batch."""
        self._loaded = state
        self._position.load_state_dict(state)
        self.shift = self._position.shift
