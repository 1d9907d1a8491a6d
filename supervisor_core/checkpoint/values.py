"""What the numbers in a checkpoint are: `values_of`, of TensorFlow's bundles and of files of safetensors.

Read a block at a time. What PyTorch has pickled, and Orbax's arrays, are not read. A file that is reached by a symbolic
link is not read. What is read was not compared with checksums: `supervisor_core.cli.verify` does that.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint import bundle, jax_files, safetensors_file
from supervisor_core.checkpoint.bundle import Progress
from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.table import Meter
from supervisor_core.checkpoint.tree_file import STRUCTURE, Reference, read_structure
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import local_path

if TYPE_CHECKING:
    import numpy as np

    Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

MAX_TENSORS = 250_000
"""Of a checkpoint."""
MAX_NAME = 4096
"""Characters of a tensor's name."""
_BLOCK_BYTES = 1 << 20
"""Of numbers at a time: they stay in the processor's cache. A multiple of every number's width."""

_NUMBERS = frozenset(
    ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
)
_STORED_AS = {
    "complex64": "float32", "complex128": "float64",
    "qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32",
}  # fmt: skip
_PARTITION = re.compile(r"\0(?P<name>.+)\0\x01.*", re.DOTALL)
"""How TensorFlow calls a part of a partitioned variable in an index."""


@dataclass(frozen=True, kw_only=True)
class TensorValues:
    """What the numbers of a tensor are; None where that is not known, as for texts."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nan: int | None = None
    """How many elements are NaN."""
    inf: int | None = None
    """How many elements are infinite."""
    norm: float | None = None
    """The square root of the sum of the squares of the finite elements."""


@dataclass(frozen=True, kw_only=True)
class CheckpointValues:
    """What the numbers in a checkpoint are."""

    path: str
    tensors: tuple[TensorValues, ...]
    """By name."""

    @property
    def has_nan(self) -> bool:
        """Whether a tensor has NaN. Infinity is often meant: masks have it."""
        return any(tensor.nan for tensor in self.tensors)

    @property
    def norm(self) -> float | None:
        """Of all floating-point numbers together; None without any, or if it is too large. The integers of random
        states would outweigh the rest."""
        real = [tensor.norm for tensor in self.tensors if tensor.dtype.startswith(("float", "bfloat", "complex"))]
        known = [norm for norm in real if norm is not None]
        return _finite(math.hypot(*known)) if known and len(known) == len(real) else None

    @property
    def summary(self) -> str:
        """One line: the first tensor with NaN or infinity, the types, the norm."""
        known = [tensor for tensor in self.tensors if tensor.nan is not None]
        odd = [tensor for tensor in known if tensor.nan or tensor.inf]
        verdict = "all finite" if known else "no numbers"
        if odd:
            counts = ((odd[0].nan, "NaN"), (odd[0].inf, "infinite"))
            found = " and ".join(f"{count:,} {what}" for count, what in counts if count)
            first = f"first {odd[0].name!r:.200}: {found} of {math.prod(odd[0].shape):,}"
            verdict = f"NaN or infinity in {len(odd):,} of {len(known):,} tensors, {first}"
        types = Counter(tensor.dtype for tensor in self.tensors).most_common()
        parts = [verdict, ", ".join(f"{count:,} {dtype}" for dtype, count in types) or "no tensors"]
        if left := len(self.tensors) - len(known):
            parts.append(f"{left:,} without numbers")
        if self.norm is not None:
            parts.append(f"norm {self.norm:.6g}")
        return "; ".join(parts)


class _Stored(NamedTuple):
    """A tensor in a checkpoint, or one of the parts that it is stored in."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    blocks: Iterable[Numbers | None]
    """Its numbers, in one dimension; None for a block whose type is not read."""


def values_of(
    path: str | os.PathLike[str], *, on_progress: Progress | None = None, filesystem: Filesystem | None = None
) -> CheckpointValues:
    """Read all numbers in a checkpoint that was found in a logdir, where others may have put it.

    Args:
        path: the prefix of a bundle, or the directory of a sealed checkpoint.
        on_progress: called with (bytes done, bytes in all).
        filesystem: reads the files of a bundle. Default: by the path's scheme.

    Raises:
        DamagedCheckpointError: if its files are not what they should be; says which and why.
        UnreadableCheckpointError: if the file system refuses it, or its numbers are in no file that is read here.
    """
    name = os.fspath(path)
    local = local_path(name)
    is_bundle = local is None or not os.path.isdir(local)
    tensors = _of_bundle(name, filesystem, on_progress) if is_bundle else _of_sealed(local or name, on_progress)
    found: dict[str, tuple[_Stored, _Sums]] = {}
    for part in tensors:
        if len(part.name) > MAX_NAME:
            raise DamagedCheckpointError(
                f"{name}: the name of a tensor, {part.name!r:.80}, is longer than {MAX_NAME:,} characters"
            )
        _, sums = found.setdefault(part.name, (part, _Sums()))
        if len(found) > MAX_TENSORS:
            raise DamagedCheckpointError(f"{name}: it has more than {MAX_TENSORS:,} tensors")
        for block in part.blocks:
            sums.add(block)
    by_name = sorted(found, key=_name_order)
    return CheckpointValues(path=name, tensors=tuple(found[each][1].values(found[each][0]) for each in by_name))


def _name_order(name: str) -> list[tuple[int, str]]:
    """Return the sort key of a name: ``layer2`` comes before ``layer10``."""
    found = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part) for part in found]


class _Sums:
    """What is known of some numbers; `add` takes them block by block."""

    def __init__(self) -> None:
        self._is_known = True
        self._nan = self._inf = 0
        self._squares = 0.0

    def add(self, numbers: Numbers | None) -> None:
        import numpy as np

        if numbers is None:
            self._is_known = False
            return
        wide = numbers.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = float(wide @ wide)
            if not math.isfinite(squares):
                self._nan += int(np.isnan(wide).sum())
                self._inf += int(np.isinf(wide).sum())
                wide = wide[np.isfinite(wide)]
                squares = float(wide @ wide)
        self._squares += squares

    def values(self, tensor: _Stored) -> TensorValues:
        name, dtype, shape, _ = tensor
        if not self._is_known:
            return TensorValues(name=name, dtype=dtype, shape=shape)
        norm = _finite(math.sqrt(self._squares))
        return TensorValues(name=name, dtype=dtype, shape=shape, nan=self._nan, inf=self._inf, norm=norm)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _decoded(dtype: str, data: bytes, *, big_endian: bool = False) -> Numbers | None:
    """Return the numbers in bytes as a type that NumPy has: ``bfloat16`` as float32, a complex one as two. None for a
    type that is not read."""
    import numpy as np

    name = _STORED_AS.get(dtype, dtype)
    order: Literal["<", ">"] = ">" if big_endian else "<"
    if name == "bfloat16":
        wide: Numbers = np.frombuffer(data, f"{order}u2").astype(np.uint32) << 16
        return wide.view(np.float32)
    if name not in _NUMBERS:
        return None
    return np.frombuffer(data, np.dtype(name).newbyteorder(order)).astype(name, copy=False)


def _of_bundle(prefix: str, filesystem: Filesystem | None, on_progress: Progress | None) -> Iterator[_Stored]:
    with bundle.opened(prefix, filesystem) as (index, shards):
        meter = Meter(on_progress, sum(entry.size for _, entry in shards.stored()))
        whole = {name: entry.shape for name, entry in index.entries.items() if entry.sliced}
        for name, entry in shards.stored():

            def blocks(name: str = name, entry: bundle.TensorEntry = entry) -> Iterator[Numbers | None]:
                if _decoded(entry.dtype, b"") is None:
                    yield None
                    return
                for data in shards.blocks(name, entry, _BLOCK_BYTES):
                    meter.add(len(data))
                    yield _decoded(entry.dtype, data, big_endian=index.big_endian)

            partition = _PARTITION.fullmatch(name)
            label = name if partition is None else partition["name"]
            yield _Stored(label, entry.dtype, whole.get(label, entry.shape), blocks())


def _of_sealed(directory: str, on_progress: Progress | None) -> Iterator[_Stored]:
    files = SealedFiles(directory, read_manifest(directory))
    meter = Meter(on_progress, files.manifest.bytes)
    names = [file.path for file in files.manifest.files]
    arrays = [name for name in names if name.endswith(".safetensors")]
    tree = read_structure(files) if STRUCTURE in names else None
    if not arrays and (tree is None or tree.names):
        raise UnreadableCheckpointError(
            f"{directory}: its numbers are not read, they are in no file of safetensors. Load it with its framework."
        )
    for name in arrays:
        yield from _of_safetensors(files, name, meter)
    if tree is not None:
        yield from _of_python(tree.tree, "")


def _of_safetensors(files: SealedFiles, name: str, meter: Meter) -> Iterator[_Stored]:
    """Yield the arrays in a file; of JAX's sharded ones the pieces in it."""
    arrays = safetensors_file.arrays(files, name)
    start = files.size(name) - sum(array.bytes for array in arrays)
    for array in arrays:
        label, dtype, shape = array.name, safetensors_file.DTYPES[array.dtype], array.shape
        if name.startswith(f"{jax_files.FOLDER}/"):
            try:
                label, _, _, shape, dtype = jax_files.piece_of(label)
            except ValueError as error:
                raise DamagedCheckpointError(f"{files.path(name)}: {error}") from error
        yield _Stored(label, dtype, shape, _blocks(files, name, start, array.bytes, dtype, meter))
        start += array.bytes


def _blocks(files: SealedFiles, name: str, start: int, size: int, dtype: str, meter: Meter) -> Iterator[Numbers | None]:
    with files.open(name) as file:
        for offset in range(start, start + size, _BLOCK_BYTES):
            length = min(_BLOCK_BYTES, start + size - offset)
            data = file.read_at(offset, length)
            if len(data) < length:
                raise DamagedCheckpointError(f"{file.path}: it ends {length - len(data):,} bytes early")
            meter.add(length)
            yield _decoded(dtype, data)


def _of_python(value: Any, path: str) -> Iterator[_Stored]:
    """Yield the floats in a state tree; a list of them is one tensor."""
    import numpy as np

    is_list = isinstance(value, (list, tuple)) and value and all(type(item) is float for item in value)
    if type(value) is float or is_list:
        numbers = np.array(value, np.float64)
        yield _Stored(path, "float64", numbers.shape, [numbers.reshape(-1)])
    elif isinstance(value, (dict, list, tuple)) and not isinstance(value, Reference):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _of_python(item, f"{path}/{key}" if path else str(key))
