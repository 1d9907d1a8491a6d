"""Sessions that an exception has left open, in a program that lives on: a notebook, an interpreter, a handler.

A session of a framework's callback ends when nothing refers to the call that it began in any more. After an exception
its traceback does: as long as it is handled, and where nothing handles it as long as an interpreter keeps the last one.
So such a session is found by the frames of the calls that it began in. It is ended when the cell of a notebook is over,
and elsewhere before the next session of the process begins.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

_INTERPRETERS = {"IPython", "_pyrepl", "code", "idlelib", "ipykernel"}
"""What calls the cells: of each is known whether it was left, but not of their callers."""
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_Frame = tuple[int, CodeType]


class Session(Protocol):
    """What is needed of a `supervisor_core.Run`."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; does nothing where it has ended."""


_OPEN: WeakKeyDictionary[Session, set[_Frame]] = WeakKeyDictionary()
_NOTEBOOKS: WeakSet[Any] = WeakSet()


def begun(session: Session) -> None:
    """Remember the calls that a session begins in."""
    _OPEN[session] = _running()
    _watch_notebook()


def end_left() -> None:
    """End the sessions whose calls an exception has left, if it is being handled, or was the last that nothing did."""
    running = _running()
    for error in (sys.exc_info()[1], getattr(sys, "last_value", None)):
        if not isinstance(error, BaseException):
            continue
        left = _frames_of(error) - running
        for session, frames in list(_OPEN.items()):
            if frames & left:
                del _OPEN[session]
                with suppress(KeyboardInterrupt):  # of a Ctrl-C before the exception: it is over
                    session.__exit__(type(error), error, None)


def _running() -> set[_Frame]:
    """Return the calls under way, up to a cell's. A generator's is none: it lives longer than what calls it."""
    found = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _INTERPRETERS:
        if not frame.f_code.co_flags & _SUSPENDED:
            found.add((id(frame), frame.f_code))
        frame = frame.f_back
    return found


def _frames_of(error: BaseException) -> set[_Frame]:
    found, trace = set(), error.__traceback__
    while trace is not None:
        found.add((id(trace.tb_frame), trace.tb_frame.f_code))
        trace = trace.tb_next
    return found


def _watch_notebook() -> None:
    """In a notebook: end what a cell has left open when the cell is over."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and shell not in _NOTEBOOKS:
        _NOTEBOOKS.add(shell)
        shell.events.register("post_run_cell", lambda result: end_left())
