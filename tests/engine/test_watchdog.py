"""What the watchdog does about a stall, and when."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

import pytest

from supervisor_core.base.errors import StalledError
from supervisor_core.engine.stalls import StallResponse, Watchdog

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
        response = StallResponse(stop=self.stop, end=self.end, record=lambda deadline: self.did.append("heartbeat"))
        return Watchdog(action, response, stop_timeout_secs=stop_timeout_secs, die=self.die)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    """A process that is not really ended; its disk has time, however slow the machine."""
    monkeypatch.setattr("supervisor_core.engine.stalls.RECORD_SECS", 60.0)
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
