"""The process's sessions that have begun and not ended, and what ends them where the program does not.

the interpreter's exit    an ``atexit`` hook stops them all: threads that are no daemons have ended by then (one of
                          them may be what trains); daemon threads, frameworks and logging still work; no thread
                          can be started on some versions of Python (3.12.1), and no pool of ``concurrent.futures``
                          takes work on any
that of a child           made by ``multiprocessing``, in which no ``atexit`` hooks run
an exception              which has left the call that a session began in, in a program that lives on: a notebook,
                          an interpreter, a handler. Such a session is found by the frames of that call, in the
                          exception's traceback. It is ended when the cell of the notebook is over, and elsewhere
                          before the next session of the process begins
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any, Protocol
from weakref import WeakSet

from supervisor_core.engine.loop_exit import LoopExit

_LOG = logging.getLogger("supervisor_core")


class OpenSession(Protocol):
    """What is asked of an open session: its ending has it."""

    @property
    def is_inactive(self) -> bool:
        """Whether it is to be left alone."""

    def deactivate(self) -> None:
        """Do nothing from now on, whatever is called."""


AtExit = Callable[[BaseException | None], object]
"""Stops a session; is given the exception that ends the interpreter, or that has left the session open, if any."""

_INTERPRETERS = {"IPython", "_pyrepl", "code", "idlelib", "ipykernel"}
"""What calls the cells: of each is known whether it was left, but not of their callers."""
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_Call = tuple[int, CodeType]


@dataclass(frozen=True)
class _Open:
    stop: AtExit
    calls: frozenset[_Call]
    """The calls that it began in; none where it does not end with them."""
    left: LoopExit | None = None
    """How its loop was left, where that is all that is known of its end."""


_OPEN: dict[OpenSession, _Open] = {}
"""Held though the program lets go of them: that is the case to be prepared for."""
_NOTEBOOKS: WeakSet[Any] = WeakSet()
_CHILDREN: set[int] = set()
"""Processes in which `_watch_child` has done its work."""


def add(ending: OpenSession, stop: AtExit, *, ends_with_call: bool = False) -> None:
    """Remember a session that begins.

    Args:
        ends_with_call: whether it has no life beyond the call that it begins in, as that of a framework's ``fit``.
    """
    _OPEN[ending] = _Open(stop, frozenset(_running()) if ends_with_call else frozenset())
    atexit.unregister(stop_all)
    atexit.register(stop_all)  # before what was registered until now, as a framework's own clean-up
    _watch_child()
    if ends_with_call:
        _watch_notebook()


def remove(ending: OpenSession) -> None:
    """Forget a session that has ended."""
    _OPEN.pop(ending, None)


def left(ending: OpenSession, how: LoopExit) -> None:
    """Remember that the loop of a session was left: it is stopped when the process shows why, or begins another."""
    if ending in _OPEN:
        _OPEN[ending] = replace(_OPEN[ending], left=how)


def exit_of(ending: OpenSession) -> LoopExit | None:
    """Return how the loop of a session was left, if `left` was called."""
    return _OPEN[ending].left if ending in _OPEN else None


def endings() -> list[OpenSession]:
    """Return the endings of all open sessions."""
    return list(_OPEN)


def stop_all() -> None:
    """Stop all sessions; called when the interpreter ends."""
    error = sys.exc_info()[1]  # that of a child's program passes through here
    if error is None and not hasattr(sys, "ps1"):  # where a session is interactive, the last error is not what ends it
        error = getattr(sys, "last_value", None)
    for ending, opened in list(_OPEN.items()):
        if not ending.is_inactive:
            _LOG.warning("The program ends without having stopped its session: it is stopped now.")
            try:
                opened.stop(_error_of(opened, error))
            except Exception:  # the others, and the interpreter's own clean-up, are still to come
                _LOG.exception("The session could not be stopped")
            finally:
                ending.deactivate()


def stop_left() -> None:
    """Stop the sessions whose loop was left, and those whose calls an exception has left: one that is being handled, or
    was the last that nothing handled."""
    running = _running()
    errors = [error for error in (sys.exc_info()[1], getattr(sys, "last_value", None)) if error is not None]
    for opened in list(_OPEN.values()):
        calls = opened.calls - running
        if opened.left is not None and opened.left.call is not None:
            calls |= {opened.left.call}
        found = next((error for error in errors if calls & _calls_of(error)), None)
        if found is not None or opened.left is not None:
            with suppress(KeyboardInterrupt):  # of a Ctrl-C before the exception: it is over
                opened.stop(found)


def _error_of(opened: _Open, error: BaseException | None) -> BaseException | None:
    """Return the error that a session ends with, which the program ends with, or that led to it."""
    call = None if opened.left is None else opened.left.call
    found = error
    while call is not None and found is not None and call not in _calls_of(found):
        found = found.__cause__ or found.__context__
    if found is None and opened.left is not None and not opened.left.is_by_error:
        return error  # how the loop was left is not known
    return found


def _running() -> set[_Call]:
    """Return the calls under way, up to a cell's. A generator's is none: it lives longer than what calls it."""
    found = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _INTERPRETERS:
        if not frame.f_code.co_flags & _SUSPENDED:
            found.add((id(frame), frame.f_code))
        frame = frame.f_back
    return found


def _calls_of(error: BaseException) -> set[_Call]:
    found, trace = set(), error.__traceback__
    while trace is not None:
        found.add((id(trace.tb_frame), trace.tb_frame.f_code))
        trace = trace.tb_next
    return found


def _watch_child() -> None:
    """In a child of ``multiprocessing``: stop all sessions when it ends, before its queues and threads are closed."""
    process, pid = sys.modules.get("multiprocessing.process"), os.getpid()
    if process is not None and process.parent_process() is not None and pid not in _CHILDREN:
        _CHILDREN.add(pid)
        sys.modules["multiprocessing.util"].Finalize(None, stop_all, exitpriority=1000)


def _watch_notebook() -> None:
    """In a notebook: stop what a cell has left open when the cell is over."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and shell not in _NOTEBOOKS:
        _NOTEBOOKS.add(shell)
        shell.events.register("post_run_cell", lambda result: stop_left())
