"""What a process makes of SIGTERM and SIGINT, up to its end by them: each test has a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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


ORDERLY = """
with SignalWatch(on_signal) as watch:
    say("ready")
    stop.wait()
    print("saved")
watch.finish()
print("went on")
"""


def test_sigterm(trainer: Any) -> None:
    """A SIGTERM is acted upon, the block ends as it wants, and the process then dies of SIGTERM; output is flushed."""
    assert trainer(ORDERLY).play("ready", signal.SIGTERM, "acting upon 15").end() == (-signal.SIGTERM, "saved\n", "")


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


def test_stuck_in_native_code(trainer: Any) -> None:
    """A signal is acted upon while the main thread is inside native code, where Python calls no handler."""
    process = trainer(
        """
        def release(signum):
            say(f"acting upon {signum}")
            libc.pthread_mutex_unlock(mutex)
        with SignalWatch(release) as watch:
            stuck()
            say(f"received {watch.received}")
        watch.finish()
        """
    )
    process.play("ready", signal.SIGTERM, "acting upon 15", "received 15")
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


def test_users_handler(trainer: Any) -> None:
    """A handler that the user installed is called after the record, each time; the end is then the user's affair."""
    process = trainer(
        """
        def mine(signum, frame):
            say(f"mine {signum} {watch.received}")
        signal.signal(signal.SIGTERM, mine)
        signal.signal(signal.SIGINT, mine)
        with SignalWatch(lambda signum: stop.set()) as watch:
            signal.raise_signal(signal.SIGTERM)
            stop.wait()
            signal.raise_signal(signal.SIGINT)
        watch.finish()
        watch.end_process()
        say("went on")
        """
    )
    assert process.end() == (0, "mine 15 15\nmine 2 15\nwent on\n", "")


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
