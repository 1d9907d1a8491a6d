"""The Python stacks of a process's threads, as lines ``"file:line function"``, and the line of the program in them.

No source file is read: where a process hangs on a mount that also holds its sources, reading one would hang, too.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Literal

MAIN_THREAD = "MainThread"
MAX_FRAMES = 40
"""The number of frames to keep of a stack, the innermost."""
MAX_LOCATION = 120
"""Letters of a location; a function's qualified name has no bound."""

BLOCKED = "Native code holds the interpreter lock"
"""What a stall is, for people, in which no thread can run Python."""

Activity = Literal["busy", "waits"]
"""What a thread did for some seconds: it ran, or was ready to run, for at least half of them; or it slept for nine
tenths of them. Anything else is not known."""

FRAME = re.compile(r"(?P<file>.*):(?P<line>\d+) (?P<function>.*)", re.DOTALL)
"""A line of a stack."""

Stacks = Mapping[str, tuple[str, ...]]
"""Name of the thread -> its frames, outermost first."""

_LIBRARY = re.compile(r"[\\/](lib(64)?[\\/]python3[^\\/]*|site-packages|dist-packages|supervisor_core)[\\/]|^<frozen ")
"""Finds a frame of Python's library, of an installed package or of the supervisor."""
_SUPERVISOR = re.compile(r"[\\/]supervisor_core[\\/]")


_reads_frames = threading.RLock()


def _renew_lock() -> None:
    global _reads_frames
    _reads_frames = threading.RLock()


if hasattr(os, "register_at_fork"):  # another thread may hold it at a fork
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage in the block, which reads the frames of other threads.

    A collection could run a destructor that lets other threads run, as TensorFlow's of a graph does, while Python holds
    the lock that each new thread needs: then the process hangs (python/cpython#106883).
    """
    with _reads_frames:
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if is_enabled:
                gc.enable()


def python_stacks() -> dict[str, tuple[str, ...]]:
    """Return the Python stack of every thread: thread name -> ``"file:line function"``, outermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: dict[str, tuple[str, ...]] = {}
    with no_collection():
        for ident, frame in sys._current_frames().items():
            name = names.get(ident, f"thread {ident}")
            stacks[name if name not in stacks else f"{name} ({ident})"] = _lines(frame)
    return stacks


def main_stack() -> tuple[str, ...]:
    """Return the Python stack of the main thread, as in `python_stacks`."""
    with no_collection():
        return _lines(sys._current_frames().get(threading.main_thread().ident or 0))


def _lines(frame: FrameType | None) -> tuple[str, ...]:
    lines: list[str] = []
    while frame is not None and len(lines) < MAX_FRAMES:
        code = frame.f_code
        function = getattr(code, "co_qualname", code.co_name)  # qualified from Python 3.11 on
        lines.append(f"{code.co_filename}:{frame.f_lineno or 0} {function}")
        frame = frame.f_back
    return tuple(reversed(lines))


def user_line(stack: Sequence[str]) -> str | None:
    """Return the innermost line of a stack that is the program's own, or else the innermost; None of no stack.

    Example:
        >>> user_line(("/home/me/train.py:88 step", "/usr/lib/python3.11/threading.py:327 wait"))
        '/home/me/train.py:88 step'
    """
    own = [line for line in stack if not _LIBRARY.search(line)]
    return own[-1] if own else stack[-1] if stack else None


def is_library(line: str) -> bool:
    """Return whether a line of a stack is of Python's library, of an installed package or of the supervisor."""
    return _LIBRARY.search(line) is not None


def in_order(stacks: Stacks) -> list[str]:
    """Return the names of the threads: the main one first, the supervisor's own last."""
    return sorted(stacks, key=lambda name: (name != MAIN_THREAD, name != MAIN_THREAD and is_supervisors(stacks[name])))


def is_supervisors(stack: Sequence[str]) -> bool:
    """Return whether a thread is one of the supervisor's own: it runs its code, and none of the program's."""
    return any(map(_SUPERVISOR.search, stack)) and all(map(_LIBRARY.search, stack))


def location(line: str) -> str:
    """Return a line of a stack for a message or a label: without directories and control characters, in one line.

    A location stays as it is.

    Example:
        >>> location("/home/me/train.py:88 step")
        'train.py:88 in step'
    """
    found = FRAME.fullmatch(line)
    text = line
    if found is not None:
        file = re.split(r"[\\/]", found["file"])[-1]
        text = f"{file}:{found['line']} in {found['function'].removeprefix('in ')}"
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MAX_LOCATION else text[: MAX_LOCATION - 3] + "..."


def whereabouts(thread: str, at: str | None, activity: Activity | None) -> str:
    """Return where a thread is and what it does there, for people.

    Example:
        >>> whereabouts("MainThread", "train.py:88 in step", "waits")
        'MainThread waits at train.py:88 in step'
        >>> whereabouts("MainThread", None, "busy")
        'MainThread is busy'
    """
    does = "is" if activity is None else "is busy" if activity == "busy" else "waits"
    if at is None:
        return thread if activity is None else f"{thread} {does}"
    return f"{thread} {does} at {at}"
