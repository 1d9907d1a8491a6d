"""The saver process: one for each process that trains, which writes checkpoints from shared memory and reads them back.

It has NumPy and google-crc32c, no framework, no file that it opens itself: what it writes and reads is sent to it open.
It starts with the first large checkpoint, and ends when the training's process ends, however that ends. Where it cannot
be had, was killed or is stopped, the thread that saves does its work, and a later save starts another one.

A request is a line of JSON; the bytes of the parts that are not in shared memory follow. An answer is a line of JSON.
"""

from __future__ import annotations

import atexit
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

import supervisor_core
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.checkpoint import blocks
from supervisor_core.checkpoint.blocks import Part, Pass
from supervisor_core.checkpoint.shared_pool import Place, SharedPool

_LOG = logging.getLogger("supervisor_core")

RETRY_SECS = 600.0
"""After a process that did not start, or ended, the next one is started so much later."""
_POLL_SECS = 0.1
_MAX_DESCRIPTORS = 200
"""Linux sends 253 at once."""
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
            path = json.dumps([*sys.path, package])
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, path, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
            )
            failed.pop_all()

    def request(
        self, content: dict[str, Any], sent: Sequence[Any], descriptors: list[int], is_urgent: Callable[[], bool]
    ) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            _GoneError: if there is none.
        """
        line = json.dumps({**content, "descriptors": len(descriptors)}).encode() + b"\n"
        try:
            socket.send_fds(self._socket, [b"!"], descriptors)
            for data in (line, *sent):
                self._socket.sendall(data)
            return self._answer(is_urgent)
        except OSError as error:
            raise _GoneError(f"it does not answer: {error}") from error

    def _answer(self, is_urgent: Callable[[], bool]) -> dict[str, Any]:
        is_told, line = False, b""
        while not line.endswith(b"\n"):
            if not select.select([self._socket], [], [], _POLL_SECS)[0]:
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


def write(
    descriptor: int, parts: Sequence[Part], pool: SharedPool, *, is_one: bool, is_urgent: Callable[[], bool]
) -> Pass | None:
    """Have the process write parts into an open file; see `Pass.write`.

    Returns:
        None where the caller has to write them, from the file's begin.

    Raises:
        OSError: if they cannot be written.
    """
    places = [pool.place(part.data) for part in parts]
    sent = [part.data for part, place in zip(parts, places, strict=True) if place is None]
    size, sent_size = sum(len(part.data) for part in parts), sum(map(len, sent))
    if size < blocks.MIN_BYTES or sent_size > blocks.MAX_SENT_BYTES:
        return None
    segments = list(dict.fromkeys(place.descriptor for place in places if place is not None))
    items = [_item(part, place, segments) for part, place in zip(parts, places, strict=True)]
    answer = _ask({"write": items, "is_one": is_one}, sent, [descriptor, *segments], is_urgent)
    if answer is None:
        return None
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    done = Pass()
    done.crcs, done.with_nan = answer["crcs"], answer["with_nan"]
    return done


def checksums(descriptor: int, ranges: Sequence[Sequence[int]], *, is_urgent: Callable[[], bool]) -> list[int] | None:
    """Return the checksums of ranges of an open file; None where the caller has to read it."""
    answer = _ask({"read": list(ranges)}, (), [descriptor], is_urgent)
    return None if answer is None or "errno" in answer else answer["crcs"]


def _item(part: Part, place: Place | None, segments: list[int]) -> list[Any]:
    if place is None:
        return [part.dtype, len(part.data)]
    return [part.dtype, len(part.data), segments.index(place.descriptor), place.offset]


def _ask(
    content: dict[str, Any], sent: Sequence[Any], descriptors: list[int], is_urgent: Callable[[], bool]
) -> dict[str, Any] | None:
    global _process, _retry_at
    if len(descriptors) > _MAX_DESCRIPTORS or not _lock.acquire(blocking=False):  # another saver's save is under way
        return None
    try:
        if _process is None:
            if time.monotonic() < _retry_at or not sys.executable or getattr(sys, "frozen", False):
                return None
            _process = _SaverProcess()
        return _process.request({**content, "is_urgent": is_urgent()}, sent, descriptors, is_urgent)
    except (OSError, _GoneError) as error:
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
