"""The hangs of a session and of its services: which there are, where, what is reported and what is done."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.errors import StalledError
from supervisor_core.base.options import Options
from supervisor_core.engine.hangs import (
    SECOND_LOOK_SECS,
    HangReading,
    HangReport,
    PlaceWatch,
    ServiceHangs,
    Watchdog,
    main_thread_runnable_secs,
)
from supervisor_core.engine.progress import Progress, ProgressSnapshot
from supervisor_core.engine.timeouts import HangTimeouts
from supervisor_core.events.telemetry import StallRecord, ThreadStatus
from supervisor_core.run.status import StallStatus


def progress(age_secs: float = 0.0, timeout_secs: float | None = 10.0) -> ProgressSnapshot:
    """The progress of a session in which the last one was some seconds ago."""
    return replace(Progress().snapshot(), progress_age_secs=age_secs, progress_timeout_secs=timeout_secs, global_step=7)


def ticking(secs: float | None, *, ticks: int = 1, last_tick_secs: float | None = None) -> ThreadStatus:
    """The checkpoint service, in a tick or between two."""
    state: Any = "idle" if secs is None else "ticking"
    return ThreadStatus(name="checkpoint", state=state, ticks=ticks, last_tick_secs=last_tick_secs, ticking_secs=secs)


def found(stalls: ServiceHangs, status: ThreadStatus) -> list[tuple[str, float, float | None]]:
    """What a check of one service finds."""
    return [(each.state, each.secs, each.timeout_secs) for each in stalls.check([status], 5000.0, progress())]


@pytest.mark.parametrize(("age", "timeout", "stalled"), [(10, 10, False), (10.1, 10, True), (1e9, None, False)])
def test_a_stall_is_longer_than_the_hang_timeout(age: float, timeout: float | None, stalled: bool, clock: Any) -> None:
    """At the hang timeout is in time; a phase without one cannot stall."""
    detector = the_report(clock)[0]
    assert (detector.check(1e9, progress(age, timeout)) is not None) == detector.stalled == stalled


def test_a_stall_begins_once_and_ends_once(clock: Any) -> None:
    """However often it is checked: one beginning, one end, and the whole time between two steps in it."""
    detector = the_report(clock)[0]
    readings = [(100.0, 5.0), (111.0, 11.0), (120.0, 20.0), (130.0, 1.0), (140.0, 2.0)]
    changes = [detector.check(now, progress(age)) for now, age in readings]
    assert [change and (change.state, change.since, change.secs) for change in changes] == [
        None,
        ("begin", 100.0, 11.0),
        ("lasts", 100.0, 20.0),
        ("end", 100.0, 29.0),
        None,
    ]


def test_a_tick_that_does_not_end_is_found_once_and_so_is_its_end() -> None:
    """Until ticks have ended the hang timeout is that of a save; the end has the whole duration."""
    stalls = ServiceHangs(Options())
    assert [found(stalls, ticking(secs)) for secs in (1.0, 1800.0, 1801.0, 2000.0)] == [
        [],
        [],
        [("begin", 1801.0, 1800.0)],
        [],
    ]
    assert found(stalls, ticking(None, last_tick_secs=2001.0)) == [("end", 2001.0, 1800.0)]
    assert found(stalls, ticking(5.0, ticks=2, last_tick_secs=2001.0)) == []


@pytest.mark.parametrize(
    ("tick_secs", "options", "hang_timeout_secs"),
    [
        (2.0, Options(), 60.0),
        (100.0, Options(), 500.0),
        (100.0, Options(hang_timeout_secs={"checkpointing": 30.0}), 30.0),
    ],
    ids=["the floor", "learned", "given"],
)
def test_the_hang_timeout_of_a_tick_is_learned(tick_secs, options, hang_timeout_secs) -> None:
    """From three ticks on, if the options do not give one."""
    stalls = ServiceHangs(options)
    for ticks in (1, 2, 3):
        assert found(stalls, ticking(None, ticks=ticks, last_tick_secs=tick_secs)) == []
    assert found(stalls, ticking(hang_timeout_secs, ticks=4, last_tick_secs=tick_secs)) == []
    begin = found(stalls, ticking(hang_timeout_secs + 1, ticks=4, last_tick_secs=tick_secs))
    assert begin == [("begin", hang_timeout_secs + 1, hang_timeout_secs)]


def test_a_service_that_waits_for_work_has_no_hang_timeout() -> None:
    """Nothing says for how long it may wait."""
    assert found(ServiceHangs(Options()), ThreadStatus(name="loop", state="ticking", ticks=1)) == []


def test_it_is_recorded_with_the_service_s_own_line(clock) -> None:
    """And the stacks of all threads, once."""
    records: list[StallRecord] = []

    class Sink:
        dropped, error = 0, None

        def write(self, record: Any, step: int | None = None, **how: Any) -> None:
            records.append(record)

    stacks = {"MainThread": ("train.py:88 step",), "checkpoint": ("train.py:9 loop", "disk.py:12 write")}
    looks: list[str] = []
    report = HangReport("s1", Sink(), clock, stacks=lambda: stacks, on_stacks=lambda title, _: looks.append(title))
    stalls = ServiceHangs(Options())
    for status in (ticking(1900.0), ticking(None, last_tick_secs=2000.0)):
        for stall in stalls.check([status], clock.now, progress()):
            report.service(stall)
    begin, end = records
    assert (begin.state, begin.service, begin.thread, begin.location) == (
        "begin",
        "checkpoint",
        "checkpoint",
        "disk.py:12 write",
    )
    assert (begin.since, begin.secs, begin.stacks) == (clock.wall() - 1900.0, 1900.0, stacks)
    assert (end.state, end.service, end.secs, end.stacks) == ("end", "checkpoint", 2000.0, {})
    assert report.status is None and len(looks) == 1


INNER = "/usr/lib/python3.11/queue.py:171 Queue.get"
WAITS = {"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next_batch", INNER), "other": ("/x/a.py:1 f",)}
ELSEWHERE = {"MainThread": ("/x/train.py:88 main", "/x/input.py:14 next_batch"), "other": ("/x/a.py:1 f",)}


class Records(list[Any]):
    """Takes records in place of an events file."""

    dropped, error = 0, None

    def write(self, record: Any, step: int | None = None, **how: Any) -> None:
        self.append(record)


def the_report(
    clock: Any, *looks: Mapping[str, Any], share: float | None = None
) -> tuple[HangReport, Records, list[Any]]:
    """A report whose looks at the stacks give these, with what it writes and passes on. The main thread runs for this
    share of the time; None: that is not known."""
    records, texts, stacks = Records(), [], iter(looks)
    report = HangReport(
        "s1",
        records,
        clock,
        stacks=lambda: next(stacks),
        on_stacks=lambda title, found: texts.append((title, found)),
        runnable_secs=lambda clock: None if share is None else share * clock.monotonic(),
    )
    return report, records, texts


def reading(clock: Any, state: Any, secs: float, step: int = 5) -> HangReading:
    """A stall that has lasted for some seconds."""
    since = clock.now - secs
    return HangReading(state=state, since=since, secs=secs, timeout_secs=20.0, phase="training", step=step)


def begin(report: HangReport, clock: Any) -> None:
    """Let a stall begin."""
    report.begin(reading(clock, "begin", 30.0))


def go_on(report: HangReport, clock: Any, secs: float) -> None:
    """Let it last."""
    clock.advance(secs)
    report.goes_on(reading(clock, "lasts", 30.0 + secs))


SAME, OTHER = "the same frames twice", "other frames than before"


@pytest.mark.parametrize(
    ("second", "same", "said"),
    [
        (WAITS, True, f"MainThread is at input.py:12 in next_batch: {SAME}"),
        (WAITS | {"other": ()}, True, f"MainThread is at input.py:12 in next_batch: {SAME}"),
        (ELSEWHERE, False, f"MainThread is at input.py:14 in next_batch: {OTHER}"),
        ({"other": ()}, False, f"MainThread: {OTHER}"),
    ],
)
def test_a_second_look_says_whether_the_frames_are_the_same(
    second: Any, same: bool, said: str, clock: Any, caplog: Any
) -> None:
    """It comes once, after ten seconds; other threads do not count; both looks are passed on."""
    report, records, texts = the_report(clock, WAITS, second)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS - 1)
    assert [record.state for record in records] == ["begin"]
    go_on(report, clock, 1.0)
    go_on(report, clock, 600.0)
    first, again = records
    assert (first.state, first.same_frames, first.stacks) == ("begin", None, WAITS)
    assert (again.state, again.same_frames, again.stacks) == ("lasts", same, second)
    assert [found for _, found in texts] == [WAITS, second]
    assert said in caplog.text and said in texts[1][0]
    assert "stuck" not in caplog.text


@pytest.mark.parametrize(
    ("share", "activity", "said"),
    [
        (1.0, "busy", "MainThread is busy at"),
        (0.5, "busy", "MainThread is busy at"),
        (0.3, None, "MainThread is at"),
        (0.05, "waits", "MainThread waits at"),
        (0.0, "waits", "MainThread waits at"),
        (None, None, "MainThread is at"),
    ],
)
def test_the_second_look_says_whether_the_thread_was_busy(
    share: float | None, activity: str | None, said: str, clock: Any, caplog: Any
) -> None:
    """By the time for which it could run: an evaluation computes, a full queue waits. In between nothing is said."""
    report, records, texts = the_report(clock, WAITS, WAITS, share=share)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS)
    assert (records[1].same_frames, records[1].activity) == (True, activity)
    assert report.status is not None and report.status.activity == activity
    assert f"{said} input.py:12 in next_batch: {SAME}" in caplog.text and said in texts[1][0]


@pytest.mark.parametrize(
    ("second", "share", "secs", "recorded"),
    [(WAITS, 0.0, 60.0, (True, None)), (ELSEWHERE, 1.0, SECOND_LOOK_SECS, (False, "busy"))],
    ids=["after a pause", "elsewhere"],
)
def test_what_a_thread_did_is_not_shown(second: Any, share: float, secs: float, recorded: Any, clock: Any) -> None:
    """The process was stopped for most of the time between the looks: its thread neither ran nor waited then. A thread
    that has moved is not shown where it was: the record says what it did, a scrape only where the stall began."""
    report, records, _ = the_report(clock, WAITS, second, share=share)
    begin(report, clock)
    go_on(report, clock, secs)
    assert (records[1].same_frames, records[1].activity) == recorded
    assert report.status is not None and report.status.activity is None


def test_a_thread_that_waits_for_a_processor_is_ready_to_run(tmp_path: Path, clock: Any) -> None:
    """On a busy machine one that computes runs for a small part of the time. Without the kernel's statistics its CPU
    time counts; of an injected clock nothing is known."""
    path = tmp_path / "self" / "task" / str(os.getpid()) / "schedstat"
    path.parent.mkdir(parents=True)
    path.write_text("1500000000 2500000000 77\n")
    assert main_thread_runnable_secs(SYSTEM_CLOCK, str(tmp_path)) == 4.0
    for text in ("0 0 0\n", "", "x y z\n"):
        path.write_text(text)
        found = main_thread_runnable_secs(SYSTEM_CLOCK, str(tmp_path))
        assert found is None or 0 < found != 4.0
    assert main_thread_runnable_secs(clock, str(tmp_path)) is None


def test_the_place_is_the_program_s_innermost_line(clock: Any) -> None:
    """Records have it as in the stack, a scrape and the log without directories; after the end there is none."""
    report, records, _ = the_report(clock, WAITS)
    assert report.status is None
    begin(report, clock)
    assert report.status == StallStatus(phase="training", thread="MainThread", location="input.py:12 in next_batch")
    report.end(reading(clock, "end", 40.0, step=6))
    assert report.status is None
    assert [(each.state, each.thread, each.location) for each in records] == [
        ("begin", "MainThread", "/x/input.py:12 next_batch"),
        ("end", "MainThread", "/x/input.py:12 next_batch"),
    ]
    assert records[1].stacks == {}


def test_a_stall_that_is_over_gets_no_second_look(clock: Any) -> None:
    """Nor does one look belong to the next stall."""
    report, records, _ = the_report(clock, WAITS, ELSEWHERE)
    begin(report, clock)
    clock.advance(5)
    report.end(reading(clock, "end", 35.0, step=6))
    clock.advance(1)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS - 1)
    assert [record.state for record in records] == ["begin", "end", "begin"]


def test_a_main_thread_that_has_ended_has_no_place(clock: Any) -> None:
    """What is not known is absent."""
    report, records, _ = the_report(clock, {"other": ("/x/a.py:1 f",)})
    begin(report, clock)
    assert report.status == StallStatus(phase="training", thread="MainThread", location=None)
    assert records[0].location is None


PACKAGES = "/usr/lib/python3.11/site-packages"
AT_BARRIER = ("/home/me/train.py:25 train", f"{PACKAGES}/torch/distributed/distributed_c10d.py:9 barrier")
HANGS = ("/home/me/train.py:25 train", "/home/me/train.py:14 stuck")


class Watched:
    """A session's progress, its main thread's stack, and the watch."""

    def __init__(self, clock: Any, options: Options = Options()) -> None:  # noqa: B008
        self.clock = clock
        self.stack: tuple[str, ...] = HANGS
        self.ran = 0.0
        self.progress = Progress(clock, HangTimeouts(options))
        self.watch = PlaceWatch(clock, stack=lambda: self.stack, runnable_secs=lambda clock: self.ran)

    def after(self, secs: float) -> Any:
        """The place once this time has passed."""
        self.clock.advance(secs)
        return self.watch.look(self.progress.snapshot())


@pytest.fixture
def watched(clock: Any) -> Watched:
    """A session that trains."""
    found = Watched(clock)
    found.progress.enter("training")
    return found


def test_there_is_a_place_after_six_seconds_without_progress(watched: Watched) -> None:
    """Long before a hang timeout: another process may have to know. It goes with the next progress."""
    assert watched.after(6.0) is None
    place = watched.after(0.1)
    assert (place.location, place.waits_in, place.frames) == ("/home/me/train.py:14 stuck", None, HANGS)
    watched.progress.step_ended(watched.clock.monotonic())
    assert watched.after(0.1) is None


def test_a_shorter_hang_timeout_counts(clock: Any) -> None:
    """As it is given."""
    watched = Watched(clock, Options(hang_timeout_secs={"training": 2.0}))
    watched.progress.enter("training")
    assert watched.after(2.5) is not None


def test_a_phase_that_cannot_hang_has_no_place(watched: Watched) -> None:
    """The session has ended."""
    watched.progress.enter("stopped")
    assert watched.after(1e6) is None


def test_the_second_look_says_what_the_thread_does(watched: Watched) -> None:
    """It slept for ten seconds; the same place, with that."""
    place = watched.after(7.0)
    assert place.activity is None
    again = watched.after(10.0)
    assert (again.digest, again.activity) == (place.digest, "waits")
    assert watched.after(1.0) is again


def test_another_place_replaces_it_every_five_seconds(watched: Watched) -> None:
    """A thread that moves does not have the file written each second."""
    first = watched.after(7.0)
    watched.stack = AT_BARRIER
    assert watched.after(1.0) is first
    second = watched.after(4.0)
    assert (second.location, second.waits_in) == ("/home/me/train.py:25 train", "barrier")
    watched.stack = HANGS
    assert watched.after(4.0) is second
    assert watched.after(1.0).digest == first.digest


TEXT = "No progress for 301 s in the phase training, step 7 at train.py:88 step."


class Process:
    """Records what is done to it, in order; ``blocks`` is what a step of its end waits for."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.ended = threading.Event()
        self.blocks: threading.Event | None = None

    def stop(self, error: StalledError) -> None:
        self.did.append(error)

    def end(self, error: StalledError, deadline: Any) -> None:
        self.did.append("saved and recorded")
        if self.blocks is not None:
            self.blocks.wait()
        raise OSError("disk gone")

    def die(self, signum: int) -> None:
        self.did.append(signal.Signals(signum).name)
        self.ended.set()

    def watchdog(self, action: Any, stop_timeout_secs: float = 60.0) -> Watchdog:
        return Watchdog(
            action, stop_timeout_secs=stop_timeout_secs, stop=self.stop, end=self.end,
            record=lambda deadline: self.did.append("heartbeat"), die=self.die,
        )  # fmt: skip


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    """A process that is not really ended; its disk has time, however slow the machine."""
    monkeypatch.setattr("supervisor_core.engine.hangs.RECORD_SECS", 60.0)
    return Process()


def stall(watchdog: Watchdog, *, secs: int, act_after_secs: float | None = 300.0, timeout_secs: int = 6) -> list[int]:
    """Stall for a number of seconds, with a check each second; return the ages at which the watchdog acted."""
    acted = []
    watchdog.begin(1000.0 + timeout_secs)
    for age in range(timeout_secs, secs):
        if watchdog.check(1000.0 + age, age_secs=age, act_after_secs=act_after_secs, text=TEXT):
            acted.append(age)
    return acted


def test_it_acts_once_per_stall_beyond_the_default_hang_timeout(process: Process) -> None:
    """By default that is counted, and no more. A learned one of 6 s ends nothing before the default of 300 s."""
    watchdog = process.watchdog("observe")
    assert stall(watchdog, secs=300) == []
    assert stall(watchdog, secs=1000) == [301]
    assert stall(watchdog, secs=1000) == [301]
    assert (watchdog.would_act, watchdog.acted, process.did) == (2, {}, [])


@pytest.mark.parametrize(("act_after_secs", "acted"), [(2.0, [13]), (None, [])])
def test_it_waits_for_the_second_look_at_the_stacks(process: Process, act_after_secs: Any, acted: list[int]) -> None:
    """However short the given hang timeout. A phase without one cannot stall."""
    assert stall(process.watchdog("observe"), secs=1000, act_after_secs=act_after_secs, timeout_secs=3) == acted


def test_stop_asks_the_training_to_stop(process: Process) -> None:
    """With an error that says where it hangs."""
    watchdog = process.watchdog("stop")
    assert stall(watchdog, secs=400) == [301]
    (error,) = process.did
    assert isinstance(error, StalledError) and str(error) == TEXT
    assert (watchdog.would_act, watchdog.acted) == (0, {"stop": 1})


@pytest.mark.parametrize(
    ("action", "did"),
    [("abort", ["heartbeat", "saved and recorded", "SIGABRT"]), ("kill", ["heartbeat", "SIGKILL"])],
)
def test_the_process_is_ended_after_the_records(process: Process, action: Any, did: list[Any], caplog: Any) -> None:
    """What fails on the way is logged, and the process ends all the same."""
    with caplog.at_level(logging.ERROR, logger="supervisor_core"):
        stall(process.watchdog(action), secs=400)
        process.ended.wait()
    assert process.did == did
    assert ("disk gone" in caplog.text) == (action == "abort")


def test_an_end_that_hangs_is_given_up(process: Process) -> None:
    """After the stop timeout the process is ended, though its last records are not written."""
    process.blocks = threading.Event()
    stall(process.watchdog("abort", stop_timeout_secs=0.05), secs=400)
    process.ended.wait()
    process.blocks.set()
    assert (process.did[0], process.did.count("SIGABRT")) == ("heartbeat", 1)
