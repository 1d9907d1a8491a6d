"""The numbers of a tensor are read block by block, of any type, and however it is split."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from supervisor_core.checkpoint.tensors import WIDTHS, Block, TensorPart, part_of, tensor_of
from supervisor_core.checkpoint.tensors import decoded as decode
from supervisor_core.errors import DamagedCheckpointError

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")


def whole(tensor: Any, most: int) -> Any:
    """All numbers of a tensor, read in blocks of at most `most`."""
    blocks = list(tensor.blocks(most))
    found = [tensor.read(block) for block in blocks]
    width = 2 if tensor.dtype.startswith("complex") else 1
    assert all(len(numbers) <= most * width or tensor.at_once for numbers in found)
    assert sum(map(tensor.bytes_of, blocks)) == tensor.bytes
    return np.concatenate(found) if found else np.zeros(0)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("is_big", [False, True])
def test_every_type(dtype: str, is_big: bool) -> None:
    """Every bit pattern of the narrow types, and some of the wide ones, is the number that NumPy or ml_dtypes has."""
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    width = kind.itemsize
    assert width == WIDTHS[dtype]
    raw = np.arange(256, dtype=np.uint8) if width == 1 else np.random.default_rng(1).bytes(width * 4096)
    bits = np.frombuffer(bytes(raw), np.uint8)
    if dtype == "bool":
        bits = bits % 2
    expected = bits.view(kind)
    if kind.kind == "c":
        expected = expected.view(expected.real.dtype)
    elif not hasattr(np, dtype):
        expected = expected.astype(np.float32)
    part = 1 if width == 1 else width // (2 if kind.kind == "c" else 1)
    data = bits.reshape(-1, part)[:, ::-1] if is_big else bits
    found = decode(dtype, data.tobytes(), big_endian=is_big)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(), (7,), (0, 3), (1, 1, 11), (2, 3, 5), (4, 1, 9), (3, 40)])
def test_blocks_are_all_of_a_tensor_in_order(shape: tuple[int, ...]) -> None:
    """Whatever the size of a block, they are the tensor, in C order."""
    numbers = np.arange(math.prod(shape), dtype="<f4")
    data = b"head" + numbers.tobytes()
    read_at = lambda offset, length: data[offset : offset + length]  # noqa: E731
    tensor = tensor_of("w", "float32", shape, [part_of(shape, 4, read_at)], "here")
    for most in (1, 4, 10, 1000):
        np.testing.assert_array_equal(whole(tensor, most), numbers)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
def test_parts_in_any_layout(dtype: str) -> None:
    """A tensor of three dimensions that is cut along all of them, its parts in any order, and one of them transposed in
    its file, is the whole one."""
    shape, rng = (5, 6, 7), np.random.default_rng(2)
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    array = rng.integers(-50, 50, shape).astype(kind)
    parts = []
    cuts = [[(0, 2), (2, 5)], [(0, 6)], [(0, 3), (3, 4), (4, 7)]]
    for place in list(itertools.product(*cuts))[::-1]:
        piece = array[tuple(slice(*cut) for cut in place)]
        is_turned = not parts
        data = b"12345678" + (piece.transpose(2, 0, 1) if is_turned else piece).tobytes()
        turned = (1 * piece.shape[1], 1, piece.shape[0] * piece.shape[1])
        dense = (piece.shape[1] * piece.shape[2], piece.shape[2], 1)
        parts.append(
            TensorPart(
                tuple(cut[0] for cut in place),
                piece.shape,
                turned if is_turned else dense,
                8,
                lambda offset, length, data=data: data[offset : offset + length],
            )
        )
    expected = array.reshape(-1)
    expected = expected.view(np.float32) if kind.kind == "c" else expected.astype(np.float32)
    tensor = tensor_of("w", dtype, shape, parts, "here")
    assert tensor.at_once
    np.testing.assert_array_equal(whole(tensor, 10), expected)
    straight = tensor_of("w", dtype, shape, parts[1:], "here")
    with pytest.raises(DamagedCheckpointError, match="here: the tensor 'w' is not all there"):
        whole(straight, 7)


def test_a_file_that_ends_early() -> None:
    """It is damage, with the tensor's name and what is missing."""
    tensor = tensor_of("w", "float32", (4,), [part_of((4,), 0, lambda offset, length: bytes(10)[offset:])], "here")
    with pytest.raises(DamagedCheckpointError, match="here: the tensor 'w' ends 6 bytes early"):
        whole(tensor, 100)


def test_what_is_not_read() -> None:
    """Types that are no numbers, and a tensor in another order than its dimensions' that does not fit into memory."""
    assert tensor_of("s", "string", (2,), [], "here").read is None
    turned = TensorPart((0, 0), (1 << 20, 1 << 10), (1, 1 << 20), 0, lambda offset, length: b"")
    assert tensor_of("w", "float32", (1 << 20, 1 << 10), [turned], "here").read is None
    for stride, is_read in ((1 << 20, True), (1 << 40, False)):  # two numbers, with what lies between them
        apart = TensorPart((0,), (2,), (stride,), 0, lambda offset, length: bytes(length))
        assert (tensor_of("w", "float32", (2,), [apart], "here").read is not None) == is_read


def test_the_first_block_of_a_shape_of_any_size() -> None:
    """A forged shape, whose bytes are a hole in a file, needs no memory for its indices."""
    tensor = tensor_of("w", "uint8", (1 << 44, 3, (1 << 18) + 1), [], "here")
    assert next(tensor.blocks()) == Block((0, 0), 0, 1 << 18)
