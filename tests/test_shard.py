"""Shards: each run is in exactly one of them, wherever its directory is, under whatever name."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from supervisor_core.base.shard import MAX_SHARDS, RunShard
from supervisor_core.events.directory import Directory
from supervisor_core.events.index import LogdirIndex
from tests.cases import each

COUNT = 7


def add_run(directory: Path, *starts: int) -> Path:
    """A run with an events file from each of these seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    for start in starts:
        (directory / f"events.out.tfevents.{start}.node-1.{start % 97}").touch()
    return directory


def shard_of(directory: Path) -> int:
    """The one shard that has the run in a directory."""
    listing = Directory(str(directory))
    listing.refresh()
    (found,) = [index for index in range(COUNT) if RunShard(index, COUNT).has(listing.first_event_file or "")]
    return found


def test_each_run_is_read_by_exactly_one(tmp_path: Path) -> None:
    """Together the shards read every run; each knows the names of the others' runs."""
    for number in range(60):
        add_run(tmp_path / f"team-{number % 3}" / f"run-{number}", 1_700_000_000 + number)
    every = set(LogdirIndex(str(tmp_path)).refresh().changed) | _names(LogdirIndex(str(tmp_path)))
    parts = [LogdirIndex(str(tmp_path), shard=RunShard(index, 3)) for index in range(3)]
    names = [_names(part) for part in parts]
    assert set.union(*names) == every and sum(map(len, names)) == len(every) == 60
    assert all(names)
    assert [set(part.elsewhere) for part in parts] == [every - found for found in names]


def _names(index: LogdirIndex) -> set[str]:
    index.refresh()
    return set(index.runs)


def test_the_parts_are_about_equal_and_few_runs_move() -> None:
    """With one shard more, only what the new one takes changes its shard."""
    names = [f"events.out.tfevents.{1_700_000_000 + 13 * number}.node-{number % 64}.0" for number in range(2_000)]

    def parts(count: int) -> list[int]:
        return [next(index for index in range(count) if RunShard(index, count).has(name)) for name in names]

    eight, nine = parts(8), parts(9)
    assert all(200 <= size <= 300 for size in Counter(eight).values())
    moved = [new for old, new in zip(eight, nine, strict=True) if old != new]
    assert set(moved) == {8} and len(moved) < 300


@each("number", range(12))
def test_a_run_keeps_its_shard(tmp_path: Path, number: int) -> None:
    """When it is renamed, goes on, is copied, is linked to; and while a copy is being written."""
    start = 1_700_000_000 + number
    run = add_run(tmp_path / "run", start)
    shard = shard_of(run)
    run = run.rename(tmp_path / "renamed")
    assert shard_of(run) == shard
    add_run(run, start + 10_000_000)
    assert shard_of(run) == shard
    assert shard_of(Path(shutil.copytree(run, tmp_path / "copy"))) == shard
    (tmp_path / "link").symlink_to(run)
    assert shard_of(tmp_path / "link") == shard
    (run / f".events.out.tfevents.{start}.node-1.Xa3b9Q").touch()  # as rsync calls it
    assert shard_of(run) == shard


@each("text, shard", [("0/1", (0, 1)), (" 2/3 ", (2, 3)), ("tb-supervisor-exporter-11/12", (11, 12))])
def test_texts(text: str, shard: tuple[int, int]) -> None:
    """A number, or a pod's name that ends in one."""
    assert RunShard.parse(text) == RunShard(*shard)


@each(
    "text, said",
    [
        ("", "expected I/N"),
        ("1", "expected I/N"),
        ("a/3", "expected I/N"),
        ("1/2/3", "expected I/N"),
        ("3/3", "of 3 shards the first is 0 and the last 2, not 3"),
        ("0/0", "the number of shards is 0; expected 1 to 1,000"),
        (f"0/{MAX_SHARDS + 1}", "expected 1 to 1,000"),
    ],
)
def test_texts_that_are_none(text: str, said: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=said):
        RunShard.parse(text)
