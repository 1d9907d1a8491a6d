"""A staged checkpoint becomes one only by its last move, that of the index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor_core.checkpoint.store import move_into_place
from supervisor_core.storage.local import LocalFilesystem

INDEX = "model.ckpt-5.index"
DATA = ["model.ckpt-5.data-00000-of-00002", "model.ckpt-5.data-00001-of-00002", "model.ckpt-5.meta"]


class RecordingFilesystem(LocalFilesystem):
    """Records what is moved, in order; refuses the move after ``count`` of them."""

    def __init__(self, count: int = 100) -> None:
        self.moved: list[str] = []
        self._count = count

    def move(self, path: str, target: str) -> None:
        """See `Filesystem.move`."""
        if len(self.moved) == self._count:
            raise OSError("interrupted")
        self.moved.append(os.path.basename(target))
        super().move(path, target)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """A staging directory with a checkpoint of two data files."""
    directory = tmp_path / "model.ckpt-5_temp_0123"
    directory.mkdir()
    for name in (INDEX, *DATA):
        (directory / name).write_bytes(name.encode())
    return directory


@pytest.mark.parametrize("listed", [[INDEX, *DATA], [*DATA, INDEX], [DATA[0], INDEX, *DATA[1:]]])
def test_the_index_is_moved_last(staging: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str]) -> None:
    """In whatever order the directory is listed: the index makes a checkpoint of the files."""
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: list(listed) if path == str(staging) else listdir(path))
    filesystem = RecordingFilesystem()
    move_into_place(filesystem, str(staging), str(staging.parent))
    assert filesystem.moved[-1] == INDEX
    assert sorted(filesystem.moved[:-1]) == DATA
    assert (staging.parent / INDEX).read_bytes() == INDEX.encode()


@pytest.mark.parametrize("count", range(len(DATA) + 1))
def test_an_interrupted_move_leaves_the_index_staged(staging: Path, count: int) -> None:
    """A failure before any of the moves leaves no index in place, so no checkpoint that lacks data."""
    with pytest.raises(OSError, match="interrupted"):
        move_into_place(RecordingFilesystem(count), str(staging), str(staging.parent))
    assert not (staging.parent / INDEX).exists()
    assert (staging / INDEX).exists()
