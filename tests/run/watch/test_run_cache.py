"""The cache of ended runs: what it saves, and all the ways in which it must not be believed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.model.snapshot import LogdirSnapshot
from supervisor_core.run.watch import run_cache
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.run_cache import RunCache

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
    """The only run that is kept."""
    [path] = cache.glob("*/*")
    return path


def test_only_live_runs_are_read(files, look: Look, storage, tmp_path: Path, clock) -> None:
    """A second process opens no file of what has ended, and finds what one finds that reads all."""
    assert look() == look(cached=False)
    files["live"].beat(clock.now - 5, steps=9)
    found = look(filesystem=storage)
    assert set(opened(storage, tmp_path)) == {"live", "other"}
    assert found == look(cached=False)
    assert found.runs["live"].run.step == 9
    assert found.runs["over"].run.state == "completed"


def test_a_run_that_has_ended_goes_on(files, look: Look, clock, writing, tmp_path: Path) -> None:
    """A later session of a run whose result was fetched is added to all of its events, and it is kept again."""
    look()
    again = writing.RunFile(tmp_path / "logs" / "over", clock.now - 10, session="s2").ready(attempt=2)
    again.beat(clock.now - 1, steps=9)
    found = look()
    assert found == look(cached=False)
    assert [session.attempt for session in found.runs["over"].run.sessions] == [1, 2]
    again.stop(clock.now)
    assert look() == look() == look(cached=False)


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
    assert look().runs["over"] == look(cached=False).runs["over"]


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


@pytest.mark.parametrize("value", [b"x", b"", b"\x78\x01", zlib.compress(b"\x80"), None])
def test_a_damaged_file(files, look: Look, cache: Path, value: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    """One whose checksum is wrong, or that is none of ours, costs a line; the run is read again, and kept again."""
    look()
    data = the_file(cache).read_bytes()
    the_file(cache).write_bytes(data[: len(data) // 2] if value is None else value)
    assert look() == look(cached=False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    assert look() == look(cached=False)
    assert not caplog.records


def test_other_code(files, look: Look, cache: Path, storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other code has understood is not believed."""
    look()
    monkeypatch.setattr(run_cache, "code_version", lambda: 7)
    assert look(filesystem=storage) == look(cached=False)
    assert {"live", "other", "over"} == set(opened(storage, tmp_path))


@pytest.mark.parametrize("what", ["mode", "link", "file", "linked run"])
def test_what_others_could_write(
    files, look: Look, cache: Path, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory to which others have access, or a link, is not used, and says why once; a linked run is read
    again."""
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
        path.symlink_to(elsewhere / "kept")
        (elsewhere / "kept").write_bytes(b"x")
    assert look() == look(cached=False)
    assert ["is not used" in record.message for record in caplog.records] == [True] * (what != "linked run")
    assert [path.name for path in elsewhere.iterdir()] == ["kept"] * (what == "linked run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_of_another_user(files, look: Look, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What belongs to another user is not used."""
    look()
    os.chown(cache, 65534, 65534)
    assert look() == look(cached=False)
    assert len(caplog.records) == 1


def test_a_full_disk(
    files, look: Look, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cache: Path
) -> None:
    """What cannot be written costs one warning, and no look."""

    def full(*paths: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert look() == look(cached=False)
    assert ["No space left" in record.message for record in caplog.records] == [True]
    assert not list(cache.glob("*/*"))


def test_a_run_is_written_once_it_has_ended(files, tmp_path: Path, cache: Path, clock, look: Look) -> None:
    """One that goes on never is; one that has ended is not written again."""
    watch = LogdirWatch(str(tmp_path / "logs"), kept_ticks=1, cache=str(cache), clock=clock)

    def rows() -> list[tuple[str, int]]:
        return sorted((path.name, path.stat().st_ino) for path in cache.glob("*/*"))

    watch.refresh()
    assert len(rows()) == 1
    files["live"].stop(clock.now)
    watch.refresh()
    found = rows()
    assert len(found) == 2
    clock.now += 60
    watch.refresh()
    watch.close()
    assert rows() == found


def test_runs_that_are_gone(files, look: Look, cache: Path, tmp_path: Path, clock) -> None:
    """What was deleted is deleted from the cache at the next start, unless that looks at some runs only."""
    files["live"].stop(clock.now)
    look()
    files["over"].path.unlink()
    look(include="live")
    kept = RunCache(str(cache), str(tmp_path / "logs"), 1)
    assert kept.kept("over") is not None
    look()
    assert kept.kept("over") is None
    assert kept.kept("live") is not None


def test_names_that_are_no_text(look: Look, writing, clock, tmp_path: Path) -> None:
    """Directories whose names are not Unicode are kept like others."""
    directory = tmp_path / "logs" / os.fsdecode(b"caf\xe9")
    writing.RunFile(directory).ready().beat(clock.now - 50, steps=5).stop(clock.now - 40)
    look()
    assert look() == look(cached=False)
