"""Two chiefs in two processes, where there are no locks: the first one is stopped, taken over, and wakes up."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.events import EventsWriter
from supervisor_core.events.events_file import guard_directory
from supervisor_core.process.identity import Machine
from supervisor_core.run.watch.liveness import chief_path
from tests.story.holds import ends, peek

TAKEN_OVER = 3
"""The exit status of a chief that found that it was taken over."""


@pytest.fixture(scope="session")
def saves(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """A session that saves without a framework."""
    return module_at("checkpoint/saves.py")


class Chief:
    """A chief in a process of its own, on a host of its own, on a file system without locks."""

    def __init__(self, logdir: Path, host: str, saves: ModuleType, writer: ModuleType) -> None:
        self._logdir = str(logdir)
        self._host = host
        self._saves = saves
        self._writer = writer
        self.pid = 0

    def start(self, *steps: int, suspend: Callable[[], None] = lambda: None) -> None:
        """Save these steps; before that do something in the process that makes it stop at some moment."""
        self.pid = os.fork()
        if self.pid:
            return
        status = 1
        try:
            status = self._train(steps, suspend)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _train(self, steps: tuple[int, ...], suspend: Callable[[], None]) -> int:
        def no_locks(*_: Any) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        fcntl.flock = no_locks
        hold = LogdirHold(self._logdir, machine=Machine(host=self._host, boot=self._host), timeout_secs=60.0)
        session = f"on{self._host}"
        attempt = hold.acquire(session).run.attempt
        guard_directory(self._logdir, hold.check)
        events = EventsWriter(self._logdir)
        publisher = Publisher(session=session, attempt=attempt, check=hold.check)
        run = self._saves.Run(self._logdir, publisher, self._writer)
        suspend()
        try:
            for step in steps:
                with contextlib.suppress(OSError):  # a save that failed: there will be another one
                    run.save(step, 1_000_000.0 + step)
                events.scalar("saved", float(step), step)
                events.flush()
        except LogdirInUseError:
            return TAKEN_OVER
        finally:
            events.close()
            ends(hold, "completed", steps[-1])
        return 0

    def stopped(self) -> None:
        """Wait until it has stopped."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended before it came to that moment"

    def wake(self) -> int:
        """Let it go on; return its exit status."""
        os.kill(self.pid, signal.SIGCONT)
        return self.end()

    def end(self) -> int:
        """Wait for its end; return its exit status."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def chief(tmp_path: Path, saves: ModuleType, writer: ModuleType) -> Callable[[str], Chief]:
    """Returns a function that makes a chief on a host."""
    return lambda host: Chief(tmp_path, host, saves, writer)


def expire(logdir: Path) -> None:
    """Make the liveness file look as if it had not been written for two minutes."""
    written = os.stat(chief_path(logdir)).st_mtime - 120.0
    os.utime(chief_path(logdir), (written, written))


def stop_before(name: str, count: int) -> Callable[[], None]:
    """Return what makes a process stop immediately before a change of the file system, the so manieth of its kind."""

    def install() -> None:
        change, left = getattr(os, name), [count]

        def stopping(*arguments: Any, **keywords: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
            return change(*arguments, **keywords)

        setattr(os, name, stopping)

    return install


def stop_between_saves() -> None:
    """Make a process stop at once."""
    os.kill(os.getpid(), signal.SIGSTOP)


def contents(logdir: Path) -> dict[str, bytes]:
    """Every file, apart from staged ones and those that are to replace others."""
    return {
        str(path.relative_to(logdir)): path.read_bytes()
        for path in logdir.rglob("*")
        if path.is_file() and "_temp_" not in str(path) and ".tmp" not in path.name
    }


def chosen_step(logdir: Path) -> int | None:
    """The step that a restart would resume from."""
    chosen = CheckpointStore(logdir).newest_usable().chosen
    return None if chosen is None else chosen.step


def take_over(logdir: Path, second: Chief, *steps: int) -> dict[str, bytes]:
    """Have another chief take over and save; return what it leaves."""
    expire(logdir)
    second.start(*steps)
    assert second.end() == 0
    assert chosen_step(logdir) == steps[-1]
    return contents(logdir)


def test_a_chief_that_wakes_up_between_two_saves_publishes_nothing(
    tmp_path: Path, chief: Callable[[str], Chief]
) -> None:
    """No checkpoint, no record, no state file, no deletion: not one byte in the logdir changes."""
    before, first, second = chief("c"), chief("a"), chief("b")
    before.start(10, 20, 30)
    assert before.end() == 0
    first.start(35, 36, suspend=stop_between_saves)
    first.stopped()
    left = take_over(tmp_path, second, 40, 50)
    assert first.wake() == TAKEN_OVER
    assert contents(tmp_path) == left
    record = peek(tmp_path)
    assert (record.session, record.attempt, record.ended) == ("onb", 3, "completed")


# In the order of a first save: ledger, data, index, state file; then the deletion of an old checkpoint.
MOMENTS = [
    ("replace", 1, "the ledger"),
    ("replace", 2, "the data file"),
    ("replace", 3, "the index"),
    ("replace", 4, "the state file"),
    ("unlink", 1, "the old index"),
]


@pytest.mark.parametrize(("change", "count", "what"), MOMENTS, ids=[what for *_, what in MOMENTS])
def test_a_chief_that_was_stopped_between_check_and_change(
    tmp_path: Path, chief: Callable[[str], Chief], change: str, count: int, what: str
) -> None:
    """That one change still happens when it wakes up, nothing after it, and no restart goes back for it."""
    before, first, second, third = (chief(host) for host in "cabd")
    before.start(10, 20, 30)
    assert before.end() == 0
    first.start(35, 36, suspend=stop_before(change, count))
    first.stopped()
    left = take_over(tmp_path, second, 40, 50)
    assert first.wake() == TAKEN_OVER
    now = contents(tmp_path)
    changed = {name for name in left.keys() | now.keys() if left.get(name) != now.get(name)}
    assert len(changed) <= 1, what
    assert chosen_step(tmp_path) == 50
    third.start(60)
    assert third.end() == 0
    assert chosen_step(tmp_path) == 60
    verified = CheckpointStore(tmp_path).newest_usable()
    assert verified.skipped == ()


def test_two_chiefs_that_start_at_the_same_moment(tmp_path: Path, chief: Callable[[str], Chief]) -> None:
    """Where nothing decides who is first, the one whose liveness file is there goes on; the other one stops."""
    first, second = chief("a"), chief("b")
    first.start(10, 20, suspend=stop_between_saves)
    first.stopped()
    expire(tmp_path)
    second.start(10, 20, suspend=stop_between_saves)
    second.stopped()
    assert (first.wake(), second.wake()) == (TAKEN_OVER, 0)
    assert chosen_step(tmp_path) == 20
