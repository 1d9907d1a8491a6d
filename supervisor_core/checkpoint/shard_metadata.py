"""``shards/.metadata``: which part of which tensor is where in the shards of a checkpoint.

The file is a pickle that ``torch.distributed.checkpoint`` writes, of a ``Metadata``. Here it is read without PyTorch,
and without unpickling: `read` takes the few classes that it is made of as plain values, and refuses any other. Each
part of a tensor is a file of ``torch.save`` within a file of the folder; `check_parts` looks at each (`torch_file`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint import torch_file
from supervisor_core.checkpoint.pickles import Call, Global, Persistent, decode
from supervisor_core.checkpoint.sealed_files import OpenFile, SealedFiles

FOLDER = "shards"
METADATA = f"{FOLDER}/.metadata"
MAX_METADATA_BYTES = 64 << 20

_MODULE = "torch.distributed.checkpoint.metadata."
_STORAGE_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"
_MODULE_CLASSES = (
    "Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex", "StorageMeta",
    "_MEM_FORMAT_ENCODING",
)  # fmt: skip
_CLASSES = frozenset(
    (
        *(_MODULE + name for name in _MODULE_CLASSES),
        _STORAGE_INFO,
        "torch.Size",
        "torch.serialization._get_layout",
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",  # of Python 3.13
    )
)
_Locations = Mapping[tuple[str, tuple[int, ...]], tuple[str, int, int]]
"""Name and offsets of a part -> its file, and where it begins and how long it is there."""


class SplitPart(NamedTuple):
    """A part of a split tensor."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    """Its file, relative to the folder."""
    start: int
    """Where it begins in the file."""
    length: int
    """Bytes."""


class SplitTensor(NamedTuple):
    """A tensor that is split."""

    dtype: str
    """As ``torch.float32``."""
    size: tuple[int, ...]
    parts: tuple[SplitPart, ...]


def read(files: SealedFiles, folder: str = FOLDER) -> Mapping[str, SplitTensor]:
    """Return the tensors in the shards of a checkpoint, by their places in its tree.

    Args:
        files: the checkpoint's.
        folder: the one that the shards are in.

    Raises:
        DamagedCheckpointError: if they are not what was written; says why.
        UnreadableCheckpointError: if the file system refuses a file.
    """
    listed = set(files.below(folder))
    name = f"{folder}/.metadata"
    path = files.path(name)
    try:
        metadata = decode(files.read(name, MAX_METADATA_BYTES), _refuse_others)
        return _tensors(files, listed, metadata, folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(f"{path}: it is no metadata of shards: {error}") from error


def check_parts(files: SealedFiles, tensors: Mapping[str, SplitTensor]) -> None:
    """Do nothing where each part is a tensor that can be read without harm.

    Raises:
        DamagedCheckpointError: if one is none.
        UnreadableCheckpointError: if the file system refuses a file.
    """
    by_file: dict[str, list[tuple[str, SplitPart]]] = {}
    for tensor in tensors.values():
        for part in tensor.parts:
            by_file.setdefault(part.file, []).append((tensor.dtype, part))
    for name, parts in by_file.items():
        with files.open(f"{FOLDER}/{name}") as file:
            for dtype, part in parts:
                where = f"{file.path}, byte {part.start:,}"
                found = _check_part(partial(_within, file, part), part.length, where)
                if torch_file.tensor_of(found) != (dtype, part.sizes):
                    raise DamagedCheckpointError(f"{where}: it is another tensor than the metadata say")


def check_part(data: bytes, where: str) -> None:
    """Do nothing where bytes are a tensor that can be read without harm.

    Args:
        where: their place, for the error.

    Raises:
        DamagedCheckpointError: if they are none.
    """
    _check_part(lambda offset, length: data[max(0, offset) : max(0, offset) + length], len(data), where)


def _check_part(read_at: torch_file.ReadAt, length: int, where: str) -> Any:
    try:
        return torch_file.check(read_at, length)
    except (ValueError, torch_file.NeedsCodeError) as error:
        what = f"it names {error}" if isinstance(error, torch_file.NeedsCodeError) else error
        raise DamagedCheckpointError(f"{where}: it is no tensor: {what}") from error


def _within(file: OpenFile, part: SplitPart, offset: int, length: int) -> bytes:
    return file.read_at(part.start + offset, min(length, part.length - offset)) if 0 <= offset < part.length else b""


def _refuse_others(found: Global | Call | Persistent) -> None:
    if isinstance(found, Persistent):
        raise ValueError("it refers to something outside")
    if found.name not in _CLASSES and (isinstance(found, Call) or found.name not in torch_file.DTYPES):
        raise ValueError(f"it names {found.name:.200}, which is none of the metadata's classes")


def _tensors(files: SealedFiles, listed: set[str], metadata: Any, folder: str) -> Mapping[str, SplitTensor]:
    state = _state(metadata, "Metadata")
    where: dict[tuple[str, tuple[int, ...]], tuple[str, int, int]] = {}
    for index, info in state["storage_data"].items():
        key = _state(index, "MetadataIndex")
        found = _state(info, _STORAGE_INFO, module="")
        name, start, length = _text(found["relative_path"]), _count(found["offset"]), _count(found["length"])
        if found.get("transform_descriptors"):
            raise ValueError("its parts are transformed")
        file = f"{folder}/{name}"
        if file not in listed or start + length > files.size(file):
            raise ValueError(f"a part lies outside of the folder's files, in {name!r:.80}")
        where[_text(key["fqn"]), _sizes(key["offset"])] = name, start, length
    tensors = {
        _text(name): _tensor(name, _state(item, "TensorStorageMetadata"), where)
        for name, item in state["state_dict_metadata"].items()
    }
    claimed = sum(math.prod(tensor.size) * torch_file.DTYPES[tensor.dtype] for tensor in tensors.values())
    there = sum(files.size(name) for name in listed)
    if claimed > there:
        raise ValueError(f"its tensors have {claimed:,} bytes, and the files of the folder {there:,}")
    named = sum(part.length for tensor in tensors.values() for part in tensor.parts)
    if named > there:  # one that is named more than once would be decoded as often
        raise ValueError(f"its parts have {named:,} bytes, and the files of the folder {there:,}")
    return tensors


def _tensor(name: str, item: Mapping[str, Any], where: _Locations) -> SplitTensor:
    size = _sizes(item["size"])
    dtype = item["properties"].state[0].name
    if dtype not in torch_file.DTYPES:
        raise ValueError(f"a tensor is of {dtype:.80}")
    parts = []
    for each in item["chunks"]:
        chunk = _state(each, "ChunkStorageMetadata")
        offsets, sizes = _sizes(chunk["offsets"]), _sizes(chunk["sizes"])
        if len(offsets) != len(size) or len(sizes) != len(size):
            raise ValueError("a part has other dimensions than its tensor")
        if any(offset + length > whole for offset, length, whole in zip(offsets, sizes, size, strict=True)):
            raise ValueError("a part lies outside of its tensor")
        parts.append(SplitPart(offsets, sizes, *where[name, offsets]))
    if sum(math.prod(part.sizes) for part in parts) != math.prod(size):
        raise ValueError("the parts of a tensor are not all of it")
    return SplitTensor(dtype, size, tuple(parts))


def _state(value: Any, name: str, *, module: str = _MODULE) -> Mapping[str, Any]:
    if not isinstance(value, Call) or value.name != module + name or type(value.state) is not dict:
        raise ValueError(f"it has something else than a {name}")
    return value.state


def _sizes(value: Any) -> tuple[int, ...]:
    (numbers,) = value.arguments if isinstance(value, Call) and value.name == "torch.Size" else (None,)
    if type(numbers) is not tuple or not all(type(item) is int and item >= 0 for item in numbers):
        raise ValueError("a size is none")
    if len(numbers) > torch_file.MAX_DIMENSIONS or math.prod(filter(None, numbers)) >= 1 << 60:
        raise ValueError("a size is too large")
    return numbers


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a count is none")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("a name is no text")
    return value
