"""What the tab says of the numbers in a run's checkpoints: read in the background, in the run's directory only."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.run.checkpoints import Checkpoint
from tb_plugin.checkpoint_values import MOST_WAITING, Asked, CheckpointReader, answer_of, asked_of
from tb_plugin.http import Refused
from tests.tb_plugin.conftest import NOW, Bench, a_run, watched


@pytest.fixture(scope="session")
def writer(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes checkpoints byte by byte."""
    return module_at("checkpoint/bundle_writer.py")


def write(writer: ModuleType, path: Path, *values: float) -> Path:
    """A checkpoint with one tensor."""
    tensor = writer.Tensor("float32", (len(values),), struct.pack(f"<{len(values)}f", *values))
    writer.write_bundle(path, {"w": tensor})
    return path


def save(path: str, step: int, **how: Any) -> Checkpoint:
    """A good save of a path."""
    return Checkpoint(**{"session": "one", "at": NOW + step, "step": step, "path": path, "on_disk": True, **how})


def test_values_and_change(bench: Callable[..., Bench], tmp_path: Path, writer: ModuleType) -> None:
    """A checkpoint of the run, found by its name wherever its writer thought it was, against the one before that is
    there; with the command that shows all of it."""
    run = tmp_path / "it's"
    for step, values in ((100, (3.0, 4.0)), (300, (3.0, 4.5)), (400, (math.nan, 4.5))):
        write(writer, run / f"model.ckpt-{step}", *values)
    saves = (
        save("/elsewhere/model.ckpt-100", 100),
        save("/elsewhere/model.ckpt-200", 200, on_disk=False),
        save("/elsewhere/model.ckpt-300", 300),
        save("/elsewhere/model.ckpt-400", 400),
    )
    tab = bench(watched(a_run(checkpoints=saves), directory=str(run)))
    first = tab.json("checkpoint_values", run="a", path="/elsewhere/model.ckpt-100")
    assert (first["values"]["summary"], first["change"], first["before"]) == (
        "all finite; 1 float32; norm 5",
        None,
        None,
    )
    answer = tab.json("checkpoint_values", run="a", path="/elsewhere/model.ckpt-300")
    assert answer["before"] == "/elsewhere/model.ckpt-100"
    assert answer["change"]["summary"] == "1 changed; relative change 10 %"
    assert answer["change"]["tensors"][0]["largest"] == 0.5
    assert (
        answer["command"]
        == f"tb-supervisor diff '{tmp_path}/it'\"'\"'s/model.ckpt-100' '{tmp_path}/it'\"'\"'s/model.ckpt-300'"
    )
    newest = tab.json("checkpoint_values", run="a")
    assert newest["path"] == "/elsewhere/model.ckpt-400" and newest["values"]["has_nan"]
    assert newest["values"]["not_finite"] == [
        {"name": "w", "dtype": "float32", "shape": [2], "nan": 1, "inf": 0, "norm": 4.5, "min": 4.5, "max": 4.5}
    ]


def test_what_cannot_be_read(bench: Callable[..., Bench], tmp_path: Path, writer: ModuleType) -> None:
    """Files that are gone, a damaged one, a damaged one before: each is a sentence, and what can be said is said."""
    run = tmp_path / "run"
    write(writer, run / "ckpt-1", 1.0)
    write(writer, run / "ckpt-2", 2.0)
    (run / "ckpt-1.data-00000-of-00001").write_bytes(b"")
    tab = bench(watched(a_run(checkpoints=(save("ckpt-1", 1), save("ckpt-2", 2), save("gone", 3))), directory=str(run)))
    assert "bytes early" in tab.json("checkpoint_values", run="a", path="ckpt-1")["problem"]
    answer = tab.json("checkpoint_values", run="a", path="ckpt-2")
    assert answer["values"]["summary"].startswith("all finite") and answer["change"] is None
    assert "ckpt-1" in answer["change_problem"]
    assert tab.json("checkpoint_values", run="a")["problem"] == "Its files are not in the run's directory."
    assert "no good checkpoint '/etc/passwd'" in tab.error("checkpoint_values", 404, run="a", path="/etc/passwd")


def test_files_elsewhere_are_not_read(tmp_path: Path, writer: ModuleType, bench: Callable[..., Bench]) -> None:
    """Whoever writes a run's events learns nothing of another's checkpoints, and of no other file: a path that leads
    out of the run's directory, a link in it, and a file of arrays that is no checkpoint of the run's are not read."""
    secret = write(writer, tmp_path / "secret" / "ckpt-1", 1.0)
    run = tmp_path / "run"
    (run / "folder").mkdir(parents=True)
    (run / "checkpoints").symlink_to(secret.parent)
    for path in secret.parent.iterdir():
        (run / path.name.replace("ckpt-1", "ckpt-2")).symlink_to(path)
    for name in ("arrays.safetensors", "folder/model.safetensors"):
        (run / name).write_bytes(
            struct.pack("<Q", 60) + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(60) + bytes(4)
        )
    paths = (str(secret), "checkpoints/ckpt-1", "ckpt-2", "../secret/ckpt-1", "arrays.safetensors", "folder")
    saves = tuple(save(path, step) for step, path in enumerate(paths))
    tab = bench(watched(a_run(checkpoints=saves), directory=str(run)))
    for path in paths:
        answer = tab.json("checkpoint_values", run="a", path=path)
        assert answer["values"] is None and answer["problem"], path


def test_a_request_does_not_wait_for_long() -> None:
    """While a checkpoint is read, the answer is how far that is; later it is what was found, read once. Only so many
    wait; what fails is an answer, too."""
    begin, begun, counted = threading.Event(), threading.Event(), []

    def read(asked: Asked, tell: Callable[[int, int], None]) -> dict[str, Any]:
        tell(30, 100)
        begun.set()
        begin.wait()
        counted.append(asked.path)
        if asked.path == "7":
            raise OSError("out of reach")
        return answer_of(asked)

    reader = CheckpointReader(read)
    asked = [Asked("/r", str(number), NOW, None) for number in range(MOST_WAITING + 1)]
    with pytest.raises(Refused, match=r"0 is being read: \d+ %|0 is being read: waiting"):
        reader.look(asked[0], 0.0)
    begun.wait()
    with pytest.raises(Refused, match="0 is being read: 30 %"):
        reader.look(asked[0], 0.0)
    for item in asked[1:-1]:
        with pytest.raises(Refused, match="is being read: waiting"):
            reader.look(item, 0.0)
    with pytest.raises(Refused, match=f"{MOST_WAITING} other checkpoints are to be read first"):
        reader.look(asked[-1], 0.0)
    begin.set()
    assert reader.look(asked[6], 60.0)["path"] == "6"
    assert "out of reach" in reader.look(asked[7], 60.0)["problem"]
    assert reader.look(asked[0], 0.0)["problem"] is None
    reader.close()
    assert counted == [str(number) for number in range(MOST_WAITING)]


def test_what_failed_is_tried_again(bench: Callable[..., Bench], tmp_path: Path, writer: ModuleType) -> None:
    """When it is asked for the next time: its files may be there by then."""
    tab = bench(watched(a_run(checkpoints=(save("ckpt-1", 1),)), directory=str(tmp_path)))
    assert tab.json("checkpoint_values", run="a")["problem"] == "Its files are not in the run's directory."
    write(writer, tmp_path / "ckpt-1", 1.0)
    assert tab.json("checkpoint_values", run="a")["problem"] is None


def test_what_waits_is_not_read_once_it_is_closed() -> None:
    """Closing waits for one checkpoint, not for all that were asked for."""
    begin, begun, seen = threading.Event(), threading.Event(), []

    def read(asked: Asked, tell: Callable[[int, int], None]) -> dict[str, Any]:
        seen.append(asked.path)
        begun.set()
        begin.wait()
        return answer_of(asked)

    class Wanted(SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if item is None:
                begin.set()

    reader = CheckpointReader(read)
    reader._wanted = Wanted()
    for path in "ab":
        with pytest.raises(Refused, match="is being read"):
            reader.look(Asked("/r", path, NOW, None), 0.0)
    begun.wait()
    reader.close()
    assert seen == ["a"]


def test_the_one_before() -> None:
    """It is the newest good save of another path that is there; a save again of one path is the newest of it."""
    saves = [save("a", 1), save("b", 2), save("c", 3, error="disk full"), save("b", 4), save("d", 5, on_disk=False)]
    assert asked_of("/r", saves, "b") == Asked("/r", "b", NOW + 4, "a")
    assert asked_of("/r", saves, "a") == Asked("/r", "a", NOW + 1, None)
    assert asked_of("/r", saves, None) == Asked("/r", "d", NOW + 5, "b")
    assert asked_of("/r", saves, "c") is None and asked_of("/r", [], None) is None
