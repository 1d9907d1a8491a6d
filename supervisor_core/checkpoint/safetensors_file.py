"""Files of safetensors: arrays by name, written and read in one pass each. Of what is read nothing is trusted.

Byte by byte (source: https://github.com/huggingface/safetensors): the length of the header (uint64, little-endian); the
header, a JSON object ``{name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}``, which may have
texts under ``__metadata__``; then the arrays' bytes, one after the other.

The library maps the file into memory: whoever cuts it meanwhile ends the process. Here each array is read into memory
of its own, and what was read is compared with the manifest's checksum. When it is written, checksum and NaN are found
while the bytes are in the processor's cache: the library's file would be read again for each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter, FilePart
from supervisor_core.checkpoint.manifest import SealedFile
from supervisor_core.checkpoint.sealed_files import OpenFile, SealedFiles
from supervisor_core.checkpoint.tree_file import parse_json

MAX_HEADER_BYTES = 64 << 20
MAX_DIMENSIONS = 64
_MAX_ELEMENTS = 1 << 50
"""Of an array, without its lengths of 0: where it has one, its other lengths are still multiplied."""

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
"""The types of numbers, as NumPy, ml_dtypes and PyTorch call them."""

_WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "F16": 2, "BF16": 2,
    "F32": 4, "F64": 8, "C64": 8, **{name: 1 for name in DTYPES if name.startswith("F8_")},
}  # fmt: skip
"""Bytes of a number of each type."""

_ALIGNMENT = 8
"""The arrays begin at a multiple of it, for readers that map the file."""


class Array(NamedTuple):
    """An array, as the header has it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


Allocate = Callable[[Array], tuple[memoryview, Callable[[], Any]]]
"""Returns memory for an array's bytes, and what makes an array of it when they are there. Raises KeyError for a type
that the framework does not have."""


class ArrayBytes(NamedTuple):
    """An array to be written."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    pieces: Callable[[], Iterator[Any]]
    """Yields its bytes, little-endian and in C order, as one-dimensional arrays of ``numpy.uint8``."""


class Written(NamedTuple):
    """What is known of files after they were written."""

    with_nan: str | None = None
    """The name of an array that has NaN; None where none has."""
    files: tuple[SealedFile, ...] = ()
    """Files with their checksums, computed from what was in memory."""


def write(path: str, arrays: Mapping[str, ArrayBytes], blocks: BlockWriter = IN_THREAD) -> Written:
    """Write arrays, by name, into a new file; sync nothing.

    Args:
        blocks: what writes the bytes.

    Raises:
        OSError: if it cannot be written.
    """
    order = sorted(arrays, key=lambda name: (-_WIDTHS[arrays[name].dtype], name))  # so that each is aligned
    header: dict[str, Any] = {}
    position = 0
    for name in order:
        dtype, shape, size, _ = arrays[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    begin = len(text).to_bytes(8, "little") + text
    names: list[str] = []

    def parts() -> Iterator[FilePart]:
        yield FilePart(begin)
        for name in order:
            for piece in arrays[name].pieces():
                names.append(name)
                yield FilePart(piece, DTYPES[arrays[name].dtype])

    with open(path, "xb", buffering=0) as file:
        done = blocks.write(file.fileno(), parts(), size=len(begin) + position, is_one=True)
    with_nan = None if done.with_nan is None else names[done.with_nan - 1]
    return Written(with_nan, (SealedFile(os.path.basename(path), len(begin) + position, done.crcs[-1]),))


def read(files: SealedFiles, name: str, wanted: Collection[str] | None, allocate: Allocate) -> dict[str, Any]:
    """Return the arrays in a file by name, compared with the manifest.

    Args:
        files: the checkpoint's.
        wanted: the names of the arrays that it has to have: these, and no others. None for any.

    Raises:
        DamagedCheckpointError: if it is no such file, has other arrays, or was altered; says why.
        UnreadableCheckpointError: if the file system refuses it, or this program has no such type.
    """
    made = {}
    with files.open(name) as file:
        for array in _arrays(file, wanted):
            try:
                memory, make = allocate(array)
            except KeyError as error:
                what = f"it has an array of the type {array.dtype}, which this program does not read"
                raise UnreadableCheckpointError(f"{file.path}: {what}") from error
            file.read_next(memory)
            made[array.name] = make
        file.finish()
    try:
        return {name: make() for name, make in made.items()}
    except (ValueError, RuntimeError) as error:  # numpy before 2 has 32 dimensions at most
        raise UnreadableCheckpointError(f"{file.path}: it has an array that this program cannot make") from error


def check(files: SealedFiles, name: str, wanted: Collection[str] | None = None) -> None:
    """Do nothing for a file that `read` reads, as far as its header says.

    Args:
        files: the checkpoint's.
        wanted: see `read`; None for any.

    Raises:
        DamagedCheckpointError, UnreadableCheckpointError: see `read`.
    """
    with files.open(name) as file:
        _arrays(file, wanted)


def arrays(files: SealedFiles, name: str) -> list[Array]:
    """Return the arrays in a file, as its header has them, which was not compared with the manifest yet.

    Raises:
        DamagedCheckpointError, UnreadableCheckpointError: see `read`.
    """
    with files.open(name) as file:
        return _arrays(file, None)


def _arrays(file: OpenFile, wanted: Collection[str] | None) -> list[Array]:
    """Return the arrays in the order of their bytes. Errors say nothing of the content, which was not compared yet."""
    try:
        arrays = _header(file)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DamagedCheckpointError(f"{file.path}: its header is none of safetensors") from None
    if wanted is not None and {array.name for array in arrays} != set(wanted):
        raise DamagedCheckpointError(f"{file.path}: it has other arrays than the tree")
    return arrays


def _header(file: OpenFile) -> list[Array]:
    """Return the arrays; each byte behind the header belongs to one of them.

    Raises:
        ValueError, AttributeError, KeyError, TypeError: if the header is none.
    """
    length = bytearray(8)
    if file.size < len(length):
        raise ValueError("it is too short")
    file.read_next(memoryview(length))
    size = int.from_bytes(length, "little")
    if size > min(MAX_HEADER_BYTES, file.size - len(length)):
        raise ValueError("the header is too long")
    text = bytearray(size)
    file.read_next(memoryview(text))
    found = parse_json(text)
    found.pop("__metadata__", None)
    arrays = []
    for name, item in found.items():
        begin, end = item["data_offsets"]
        shape = tuple(item["shape"])
        if len(shape) > MAX_DIMENSIONS or not all(
            type(number) is int and number >= 0 for number in (*shape, begin, end)
        ):
            raise ValueError("a shape is none")
        if _product(shape, end - begin) * _WIDTHS[item["dtype"]] != end - begin:
            raise ValueError("an array has not the bytes of its shape")
        arrays.append((begin, end, Array(name, item["dtype"], shape, end - begin)))
    arrays.sort()
    position = 0
    for begin, end, _ in arrays:
        if begin != position:
            raise ValueError("an array does not follow the one before it")
        position = end
    if position != file.size - len(length) - size:
        raise ValueError("the arrays are not all of the file")
    return [array for _, _, array in arrays]


def _product(shape: tuple[int, ...], most: int) -> int:
    """Return the number of elements of a shape; of one that has too many, one that is too large."""
    count = 1
    for length in filter(None, shape):
        count *= length
        if count > (_MAX_ELEMENTS if 0 in shape else most):
            return most + 1
    return 0 if 0 in shape else count
