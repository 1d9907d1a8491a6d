"""The ways in which a training hangs: each kind is a function that does not return, in a line that is marked."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "# hangs here: "


def hang(kind: str, directory: str, blocked: Callable[[Any], Any] | None = None, argument: Any = None) -> None:
    """Do not return.

    Args:
        kind: a key of `KINDS`.
        directory: where a file may be made.
        blocked: a call of the framework's that does not return, for the kind ``native``.
        argument: what it is called with.
    """
    if kind == "native" and blocked is not None:
        blocked(argument)  # hangs here: native
    KINDS[kind](directory)


def _gil(directory: str) -> None:
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # hangs here: gil


def _native(directory: str) -> None:
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # hangs here: native


def _lock(directory: str) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # hangs here: lock


def _busy(directory: str) -> None:
    while True:
        pass  # hangs here: busy


def _sleep(directory: str) -> None:
    time.sleep(1e6)  # hangs here: sleep


def _read(directory: str) -> None:
    path = os.path.join(os.path.dirname(directory), f"fifo-{os.getpid()}")
    os.mkfifo(path)
    open(path, "rb").close()  # hangs here: read


def _child(directory: str) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=time.sleep, args=(1e6,), daemon=True).start()
    ours.recv()  # hangs here: child
    theirs.close()


KINDS: dict[str, Callable[[str], None]] = {
    "gil": _gil,
    "native": _native,
    "lock": _lock,
    "busy": _busy,
    "sleep": _sleep,
    "read": _read,
    "child": _child,
}


def lines_of(kind: str) -> set[str]:
    """Return where a kind hangs, as ``file:line``."""
    text = Path(__file__).read_text().splitlines()
    found = {number for number, line in enumerate(text, start=1) if line.endswith(MARK + kind)}
    if kind == "busy":  # the loop's head is as good
        found |= {number - 1 for number in found}
    return {f"{Path(__file__).name}:{number}" for number in found}
