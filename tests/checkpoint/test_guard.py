"""A file system that runs a check immediately before each change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.guard import guarded
from supervisor_core.storage.local import LOCAL


def test_a_guarded_file_system_asks_before_each_change(tmp_path: Path) -> None:
    """Nothing is changed when the check refuses, and reading never asks."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "directory").mkdir()

    def refuse() -> None:
        raise LogdirInUseError("taken over")

    files, file = guarded(LOCAL, refuse), str(tmp_path / "file")
    for change in (
        lambda: files.replace(file, b"new"),
        lambda: files.move(file, str(tmp_path / "moved")),
        lambda: files.remove(file),
        lambda: files.remove_tree(str(tmp_path / "directory")),
        lambda: files.make_directory(str(tmp_path / "more")),
    ):
        with pytest.raises(LogdirInUseError):
            change()
    assert sorted(files.list_names(str(tmp_path))) == ["directory", "file"]
    assert files.read(file) == b"old"
    assert files.is_file(file)
    with files.open(file) as reader:
        assert reader.size == 3


def test_the_check_comes_after_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement is written and synced first: what is guarded is the moment at which it takes effect."""
    order: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, original=original: (order.append(name), original(*args))[1]
        )
    files = guarded(LOCAL, lambda: order.append("check"))
    files.replace(str(tmp_path / "file"), b"data")
    assert order == ["fsync", "check", "replace", "fsync"]
