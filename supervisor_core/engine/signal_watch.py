"""`SignalWatch`: SIGTERM, SIGINT, SIGHUP and SIGQUIT stop a training, then end the process as the signal would have.

Python calls signal handlers in the main thread, between two bytecodes: not during a long call of native code, where a
training mostly is. So the handler only records, and a thread acts: it reads the signal's number from a pipe, to which
the interpreter's own C handler writes it at once (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import termios
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.signal_safe_event import SignalSafeEvent
from supervisor_core.process.identity import signal_masks

logger = logging.getLogger("supervisor_core")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The watched signals that end a process."""

HANG_UPS = (signal.SIGHUP, signal.SIGQUIT)
"""Watched, too, where nothing handles or ignores them: signals of a terminal that is closed, and of Ctrl-\\."""

ONE_PRESS_SECS = 0.5
"""Signals within this many seconds after the first count as the same one. ``timeout`` and other wrappers send a signal
to the process and to its group, a terminal to the whole group: a program under them gets everything twice."""

CATCH_UP_SECS = 5.0
"""How long `SignalWatch.catch_up` waits at most for its thread, in seconds."""

_HANDLED = 0x80
"""Set in the bytes that the Python handler writes; those of the interpreter's own C handler are the plain number."""

_NOTHING = 0x7F
"""No signal: written to see when everything before it has been read."""

_open_watches: weakref.WeakSet[SignalWatch] = weakref.WeakSet()

OnSignal = Callable[[int], object]
"""Called with a signal's number."""


class SignalWatch:
    """Within its ``with`` block records the first signal and acts on it in a thread.

    * The first SIGINT raises no `KeyboardInterrupt`; one after an earlier signal does, at once.
    * A second signal of another kind ends the process at once, by that signal.
    * "Second" means later than `ONE_PRESS_SECS` after the first.
    * A Python handler that was installed before is called each time, after the record; its exceptions are raised, and
      it decides how the process ends. The same holds for one that the program installs within the block.
    * A SIGINT that interrupted the main thread, and after which the program continues its work (see ``work_done``), is
      over: the next signal is a first one.
    * After the block the earlier handlers are restored, unless others have been installed in between.
    * A signal that was ignored before, as SIGHUP under ``nohup``, or whose handler is not Python's, is not watched;
      SIGHUP and SIGQUIT are watched only where they had no handler at all.
    * The handler that ``asyncio.run`` installs for SIGINT counts as Python's own.
    * A forked child has the earlier handlers from its start.
    * In a thread other than the main one, where Python allows no handlers, it does nothing: see `installed`.

    Example:
        >>> stop = threading.Event()
        >>> with SignalWatch(lambda signum: stop.set()) as watch:
        ...     for step in range(1000):
        ...         if stop.is_set():
        ...             break
        >>> watch.finish()
    """

    def __init__(
        self,
        on_signal: OnSignal,
        *,
        on_again: OnSignal | None = None,
        others: Mapping[int, OnSignal] | None = None,
        ends: bool = True,
        work_done: Callable[[], int] = lambda: 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create the watch; handlers are installed by the ``with`` block.

        Args:
            on_signal: called once, for the first signal, in its own daemon thread. It may block. Its exceptions are
                logged.
            on_again: called once, for the second signal, in the watch's own thread, while ``on_signal`` may still
                run. Default: it ends the process at once, unless it is SIGINT.
            others: more signals to watch, and what to call each time, in its own daemon thread.
            ends: whether to watch the signals that end a process; if False, only the others.
            work_done: returns a number that increases while the program works; called in signal handlers, so it must
                not use locks. Default: not known.
        """
        self._on_signal = on_signal
        self._on_again = on_again or self._end_again
        self._others = dict(others or {})
        self._signals = tuple(dict.fromkeys((*SIGNALS, *HANG_UPS, *self._others) if ends else self._others))
        self._work_done = work_done
        self._clock = clock
        self._episode = _Episode()
        self._earlier: dict[int, Any] = {}
        self._replaced: set[int] = set()  # signals with a handler of the program at the end
        self.installed = self._sent_by_us = False
        """Whether signals are watched now."""
        self._caught_up = threading.Event()
        self._pid = os.getpid()
        self._read_fd = self._write_fd = -1

    @property
    def received(self) -> int | None:
        """The number of the first signal; None before it. Kept after the block."""
        first = self._episode.first.reason
        return None if first is None else first[0]

    @property
    def received_at(self) -> float | None:
        """The monotonic time of the first signal; None before it."""
        first = self._episode.first.reason
        return None if first is None else first[1]

    @property
    def received_again(self) -> bool:
        """Whether a second signal came."""
        return self._episode.again.is_set()

    @property
    def interrupted(self) -> bool:
        """Whether a SIGINT interrupted the main thread, with `KeyboardInterrupt` or the program's own handler."""
        return self._episode.interrupted.is_set()

    @property
    def has_gone_on(self) -> bool:
        """Whether the program has caught the `KeyboardInterrupt` of a SIGINT and continues its work."""
        episode = self._episode
        return episode.interrupted.is_set() and self._work_done() > episode.work_done

    def reset(self) -> None:
        """Reset to the state before the first signal if the program has continued after it. Safe in a handler."""
        if self.has_gone_on:
            episode = self._episode
            self._episode = episode.following.setdefault(None, _Episode())

    def ends_process(self, signum: int) -> bool:
        """Return whether the signal's handler was the default one and the program has installed none since."""
        return self._had_default(signum) and not self._is_replaced(signum)

    def _had_default(self, signum: int) -> bool:
        earlier = self._earlier.get(signum)
        watch = _watch_of(earlier)
        if watch is not None and not watch.installed:  # which calls the handler before it
            return watch._had_default(signum)
        return earlier in (signal.SIG_DFL, signal.default_int_handler) or _is_asyncios(earlier)

    def _is_replaced(self, signum: int) -> bool:
        """Whether a signal's handler is neither this watch's nor that of a watch within it."""
        if not self.installed:
            return signum in self._replaced
        handler = signal.getsignal(signum)
        while (watch := _watch_of(handler)) is not None and watch is not self:
            handler = watch._earlier.get(signum)
        return watch is None

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is not threading.main_thread():
            logger.debug("No signals are watched: this is not the main thread")
            return self
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        threading.Thread(target=self._read, name="signal-watch", daemon=True).start()
        taken = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        if taken != -1:  # it is an event loop's, which needs it more: our handler writes to the pipe too
            signal.set_wakeup_fd(taken)
        self.installed = True
        _open_watches.add(self)
        for signum in self._signals:
            earlier = signal.getsignal(signum)
            is_ours = _has_no_handler(signum) if signum in HANG_UPS else earlier != signal.SIG_IGN
            if earlier is not None and (is_ours or signum in self._others):
                self._earlier[signum] = earlier
                signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.installed:
            return
        if threading.current_thread() is not threading.main_thread():
            self.installed = False  # handlers cannot be restored here; ours call the earlier ones
            return
        self._uninstall()
        os.close(self._write_fd)  # ends the thread, after the rest of the pipe

    def interrupt(self) -> None:
        """Raise `KeyboardInterrupt` in the main thread, from another one, as a second SIGINT would.

        It is raised as soon as the main thread is between two bytecodes; blocking system calls are interrupted. Does
        nothing after the block.
        """
        if self.installed:
            self._episode.interrupting = self._sent_by_us = True
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGINT)

    def catch_up(self) -> int | None:
        """Return `received` after the watch's thread has read all signals until now: a signal for which the program has
        its own handler may be recorded only there."""
        if self.installed and self.received is None and os.getpid() == self._pid:
            self._caught_up.clear()
            with suppress(OSError):  # full of signals, or closed
                os.write(self._write_fd, bytes([_NOTHING]))
                self._caught_up.wait(CATCH_UP_SECS)
        return self.received

    def wait_received(self, secs: float) -> bool:
        """Wait up to ``secs`` seconds for the first signal; return whether it has come."""
        return self._episode.first.wait(secs)

    def wait_interrupted(self, secs: float) -> bool:
        """Wait up to ``secs`` seconds until a SIGINT interrupts the main thread; return whether it did."""
        return self._episode.interrupted.wait(secs)

    def finish(self) -> None:
        """End the process as the first signal would have; return if there was none, or it would not have ended it.

        Call it in the main thread after everything is saved. After a SIGTERM without another handler the process ends
        by it (status -15, or 143 in a shell), with standard output and error flushed. A process that signals cannot
        end, as the first one of a container, exits with that status.

        Raises:
            KeyboardInterrupt: after a SIGINT without another handler, unless it was raised already.
        """
        signum = self.received
        if signum is None or os.getpid() != self._pid or not self.ends_process(signum):
            return
        if signum == signal.SIGINT and self.interrupted:
            return
        if _is_asyncios(self._earlier[signum]):
            raise KeyboardInterrupt  # its handler would only cancel a task, which may await nothing any more
        self._as_before(signum, None)

    def end_process(self, signum: int | None = None) -> None:
        """Do as `finish`, from any thread, even while the main thread hangs in native code.

        SIGINT ends the process too, without `KeyboardInterrupt`. Nothing is flushed, since that could wait for a lock
        that the main thread holds. It returns if there was no signal, or if an earlier handler decides.

        Args:
            signum: the signal that ends the process. Default: the first one.
        """
        signum = self.received if signum is None else signum
        if signum is None or os.getpid() != self._pid or not self.ends_process(signum):
            return
        import ctypes

        # signal.signal() works in the main thread only; the C function that it calls works in any.
        set_handler = ctypes.pythonapi.PyOS_setsig
        set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        set_handler(signum, None)
        _die(signum)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if not self.installed:  # kept alive by a handler that was installed later and calls this one
            self._as_before(signum, frame)
            return
        if signum == signal.SIGHUP:
            drop_lost_terminal()
        if signum in self._others:
            self._write(signum)
            if callable(self._earlier[signum]):
                self._as_before(signum, frame)
            return
        self.reset()
        episode, now = self._episode, self._clock.monotonic()
        episode.first.set((signum, now))
        again, episode.handled = episode.handled and self._is_later(now), True
        self._write(signum)
        if signum == signal.SIGINT and (again or episode.interrupting or episode.again.is_set()):
            # asyncio's handler cancels the task, which may end a step before it comes to its next await.
            episode.work_done = self._work_done() + _is_asyncios(self._earlier[signum])
            episode.interrupted.set(now)
            self._as_before(signum, frame)
        elif not self._had_default(signum):
            self._as_before(signum, frame)

    def _write(self, signum: int) -> None:
        with suppress(BlockingIOError):  # full of signals: the first is among them
            os.write(self._write_fd, bytes([signum | _HANDLED]))

    def _is_later(self, now: float) -> bool:
        """Whether a signal that comes now is a second one."""
        at = self.received_at
        return at is not None and now - at >= ONE_PRESS_SECS

    def _as_before(self, signum: int, frame: FrameType | None) -> None:
        earlier = self._earlier[signum]
        if earlier == signal.SIG_DFL:
            _flush()
            signal.signal(signum, signal.SIG_DFL)
            _die(signum)
        else:
            earlier(signum, frame)

    def _read(self) -> None:
        """Body of the watch's thread: count each signal once, though both the C handler and the Python one write it."""
        seen: dict[int, list[int]] = {}
        acting: list[threading.Thread] = []
        try:
            while numbers := os.read(self._read_fd, 64):
                for number in numbers:
                    signum, handled = number & ~_HANDLED, bool(number & _HANDLED)
                    if number == _NOTHING:
                        self._caught_up.set()
                    if signum in self._earlier:
                        tally = seen.setdefault(signum, [0, 0])
                        before = max(tally)
                        tally[handled] += 1
                        if max(tally) > before:
                            acting += self._came(signum)
            for thread in acting:
                thread.join()
        finally:
            os.close(self._read_fd)

    def _came(self, signum: int) -> list[threading.Thread]:
        """Act on a signal; return the thread that does so, if there is one."""
        if signum in self._others:
            return _in_thread(self._others[signum], signum)
        now = self._clock.monotonic()
        interrupted_at = self._episode.interrupted.reason
        if signum == signal.SIGINT and self._sent_by_us:
            self._sent_by_us = False
            return []
        if signum != signal.SIGINT or interrupted_at is None or now - interrupted_at >= ONE_PRESS_SECS:
            self.reset()  # otherwise it may be the interrupting one, read late
        episode = self._episode
        episode.first.set((signum, now))
        if not episode.acted:
            episode.acted = True
            return _in_thread(self._on_signal, signum)
        if self._is_later(now) and episode.again.set(signum):
            _call(self._on_again, signum)
        return []

    def _end_again(self, signum: int) -> None:
        if signum != signal.SIGINT:
            self.end_process(signum)

    def _uninstall(self) -> None:
        self._replaced = {signum for signum in self._earlier if self._is_replaced(signum)}
        for signum, earlier in self._earlier.items():
            if signal.getsignal(signum) == self._handle:
                signal.signal(signum, earlier)
        present = signal.set_wakeup_fd(-1)
        if present != self._write_fd:
            signal.set_wakeup_fd(present)
        self.installed = False
        _open_watches.discard(self)


class _Episode:
    """A first signal and its consequences."""

    def __init__(self) -> None:
        self.first: SignalSafeEvent[tuple[int, float]] = SignalSafeEvent()
        self.again: SignalSafeEvent[int] = SignalSafeEvent()
        self.interrupted: SignalSafeEvent[float] = SignalSafeEvent()
        self.handled = self.acted = self.interrupting = False
        self.work_done = 0
        self.following: dict[None, _Episode] = {}  # created once, by a handler or a thread


def _watch_of(handler: Any) -> SignalWatch | None:
    """Return the watch that a handler belongs to, if any."""
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, SignalWatch) else None


def _is_asyncios(handler: Any) -> bool:
    """Whether a handler is the one that ``asyncio.run`` installs for SIGINT; it cancels the main task."""
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return type(runner).__module__ == "asyncio.runners"


def _has_no_handler(signum: int) -> bool:
    """Whether nothing handles a signal: no Python function, and no other code, as `faulthandler.register`."""
    if signal.getsignal(signum) != signal.SIG_DFL:
        return False
    return not signal_masks().get("SigCgt", 0) >> (signum - 1) & 1  # without such a file Python's own word counts


_lost_terminals: set[int] = set()
"""The standard file descriptors whose terminal is gone."""


def drop_lost_terminal() -> bool:
    """Have standard input, output and error read and write nothing where their terminal is gone.

    Each write to it would raise an error in the middle of a step, and the program is about to be saved and to end.

    Returns:
        Whether a terminal is gone.
    """
    for fd in range(3):
        if _is_lost_terminal(fd):
            _lost_terminals.add(fd)
            with suppress(OSError), open(os.devnull, "r+b", buffering=0) as nothing:
                os.dup2(nothing.fileno(), fd)
    return bool(_lost_terminals)


def _is_lost_terminal(fd: int) -> bool:
    try:
        termios.tcgetattr(fd)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _die(signum: int) -> None:
    """End the process by a signal whose action is the default one."""
    os.kill(os.getpid(), signum)
    # That one may be another thread's, which has yet to run, or be dropped, as one is on its way: this one is ours.
    signal.pthread_kill(threading.get_ident(), signum)
    os._exit(128 + signum)  # the first process of a container: the kernel lets no signal without a handler end it


def _in_thread(act: OnSignal, signum: int) -> list[threading.Thread]:
    """Call in its own thread, so that the next signal is read at once."""
    thread = threading.Thread(target=_call, args=(act, signum), name="signal-act", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread can be started: the next signal has to wait
        _call(act, signum)
        return []
    return [thread]


def _call(act: OnSignal, signum: int) -> None:
    try:
        act(signum)
    except Exception:  # the process continues, and so must the watch
        logger.exception("Acting upon %s failed", signal.Signals(signum).name)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed or missing: nothing to flush
            stream.flush()


_masks: dict[int, set[int]] = {}
"""Thread that forks -> the signals that it had blocked before."""


def _hold_back() -> None:
    """Before a fork: block signals until the child has its own handlers.

    Otherwise the child would write them to the parent's pipe: the parent would stop, and the child continue.
    """
    watched = {signum for watch in list(_open_watches) for signum in watch._signals}
    if watched:
        _masks[threading.get_ident()] = set(signal.pthread_sigmask(signal.SIG_BLOCK, watched))


def _let_through() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _leave_to_parent() -> None:
    """In a forked child: drop the parent's pipe, through which the parent would get the child's signals."""
    for watch in list(_open_watches):
        watch._uninstall()
        os.close(watch._read_fd)
        os.close(watch._write_fd)
    _let_through()
    _masks.clear()


os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_leave_to_parent)
