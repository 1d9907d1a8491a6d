"""`open_tensors`: the tensors of a checkpoint of any format that is written here, and of files and folders like theirs.

    a bundle            ``model.ckpt-1200``: TensorFlow's files that begin with it
    a sealed one        its directory: the arrays of NumPy and PyTorch, shards of `torch.distributed.checkpoint`, pieces
                        of JAX's arrays, the files of Lightning and of Transformers; those of Orbax need ``tensorstore``
    one that is not     ``model.safetensors``; a file of ``torch.save``; a folder of such files; a folder that
                        `torch.distributed.checkpoint` has written

A pickle is decoded and never loaded; a file that is reached by a symbolic link inside a checkpoint is not read. What is
read was not compared with checksums: `supervisor_core.cli.verify` does that.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from supervisor_core import checksum
from supervisor_core.checkpoint import (
    array_pieces,
    bundle,
    contents,
    legacy,
    orbax_arrays,
    safetensors_file,
    shard_metadata,
    torch_file,
)
from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint.manifest import Holes, Manifest, SealedFile
from supervisor_core.checkpoint.pickles import Call
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.table import MAGIC
from supervisor_core.checkpoint.tensors import (
    MAX_NAME,
    MAX_TENSORS,
    WIDTHS,
    ReadAt,
    Tensor,
    TensorPart,
    part_of,
    span_of,
    tensor_of,
)
from supervisor_core.checkpoint.tree_file import read_structure
from supervisor_core.errors import CheckpointError, DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path

_MOST_OPEN = 32
"""Files of one checkpoint that are open at a time."""
MAX_NAMES = 64 << 20
"""Characters of the names in a file of ``torch.save``: one key may be in the name of each tensor."""
_MOST_SHARING = 16
"""Tensors in a file of ``torch.save`` may share their bytes; with what lies between their numbers they are at most this
many times as long."""

_QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}
_TORCH_FILE = re.compile(r"(.*/)?[^/]+\.(pt|pth|bin|ckpt)")
_WEIGHTS = re.compile(r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)")
_OLDER = "{}: the values of checkpoints in TensorFlow's older format (SaverDef.V1) are not read"
_PARTITION = re.compile(r"\0(?P<name>.+)\0\x01.*", re.DOTALL)
"""How TensorFlow calls a part of a partitioned variable in an index."""


class Opened(NamedTuple):
    """A checkpoint whose tensors can be read."""

    path: str
    format: str
    """In words."""
    tensors: tuple[Tensor, ...]
    """In the order of the state tree; where there is none, by name."""


@contextmanager
def open_tensors(
    path: str | os.PathLike[str], *, filesystem: Filesystem | None = None, of_run: bool = False
) -> Iterator[Opened]:
    """Open a checkpoint; see the module's docstring for what may be one.

    Args:
        path: its prefix, its directory, or its file.
        filesystem: reads the files of a bundle. Default: by the path's scheme.
        of_run: it was found in a logdir, where others may have put it: only a bundle and a sealed checkpoint are read,
            through no symbolic link.

    Raises:
        DamagedCheckpointError: if its files are not what they should be; says which and why.
        UnreadableCheckpointError: if it cannot be read here: refused by the file system, or a package is missing.
        CheckpointError: if it is of no format that is known.
    """
    with ExitStack() as stack:
        prefix = os.fspath(path)
        local = local_path(prefix)
        if local is not None and os.path.isdir(local):
            yield Opened(prefix, *_of_directory(local, stack, of_run=of_run))
        elif legacy.SHARDED.search(prefix):
            raise UnreadableCheckpointError(_OLDER.format(prefix))
        elif local is not None and os.path.isfile(local) and not local.endswith(".index"):
            if of_run:
                raise UnreadableCheckpointError(_OLDER.format(prefix))
            yield Opened(prefix, *_of_file(local, stack))
        else:
            if local is not None and not os.path.isfile(f"{local.removesuffix('.index')}.index"):
                raise CheckpointError(f"There is no checkpoint {prefix}: no directory, no file, and no {prefix}.index")
            yield Opened(prefix, "TensorFlow", _of_bundle(prefix.removesuffix(".index"), filesystem, stack))


def _of_directory(directory: str, stack: ExitStack, *, of_run: bool) -> tuple[str, tuple[Tensor, ...]]:
    names = set() if of_run else set(os.listdir(directory))
    if of_run or manifests.NAME in names:
        manifest = manifests.read_manifest(directory)
        files = SealedFiles(directory, manifest)
        contents.check(files, manifest.format, trust=True)
        if manifest.format == contents.TRANSFORMERS:
            listed = [file.path for file in manifest.files]
            return "Transformers", _of_files(files, listed, stack)
        return "sealed", _of_tree(files, stack)
    parent, folder = os.path.split(os.path.abspath(directory))
    if os.path.basename(shard_metadata.METADATA) in names:
        files = _unsealed(parent, folder, sorted(names), f"{folder}/.metadata")
        return "torch.distributed.checkpoint", _of_shards(files, shard_metadata.read(files, folder), folder, stack)
    if found := _of_files(_unsealed(directory, "", sorted(names)), sorted(names), stack):
        return "files of arrays", found
    raise CheckpointError(
        f"{directory} is no checkpoint. Expected a sealed one, a folder of torch.distributed.checkpoint, or one with "
        ".safetensors or .pt files"
    )


def _of_file(path: str, stack: ExitStack) -> tuple[str, tuple[Tensor, ...]]:
    directory, name = os.path.split(os.path.abspath(path))
    shard = re.fullmatch(r"(?P<prefix>.+)\.data-\d{5}-of-\d{5}", path)
    if shard is not None:
        return "TensorFlow", _of_bundle(shard["prefix"], None, stack)
    files = SealedFiles(directory, Manifest(format="", step=0, files=(_listed(directory, name),)))
    if name.endswith(".safetensors"):
        return "safetensors", _in_name_order(_of_safetensors(files, name, stack))
    with files.open(name) as file:
        is_archive = file.read_at(0, 2) == b"PK"
        is_table = file.size >= len(MAGIC) and file.read_at(file.size - len(MAGIC), len(MAGIC)) == MAGIC
    if is_table:
        raise UnreadableCheckpointError(_OLDER.format(path))
    if is_archive:
        return "torch.save", _in_name_order(_of_torch_file(files, name, "", stack))
    raise CheckpointError(f"{path} is no checkpoint; expected safetensors, or a file of torch.save")


def _unsealed(directory: str, folder: str, names: list[str], *read: str) -> SealedFiles:
    """Return the files of a folder that has no manifest, with the checksums of those that are read as a whole."""
    try:
        whole = {item.path: item for item in manifests.list_files(directory, *read)} if read else {}
    except OSError as error:
        raise manifests.refusal(os.path.join(directory, folder), error) from error
    paths = (f"{folder}/{name}" if folder else name for name in names)
    regular = [path for path in paths if _is_regular(os.path.join(directory, path))]
    listed = tuple(whole.get(path) or _listed(directory, path) for path in regular)
    return SealedFiles(directory, Manifest(format="", step=0, files=listed))


def _is_regular(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _listed(directory: str, name: str) -> SealedFile:
    """Return a file as it is, without its checksum."""
    path = os.path.join(directory, name)
    try:
        return SealedFile(name, os.stat(path).st_size, checksum.value(b""))
    except OSError as error:
        raise manifests.refusal(path, error) from error


class _Files:
    """The files of a checkpoint, opened when they are needed, a few at a time."""

    def __init__(self, open_file: Callable[[str], Any], stack: ExitStack) -> None:
        self._open_file = open_file
        self._open: dict[str, Any] = {}
        stack.callback(self._close)

    def at(self, name: str) -> ReadAt:
        """Return what reads a file."""

        def read_at(offset: int, length: int) -> bytes:
            file = self._file(name)
            return file.read_at(offset, min(length, file.size - offset)) if 0 <= offset < file.size else b""

        return read_at

    def _file(self, name: str) -> Any:
        file = self._open.pop(name, None) or self._open_file(name)
        self._open[name] = file
        while len(self._open) > _MOST_OPEN:
            self._open.pop(next(iter(self._open))).close()
        return file

    def _close(self) -> None:
        for file in self._open.values():
            file.close()


def _of_bundle(prefix: str, filesystem: Filesystem | None, stack: ExitStack) -> tuple[Tensor, ...]:
    chosen, name = filesystem_for(prefix) if filesystem is None else (filesystem, prefix)
    index = bundle.read_index(name)
    holes, seen = Holes(), set[str]()

    def opened(path: str) -> Any:
        try:
            file = chosen.open(path)
        except OSError as error:
            raise manifests.refusal(path, error) from error
        if file.is_linked:
            file.close()
            raise UnreadableCheckpointError(
                f"{path} is a symbolic link: the values of what it leads to are not read. Copy the file there."
            )
        if file.status is not None and path not in seen:
            seen.add(path)
            if (problem := holes.problem(file.status)) is not None:
                file.close()
                raise DamagedCheckpointError(f"{path}: {problem}")
        return file

    files = _Files(opened, stack)
    found = []
    ends: dict[int, int] = {}
    totals: dict[int, int] = {}
    for key, entry in index.entries.items():
        partition = _PARTITION.fullmatch(key)
        if entry.sliced:
            continue
        dtype = _QUANTIZED.get(entry.dtype, entry.dtype)
        path = bundle.data_path(name, entry.shard, index.num_shards)
        parts = [part_of(entry.shape, entry.offset, files.at(path))]
        label = key if partition is None else partition["name"]
        tensor = tensor_of(label, dtype, entry.shape, parts, prefix, big_endian=index.big_endian)
        ends[entry.shard] = max(ends.get(entry.shard, 0), entry.offset + tensor.bytes)
        totals[entry.shard] = totals.get(entry.shard, 0) + tensor.bytes
        found.append(tensor)
    for shard, end in ends.items():
        if totals[shard] > end:  # each would be read once more
            raise DamagedCheckpointError(f"{prefix}: tensors share their bytes in its data file {shard}")
    return _in_name_order(_numbered(found))


def _numbered(tensors: list[Tensor]) -> Iterator[Tensor]:
    """Yield tensors; of those with one name, which are parts of a variable, each with its number in the name."""
    counts: dict[str, int] = {}
    for tensor in tensors:
        counts[tensor.name] = counts.get(tensor.name, 0) + 1
    numbers: dict[str, int] = {}
    for tensor in tensors:
        if counts[tensor.name] == 1:
            yield tensor
        else:
            number = numbers[tensor.name] = numbers.get(tensor.name, 0) + 1
            yield tensor._replace(name=f"{tensor.name} (part {number} of {counts[tensor.name]})")


def _of_tree(files: SealedFiles, stack: ExitStack) -> tuple[Tensor, ...]:
    """Return the tensors of a state tree, in its order."""
    structure = read_structure(files)
    found: dict[str, Tensor] = {}
    for kind, names in structure.names.items():
        if kind in ("numpy", "torch"):
            name = contents.NUMPY if kind == "numpy" else contents.TORCH
            found.update((tensor.name, tensor) for tensor in _of_safetensors(files, name, stack))
        elif kind == "shards":
            shards = _of_shards(files, contents.read_shards(files, names), shard_metadata.FOLDER, stack)
            found.update((tensor.name, tensor) for tensor in shards)
        elif kind == "sharded":
            found.update((tensor.name, tensor) for tensor in _of_pieces(files, set(names), stack))
        elif kind == "jax":
            arrays = orbax_arrays.read(files, contents.ORBAX, names, stack)
            found.update((tensor.name, tensor) for tensor in arrays)
        elif kind == "lightning":
            found.update((tensor.name, tensor) for tensor in _of_torch_file(files, contents.LIGHTNING, "", stack))
    order: list[str] = []
    structure.build(lambda _, name: order.append(array_pieces.shared_path(name)))
    places = {name: place for place, name in enumerate(order)}
    return tuple(sorted(found.values(), key=lambda tensor: places.get(tensor.name, len(places))))


def _of_files(files: SealedFiles, names: list[str], stack: ExitStack) -> tuple[Tensor, ...]:
    """Return the tensors of the files of arrays that are among some; a name begins with that of its file, and those of
    weights with ``model`` in however many files they are. One that can be read only by running code is one tensor
    without numbers."""
    found: list[Tensor] = []
    for name in names:
        if name not in files:
            continue
        head = "model/" if _WEIGHTS.fullmatch(name) else f"{name}/"
        if name.endswith(".safetensors"):
            found += [tensor._replace(name=head + tensor.name) for tensor in _of_safetensors(files, name, stack)]
        elif _TORCH_FILE.fullmatch(name):
            try:
                found += _of_torch_file(files, name, head, stack)
            except UnreadableCheckpointError:  # its arguments, or its weights: what is in it is not known
                found.append(Tensor(name, "pickle", (), None))
        if len(found) > MAX_TENSORS:
            raise DamagedCheckpointError(f"{files.path(name)}: with this file it has more than {MAX_TENSORS:,} tensors")
    return _in_name_order(found)


def _of_safetensors(files: SealedFiles, name: str, stack: ExitStack) -> Iterator[Tensor]:
    opened = _Files(files.open, stack)
    for array, start in _with_starts(files, name):
        parts = [part_of(array.shape, start, opened.at(name))]
        yield tensor_of(array.name, safetensors_file.DTYPES[array.dtype], array.shape, parts, files.path(name))


def _with_starts(files: SealedFiles, name: str) -> Iterator[tuple[safetensors_file.Array, int]]:
    """Yield the arrays in a file of safetensors, each with the byte of its first number."""
    arrays = safetensors_file.arrays(files, name)
    start = files.size(name) - sum(array.bytes for array in arrays)
    for array in arrays:
        yield array, start
        start += array.bytes


def _of_pieces(files: SealedFiles, names: set[str], stack: ExitStack) -> Iterator[Tensor]:
    """Yield the arrays of JAX that several processes have written in pieces."""
    opened = _Files(files.open, stack)
    arrays = array_pieces.files_of(files, names)
    starts: dict[tuple[str, str], int] = {}
    for name in files.below(array_pieces.FOLDER):
        starts.update(((name, array.name), start) for array, start in _with_starts(files, name))
    for path, pieces in arrays.items():
        parts = [part_of(piece.shape, starts[name, piece.name], opened.at(name), piece.first) for piece, name in pieces]
        first = pieces[0][0]
        yield tensor_of(path, first.dtype, first.whole, parts, files.path(array_pieces.FOLDER))


def _of_shards(
    files: SealedFiles, tensors: Mapping[str, shard_metadata.SplitTensor], folder: str, stack: ExitStack
) -> tuple[Tensor, ...]:
    """Return the tensors in the shards of `torch.distributed.checkpoint`, by name."""
    opened = _Files(files.open, stack)
    found = []
    for name, tensor in tensors.items():
        parts = []
        for part in tensor.parts:
            read_at = _window(opened.at(f"{folder}/{part.file}"), part.start, part.length)
            stored = _stored_tensors(read_at, part.length, "", files.path(folder))
            if len(stored) != 1 or stored[0].shape != part.sizes:
                raise DamagedCheckpointError(f"{files.path(folder)}: a part of {name!r:.200} is another tensor")
            parts.append(stored[0].part._replace(first=part.offsets))
        dtype = tensor.dtype.removeprefix("torch.")
        found.append(tensor_of(name, dtype, tensor.size, parts, files.path(folder)))
    return _in_name_order(found)


def _window(read_at: ReadAt, start: int, length: int) -> ReadAt:
    """Return what reads a part of a file as if it were one."""
    return lambda offset, count: read_at(start + offset, min(count, length - offset)) if 0 <= offset < length else b""


def _of_torch_file(files: SealedFiles, name: str, head: str, stack: ExitStack) -> list[Tensor]:
    """Return the tensors in a file of ``torch.save``; see `_stored_tensors`."""
    read_at = _Files(files.open, stack).at(name)
    found = _stored_tensors(read_at, files.size(name), head, files.path(name))
    return [tensor_of(item.name, item.dtype, item.shape, [item.part], files.path(name)) for item in found]


class _Stored(NamedTuple):
    """A tensor in a file of ``torch.save``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    part: TensorPart


def _stored_tensors(read_at: ReadAt, size: int, head: str, where: str) -> list[_Stored]:
    """Return the tensors in a file of ``torch.save``, in the order of its pickle, which is decoded and never loaded.

    Args:
        read_at: reads it. size: its length in bytes.
        head: what their names begin with; the keys that lead to each follow, joined by slashes.
        where: the file, for errors.

    Raises:
        DamagedCheckpointError: if it is no such file.
        UnreadableCheckpointError: if its pickle can be read only by running code that it names.
    """
    try:
        value = torch_file.check(read_at, size, contents.LIGHTNING_CLASSES)
        records = torch_file.records_of(read_at, size)
    except ValueError as error:
        raise DamagedCheckpointError(f"{where}: {error}") from error
    except torch_file.NeedsCodeError as error:
        what = f"it names {error.name:.200}, and to read that may run code that is in the file"
        raise UnreadableCheckpointError(f"{where}: its values are not read: {what}") from error
    order = records.get("byteorder")
    if order is not None and read_at(order.offset, min(order.size, 8)) == b"big":
        raise UnreadableCheckpointError(f"{where}: its values are not read: a machine with big-endian numbers wrote it")
    found: list[_Stored] = []
    left, names = _MOST_SHARING * size, 0
    for path, call in _calls(value, head.rstrip("/")):
        stored = torch_file.tensor_of(call)
        if stored is None:
            continue
        dtype, shape = stored[0].removeprefix("torch."), stored[1]
        storage, offset, _, strides, *_ = _plain_tensor(call).arguments
        start = records[f"data/{storage.identity[2]}"].offset + offset * WIDTHS.get(dtype, 0)
        part = TensorPart((0,) * len(shape), shape, torch_file.sizes_of(strides), start, read_at)
        found.append(_Stored(path, dtype, shape, part))
        left -= span_of(part) * WIDTHS.get(dtype, 0) if math.prod(shape) else 0
        names += len(path)
        if left < 0:
            raise DamagedCheckpointError(f"{where}: its tensors share their bytes too often")
        if names > MAX_NAMES or len(found) > MAX_TENSORS:
            raise DamagedCheckpointError(f"{where}: it has too many tensors, or their names are too long")
    return found


def _plain_tensor(call: Call) -> Call:
    """Return the tensor that a parameter is made of; a tensor as it is."""
    inner: Call = call.arguments[0] if call.name == "torch._utils._rebuild_parameter" else call
    return inner


def _calls(value: Any, path: str) -> Iterator[tuple[str, Call]]:
    """Yield what a decoded pickle makes by calls, with the keys that lead to it."""
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif isinstance(value, Call):
        yield path, value
        pairs = all(type(item) is tuple and len(item) == 2 for item in value.items)
        items = value.items if pairs else enumerate(value.items)
    else:
        return
    for key, item in items:
        if isinstance(item, (dict, list, tuple, Call)):
            text = str(key[: MAX_NAME + 1] if isinstance(key, (str, bytes, tuple)) else key)
            yield from _calls(item, (f"{path}/{text}" if path else text)[: MAX_NAME + 1])


def _in_name_order(tensors: Iterator[Tensor] | list[Tensor]) -> tuple[Tensor, ...]:
    """Return tensors by name, ``layer2`` before ``layer10``."""
    return tuple(sorted(tensors, key=lambda tensor: [*_parts_of(tensor.name)]))


def _parts_of(name: str) -> Iterator[tuple[int, str]]:
    for part in re.split(r"(\d+)", name[:MAX_NAME]):
        yield (int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part)
