"""`values_of`: the numbers in TensorFlow's checkpoints and in ours."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint import values as values_module
from supervisor_core.checkpoint.bundle import verify
from supervisor_core.checkpoint.jax_files import Piece
from supervisor_core.checkpoint.manifest import Manifest, seal
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.values import CheckpointValues, values_of
from supervisor_core.storage.local import LOCAL
from supervisor_core.training.tree import NumpyArrays, copy_tree, write_tree

Arrays = Mapping[str, Any]
Make = Callable[[Path, Arrays], Path]


def as_bundle(writer: ModuleType) -> Make:
    """Returns what writes arrays as a bundle of TensorFlow's, in two data files."""

    def make(path: Path, arrays: Arrays) -> Path:
        tensors = {
            name: writer.Tensor(array.dtype.name, array.shape, array.tobytes(), number % 2)
            for number, (name, array) in enumerate(arrays.items())
        }
        writer.write_bundle(path, tensors)
        return path

    return make


def as_sealed(path: Path, arrays: Arrays) -> Path:
    """Write arrays as a sealed checkpoint."""
    path.mkdir(parents=True)
    tree = {"objects": dict(arrays), "random": {}}
    kinds = (NumpyArrays(),)
    write_tree(str(path), copy_tree(tree, kinds), kinds)
    seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
    return path


def as_safetensors(path: Path, arrays: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write arrays as a file of safetensors, byte by byte."""
    header, body = {}, b""
    for name, (kind, shape, data) in arrays.items():
        begin, body = len(body), body + data
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def as_trainer(path: Path, arrays: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> Path:
    """Write a checkpoint as Transformers' Trainer does, with weights alone."""
    path.mkdir()
    (path / "trainer_state.json").write_text('{"global_step": 1}')
    as_safetensors(path / "model.safetensors", arrays)
    seal(str(path), Manifest(format="transformers", step=1), LOCAL)
    return path


@pytest.fixture(params=["bundle", "sealed"])
def make(request: pytest.FixtureRequest, writer: ModuleType) -> Make:
    """Writes arrays in one of the formats; returns what to call the checkpoint."""
    return {"bundle": as_bundle(writer), "sealed": as_sealed}[request.param]


def by_name(values: CheckpointValues) -> dict[str, Any]:
    """The tensors, by the last part of their names."""
    return {tensor.name.rpartition("/")[2]: tensor for tensor in values.tensors}


def test_numbers_are_those_of_numpy(make: Make, tmp_path: Path) -> None:
    """The norm, in blocks and without: as NumPy computes it of the whole array."""
    rng = np.random.default_rng(0)
    arrays = {"a": rng.standard_normal((700, 600)).astype("f4"), "b": np.arange(-3, 9, dtype="i4"), "c": np.float32(2)}
    arrays["d"] = np.zeros((0, 4), "f4")
    told: list[tuple[int, int]] = []
    path = make(tmp_path / "ckpt", {name: np.asarray(array) for name, array in arrays.items()})
    values = values_of(path, on_progress=lambda done, total: told.append((done, total)))
    found = by_name(values)
    assert list(found) == ["a", "b", "c", "d"]
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (np.asarray(array).dtype.name, np.shape(array))
        assert (found[name].nan, found[name].inf) == (0, 0)
        assert found[name].norm == pytest.approx(float(np.linalg.norm(np.float64(array))), rel=1e-12)
    assert values.summary == f"all finite; 3 float32, 1 int32; norm {np.hypot(found['a'].norm, 2):.6g}"
    assert not values.has_nan
    assert len(told) > 2 and [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] >= 4 * (700 * 600 + 12 + 1)


def test_the_first_tensor_that_is_not_finite(make: Make, tmp_path: Path) -> None:
    """It is named, with how many of its numbers are NaN or infinite; what is finite has its norm all the same."""
    arrays = {f"layer{number}": np.full(4, 3.0, "f4") for number in range(12)}
    arrays["layer2"][1] = np.nan
    arrays["layer10"][:3] = np.nan, np.inf, -np.inf
    values = values_of(make(tmp_path / "ckpt", arrays))
    assert values.has_nan
    verdict = values.summary.split(";")[0]
    assert verdict.startswith("NaN or infinity in 2 of 12 tensors, first ") and "layer2': 1 NaN of 4" in verdict
    found = by_name(values)
    assert (found["layer10"].nan, found["layer10"].inf, found["layer10"].norm) == (1, 2, 3.0)
    assert not values_of(make(tmp_path / "masks", {"mask": np.full(3, -np.inf, "f4")})).has_nan


def test_narrow_and_wide_types(tmp_path: Path) -> None:
    """bfloat16 and complex numbers are read."""
    arrays = {
        "half": ("BF16", (2,), bytes([128, 63, 0, 64])),
        "pair": ("C64", (1,), np.complex64(3 + 4j).tobytes()),
    }
    found = by_name(values_of(as_trainer(tmp_path / "checkpoint-1", arrays)))
    assert (found["half"].norm, found["pair"].norm) == (pytest.approx(5**0.5), 5.0)


def test_partitioned_variables_and_texts(tmp_path: Path, writer: ModuleType) -> None:
    """TensorFlow's parts of a variable count as one tensor; texts are counted, and nothing is said of them."""
    part = lambda value: writer.Tensor("float32", (2,), struct.pack("<2f", value, value))  # noqa: E731
    path = tmp_path / "model.ckpt-1"
    tensors = {"\0w\0\1\1\x80\x82": part(1.0), "\0w\0\1\1\x82\x82": part(2.0), "text": writer.strings(b"a", b"bc")}
    writer.write_bundle(path, tensors)
    values = values_of(path)
    assert {tensor.name: tensor.norm for tensor in values.tensors} == {"text": None, "w": pytest.approx(10**0.5)}
    assert values.summary.startswith("all finite; 1 string, 1 float32; 1 without numbers; norm ")


def test_pieces_of_several_processes(tmp_path: Path) -> None:
    """An array of JAX that several processes have written in pieces is one tensor."""
    array = np.random.default_rng(3).standard_normal((8, 6)).astype("f4")
    path = tmp_path / "ckpt-1"
    (path / "sharded").mkdir(parents=True)
    for number, (row, column) in enumerate((row, column) for row in (0, 4) for column in (0, 3)):
        data = np.ascontiguousarray(array[row : row + 4, column : column + 3]).tobytes()
        name = Piece("objects/w", (row, column), (4, 3), array.shape, "float32").name
        as_safetensors(path / "sharded" / f"{number}.safetensors", {name: ("U8", (len(data),), data)})
    tree = {"dict": [["objects", {"dict": [["w", {"array": ["sharded", "objects/w"]}]]}], ["random", {"dict": []}]]}
    (path / "tree.json").write_text(json.dumps(tree))
    seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
    (found,) = values_of(path).tensors
    assert (found.name, found.shape, found.dtype) == ("objects/w", (8, 6), "float32")
    assert found.norm == pytest.approx(float(np.linalg.norm(np.float64(array))))


MEMORY = """
import resource, sys
from supervisor_core.checkpoint.values import values_of

values_of(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
values_of(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
def test_memory_does_not_grow_with_a_checkpoint(tmp_path: Path) -> None:
    """One tensor of 256 MB, whose bytes are holes, takes no more than one of 1 MB, but for 8 MB."""
    paths = []
    for size in (1 << 20, 256 << 20):
        path = as_trainer(tmp_path / f"checkpoint-{size}", {})
        header = json.dumps({"w": {"dtype": "F32", "shape": [64, size // 256], "data_offsets": [0, size]}}).encode()
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        os.truncate(path / "model.safetensors", 8 + len(header) + size)
        seal(str(path), Manifest(format="transformers", step=1), LOCAL)
        paths.append(str(path))
    told = subprocess.run([sys.executable, "-c", MEMORY, *paths], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 8 << 10


def test_floats_in_a_tree(tmp_path: Path) -> None:
    """A state of Python's floats alone has numbers, too; a list of them counts as one tensor."""
    path = as_sealed(tmp_path / "ckpt-1", {"w": 3.0, "history": [4.0, float("inf")], "steps": 7, "name": "x"})
    values = values_of(path)
    assert values.summary.startswith("NaN or infinity in 1 of 2 tensors, first 'objects/history': 1 infinite of 2;")
    assert (values.norm, values.has_nan) == (5.0, False)


def test_what_is_not_read(tmp_path: Path) -> None:
    """Files of frameworks: one line says so."""
    path = tmp_path / "ckpt-1"
    path.mkdir()
    tree = '{"dict":[["objects",{"dict":[["w",{"array":["lightning","w"]}]]}],["random",{"dict":[]}]]}'
    (path / "tree.json").write_text(tree)
    (path / "lightning.ckpt").write_bytes(b"x")
    seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
    with pytest.raises(UnreadableCheckpointError, match="in no file of safetensors"):
        values_of(path)


def test_a_link_tells_nothing_of_another_file(tmp_path: Path, writer: ModuleType) -> None:
    """Whoever can write into a logdir cannot have the values of a file computed that only the reader may read."""
    secret = tmp_path / "secret"
    secret.write_bytes(np.float32([1, 2]).tobytes())
    path = as_bundle(writer)(tmp_path / "run" / "model.ckpt-1", {"w": np.float32([3, 4])})
    data = Path(f"{path}.data-00000-of-00001")
    data.unlink()
    data.symlink_to(secret)
    with pytest.raises(UnreadableCheckpointError, match=r"is a symbolic link: the values .* are not read"):
        values_of(path)
    sealed = as_sealed(tmp_path / "ckpt-1", {"w": np.float32([3, 4])})
    size = (sealed / "numpy.safetensors").stat().st_size
    secret.write_bytes(bytes(size))
    (sealed / "numpy.safetensors").unlink()
    (sealed / "numpy.safetensors").symlink_to(secret)
    with pytest.raises(DamagedCheckpointError, match="link"):
        values_of(sealed)


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ((0, 0), "it has 400 bytes, and its tensors 800 together"),
        ((0, -8), "is said to have 400 bytes at -8"),
        ((0, (1 << 63) - 1), "before the end of 'v'"),
    ],
)
def test_a_forged_bundle(tmp_path: Path, writer: ModuleType, offsets: tuple[int, int], text: str) -> None:
    """A file is not read once for each of many tensors that have the same bytes, nor outside of it."""
    path = as_bundle(writer)(tmp_path / "model.ckpt-1", {"w": np.ones(100, "f4")})
    items = [(b"", message_class("BundleHeader")(num_shards=1).SerializeToString())]
    for name, offset in zip((b"w", b"v"), offsets, strict=True):
        entry = message_class("BundleEntry")(dtype=1, offset=offset, size=400)
        entry.shape.dim.add().size = 100
        items.append((name, entry.SerializeToString()))
    writer.write_table(Path(f"{path}.index"), items)
    with pytest.raises(DamagedCheckpointError, match=text):
        values_of(path)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can make another user's files")
def test_the_holes_of_a_bundle_are_not_read(tmp_path: Path, writer: ModuleType) -> None:
    """Terabytes that take no space, in another user's data file: neither verified nor read. One's own are."""
    path = as_bundle(writer)(tmp_path / "model.ckpt-1", {"w": np.ones(100, "f4")})
    data = Path(f"{path}.data-00000-of-00001")
    os.truncate(data, 8 << 40)
    assert values_of(path).norm == 10.0 and verify(path).tensors == 1
    os.chown(data, 65534, 65534)
    for read in (values_of, verify):
        with pytest.raises(DamagedCheckpointError, match=r"another user's, and of its .* bytes only .* are on disk"):
            read(path)


def test_names_and_tensors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of megabytes is damage, and so are more tensors than a checkpoint may have."""
    one = ("F32", (1,), np.float32(1).tobytes())
    with pytest.raises(DamagedCheckpointError, match=r"the name of a tensor, .* is longer than 4,096"):
        values_of(as_trainer(tmp_path / "long", {"1a" * 3000: one}))
    path = as_trainer(tmp_path / "short", {"w" * 4000: one, "v": one})
    assert values_of(path).norm == pytest.approx(2**0.5)
    monkeypatch.setattr(values_module, "MAX_TENSORS", 1)
    with pytest.raises(DamagedCheckpointError, match="it has more than 1 tensors"):
        values_of(path)
