"""What accelerate's ``prepare()`` wraps: the optimizers and schedulers inside; a loader that it wraps is refused.

accelerate is not imported: what it has wrapped, it has imported.
"""

from __future__ import annotations

import sys
from typing import Any

LOADER = (
    "The loader is one that accelerate has prepared, which fetches ahead: its position is not known. Give supervised() "
    "your own DataLoader, in several processes one with a DistributedSampler, and move its batches to "
    "accelerator.device."
)
ENGINE = (
    "The optimizer is {}'s: its state is split over the ranks by an engine of its own, which supervised() does not "
    "save. Use accelerate with DistributedDataParallel or FSDP."
)
_ENGINES = {"deepspeed": "DeepSpeed", "megatron_lm": "Megatron-LM"}


def unprepared(value: Any) -> Any:
    """Return the optimizer or scheduler that accelerate has wrapped; anything else as it is."""
    if _is(value, "optimizer", "AcceleratedOptimizer"):
        return value.optimizer
    return value.scheduler if _is(value, "scheduler", "AcceleratedScheduler") else value


def refuse_prepared(loader: Any, *optimizers: Any) -> None:
    """Do nothing for what can be supervised.

    Raises:
        ValueError: if accelerate has prepared the loader, or an optimizer for an engine.
    """
    for optimizer in optimizers:
        engine = type(optimizer).__module__.rpartition(".")[2]
        if _is(optimizer, "optimizer", "AcceleratedOptimizer") and engine in _ENGINES:
            raise ValueError(ENGINE.format(_ENGINES[engine]))
    if _is(loader, "data_loader", "DataLoaderAdapter"):
        raise ValueError(LOADER)


def scaler_of(*optimizers: Any) -> Any:
    """Return the ``GradScaler`` that accelerate has made for its optimizers; None where there is none."""
    prepared = (item for item in optimizers if _is(item, "optimizer", "AcceleratedOptimizer"))
    return next((item.scaler for item in prepared if item.scaler is not None), None)


def _is(value: Any, module: str, name: str) -> bool:
    found = sys.modules.get(f"accelerate.{module}")
    return found is not None and isinstance(value, getattr(found, name))
