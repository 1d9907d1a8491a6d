from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor_core.events import EventsWriter
from supervisor_core.events.index import LogdirIndex


def write(directory: Path, *steps: int, name: str | None = None) -> str:
    """Write an events file with a scalar at each step; return its path."""
    with EventsWriter(str(directory)) as writer:
        for step in steps:
            writer.scalar("loss", float(step), step)
        writer.flush()
        path = writer.path
    assert path is not None
    if name is not None:
        os.rename(path, directory / name)
        path = str(directory / name)
    return path


def steps(chunks: list) -> list[int]:
    """The steps of the one tag, in order."""
    return [step for chunk in chunks if "loss" in chunk.scalars for step in chunk.scalars["loss"].steps.tolist()]


def test_runs_are_named_as_tensorboard_names_them(tmp_path: Path) -> None:
    """The logdir itself is a dot, anything below it a relative path; a directory without events is no run."""
    write(tmp_path, 1)
    write(tmp_path / "a" / "b", 2)
    write(tmp_path / "[x] 试验", 3)
    (tmp_path / "empty").mkdir()
    index = LogdirIndex(str(tmp_path))
    change = index.refresh()
    assert change.added == tuple(index.runs) == (".", "[x] 试验", "a/b")
    assert {name: steps(chunks) for name, chunks in change.changed.items()} == {".": [1], "[x] 试验": [3], "a/b": [2]}


def test_a_refresh_brings_only_what_is_new(tmp_path: Path) -> None:
    """Runs that did not change are not among the changed; a run that grew brings its new points alone."""
    write(tmp_path / "a", 1)
    with EventsWriter(str(tmp_path / "b")) as writer:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
        index = LogdirIndex(str(tmp_path))
        index.refresh()
        assert index.refresh().changed == {}
        writer.scalar("loss", 1.0, 2)
        writer.flush()
        change = index.refresh()
    assert (change.added, change.removed) == ((), ())
    assert {name: steps(chunks) for name, chunks in change.changed.items()} == {"b": [2]}


def test_runs_come_and_go(tmp_path: Path) -> None:
    """A new directory is added, a deleted one removed."""
    write(tmp_path / "a", 1)
    index = LogdirIndex(str(tmp_path))
    index.refresh()
    path = write(tmp_path / "b", 1)
    assert index.refresh().added == ("b",)
    os.unlink(path)
    assert index.refresh().removed == ("b",)
    assert tuple(index.runs) == ("a",)


@pytest.mark.parametrize(("include", "exclude", "names"), [("^a", None, ["a", "ab"]), (None, "b$", ["a"])])
def test_runs_are_chosen_by_name(tmp_path: Path, include: str | None, exclude: str | None, names: list[str]) -> None:
    """Expressions match anywhere in a run's name."""
    for name in ("a", "ab", "b"):
        write(tmp_path / name, 1)
    index = LogdirIndex(str(tmp_path), include=include, exclude=exclude)
    index.refresh()
    assert list(index.runs) == names
