"""A session deletes its own checkpoints, and no other file, whatever the files that it reads names from say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.ledger import DIRECTORY
from supervisor_core.checkpoint.store import CheckpointStore


@pytest.fixture(scope="session")
def saves(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module of a session that saves."""
    return module_at("checkpoint/saves.py")


def others(logdir: Path, writer: ModuleType) -> dict[str, bytes]:
    """Put files into a logdir that are none of its checkpoints; return what each path holds."""
    (logdir / "other-run").mkdir()
    for prefix in ("other.ckpt-7", "other-run/model.ckpt-7"):
        writer.write_bundle(str(logdir / prefix), {"w": writer.floats(3), "global_step": writer.step(7)})
    for name in ("train.py", "model.ckpt-8", "model.ckpt-9.index", "data.meta"):
        (logdir / name).write_text("what somebody worked on for a year")
    own = ("model.ckpt-1", "checkpoint")
    found = [path for path in logdir.rglob("*") if path.is_file() and not path.name.startswith(own)]
    return {str(path): path.read_bytes() for path in found}


def test_retention_deletes_no_file_that_the_state_file_merely_names(
    tmp_path: Path, writer: ModuleType, saves: ModuleType, write_state: Callable[..., None]
) -> None:
    """Plain files, another run's checkpoints, one in another directory: all are listed as old ones, and all stay."""
    writer.write_run(tmp_path, [100])
    before = others(tmp_path, writer)
    named = ("train.py", "model.ckpt-8", "model.ckpt-9", "data", "other.ckpt-7", "other-run/model.ckpt-7")
    write_state(tmp_path, *named, "model.ckpt-100")
    run = saves.Run(str(tmp_path), Publisher(session="s", attempt=1), writer)
    for step in range(101, 110):
        run.save(step, 1_000_000.0 + step)
    assert {path: Path(path).read_bytes() for path in before} == before
    assert sorted(path.name for path in tmp_path.glob("model.ckpt-1*.index")) == [
        f"model.ckpt-{step}.index" for step in (107, 108, 109)
    ]


def test_a_session_deletes_no_file_that_the_ledger_merely_names(
    tmp_path: Path, writer: ModuleType, saves: ModuleType
) -> None:
    """What an earlier session is said to have let go is deleted only where it is one of this run's checkpoints."""
    writer.write_run(tmp_path, [100, 110, 120])
    before = others(tmp_path, writer)
    let_go = [
        ["train.py", {"train.py": 9e9}],
        ["model.ckpt-8", {"model.ckpt-8": 9e9, "train.py": 9e9}],
        ["model.ckpt-9", {"model.ckpt-9.index": 9e9}],
        ["data", {"data.meta": 9e9}],
        ["other.ckpt-7", {"other.ckpt-7.index": 9e9, "other.ckpt-7.data-00000-of-00001": 9e9}],
        ["other-run/model.ckpt-7", {"other-run/model.ckpt-7.index": 9e9}],
        ["model.ckpt-100", {"model.ckpt-100.index": 9e9, "model.ckpt-100.data-00000-of-00001": 9e9}],
    ]
    page = {"v": 1, "session": "a", "attempt": 1, "saved": [], "deletions": let_go}
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / "attempt-000001-a-model.ckpt.json").write_text(json.dumps(page))
    saves.Run(str(tmp_path), Publisher(session="b", attempt=2), writer).save(130, 1_000_130.0)
    assert {path: Path(path).read_bytes() for path in before} == before
    assert not list(tmp_path.glob("model.ckpt-100.*"))


@pytest.mark.parametrize("name", ["train.py", "other.ckpt-7", "other-run/model.ckpt-7", "../elsewhere/model.ckpt-7"])
def test_nothing_else_is_set_aside(tmp_path: Path, writer: ModuleType, name: str) -> None:
    """A damaged checkpoint is moved out of the way only where it is this run's own."""
    logdir = tmp_path / "run"
    (tmp_path / "elsewhere").mkdir()
    writer.write_run(logdir, [100])
    others(logdir, writer)
    writer.write_bundle(str(tmp_path / "elsewhere" / "model.ckpt-7"), {"w": writer.floats(3)})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    store = CheckpointStore(logdir)
    assert store.set_aside(str(logdir / name), "damaged") is None
    assert store.delete(str(logdir / name)) == ()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_index_alone_is_deleted_by_its_mark(tmp_path: Path, writer: ModuleType) -> None:
    """Without data a file of this run's naming counts as an index if it ends with the format's mark."""
    writer.write_run(tmp_path, [100])
    index = (tmp_path / "model.ckpt-100.index").read_bytes()
    (tmp_path / "model.ckpt-5.index").write_bytes(index)
    (tmp_path / "model.ckpt-7.index").write_bytes(index[:-1])
    store = CheckpointStore(tmp_path)
    assert store.delete(str(tmp_path / "model.ckpt-5")) == (str(tmp_path / "model.ckpt-5.index"),)
    assert store.delete(str(tmp_path / "model.ckpt-7")) == ()
