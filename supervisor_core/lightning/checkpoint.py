"""What a checkpoint has of a `Trainer`: Lightning's own ``.ckpt``, and where its loops stand.

The ``.ckpt`` is what ``Trainer.save_checkpoint`` writes: ``Trainer.fit(ckpt_path=...)`` and
``LightningModule.load_from_checkpoint`` read it. It is copied to host memory between two batches: its tensors as
tensors, everything else pickled, so that later changes reach neither. It is written in the background.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.migration import migrate_checkpoint
from torchmetrics import Metric

from supervisor_core.base.errors import (
    CheckpointError,
    DamagedCheckpointError,
    SupervisorError,
    UnreadableCheckpointError,
)
from supervisor_core.checkpoint import contents, torch_file
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.safetensors_file import Written
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.torch.tensors import tensor_has_nan
from supervisor_core.training.objects import Part
from supervisor_core.training.position import FitNumber
from supervisor_core.training.state import DATA

_LOG = logging.getLogger("supervisor_core")

_PARTS = (
    ("state_dict", dict),
    ("loops", dict),
    ("callbacks", dict),
    ("optimizer_states", list),
    ("lr_schedulers", list),
)

TRAINER = "trainer"
"""The name of the state of the trainer."""

NEEDED = (
    "_checkpoint_connector.resume_start",
    "_checkpoint_connector.dump_checkpoint",
    "_signal_connector.register_signal_handlers",
    "fit_loop._combined_loader",
    "fit_loop._data_fetcher",
    "fit_loop.epoch_loop._results",
    "fit_loop.epoch_loop.val_loop._combined_loader",
)
"""Parts of a `Trainer` without a public name that nothing else can stand in for."""

HYPER_PARAMETERS = "hyper_parameters"
"""Lightning's key for what ``save_hyperparameters`` has collected."""

_PATHS = ("best_model_path", "last_model_path", "kth_best_model_path")
_BEST = "best_k_models"
_WORST = "kth_best_model_path"


@dataclass(frozen=True)
class Content:
    """The content of a ``.ckpt``, as Lightning collects it: it holds the training's own tensors."""

    checkpoint: dict[str, Any]


@dataclass(frozen=True)
class Copy:
    """A copy of it in host memory."""

    structure: bytes
    """Pickled, with a number in place of each tensor."""
    tensors: list[torch.Tensor]

    def checkpoint(self) -> Any:
        """Return the copied content."""
        reader = _Reader(io.BytesIO(self.structure))
        reader.tensors = self.tensors
        return reader.load()


@dataclass(frozen=True)
class Loaded:
    """The content of a ``.ckpt`` that was read."""

    path: str
    checkpoint: dict[str, Any]
    is_trusted: bool
    """Whether it is this user's own, or trusted whoever wrote it."""


class CheckpointFile:
    """The ``.ckpt`` in a checkpoint's directory, as a kind of array: see `supervisor_core.training.tree.ArrayKind`.

    Args:
        trust: unpickle it without restriction, whoever wrote it: ``Options.trust_pickled``.
    """

    name = "lightning"
    file = contents.LIGHTNING
    copies_memory = False

    def __init__(self, *, trust: bool = False) -> None:
        self._trust = trust

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        return isinstance(value, Content)

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`: whether it can be pickled is known when it is."""

    def copy(self, value: Any, into: Any = None) -> Copy:
        """See `ArrayKind.copy`; waits for the device."""
        checkpoint = value.checkpoint
        try:
            return _copied(checkpoint)
        except Exception as error:
            if HYPER_PARAMETERS not in checkpoint:
                raise CheckpointError(f"Lightning's checkpoint cannot be pickled: {error}") from error
            _LOG.warning("The hyperparameters are left out of the checkpoint, they cannot be pickled: %s", error)
        return _copied({key: item for key, item in checkpoint.items() if key != HYPER_PARAMETERS})

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """See `ArrayKind.save`."""
        (copy,) = arrays.values()
        torch.save(copy.checkpoint(), path)
        return Written(self.file if any(map(tensor_has_nan, copy.tensors)) else None)

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """See `ArrayKind.load`; returns the content. What cannot be loaded with ``weights_only=True`` is loaded if it
        is this user's own, or with ``Options(trust_pickled=True)``."""
        may_run = self._trust or contents.is_own(files)
        is_harmless = contents.vet(files, self.file, contents.LIGHTNING_CLASSES, trust=may_run) is not None
        path = files.path(self.file)
        try:
            checkpoint = self._loaded(files, is_harmless, may_run)
        except (SupervisorError, MemoryError):
            raise
        except Exception as error:
            raise UnreadableCheckpointError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        if not isinstance(checkpoint, dict) or not all(isinstance(checkpoint.get(name), kind) for name, kind in _PARTS):
            raise DamagedCheckpointError(f"{path}: it is no checkpoint of Lightning's")
        return dict.fromkeys(names, Loaded(path, checkpoint, may_run))

    def _loaded(self, files: SealedFiles, is_harmless: bool, may_run: bool) -> Any:
        if not may_run:  # it may be altered between two looks, so there is one
            data = memoryview(files.read(self.file, files.size(self.file)))
            torch_file.check(lambda at, count: bytes(data[at : at + count]), len(data), contents.LIGHTNING_CLASSES)
            with contents.safe_classes():
                return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        with files.open(self.file) as file, open(os.dup(file.fileno()), "rb") as source:
            if not self._trust and not (contents.is_own(files) and file.is_at_its_path()):
                raise UnreadableCheckpointError(f"{file.path} was replaced while it was looked at")
            if is_harmless:
                with suppress(pickle.UnpicklingError), contents.safe_classes():
                    return torch.load(source, map_location="cpu", weights_only=True)
                source.seek(0)
            return torch.load(source, map_location="cpu", weights_only=False)


class LightningState(Part):
    """A `Trainer` as a part of a state tree: its ``.ckpt``, and where its loops stand.

    Args:
        fit: the present ``fit``; only a checkpoint of this one is restored.
        trainer: the trainer.
    """

    def __init__(self, fit: FitNumber, trainer: Any) -> None:
        self._fit, self._trainer = fit, trainer
        self.path: str | None = None
        """The ``.ckpt`` that Lightning is to restore; None for a new run."""
        self.loops: dict[str, Any] | None = None
        """Where the loops stood in the checkpoint that was loaded; None for a new run."""
        self._dumped: dict[str, Any] | None = None
        self._has_evaluation_workers = False
        self.should_stop = False
        """Whether the trainer was to stop then."""
        self.is_over = False
        """Whether ``fit`` has ended."""

    def probe(self) -> None:
        """See after the first step whether what has a ``state_dict`` can be saved; copies no tensor. Hooks of the
        program, as ``on_save_checkpoint``, are called at a save only: they may do more than return a state.

        Raises:
            CheckpointError: if something does not return its state, or one that cannot be pickled.
        """
        trainer = self._trainer
        parts = [trainer.lightning_module, *trainer.callbacks, *trainer.optimizers]
        for part in (*parts, trainer.datamodule):
            if part is None:
                continue
            try:
                _Writer(io.BytesIO(), copies=False).dump(part.state_dict())
            except Exception as error:
                raise CheckpointError(
                    f"The state of {type(part).__name__} cannot be saved: {type(error).__name__}: {error}"
                ) from error

    def dump(self) -> None:
        """Have Lightning collect its checkpoint for each `state_dict` until `release`."""
        self._dumped = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)

    def release(self) -> None:
        """Let go what `dump` has collected."""
        self._dumped = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this moment; it holds the training's own tensors."""
        trainer = self._trainer
        checkpoint = self._dumped or trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        loops = dict(checkpoint["loops"]["fit_loop"])
        own = {key: item for key, item in loops["state_dict"].items() if key != "combined_loader"}
        loops["state_dict"] = own  # the loaders' positions are kept with the data
        return {
            "file": Content(checkpoint),
            "loops": loops,
            "should_stop": bool(trainer.should_stop),
            "over": self.is_over,
            "evaluation_workers": any(loader._iterator is not None for loader in self._kept_by_evaluation()),
        }

    def hand_over(self, tree: Any) -> Any:
        """Have Lightning restore the ``.ckpt`` of a checkpoint, where it is of this ``fit``: `path` is what it is to
        load, and its strategy returns the content that was read already. Return that.

        Raises:
            CheckpointError: if the checkpoint is of another training.
        """
        try:
            self._fit.load(int(tree["objects"][DATA]["fit"]))
            state = tree["objects"][TRAINER]
            loaded = state["file"]
            checkpoint, _ = migrate_checkpoint(loaded.checkpoint)
            self._has_evaluation_workers = bool(state["evaluation_workers"])
            self.loops, self.should_stop, self.is_over = state["loops"], bool(state["should_stop"]), bool(state["over"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint is not one of Lightning's: {type(error).__name__}: {error}"
            ) from error
        if not self._fit.is_this:
            return checkpoint
        if not loaded.is_trusted:  # older versions kept paths elsewhere: they are among the callbacks' now
            drop_foreign(checkpoint, self._trainer.callbacks, loaded.path)
        checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)  # kept with the data
        self.path, strategy = loaded.path, self._trainer.strategy

        def load_checkpoint(*args: Any, **named: Any) -> Any:
            del strategy.load_checkpoint
            return checkpoint

        strategy.load_checkpoint = load_checkpoint
        return checkpoint

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: see `hand_over`."""

    def start_workers(self) -> None:
        """Start the evaluation's persistent workers, if they ran: later it would draw a seed that it did not draw."""
        if self._has_evaluation_workers:
            for loader in self._kept_by_evaluation():
                iter(loader)

    def _kept_by_evaluation(self) -> list[Any]:
        combined = self._trainer.fit_loop.epoch_loop.val_loop._combined_loader
        loaders = [] if combined is None else combined.flattened
        return [loader for loader in loaders if getattr(loader, "persistent_workers", False)]

    def set_loops(self) -> None:
        """Bring the loops to where they stood: called where they stood then, before a batch is fetched."""
        assert self.loops is not None
        trainer = self._trainer
        trainer.fit_loop.load_state_dict(self.loops)
        for loop in loops_of(trainer.fit_loop):
            clear_restart(loop)
        trainer.should_stop = self.should_stop


def require_parts(trainer: Any) -> None:
    """Do nothing, but where a `Trainer` lacks what is needed of it.

    Raises:
        RuntimeError: if a part is missing.
    """
    for name in NEEDED:
        try:
            attrgetter(name)(trainer)
        except AttributeError:
            raise RuntimeError(
                f"Lightning {lightning.__version__} has no Trainer.{name}, which SupervisorCallback needs. Nothing was "
                "written. Use a version that has it: 2.4 to 2.6 do."
            ) from None


def loops_of(loop: Any) -> list[Any]:
    """Return a loop of Lightning's, and all loops in it."""
    inner = [item for item in vars(loop).values() if hasattr(item, "_restarting")]
    return [loop, *(each for item in inner for each in loops_of(item))]


def clear_restart(loop: Any) -> None:
    """Have a loop go on as if its state had not been loaded."""
    for name in ("_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint"):
        if hasattr(loop, name):
            setattr(loop, name, False)


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, *, copies: bool = True) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self._copies = copies
        self._known: dict[Any, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        key = _identity(value)
        if key not in self._known:  # weights that two modules share are copied once
            self._known[key] = len(self.tensors)
            self.tensors.append(value.detach().to("cpu", copy=True) if self._copies else value)
        return self._known[key]


class _Reader(pickle.Unpickler):
    tensors: list[torch.Tensor]

    def persistent_load(self, number: Any) -> torch.Tensor:
        return self.tensors[number]


def _identity(tensor: torch.Tensor) -> Any:
    if tensor.layout is not torch.strided or not tensor.numel():
        return id(tensor)
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _copied(checkpoint: dict[str, Any]) -> Copy:
    file = io.BytesIO()
    writer = _Writer(file)
    writer.dump(checkpoint)
    return Copy(file.getvalue(), writer.tensors)


def drop_foreign(checkpoint: Mapping[str, Any], callbacks: Iterable[Any], path: str) -> None:
    """Drop from the states of callbacks the paths of what does not lie in the directory that the callback writes to.

    ``ModelCheckpoint`` keeps in its state which files it has written, and after a resume it removes them, directories
    with all that is in them, when it writes better ones. So who writes the state would say what is removed.

    Args:
        checkpoint: the content of a ``.ckpt``; it is altered.
        callbacks: those of the trainer, set up.
        path: the file, for the log.
    """
    directories: dict[Any, list[Any]] = {}
    for callback in callbacks:
        for key in {callback.state_key, getattr(callback, "_legacy_state_key", callback.state_key)}:
            directories.setdefault(key, []).append(getattr(callback, "dirpath", None))
    dropped = 0
    for key, state in checkpoint["callbacks"].items():
        if isinstance(state, dict):
            dropped += _drop(state, directories.get(key, [None]))
    if dropped:
        _LOG.warning(
            "%s may be another user's: %d paths in it do not lie in the directory that its callback writes to, and "
            "are left out; Lightning would remove what they lead to",
            path,
            dropped,
        )


def _drop(state: dict[Any, Any], directories: list[Any]) -> int:
    foreign = [name for name in _PATHS if name in state and not _is_below(state[name], directories)]
    for name in foreign:
        state[name] = ""
    dropped = len(foreign)
    if _BEST in state:
        best = state[_BEST] if isinstance(state[_BEST], dict) else {}
        kept = {path: score for path, score in best.items() if path and _is_below(path, directories)}
        dropped += len(best) - len(kept)
        if dropped and state.get(_WORST) not in kept:  # Lightning looks it up there
            kept, state[_WORST] = {}, ""
        state[_BEST] = kept
    return dropped


def _is_below(path: Any, directories: list[Any]) -> bool:
    """Return whether a path is none, or a local one of something in all of some directories."""
    if path == "":
        return True
    if type(path) is not str or not os.path.isabs(path) or "::" in path or "://" in path:  # which fsspec takes apart
        return False
    try:
        real = os.path.realpath(path)
        return all(
            isinstance(directory, (str, os.PathLike))
            and os.path.isabs(directory)
            and real.startswith(os.path.join(os.path.realpath(directory), ""))
            for directory in directories
        )
    except (OSError, ValueError):
        return False


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
