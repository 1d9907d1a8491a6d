"""`TorchRanks`: the processes of one distributed training, and what they say to each other.

They speak through a gloo group of their own on the CPU, at agreed moments only: nothing here is in the way of the
training's own collectives. A rank that has ended makes the others' next call fail at once.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, ClassVar

import torch.distributed as dist

from supervisor_core.base.errors import RanksError
from supervisor_core.training.ranks import LEAVE_SECS, TIMEOUT, Ranks

_LOG = logging.getLogger("supervisor_core")


class TorchRanks(Ranks):
    """The processes of the default process group; see the module's docstring, and `Ranks`."""

    _earlier: ClassVar[list[Any]] = []
    """The groups of this process's last session: others may read from them until all have begun the next one."""

    _last: ClassVar[TorchRanks | None] = None
    """The ranks that have opened them."""

    def __init__(self) -> None:
        super().__init__(dist.get_rank(), dist.get_world_size())
        self._group: Any = None
        self._leaving: Any = None

    def open(self) -> None:
        """See `Ranks.open`."""
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._leaving = dist.new_group(backend="gloo", timeout=timedelta(seconds=LEAVE_SECS))
        _close(TorchRanks._earlier)
        TorchRanks._earlier, TorchRanks._last = [self._group, self._leaving], self
        atexit.unregister(_leave)
        atexit.register(_leave, os.getpid())

    def close(self) -> None:
        """See `Ranks.close`."""
        self._failure = self._failure or RanksError("This rank has disconnected from the others.")
        if self._group is not None:
            self._group = self._leaving = None
            _close(TorchRanks._earlier)

    def announce(self, value: Any = None) -> Any:
        """See `Ranks.announce`."""
        box = [value]
        self.announcements += 1
        with self._connected():
            dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def collect(self, value: Any) -> list[Any] | None:
        """See `Ranks.collect`."""
        found: list[Any] | None = [None] * self.size if self.is_chief else None
        with self._connected():
            dist.gather_object(value, found, dst=0, group=self._group)
        return found

    def exchange(self, value: Any) -> list[Any]:
        """See `Ranks.exchange`."""
        found: list[Any] = [None] * self.size
        with self._connected():
            dist.all_gather_object(found, value, group=self._group)
        return found

    def meet(self) -> None:
        """See `Ranks.meet`."""
        with self._connected(f"Another rank has not left its loop within {LEAVE_SECS:.0f} s, or has ended"):
            dist.barrier(group=self._leaving)  # a monitored one has a limit on rank 0 only

    @contextmanager
    def together(self) -> Iterator[Any]:
        """Yield the group, for messages of PyTorch's own.

        Raises:
            RanksError: if another rank has ended.
        """
        with self._connected():
            yield self._group

    @contextmanager
    def _connected(self, otherwise: str = "Another rank has ended, or cannot be reached") -> Iterator[None]:
        """Disconnect where the block fails: the groups are broken then, and no rank shall wait for this one."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except RuntimeError as error:
            self._failure = RanksError(f"{otherwise}: {error}")
            self.close()
            raise self._failure from error.with_traceback(None)  # whose frames would keep the connections open


def present_ranks() -> TorchRanks | None:
    """Return the ranks of this training; None for a process on its own."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return TorchRanks()


def _leave(pid: int) -> None:
    """Close the last groups while the interpreter still works: a thread of theirs that asks for it later aborts the
    process, and a launcher reads that as a failure. Their threads end when nothing refers to a group: neither a session
    that is still there, nor a model that is split and is garbage by now. A child that was forked has the groups, and
    not their threads."""
    if os.getpid() != pid:
        return
    last, TorchRanks._last = TorchRanks._last, None
    if last is not None:
        last.close()
    _close(TorchRanks._earlier)
    gc.collect()


def _close(groups: list[Any]) -> None:
    while groups:
        with suppress(ValueError, RuntimeError):  # it went with the default group
            dist.destroy_process_group(groups.pop())
