"""`Ranks`: the processes of one distributed training, and what they say to each other; each framework has its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from supervisor_core.base.errors import CheckpointError, RanksError
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.training.objects import Part
from supervisor_core.training.position import BATCHES
from supervisor_core.training.state import DATA, Captured, TrainingState, digest
from supervisor_core.training.tree import Room

TIMEOUT = timedelta(hours=24)
"""How long the ranks wait for one that is alive and does not come, as where it evaluates for all."""

LEAVE_SECS = 20.0
"""How long a rank that leaves its loop early waits for the others to leave theirs, in seconds."""

NUMBER = "number of ranks"
"""The name of this fact in checkpoints."""


class Ranks(ABC):
    """The processes of one distributed training. All of them make the same calls, in the same order.

    They speak on the host, at agreed moments only: nothing here is in the way of the training's own collectives. Each
    method raises `RanksError` if another rank has ended.

    Args:
        rank: the number of this process.
        size: how many there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.announcements = 0
        """How many values rank 0 has announced."""
        self._failure: RanksError | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0, which writes and saves."""
        return self.rank == 0

    def compare(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks, in their order."""
        return self.exchange(list(map(int, numbers)))

    @abstractmethod
    def open(self) -> None:
        """Connect to the others, for a new session; waits for all of them."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect: a call of the others that waits for this rank, and each later one, fails at once."""

    @abstractmethod
    def announce(self, value: Any = None) -> Any:
        """Return rank 0's value, on every rank."""

    @abstractmethod
    def collect(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks, in their order; on rank 0 only, elsewhere None."""

    @abstractmethod
    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order, on every rank."""

    @abstractmethod
    def meet(self) -> None:
        """Wait until all ranks call this, `LEAVE_SECS` at most."""

    def leave(self) -> None:  # noqa: B027
        """A signal ends the processes of all ranks next: do what the framework does at a program's end."""


class SplitState(Protocol):
    """State that is split over the ranks, among the objects of a training: each rank writes its own part."""

    def split(self) -> dict[str, Any]:
        """Return this rank's part by its paths in the tree; called by all ranks before it is written."""

    def release(self) -> None:
        """Say that no save follows: the copy is not needed any more."""


ALONE = "It was saved by rank 0 alone: the random states and the data positions of the other ranks are not captured."


@dataclass(kw_only=True)
class RanksState(TrainingState):
    """The state of one rank; see the module's docstring."""

    ranks: Ranks
    """The processes of the training."""
    own: tuple[str, ...] = (DATA,)
    """Names of the objects whose states differ from rank to rank."""
    shards: tuple[SplitState, ...] = ()
    """Those of the objects whose states are split over the ranks."""
    write_shards: Callable[[Mapping[str, Any], str], object] = lambda found, directory: None
    """Writes this rank's part of those into a checkpoint's directory, durably; called by all ranks. Raises OSError."""
    staging: str | None = None
    """The directory in which the shards for the next `capture` are."""
    blocked_secs: float = 0.0
    """How long the ranks took to write and collect what `capture` needs."""
    failure: Exception | None = None
    """Why they are not."""

    _collected: list[Any] | None = None

    def add(self, name: str, part: Part) -> None:
        """See `TrainingState.add`; it is each rank's own."""
        super().add(name, part)
        self.own = (*self.own, name)

    def collect(self) -> None:
        """Collect what is each rank's, for the next `capture` on rank 0; called by all ranks at the same step."""
        self._collected = self.ranks.collect(None if self.ranks.is_chief else self._part())

    def release(self) -> None:
        """Let go what was collected."""
        self._collected = self.failure = None
        for part in self.shards:
            part.release()

    def capture(self, step: int, *, in_place: bool = False, room: Room | None = None) -> Captured:
        """See `TrainingState.capture`; on rank 0, with what was collected last.

        Raises:
            CheckpointError: if an object's state has a value that cannot be saved, on any rank.
            OSError: if a rank could not write its shards.
        """
        if self.failure is not None:
            raise self.failure
        captured = super().capture(step, in_place=in_place, room=room)
        collected = self._collected
        if collected is None:
            return replace(captured, not_captured=(*captured.not_captured, ALONE))
        for rank, part in enumerate(collected):
            if part is not None and "error" in part:
                raise CheckpointError(f"Rank {rank} has a state that cannot be saved: {part['error']}")
        parts = [{name: part[name] for name in ("objects", "random", "position")} for part in collected[1:]]
        limits = [sentence for part in collected[1:] for sentence in part["limits"]]
        staging, self.staging = self.staging, None
        return replace(
            captured,
            staging=staging,
            blocked_secs=self.blocked_secs,
            tree={**captured.tree, "ranks": parts},
            not_captured=tuple(dict.fromkeys([*captured.not_captured, *limits])),
        )

    def _part(self) -> dict[str, Any]:
        try:
            tree = self.copied(self.own)
            position = digest(tree["objects"][DATA]) if DATA in self.own else None
            return {**tree, "position": position, "limits": list(self.all_limits())}
        except Exception as error:  # rank 0 waits for this
            return {"error": f"{type(error).__name__}: {error}"}

    def probe(self) -> None:
        """See `TrainingState.probe`; called by all ranks.

        Raises:
            CheckpointError: if a state cannot be saved, on any rank.
        """
        failure: Exception | None = None
        try:
            super().probe()
        except Exception as error:
            failure = error
        if not self.objects:
            return
        for rank, text in enumerate(self.ranks.exchange(None if failure is None else str(failure))):
            if text is not None:
                raise failure or CheckpointError(f"Rank {rank} has a state that cannot be saved: {text}")

    def reasons(self, manifest: Manifest, tree: Any, versions: Mapping[str, str]) -> list[str]:
        """See `TrainingState.reasons`; those of all ranks, on every rank.

        Raises:
            CheckpointError: if the checkpoint is of another training, or an object refuses its state, on any rank.
        """
        failure: CheckpointError | None = None
        found: list[str] = []
        try:
            found = self._own_reasons(manifest, tree, versions)
        except CheckpointError as error:
            failure = error
        everyone = self.ranks.exchange((None if failure is None else str(failure), found))
        for rank, (text, _) in enumerate(everyone):
            if text is not None:
                raise failure or CheckpointError(f"Rank {rank} could not restore the checkpoint: {text}")
        reasons = list(everyone[0][1])
        for rank, (_, others) in enumerate(everyone):
            reasons += [f"Rank {rank}: {text}" for text in others if text not in everyone[0][1]]
        return reasons

    def _own_reasons(self, manifest: Manifest, tree: Any, versions: Mapping[str, str]) -> list[str]:
        rank = self.ranks.rank
        parts = tree.get("ranks", []) if isinstance(tree, dict) else []
        saved = 1 + len(parts)
        if rank % saved:
            part = parts[rank % saved - 1]
            tree = {"objects": {**tree["objects"], **part["objects"]}, "random": part["random"]}
            manifest = replace(manifest, data_position=part["position"])
        if saved == self.ranks.size:
            return super().reasons(manifest, tree, versions)
        # The data are divided in another way: one reason, instead of its consequences.
        is_new = rank >= saved
        facts = {name: value for name, value in manifest.facts.items() if not name.startswith(BATCHES)}
        reasons = super().reasons(
            replace(manifest, data_position=None, facts=facts), {**tree, "random": {}} if is_new else tree, versions
        )
        number = f"Another {NUMBER}: {saved} at the save, {self.ranks.size} now."
        missing = tuple(f"The random state of {source.name} is" for source in self.sources()) if is_new else ()
        reasons = [text for text in reasons if not missing or not text.startswith(missing)]
        is_named = number in reasons or manifest.facts.get(NUMBER) == str(self.ranks.size)  # as `ALONE`
        return reasons if is_named else [*reasons, number]
