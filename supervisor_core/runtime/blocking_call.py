"""`BlockingCall`: a call that may never return, and that somebody waits for only as long as it makes sense."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_LOG = logging.getLogger("supervisor_core")


class BlockingCall(Generic[T]):
    """Makes a call in a daemon thread of its own, at once. One that is abandoned goes on, and cleans up after itself.

    Args:
        call: what to call; what it raises, `result` raises.
        name: the thread's name.
        discard: called with the result if nobody wants it any more, in the call's thread or the abandoning one; what
            it raises is logged.

    Example:
        >>> call = BlockingCall(lambda: 6 * 7, name="answer")
        >>> call.wait(10.0) and call.result()
        42
    """

    def __init__(
        self, call: Callable[[], T], *, name: str, discard: Callable[[T], object] = lambda result: None
    ) -> None:
        self._call = call
        self._discard = discard
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._abandoned = False
        self._results: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, secs: float) -> bool:
        """Wait for the end of the call, at most this many seconds; return whether it has ended."""
        return self._done.wait(secs)

    def result(self) -> T:
        """Return what the call returned, once `wait` has said that it did; raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def abandon(self) -> None:
        """Want the result no more."""
        with self._lock:
            self._abandoned = True
            unwanted, self._results = self._results, []
        for result in unwanted:
            self._drop(result)

    def _run(self) -> None:
        try:
            result = self._call()
        except BaseException as error:  # it belongs to who waits
            self._error = error
            self._done.set()
            return
        with self._lock:
            wanted = not self._abandoned
            if wanted:
                self._results.append(result)
        if not wanted:
            self._drop(result)
        self._done.set()

    def _drop(self, result: T) -> None:
        try:
            self._discard(result)
        except Exception:  # whoever gave the call up has an error of its own to raise, or is gone
            _LOG.exception("The result of an abandoned call could not be discarded")
