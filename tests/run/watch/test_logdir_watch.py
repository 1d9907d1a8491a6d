"""A logdir watched: what is there, what has changed, and that nothing it meets on the way is fatal."""

from __future__ import annotations

import doctest
import errno
import gc
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events.chunk_builder import ChunkBuilder
from supervisor_core.events.index import RunIndex
from supervisor_core.events.scan import RecordScan, Window
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.run import DOWNTIME
from supervisor_core.run.watch import logdir_watch
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.run_tracker import RunTracker
from tests.conftest import StillClock
from tests.story.run_file import RunFile


def test_a_run_that_trains(tmp_path: Path, writing, clock) -> None:
    """A run's state, its own name and what was read of its files are in the snapshot, as of the clock."""
    file = writing.RunFile(tmp_path / "a").ready(run="digits").beat(clock.now - 1, steps=50)
    snapshot = LogdirWatch(str(tmp_path), clock=clock).refresh()
    assert (snapshot.logdir, snapshot.at, snapshot.problems, list(snapshot.runs)) == (
        str(tmp_path),
        clock.now,
        (),
        ["a"],
    )
    watched = snapshot.runs["a"]
    assert (watched.run.state, watched.run.step, watched.own_name) == ("running", 50, "digits")
    assert (watched.records, watched.bytes, watched.corrupt_records) == (3, file.path.stat().st_size, 0)
    assert (watched.read_ok, watched.problem, watched.torn_files, watched.skipped_files) == (True, None, 0, 0)


def test_only_what_changes_is_put_together_again(tmp_path: Path, writing, clock) -> None:
    """A run that has ended is handed out as it was; one that runs is folded again, as time alone may end it."""
    writing.RunFile(tmp_path / "done").ready().beat(clock.now - 50, steps=5).stop(clock.now - 40)
    writing.RunFile(tmp_path / "live").ready().beat(clock.now - 1, steps=5)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    before = watch.refresh().runs
    clock.now += 3600
    after = watch.refresh().runs
    assert after["done"] is before["done"]
    assert (before["live"].run.state, after["live"].run.state) == ("running", "lost")


def test_what_an_ended_run_was_understood_from_is_read_again(
    tmp_path: Path, writing, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not held, of thousands of runs it is most of the memory: once something happens to the run, its files are
    read again, once, and the result is that of a new watch."""
    done = writing.RunFile(tmp_path / "done").ready().beat(clock.now - 50, steps=5).stop(clock.now - 40)
    writing.RunFile(tmp_path / "live").ready().beat(clock.now - 1, steps=5)
    read_again, resume = [], RunIndex.resume

    def noted(index: RunIndex, positions: dict) -> None:
        read_again.append(index.name)
        resume(index, positions)

    monkeypatch.setattr(RunIndex, "resume", noted)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    before = watch.refresh().runs
    gc.collect()
    ours = [fold.name for fold in gc.get_objects() if isinstance(fold, RunFold) and fold.name in ("done", "live")]
    assert ours == ["live"]
    clock.now += 3600
    assert watch.refresh().runs["done"] is before["done"]
    assert read_again == []
    for step in (6, 7):
        done.scalar("loss", step, clock.now - 5)
        found = watch.refresh().runs["done"]
        assert found == LogdirWatch(str(tmp_path), clock=clock).refresh().runs["done"]
        assert found.run.last_step == step
    assert read_again == ["done"]


def test_downtime_grows_of_a_run_that_failed_ahead_of_the_reader_s_clock(tmp_path: Path, writing, clock) -> None:
    """A run whose last record is still to come by the reader's clock is down from then on, like any other."""
    writing.RunFile(tmp_path / "a").ready().beat(clock.now - 5, steps=5).stop(clock.now + 1, "error")
    watch = LogdirWatch(str(tmp_path), clock=clock)
    assert watch.refresh().runs["a"].run.state == "failed"
    clock.now += 101
    assert watch.refresh().runs["a"].run.goodput.secs[DOWNTIME] == pytest.approx(100, abs=1.0)


def test_runs_come_and_go(tmp_path: Path, writing, clock) -> None:
    """A run that is deleted leaves the snapshot; one of the same name that comes later knows nothing of it."""
    writing.RunFile(tmp_path / "a").ready(run="old").beat(clock.now, steps=5)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    assert watch.refresh().runs["a"].own_name == "old"
    shutil.rmtree(tmp_path / "a")
    assert watch.refresh().runs == {}
    writing.RunFile(tmp_path / "a", session="s2").ready(run="new").beat(clock.now, steps=1)
    watched = watch.refresh().runs["a"]
    assert (watched.own_name, [session.id for session in watched.run.sessions]) == ("new", ["s2"])


def test_runs_are_chosen_by_name(tmp_path: Path, writing, clock) -> None:
    """Expressions choose runs by their names."""
    for name in ("keep/a", "keep/b", "drop"):
        writing.RunFile(tmp_path / name)
    assert list(LogdirWatch(str(tmp_path), "keep", "b$", clock=clock).refresh().runs) == ["keep/a"]


def test_a_bad_expression_is_the_callers_error(tmp_path: Path) -> None:
    """What is no expression is refused at once, with the expression."""
    with pytest.raises(ValueError, match=r"include is no regular expression .*'\('"):
        LogdirWatch(str(tmp_path), "(")


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_no_logdir_is_a_problem_and_may_come(tmp_path: Path, writing, clock, kind: str) -> None:
    """A logdir that is not there is named among the problems, until it is."""
    logdir = tmp_path / "logs"
    if kind == "file":
        logdir.write_text("x")
    watch = LogdirWatch(str(logdir), clock=clock)
    (problem,) = watch.refresh().problems
    assert problem.startswith(str(logdir))
    logdir.unlink(missing_ok=True)
    writing.RunFile(logdir / "a")
    snapshot = watch.refresh()
    assert (snapshot.problems, list(snapshot.runs)) == ((), ["a"])


def test_an_empty_logdir_is_no_problem(tmp_path: Path, clock) -> None:
    """Where there are no runs yet there is nothing to complain of."""
    snapshot = LogdirWatch(str(tmp_path), clock=clock).refresh()
    assert (snapshot.runs, snapshot.problems) == ({}, ())


def test_a_logdir_that_vanishes(tmp_path: Path, writing, clock) -> None:
    """When the logdir is deleted while it is watched its runs go, and the snapshot says why."""
    writing.RunFile(tmp_path / "logs" / "a")
    watch = LogdirWatch(str(tmp_path / "logs"), clock=clock)
    watch.refresh()
    shutil.rmtree(tmp_path / "logs")
    snapshot = watch.refresh()
    assert (snapshot.runs, snapshot.problems) == ({}, (f"{tmp_path / 'logs'} does not exist.",))


def test_files_that_cannot_be_read_mark_their_run_alone(tmp_path: Path, writing, clock, storage) -> None:
    """A run whose file the storage fails to read is marked, with the reason, and keeps what is known of it."""
    writing.RunFile(tmp_path / "good").ready().beat(clock.now, steps=1)
    bad = writing.RunFile(tmp_path / "bad").ready().beat(clock.now, steps=7)
    watch = LogdirWatch(str(tmp_path), filesystem=storage, clock=clock)
    assert watch.refresh().runs["bad"].read_ok

    def broken(operation: str, path: str) -> None:
        if operation == "open" and path == str(bad.path):
            raise OSError(errno.EIO, "Input/output error")

    storage.fault = broken
    bad.beat(clock.now, steps=8)
    runs = watch.refresh().runs
    assert runs["good"].read_ok and not runs["bad"].read_ok
    assert "Input/output error" in (runs["bad"].problem or "") and str(bad.path) in (runs["bad"].problem or "")
    assert runs["bad"].run.step == 7
    storage.fault = None
    watched = watch.refresh().runs["bad"]
    assert (watched.read_ok, watched.run.step) == (True, 8)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n"], ids=["empty", "lfs"])
def test_what_is_no_events_file_is_no_failure(tmp_path: Path, writing, clock, content: bytes) -> None:
    """Files that only have the name of an events file are counted as skipped; their run counts as read."""
    writing.RunFile(tmp_path / "a")
    (tmp_path / "a" / "events.out.tfevents.1.x").write_bytes(content)
    watched = LogdirWatch(str(tmp_path), clock=clock).refresh().runs["a"]
    assert (watched.read_ok, watched.skipped_files, watched.records) == (True, 1, 1)


def test_damage_is_counted(tmp_path: Path, writing, clock) -> None:
    """Damaged records and torn ends are counted; the run counts as read."""
    file = writing.RunFile(tmp_path / "a").scalar("loss", 1, clock.now)
    size = file.path.stat().st_size
    file.scalar("loss", 2, clock.now).scalar("loss", 3, clock.now)
    data = bytearray(file.path.read_bytes())
    data[size + 20] ^= 0xFF
    file.path.write_bytes(data[:-3])
    watched = LogdirWatch(str(tmp_path), clock=clock).refresh().runs["a"]
    assert (watched.corrupt_records, watched.torn_files, watched.torn_bytes > 0) == (1, 1, True)
    assert (watched.read_ok, watched.records) == (True, 2)


def test_storage_that_raises_what_it_likes(tmp_path: Path, writing, clock, storage) -> None:
    """When a store's client breaks in its own way the runs stay as they were, and the snapshot says why."""
    file = writing.RunFile(tmp_path / "a").ready().beat(clock.now, steps=3)
    watch = LogdirWatch(str(tmp_path), filesystem=storage, clock=clock)
    watch.refresh()

    class ClientError(Exception):
        pass

    def broken(operation: str, path: str) -> None:
        raise ClientError("token expired")

    storage.fault = broken
    snapshot = watch.refresh()
    assert snapshot.runs["a"].run.step == 3
    assert snapshot.problems == (f"{tmp_path} cannot be looked at: ClientError('token expired').",)
    storage.fault = None
    file.beat(clock.now, steps=4)
    snapshot = watch.refresh()
    assert (snapshot.runs["a"].run.step, snapshot.problems) == (4, ())


@pytest.mark.parametrize("method", ["update", "run"])
def test_a_run_that_cannot_be_understood_costs_no_other(
    tmp_path: Path, writing, clock, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A fault in the model of one run marks that run and leaves the others alone."""
    for name in ("good", "bad"):
        writing.RunFile(tmp_path / name).ready().beat(clock.now, steps=3)
    original = getattr(RunFold, method)
    failed = []

    def fragile(self, *arguments):
        if self.name == "bad" and not failed:
            failed.append(True)
            raise RuntimeError("cannot be")
        return original(self, *arguments)

    monkeypatch.setattr(RunFold, method, fragile)
    runs = LogdirWatch(str(tmp_path), clock=clock).refresh().runs
    assert "cannot be" in (runs["bad"].problem or "")
    assert (runs["good"].problem, runs["good"].run.step) == (None, 3)


def test_a_thread_s_past_may_be_forgotten(tmp_path: Path, writing, clock) -> None:
    """Where the ticks and spans that are kept have a bound, they are the newest; counts and the state are whole."""
    file = writing.RunFile(tmp_path / "a").ready()
    for number in range(1, 10):
        at = clock.now - 50 + number
        thread = {"name": "summary", "state": "idle" if number % 2 else "overdue", "ticks": number, "last_tick_at": at}
        file.beat(at, steps=number, threads=(thread,))
    (thread,) = LogdirWatch(str(tmp_path), kept_ticks=2, clock=clock).refresh().runs["a"].run.threads
    assert (thread.ticks, thread.state, thread.last_tick_at) == (9, "idle", clock.now - 41)
    assert [tick.at for tick in thread.seen_ticks] == [clock.now - 42, clock.now - 41]
    assert [span.since for span in thread.spans] == [clock.now - 43, clock.now - 42, clock.now - 41]


def test_progress_is_reported(tmp_path: Path, writing, clock) -> None:
    """After each run the caller hears how many are read, and of how many."""
    for name in ("a", "b"):
        writing.RunFile(tmp_path / name)
    calls = []
    LogdirWatch(str(tmp_path), clock=clock).refresh(lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]


def test_checkpoints_are_joined_with_the_disk(tmp_path: Path, writing, clock) -> None:
    """A checkpoint is on disk while its index file is, wherever its writer thought it was; deletions are seen."""
    file = writing.RunFile(tmp_path / "a").ready()
    written = ("/elsewhere/model.ckpt-1", r"C:\runs\model.ckpt-2", "model.ckpt-3", "/elsewhere/model.ckpt-4")
    for step, path in enumerate(written, 1):
        file.beat(clock.now - 10 + step, steps=step).saved(clock.now - 10 + step, path)
        (tmp_path / "a" / f"model.ckpt-{step}.index").touch()
    file.stop(clock.now)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    assert [saved.on_disk for saved in watch.refresh().runs["a"].run.checkpoints] == [True] * 4
    (tmp_path / "a" / "model.ckpt-1.index").unlink()
    os.utime(tmp_path / "a", ns=(1, 1))  # a directory's time may stand still within a tick of the clock
    assert [saved.on_disk for saved in watch.refresh().runs["a"].run.checkpoints] == [False, True, True, True]


def test_the_example_in_the_code_works() -> None:
    """What the docstring shows is what happens."""
    result = doctest.testmod(logdir_watch)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_each_file_is_read_in_isolation(tmp_path: Path, writing, clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that fails on one file marks that run as not read, each time; the runs after it stay exact and alive."""
    for name in ("a", "b", "c"):
        session = "odd one" if name == "b" else "s"
        writing.RunFile(tmp_path / name, session=session).ready().beat(clock.now - 1, steps=5)
    later = writing.RunFile(tmp_path / "c", session="s2").ready()
    walk = RecordScan.run

    def fails_on_b(self: RecordScan, window: Window, builder: ChunkBuilder, stop: int | None) -> bool:
        if b"odd one" in window.bytes(0, window.size):
            raise RecursionError("maximum recursion depth exceeded")
        return walk(self, window, builder, stop)

    monkeypatch.setattr(RecordScan, "run", fails_on_b)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    for step in (7, 9):
        later.beat(clock.now, steps=step)
        snapshot = watch.refresh()
        assert {name: run.read_ok for name, run in snapshot.runs.items()} == {"a": True, "b": False, "c": True}
        assert "recursion" in (snapshot.runs["b"].problem or "")
        assert snapshot.runs["c"].run.step == step


def test_what_a_broken_look_did_not_reach_was_not_read(
    tmp_path: Path, writing, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the look itself breaks off, the runs that it had not come to count as not read."""
    for name in ("a", "b", "c"):
        writing.RunFile(tmp_path / name).ready().beat(clock.now - 1, steps=5)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    watch.refresh()

    def fails(self: RunIndex, most_bytes: int | None = None) -> None:
        if self.name == "b":
            raise RuntimeError("a client of an object store")
        yield from ()

    monkeypatch.setattr(RunIndex, "pieces", fails)
    snapshot = watch.refresh()
    assert {name: run.read_ok for name, run in snapshot.runs.items()} == {"a": True, "b": False, "c": False}
    monkeypatch.undo()
    assert all(run.read_ok for run in watch.refresh().runs.values())


class _Ticking(StillClock):
    """A clock by which everything takes a second."""

    ticks = 0.0

    def monotonic(self) -> float:
        self.ticks += 1.0
        return self.now + self.ticks


def test_a_flood_of_one_owners_runs_holds_up_no_others(
    tmp_path: Path, writing, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All looks but the first have a limit, in which each owner's runs have their turns. What they do not come to is
    read later, those first that have waited, and is a problem if that is too late."""
    monkeypatch.setattr(RunIndex, "owner", property(lambda self: self.name[:4]))
    names = [*(f"evil-{number:02}" for number in range(20)), "ours"]
    files = {name: writing.RunFile(tmp_path / name).ready().beat(clock.now - 1, steps=5) for name in names}
    watch = LogdirWatch(str(tmp_path), clock=_Ticking(clock.now))
    watch.refresh()
    for name in names:
        files[name].beat(clock.now, steps=7)
    behind = []
    for _ in range(10):
        snapshot = watch.refresh()
        assert snapshot.runs["ours"].run.step == 7 and snapshot.runs["ours"].read_ok
        behind.append(sum(seen.run.step != 7 for seen in snapshot.runs.values()))
    assert behind == sorted(behind, reverse=True) and behind[0] > 10 and behind[-1] == 0
    for name in names:
        files[name].beat(clock.now, steps=9)
    monkeypatch.setattr(logdir_watch, "BEHIND_SECS", 1.0)
    (problem,) = watch.refresh().problems
    assert "runs as of an earlier look" in problem


def test_a_look_that_is_suspended_has_read_the_runs(
    tmp_path: Path, writing, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read is as of this look, however long it takes: no problem."""
    writing.RunFile(tmp_path / "run").ready().beat(clock.now, steps=5)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    watch.refresh()
    real = RunTracker.look_around

    def suspended(tracker: RunTracker, *now: Any) -> bool:
        clock.now += 600
        return real(tracker, *now)

    monkeypatch.setattr(RunTracker, "look_around", suspended)
    assert list(watch.refresh().problems) == []


@pytest.mark.parametrize("ends", [True, False], ids=["over", "live"])
def test_a_damaged_file_is_said(tmp_path: Path, clock: Any, ends: bool) -> None:
    """Of a run that is over, too: its history has a hole. A day after its end that is only an info."""
    file = RunFile(tmp_path, clock.now).ready()
    for step in range(5):
        file.scalar("loss", step, clock.now + step)
    if ends:
        file.stop(clock.now + 5)
    data = bytearray(file.path.read_bytes())
    data[data.index(b"loss") : data.index(b"loss") + 4] = b"\xff" * 4
    file.path.write_bytes(bytes(data))
    watched = LogdirWatch(str(tmp_path), clock=clock).refresh().runs["."]
    found = [each for each in findings(watched, clock.now + 10) if each.kind == "read_error"]
    assert [each.severity for each in found] == ["warn"]
    assert "does not match its checksum" in found[0].text
    assert found[0].action == f"tb-supervisor verify -- {tmp_path}"
    later = [each for each in findings(watched, clock.now + 90_000) if each.kind == "read_error"]
    assert [each.severity for each in later] == ["info" if ends else "warn"]
