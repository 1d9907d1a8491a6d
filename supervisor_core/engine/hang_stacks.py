"""`HangStacks`: where the stacks of a session go besides its events file, which may be on what hangs: in memory, to
``<session id>.stacks`` (`supervisor_core.process.stacks_file`), with `DeadManTimer` for the time in which Python cannot
run.

`DeadManTimer`: has the main thread's stack written when the thread that re-arms it cannot run.

Native code that holds the interpreter's lock blocks every Python thread, the monitor too. So a timer of the kernel
sends a signal to the main thread, and a handler in C (`faulthandler.register`) writes that thread's Python frames into
a file.

It may fire in a process that is well: a machine that was suspended, a monitor that was starved. Therefore the handler
writes the frames of the interrupted thread only, which stand still but for an instant of each call. Frames of other
threads change while they are read, and the process crashes; so it does with `faulthandler.dump_traceback_later`, which
is left to the program.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.log import printable
from supervisor_core.process.identity import signal_masks
from supervisor_core.process.stacks import Stacks
from supervisor_core.process.stacks_file import StacksFile, StacksLook, look_text, stacks_path

_LOG = logging.getLogger("supervisor_core")

LEAST_SECS, MOST_SECS = 10.0, 60.0
"""The dead-man timer fires when the monitor has not run for the hang timeout, within these bounds."""

_SIGEV_THREAD_ID = 4
_TRIED = 20
"""Real-time signals, from the last downwards, that are looked at for one that is free."""

_lock = threading.Lock()
_installed: set[int] = set()
"""Signals whose handler was installed; `faulthandler` does that once, even if the program has replaced it since."""
_unused: list[int] = []
"""Those that no timer sends at present."""


class _Timespec(ctypes.Structure):
    _fields_ = (("secs", ctypes.c_long), ("nanosecs", ctypes.c_long))


class _Timerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _Sigevent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


class DeadManTimer:
    """See the module's docstring. Linux only. Thread-safe.

    Args:
        descriptor: where the stack is appended; it must stay open until `close` has returned.

    Raises:
        OSError: where the system has no such timer, or no signal is free.
    """

    def __init__(self, descriptor: int) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # the number of a timer that is gone may be another's
        self._functions = _timer_functions()
        self._signal = _free_signal()
        self._timer: ctypes.c_void_p | None = None
        faulthandler.register(self._signal, file=descriptor, all_threads=False)
        event = _Sigevent(signal=self._signal, notify=_SIGEV_THREAD_ID, thread=self._pid)  # the main thread
        timer = ctypes.c_void_p()
        try:
            self._call("timer_create", time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
        except OSError:
            self._give_back_signal()
            raise
        self._timer = timer

    def arm(self, secs: float) -> None:
        """Have the stack written after these seconds, once, unless this is called again, or `close`, before."""
        whole = int(secs)
        value = _Timespec(secs=whole, nanosecs=int((secs - whole) * 1e9))
        if self._timer is None or os.getpid() != self._pid:
            return
        with self._lock:
            if self._timer is not None:
                self._call("timer_settime", self._timer, 0, ctypes.byref(_Timerspec(value=value)), None)

    def close(self) -> None:
        """Remove the timer. Does nothing in a forked child, which has none."""
        if os.getpid() != self._pid:  # nor its lock, which another thread may have held
            return
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                with suppress(OSError):
                    self._call("timer_delete", timer)
                self._give_back_signal()

    def _give_back_signal(self) -> None:
        # The handler stays: the signal's default is to end the process, and one may be on its way.
        faulthandler.register(self._signal, file=_nothing(), all_threads=False)
        with _lock:
            _unused.append(self._signal)

    def _call(self, name: str, *arguments: object) -> None:
        if self._functions[name](*arguments):
            code = ctypes.get_errno()
            raise OSError(code, f"{name}: {os.strerror(code)}")


@cache
def _nothing() -> int:
    """Return a descriptor, open for as long as the process runs, that takes and forgets what is written."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _timer_functions() -> dict[str, Any]:
    """Return the C library's functions for timers.

    Raises:
        OSError: if it has none.
    """
    for library in (None, "librt.so.1"):  # their own library before glibc 2.34
        with suppress(OSError, AttributeError):
            loaded = ctypes.CDLL(library, use_errno=True)
            return {name: getattr(loaded, name) for name in ("timer_create", "timer_settime", "timer_delete")}
    raise OSError("The C library has no timers that send a signal to a thread.")


def _free_signal() -> int:
    """Return a real-time signal that the process neither handles nor ignores.

    Raises:
        OSError: if there is none, or the system does not say.
    """
    masks = signal_masks()
    if not masks:
        raise OSError("The system does not say which signals are free.")
    caught, taken = masks["SigCgt"], masks["SigBlk"] | masks["SigIgn"] | masks["SigCgt"]
    with _lock:
        while _unused:
            number = _unused.pop()
            if caught >> (number - 1) & 1 and signal.getsignal(number) == signal.SIG_DFL:  # still ours: C code's
                return number
        for number in range(signal.SIGRTMAX, signal.SIGRTMAX - _TRIED, -1):
            if number not in _installed and not taken >> (number - 1) & 1:
                _installed.add(number)
                return number
    raise OSError("No real-time signal is free.")


class HangStacks:
    """The file of one session. Nothing here raises: what cannot be written is logged once.

    `open`, `by_timer` and `add` are called by one thread, `arm` by any. Before `open` and after `close` they do
    nothing.

    Args:
        dump_blocked: see `Options.dump_blocked_stacks`.
    """

    def __init__(self, session_id: str, clock: Clock = SYSTEM_CLOCK, *, dump_blocked: bool = True) -> None:
        self._session_id = session_id
        self._clock = clock
        self._dump_blocked = dump_blocked
        self._pid = os.getpid()
        self._file: StacksFile | None = None
        self._timer: DeadManTimer | None = None
        self._has_failed = False

    def open(self, directory: Path | None) -> None:
        """Create the file in memory, and the timer if there is to be one.

        Args:
            directory: see `supervisor_core.process.runtime_directory`; None: neither.
        """
        if directory is None:
            return
        with self._logging_failure():
            self._file = StacksFile(stacks_path(directory, self._session_id), self._session_id)
            if self._dump_blocked:
                self._timer = DeadManTimer(self._file.descriptor)
        self.arm(None)

    def arm(self, secs: float | None) -> None:
        """Have the main thread's stack written if this is not called again for so long; None: for `MOST_SECS`."""
        timer = self._timer
        if timer is not None:
            with self._logging_failure():
                timer.arm(MOST_SECS if secs is None else max(LEAST_SECS, min(secs, MOST_SECS)))

    def by_timer(self) -> StacksLook | None:
        """Return what the timer has written since the last call; None if it did not fire."""
        if self._file is not None:
            with self._logging_failure():
                return self._file.by_timer()
        return None

    def add(self, title: str, stacks: Stacks) -> None:
        """Write the stacks."""
        if self._file is not None:
            with self._logging_failure():
                self._file.add(look_text(title, self._clock.wall(), stacks))

    def close(self) -> None:
        """Remove the timer and the file in memory. In a forked child they are the parent's, and stay."""
        file, self._file = self._file, None
        timer, self._timer = self._timer, None
        if self._pid != os.getpid():
            return
        if timer is not None:
            timer.close()
        if file is not None:
            file.close(remove=True)

    @contextmanager
    def _logging_failure(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            if not self._has_failed:
                _LOG.warning("A hang of this session may leave no stacks in memory: %s", printable(str(error)))
            self._has_failed = True
