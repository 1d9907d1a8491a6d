"""What a resume decodes of a sealed checkpoint, as far as that needs no framework: `check`.

A checkpoint that is whole need not be one that can be read: whoever can write into a logdir can seal anything. So its
content is decoded before it is chosen, by the training and by those that only say what a training would choose
(``tb-supervisor verify``, the restarter). What is checked here, no adapter trusts without it; what a framework alone
can decode (the arrays of Orbax, the content of Lightning's file), the training's own walk decodes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint import jax_files, safetensors_file, shard_metadata, torch_file
from supervisor_core.checkpoint.ownership import distrust
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tree_file import parse_json, read_structure, require_training

STATE_TREE = "state-tree"
TRANSFORMERS = "transformers"
FORMATS = {"ckpt-": STATE_TREE, "checkpoint-": TRANSFORMERS}
"""What the names of sealed checkpoints begin with -> their format."""

NUMPY, TORCH = "numpy.safetensors", "torch.safetensors"
ORBAX = "orbax"
LIGHTNING = "lightning.ckpt"
TRAINER_STATE = "trainer_state.json"

MAX_TRAINER_BYTES = 256 << 20
MAX_TRAINER_VALUES = 10_000_000
"""The Trainer's state has everything that it ever logged."""
_NUMPY_KEYS = 624

LIGHTNING_CLASSES = (
    "argparse.Namespace",
    "datetime.date",
    "datetime.datetime",
    "datetime.timedelta",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
    "lightning.fabric.utilities.data.AttributeDict",
    "lightning.pytorch.utilities.parsing.AttributeDict",
)
"""Classes in hyperparameters of Lightning's, besides PyTorch's own, that do no harm."""

TRAINER_PICKLES = re.compile(
    r"(.*/)?((optimizer|scheduler|scaler)\.(pt|bin)|rng_state(_\d+)?\.pth|(pytorch_model|adapter_model)[^/]*\.bin)"
)
TRAINER_WEIGHTS = re.compile(r"(.*/)?(model|adapter_model)[^/]*\.safetensors")
_TRAINER_INDEX = re.compile(r"(model\.safetensors|pytorch_model\.bin)\.index\.json")
_TRAINER_SETTINGS = re.compile(r"(.*/)?(config|adapter_config)\.json")
_TRAINER_OTHERS = re.compile(r"((pytorch_model_fsdp|optimizer)_\d+|global_step\d+)(/.*)?|latest")
"""What FSDP and DeepSpeed load, and unpickle."""
_RANDOM_STATES = re.compile(r"rng_state(_\d+)?\.pth")
_WEIGHTS = re.compile(r"(.*/)?(model|pytorch_model|adapter_model)[^/]*\.(safetensors|bin)")


def check(files: SealedFiles, kind: str, *, trust: bool = False, may_write: bool = False) -> None:
    """Do nothing for a checkpoint that can be decoded, as far as can be said without a framework.

    Args:
        files: the checkpoint's.
        kind: the format that is read: `STATE_TREE` or `TRANSFORMERS`.
        trust: whether code in it may run, whoever wrote it: ``Options.trust_pickled``.
        may_write: see `ownership.distrust`.

    Raises:
        DamagedCheckpointError: if it cannot be; says why.
        UnreadableCheckpointError: if it is of another format, or of an owner who is not trusted.
    """
    require_format(files, kind)
    if kind == TRANSFORMERS:
        _check_trainer(files, trust, may_write)
        return
    structure = read_structure(files)
    require_training(files, structure.tree)
    for array_kind, names in structure.names.items():
        if array_kind == "lightning":
            vet(files, LIGHTNING, LIGHTNING_CLASSES, trust=trust, may_write=may_write)
        elif array_kind in _KINDS:
            _KINDS[array_kind](files, names)
        else:
            raise DamagedCheckpointError(f"{files.directory}: it has arrays of {array_kind!r:.40}, which nothing reads")


def require_format(files: SealedFiles, kind: str) -> None:
    """Do nothing for a checkpoint of a format.

    Raises:
        UnreadableCheckpointError: if it has another one. It may be whole, and another program's.
    """
    if files.manifest.format != kind:
        raise UnreadableCheckpointError(
            f"{files.directory} has the format {files.manifest.format!r:.40}; this program reads {kind!r}"
        )


def vet(
    files: SealedFiles, name: str, classes: Collection[str] = (), *, trust: bool = False, may_write: bool = True
) -> Any:
    """Return what a file of ``torch.save`` says, if it can be read without running code that is in it; None if not.

    Args:
        files: the checkpoint's.
        classes: names of classes that may be in it besides PyTorch's own.
        may_write: see `ownership.distrust`.

    Raises:
        DamagedCheckpointError: if it is no such file.
        UnreadableCheckpointError: if it cannot, and the checkpoint may be another user's.
    """
    with files.open(name) as file:
        try:
            return torch_file.check(file.read_at, file.size, classes)
        except ValueError as error:
            raise DamagedCheckpointError(f"{file.path}: {error}") from error
        except torch_file.NeedsCodeError as error:
            if not trust:
                what = f"{file.path} names {error.name:.200}, and to read that may run code that is in the file"
                require_owner(files, what, may_write=may_write)
    return None


def require_owner(files: SealedFiles, what: str, *, may_write: bool = True) -> None:
    """Do nothing for a checkpoint that is this user's.

    Args:
        files: the checkpoint's.
        what: why that matters: a clause.
        may_write: see `ownership.distrust`.

    Raises:
        UnreadableCheckpointError: if it may be another user's; says whose, and what to do.
    """
    found = distrust(files, _logdir(files), may_write=may_write)
    if found is not None:
        raise UnreadableCheckpointError(
            f"{what}; {found.reason}. If you trust everybody who can write there, use Options(trust_pickled=True), or "
            f"make it your own: {found.command}"
        )


def is_own(files: SealedFiles, *, may_write: bool = True) -> bool:
    """Return whether a checkpoint is this user's: nobody who is not trusted may have written it, or may write it
    now."""
    return distrust(files, _logdir(files), may_write=may_write) is None


@contextmanager
def safe_classes() -> Iterator[None]:
    """Let ``torch.load(weights_only=True)`` allow what `vet` allows of what is imported, besides what the program has
    allowed."""
    import numpy
    import torch

    found = [type(numpy.dtype(letter)) for letter in numpy.typecodes["All"] if letter not in "OSUVMm"]
    for name in (*LIGHTNING_CLASSES, *torch_file.HARMLESS):
        module, _, attribute = name.rpartition(".")
        if hasattr(sys.modules.get(module), attribute):
            found.append(getattr(sys.modules[module], attribute))
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals([item for item in found if item not in before])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _logdir(files: SealedFiles) -> str:
    above = os.path.dirname(files.directory)
    return above if files.manifest.format == TRANSFORMERS else os.path.dirname(above)


def _check_trainer(files: SealedFiles, trust: bool, may_write: bool) -> None:
    """Do nothing for a checkpoint that Transformers' `Trainer` can load; see `check`."""
    if (step := trainer_state(files).get("global_step")) != files.manifest.step or type(step) is not int:
        raise DamagedCheckpointError(f"{files.path(TRAINER_STATE)}: it is not of step {files.manifest.step}")
    listed = [item.path for item in files.manifest.files]
    loaded = (TRAINER_PICKLES, _WEIGHTS, _TRAINER_INDEX, _TRAINER_SETTINGS)
    for name in (*listed, *_there(files)):
        if name not in files and any(part.fullmatch(name) for part in loaded):
            raise DamagedCheckpointError(f"{files.path(name)}: it is not in the manifest")
        if not trust and _TRAINER_OTHERS.fullmatch(name):
            what = f"{files.path(name)} is of FSDP or DeepSpeed, which may run code that is in it"
            require_owner(files, what, may_write=may_write)
    for name in listed:
        if TRAINER_PICKLES.fullmatch(name):
            content = vet(files, name, trust=trust, may_write=may_write)
            if content is not None and _RANDOM_STATES.fullmatch(name):
                _check_random_state(files, name, content)
        elif _TRAINER_SETTINGS.fullmatch(name):
            _json(files, name)
        elif TRAINER_WEIGHTS.fullmatch(name):
            safetensors_file.check(files, name)
        elif _TRAINER_INDEX.fullmatch(name):
            parts = _json(files, name).get("weight_map")
            if not isinstance(parts, dict) or not all(
                isinstance(part, str) and part in files for part in parts.values()
            ):
                raise DamagedCheckpointError(f"{files.path(name)}: it names weights that are not in the manifest")
    if not trust and not any(_WEIGHTS.fullmatch(name) for name in listed):
        require_owner(files, f"{files.directory} has no weights that the Trainer loads", may_write=may_write)


def _check_random_state(files: SealedFiles, name: str, content: Any) -> None:
    """Do nothing for a random state that numpy may have: it reads at the position in it without a look."""
    if isinstance(content, dict) and "numpy" not in content:
        return
    state = content["numpy"] if isinstance(content, dict) else None
    position = state[2] if isinstance(state, (list, tuple)) and len(state) > 2 else None
    if type(position) is not int or not 0 <= position <= _NUMPY_KEYS:
        raise DamagedCheckpointError(f"{files.path(name)}: the position in numpy's random state lies outside of it")


def _there(files: SealedFiles) -> list[str]:
    """Return the names of what is in a checkpoint's directory, and in the folders in it."""
    found = []
    try:
        for name in os.listdir(files.directory):
            found.append(name)
            if os.path.isdir(files.path(name)):
                found += [f"{name}/{inner}" for inner in os.listdir(files.path(name))]
    except OSError as error:
        raise UnreadableCheckpointError(f"{files.directory}: {error.strerror or error}") from error
    return found


def trainer_state(files: SealedFiles) -> dict[str, Any]:
    """Return the content of ``trainer_state.json``.

    Raises:
        DamagedCheckpointError, UnreadableCheckpointError: if it cannot be read.
    """
    return _json(files, TRAINER_STATE)


def _json(files: SealedFiles, name: str) -> dict[str, Any]:
    data = files.read(name, MAX_TRAINER_BYTES)
    try:
        found = parse_json(data, most=MAX_TRAINER_VALUES, is_strict=False)
    except ValueError as error:
        raise DamagedCheckpointError(f"{files.path(name)}: it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise DamagedCheckpointError(f"{files.path(name)}: it is no JSON object")
    return found


def read_shards(files: SealedFiles, names: Collection[str]) -> Mapping[str, shard_metadata.SplitTensor]:
    """Return the tensors in the shards of a checkpoint, by their names in its tree; all can be read without harm.

    Raises:
        DamagedCheckpointError: if they cannot, or one of ``names`` is not there.
    """
    tensors = shard_metadata.read(files)
    if missing := set(names) - tensors.keys():
        raise DamagedCheckpointError(f"{files.path(shard_metadata.METADATA)}: {min(missing)!r:.80} is not in it")
    shard_metadata.check_parts(files, tensors)
    return tensors


_KINDS: Mapping[str, Callable[[SealedFiles, Collection[str]], object]] = {
    "numpy": lambda files, names: safetensors_file.check(files, NUMPY, names),
    "torch": lambda files, names: safetensors_file.check(files, TORCH, names),
    "jax": lambda files, names: jax_files.read_metadata(files, ORBAX, names),
    "shards": read_shards,
    "sharded": jax_files.files_of,
}
"""The kinds of arrays by their names in trees -> what checks their files."""
