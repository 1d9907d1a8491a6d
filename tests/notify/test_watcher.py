"""The watcher: what it sees, what it hands on, and when it is blind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events import EventsWriter
from supervisor_core.notify.changes import Changes
from supervisor_core.notify.event import Event
from supervisor_core.notify.watcher import LogdirLooks, Looked, Watcher
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock


def name(logdir: str, run: str) -> str:
    """A run's name in these tests."""
    return f"{Path(logdir).name}/{run}"


class Slow:
    """A logdir whose looks hang while `answers` is not set."""

    def __init__(self, logdir: Path) -> None:
        self._watch = LogdirWatch(str(logdir))
        self.logdir = str(logdir)
        self.answers = threading.Event()
        self.answers.set()
        self.closed = False

    def refresh(self, on_progress: object = None) -> Any:
        """Look."""
        assert self.answers.wait(60.0)
        return self._watch.refresh()

    def close(self) -> None:
        """Note it."""
        self.closed = True


@pytest.fixture
def logdirs(tmp_path: Path) -> list[Path]:
    """Two logdirs with one run each."""
    found = [tmp_path / "one", tmp_path / "two"]
    for logdir in found:
        write(logdir / "a")
    return found


def write(directory: Path) -> None:
    """Write a run."""
    with EventsWriter(str(directory)) as writer:
        writer.scalar("loss", 1.0, 7)


def test_the_runs_of_all_logdirs_have_names(logdirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as the caller names them, and the same objects as long as those of the logdirs are."""
    watches = [LogdirWatch(str(logdir)) for logdir in logdirs]
    for watch in watches:
        found = watch.refresh()
        monkeypatch.setattr(watch, "refresh", lambda found=found: found)
    looks = LogdirLooks(watches, name)
    first, second = looks.look(), looks.look()
    assert list(first.runs) == ["one/a", "two/a"] and first.sees and not first.problems and not first.unread
    assert [found.run.name for found in first.runs.values()] == ["one/a", "two/a"]
    assert all(second.runs[found] is first.runs[found] for found in first.runs)


def test_a_logdir_that_hangs_holds_up_no_other(logdirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs are unread, then unreachable, until it answers; the watcher is blind meanwhile."""
    slow, clock = Slow(logdirs[0]), StillClock(1000.0)
    looks = LogdirLooks([slow, LogdirWatch(str(logdirs[1]))], name, clock=clock)  # type: ignore[list-item]
    assert looks.look().sees
    slow.answers.clear()
    waited_for = looks._logdirs[0]
    wait = waited_for.wait
    monkeypatch.setattr(waited_for, "wait", lambda secs: wait(0.0))
    write(logdirs[1] / "b")
    looked = looks.look()
    assert set(looked.runs) == {"one/a", "two/a", "two/b"}
    assert looked.unread == {"one/a"} and not looked.runs["one/a"].unreachable and not looked.sees
    assert looked.problems == (f"{logdirs[0]} does not answer.",)
    clock.now += 400.0
    looked = looks.look()
    assert looked.runs["one/a"].unreachable and not looked.unread
    looks.close()
    assert not slow.closed
    slow.answers.set()
    monkeypatch.setattr(waited_for, "wait", wait)
    looked = looks.look()
    assert looked.sees and not looked.problems and not looked.runs["one/a"].unreachable
    looks.close()
    assert slow.closed


def test_a_logdir_that_is_gone(logdirs: list[Path], tmp_path: Path) -> None:
    """The watcher is blind: without the directory, with an empty one in its place, not with a new run in it."""
    looks = LogdirLooks([LogdirWatch(str(logdirs[0]))], name)
    assert looks.look().sees
    logdirs[0].rename(tmp_path / "away")
    assert not looks.look().sees
    logdirs[0].mkdir()
    looked = looks.look()
    assert not looked.sees and "is another directory than before, without runs: is it mounted?" in looked.problems[0]
    write(logdirs[0] / "b")
    assert looks.look().sees


def test_a_logdir_without_runs_is_seen(tmp_path: Path) -> None:
    """Nothing has begun yet; one that does not exist is not seen."""
    assert LogdirLooks([LogdirWatch(str(tmp_path))], name).look().sees
    assert not LogdirLooks([LogdirWatch(str(tmp_path / "later"))], name).look().sees


def test_a_look_that_fails_is_blind(logdirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours must not go on for days with a ping: what was seen before counts for some minutes."""
    slow, clock = Slow(logdirs[0]), StillClock(1000.0)
    looks = LogdirLooks([slow], name, clock=clock)  # type: ignore[list-item]
    assert looks.look().sees
    monkeypatch.setattr(slow, "answers", None)
    looked = looks.look()
    assert not looked.sees and looked.problems == (f"{logdirs[0]} could not be looked at.",)
    assert looked.unread == {"one/a"} and not looked.runs["one/a"].unreachable
    clock.now += 400.0
    assert looks.look().runs["one/a"].unreachable


def test_a_look_that_cannot_begin_is_blind(logdirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of a thread: the next one is begun."""
    looks = LogdirLooks([LogdirWatch(str(logdirs[0]))], name)
    assert looks.look().sees

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        looked = looks.look()
    assert not looked.sees and looked.unread == {"one/a"}
    assert looks.look().sees


def test_a_look_that_breaks_off_is_blind(logdirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that fails in the middle is a problem, and no ping."""
    watch = LogdirWatch(str(logdirs[0]))
    looks = LogdirLooks([watch], name)
    assert looks.look().sees

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("as asked")

    monkeypatch.setattr(watch._index, "refresh", fails)
    looked = looks.look()
    assert not looked.sees and "as asked" in looked.problems[0]


@pytest.fixture
def watcher() -> Callable[..., tuple[Watcher, list[Sequence[Event]], list[str]]]:
    """Returns a function that returns a watcher, what it hands on, and its pings."""

    def make(look: Callable[[], Looked]) -> tuple[Watcher, list[Sequence[Event]], list[str]]:
        events: list[Sequence[Event]] = []
        pings: list[str] = []
        return Watcher(look, Changes(), events.append, seen=lambda: pings.append("ping")), events, pings

    return make


def test_no_error_of_a_look_ends_it(watcher: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """The next look goes on; there is a ping after those that saw everything only."""
    looks: list[Any] = [OSError("as asked"), Looked(at=1.0, sees=False, problems=("gone",)), Looked(at=2.0)]
    stop = threading.Event()

    def look() -> Looked:
        found = looks.pop(0)
        if not looks:
            stop.set()
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    made, events, pings = watcher(look)
    made._interval_secs = 0.0
    made.run(stop)
    assert not looks and pings == ["ping"] and len(events) == 2
    said = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert said == ["A look has failed", "gone"]


def test_it_ends_when_it_is_over(watcher: Callable[..., Any]) -> None:
    """Who runs it decides after each look."""
    made, events, _ = watcher(lambda: Looked(at=1.0))
    made._interval_secs = 0.0
    seen: list[Looked | None] = []
    made.run(threading.Event(), lambda looked: seen.append(looked) or len(seen) == 3)
    assert len(seen) == len(events) == 3
