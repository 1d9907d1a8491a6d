"""How far, how fast, and where the time went."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.options import HANG_TIMEOUT_SECS, HangAction, Options
from supervisor_core.engine.hangs import longest_end
from supervisor_core.engine.progress import BUCKETS, COUNT_SECS, Progress, StepRate
from supervisor_core.engine.timeouts import HangTimeouts
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS, read_page


def fixed_timeouts(secs: float) -> HangTimeouts:
    """The same hang timeout for every phase."""
    return HangTimeouts(Options(hang_timeout_secs=dict.fromkeys(HANG_TIMEOUT_SECS, secs)))


@pytest.fixture
def training(clock) -> Progress:
    """A session in the phase of training, with learned hang timeouts."""
    progress = Progress(clock)
    progress.enter("training")
    return progress


@pytest.fixture
def bounded(clock) -> Progress:
    """The same with a hang timeout of 300 s."""
    progress = Progress(clock, fixed_timeouts(300.0))
    progress.enter("training")
    return progress


def steps(progress: Progress, clock, count: int, secs: float = 0.1) -> None:
    """Do a number of steps of equal duration."""
    for _ in range(count):
        started = clock.now
        clock.advance(secs)
        progress.run_ended(True, started, clock.now)


def idle(progress: Progress, clock, secs: int) -> None:
    """Make no progress, with a sample each second."""
    for _ in range(secs):
        clock.advance(1)
        progress.sample()


def test_the_longest_of_the_recent_steps(clock) -> None:
    """It is that of the last two intervals between two calls, as far as there was a step in them."""
    progress = Progress(clock)
    assert progress.longest_step_secs() == 0.0
    seen = []
    for secs in ((30.0, 1.0), (), (2.0,), (3.0,)):
        for each in secs:
            steps(progress, clock, 1, each)
        seen.append(round(progress.longest_step_secs(), 6))
    assert seen == [30.0, 30.0, 30.0, 3.0]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([("read", 100), ("steps", 20)], 120),
        ([("read", 100), ("steps", 20), ("read", 120), ("steps", 5)], 125),
        ([("read", 0), ("steps", 100), ("begin", 0), ("steps", 40), ("read", 117)], 140),
        ([("read", 0), ("steps", 100), ("begin", 0), ("steps", 40), ("read", 117), ("steps", 3)], 143),
        ([("read", 0), ("steps", 20), ("read", 200), ("steps", 1)], 210),
        ([("read", 0), ("steps", 20), ("read", 73), ("steps", 1)], 73),
    ],
    ids=["one reading", "two", "read during steps", "and counted on", "ten per call", "of others, too"],
)
def test_the_step_between_two_readings(clock, script, expected: int) -> None:
    """The count carries it on, and the global step is exact though the variable is read rarely. A reading that takes as
    long as forty steps says how far it was somewhere between, and the count knows where. Ten increments per call are
    understood. Where others move the step, too, only readings count."""
    progress, since = Progress(clock), None
    for kind, number in script:
        if kind == "read":
            progress.step_read(number, since)
            since = None
            progress.sample()
        elif kind == "begin":
            since = progress.steps
        else:
            steps(progress, clock, number)
    assert progress.snapshot().global_step == expected


def test_every_second_is_booked_once(clock) -> None:
    """The buckets sum to the time that has passed, through every phase."""
    progress = Progress(clock)
    start = clock.now
    for phase, secs in (("restoring", 3.0), ("training", 5.0), ("checkpointing", 2.0), ("training", 7.0)):
        clock.advance(1.5)
        progress.enter(phase)
        clock.advance(secs)
    progress.enter("stopped")
    activity = progress.snapshot().activity_secs
    assert set(activity) == set(BUCKETS)
    assert sum(activity.values()) == pytest.approx(clock.now - start, abs=1e-9)
    assert activity["productive"] == pytest.approx(5.0 + 1.5 + 7.0)


def test_no_bucket_ever_falls(clock) -> None:
    """Seconds that may still turn out as a stall are not booked before, and none is moved after."""
    progress = Progress(clock, fixed_timeouts(30.0))
    progress.enter("training")
    seen = progress.snapshot().activity_secs
    for secs in (1, 10, 29, 1, 31, 5, 100, 2):
        for part in range(4):
            clock.advance(secs / 4)
            if part == 3:
                progress.run_ended(True, clock.now, clock.now)
            now = progress.snapshot().activity_secs
            assert all(now[bucket] >= seen[bucket] for bucket in BUCKETS)
            seen = now
    assert seen["stall"] == pytest.approx(131)
    assert seen["productive"] == pytest.approx(1 + 10 + 29 + 1 + 5 + 2)


def test_what_a_save_has_held_up_is_not_productive(clock, training) -> None:
    """It is taken from the seconds that follow, so that no reported number decreases."""
    steps(training, clock, 10, secs=1.0)
    training.blocked(0.25)
    assert training.snapshot().activity_secs["productive"] == pytest.approx(9.75)
    steps(training, clock, 2, secs=1.0)
    activity = training.snapshot().activity_secs
    assert activity["productive"] == pytest.approx(11.75)
    assert activity["unproductive_checkpoint_save"] == pytest.approx(0.25)


def test_progress_ages_and_anything_that_moves_makes_it_young(clock) -> None:
    """A step, a phase and the end of a save are progress; nothing else is."""
    progress = Progress(clock)
    clock.advance(40)
    assert progress.snapshot().progress_age_secs == 40
    with progress.held():
        pass
    assert progress.snapshot().progress_age_secs == 0
    clock.advance(5)
    progress.sample()
    assert progress.snapshot().progress_age_secs == 5
    progress.enter("training")
    assert progress.snapshot().progress_age_secs == 0


def test_times_are_wall_times_and_durations_are_monotonic(clock) -> None:
    """Setting the machine's clock back an hour changes no duration, only the hour that is shown."""
    progress = Progress(clock)
    steps(progress, clock, 1)
    clock.wall_now -= 3600
    clock.advance(2)
    now = progress.snapshot()
    assert now.progress_age_secs == pytest.approx(2)
    assert now.last_step_at == pytest.approx(clock.wall_now - 2)


def watched(progress: Progress, clock, secs: int) -> None:
    """Let seconds pass in which the monitor looks, and a step ends each second."""
    for _ in range(secs):
        steps(progress, clock, 1, secs=1.0)
        progress.sample()


@pytest.mark.parametrize("frozen_secs", [50.0, 400.0])
@pytest.mark.parametrize("first", ["step", "monitor", "scrape", "phase"])
def test_time_in_which_the_process_did_not_run_is_silent(clock, bounded, frozen_secs: float, first: str) -> None:
    """Whoever comes first after it: no productive second, no stall, and no age that includes it."""
    watched(bounded, clock, 20)
    started = clock.now
    clock.advance(0.5 + frozen_secs + 0.25)
    if first == "step":
        bounded.run_ended(True, started, clock.now)
    elif first == "monitor":
        bounded.sample()
    elif first == "phase":
        bounded.enter("evaluating")
    assert bounded.snapshot().progress_age_secs < 1.0
    bounded.enter("training")
    watched(bounded, clock, 10)
    activity = bounded.snapshot().activity_secs
    assert activity["silent"] == pytest.approx(frozen_secs, abs=1.0)
    assert activity["productive"] == pytest.approx(30, abs=1.0)
    assert activity["stall"] == 0.0
    assert sum(activity.values()) == pytest.approx(30.75 + frozen_secs)


def test_a_freeze_within_a_stall_is_not_part_of_it(clock) -> None:
    """Its seconds before and after are."""
    progress = Progress(clock, fixed_timeouts(30.0))
    progress.enter("training")
    watched(progress, clock, 10)
    for pause in [1.0] * 60 + [500.0] + [1.0] * 60:
        clock.advance(pause)
        progress.sample()
        progress.snapshot()
    activity = progress.snapshot().activity_secs
    assert (activity["stall"], activity["silent"]) == (pytest.approx(120), pytest.approx(500))


def test_a_long_step_is_not_silent(clock, bounded) -> None:
    """The monitor samples during a long step; without samples nothing is concluded."""
    steps(bounded, clock, 2, secs=60.0)
    for _ in range(60):
        clock.advance(1.0)
        bounded.sample()
    bounded.run_ended(True, clock.now - 60, clock.now)
    bounded.unwatched()
    clock.advance(60.0)
    bounded.enter("stopping")
    activity = bounded.snapshot().activity_secs
    assert (activity["silent"], activity["productive"]) == (0.0, pytest.approx(240))


def test_a_call_that_keeps_the_interpreter_to_itself_is_not_silent(clock, bounded, monkeypatch) -> None:
    """The main thread used the CPU all the time: it ran, though no sample was possible."""
    ran = [0.0]
    monkeypatch.setattr("supervisor_core.engine.progress.main_thread_secs", lambda clock: ran[0])
    watched(bounded, clock, 5)
    ran[0] += 38.0
    steps(bounded, clock, 1, secs=40.0)
    watched(bounded, clock, 5)
    activity = bounded.snapshot().activity_secs
    assert (activity["silent"], activity["productive"]) == (0.0, pytest.approx(50))


def test_what_the_machine_slept_through_is_silent(clock, bounded, monkeypatch) -> None:
    """The monotonic clock stands still meanwhile; one that counts from the machine's start does not."""
    slept = [7.0]
    monkeypatch.setattr("supervisor_core.engine.progress.boot_secs", lambda clock: clock.monotonic() + slept[0])
    watched(bounded, clock, 5)
    slept[0] += 3600.0
    watched(bounded, clock, 5)
    activity = bounded.snapshot().activity_secs
    assert (activity["silent"], activity["productive"]) == (3600.0, pytest.approx(10))


def test_the_hang_timeout_of_training_is_learned_from_its_pauses(clock, training) -> None:
    """It is the default for 25 steps, then the floor; a longer pause, a stall even, raises it."""
    steps(training, clock, 24)
    training.sample()
    assert training.snapshot().progress_timeout_secs == HANG_TIMEOUT_SECS["training"]
    steps(training, clock, 1)
    training.sample()
    assert training.snapshot().progress_timeout_secs == 6.0
    idle(training, clock, 8)
    training.run_ended(True, clock.now - 0.1, clock.now)
    snapshot = training.snapshot()
    assert snapshot.progress_timeout_secs == pytest.approx(64.0)
    assert snapshot.activity_secs["stall"] == pytest.approx(8.0)


def test_the_steps_after_a_restore_warm_up_again(clock, training) -> None:
    """They have the default hang timeout, and what they take is not learned."""
    steps(training, clock, 30)
    training.enter("restoring")
    idle(training, clock, 100)
    training.enter("training")
    assert training.snapshot().progress_timeout_secs == HANG_TIMEOUT_SECS["training"]
    steps(training, clock, 4, secs=60.0)
    steps(training, clock, 25)
    training.sample()
    assert training.snapshot().progress_timeout_secs == 6.0


def test_a_save_that_keeps_training_waiting_is_no_stall(clock, training) -> None:
    """Meanwhile training has its default hang timeout; the end of the save is progress. A save that begins in a stall
    changes nothing of it."""
    steps(training, clock, 30)
    training.sample()
    with training.held():
        idle(training, clock, 100)
        assert training.snapshot().progress_timeout_secs == HANG_TIMEOUT_SECS["training"]
    snapshot = training.snapshot()
    assert (snapshot.progress_age_secs, snapshot.activity_secs["stall"]) == (0, 0)
    steps(training, clock, 1)
    training.sample()
    assert training.snapshot().progress_timeout_secs == 6.0
    idle(training, clock, 7)
    with training.held():
        assert training.snapshot().progress_timeout_secs == 6.0
    assert training.snapshot().progress_age_secs == pytest.approx(7)


def test_a_save_of_a_lost_model_holds_up_nothing(clock, training) -> None:
    """It hangs while its session is restored: training has its learned hang timeout again, and the end of that save,
    whenever it comes, is no progress."""
    hanging = training.held()
    hanging.__enter__()
    training.enter("restoring")
    training.enter("training")
    steps(training, clock, 30)
    training.sample()
    assert training.snapshot().progress_timeout_secs == 6.0
    idle(training, clock, 3)
    hanging.__exit__(None, None, None)
    assert training.snapshot().progress_age_secs == pytest.approx(3)
    with training.held():
        assert training.snapshot().progress_timeout_secs == HANG_TIMEOUT_SECS["training"]


def test_a_first_call_may_take_longer(clock, training) -> None:
    """It has the default hang timeout at least. Of a step that compiles nothing is learned; of any other call it is:
    the next one may take as long."""
    steps(training, clock, 30)
    training.sample()
    with training.first_call(True):
        idle(training, clock, 100)
        assert training.snapshot().progress_timeout_secs == HANG_TIMEOUT_SECS["training"]
    assert training.snapshot().progress_timeout_secs == 6.0
    with training.first_call(False):
        idle(training, clock, 20)
    assert training.snapshot().progress_timeout_secs == pytest.approx(160.0)
    assert training.snapshot().activity_secs["stall"] == 0


def test_compiling_is_a_phase_of_its_own(clock, training) -> None:
    """With its own hang timeout and bucket; the steps after it warm up, and its time slows no rate."""
    for _ in range(4):
        steps(training, clock, 10)
        training.sample()
    rate = training.snapshot().steps_per_second
    training.enter("compiling")
    idle(training, clock, 200)
    assert training.snapshot().progress_timeout_secs == HANG_TIMEOUT_SECS["compiling"]
    training.enter("training")
    snapshot = training.snapshot()
    assert snapshot.progress_timeout_secs == HANG_TIMEOUT_SECS["training"]
    assert snapshot.activity_secs["program_startup"] == pytest.approx(200)
    assert snapshot.steps_per_second == pytest.approx(rate)


@pytest.mark.parametrize(("action", "own_secs"), [("observe", 0.0), ("stop", 37.0), ("abort", 37.0), ("kill", 37.0)])
def test_nothing_outside_acts_before_a_session_could_have_ended_itself(
    clock, tmp_path: Path, action: HangAction, own_secs: float
) -> None:
    """The page says later than the session's own watchdog acts: by a second look at the stacks, the records, and a
    stop."""
    page = ProgressPage.create(tmp_path, session_id="s", pid=7, started_at=0.0, started_boot_secs=0.0)
    progress = Progress(clock, fixed_timeouts(300.0), own_end_secs=longest_end(action, 25.0))
    progress.publish(page)
    progress.enter("training")
    reading = read_page(page.path)
    assert reading is not None
    assert (progress.snapshot().act_after_secs, reading.act_after_secs) == (300.0, 300.0 + own_secs)


def train(progress: Progress, clock, *, secs: float, steps: int, look_secs: float = 1.0) -> list[float | None]:
    """Do steps of a length, with a look each second; return the rates that were reported."""
    rates: list[float | None] = []
    for _ in range(steps):
        started = clock.monotonic()
        left = secs
        while left > 0:
            pause = min(left, look_secs)
            clock.advance(pause)
            left -= pause
            progress.sample()
            if left > 0:
                rates.append(progress.snapshot().steps_per_second)
        progress.run_ended(True, started, clock.monotonic())
        rates.append(progress.snapshot().steps_per_second)
    return rates


@pytest.fixture
def progress(clock) -> Progress:
    """A session in training."""
    progress = Progress(clock)
    progress.enter("training")
    return progress


@pytest.mark.parametrize("secs", [0.01, 0.9, 7.0, 58.5, 1800.0])
def test_a_steady_training_has_a_steady_rate(clock, progress, secs: float) -> None:
    """From its second step on the rate is the true one at every moment, though the looks fall anywhere in a step."""
    train(progress, clock, secs=secs, steps=1, look_secs=secs / 3)
    rates = train(progress, clock, secs=secs, steps=40, look_secs=max(0.004, secs / 7))
    assert rates == pytest.approx([1 / secs] * len(rates), rel=0.001)


def test_what_came_before_training_is_left_out(clock) -> None:
    """Half an hour of restoring does not count: after the first step the rate is that step's."""
    progress = Progress(clock)
    progress.enter("restoring")
    clock.advance(1800)
    progress.enter("training")
    assert progress.snapshot().steps_per_second is None
    assert train(progress, clock, secs=2.0, steps=1)[-1] == pytest.approx(0.5)


def test_it_keeps_little() -> None:
    """A look each second keeps as many readings as the window has seconds."""
    rate = StepRate(0.0)
    for second in range(1, 10_000):
        rate.add(float(second), 1000 * second)
    assert len(rate._ends) <= 32 and rate.value(9_999.5) == 1000.0


def test_an_evaluation_is_left_out(clock, progress) -> None:
    """The rate is that of training, also just after an evaluation that took longer than its window."""
    train(progress, clock, secs=60.0, steps=12)
    progress.enter("evaluating")
    clock.advance(3600)
    progress.sample()
    assert progress.snapshot().steps_per_second == pytest.approx(1 / 60)
    progress.enter("training")
    rates = train(progress, clock, secs=60.0, steps=12)
    assert rates == pytest.approx([1 / 60] * len(rates))


def test_a_slower_training_is_slower_after_ten_steps(clock) -> None:
    """The rate follows a change within ten steps, or thirty seconds, whichever is longer."""
    progress = Progress(clock)
    progress.enter("training")
    train(progress, clock, secs=60.0, steps=30)
    assert train(progress, clock, secs=180.0, steps=11)[-1] == pytest.approx(1 / 180)
    progress = Progress(clock)
    progress.enter("training")
    train(progress, clock, secs=0.1, steps=1000)
    assert train(progress, clock, secs=1.0, steps=31)[-1] == pytest.approx(1.0)


def test_a_step_that_hangs(clock, progress) -> None:
    """The rate falls with each second, and is 0 once ten steps are overdue."""
    train(progress, clock, secs=60.0, steps=20)
    rates = []
    for _ in range(601):
        clock.advance(1.0)
        progress.sample()
        rates.append(progress.snapshot().steps_per_second)
    assert rates == sorted(rates, reverse=True) and rates[59] == pytest.approx(1 / 60)
    assert 0 < rates[599] < 1 / 100 and rates[600] == 0.0


def test_others_steps_count_where_this_process_does_none(clock, progress) -> None:
    """A chief that only saves reports the rate of the global step, 100 a minute, also after the model was restored."""
    for first in (0, 500):
        if first:
            progress.rewound(first)
            clock.advance(10)
        for minute in range(20):
            progress.step_read(first + 100 * minute)
            progress.sample()
            rate = progress.snapshot().steps_per_second
            assert rate is None if minute == 0 else 1.4 < rate < 1.7
            clock.advance(60)


def reading_of(progress: Progress) -> dict[str, Any]:
    """Everything that a reader learns."""
    found = vars(progress.snapshot()).copy()
    found["activity_secs"] = {name: pytest.approx(secs) for name, secs in found["activity_secs"].items()}
    steps = found.pop("step_secs")
    pauses = [(pause.until, pause.cause) for pause in progress.take_pauses()]
    return {**found, "counts": steps.counts, "sum": pytest.approx(steps.sum), "pauses": pauses}


@pytest.mark.parametrize("seed", range(20))
def test_noted_steps_are_counted_as_at_their_end(clock, seed: int) -> None:
    """Whoever reads, and whenever: short steps and long ones, pauses, freezes, saves, evaluations, the first steps."""
    script = random.Random(seed)
    one, other = Progress(clock), Progress(clock)
    began = clock.now
    for progress in (one, other):
        progress.enter("training")
        progress.step_read(seed)
        progress.begins(began)
    for _ in range(400):
        kind = script.choices(
            ("step", "sample", "read", "evaluate", "save", "moved", "longest"), (80, 10, 3, 1, 2, 3, 1)
        )[0]
        clock.advance(script.choice((0.0001, 0.003, 0.02, 0.3, 1.0)))
        if kind == "step":
            clock.advance(script.choices((0.0, 2.0, 9.0, 70.0, 700.0), (90, 4, 3, 2, 1))[0])
            one.run_ended(True, began, clock.now, changes=False)
            other.step_ended(clock.now)
            began = clock.now
        elif kind == "sample":
            one.sample(), other.sample()
        elif kind == "read":
            assert reading_of(one) == reading_of(other)
        elif kind == "longest":
            assert one.longest_step_secs() == pytest.approx(other.longest_step_secs())
        elif kind == "moved":
            one.run_ended(False, clock.now, clock.now)
            other.moved(clock.now)
            began = clock.now
        else:
            if kind == "save":
                with one.held(), other.held():
                    clock.advance(0.25)
            else:
                one.enter("evaluating"), other.enter("evaluating")
                clock.advance(1.0)
                one.enter("training"), other.enter("training")
            began = clock.now
            for progress in (one, other):
                progress.begins(began)
    assert reading_of(one) == reading_of(other)
    assert (one.steps, one.runs, one.changes) == (other.steps, other.runs, other.changes)
    assert one.page.counts[STEPS] == other.page.counts[STEPS]


def test_a_step_that_is_counted_late_is_no_new_work(clock) -> None:
    """Nothing is trained between its end and a reader's look: a program that has caught a Ctrl-C in between has not
    gone on."""
    progress = Progress(clock)
    progress.begins(clock.now)
    progress.step_ended(clock.now)
    progress.step_ended(clock.now)
    before = progress.changes
    assert progress.snapshot().steps == 2
    assert progress.changes == before


def test_a_step_is_on_the_page_at_once_and_needs_no_lock(clock) -> None:
    """Also while a reader holds the lock: a kill after it, or a hang, finds the step on the page."""
    progress = Progress(clock)
    progress.begins(clock.now)
    progress.step_ended(clock.now)
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        with progress._lock:  # as a reader that the interpreter has switched away from
            reading.set()
            done.wait()

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    try:
        for number in range(2, 6):
            clock.advance(COUNT_SECS / 10)
            progress.step_ended(clock.now)
            assert (progress.page.counts[STEPS], progress.page.times[LAST_PROGRESS]) == (number, clock.now)
    finally:
        done.set()
        reader.join()
    assert progress.steps == 5


def test_no_step_is_lost_beside_readers(clock) -> None:
    """Readers count what is noted while the training notes more: at the end every step was counted once."""
    progress, steps = Progress(clock), 20_000
    progress.enter("training")
    over = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not over.is_set():
            seen.append(progress.snapshot().steps)

    readers = [threading.Thread(target=read) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        for _ in range(steps):
            clock.now += 1e-4
            progress.step_ended(clock.now)
    finally:
        over.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(before)
    found = progress.snapshot()
    assert (found.steps, sum(found.step_secs.counts), progress.page.counts[STEPS]) == (steps, steps, steps)
    assert max(seen, default=0) <= steps
