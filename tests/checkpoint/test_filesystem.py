"""Local files at full speed, others through fsspec, loaded only when a path asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import DamagedCheckpointError, NoUsableCheckpointError
from supervisor_core.checkpoint.bundle import verify
from supervisor_core.checkpoint.search import find_stores
from supervisor_core.checkpoint.state_file import read_state
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.storage.local import LOCAL, filesystem_for, local_path
from supervisor_core.storage.opening import open_regular


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/logs/run", "/logs/run"),
        ("run", "run"),
        ("file:///logs/run", "/logs/run"),
        ("gs://bucket/run", None),
        ("s3://bucket/run", None),
        ("odd:name", "odd:name"),
        (Path("/logs/run"), "/logs/run"),
    ],
)
def test_what_is_local(path: Any, local: str | None) -> None:
    """A path with a scheme is remote, but for `file://`; any other is local."""
    assert local_path(path) == local


def test_local_paths_load_neither_tensorboard_nor_tensorflow(tmp_path: Path, writer: Any) -> None:
    """A whole recovery, verification, sync and record on a local path needs neither, nor does importing."""
    writer.write_run(tmp_path / "run", [5])
    script = (
        "import sys\n"
        "from supervisor_core.checkpoint.store import CheckpointStore\n"
        "assert not {'google.protobuf', 'tensorboard', 'tensorflow'} & set(sys.modules)\n"
        "store = CheckpointStore(sys.argv[1])\n"
        "chosen = store.newest_usable().chosen\n"
        "store.sync(chosen.path)\n"
        "store.record(chosen.path, kept=store.history().kept)\n"
        "store.sweep_leftovers()\n"
        "assert not {'tensorboard', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], check=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "it is a FIFO"),
        (Path.mkdir, "it is a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
        (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    ],
    ids=["FIFO", "directory", "device", "loop"],
)
def test_what_is_no_regular_file_is_an_error_at_once(tmp_path: Path, make: Any, words: str) -> None:
    """Nothing waits for the other end of a FIFO, or reads a device: each way to open a file says what it is."""
    path = tmp_path / "file"
    make(path)
    for read in (LOCAL.open, LOCAL.read, open_regular):
        with pytest.raises(OSError, match=words):
            read(str(path))
    assert words in str(read_state(path).problem)


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may hand over less than was asked for; a read is complete all the same."""
    (tmp_path / "file").write_bytes(bytes(range(256)))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 7), offset))
    with LOCAL.open(str(tmp_path / "file")) as reader:
        assert reader.size == 256
        assert reader.read_at(10, 100) == bytes(range(10, 110))
        assert reader.read_at(250, 100) == bytes(range(250, 256))
        assert reader.read_at(300, 1) == b""


def test_walking_follows_links_once(tmp_path: Path, writer: Any) -> None:
    """Runs reached by links are found; a link in a circle is walked once."""
    writer.write_run(tmp_path / "elsewhere" / "a", [1])
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "linked").symlink_to(tmp_path / "elsewhere" / "a")
    (tmp_path / "logs" / "circle").symlink_to(tmp_path / "logs")
    runs = list(find_stores(LOCAL, str(tmp_path / "logs"), on_error=pytest.fail))
    assert [store.run for store in runs] == [str(tmp_path / "logs" / "linked")]


def test_runs_are_found_and_named(tmp_path: Path, writer: Any) -> None:
    """A state file, or an index with its data, makes a run; an exported model and other index files do not."""
    writer.write_run(tmp_path / "a", [1, 2])
    writer.write_run(tmp_path / "b", [3], basename="other-name", state=False)
    writer.write_run(tmp_path / "b", [3], state=False)
    writer.write_run(tmp_path / "c", [3], basename="x")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "checkpoint").write_bytes(b"")
    (tmp_path / "d" / "faiss.index").write_bytes(b"index of something else")
    writer.write_bundle(tmp_path / "export" / "variables" / "variables", {"w": writer.floats(2)})
    (tmp_path / "export" / "saved_model.pb").write_bytes(b"")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "faiss.index").write_bytes(b"index of something else")
    runs = list(find_stores(LOCAL, str(tmp_path), on_error=pytest.fail))
    assert [(os.path.basename(store.run), [item.step for item in store.listed().candidates]) for store in runs] == [
        ("a", [2, 1]), ("b", [3]), ("b", [3]), ("c", [3]), ("d", []),
    ]  # fmt: skip


def test_a_directory_that_cannot_be_searched_is_an_error(tmp_path: Path) -> None:
    """Walking goes on past what cannot be listed, and hands over why."""
    errors: list[OSError] = []
    assert list(find_stores(LOCAL, str(tmp_path / "gone"), on_error=errors.append)) == []
    assert [type(error) for error in errors] == [FileNotFoundError]


@pytest.fixture
def remote(tmp_path: Path, writer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A run on a file system that only fsspec knows, in a process without tensorflow."""
    import fsspec

    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    writer.write_run(tmp_path / "run", [100, 200])
    memory = fsspec.filesystem("memory")
    for path in (tmp_path / "run").iterdir():
        memory.pipe(f"/run/{path.name}", path.read_bytes())
    yield "memory://run"
    memory.rm("/run", recursive=True)


def test_remote_checkpoints_are_read_and_verified(remote: str) -> None:
    """A monitoring host without tensorflow verifies what lies in an object store."""
    verified = verify(f"{remote}/model.ckpt-200")
    assert (verified.step, verified.tensors) == (200, 2)
    assert verify(f"{remote}/model.ckpt-100").step == 100
    assert read_state(f"{remote}/checkpoint").verdict == "good"
    assert read_state(f"{remote}/none").verdict == "missing"


def test_remote_damage_is_found(remote: str) -> None:
    """What is missing or altered remotely is named as it would be locally."""
    import fsspec

    memory = fsspec.filesystem("memory")
    content = memory.cat("/run/model.ckpt-200.data-00000-of-00001")
    memory.pipe("/run/model.ckpt-200.data-00000-of-00001", content[:-1])
    recovery = CheckpointStore(remote).newest_usable()
    assert recovery.chosen.path == f"{remote}/model.ckpt-100"
    assert "it ends at byte" in recovery.skipped[0].reason
    memory.rm("/run/model.ckpt-100.index")
    with pytest.raises(NoUsableCheckpointError, match=r"model\.ckpt-100\.index: the file is missing"):
        CheckpointStore(remote).newest_usable()
    with pytest.raises(DamagedCheckpointError, match="the file is missing"):
        verify(f"{remote}/model.ckpt-999")


def test_remote_runs_are_found(remote: str) -> None:
    """Walking works as it does locally."""
    filesystem, top = filesystem_for(remote)
    assert [run.run.rstrip("/") for run in find_stores(filesystem, top, on_error=pytest.fail)] == [remote]


def test_a_remote_state_file_is_written(remote: str) -> None:
    """Paths relative to the remote logdir, as locally."""
    CheckpointStore(remote).record(f"{remote}/model.ckpt-100")
    state = read_state(f"{remote}/checkpoint").state
    assert state.model_checkpoint_path == "model.ckpt-100"


def test_a_remote_checkpoint_is_deleted(remote: str) -> None:
    """With all of its files, and no other."""
    CheckpointStore(remote).delete(f"{remote}/model.ckpt-100")
    assert [name for name in sorted(filesystem_for(remote)[0].list_names(remote)) if "100" in name] == []
    assert verify(f"{remote}/model.ckpt-200").step == 200
