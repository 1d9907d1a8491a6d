"""Sessions that an uncaught exception has left open, in a notebook or another interpreter that lives on.

A session of a ``for`` loop, or of a framework's callback, ends when nothing refers to the loop any more. After an
uncaught exception something does: the interpreter keeps the traceback, with the frames and what is in them. So such a
session is found by its frame in the last traceback. It is ended when the cell of a notebook is over, and elsewhere
before the next session of the process begins.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

_LIBRARIES = {"supervisor_core", "contextlib", "keras", "transformers"}
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_Frame = tuple[int, CodeType]


class Session(Protocol):
    """What is needed of a `supervisor_core.Run`."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; does nothing where it has ended."""


_OPEN: WeakKeyDictionary[Session, _Frame] = WeakKeyDictionary()
_NOTEBOOKS: WeakSet[Any] = WeakSet()


def begun(session: Session) -> None:
    """Remember the function, or the cell, that a session begins in."""
    frame = _program_frame()
    if frame is not None:
        _OPEN[session] = (id(frame), frame.f_code)
    _watch_notebook()


def end_left() -> None:
    """End the sessions that the last uncaught exception has left open."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or not _OPEN:
        return
    frames = _frames_of(error.__traceback__) | _frames_of(getattr(sys, "last_traceback", None))
    for session, frame in list(_OPEN.items()):
        if frame in frames:
            with suppress(KeyboardInterrupt):  # of a Ctrl-C before the exception: it is over
                session.__exit__(type(error), error, error.__traceback__)
            _OPEN.pop(session, None)


def _program_frame() -> FrameType | None:
    """Return the frame of the program that begins a session: no library's, and no generator's around the loop."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if library not in _LIBRARIES and not frame.f_code.co_flags & _SUSPENDED:
            return frame
        frame = frame.f_back
    return None


def _frames_of(trace: TracebackType | None) -> set[_Frame]:
    found = set()
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
