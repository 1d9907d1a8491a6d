"""SIGTERM and SIGINT become an orderly stop, up to the end of the process by them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.options import Options
from supervisor_core.engine.deadline import Deadline, StopDeadline
from supervisor_core.engine.ending import AGAIN_SECS, StopReason, StopSignals
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


def test_acting_runs_in_a_thread() -> None:
    """What acts runs in another thread than the handler, so it may take locks and wait; also upon a signal that comes
    as the last thing in the block."""
    names: SimpleQueue[str] = SimpleQueue()
    with SignalWatch(lambda _: names.put(threading.current_thread().name)):
        signal.raise_signal(signal.SIGINT)
    assert names.get(timeout=60) == "signal-act"


def test_acting_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """What acting raises is logged, and the signal counts as received."""

    def fail(_: int) -> None:
        raise OSError("disk gone")

    with SignalWatch(fail) as watch:
        thread = watch_thread()
        signal.raise_signal(signal.SIGTERM)
    assert thread is not None
    thread.join()  # which ends after what acts
    assert watch.received == signal.SIGTERM
    assert "Acting upon SIGTERM failed" in caplog.text
    assert "disk gone" in caplog.text


def test_a_watch_that_is_over_hides_no_default() -> None:
    """Of two watches whose blocks overlap, the one that ends last still ends the process."""
    first = SignalWatch(print).__enter__()
    with SignalWatch(print) as second:
        assert not second.ends_process(signal.SIGTERM)
        first.__exit__(None, None, None)
        assert second.ends_process(signal.SIGTERM)


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


class Timer:
    """An exit timer that ends nothing."""

    def __init__(self) -> None:
        self.armed = False

    def arm(self, deadline: Deadline) -> None:
        """It runs."""
        self.armed = True

    def disarm(self) -> None:
        """It does not."""
        self.armed = False


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The signals of a session that was interrupted by its second Ctrl-C."""
    state: Any = SimpleNamespace(deadline=StopDeadline(3600.0, SYSTEM_CLOCK), reason=StopReason())
    made: Any = StopSignals(SimpleNamespace(), state, Options(), SYSTEM_CLOCK)  # type: ignore[arg-type]
    made._watch = SimpleNamespace(
        received_at=SYSTEM_CLOCK.monotonic(), received_again=True, interrupted=True, has_gone_on=False,
        ends_process=lambda signum: True, wait_interrupted=lambda secs: True, catch_up=lambda: signal.SIGINT,
    )  # fmt: skip
    made._exit_timer = Timer()
    monkeypatch.setattr(made, "_end_session", lambda watch, signum: None)
    return made


def test_no_timer_ends_a_program_that_was_interrupted(signals: Any) -> None:
    """Nor where the first signal's thread arms it when that of the second has disarmed it: the program's own clean-up
    takes the time that it takes."""
    signals._signalled_again(signal.SIGINT)
    signals._signalled(signal.SIGINT)
    assert not signals._exit_timer.armed


def test_a_late_first_signal_does_not_bring_the_stop_timeout_back(signals: Any) -> None:
    """After the second one the end is near, whichever thread notes the first."""
    signals.catch_up(5.0)
    assert signals._state.deadline.for_end.remaining() <= AGAIN_SECS
    signals._signalled(signal.SIGINT)
    assert signals._state.deadline.for_end.remaining() <= AGAIN_SECS
    assert signals._state.reason.signum == signal.SIGINT


PREAMBLE = """
import ctypes, os, signal, sys, threading
from supervisor_core.engine.signal_watch import SignalWatch

def say(text):
    os.write(1, text.encode() + b"\\n")

stop = threading.Event()
def on_signal(signum):
    say(f"acting upon {signum}")
    stop.set()

libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(256)
libc.pthread_mutex_lock(mutex)
def stuck():
    # Native code that no signal interrupts, and that lets go of the interpreter's lock.
    say("ready")
    libc.pthread_mutex_lock(mutex)
"""


class Trainer:
    """A Python process that runs a script; input and output are exchanged line by line."""

    def __init__(self, script: str) -> None:
        import supervisor_core

        root = str(Path(supervisor_core.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)],
            env={**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def play(self, *script: str | int) -> Trainer:
        """Read the lines that the script expects, and send its signals, in this order."""
        assert self.process.stdout is not None
        for item in script:
            if isinstance(item, int):
                self.process.send_signal(item)
            else:
                came = self.process.stdout.readline()
                assert came == item + "\n", came + self.process.communicate(timeout=60)[1]
        return self

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return the exit status and what else was written to both outputs."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Not communicate(), which reads past what `expect` has left in the stream's buffer.
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(timeout=60), out, err


@pytest.fixture
def trainer() -> Iterator[Callable[[str], Trainer]]:
    """Starts processes, and leaves none behind."""
    started: list[Trainer] = []

    def start(script: str) -> Trainer:
        started.append(Trainer(script))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        with one.process:  # closes its streams, and waits for it
            pass


def test_a_signal_that_comes_twice_at_once(trainer: Any) -> None:
    """A SIGTERM that a wrapper sends to the process and to its group counts once, and is acted upon once."""
    process = trainer(
        """
        from supervisor_core.engine import signal_watch as signals
        signals.ONE_PRESS_SECS = 3600.0  # "at once", however slow the machine
        with SignalWatch(on_signal) as watch:
            say("ready")
            stop.wait()
            for _ in range(3):
                signal.raise_signal(signal.SIGTERM)
            say("still here")
        watch.finish()
        """
    )
    process.play("ready", signal.SIGTERM, "acting upon 15", "still here")
    assert process.end() == (-signal.SIGTERM, "", "")


def test_interrupt(trainer: Any) -> None:
    """`interrupt` raises KeyboardInterrupt in the main thread, out of a blocking call too, once; `finish` no more."""
    process = trainer(
        """
        with SignalWatch(lambda signum: watch.interrupt()) as watch:
            try:
                say("ready")
                signal.pause()
                threading.Event().wait()
            except KeyboardInterrupt:
                say("interrupted")
        watch.finish()
        say("went on")
        """
    )
    process.play("ready", signal.SIGINT)
    status, out, err = process.end()
    assert (status, out, err) == (0, "interrupted\nwent on\n", "")


def test_other_signals(trainer: Any) -> None:
    """A further signal is acted upon each time it comes, and ends nothing."""
    process = trainer(
        """
        with SignalWatch(on_signal, others={signal.SIGUSR1: lambda signum: say(f"saving for {signum}")}) as watch:
            say("ready")
            stop.wait()
            say(f"received {watch.received}")
        """
    )
    process.play("ready")
    for _ in range(2):
        process.play(signal.SIGUSR1, f"saving for {int(signal.SIGUSR1)}")
    process.play(signal.SIGTERM, "acting upon 15")
    assert process.end() == (0, "received 15\n", "")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_end_process_while_stuck(trainer: Any, signum: int) -> None:
    """`end_process` ends the process by the signal from any thread, even if the main thread never comes back; also by
    one that the kernel hands to that thread, as it does where a core may be written."""
    process = trainer(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        def give_up(signum):
            watch.end_process()
            say("not reached")
        with SignalWatch(give_up) as watch:
            stuck()
        """
    )
    process.play("ready", signum)
    assert process.end() == (-signum, "", "")


def test_forked_child(trainer: Any) -> None:
    """A forked child dies of SIGTERM as it always did, and the parent does not take that signal for its own."""
    process = trainer(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # fork and threads, from Python 3.12
        with SignalWatch(on_signal) as watch:
            child = os.fork()
            if not child:
                say("child")
                while True:
                    signal.pause()
            while True:
                line = sys.stdin.readline()
                if line == "kill\\n":
                    os.kill(child, signal.SIGTERM)
                    _, status = os.waitpid(child, 0)
                    say(f"child ended by {os.WTERMSIG(status)}, received {watch.received}")
                else:
                    break
            signal.raise_signal(signal.SIGTERM)
            stop.wait()
        """
    )
    process.play("child")
    process.process.stdin.write("kill\nend\n")
    process.process.stdin.flush()
    process.play("child ended by 15, received None", "acting upon 15")
    assert process.end()[0] == 0


def test_a_signal_that_comes_while_a_child_is_forked() -> None:
    """It is the child's, which dies of it, though it came before the child had its own handlers; not the parent's."""
    program = textwrap.dedent("""
        import os, signal, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
        from supervisor_core.engine.signal_watch import SignalWatch
        with SignalWatch(lambda signum: None) as watch:
            child = os.fork()
            if child == 0:
                os._exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), watch.received, signal.pthread_sigmask(0, ()))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGTERM.value} None set()\n"), done.stderr
