"""Files of safetensors as they are written: the format's own library reads them, and the checksum is theirs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.base import checksum
from supervisor_core.checkpoint.safetensors_file import ArrayBytes, write
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.training.tree import NumpyArrays

KIND = NumpyArrays()
NUMBERS = np.arange(24)
ARRAYS = {
    "bytes": NUMBERS[:5].astype("u1"),
    "booleans": NUMBERS % 2 == 0,
    "halves": NUMBERS.astype("f2").reshape(2, 3, 4),
    "a scalar": np.array(2.5, "f8"),
    "none": np.zeros((3, 0), "f4"),
    "of another order": NUMBERS.astype("f4").reshape(4, 6).T,
    "big-endian": NUMBERS.astype(">i4"),
    "complex": (NUMBERS + 1j).astype("c8"),
    "signed": -NUMBERS.astype("i2"),
    "more than a chunk": np.arange(200_000, dtype="u8"),
}


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    """Every type and shape, with the same numbers; and so does what reads checkpoints here."""
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed: make install has it")
    path = tmp_path / "numpy.safetensors"
    written = KIND.save(ARRAYS, str(path))
    content = path.read_bytes()
    assert written.files == (("numpy.safetensors", len(content), checksum.value(content)),)
    assert written.with_nan is None
    read = KIND.load(SealedFiles.of(str(tmp_path), path.name), ARRAYS)
    for found in (library.load_file(path), read):
        assert set(found) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype.newbyteorder("=") and found[name].shape == array.shape
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("place", [0, 199_999])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_an_array_with_nan_is_named(tmp_path: Path, dtype: str, place: int) -> None:
    """Wherever it is in the array, and whatever comes after it."""
    with_nan = np.ones(200_000, dtype)
    with_nan[place] = np.nan
    arrays = {"before": np.ones(3, dtype), "m": with_nan, "z": np.ones(3, dtype), "i": np.full(9, -1, "i4")}
    assert KIND.save(arrays, str(tmp_path / "numpy.safetensors")).with_nan == "m"


def test_a_file_system_that_takes_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a write has left over is written by the next."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:1000]))
    written = KIND.save(ARRAYS, str(tmp_path / "numpy.safetensors"))
    monkeypatch.undo()
    content = (tmp_path / "numpy.safetensors").read_bytes()
    assert written.files[0][1:] == (len(content), checksum.value(content))


def test_an_array_in_pieces(tmp_path: Path) -> None:
    """They follow each other, and the sizes of pieces need not be those of writes."""

    def pieces() -> Iterator[Any]:
        data = np.arange(100_000, dtype="<u4").view("u1")
        yield data[:4]
        yield data[4:300_000]
        yield data[300_000:]

    written = write(str(tmp_path / "f"), {"a": ArrayBytes("U32", (100_000,), 400_000, pieces)})
    content = (tmp_path / "f").read_bytes()
    assert written.files == (("f", len(content), checksum.value(content)),)
    np.testing.assert_array_equal(np.frombuffer(content[-400_000:], "<u4"), np.arange(100_000))
