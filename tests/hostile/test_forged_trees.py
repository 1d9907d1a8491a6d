"""Trees and arrays in a checkpoint that cannot be: they are refused before it is chosen, and cost little."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.base import checksum
from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError
from supervisor_core.base.json_records import MAX_TEXT
from supervisor_core.checkpoint import contents, safetensors_file
from supervisor_core.checkpoint import manifest as manifests
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.retention import MAX_TAGS, doubt_of
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tree_file import MAX_BYTES
from supervisor_core.storage.opening import MAX_READ_BYTES
from supervisor_core.training.tree import NumpyArrays, check_tree, read_tree
from tests.cases import each


@pytest.fixture(scope="session")
def forging(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that forges."""
    return module_at("hostile/forging.py")


def checkpoint(path: Path, objects: Any, arrays: bytes | None = None) -> SealedFiles:
    """A checkpoint with a tree, and a file of arrays."""
    path.mkdir()
    tree = {"dict": [["objects", {"dict": objects}], ["random", {"dict": []}]]}
    (path / "tree.json").write_text(json.dumps(tree))
    if arrays is not None:
        (path / "numpy.safetensors").write_bytes(arrays)
    files = manifests.list_files(str(path))
    return SealedFiles(str(path), Manifest(format="state-tree", step=1, files=files))


W = {"array": ["numpy", "w"]}
TREES: dict[str, Any] = {
    "an array is a key": [["m", {"dict": [[W, 1]]}]],
    "a list is a key": [["m", {"dict": [[[1], 1]]}]],
    "a dict is a key": [["m", {"dict": [[{"dict": []}, 1]]}]],
    "one array in two places": [["m", W], ["n", W]],
    "an array without a name": [["m", {"array": ["numpy"]}]],
    "an array of no kind": [["m", {"array": [5, "w"]}]],
    "an array of a kind that nobody has": [["m", {"array": ["pickle", "w"]}]],
    "bytes that are none": [["m", {"bytes": "?"}]],
    "two tags": [["m", {"tuple": [], "dict": []}]],
    "no pairs": [["m", {"dict": [5]}]],
    "a name of another kind": [[5, 1]],
}


@each("kind", TREES)
def test_a_tree_that_cannot_be(tmp_path: Path, forging: ModuleType, kind: str) -> None:
    """`verify` and a resume call it damaged."""
    arrays = forging.safetensors({"w": ("F32", [2], 8)}, bytes(8))
    files = checkpoint(tmp_path / "ckpt-1", TREES[kind], arrays)
    with pytest.raises(DamagedCheckpointError):
        contents.check(files, "state-tree")
    if kind != "a name of another kind":  # which `require_training` looks at
        with pytest.raises(DamagedCheckpointError):
            read_tree(files, (NumpyArrays(),))


P = (1 << 61) - 1
"""The hash of each integer is that of its remainder."""


def test_keys_of_one_hash(tmp_path: Path) -> None:
    """A dict of them would take hours. What is refused here is not saved."""
    for number, keys in enumerate(([P << 8], [1 << 64], [{"tuple": [P << 8]}], [{"tuple": [0] * 1001}])):
        files = checkpoint(tmp_path / f"ckpt-{number}", [["m", {"dict": [[key, None] for key in keys]}]])
        with pytest.raises(DamagedCheckpointError, match="a key is"):
            contents.check(files, "state-tree")
    alike = [{"tuple": [0, "a"]} for _ in range(101)]
    files = checkpoint(tmp_path / "ckpt-9", [["m", {"dict": [[key, None] for key in alike]}]])
    with pytest.raises(DamagedCheckpointError, match="keys of a dict have one hash"):
        contents.check(files, "state-tree")
    with pytest.raises(CheckpointError, match="more than 64 bits"):
        check_tree({1 << 64: 1}, (NumpyArrays(),), "state")
    check_tree(dict.fromkeys([(1 << 64) - 1, -1, -2, (1, "a"), *range(5000)]), (NumpyArrays(),), "state")


ARRAYS: dict[str, tuple[str, list[Any], int]] = {
    "none of many": ("F32", [1 << 61, 1 << 61, 0], 0),
    "none of too many": ("F32", [1 << 51, 0], 0),
    "too many dimensions": ("U8", [1] * 65, 1),
    "negative": ("U8", [-1, -8], 8),
    "no number": ("U8", [True] * 8, 1),
    "another size": ("F64", [2], 8),
    "no such type": ("F99", [1], 8),
    "a type of another kind": ([], [1], 8),  # type: ignore[dict-item]
}


@each("kind", ARRAYS)
def test_an_array_that_cannot_be(tmp_path: Path, forging: ModuleType, kind: str) -> None:
    """The error says nothing of what is in the file."""
    files = checkpoint(
        tmp_path / "ckpt-1", [["m", W]], forging.safetensors({"w": ARRAYS[kind]}, bytes(ARRAYS[kind][2]))
    )
    for read in (lambda: contents.check(files, "state-tree"), lambda: read_tree(files, (NumpyArrays(),))):
        with pytest.raises(DamagedCheckpointError, match=r"its header is none of safetensors$"):
            read()


@each(
    "doubt",
    [
        *(5, "text", [], ["text", 5], [None, []], ["x", "yz"]),
        ["x" * (MAX_TEXT + 1), []],
        ["x", ["y" * (MAX_TEXT + 1)]],
        ["x", ["y"] * (MAX_TAGS + 1)],
    ],
)
def test_a_doubt_has_bounds(doubt: Any) -> None:
    """Texts and tags of a manifest go into log, events and tab."""
    content = json.loads(manifests.encode(Manifest(format="test", step=1)))
    del content["seal"]
    content["doubt"] = doubt
    content["seal"] = checksum.value(manifests._canonical(content))
    with pytest.raises(ValueError, match="doubt"):
        manifests.decode(manifests._canonical(content))


def test_a_doubt_that_is_written_is_read() -> None:
    """Whatever a program calls its losses."""
    doubt = doubt_of("e" * 9999, ["l" * 9999, *map(str, range(2 * MAX_TAGS))], "a" * 9999)
    assert doubt is not None and len(doubt.losses) == MAX_TAGS
    manifest = Manifest(format="test", step=1, doubt=doubt)
    assert manifests.decode(manifests.encode(manifest)) == manifest


PIECES: dict[str, dict[str, tuple[str, list[int], int]]] = {
    "a name that is none": {"objects/m": ("U8", [16], 16)},
    "more than its array": {"objects/m#2:4:4:float32": ("U8", [16], 16)},
    "other dimensions": {"objects/m#0,0:4:4:float32": ("U8", [16], 16)},
    "less than its array": {"objects/m#0:4:999999999999999:float32": ("U8", [16], 16)},
    "two arrays": {"objects/m#0:2:4:float32": ("U8", [8], 8), "objects/m#2:2:4:int32": ("U8", [8], 8)},
    "no bytes": {"objects/m#0:0:0:float32": ("U8", [0], 0)},
    "other bytes": {"objects/m#0:3:3:float32": ("U8", [16], 16)},
    "numbers": {"objects/m#0:4:4:float32": ("F32", [4], 16)},
    "a dtype that is code": {"objects/m#0:4:4:__import__('os')": ("U8", [16], 16)},
    "many digits": {f"objects/m#0:{'9' * 5000}:4:float32": ("U8", [16], 16)},
    "another array": {"objects/n#0:4:4:float32": ("U8", [16], 16)},
}


@each("kind", [*PIECES, "FIFO", "link", "not listed"])
def test_pieces_that_cannot_be(tmp_path: Path, forging: ModuleType, kind: str) -> None:
    """Of an array that is split over JAX's processes: `verify` and a resume pass over the checkpoint."""
    good = {"objects/m#0:2:4:float32": ("U8", [8], 8), "objects/m#2:2:4:float32": ("U8", [8], 8)}
    path = tmp_path / "ckpt-1"
    checkpoint(path, [["m", {"array": ["sharded", "objects/m"]}]])
    (path / "sharded").mkdir()
    file = path / "sharded" / "0.safetensors"
    file.write_bytes(forging.safetensors(PIECES.get(kind, good), bytes(16)))

    def check() -> None:
        contents.check(SealedFiles(str(path), Manifest(format="state-tree", step=1, files=files)), "state-tree")

    files = manifests.list_files(str(path))
    if kind not in PIECES:
        check()
        file.unlink()
        os.mkfifo(file) if kind == "FIFO" else file.symlink_to("/etc/passwd")
        if kind == "not listed":
            files = tuple(item for item in files if item.path == "tree.json")
    with pytest.raises(CheckpointError) as caught:
        check()
    assert "/bin/" not in str(caught.value)


def test_pieces_that_are_there_many_times(tmp_path: Path, forging: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file under many names costs a second look at its header, and no more: what all of them name is not kept."""
    path = tmp_path / "ckpt-1"
    checkpoint(path, [["m", {"array": ["sharded", "objects/m"]}]])
    (path / "sharded").mkdir()
    pieces = {f"objects/m#{first}:2:400:float32": ("U8", [8], 8) for first in (0, 2)}
    (path / "sharded" / "0.safetensors").write_bytes(forging.safetensors(pieces, bytes(16)))
    for number in range(1, 50):
        os.link(path / "sharded" / "0.safetensors", path / "sharded" / f"{number}.safetensors")
    files = SealedFiles(str(path), Manifest(format="state-tree", step=1, files=manifests.list_files(str(path))))
    read: list[str] = []
    arrays = safetensors_file.arrays
    monkeypatch.setattr(safetensors_file, "arrays", lambda files, name: read.append(name) or arrays(files, name))
    with pytest.raises(DamagedCheckpointError, match="a piece of 'objects/m' is there twice"):
        contents.check(files, "state-tree")
    assert len(read) == 2


MEMORY_BYTES = 512 << 20
CHECK = """
import resource, sys
from supervisor_core.checkpoint import contents, manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.base.errors import DamagedCheckpointError
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
try:
    contents.check(SealedFiles(sys.argv[1], manifest.read_manifest(sys.argv[1])), "state-tree")
except DamagedCheckpointError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count this memory")
@each("kind", ["hole", "lists", "dicts", "deep", "manifest", "longer manifest"])
def test_a_tree_takes_a_bounded_amount_of_memory(tmp_path: Path, kind: str) -> None:
    """Also one that nobody but its reader may have written, and that takes nothing on the disk."""
    assert resource.RLIMIT_DATA
    path = tmp_path / "ckpt-1"
    files = checkpoint(path, [])
    listed: Any = [["tree.json", file.bytes, file.crc32c] for file in files.manifest.files]
    if kind == "hole":
        os.truncate(path / "tree.json", 4 << 30)
        listed = [["tree.json", 4 << 30, 1]]
    elif kind in ("lists", "dicts"):
        item = b"[]" if kind == "lists" else b'{"a":{}}'
        data = b"[" + b",".join([item] * (MAX_BYTES // 10)) + b"]"
        (path / "tree.json").write_bytes(data)
        listed = [["tree.json", len(data), checksum.value(data)]]
    elif kind == "deep":
        data = b"[" * 30_000_000
        (path / "tree.json").write_bytes(data)
        listed = [["tree.json", len(data), checksum.value(data)]]
    content = {"v": 1, "format": "state-tree", "step": 1, "files": listed}
    if "manifest" in kind:
        count = MAX_READ_BYTES // (3 if kind == "manifest" else 2)
        content["files"] = [[]] * (count - 100)
    content["seal"] = checksum.value(manifests._canonical(content))
    (path / manifests.NAME).write_bytes(manifests._canonical(content))
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path), str(MEMORY_BYTES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout.startswith(str(path)), done.stdout + done.stderr
