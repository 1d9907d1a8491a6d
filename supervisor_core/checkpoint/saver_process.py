"""The saver process: one for each process that trains, which writes checkpoints from its memory, and reads them back.

It has NumPy and google-crc32c, no framework, no file that it opens itself: what it writes and reads is sent to it open.
What it reads of the training's memory are copies that do not change: ``process_vm_readv`` brings a piece at a time into
its cache. Shared memory takes a third more of the processors, as the kernel gives it no huge pages by default.

It starts with the first large checkpoint, and ends when the training's process ends, however that ends. Where it cannot
be had, was killed or is stopped, the thread that saves does its work, and a later save starts another one. Requests and
answers are lines of JSON.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

import supervisor_core
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.checkpoint.blocks import Part, Pass

_LOG = logging.getLogger("supervisor_core")

RETRY_SECS = 600.0
"""After a process that did not start, or ended, the next one is started so much later."""
_POLL_MS = 100
_PR_SET_PTRACER = 0x59616D61
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from supervisor_core.checkpoint.saver_program import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class _GoneError(Exception):
    """There is no saver process any more; says why."""


class _SaverProcess:
    """The parent's end."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs, ExitStack() as failed:
            failed.callback(self._socket.close)
            package = os.path.dirname(os.path.dirname(os.path.abspath(supervisor_core.__file__)))
            own = [os.fsdecode(item) for item in sys.path if isinstance(item, (str, bytes, os.PathLike))]
            path = json.dumps([*own, package])
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, path, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
            )
            failed.pop_all()
        # Where Yama lets a process read its children's memory alone. Without Yama this fails, and is not needed.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(self._process.pid), 0, 0, 0)

    def request(self, content: dict[str, Any], descriptor: int, is_urgent: Callable[[], bool]) -> dict[str, Any]:
        """Return the answer to a request about an open file.

        Raises:
            _GoneError: if there is none.
        """
        try:
            socket.send_fds(self._socket, [b"!"], [descriptor])
            self._socket.sendall(json.dumps({**content, "is_urgent": is_urgent()}).encode() + b"\n")
            return self._answer(is_urgent)
        except OSError as error:
            raise _GoneError(f"it does not answer: {error}") from error

    def _answer(self, is_urgent: Callable[[], bool]) -> dict[str, Any]:
        is_told, line = False, b""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not line.endswith(b"\n"):
            if not poll.poll(_POLL_MS):
                if _state_of(self._process.pid) in ("T", "t"):
                    raise _GoneError("it is stopped")
                if not is_told and is_urgent():
                    self._socket.sendall(b"!")
                    is_told = True
                continue
            part = self._socket.recv(1 << 20)
            if not part:
                raise _GoneError(f"it has ended with status {self._process.wait()}")
            line += part
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise _GoneError(answer["problem"])
        return answer

    def leave(self) -> None:
        """Close this end, in another process than the one that has started it."""
        self._socket.close()
        self._process.returncode = 0  # it is no child of this one

    def end(self) -> None:
        """End the process, and wait for that: it writes nothing afterwards."""
        self._socket.close()
        with suppress(OSError):
            self._process.kill()
        self._process.wait()


_lock = threading.Lock()
_process: _SaverProcess | None = None
_retry_at = -RETRY_SECS


def _forget() -> None:
    """In a forked child: the process is the parent's."""
    global _lock, _process
    if _process is not None:
        _process.leave()
    _lock, _process = threading.Lock(), None


after_fork_in_child(_forget)


@atexit.register
def _end() -> None:
    if _process is not None:
        _process.end()


def write(descriptor: int, parts: Sequence[Part], *, is_one: bool, is_urgent: Callable[[], bool]) -> Pass | None:
    """Have the process write parts into an open file; see `Pass.write`.

    Returns:
        None where the caller has to write them, from the file's begin.

    Raises:
        OSError: if they cannot be written.
    """
    arrays = [np.frombuffer(part.data, np.uint8) for part in parts]  # hold what is read
    addresses = [array.__array_interface__["data"][0] for array in arrays]
    places = [[at, len(part.data), part.dtype] for at, part in zip(addresses, parts, strict=True)]
    answer = _ask({"write": places, "is_one": is_one}, descriptor, is_urgent)
    if answer is None:
        return None
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    done = Pass()
    done.crcs, done.with_nan = answer["crcs"], answer["with_nan"]
    return done


def checksums(descriptor: int, ranges: Sequence[Sequence[int]], *, is_urgent: Callable[[], bool]) -> list[int] | None:
    """Return the checksums of ranges of an open file; None where the caller has to read it."""
    answer = _ask({"read": list(ranges)}, descriptor, is_urgent)
    return None if answer is None or "errno" in answer else answer["crcs"]


def _ask(content: dict[str, Any], descriptor: int, is_urgent: Callable[[], bool]) -> dict[str, Any] | None:
    global _process, _retry_at
    if not _lock.acquire(blocking=False):  # another saver's save is under way
        return None
    try:
        if _process is None:
            if time.monotonic() < _retry_at or not sys.executable or getattr(sys, "frozen", False):
                return None
            _process = _SaverProcess()
        return _process.request(content, descriptor, is_urgent)
    except Exception as error:  # whatever it is, a thread can write the checkpoint
        _LOG.warning(
            "The process that writes checkpoints is not available, %s: a thread of the training writes them. Another "
            "process is tried in %d min.", error, RETRY_SECS / 60,
        )  # fmt: skip
        if _process is not None:
            _process.end()
        _process, _retry_at = None, time.monotonic() + RETRY_SECS
        return None
    finally:
        _lock.release()


def _state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
