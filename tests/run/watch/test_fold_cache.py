"""The cache of what was read: what it saves, and all the ways in which it must not be believed."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run import fold_cache, fold_state
from supervisor_core.run.fold_cache import FoldCache
from supervisor_core.run.logdir_watch import LogdirWatch
from supervisor_core.run.snapshot import LogdirSnapshot

Look = Callable[..., LogdirSnapshot]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where the cache is."""
    return tmp_path / "cache"


@pytest.fixture
def look(tmp_path: Path, cache: Path, clock) -> Look:
    """Looks at the logdir as a new process does: with the cache, or without."""

    def looking(*, cached: bool = True, **how: Any) -> LogdirSnapshot:
        how = {"clock": clock, "kept_ticks": 1, **how}
        watch = LogdirWatch(str(tmp_path / "logs"), cache=str(cache) if cached else None, **how)
        found = watch.refresh()
        watch.close()
        return replace(found, runs={name: replace(run, free_bytes=None) for name, run in found.runs.items()})

    return looking


@pytest.fixture
def files(tmp_path: Path, writing, clock) -> dict[str, Any]:
    """A run that has ended, one that goes on, and one of another writer; each by its events file."""
    logs = tmp_path / "logs"
    over = writing.RunFile(logs / "over").ready().beat(clock.now - 50, steps=5)
    over.saved(clock.now - 45, "model.ckpt-5").stop(clock.now - 40)
    live = writing.RunFile(logs / "live").ready().beat(clock.now - 20, steps=7)
    other = writing.RunFile(logs / "other").scalar("loss", 1, clock.now - 30).scalar("loss", 2, clock.now - 20)
    for file in (over, live, other):
        os.utime(file.path, (clock.now - 20, clock.now - 20))
    return {"over": over, "live": live, "other": other}


def opened(storage, tmp_path: Path) -> list[str]:
    """The runs whose files were opened."""
    return [os.path.basename(os.path.dirname(path)) for operation, path in storage.calls if operation == "open"]


def the_file(cache: Path) -> Path:
    """The file of the cache."""
    [path] = cache.glob("*.sqlite")
    return path


def test_only_what_is_new_is_read(files, look: Look, storage, tmp_path: Path, clock) -> None:
    """A second process opens no file but those that have grown, and finds what one finds that reads all."""
    assert look() == look(cached=False)
    files["live"].beat(clock.now - 5, steps=9)
    found = look(filesystem=storage)
    assert opened(storage, tmp_path) == ["live"]
    assert found == look(cached=False)
    assert found.runs["live"].run.step == 9
    assert found.runs["over"].run.state == "completed"


def test_a_run_that_has_ended_goes_on(files, look: Look, clock, writing, tmp_path: Path) -> None:
    """A later session of a run whose result alone was fetched is added to what the cache has of its events."""
    look()
    again = writing.RunFile(tmp_path / "logs" / "over", clock.now - 10, session="s2").ready(attempt=2)
    again.beat(clock.now - 1, steps=9)
    found = look()
    assert found == look(cached=False)
    assert [session.attempt for session in found.runs["over"].run.sessions] == [1, 2]


def test_another_process_has_replaced_it_meanwhile(files, tmp_path: Path, cache: Path, clock, look: Look) -> None:
    """A process that has fetched a result does not add what is new to the later events of another one: it reads the
    run again."""
    look()
    first = LogdirWatch(str(tmp_path / "logs"), kept_ticks=1, cache=str(cache), clock=clock)
    first.refresh()
    files["over"].scalar("late", 1, clock.now - 3)
    look()
    files["over"].scalar("later", 2, clock.now - 2)
    found = first.refresh().runs["over"]
    first.close()
    assert found == look(cached=False).runs["over"]
    assert found.run.scalar_tags == 2


@pytest.mark.parametrize("how", ["cut", "another", "rewritten", "head"])
def test_files_that_are_not_the_same(files, look: Look, how: str, clock, storage) -> None:
    """A file that was cut, replaced by another one, or written again under its inode is read from its start."""
    look()
    path = files["over"].path
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[:-20])
    elif how == "another":
        path.rename(path.with_suffix(".old"))
        path.write_bytes(data)
        path.with_suffix(".old").unlink()
    elif how == "rewritten":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    os.utime(path, (clock.now, clock.now))
    found, whole = look().runs["over"], look(cached=False).runs["over"]
    problems = [problem.kind for file in found.files for problem in file.problems]
    assert "replaced" in problems
    assert (found.run.state, found.run.sessions, found.records) == (
        whole.run.state,
        whole.run.sessions,
        whole.records,
    )


def test_devices_are_numbered_again(files, look: Look, storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start of the machine, files with the same inodes and bytes are the same; nothing but these is read."""
    look()
    real = storage.stat

    def elsewhere(path: str) -> Any:
        found = real(path)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]], {"st_mtime_ns": found.st_mtime_ns})

    monkeypatch.setattr(storage, "stat", elsewhere)
    found = look(filesystem=storage)
    assert [run.run.state for run in found.runs.values()] == [run.run.state for run in look(cached=False).runs.values()]
    assert all(not file.problems for run in found.runs.values() for file in run.files)


@pytest.mark.parametrize("kind", ["cut", "no database", "flipped", "empty"])
def test_a_torn_cache(files, look: Look, cache: Path, kind: str, caplog: pytest.LogCaptureFixture, clock) -> None:
    """A damaged cache is deleted or passed over, with one line in the log; the runs are read again, and kept again."""
    look()
    path = the_file(cache)
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "no database": b"x" * len(data),
            "flipped": bytes(byte ^ 0x5A if index >= 4096 else byte for index, byte in enumerate(data)),
            "empty": b"",
        }[kind]
    )
    with caplog.at_level(logging.WARNING):
        found = look()
    assert found == look(cached=False)
    assert len(caplog.records) == (kind != "empty")
    caplog.clear()
    assert look() == look(cached=False)
    assert not caplog.records


def test_a_damaged_entry(files, look: Look, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An entry whose checksum is wrong, or that is none of ours, costs a line, and the run is read again."""
    look()
    for column, value in (("last", b"x"), ("head", b"\x78\x01"), ("fold", b"")):
        with sqlite3.connect(the_file(cache)) as database:
            database.execute(
                f"UPDATE runs SET {column} = ? WHERE run = ?", (value, b"live" if column == "fold" else b"over")
            )
        database.close()
        caplog.clear()
        assert look() == look(cached=False)
        assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_other_code(files, look: Look, cache: Path, storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other code has understood is not believed; its file is deleted once nothing writes it any more."""
    look()
    old = the_file(cache)
    monkeypatch.setattr(fold_cache, "layout", lambda: "0123456789abcdef")
    assert look(filesystem=storage) == look(cached=False)
    assert sorted(opened(storage, tmp_path)) == ["live", "other", "over"]
    assert old in cache.iterdir()
    os.utime(old, (1.0, 1.0))
    look()
    assert the_file(cache).name.endswith("0123456789abcdef.sqlite")


def test_the_layout_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any change of the code that folds makes another layout."""
    own = fold_state.layout()
    assert len(own) == 16
    monkeypatch.setattr(fold_state, "_FOLDING", ("run",))
    assert fold_state.layout.__wrapped__() != own


@pytest.mark.parametrize("what", ["mode", "link", "file", "linked file", "hard link"])
def test_what_others_could_write(
    files, look: Look, cache: Path, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory to which others have access, a link, or a file with another name is not used, and says why once."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    if what == "mode":
        cache.mkdir(0o700)
        cache.chmod(0o750)
    elif what == "link":
        cache.symlink_to(elsewhere)
    elif what == "file":
        cache.touch()
    else:
        look()
        path = the_file(cache)
        path.rename(elsewhere / "kept")
        path.symlink_to(elsewhere / "kept") if what == "linked file" else os.link(elsewhere / "kept", path)
    assert look() == look(cached=False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is not used" in caplog.text
    assert not list(elsewhere.glob("*.sqlite"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["directory", "file"])
def test_of_another_user(files, look: Look, cache: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """What belongs to another user is not used."""
    look()
    os.chown(cache if what == "directory" else the_file(cache), 65534, 65534)
    assert look() == look(cached=False)
    assert len(caplog.records) == 1


def test_a_full_disk(
    files, tmp_path: Path, cache: Path, clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written costs one warning, and no look; it is written once there is room."""
    monkeypatch.setattr(fold_cache, "MOST_DISK_BYTES", 8192)
    watch = LogdirWatch(str(tmp_path / "logs"), kept_ticks=1, cache=str(cache), clock=clock)
    for _ in range(3):
        assert len(watch.refresh().runs) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "full" in caplog.text
    assert watch._cache is not None and watch._cache._database is not None
    watch._cache._database.execute("PRAGMA max_page_count = 1000000")
    clock.now += fold_cache.AGAIN_SECS
    watch.refresh()
    watch.close()
    kept = FoldCache(str(cache), str(tmp_path / "logs"), 1, clock)
    assert all(kept.kept(name) is not None for name in ("over", "live", "other"))
    kept.close()


def test_a_cache_that_is_being_written(
    files, look: Look, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While another process writes, nothing waits for long, and nothing is lost but what would have been kept."""
    monkeypatch.setattr(fold_cache, "BUSY_SECS", 0.0)
    look()
    other = sqlite3.connect(the_file(cache), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert look() == look(cached=False)
    other.execute("ROLLBACK")
    other.close()
    assert not caplog.records


def test_not_every_look_writes(files, tmp_path: Path, cache: Path, clock, look: Look) -> None:
    """A run that goes on is written every two minutes, and in the end; one that ends, at once."""
    watch = LogdirWatch(str(tmp_path / "logs"), kept_ticks=1, cache=str(cache), clock=clock)
    watch.refresh()
    assert watch._cache is not None
    written: list[str] = []
    keep = watch._cache.keep

    def kept(runs: Any, most: float = 0.0) -> int:
        listed = list(runs)
        written.extend(name for name, *_ in listed)
        return keep(listed, most)

    watch._cache.keep = kept  # type: ignore[method-assign]
    for number in range(9):
        clock.now += 15.0
        files["live"].beat(clock.now, steps=10 + number)
        watch.refresh()
    assert written == ["live"]
    files["live"].stop(clock.now)
    watch.refresh()
    assert written == ["live", "live"]
    watch.refresh()
    watch.close()
    assert written == ["live", "live"]


def test_runs_that_are_gone(files, look: Look, cache: Path, tmp_path: Path, clock) -> None:
    """What was deleted is deleted from the cache at the next start, unless that looks at some runs only."""
    look()
    files["over"].path.unlink()
    look(include="live")
    kept = FoldCache(str(cache), str(tmp_path / "logs"), 1, clock)
    assert kept.kept("over") is not None
    look()
    assert kept.kept("over") is None
    assert kept.kept("live") is not None
    kept.close()


def test_names_that_are_no_text(look: Look, writing, clock, tmp_path: Path) -> None:
    """Directories whose names are not Unicode are kept like others."""
    directory = tmp_path / "logs" / os.fsdecode(b"caf\xe9")
    writing.RunFile(directory).ready().beat(clock.now - 50, steps=5).stop(clock.now - 40)
    look()
    assert look() == look(cached=False)
