"""The metrics of the epoch under way: what ``self.log`` averages over an epoch, and the module's own torchmetrics.

Lightning's checkpoints hold neither, so a callback that watches an epoch's average of the training (EarlyStopping,
ReduceLROnPlateau) would see that of the batches since the resume.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torchmetrics import Metric


def logged(trainer: Any) -> dict[str, Any]:
    """Return what the training has logged in this epoch, by Lightning's keys: sum or extreme, and number of samples."""
    return {
        key: {"value": metric.value, "samples": getattr(metric, "cumulated_batch_size", None)}
        for key, metric in trainer.fit_loop.epoch_loop._results.items()
        if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset
    }


def add_logged(trainer: Any, before: dict[str, Any]) -> None:
    """Add what was logged before a resume to what has been logged since, and drop it from ``before``.

    Lightning knows a key when it is logged for the first time. Then its sum is that of one batch, so the order of the
    additions is that of an uninterrupted epoch.
    """
    results = trainer.fit_loop.epoch_loop._results
    for key in [key for key in before if key in results]:
        metric, saved = results[key], before.pop(key)
        value = saved["value"].to(metric.value)
        if metric.meta.is_max_reduction or metric.meta.is_min_reduction:
            metric.value = metric.meta.reduce_fx(value, metric.value)
        elif metric.meta.is_mean_reduction or metric.meta.is_sum_reduction:
            metric.value = value + metric.value
        if saved["samples"] is not None and hasattr(metric, "cumulated_batch_size"):
            metric.cumulated_batch_size = saved["samples"].to(metric.cumulated_batch_size) + metric.cumulated_batch_size
        metric._computed = None


def of_module(module: Any) -> dict[str, Any]:
    """Return the states of a module's torchmetrics that have been updated since their reset, by their names in it."""
    return {
        name: {"updates": metric._update_count, "states": {key: getattr(metric, key) for key in metric._defaults}}
        for name, metric in _metrics(module).items()
        if metric._update_count
    }


def set_module(module: Any, states: Mapping[str, Any]) -> None:
    """Set them again."""
    for name, metric in _metrics(module).items():
        if name not in states:
            continue
        for key, value in states[name]["states"].items():
            setattr(metric, key, _moved(value, metric.device))
        metric._update_count, metric._computed = states[name]["updates"], None


def _metrics(module: Any) -> dict[str, Any]:
    return {name: item for name, item in module.named_modules() if isinstance(item, Metric)}


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value
