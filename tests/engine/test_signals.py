"""SIGTERM and SIGINT become an orderly stop, and all that a process had set up for them is put back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from supervisor_core.engine.signal_watch import SignalWatch

COUNTED = """
import os, threading
from supervisor_core.engine.signal_watch import SignalWatch
def count():
    return len(os.listdir("/proc/self/fd"))
before = count()
with SignalWatch(print):
    (thread,) = [each for each in threading.enumerate() if each.name == "signal-watch"]
    assert count() > before
thread.join()
assert count() == before
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Signal handlers as the test run has them, before and after."""
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def watch_thread() -> threading.Thread | None:
    """The thread of the watch that is open, if there is one: the newest, since those of others may still be ending."""
    return next((thread for thread in reversed(threading.enumerate()) if thread.name == "signal-watch"), None)


def test_everything_is_put_back() -> None:
    """After the block the handlers, wake-up descriptor and open files are as before, and the thread has ended."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with SignalWatch(print) as watch:
        assert watch.installed
        thread = watch_thread()
    assert thread is not None
    thread.join()
    assert not watch.installed
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert signal.set_wakeup_fd(-1) == -1
    # Files are counted where nothing else opens or closes any.
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_received(clock: Any) -> None:
    """The first signal and its moment are kept after the block; later ones change nothing."""
    with SignalWatch(lambda _: None, on_again=lambda _: None, clock=clock) as watch:
        assert (watch.received, watch.received_at) == (None, None)
        signal.raise_signal(signal.SIGTERM)
        clock.advance(5)
        signal.raise_signal(signal.SIGTERM)
    assert (watch.received, watch.received_at) == (signal.SIGTERM, 1000.0)


def test_not_in_the_main_thread() -> None:
    """In another thread it does nothing, and says so; the block runs."""
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def run() -> None:
        with SignalWatch(print) as watch:
            seen.extend([watch.installed, signal.getsignal(signal.SIGTERM) is before])
        watch.finish()
        watch.end_process()
        seen.append(watch.received)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False, True, None]


def test_handlers_of_the_program_stay() -> None:
    """A signal that was ignored before, as under nohup, is left alone; a handler that was installed within the block is
    left where it is; signals that are not watched go to their handlers, and are not acted upon."""

    def newer(_signum: int, _frame: object) -> None: ...

    calls: list[int] = []
    acted: list[int] = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda signum, _: calls.append(signum))
    with SignalWatch(acted.append) as watch:
        thread = watch_thread()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        signal.signal(signal.SIGINT, newer)
    assert thread is not None
    thread.join()
    assert signal.getsignal(signal.SIGINT) is newer
    assert (calls, acted, watch.received) == ([signal.SIGUSR1], [], None)


@pytest.mark.parametrize("calls_ours", [True, False])
def test_a_handler_installed_meanwhile_decides(calls_ours: bool) -> None:
    """A signal for which the program has installed a handler within the block is recorded and acted upon, and ends
    nothing, also if that handler goes on to the one that was there before."""
    acted, calls = threading.Event(), []
    with SignalWatch(lambda _: acted.set()) as watch:
        ours: Any = signal.getsignal(signal.SIGTERM)

        def newer(signum: int, frame: Any) -> None:
            calls.append(signum)
            if calls_ours:
                ours(signum, frame)

        assert watch.ends_process(signal.SIGTERM)
        signal.signal(signal.SIGTERM, newer)
        assert not watch.ends_process(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert acted.wait(60)
    watch.finish()
    watch.end_process()
    assert (calls, watch.received) == ([signal.SIGTERM], signal.SIGTERM)


def test_the_program_goes_on_after_an_interrupt(clock: Any) -> None:
    """Where a program has caught the KeyboardInterrupt and works on, the next signal is a first one."""
    acted, work = SimpleQueue[int](), [7]
    with SignalWatch(acted.put, work_done=lambda: work[0], clock=clock) as watch:
        signal.raise_signal(signal.SIGINT)
        assert acted.get(timeout=60) == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            interrupt_and_wait(watch)
        assert (watch.interrupted, watch.has_gone_on) == (True, False)
        work[0] += 1
        assert watch.has_gone_on
        clock.advance(5)
        signal.raise_signal(signal.SIGTERM)
        assert acted.get(timeout=60) == signal.SIGTERM
        assert (watch.received, watch.received_at) == (signal.SIGTERM, 1005.0)
        assert (watch.interrupted, watch.received_again) == (False, False)


def interrupt_and_wait(watch: SignalWatch) -> None:
    """Interrupt this thread, and be there when it comes."""
    watch.interrupt()
    threading.Event().wait(60)


def test_called_after_its_end() -> None:
    """A newer handler which goes on calling ours gets what was there before ours."""
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _: calls.append(signum))
    with SignalWatch(print) as watch:
        ours: Any = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda signum, frame: ours(signum, frame))
    signal.raise_signal(signal.SIGTERM)
    assert calls == [signal.SIGTERM]
    assert watch.received is None
    with SignalWatch(print):
        interrupt: Any = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)


def test_nested_watches() -> None:
    """Two watches both receive the signal, and only the outer one's `finish` ends the process."""
    acted = [threading.Event(), threading.Event()]
    with SignalWatch(lambda _: acted[0].set()) as outer:
        with SignalWatch(lambda _: acted[1].set()) as inner:
            signal.raise_signal(signal.SIGINT)
            assert all(event.wait(60) for event in acted)
        inner.finish()
    assert (outer.received, inner.received) == (signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        outer.finish()


def test_beside_an_event_loop() -> None:
    """An event loop's wake-up descriptor keeps its bytes, and the watch works all the same."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd)
    acted = threading.Event()
    try:
        with SignalWatch(lambda _: acted.set()):
            signal.raise_signal(signal.SIGTERM)
            assert acted.wait(60)
        assert os.read(read_fd, 10) == bytes([signal.SIGTERM])
    finally:
        assert signal.set_wakeup_fd(-1) == write_fd
        os.close(read_fd)
        os.close(write_fd)
