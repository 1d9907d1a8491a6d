"""`Ranks`: the processes of one distributed training, and what they say to each other; each framework has its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

TIMEOUT = timedelta(hours=24)
"""How long the ranks wait for one that is alive and does not come, as where it evaluates for all."""

LEAVE_SECS = 20.0
"""How long a rank that leaves its loop early waits for the others to leave theirs, in seconds."""

NUMBER = "number of ranks"
"""The name of this fact in checkpoints."""


class Ranks(Protocol):
    """The processes of one distributed training. All of them make the same calls, in the same order.

    They speak on the host, at agreed moments only: nothing here is in the way of the training's own collectives. Each
    method raises `RanksError` if another rank has ended.
    """

    rank: int
    """The number of this process."""
    size: int
    """How many there are."""
    announcements: int
    """How many values rank 0 has announced."""

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0, which writes and saves."""

    def open(self) -> None:
        """Connect to the others, for a new session; waits for all of them."""

    def close(self) -> None:
        """Disconnect: a call of the others that waits for this rank, and each later one, fails at once."""

    def compare(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks, in their order."""

    def announce(self, value: Any = None) -> Any:
        """Return rank 0's value, on every rank."""

    def collect(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks, in their order; on rank 0 only, elsewhere None."""

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order, on every rank."""

    def meet(self) -> None:
        """Wait until all ranks call this, `LEAVE_SECS` at most."""

    def leave(self) -> None:
        """A signal ends the processes of all ranks next: do what the framework does at a program's end."""


class SplitState(Protocol):
    """State that is split over the ranks, among the objects of a training: each rank writes its own part."""

    def split(self) -> dict[str, Any]:
        """Return this rank's part by its paths in the tree; called by all ranks before it is written."""

    def release(self) -> None:
        """Say that no save follows: the copy is not needed any more."""
