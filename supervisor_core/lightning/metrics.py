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
        """Return the metrics of this moment: those of the module that have been updated since their reset, and what the
        training has logged in this epoch, by Lightning's keys: sum or extreme, and number of samples."""
        module = {
            name: {"updates": metric._update_count, "states": {key: getattr(metric, key) for key in metric._defaults}}
            for name, metric in self._metrics.items()
            if metric._update_count
        }
        logged = {
            key: {"value": metric.value, "samples": getattr(metric, "cumulated_batch_size", None)}
            for key, metric in self._results.items()
            if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset
        }
        return {"rank": self._trainer.global_rank, "logged": logged, "module": module}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take those of a checkpoint; a rank that there was not begins without any."""
        if state["rank"] == self._trainer.global_rank:
            self.logged, self._of_module = dict(state["logged"]), state["module"]

    def add_logged(self) -> None:
        """Add what was logged before the resume to what has been logged since.

        Lightning knows a key when it is logged for the first time. Then its sum is that of one batch, so the order of
        the additions is that of an uninterrupted epoch.
        """
        results = self._results
        for key in [key for key in self.logged if key in results]:
            metric, saved = results[key], self.logged.pop(key)
            value = saved["value"].to(metric.value)
            if metric.meta.is_max_reduction or metric.meta.is_min_reduction:
                metric.value = metric.meta.reduce_fx(value, metric.value)
            elif metric.meta.is_mean_reduction or metric.meta.is_sum_reduction:
                metric.value = value + metric.value
            if saved["samples"] is not None and hasattr(metric, "cumulated_batch_size"):
                samples = metric.cumulated_batch_size
                metric.cumulated_batch_size = saved["samples"].to(samples) + samples
            metric._computed = None

    def set_module(self) -> None:
        """Set the module's torchmetrics: called where the training stands where it stood."""
        for name, metric in self._metrics.items():
            if name not in self._of_module:
                continue
            saved = self._of_module[name]
            for key, value in saved["states"].items():
                setattr(metric, key, _moved(value, metric.device))
            metric._update_count, metric._computed = saved["updates"], None

    @property
    def _results(self) -> Any:
        return self._trainer.fit_loop.epoch_loop._results

    @property
    def _metrics(self) -> dict[str, Metric]:
        modules = self._trainer.lightning_module.named_modules()
        return {name: item for name, item in modules if isinstance(item, Metric)}


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value
