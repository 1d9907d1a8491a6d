"""`BlockingCall`: a call that may never return, in its own thread, with a wait that has a limit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_LOG = logging.getLogger("supervisor_core")


class BlockingCall(Generic[T]):
    """Makes a call in its own daemon thread, at once. An abandoned call continues and discards its result.

    Args:
        call: the call; `result` raises its exceptions.
        name: the thread's name.
        discard: called with the result of an abandoned call, in the call's thread or the abandoning one; its
            exceptions are logged.

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
        """Wait for the end of the call, up to this many seconds; return whether it has ended."""
        return self._done.wait(secs)

    def result(self) -> T:
        """Return the call's result, after `wait` has returned True; raise the call's exception."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def abandon(self) -> None:
        """Give up the result."""
        with self._lock:
            self._abandoned = True
            unwanted, self._results = self._results, []
        for result in unwanted:
            self._drop(result)

    def _run(self) -> None:
        try:
            result = self._call()
        except BaseException as error:  # raised by `result`
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
        except Exception:  # no caller is left to raise it in
            _LOG.exception("The result of an abandoned call could not be discarded")
