"""A `Trainer` in several processes, under DistributedDataParallel: one session, of which each rank has its part.

The Trainer writes a checkpoint on all ranks: each its random states, rank 0 the rest. All save at the same step, and
rank 0 seals when all have written. The ranks agree as those of `DistributedRun` do.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from supervisor_core.base.errors import CheckpointError, RanksError
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.sealed_store import Sealed
from supervisor_core.events.telemetry import Trigger
from supervisor_core.torch.ranks import TorchRanks, present_ranks
from supervisor_core.torch.shards import is_sharded
from supervisor_core.training.distributed_run import At, DistributedRun, Row, expect
from supervisor_core.training.ranks import RanksState
from supervisor_core.training.saver import Job
from supervisor_core.training.state import TrainingState
from supervisor_core.transformers import sealing
from supervisor_core.transformers.data import ONLY_MODEL
from supervisor_core.transformers.sealing import SealingSaver

RANDOM = "rng_state_{}.pth"
"""Which file of a checkpoint each rank writes."""

SPLITS = {"dp_shard_enabled": "FSDP", "tp_enabled": "Tensor", "cp_enabled": "Context", "sp_enabled": "Sequence"}
"""Attributes of accelerate's ``ParallelismConfig``, and what they turn on."""


def refuse_split(args: Any, model: Any, optimizer: Any) -> None:
    """Do nothing for one process, or under DistributedDataParallel.

    Args:
        args: the Trainer's.
        model: its model; None where it is not known.
        optimizer: its optimizer; None where it is not known.

    Raises:
        ValueError: where the ranks are not under DistributedDataParallel alone, or do not share ``output_dir``.
    """
    if args.world_size == 1:
        return
    if (found := _split(args, model, optimizer)) is not None:
        raise ValueError(
            f"SupervisorCallback supervises several processes under DistributedDataParallel; here is {found}, in "
            f"{args.world_size} processes. Train without it, or with a loop of your own: supervisor_core.torch."
            "supervised saves the shards of FSDP."
        )
    if args.save_on_each_node:
        raise ValueError(
            "save_on_each_node=True: a part of each checkpoint would be missing on every node. Leave it off, and give "
            "all ranks the same output_dir, on a file system that they share."
        )


def _split(args: Any, model: Any, optimizer: Any) -> str | None:
    """Return what splits a model over the ranks, or coordinates them in another way; None for nothing."""
    from accelerate.state import AcceleratorState  # the Trainer has imported it

    kind = getattr(args.distributed_state, "distributed_type", None)
    name = str(getattr(kind, "value", kind))
    if args.fsdp or name == "FSDP":
        return "FSDP"
    if args.deepspeed or name == "DEEPSPEED":
        return "DeepSpeed"
    if not name.startswith("MULTI_"):
        return name
    given = getattr(args, "parallelism_config", None) or AcceleratorState._shared_state.get("parallelism_config")
    for attribute, what in SPLITS.items():
        if getattr(given, attribute, False):
            return what if what == "FSDP" else f"{what} parallelism"
    if model is not None and is_sharded(model):
        return "a model that is split over them"
    zero = "ZeroRedundancyOptimizer"
    return f"a {zero}" if type(getattr(optimizer, "optimizer", optimizer)).__name__ == zero else None


def newest(directory: str, *, start_over: bool, trust: bool = False) -> Sealed | None:
    """Return the checkpoint that rank 0 chooses, on all ranks; they call it together. See `sealing.newest`.

    Args:
        directory: the Trainer's output directory.
        start_over: see `sealing.newest`.
        trust: see `sealing.newest`.

    Raises:
        CheckpointError: on all ranks, if rank 0 finds none that is usable.
        RanksError: if the ranks have other directories, or one of them has ended.
    """
    ranks = known_ranks()
    ranks.open()
    directories = ranks.exchange(os.path.abspath(directory))
    if len(set(directories)) > 1:
        raise RanksError(f"The ranks have other output directories: {', '.join(directories)}. All ranks need the same.")
    found: Sealed | Exception | None = None
    if ranks.is_chief:
        try:
            found = sealing.newest(directory, start_over=start_over, trust=trust)
        except Exception as error:  # the others wait for it
            found = error
    found = ranks.announce(found)
    if isinstance(found, Exception):
        raise found
    return found


def known_ranks() -> TorchRanks:
    """Return the ranks of this training.

    Raises:
        RanksError: if this process knows of no others.
    """
    ranks = present_ranks()
    if ranks is None:
        raise RanksError(
            "This is one of several processes, and torch.distributed is not initialised: make the TrainingArguments "
            "before resume_from() is called."
        )
    return ranks


@dataclass(kw_only=True)
class TrainerRanksState(RanksState):
    """What has to be the same on each rank for an exact resume; the Trainer itself saves and restores."""

    def _own_reasons(self, manifest: Manifest, tree: Any, versions: Any) -> list[str]:
        return TrainingState.reasons(self, manifest, tree, versions)


class TrainerRun(DistributedRun):
    """See the module's docstring, and `DistributedRun`."""

    _saver: RanksSealingSaver | None

    def merged(self, sentences: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sentences of all ranks, on every rank."""
        everyone = self.ranks.exchange(sentences)
        return tuple(dict.fromkeys(text for each in everyone for text in each))

    def meet_at_save(self, doubt: int) -> int:
        """Wait until all ranks have written their parts of a checkpoint; return the highest doubt of any rank.

        Raises:
            RanksError: if another rank has ended, or is not at this step.
        """
        if self._saver is not None:
            own = os.path.join(self._saver.path(self._step), RANDOM.format(self.ranks.rank))
            if os.path.exists(own):
                with open(own, "rb") as file:
                    os.fsync(file.fileno())
        return max(row.extra for row in self._compare(Row(At.SAVED, self._step, extra=doubt)))

    def _save_together(self, trigger: Trigger) -> None:
        super()._save_together(trigger)
        if self._saver is not None:
            self._saver.wanted = self.ranks.announce(self._saver.wanted)


class RanksSealingSaver(SealingSaver):
    """Seals on rank 0; on the other ranks it knows what is saved."""

    _state: RanksState
    _written: int | None = None

    def read(self, start_over: bool) -> Any:
        """See `SealingSaver.read`.

        Raises:
            RanksError: if the Trainer has restored another checkpoint than on rank 0.
        """
        sealed, tree = super().read(start_over)
        own = None if sealed is None else os.path.basename(sealed.path)
        ranks = self._state.ranks
        chosen = expect(ranks.announce(own))
        if chosen != own:
            raise RanksError(
                f"Rank {ranks.rank} has restored {own or 'nothing'}, and rank 0 {chosen or 'nothing'}: call "
                "train(resume_from_checkpoint=supervisor.resume_from()) on all ranks."
            )
        self._written = None if sealed is None else sealed.manifest.step
        return sealed, tree

    def is_saved(self, step: int) -> bool:
        """See `SealingSaver.is_saved`: whether it is written, which is the same on all ranks."""
        return step == self._written

    def written(self, step: int, *args: Any, **named: Any) -> None:
        """See `SealingSaver.written`; called when all ranks have written."""
        self._written = step
        if self._state.ranks.is_chief:
            super().written(step, *args, **named)

    def _write(self, job: Job) -> Sealed:
        for rank in range(self._state.ranks.size):
            file = os.path.join(self.path(job.step), RANDOM.format(rank))
            if not os.path.exists(file) and ONLY_MODEL not in job.captured.not_captured:
                raise CheckpointError(
                    f"{file} of rank {rank} is missing: all ranks need the same output_dir, on a file system that "
                    "they share."
                )
        return super()._write(job)
