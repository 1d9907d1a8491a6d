"""`SignalWatch`: SIGTERM and SIGINT become an orderly stop, and then the end that the signal would have brought.

Python calls signal handlers in the main thread, between two bytecodes: not while it is inside a long call of native
code, which is where a training mostly is. So the handler only records, and who acts is a thread that reads the
signal's number from a pipe, into which the interpreter's own C handler writes it at once (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.runtime.latch import Latch

logger = logging.getLogger("supervisor_core")

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_open_watches: weakref.WeakSet[SignalWatch] = weakref.WeakSet()


class SignalWatch:
    """Within its ``with`` block the first SIGTERM or SIGINT is recorded, and acted upon in a thread.

    * SIGINT raises no `KeyboardInterrupt` the first time; once a signal was received it does, at once.
    * SIGTERM does not end the process, however often it comes.
    * A Python handler that was installed before is called as before, after the record, each time; what it raises is
      raised. A signal that was ignored before, or whose handler is not Python's, is left alone.
    * Afterwards the earlier handlers are back, unless others have been installed meanwhile.
    * A forked child has the earlier handlers from its start.
    * In another thread than the main one, where Python allows no handlers, it does nothing: see `installed`.

    Example:
        >>> stop = threading.Event()
        >>> with SignalWatch(lambda signum: stop.set()) as watch:
        ...     for step in range(1000):
        ...         if stop.is_set():
        ...             break
        >>> watch.finish()
    """

    def __init__(self, on_signal: Callable[[int], object], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare to watch; nothing is installed yet.

        Args:
            on_signal: called once, for the first signal, with its number, in the watch's own daemon thread. It may
                take its time. What it raises is logged.
            clock: whose monotonic hand dates the signal.
        """
        self._on_signal = on_signal
        self._clock = clock
        self._first: Latch[tuple[int, float]] = Latch()
        self._earlier: dict[int, Any] = {}
        self._installed = False
        self._handled = False
        self._read_fd = self._write_fd = -1

    @property
    def installed(self) -> bool:
        """Whether signals are being watched now."""
        return self._installed

    @property
    def received(self) -> int | None:
        """The number of the first signal; None before there was one. It is kept after the block."""
        first = self._first.reason
        return None if first is None else first[0]

    @property
    def received_at(self) -> float | None:
        """When that was, on the monotonic clock."""
        first = self._first.reason
        return None if first is None else first[1]

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is not threading.main_thread():
            logger.debug("SIGTERM and SIGINT are not watched: this is not the main thread")
            return self
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        threading.Thread(target=self._act, name="signal-watch", daemon=True).start()
        taken = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        if taken != -1:  # an event loop's, which needs it more: the handler writes to the pipe too
            signal.set_wakeup_fd(taken)
        self._installed = True
        _open_watches.add(self)
        for signum in SIGNALS:
            earlier = signal.getsignal(signum)
            if earlier is not None and earlier != signal.SIG_IGN:
                self._earlier[signum] = earlier
                signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._installed:
            self._uninstall()
            os.close(self._write_fd)  # which ends the thread, after what is still in the pipe

    def finish(self) -> None:
        """End the process as the first signal would have ended it; return if there was none, or it would not have.

        Call it in the main thread when everything is saved. After a SIGTERM that nobody else handles the process dies
        of it (status -15, or 143 in a shell), with standard output and error flushed.

        Raises:
            KeyboardInterrupt: after a SIGINT that nobody else handles.
        """
        signum = self.received
        if signum is not None and self._ends_process(signum):
            self._as_before(signum, None)

    def end_process(self) -> None:
        """Do as `finish`, from any thread, even while the main thread is stuck in native code.

        There is no `KeyboardInterrupt` then: the process dies of SIGINT too. Nothing is flushed, since that could
        wait for a lock which the main thread holds. It returns if there was no signal, or a handler that was
        installed before decides.
        """
        signum = self.received
        if signum is None or not self._ends_process(signum):
            return
        import ctypes

        # signal.signal() works in the main thread only; what it calls works anywhere.
        set_handler = ctypes.pythonapi.PyOS_setsig
        set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        set_handler(signum, None)
        os.kill(os.getpid(), signum)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again, self._handled = self._handled, True
        if not self._installed:  # kept alive by a handler that was installed later and calls this one
            self._as_before(signum, frame)
            return
        self._first.set((signum, self._clock.monotonic()))
        with suppress(BlockingIOError):  # full of signals: the first is among them
            os.write(self._write_fd, bytes([signum]))
        if (again and signum == signal.SIGINT) or not self._ends_process(signum):
            self._as_before(signum, frame)

    def _ends_process(self, signum: int) -> bool:
        """Whether nothing but the signal's default was there before."""
        return self._earlier.get(signum) in (signal.SIG_DFL, signal.default_int_handler)

    def _as_before(self, signum: int, frame: FrameType | None) -> None:
        earlier = self._earlier[signum]
        if earlier == signal.SIG_DFL:
            _flush()
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        else:
            earlier(signum, frame)

    def _act(self) -> None:
        acted = False
        try:
            while numbers := os.read(self._read_fd, 64):
                ours = [number for number in numbers if number in self._earlier]
                if ours and not acted:
                    acted = True
                    self._first.set((ours[0], self._clock.monotonic()))
                    self._call_on_signal(ours[0])
        finally:
            os.close(self._read_fd)

    def _call_on_signal(self, signum: int) -> None:
        try:
            self._on_signal(signum)
        except Exception:  # the process lives on, and so must the watch
            logger.exception("Acting upon %s failed", signal.Signals(signum).name)

    def _uninstall(self) -> None:
        for signum, earlier in self._earlier.items():
            if signal.getsignal(signum) == self._handle:
                signal.signal(signum, earlier)
        present = signal.set_wakeup_fd(-1)
        if present != self._write_fd:
            signal.set_wakeup_fd(present)
        self._installed = False
        _open_watches.discard(self)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none at all: nothing to flush
            stream.flush()


def _leave_to_parent() -> None:
    """In a forked child: the pipe is the parent's, who would take the child's signals for its own."""
    for watch in list(_open_watches):
        watch._uninstall()
        os.close(watch._read_fd)
        os.close(watch._write_fd)


os.register_at_fork(after_in_child=_leave_to_parent)
