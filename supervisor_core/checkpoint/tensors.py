"""`Tensor`: the numbers of one tensor in a checkpoint, read block by block, without the framework that wrote it.

A tensor lies in one part or in several, each somewhere in a file. A `Block` is a range of its rows that fits into
memory; `Tensor.read` returns the same numbers for it however the tensor is split. So two checkpoints can be compared
that different numbers of processes have written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from supervisor_core.errors import DamagedCheckpointError

if TYPE_CHECKING:
    import numpy as np

ReadAt = Callable[[int, int], bytes]
"""Returns bytes of a file from an offset; fewer only where the file ends."""

BLOCK_NUMBERS = 1 << 18
"""Of a block: 1 MiB of float32, and what is computed of it stays in the processor's cache."""
MAX_SPAN_BYTES = 256 << 20
"""Of a tensor that is stored in another order than that of its dimensions, and of what lies between its numbers: it is
read at once."""
MAX_TENSORS = 250_000
"""Of a checkpoint."""
MAX_NAME = 4096
"""Characters of a tensor's name."""

WIDTHS = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""The types that are read, as NumPy and ml_dtypes call them -> bytes of a number."""

_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, (0x7F, 0xFF)),
    "float8_e4m3fnuz": (4, 3, 8, (0x80,)),
    "float8_e5m2fnuz": (5, 2, 16, (0x80,)),
    "float8_e8m0fnu": (8, 0, 127, (0xFF,)),
}
"""Bits of exponent and fraction, bias, and the bytes that are NaN. None of these types has infinity."""

if TYPE_CHECKING:
    Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Block(NamedTuple):
    """Rows of a tensor: one index of each of the first dimensions, a range of the next, all of the others."""

    at: tuple[int, ...]
    begin: int
    end: int


class TensorPart(NamedTuple):
    """A part of a tensor in a file."""

    first: tuple[int, ...]
    """Its first index in each dimension."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Numbers from one index to the next, of each dimension."""
    start: int
    """The byte of its first number."""
    read_at: ReadAt


class Tensor(NamedTuple):
    """A tensor in a checkpoint.

    Example:
        >>> part = part_of((2,), 0, lambda offset, length: bytes([0, 0, 128, 63, 0, 0, 0, 64]))
        >>> tensor = tensor_of("w", "float32", (2,), [part], "model.ckpt-1")
        >>> [tensor.read(block).tolist() for block in tensor.blocks()]
        [[1.0, 2.0]]
    """

    name: str
    dtype: str
    """As ``bfloat16``."""
    shape: tuple[int, ...]
    read: Callable[[Block], Numbers] | None
    """Returns the numbers of a block in C order, in one dimension, as a type that NumPy has: those of `bfloat16` and
    the types of 8 bits as float32, a complex one as two. Raises `DamagedCheckpointError`. None where they are no
    numbers, as texts, or of a type that is not known."""
    at_once: bool = False
    """Whether all is read as one block."""

    @property
    def numbers(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes that are read of it."""
        return 0 if self.read is None else self.numbers * WIDTHS.get(self.dtype, 1)

    def bytes_of(self, block: Block) -> int:
        """Return the bytes that are read of it for a block."""
        rows = (block.end - block.begin) * math.prod(self.shape[len(block.at) + 1 :])
        return rows * WIDTHS.get(self.dtype, 1)

    def blocks(self, most: int = BLOCK_NUMBERS) -> Iterator[Block]:
        """Yield the blocks that it is made of, in order; none of more numbers than ``most``, unless `at_once`."""
        if not self.numbers:
            return
        if not self.shape:
            yield Block((), 0, 1)
            return
        most = self.numbers if self.at_once else most
        rows_of = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        axis = next(axis for axis, size in enumerate(rows_of) if size <= most)
        step = max(1, most // rows_of[axis])
        for index in _indices(self.shape[:axis]):
            for begin in range(0, self.shape[axis], step):
                yield Block(index, begin, min(begin + step, self.shape[axis]))


def _indices(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of a shape in C order; `itertools.product` would first make a tuple of each range."""
    if not shape:
        yield ()
        return
    for index in _indices(shape[:-1]):
        for last in range(shape[-1]):
            yield (*index, last)


def part_of(shape: tuple[int, ...], start: int, read_at: ReadAt, first: tuple[int, ...] | None = None) -> TensorPart:
    """Return a part whose numbers follow one another in C order.

    Args:
        shape: its shape. start: the byte of its first number. read_at: reads its file.
        first: its first index in each dimension. Default: zeros.
    """
    return TensorPart(first or (0,) * len(shape), shape, _dense(shape), start, read_at)


def tensor_of(
    name: str, dtype: str, shape: tuple[int, ...], parts: list[TensorPart], where: str, *, big_endian: bool = False
) -> Tensor:
    """Return a tensor of parts.

    Args:
        name: its name. dtype: its type; its numbers are not read if it is none of `WIDTHS`. shape: its shape.
        parts: what it is made of.
        where: its checkpoint, for errors.
        big_endian: the order of the bytes of a number.

    Raises:
        DamagedCheckpointError: if the name is longer than `MAX_NAME`.
    """
    if len(name) > MAX_NAME:
        raise DamagedCheckpointError(
            f"{where}: the name of a tensor, {name!r:.80}, is longer than {MAX_NAME:,} characters"
        )
    if dtype not in WIDTHS:
        return Tensor(name, dtype, shape, None)
    is_dense = all(part.strides == _dense(part.shape) for part in parts)
    most = max((math.prod(shape), *map(span_of, parts)))
    if not is_dense and most * WIDTHS[dtype] > MAX_SPAN_BYTES:
        return Tensor(name, dtype, shape, None)

    def read(block: Block) -> Numbers:
        try:
            return _read(shape, parts, block, dtype, big_endian)
        except ValueError as error:
            raise DamagedCheckpointError(f"{where}: the tensor {name!r:.200} {error}") from error

    return Tensor(name, dtype, shape, read, at_once=not is_dense)


def decoded(dtype: str, data: bytes, *, big_endian: bool = False) -> Numbers:
    """Return numbers of one of the `WIDTHS` as `Tensor.read` does.

    Example:
        >>> decoded("bfloat16", bytes([128, 63])).tolist()
        [1.0]
    """
    import numpy as np

    order: Literal["<", ">"] = ">" if big_endian else "<"
    if dtype == "bfloat16":
        wide: Numbers = np.frombuffer(data, f"{order}u2").astype(np.uint32) << 16
        return wide.view(np.float32)
    if dtype == "float8_e5m2":
        return (np.frombuffer(data, np.uint8).astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype in _FLOAT8:
        found: Numbers = _table(dtype)[np.frombuffer(data, np.uint8)]
        return found
    if dtype == "bool":
        flags: Numbers = np.frombuffer(data, np.uint8) != 0
        return flags
    kind = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return np.frombuffer(data, np.dtype(kind).newbyteorder(order)).astype(kind, copy=False)


@cache
def _table(dtype: str) -> Numbers:
    """Return the numbers that the 256 bytes of a type stand for."""
    import numpy as np

    exponent_bits, bits, bias, nans = _FLOAT8[dtype]
    found = np.empty(256, np.float32)
    for byte in range(256):
        is_negative = byte >> 7 and exponent_bits + bits < 8
        exponent, fraction = (byte >> bits) & ((1 << exponent_bits) - 1), byte & ((1 << bits) - 1)
        if exponent or not bits:
            value = math.ldexp(1 + fraction / (1 << bits), exponent - bias)
        else:
            value = math.ldexp(fraction / (1 << bits), 1 - bias)
        found[byte] = math.nan if byte in nans else -value if is_negative else value
    return found


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def span_of(part: TensorPart) -> int:
    """Return how many numbers of its file a part reaches over, those between its own included."""
    return 1 + sum((length - 1) * stride for length, stride in zip(part.shape, part.strides, strict=True))


def _read(shape: tuple[int, ...], parts: list[TensorPart], block: Block, dtype: str, big_endian: bool) -> Numbers:
    """Return the numbers of a block, put together from the parts that have some of them.

    Raises:
        ValueError: a clause, if a file has fewer bytes than it should.
    """
    import numpy as np

    if len(parts) == 1 and parts[0].shape == shape:
        return _of_part(parts[0], block, dtype, big_endian)
    axis, count = len(block.at), 2 if dtype.startswith("complex") else 1
    whole: Numbers | None = None
    missing = (block.end - block.begin) * math.prod(shape[axis + 1 :])
    for part in parts:
        inside = zip(block.at, part.first, part.shape, strict=False)
        if not all(first <= index < first + length for index, first, length in inside):
            continue
        begin = max(block.begin, part.first[axis])
        end = min(block.end, part.first[axis] + part.shape[axis])
        if begin >= end or not math.prod(part.shape):
            continue
        index = tuple(index - first for index, first in zip(block.at, part.first, strict=False))
        found = _of_part(part, Block(index, begin - part.first[axis], end - part.first[axis]), dtype, big_endian)
        if whole is None:
            whole = np.zeros((block.end - block.begin, *shape[axis + 1 :], count), found.dtype)
        inner = zip(part.first[axis + 1 :], part.shape[axis + 1 :], strict=True)
        place = (slice(begin - block.begin, end - block.begin), *(slice(at, at + length) for at, length in inner))
        whole[place] = found.reshape(end - begin, *part.shape[axis + 1 :], count)
        missing -= len(found) // count
    if whole is None or missing > 0:
        raise ValueError("is not all there")
    return whole.reshape(-1)


def _of_part(part: TensorPart, block: Block, dtype: str, big_endian: bool) -> Numbers:
    """Return the numbers of a block of a part, whose indices count from its own first ones."""
    import numpy as np

    axis, width = len(block.at), WIDTHS[dtype]
    shape = (block.end - block.begin, *part.shape[axis + 1 :]) if part.shape else ()
    strides = part.strides[axis:]
    offset = sum(map(int.__mul__, (*block.at, block.begin), part.strides))
    span = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    data = part.read_at(part.start + offset * width, span * width)
    if len(data) < span * width:
        raise ValueError(f"ends {span * width - len(data):,} bytes early")
    found = decoded(dtype, data, big_endian=big_endian)
    if strides == _dense(part.shape)[axis:]:
        return found
    found = found.reshape(span, -1)
    steps = (*(stride * found.strides[0] for stride in strides), found.strides[1])
    return np.lib.stride_tricks.as_strided(found, (*shape, found.shape[1]), steps, writeable=False).reshape(-1)
