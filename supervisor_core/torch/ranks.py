"""`Ranks`: the processes of one distributed training, and what they say to each other.

They speak through a gloo group of their own on the CPU, at agreed moments only: nothing here is in the way of the
training's own collectives. A rank that has ended makes the others' next call fail at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from supervisor_core.errors import RanksError

TIMEOUT = timedelta(hours=24)
"""How long the ranks wait for one that is alive and does not come, as where it evaluates for all."""

LEAVE_SECS = 20.0
"""How long a rank that leaves its loop early waits for the others to leave theirs, in seconds."""


class Ranks:
    """The processes of the default process group; see the module's docstring. All of them make the same calls."""

    _own: tuple[Any, Any, Any] | None = None
    """The default group, and our two groups of the same processes: made once for all sessions of this process."""

    def __init__(self) -> None:
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self._group: Any = None
        self._leaving: Any = None
        self.announcements = 0
        """How many values rank 0 has announced."""

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0, which writes and saves."""
        return self.rank == 0

    def open(self) -> None:
        """Connect to the others; waits for all of them."""
        world = dist.group.WORLD
        if Ranks._own is None or Ranks._own[0] is not world:
            group = dist.new_group(backend="gloo", timeout=TIMEOUT)
            Ranks._own = world, group, dist.new_group(backend="gloo", timeout=timedelta(seconds=LEAVE_SECS))
        _, self._group, self._leaving = Ranks._own

    def compare(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks, in their order.

        Raises:
            RanksError: if another rank has ended.
        """
        mine = torch.tensor(list(numbers), dtype=torch.int64, device="cpu")
        found = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            dist.all_gather(found, mine, group=self._group)
        except RuntimeError as error:
            raise _ended(error) from error
        return [item.tolist() for item in found]

    def announce(self, value: Any = None) -> Any:
        """Return rank 0's value, on every rank.

        Raises:
            RanksError: if another rank has ended.
        """
        box = [value]
        self.announcements += 1
        try:
            dist.broadcast_object_list(box, src=0, group=self._group)
        except RuntimeError as error:
            raise _ended(error) from error
        return box[0]

    def collect(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks, in their order; on rank 0 only, elsewhere None.

        Raises:
            RanksError: if another rank has ended.
        """
        found: list[Any] | None = [None] * self.size if self.is_chief else None
        try:
            dist.gather_object(value, found, dst=0, group=self._group)
        except RuntimeError as error:
            raise _ended(error) from error
        return found

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order, on every rank.

        Raises:
            RanksError: if another rank has ended.
        """
        found: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(found, value, group=self._group)
        except RuntimeError as error:
            raise _ended(error) from error
        return found

    def meet(self) -> None:
        """Wait until all ranks call this.

        Raises:
            RanksError: if one of them does not within `LEAVE_SECS`.
        """
        try:
            dist.barrier(group=self._leaving)  # a monitored one has a limit on rank 0 only
        except RuntimeError as error:
            raise RanksError(
                f"Another rank has not left its loop within {LEAVE_SECS:.0f} s, or has ended: {error}"
            ) from error


def present_ranks() -> Ranks | None:
    """Return the ranks of this training; None for a process on its own."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return Ranks()


def _ended(error: RuntimeError) -> RanksError:
    return RanksError(f"Another rank has ended, or cannot be reached: {error}")
