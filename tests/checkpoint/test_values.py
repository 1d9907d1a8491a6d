"""`values_of` and `difference_of`: the numbers in checkpoints of every format that needs no framework."""

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

from supervisor_core.checkpoint import tensor_files
from supervisor_core.checkpoint.array_pieces import Piece
from supervisor_core.checkpoint.bundle import verify
from supervisor_core.checkpoint.manifest import Manifest, seal
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.values import CheckpointValues, TensorChange, difference_of, percent, values_of
from supervisor_core.errors import CheckpointError, DamagedCheckpointError, UnreadableCheckpointError
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


def as_file(path: Path, arrays: Arrays) -> Path:
    """Write arrays as a file of safetensors, byte by byte."""
    path = path.with_suffix(".safetensors")
    header, body = {}, b""
    for name, array in arrays.items():
        kind = {"float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8"}[array.dtype.name]
        begin, body = len(body), body + array.tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.fixture(params=["bundle", "sealed", "file"])
def make(request: pytest.FixtureRequest, writer: ModuleType) -> Make:
    """Writes arrays in one of the formats; returns what to call the checkpoint."""
    return {"bundle": as_bundle(writer), "sealed": as_sealed, "file": as_file}[request.param]


def by_name(values: CheckpointValues) -> dict[str, Any]:
    """The tensors, by the last part of their names."""
    return {tensor.name.rpartition("/")[2]: tensor for tensor in values.tensors}


def changes(before: Path, after: Path) -> dict[str, TensorChange]:
    """What changed, by the last part of the names."""
    found, _ = difference_of(before, after)
    return {change.name.rpartition("/")[2]: change for change in found.tensors}


def test_numbers_are_those_of_numpy(make: Make, tmp_path: Path) -> None:
    """Norm, minimum and maximum, in blocks and without: as NumPy computes them of the whole array."""
    rng = np.random.default_rng(0)
    arrays = {"a": rng.standard_normal((700, 600)).astype("f4"), "b": np.arange(-3, 9, dtype="i4"), "c": np.float32(2)}
    arrays["d"] = np.zeros((0, 4), "f4")
    values = values_of(make(tmp_path / "ckpt", {name: np.asarray(array) for name, array in arrays.items()}))
    found = by_name(values)
    assert list(found) == ["a", "b", "c", "d"]
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (np.asarray(array).dtype.name, np.shape(array))
        assert (found[name].nan, found[name].inf) == (0, 0)
        assert found[name].norm == pytest.approx(float(np.linalg.norm(np.float64(array))), rel=1e-12)
    assert (found["a"].min, found["a"].max) == (arrays["a"].min(), arrays["a"].max())
    assert (found["b"].min, found["b"].max) == (-3, 8)
    assert (found["d"].min, found["d"].max) == (None, None)
    assert values.summary == f"all finite; 3 float32, 1 int32; norm {np.hypot(found['a'].norm, 2):.6g}"
    assert not values.has_nan


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


def test_what_changed(make: Make, tmp_path: Path) -> None:
    """The relative change of each; what is frozen, added, missing, of another shape or not finite."""
    weights = np.random.default_rng(1).standard_normal((600, 500)).astype("f4")
    same = {"step": np.asarray(np.int64(7)), "bias": np.zeros(3, "f4"), "kind": np.ones(4, "f4")}
    before = {"w": weights, "embedding": weights[:5], "old": np.ones(2, "f4"), "nan": np.float32([np.nan, 1]), **same}
    after = {
        "w": weights * np.float32(1.25),
        "embedding": weights[:5].copy(),
        "new": np.ones(2, "f4"),
        "nan": np.float32([np.nan, 2]),
        "step": np.asarray(np.int64(9)),
        "bias": np.ones(3, "f4"),
        "kind": np.ones((2, 2), "f4"),
    }
    one, other = make(tmp_path / "one", before), make(tmp_path / "other", after)
    found = changes(one, other)
    kinds = {name: change.kind for name, change in found.items()}
    assert kinds == {
        "w": "changed", "embedding": "frozen", "old": "missing", "new": "added", "nan": "changed", "step": "changed",
        "bias": "changed", "kind": "reshaped",
    }  # fmt: skip
    assert found["w"].relative == pytest.approx(0.25, rel=1e-6)
    assert found["w"].largest == pytest.approx(0.25 * float(np.abs(weights).max()), rel=1e-6)
    assert (found["embedding"].relative, found["embedding"].largest) == (0.0, 0.0)
    assert found["step"].relative == pytest.approx(2 / 7)
    assert (found["bias"].relative, found["bias"].distance) == (None, pytest.approx(3**0.5))
    assert (found["nan"].relative, found["nan"].not_finite, found["nan"].largest) == (None, (1, 1), 1.0)
    assert found["kind"].shapes == ((4,), (2, 2))
    assert (found["old"].dtypes, found["new"].dtypes) == (("float32", None), (None, "float32"))
    difference, values = difference_of(one, other)
    assert difference.summary == "4 changed, 1 frozen, 1 added, 1 missing, 1 of another shape"
    assert values == values_of(other)


def test_the_change_of_all(make: Make, tmp_path: Path) -> None:
    """It is that of all floating-point numbers together: a counter or a random state does not outweigh them."""
    before = {"a": np.float32([3, 0]), "b": np.float32([4]), "seed": np.asarray(np.int64(10**12))}
    after = {"a": np.float32([3, 1]), "b": np.float32([4]), "seed": np.asarray(np.int64(5))}
    found, _ = difference_of(make(tmp_path / "one", before), make(tmp_path / "other", after))
    assert found.relative == pytest.approx(1 / 5)
    assert found.summary == "2 changed, 1 frozen; relative change 20 %"
    assert (percent(found.relative), percent(None)) == ("20 %", "-")


def test_another_type_is_compared_by_value(tmp_path: Path) -> None:
    """A model that was converted has changed by what was rounded."""
    before = as_file(tmp_path / "one", {"w": np.float64([1.0, 0.1])})
    after = as_file(tmp_path / "other", {"w": np.float32([1.0, 0.1])})
    found = changes(before, after)["w"]
    assert (found.kind, found.dtypes) == ("changed", ("float64", "float32"))
    assert found.relative is not None and 0 < found.relative < 1e-7


def test_formats_are_compared_by_name(tmp_path: Path) -> None:
    """Two that have no tensor of one name are an error that shows how each calls them."""
    sealed, file = as_sealed(tmp_path / "a", {"w": np.ones(2)}), as_file(tmp_path / "b", {"w": np.ones(2)})
    with pytest.raises(CheckpointError, match=r"the first has 'objects/w' \(sealed\), the second 'w' \(safetensors\)"):
        difference_of(sealed, file)
    same = as_file(tmp_path / "c", {"objects/w": np.ones(2)})
    assert changes(sealed, same)["w"].kind == "frozen"


def test_partitioned_variables_and_texts(tmp_path: Path, writer: ModuleType) -> None:
    """TensorFlow's parts of a variable are tensors with numbers; texts are counted, and nothing is said of them."""
    part = lambda value: writer.Tensor("float32", (2,), struct.pack("<2f", value, value))  # noqa: E731
    path = tmp_path / "model.ckpt-1"
    tensors = {"\0w\0\1\1\x80\x82": part(1.0), "\0w\0\1\1\x82\x82": part(2.0), "text": writer.strings(b"a", b"bc")}
    writer.write_bundle(path, tensors)
    values = values_of(path)
    assert {tensor.name: tensor.norm for tensor in values.tensors} == {
        "text": None, "w (part 1 of 2)": pytest.approx(2**0.5), "w (part 2 of 2)": pytest.approx(8**0.5),
    }  # fmt: skip
    assert values.summary.startswith("all finite; 2 float32, 1 string; 1 without numbers; norm ")
    assert changes(path, path)["text"].kind == "unknown"


def test_pieces_of_several_processes(tmp_path: Path) -> None:
    """Arrays of JAX that two processes, or four, have written in pieces are compared as whole ones."""
    array = np.random.default_rng(3).standard_normal((8, 6)).astype("f4")

    def split(path: Path, cuts: list[tuple[slice, slice]], array: Any) -> Path:
        (path / "sharded").mkdir(parents=True)
        for number, cut in enumerate(cuts):
            piece = np.ascontiguousarray(array[cut])
            first = tuple(item.start or 0 for item in cut)
            name = Piece("objects/w", first, piece.shape, array.shape, "float32").name
            as_file(path / "sharded" / str(number), {name: piece.view(np.uint8).reshape(-1)})
        tree = {"dict": [["objects", {"dict": [["w", {"array": ["sharded", "objects/w"]}]]}], ["random", {"dict": []}]]}
        (path / "tree.json").write_text(json.dumps(tree))
        seal(str(path), Manifest(format="state-tree", step=1), LOCAL)
        return path

    rows = [(slice(0, 4), slice(0, 6)), (slice(4, 8), slice(0, 6))]
    squares = [(slice(a, a + 4), slice(b, b + 3)) for a in (0, 4) for b in (0, 3)]
    one = split(tmp_path / "one", rows, array)
    assert values_of(one).norm == pytest.approx(float(np.linalg.norm(np.float64(array))))
    assert changes(one, split(tmp_path / "same", squares, array))["w"].kind == "frozen"
    array = array.copy()
    array[7, 5] += 1
    assert changes(one, split(tmp_path / "other", squares, array))["w"].largest == pytest.approx(1, rel=1e-6)


def test_progress_reaches_the_end(make: Make, tmp_path: Path) -> None:
    """Of values and of a difference: from some of the bytes to all of them."""
    path = make(tmp_path / "ckpt", {"w": np.ones((900, 700), "f4"), "b": np.ones(3, "f4")})
    size = 4 * (900 * 700 + 3)
    for read, total in ((lambda tell: values_of(path, on_progress=tell), size),
                        (lambda tell: difference_of(path, path, on_progress=tell), 2 * size)):  # fmt: skip
        told: list[tuple[int, int]] = []
        read(lambda done, whole, told=told: told.append((done, whole)))
        assert len(told) > 2 and told[-1] == (total, total) and {whole for _, whole in told} == {total}


MEMORY = """
import resource, sys
from supervisor_core.checkpoint.values import difference_of

difference_of(*sys.argv[1:3])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
difference_of(*sys.argv[3:5])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
def test_memory_does_not_grow_with_a_checkpoint(tmp_path: Path) -> None:
    """Two files of one tensor of 256 MB, whose bytes are holes, take no more than two of 1 MB, but for 8 MB."""
    paths = []
    for number, size in enumerate((1 << 20, 1 << 20, 256 << 20, 256 << 20)):
        header = json.dumps({"w": {"dtype": "F32", "shape": [64, size // 256], "data_offsets": [0, size]}}).encode()
        paths.append(tmp_path / f"{number}.safetensors")
        paths[-1].write_bytes(struct.pack("<Q", len(header)) + header)
        os.truncate(paths[-1], 8 + len(header) + size)
    told = subprocess.run([sys.executable, "-c", MEMORY, *map(str, paths)], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 8 << 10


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("nothing", None, "There is no checkpoint .*nothing: no directory, no file, and no .*nothing.index"),
        ("notes.txt", b"hello", "notes.txt is no checkpoint; expected safetensors, or a file of torch.save"),
        ("cut.safetensors", b"\x05", "its header is none of safetensors"),
        ("empty/", b"", "empty is no checkpoint. Expected a sealed one, a folder of"),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, name: str, content: bytes | None, text: str) -> None:
    """It is an error that says what came and what was expected."""
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=text):
        values_of(path)


def test_the_older_format(tmp_path: Path, writer: ModuleType) -> None:
    """Its values are not read, and that is what is said."""
    writer.write_legacy(tmp_path / "model.ckpt-5", 5)
    for name in ("model.ckpt-5", "model.ckpt-5-?????-of-00002"):
        with pytest.raises(UnreadableCheckpointError, match=r"older format \(SaverDef.V1\) are not read"):
            values_of(tmp_path / name)


def test_names_of_a_bundle(tmp_path: Path, writer: ModuleType) -> None:
    """It is found by its prefix, its index and its data file."""
    as_bundle(writer)(tmp_path / "model.ckpt-1", {"w": np.float32([3, 4]), "v": np.float32([0])})
    for name in ("model.ckpt-1", "model.ckpt-1.index", "model.ckpt-1.data-00001-of-00002"):
        assert values_of(tmp_path / name).norm == 5.0


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


def test_a_bundle_that_is_cut(tmp_path: Path, writer: ModuleType) -> None:
    """It is damage, with the tensor's name."""
    path = as_bundle(writer)(tmp_path / "model.ckpt-1", {"w": np.ones(100, "f4")})
    os.truncate(f"{path}.data-00000-of-00001", 390)
    with pytest.raises(DamagedCheckpointError, match="the tensor 'w' ends 10 bytes early"):
        values_of(path)


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ((0, 0), "tensors share their bytes in its data file 0"),
        ((0, -8), "tensors share their bytes in its data file 0"),
        ((0, (1 << 63) - 1), "the tensor 'v' ends 400 bytes early"),
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


def test_tensors_are_counted_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder: one file under many names has no more tensors than one file may have."""
    for number in range(2):
        as_file(tmp_path / f"model-{number}", {"v": np.ones(1, "f4"), "w": np.ones(1, "f4")})
    monkeypatch.setattr(tensor_files, "MAX_TENSORS", 4)
    assert len(values_of(tmp_path).tensors) == 4
    monkeypatch.setattr(tensor_files, "MAX_TENSORS", 3)
    with pytest.raises(
        DamagedCheckpointError, match=r"model-1\.safetensors: with this file it has more than 3 tensors"
    ):
        values_of(tmp_path)


def test_a_name_has_a_length(tmp_path: Path) -> None:
    """A name of megabytes is damage: names are sorted by their numbers, and shown."""
    for name in ("1a" * 3000, "w" * (1 << 20)):
        with pytest.raises(DamagedCheckpointError, match=r"the name of a tensor, .* is longer than 4,096"):
            values_of(as_file(tmp_path / "long", {name: np.ones(1, "f4")}))
    assert values_of(as_file(tmp_path / "short", {"w" * 4096: np.ones(1, "f4")})).norm == 1.0
