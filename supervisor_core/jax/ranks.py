"""`JaxRanks`: the processes of ``jax.distributed``, and what they say to each other; `JaxRanksState`: their state.

They speak through the key-value store of JAX's coordination service, on the host: no device has anything to do with it.
The values of a call are in it under the session's number, the call's number, and the rank.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import jax

from supervisor_core.base.errors import RanksError
from supervisor_core.training.ranks import LEAVE_SECS, TIMEOUT, Ranks, RanksState

PREFIX = "tb-supervisor"

_FIRST_WAIT_SECS, _LONGEST_WAIT_SECS = 0.05, 1.0
"""How long to wait for a value before looking whether its rank has ended."""
_LATE = "DEADLINE_EXCEEDED"


class JaxRanks(Ranks):
    """See the module's docstring, and `training.ranks.Ranks`.

    Args:
        client: JAX's client of its coordination service.
    """

    _sessions: ClassVar[int] = 0
    """How many sessions have begun in this process, which are as many in each."""

    def __init__(self, client: Any) -> None:
        super().__init__(jax.process_index(), jax.process_count())
        self._client = client
        self._session = ""
        self._calls = self._meetings = 0
        self._own_keys: list[str] = []

    def open(self) -> None:
        """See `Ranks.open`."""
        JaxRanks._sessions += 1
        self._session = f"{PREFIX}/{JaxRanks._sessions}"
        self.compare([0])

    def close(self) -> None:
        """See `Ranks.close`."""
        if self._failure is None:
            self._failure = RanksError("This rank has disconnected from the others.")
            with suppress(RuntimeError):  # the service has ended: so have the others
                self._client.key_value_set_bytes(self._closed_key(self.rank), b"closed")

    def announce(self, value: Any = None) -> Any:
        """See `Ranks.announce`."""
        self.announcements += 1
        return self._call(value, says=self.is_chief, hears=(0,))[0]

    def collect(self, value: Any) -> list[Any] | None:
        """See `Ranks.collect`."""
        found = self._call(value, says=True, hears=range(self.size) if self.is_chief else ())
        return list(found.values()) if self.is_chief else None

    def exchange(self, value: Any) -> list[Any]:
        """See `Ranks.exchange`."""
        sent = len(self._own_keys)
        found = list(self._call(value, says=True, hears=range(self.size)).values())
        done, self._own_keys = self._own_keys[:sent], self._own_keys[sent:]  # all ranks have read those: they are here
        for key in done:
            self._client.key_value_delete(key)
        return found

    def meet(self) -> None:
        """See `Ranks.meet`."""
        self._meetings += 1
        self._call(None, says=True, hears=range(self.size), place=f"meeting-{self._meetings}", secs=LEAVE_SECS)

    def leave(self) -> None:
        """See `Ranks.leave`: where process 0 is gone, with the service, JAX aborts the others."""
        with suppress(RuntimeError):  # one of them has ended already
            jax.distributed.shutdown()

    def _call(
        self,
        value: Any,
        *,
        says: bool,
        hears: Iterable[int],
        place: str | None = None,
        secs: float = TIMEOUT.total_seconds(),
    ) -> dict[int, Any]:
        """Say this rank's value; return those of others, by their ranks.

        Raises:
            RanksError: if one of them has ended, or does not come in time.
        """
        if self._failure is not None:
            raise self._failure
        if place is None:  # those that leave early meet besides
            self._calls += 1
            place = str(self._calls)
        place = f"{self._session}/{place}"
        deadline = time.monotonic() + secs
        try:
            if says:
                self._own_keys.append(f"{place}/{self.rank}")
                self._client.key_value_set_bytes(self._own_keys[-1], pickle.dumps(value))
            return {
                rank: value if rank == self.rank else pickle.loads(self._value(f"{place}/{rank}", rank, deadline))
                for rank in hears
            }
        except RanksError:
            self.close()
            raise
        except RuntimeError as error:  # JAX's: the service has ended, or a process is missing
            self.close()
            self._failure = RanksError(f"Another rank has ended, or cannot be reached: {error}")
            raise self._failure from error

    def _value(self, key: str, rank: int, deadline: float) -> bytes:
        wait = _FIRST_WAIT_SECS
        while True:
            try:
                found: bytes = self._client.blocking_key_value_get_bytes(key, int(wait * 1000))
                return found
            except RuntimeError as error:
                if _LATE not in str(error):
                    raise
            if self._has_closed(rank):
                raise RanksError(f"Rank {rank} has ended, or has left its loop.")
            if time.monotonic() > deadline:
                raise RanksError(f"Rank {rank} has not come in time: it is still in its loop, or hangs.")
            wait = min(2 * wait, _LONGEST_WAIT_SECS)

    def _has_closed(self, rank: int) -> bool:
        try:
            return bool(self._client.key_value_try_get_bytes(self._closed_key(rank)))
        except RuntimeError as error:
            if "NOT_FOUND" not in str(error):
                raise
            return False

    def _closed_key(self, rank: int) -> str:
        return f"{self._session}/closed/{rank}"


def present_ranks() -> JaxRanks | None:
    """Return the ranks of this training; None for a process on its own.

    Raises:
        RanksError: if there are several processes that have no coordination service.
    """
    if jax.process_count() == 1:
        return None
    from jax._src import distributed  # JAX has no public way to its service

    client = distributed.global_state.client
    if client is None:
        raise RanksError(
            f"This is process {jax.process_index()} of {jax.process_count()}, and they have no coordination service: "
            "call jax.distributed.initialize() before anything else of JAX."
        )
    return JaxRanks(client)


@dataclass(kw_only=True)
class JaxRanksState(RanksState):
    """The state of one process. What is not in arrays that all processes share is its own: where it differs from that
    of the others, each process's is saved."""

    local_digests: Callable[[], dict[str, str]]
    """Returns digests of what each object has in this process alone, by the objects' names."""

    def collect(self) -> None:
        """See `RanksState.collect`."""
        base = self.own
        try:
            digests: dict[str, str] = self.local_digests()
        except Exception:  # `capture`, or `_part`, says why
            digests = {}
        everyone = self.ranks.exchange(digests)
        differ = {name for each in everyone for name, digest in each.items() if digest != everyone[0].get(name)}
        self.own = (*base, *sorted(differ - set(base)))
        try:
            super().collect()
        finally:
            self.own = base
