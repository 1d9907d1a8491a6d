"""What a checkpoint of a PyTorch training says of its loader and its models."""

from __future__ import annotations

from typing import Any

import torch

from supervisor_core.torch.position import batch_size_of, batches_of, samples_of
from supervisor_core.training.position import BATCHES

BUFFERS = "The statistics of BatchNorm differ from rank to rank: those of the ranks other than 0 are not captured."


def loader_facts(loader: Any) -> dict[str, str]:
    """Return what of a loader has to be the same for an exact resume."""
    facts = {}
    if hasattr(loader, "num_workers"):
        facts["number of workers"] = str(loader.num_workers)
    if (size := batch_size_of(loader)) is not None or hasattr(loader, "batch_size"):
        facts["batch size"] = str(size)
    if (samples := samples_of(loader)) is not None:
        facts["number of samples"] = str(samples)
    if (batches := batches_of(loader)) >= 0:
        facts[BATCHES] = str(batches)
    return facts


def model_limits(ranks: int, *models: Any) -> tuple[str, ...]:
    """Return what models have of which not all is captured: sentences.

    Args:
        ranks: how many processes train them.
        models: with what ``DistributedDataParallel`` wraps around them; anything but modules is left out.
    """
    norms = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm)
    own = (
        part
        for model in models
        if isinstance(model, torch.nn.Module) and ranks > 1
        if not getattr(model, "broadcast_buffers", False)  # DistributedDataParallel's
        for part in model.modules()
        if isinstance(part, norms) and not isinstance(part, torch.nn.SyncBatchNorm) and part.track_running_stats
    )
    return (BUFFERS,) if any(True for _ in own) else ()
