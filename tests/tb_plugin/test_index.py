from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.base.errors import EventsError
from supervisor_core.base.log import command_line
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from tb_plugin import index as index_module
from tb_plugin.index import IDLE_SECS, JUDGED_AGAIN_SECS, MOST_REST_SECS, Index
from tb_plugin.logdirs import Logdir
from tests.conftest import StillClock
from tests.tb_plugin.conftest import NOW, FakeWatch, a_run, a_session, changed, watched

PATIENCE_SECS = 30.0


def index_of(*logdirs: Logdir, watch: Callable[[str], FakeWatch], clock: StillClock | None = None) -> Index:
    """An index that looks again at once."""
    return Index(logdirs, 0.001, watch, clock or StillClock(NOW))


class Gate(FakeWatch):
    """Counts its refreshes, and lets somebody wait for them."""

    def __init__(self) -> None:
        super().__init__(watched(a_run()))
        self.refreshed = threading.Semaphore(0)

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        snapshot = super().refresh(on_progress)
        self.refreshed.release()
        return snapshot


def test_without_requests_nothing_is_read() -> None:
    """After ten minutes without a question the thread rests; the next question wakes it."""
    gate, clock = Gate(), StillClock(NOW)
    index = index_of(Logdir("/runs"), watch=lambda path: gate, clock=clock)
    index.start()
    index.view(PATIENCE_SECS)
    resting = threading.Event()
    wait = index._asked.wait

    def rests(timeout: float | None = None) -> bool:
        resting.set()
        return wait(timeout)

    index._asked.wait = rests
    clock.now += IDLE_SECS + 1
    assert resting.wait(PATIENCE_SECS)
    while gate.refreshed.acquire(blocking=False):
        pass
    index.view()
    assert gate.refreshed.acquire(timeout=PATIENCE_SECS)
    index.close()


def test_a_slow_first_look_is_not_waited_for() -> None:
    """It reads everything; the later ones rest four times as long as they took, and a minute at most."""
    clock = StillClock(NOW)
    took = iter([300.0, 3.0, 100.0])
    rests: list[float] = []

    class Slow(FakeWatch):
        def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
            clock.now += next(took, 0.0)
            return super().refresh(on_progress)

    index = Index((Logdir("/runs"),), 5.0, lambda path: Slow(watched(a_run())), clock)

    class Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout or 0.0)
            if len(rests) == 3:
                self.set()
            return self.is_set()

    index._closed = Closed()
    index.start()
    index._thread.join(PATIENCE_SECS)
    assert not index._thread.is_alive()
    assert rests == [5.0, 12.0, MOST_REST_SECS]


def test_what_has_not_changed_stays_the_same() -> None:
    """A look that finds nothing new raises no generation and keeps each run's object; the moment of the look is new."""
    watch = FakeWatch(watched(a_run("a")), watched(a_run("b")))
    index = index_of(Logdir("/runs"), watch=lambda path: watch)
    index.refresh()
    before = index.view()
    watch.at = NOW + 5
    watch.runs["b"] = changed(a_run("b"), step=1)
    index.refresh()
    after = index.view()
    assert after.runs["a"] is before.runs["a"]
    assert after.runs["b"].generation == after.generation > before.generation
    watch.at = NOW + 10
    index.refresh()
    assert (index.view().generation, index.view().at) == (after.generation, NOW + 10)


def test_a_line_that_looks_the_same_is_the_same() -> None:
    """A silent run's account goes on with every look; until that can be seen in its line, there is nothing to send."""
    watch = FakeWatch(watched(a_run("a")))
    index = index_of(Logdir("/runs"), watch=lambda path: watch)
    index.refresh()
    before = index.view()
    for ratio, moves in ((0.12501, False), (0.1251, True)):
        goodput = dataclasses.replace(a_run().goodput, ratio=ratio)
        watch.runs["a"] = changed(a_run("a"), goodput=goodput)
        index.refresh()
        assert index.view().runs["a"].run.goodput.ratio == ratio
        assert (index.view().generation > before.generation) is moves


def test_commands_can_be_pasted_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command names the run's directory in full, also where TensorBoard was given a relative logdir."""
    monkeypatch.chdir(tmp_path)
    run = a_run("a", state="stalled", sessions=(a_session("one"),))
    watch = FakeWatch(watched(run, directory="runs/a"))
    index = index_of(Logdir("runs"), watch=lambda path: watch)
    index.refresh()
    action = json.loads(index.view().runs["a"].line)["finding"]["action"]
    assert action == command_line("tb-supervisor", "stacks", "--", str(tmp_path / "runs" / "a"))


def test_two_runs_of_one_name_are_a_problem() -> None:
    """Of two logdirs' runs with one name one can be shown; the view says so."""
    watches = {path: FakeWatch(watched(a_run("a"), f"{path}/a"), logdir=path) for path in ("/x", "/y")}
    index = index_of(Logdir("/x"), Logdir("/y"), watch=watches.__getitem__)
    for _ in range(2):
        index.refresh()
        assert index.view().problems == ("Two runs are called a; that of /y is shown.",)
        assert index.view().runs["a"].directory == "/y/a"


def test_a_missing_file_system_costs_only_its_own_logdir() -> None:
    """A logdir whose file system is not installed is a problem in words; the others are read, and it is tried again."""
    installed = False

    def watch(path: str) -> FakeWatch:
        if path.startswith("s3:") and not installed:
            raise EventsError("no file system for s3:// is installed; install s3fs")
        return FakeWatch(watched(a_run(path[:2]), path), logdir=path)

    index = index_of(Logdir("s3://bucket"), Logdir("/y"), watch=watch)
    index.refresh()
    assert index.view().is_whole
    assert set(index.view().runs) == {"/y"}
    assert index.view().problems == ("no file system for s3:// is installed; install s3fs",)
    installed = True
    index.refresh()
    assert (set(index.view().runs), index.view().problems) == ({"s3", "/y"}, ())


def test_a_fault_of_ours_is_shown_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error ends neither the thread nor what was known: the overview has the error."""
    gate = Gate()
    index = index_of(Logdir("/runs"), watch=lambda path: gate)
    index.refresh()
    faults = threading.Semaphore(0)

    def broken(on_progress: object = None) -> LogdirSnapshot:
        faults.release()
        raise RuntimeError("never thought of that")

    gate.refresh = broken
    index.start()
    index.view()
    for _ in range(2):
        assert faults.acquire(timeout=PATIENCE_SECS)
    del gate.refresh
    for _ in range(2):
        assert gate.refreshed.acquire(timeout=PATIENCE_SECS)
    index.close()
    assert "never thought of that" in caplog.text
    assert index.view().problems == ()
    assert set(index.view().runs) == {"a"}


def test_names_that_are_no_text_can_be_asked_for() -> None:
    """A directory named in bytes that are no UTF-8 has a name that can be sent, and that finds it."""
    watch = FakeWatch(watched(a_run("caf\udce9")))
    index = index_of(Logdir("/runs"), watch=lambda path: watch)
    index.refresh()
    assert list(index.view().runs) == ["caf\\udce9"]
    assert json.loads(index.view().runs["caf\\udce9"].line)["run"] == "caf\\udce9"


def test_a_run_that_is_over_is_not_judged_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once time is known to change nothing, it is left alone; one that is not over is judged again each minute."""
    watch = FakeWatch(watched(a_run("over", state="completed")), watched(a_run("live", state="running")))
    judged, names = index_module.judged, list[str]()

    def counted(run: WatchedRun, now: float) -> tuple[Finding, ...]:
        names.append(run.run.name)
        return judged(run, now)

    monkeypatch.setattr(index_module, "judged", counted)
    index = index_of(Logdir("/runs"), watch=lambda path: watch)
    for _ in range(4):
        index.refresh()
        watch.at += JUDGED_AGAIN_SECS
    assert (names.count("over"), names.count("live")) == (3, 4)


def test_a_fault_before_the_first_look_is_shown() -> None:
    """If nothing could ever be read, the overview says that, and no request waits for the start."""

    def broken(path: str) -> FakeWatch:
        raise ValueError("include is no regular expression")

    index = index_of(Logdir("/runs"), watch=broken)
    index.start()
    index.view(PATIENCE_SECS)
    index.close()
    assert index.view().is_whole
    assert "include is no regular expression" in index.view().problems[0]
