"""Checkpoints, and the small text files beside them, that are written to hurt whoever reads them."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.base import checksum
from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.base.wire import encode_varint, read_canonical_varint
from supervisor_core.checkpoint import bundle_writer, table
from supervisor_core.checkpoint import store as store_module
from supervisor_core.checkpoint.bundle import verify
from supervisor_core.checkpoint.guard import LOCK_NAME
from supervisor_core.checkpoint.ledger import decode as decode_ledger
from supervisor_core.checkpoint.schema import message_class
from supervisor_core.checkpoint.state_file import read_state
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY, chief_path
from supervisor_core.run.watch.liveness import decode as decode_task
from supervisor_core.storage import local
from tests.cases import each
from tests.story.holds import edit, ends, peek

MIB = 1 << 20


@pytest.fixture(scope="session")
def writer(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes checkpoints byte by byte."""
    return module_at("checkpoint/bundle_writer.py")


def entry(*shape: int, size: int = 4) -> bytes:
    """What an index says of a tensor."""
    message = message_class("BundleEntry")(dtype=1, size=size)
    for length in shape:
        message.shape.dim.add(size=length)
    return bytes(message.SerializeToString())


HEADER = b"\x08\x01"


@pytest.mark.parametrize(
    "shape", [(1 << 62,) * 300, (1,) * 300_000, (-1,), (1 << 40, 1 << 40, 0)], ids=["product", "many", "negative", "0"]
)
def test_a_shape_that_cannot_be_is_damage(tmp_path: Path, writer: ModuleType, shape: tuple[int, ...]) -> None:
    """A start falls back to the checkpoint before: no number is too large to be shown, no product is computed."""
    writer.write_run(tmp_path, [100], state=False)
    writer.write_table(tmp_path / "model.ckpt-200.index", [(b"", HEADER), (b"w", entry(*shape))])
    (tmp_path / "model.ckpt-200.data-00000-of-00001").write_bytes(bytes(4))
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert recovery.chosen.step == 100
    assert [os.path.basename(item.path) for item in recovery.skipped] == ["model.ckpt-200"]


def test_an_index_whose_keys_repeat_themselves_is_damage(
    tmp_path: Path, writer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of four bytes that stand for keys of kilobytes are refused before they take gigabytes."""
    key = bytearray(b"k" * 60_000)
    first = writer.varint(0) + writer.varint(len(key)) + writer.varint(0) + bytes(key)
    block = bytearray(first)
    for number in range(20_000):
        block += writer.varint(len(key) - 2) + writer.varint(2) + writer.varint(0) + number.to_bytes(2, "big")
    block += (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    plain = writer._block
    monkeypatch.setattr(writer, "_block", lambda items: bytes(block) if items and items[0][0] == b"a" else plain(items))
    writer.write_table(tmp_path / "m-1.index", [(b"a", b"")])
    tracemalloc.start()
    with pytest.raises(DamagedCheckpointError, match="entries"):
        verify(tmp_path / "m-1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * MIB


class CountingReader:
    """A file in memory, and how many bytes were read of it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.fetched = data, len(data), 0

    def read_at(self, offset: int, length: int) -> bytes:
        self.fetched += len(self.data[offset : offset + length])
        return self.data[offset : offset + length]


def test_a_block_that_is_named_again_and_again_is_damage() -> None:
    """An index that names one long block ten thousand times costs no more than reading the file once."""
    block = struct.pack("<5001I", *[0] * 5000, 5000)  # restart points and no entries, so no bound on entries is reached
    handle = b"\x00" + encode_varint(len(block))
    index = b"".join(b"\x00\x01" + bytes([len(handle)]) + b"k" + handle for _ in range(10_000)) + struct.pack(
        "<II", 0, 1
    )
    out = bytearray()
    for content in (block, index):
        out += content + b"\0" + struct.pack("<I", bundle_writer.mask(checksum.value(content + b"\0")))
    footer = handle + encode_varint(len(block) + 5) + encode_varint(len(index))
    reader = CountingReader(bytes(out) + footer.ljust(40, b"\0") + table.MAGIC)
    with pytest.raises(DamagedCheckpointError, match="where the one before it ends"):
        list(table.SortedTable(reader, "model.index").entries())  # type: ignore[arg-type]
    assert reader.fetched < 2 * reader.size


def test_tensors_that_share_their_bytes_are_damage(tmp_path: Path, writer: ModuleType) -> None:
    """Verifying reads no byte of a data file twice: tensors that do not fit into it together are refused unread."""
    items = [(b"", HEADER), *((b"w%03d" % number, entry(1)) for number in range(100))]
    writer.write_table(tmp_path / "model.ckpt-1.index", items)
    (tmp_path / "model.ckpt-1.data-00000-of-00001").write_bytes(bytes(4))
    with pytest.raises(DamagedCheckpointError, match="it has 4 bytes, and its tensors 400 together"):
        verify(tmp_path / "model.ckpt-1")


def test_numbers_beyond_64_bits_are_refused() -> None:
    """As every other reader of the format does."""
    assert read_canonical_varint(b"\xff" * 9 + b"\x01", 0) == ((1 << 64) - 1, 10)
    with pytest.raises(ValueError, match="more than 64 bits"):
        read_canonical_varint(b"\xff" * 9 + b"\x02", 0)


@each("decode", [decode_task, decode_ledger])
@each("data", [b"[" * 3000, b'{"v":1,"a":' + b"[" * 3000, b"9" * 5000, b'{"v":1}', b"\xff"])
def test_records_raise_what_they_say(decode: Callable[[bytes], Any], data: bytes) -> None:
    """Whatever the file holds, decoding it raises `ValueError` and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        decode(data)


@each("value", [1e300, 10**400, -1e12, float("nan"), float("inf")])
def test_times_that_cannot_be_shown_are_refused(tmp_path: Path, value: float) -> None:
    """A liveness file with such a time is damaged; a session starts all the same."""
    for name in ("started_at", "written_at", "ended_at", "first_started_at"):
        hold = LogdirHold(tmp_path)
        hold.acquire("a")
        ends(hold, "completed")
        edit(tmp_path, **{name: value})
        assert peek(tmp_path) is None
    page = {"v": 1, "session": "s", "attempt": 1, "saved": [["model.ckpt-1", 1, 1, 10**400]], "deletions": []}
    with pytest.raises(ValueError, match="not JSON"):
        decode_ledger(json.dumps(page).encode())


def test_small_files_that_are_large_are_not_read(tmp_path: Path) -> None:
    """A sparse file of gigabytes in place of the state file or the liveness file is refused by its length."""
    os.mkdir(tmp_path / LIVENESS_DIRECTORY)
    for name in ("checkpoint", chief_path("")):
        with open(tmp_path / name, "wb") as file:
            file.write(b'{"v":1')
            file.truncate(3 << 30)
    tracemalloc.start()
    reading = read_state(tmp_path / "checkpoint")
    assert peek(tmp_path) is None
    LogdirHold(tmp_path).acquire("a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (reading.verdict, "more than" in (reading.problem or "")) == ("unreadable", True)
    assert peak < 16 * MIB


def test_what_is_no_file_blocks_no_reader(tmp_path: Path, writer: ModuleType) -> None:
    """FIFOs in place of the state file, an index, its data, the lock and the liveness file: each is refused at once."""
    writer.write_run(tmp_path, [100, 200, 300], state=False)
    os.mkdir(tmp_path / LIVENESS_DIRECTORY)
    for name in ("checkpoint", "model.ckpt-300.index", "model.ckpt-200.data-00000-of-00001", LOCK_NAME, chief_path("")):
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
    recovery = CheckpointStore(tmp_path).newest_usable()
    assert recovery.chosen.step == 100
    assert len(recovery.skipped) == 2
    assert peek(tmp_path) is None
    assert not LogdirHold(tmp_path).acquire("a").exclusive


def test_no_other_store_is_asked(tmp_path: Path, writer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL in the state file causes no connection; the session resumes from the checkpoints that are here."""
    writer.write_run(tmp_path, [100])
    urls = ["gs://bucket/model.ckpt-900", "s3://evil/model.ckpt-901", "http://169.254.169.254/model.ckpt-902"]
    lines = [f'model_checkpoint_path: "{urls[0]}"', *(f'all_model_checkpoint_paths: "{url}"' for url in urls)]
    (tmp_path / "checkpoint").write_text("\n".join(lines))
    asked: list[str] = []

    def local_only(path: str | os.PathLike[str]) -> tuple[local.Filesystem, str]:
        asked.append(os.fspath(path))
        raise AssertionError(f"{path} was asked")

    store = CheckpointStore(tmp_path)
    monkeypatch.setattr(store_module, "filesystem_for", local_only)
    recovery = store.newest_usable()
    assert (recovery.chosen.step, asked) == (100, [])
