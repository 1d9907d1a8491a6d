"""The metrics of the epoch under way: what ``self.log`` averages over an epoch, and the module's own torchmetrics.

Lightning's checkpoints hold neither, so a callback that watches an epoch's average of the training (EarlyStopping,
ReduceLROnPlateau) would see that of the batches since the resume.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torchmetrics import Metric


class EpochMetrics:
    """The metrics of the epoch under way, as a part of a state tree: this rank's, where there are several.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.logged: dict[str, Any] = {}
        """What the epoch under way had logged before a resume, and is not logged again yet."""
        self._of_module: Mapping[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the metrics of this moment."""
        trainer = self._trainer
        module = of_module(trainer.lightning_module)
        return {"rank": trainer.global_rank, "logged": logged(trainer), "module": module}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take those of a checkpoint; a rank that there was not begins without any."""
        if state["rank"] == self._trainer.global_rank:
            self.logged, self._of_module = dict(state["logged"]), state["module"]

    def add_logged(self) -> None:
        """Add what was logged before the resume to what has been logged since."""
        if self.logged:
            add_logged(self._trainer, self.logged)

    def set_module(self) -> None:
        """Set the module's torchmetrics: called where the training stands where it stood."""
        set_module(self._trainer.lightning_module, self._of_module)


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
