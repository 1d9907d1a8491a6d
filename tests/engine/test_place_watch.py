"""`PlaceWatch`: where the main thread is while there is no progress."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine.progress import Progress
from supervisor_core.engine.stalls import PlaceWatch
from supervisor_core.engine.timeouts import HangTimeouts

LIBRARY = "/usr/lib/python3.11/site-packages"
WAITS = ("/home/me/train.py:25 train", f"{LIBRARY}/torch/distributed/distributed_c10d.py:9 barrier")
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
    watched.stack = WAITS
    assert watched.after(1.0) is first
    second = watched.after(4.0)
    assert (second.location, second.waits_in) == ("/home/me/train.py:25 train", "barrier")
    watched.stack = HANGS
    assert watched.after(4.0) is second
    assert watched.after(1.0).digest == first.digest
