"""`Shards`: the state of a model, or of its optimizer, that is split over the ranks: FSDP's, and other DTensors.

`torch.distributed.checkpoint` puts the shards together, in the host memory of rank 0, where all ranks ask for it at the
same step. So a checkpoint has the whole tensors by their own names, whatever the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor_core.errors import CheckpointError, RanksError


def is_sharded(model: Any) -> bool:
    """Return whether a model's parameters are split over the ranks."""
    kinds = {kind.__name__ for part in (*model.modules(), *model.parameters()) for kind in type(part).__mro__}
    return not kinds.isdisjoint({"FullyShardedDataParallel", "DTensor"})  # by name: importing them takes a second


class Shards:
    """One object whose state is split; in place of the object in a `TrainingState`.

    Args:
        get: returns the whole state on rank 0; called by all ranks.
        set: sets each rank's part of the whole state; called by all ranks.
    """

    def __init__(self, get: Callable[[], dict[str, Any]], set: Callable[[dict[str, Any]], object]) -> None:
        self._get = get
        self._set = set
        self._whole: dict[str, Any] | None = None

    def gather(self) -> None:
        """Put the shards together for the next `state_dict` on rank 0; called by all ranks."""
        self._whole = self._get()

    def release(self) -> None:
        """Let the whole state go."""
        self._whole = None

    def state_dict(self) -> dict[str, Any]:
        """Return what `gather` has put together.

        Raises:
            CheckpointError: without it: one rank alone has only its own shard.
        """
        if self._whole is None:
            raise CheckpointError("it is split over the ranks, and not all of them save")
        return self._whole

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set this rank's part; called by all ranks."""
        self._set(state)


def shards_of(model: Any, optimizer: Any) -> dict[str, Shards]:
    """Return the sharded state of a model, and of its optimizer, by name.

    Args:
        model: the model.
        optimizer: its optimizer; None for none.
    """
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    whole, host = StateDictOptions(full_state_dict=True), StateDictOptions(full_state_dict=True, cpu_offload=True)
    found = {
        "model": Shards(
            lambda: get_model_state_dict(model, options=host),
            lambda state: set_model_state_dict(model, state, options=whole),
        )
    }
    if optimizer is not None:
        found["optimizer"] = Shards(
            lambda: get_optimizer_state_dict(model, optimizer, options=host),
            lambda state: set_optimizer_state_dict(model, optimizer, state, options=whole),
        )
    return found


def refuse_split(optimizer: Any) -> None:
    """Do nothing, but for an optimizer that splits its state in its own way.

    Raises:
        RanksError: for a ``ZeroRedundancyOptimizer``.
    """
    if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
        raise RanksError(
            "The state of a ZeroRedundancyOptimizer is split over the ranks in a way of its own, which supervised() "
            "does not save: use FSDP's fully_shard(), or an optimizer whose state each rank has."
        )
