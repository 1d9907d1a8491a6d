"""`RuntimeCoordinator`: stops the threads of one training together and raises the first error in ``join``.

The contract is that of ``tf.train.Coordinator``, of which TensorFlow's own code uses the public methods only, so a
class may inherit from both. Differences: it holds no lock, so a signal handler may call `request_stop` (see
`SignalSafeEvent`); joins wake when the last thread ends; time is monotonic; threads that block are released before the
time for the stop is over.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.signal_safe_event import SignalSafeEvent
from supervisor_core.process.stacks import python_stacks

logger = logging.getLogger("supervisor_core")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

RELEASE_AFTER_SECS = 5.0
"""How long threads have to stop by themselves before the release callback runs, in seconds."""

LOOK_AGAIN_SECS = 0.05
"""How often `RuntimeCoordinator.join` checks the threads if no watcher thread can be started, in seconds."""


class _Report(NamedTuple):
    error: BaseException
    traceback: TracebackType | None


class RuntimeCoordinator:
    """Lets any thread stop all threads, and raises the first error in `join`.

    Example:
        >>> coord = RuntimeCoordinator()
        >>> def work():
        ...     with coord.stop_on_exception():
        ...         while not coord.should_stop():
        ...             raise OSError("disk gone")
        >>> thread = threading.Thread(target=work)
        >>> thread.start()
        >>> coord.join([thread])
        Traceback (most recent call last):
        OSError: disk gone
    """

    def __init__(
        self,
        clean_stop_exception_types: Iterable[type[BaseException]] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare to coordinate; nothing is started.

        Args:
            clean_stop_exception_types: exceptions that mean "done" rather than "failed": reporting one stops the
                threads and is never raised. Default: none.
            clock: measures the time for the stop; replaced in tests.
        """
        self._clean_types = tuple(clean_stop_exception_types or ())
        self._clock = clock
        self._stop_event: SignalSafeEvent[_Report | None] = SignalSafeEvent()
        self._was_joined = False
        self._join_raises = False
        self._called_by_main = False
        self._to_join: dict[threading.Thread, None] = {}
        self._releases: list[tuple[float, Callable[[], object]]] = []
        """After how many seconds each callback is called."""

    def request_stop(self, ex: BaseException | ExcInfo | None = None) -> None:
        """Ask all threads to stop; the error of the first request is raised by `join`, later ones are ignored.

        Safe in a signal handler, from any thread. The flag is set whatever is passed.

        Args:
            ex: None, an exception (with or without a traceback), or what ``sys.exc_info()`` returned.

        Raises:
            BaseException: the exception passed, if `join` has ended and would not raise it.
        """
        report = _report_of(ex)
        if report is not None and self.is_clean_stop(report.error):
            report = None
        if report is not None and self._was_joined:
            raise report.error
        if not self._stop_event.set(report) or report is None:
            return
        _log_report(report, exc_info=isinstance(ex, tuple))
        if self._was_joined and not self._join_raises:  # a join without a stop has ended meanwhile
            raise report.error

    def is_clean_stop(self, error: BaseException) -> bool:
        """Return whether an exception means "done" rather than "failed"."""
        try:
            return isinstance(error, self._clean_types)
        except Exception:  # unusable types must not prevent a stop
            logger.exception(
                "clean_stop_exception_types cannot be used: %r",
                self._clean_types,  # type: ignore[repr-in-text]  # as the program gave it
            )
            return False

    def clear_stop(self) -> None:
        """Reset: no stop requested, no error, not joined. Registered threads stay registered."""
        self._was_joined = self._join_raises = self._called_by_main = False
        self._stop_event.clear()

    def should_stop(self) -> bool:
        """Return whether a stop was requested; cheap enough for every step."""
        if not self._called_by_main:
            self._note_caller()
        return self._stop_event.is_set()

    def stop_probe(self) -> Callable[[], object]:
        """Return the quickest `should_stop`, for a loop that asks at every step: what it returns is true if a stop was
        requested. It counts as one call of it."""
        self.should_stop()
        return self._stop_event.probe

    @property
    def loop_checks_stop(self) -> bool:
        """Whether the main thread has called `should_stop` or waited for a stop since the start or the last
        `clear_stop`: then its loop will end by itself after a request."""
        return self._called_by_main

    def reset_loop_checks(self) -> None:
        """Reset `loop_checks_stop`: the calls until now were not the training loop's."""
        self._called_by_main = False

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Report whatever the body raises, `SystemExit` and `KeyboardInterrupt` too, and continue after the body."""
        try:
            yield
        except BaseException:
            self.request_stop(ex=sys.exc_info())

    def wait_for_stop(self, timeout: float | None = None, *, wake_queue: SimpleQueue[bool] | None = None) -> bool:
        """Wait until a stop is requested; return whether it was.

        Args:
            timeout: seconds to wait at most; None waits forever, 0 and less answer at once.
            wake_queue: False in this queue ends the wait early, with False.
        """
        self._note_caller()
        return self._stop_event.wait(timeout, wake_queue=wake_queue)

    def _note_caller(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            self._called_by_main = True

    def register_thread(self, thread: threading.Thread) -> None:
        """Let the next `join` wait for this thread, if it is running by then."""
        self._to_join[thread] = None

    def register_release(self, callback: Callable[[], object], after_secs: float = RELEASE_AFTER_SECS) -> None:
        """Register a callback that releases blocked threads, as by closing a queue or a session.

        The next `join` calls it, once, if threads are still alive after ``after_secs`` of the time for the stop, or
        half of it if that is less. It runs in its own thread, so that it cannot delay the join beyond that time; its
        errors are logged. Like the threads, it is dropped after the join.
        """
        self._releases.append((after_secs, callback))

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait until the threads have ended, or a stop was requested and the time for the stop is over.

        Returns as soon as the last thread has ended. Threads that were never started, and the calling thread itself,
        are not waited for. Can be called again.

        Args:
            threads: threads to wait for besides the registered ones.
            stop_grace_period_secs: seconds that the threads have to end once a stop was requested.
            ignore_live_threads: log the names of threads that are alive after that, rather than raise.

        Raises:
            BaseException: the first error that was reported, the very object.
            RuntimeError: threads are still alive, and no error was reported; the message names them and their stack
                positions.
        """
        self._note_caller()
        caller = threading.current_thread()
        named = dict.fromkeys([*self._to_join, *(threads or ())])
        waited_for = [thread for thread in named if thread is not caller]
        self._await_end_or_stop(waited_for)
        stragglers = self._await_end(waited_for, max(stop_grace_period_secs, 0.0))
        self._join_raises = self._stop_event.reason is not None  # before the next line, for its readers
        self._was_joined = True
        self._to_join = {}
        self._releases = []
        where = _describe(stragglers) if stragglers else ""
        if where and (ignore_live_threads or self._stop_event.reason is not None):
            logger.warning("%s", where)
        self.raise_requested_exception()
        if where and not ignore_live_threads:
            raise RuntimeError(where)

    @property
    def joined(self) -> bool:
        """Whether a `join` has ended since the start or the last `clear_stop`."""
        return self._was_joined

    def raise_requested_exception(self) -> None:
        """Raise the error that was reported, if there is one; it stays reported."""
        report = self._stop_event.reason
        if report is not None:
            # Without the frames of earlier raises, which would accumulate in a loop that calls this at every step.
            raise report.error.with_traceback(report.traceback)

    def _await_end_or_stop(self, threads: Sequence[threading.Thread]) -> None:
        if self.should_stop() or not _alive(threads):
            return
        wake_queue: SimpleQueue[bool] = SimpleQueue()

        def wake_when_ended() -> None:
            while alive := _alive(threads):
                for thread in alive:
                    thread.join()
            wake_queue.put(False)

        # A thread's end can only be waited for by joining it, and a stop request must end the wait too: hence the
        # watcher. It ends with the threads it joins.
        watcher = threading.Thread(target=wake_when_ended, name="Coordinator-join", daemon=True)
        try:
            watcher.start()
        except RuntimeError:  # no thread can be started, as at interpreter exit
            while _alive(threads) and not self.wait_for_stop(LOOK_AGAIN_SECS):
                pass
        else:
            self.wait_for_stop(wake_queue=wake_queue)

    def _await_end(self, threads: Sequence[threading.Thread], grace_secs: float) -> list[threading.Thread]:
        start = self._clock.monotonic()
        releasing: list[threading.Thread] = []
        for after_secs, callback in sorted(self._releases, key=itemgetter(0)):
            if not self._join_until(threads, start + min(after_secs, grace_secs / 2)):
                break
            releasing.append(_run_release(callback))
        self._join_until([*threads, *releasing], start + grace_secs)
        return _alive(threads)

    def _join_until(self, threads: Sequence[threading.Thread], moment: float) -> bool:
        """Wait for the threads until a monotonic time; return whether any is still alive."""
        for thread in threads:
            while thread.is_alive() and (remaining := moment - self._clock.monotonic()) > 0:
                thread.join(min(remaining, threading.TIMEOUT_MAX))
        return bool(_alive(threads))


def text_of(error: BaseException) -> str:
    """Return an exception's text, or a placeholder if its ``__str__`` raises."""
    try:
        return str(error)
    except Exception as unprintable:  # the first error must be handled in any case
        return f"<no text: its __str__ raised {type(unprintable).__name__}>"


def _alive(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threads if thread.is_alive()]


def _report_of(ex: object) -> _Report | None:
    if ex is None:
        return None
    if isinstance(ex, tuple) and len(ex) == 3 and isinstance(ex[1], BaseException):
        return _Report(ex[1], ex[2] if isinstance(ex[2], TracebackType) else ex[1].__traceback__)
    error = ex if isinstance(ex, BaseException) else sys.exc_info()[1]
    if error is None:
        error = ValueError(
            f"request_stop() got a {type(ex).__name__} outside of an except block; pass None, an exception, or "
            "sys.exc_info() while the exception is being handled."
        )
    return _Report(error, error.__traceback__)


def _log_report(report: _Report, *, exc_info: bool) -> None:
    error, text = report.error, text_of(report.error)
    if exc_info:
        logger.info("Error reported to Coordinator: %s", text, exc_info=(type(error), error, report.traceback))
    else:
        logger.info("Error reported to Coordinator: %s, %s", type(error), text)


def _describe(stragglers: Sequence[threading.Thread]) -> str:
    stacks = python_stacks()
    lines = [f"Coordinator stopped with threads still running: {' '.join(thread.name for thread in stragglers)}"]
    for thread in stragglers:
        if stack := stacks.get(thread.name):
            file, _, rest = stack[-1].rpartition(":")
            line, _, function = rest.partition(" ")
            lines.append(f"  {thread.name} is at {file}:{line} in {function}")
    return "\n".join(lines)


def _run_release(callback: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            callback()
        except Exception:  # `join` waits for the threads and names them in any case
            logger.exception("The release callback for threads that did not stop raised")

    thread = threading.Thread(target=run, name="Coordinator-release", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread can be started: a late join is better than none
        run()
    return thread
