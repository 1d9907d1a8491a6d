"""Sealed checkpoints: the manifest, and the files of each adapter that are read without a framework.

An input that is JSON has one line for each file; the arrays behind a header of safetensors are zeros. Byte 0 of an
input to `check_torch` says what the rest is: 1, the pickle of a file of ``torch.save`` that is right otherwise; else
the file.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from supervisor_core.base import checksum
from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.base.json_records import MAX_TEXT
from supervisor_core.checkpoint import contents, manifest, shard_metadata, torch_file
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tree_file import STRUCTURE, require_training
from supervisor_core.checkpoint.values import values_of
from supervisor_core.training.tree import NumpyArrays, read_tree

ARRAY_BYTES = 64
"""Behind each header."""
STEP = 4
_PICKLE = 1


def check_manifest(data: bytes) -> None:
    """Decode a manifest as it is, and with the seal put right; write and read again what was accepted."""
    for content in (data, _sealed(data)):
        try:
            found = manifest.decode(content)
        except ValueError:
            continue
        assert manifest.decode(manifest.encode(found)) == found
        for file in found.files:
            parts = file.path.split("/")
            assert not file.path.startswith("/") and ".." not in parts and file.bytes >= 0, file
        assert found.doubt is None or len(found.doubt.text) <= MAX_TEXT


def _sealed(data: bytes) -> bytes:
    try:
        content = json.loads(data)
        content.pop("seal", None)
        content["seal"] = checksum.value(manifest._canonical(content))
        return manifest._canonical(content)
    except (ValueError, AttributeError, TypeError, RecursionError):  # no object
        return data


def check_tree(data: bytes) -> None:
    """Read a state tree and its arrays: what a look at them accepts can be read, and nothing else."""
    files = _files(_lines(data, {STRUCTURE: bytes, contents.NUMPY: _with_arrays}), contents.STATE_TREE)
    accepted = _accepts(lambda: contents.check(files, contents.STATE_TREE))
    _read_values(files.directory, manifest.encode(files.manifest))
    try:
        require_training(files, read_tree(files, (NumpyArrays(),)))
    except UnreadableCheckpointError:  # of a type that numpy has not
        return
    except DamagedCheckpointError:
        assert not accepted, "what was accepted cannot be read"
        return
    assert accepted, "what can be read was not accepted"


def check_torch(data: bytes) -> None:
    """Look at a file of ``torch.save``."""
    file = _archive(data[1:]) if data[:1] and data[0] & _PICKLE else data[1:]
    try:
        found = torch_file.check(lambda at, count: file[max(0, at) : max(0, at) + count], len(file))
        torch_file.tensor_of(found)
    except (ValueError, torch_file.NeedsCodeError):
        pass


def _read_values(directory: str, sealed: bytes) -> None:
    """Read the numbers of a checkpoint, with this manifest while that takes: there is no error but its own."""
    path = Path(directory, manifest.NAME)
    path.write_bytes(sealed)
    with suppress(CheckpointError):
        values_of(directory)
    path.unlink()


def check_shards(data: bytes) -> None:
    """Read the metadata of shards, and look at the parts that they name."""
    part = _archive(b"\x80\x02" + tensor() + b".")
    files = _files({shard_metadata.METADATA: data, f"{shard_metadata.FOLDER}/__0_0.distcp": part}, contents.STATE_TREE)

    def read() -> None:
        tensors = shard_metadata.read(files)
        shard_metadata.check_parts(files, tensors)

    _accepts(read)


def check_trainer(data: bytes) -> None:
    """Look at a checkpoint of Transformers' `Trainer`."""
    kinds = {contents.TRAINER_STATE: bytes, "model.safetensors": _with_arrays, "config.json": bytes}
    files = _files(_lines(data, kinds), contents.TRANSFORMERS)
    _accepts(lambda: contents.check(files, contents.TRANSFORMERS))


def tensor() -> bytes:
    """The opcodes of a tensor of four numbers, whose storage is called 0."""
    storage = b"(" + text("storage") + name("torch.FloatStorage") + text("0") + text("cpu") + b"K\x04tQ"
    rest = b"K\x00K\x04\x85K\x01\x85\x89" + name("collections.OrderedDict") + b")Rt"
    return name("torch._utils._rebuild_tensor_v2") + b"(" + storage + rest + b"R"


def text(value: str) -> bytes:
    """The opcode of a text."""
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def name(of: str) -> bytes:
    """The opcode of a function or class."""
    return "c{0}\n{2}\n".format(*of.rpartition(".")).encode()


def _accepts(check: Callable[[], object]) -> bool:
    try:
        check()
    except DamagedCheckpointError:
        return False
    return True


def _lines(data: bytes, kinds: Mapping[str, Callable[[bytes], bytes]]) -> dict[str, bytes]:
    """Return the content of each file; of none for which there is no line."""
    return {file: make(line) for (file, make), line in zip(kinds.items(), data.split(b"\n"), strict=False)}


def _with_arrays(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(ARRAY_BYTES)


def _archive(pickle: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for part, content in (("data.pkl", pickle), ("version", b"3\n"), ("data/0", bytes(16))):
            archive.writestr(zipfile.ZipInfo(f"archive/{part}"), content)
    return file.getvalue()


def _files(content: Mapping[str, bytes], kind: str) -> SealedFiles:
    directory = Path(_directory())
    for each in directory.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    for place, data in content.items():
        (directory / place).parent.mkdir(exist_ok=True)
        (directory / place).write_bytes(data)
    listed = manifest.list_files(str(directory))
    return SealedFiles(str(directory), Manifest(format=kind, step=STEP, files=listed))


@functools.cache
def _directory() -> str:
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(folder.cleanup)
    return folder.name
