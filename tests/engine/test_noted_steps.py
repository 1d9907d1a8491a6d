"""Steps that are only noted when they end: counted later as they would have been counted then."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import pytest

from supervisor_core.engine.progress import COUNT_SECS, Progress
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS


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
