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
import json
import logging
import math
import os
import select
import signal
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
from supervisor_core.checkpoint.blocks import FilePart, FilePass
from supervisor_core.checkpoint.saver_program import MAY_NOT_READ
from supervisor_core.process.outside import set_tracer

_LOG = logging.getLogger("supervisor_core")

RETRY_SECS = 600.0
"""After a process that did not start, or ended, the next one is started so much later."""
START_SECS = 20.0
"""The time in which a process has to start: what ``sys.executable`` names may be no Python."""
_POLL_MS, _STOPPED_POLLS = 100, 10
_END_SECS = 5.0
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from supervisor_core.checkpoint.saver_program import main
main(*map(int, sys.argv[2:]))
"""
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class _GoneError(Exception):
    """There is no saver process any more; says why."""


class _SaverProcess:
    """The parent's end."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._status = os.fstat(self._socket.fileno())
        self._has_started, self._stopped_polls = False, 0
        with theirs, ExitStack() as failed:
            failed.callback(self._socket.close)
            package = os.path.dirname(os.path.dirname(os.path.abspath(supervisor_core.__file__)))
            own = [os.fsdecode(item) for item in sys.path if isinstance(item, (str, bytes, os.PathLike))]
            arguments = json.dumps([*own, package]), theirs.fileno(), os.getpid(), id(None)
            # From its begin it gets no signal of the whole group, as Ctrl-C and Ctrl-Z: the training does.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            failed.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
            )
            failed.pop_all()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def request(self, content: dict[str, Any], descriptor: int, is_urgent: Callable[[], bool]) -> dict[str, Any]:
        """Return the answer to a request about an open file.

        Raises:
            _GoneError: if it does not answer.
        """
        if not self._is_open():
            raise _GoneError("the program has closed its connection")
        try:
            self._wait_for_start()
            socket.send_fds(self._socket, [b"!"], [descriptor])
            data = memoryview(json.dumps({**content, "is_urgent": is_urgent()}).encode() + b"\n")
            while data:
                if self._wait(select.POLLOUT):
                    data = data[self._socket.send(data) :]
            return self._answer(is_urgent)
        except OSError as error:
            raise _GoneError(f"it does not answer: {error}") from error

    def _wait_for_start(self) -> None:
        end = time.monotonic() + START_SECS
        while not self._has_started:
            if self._wait(select.POLLIN):
                self._has_started = True
                if self._receive() == MAY_NOT_READ:  # only then: the program may have allowed it to another process
                    set_tracer(self._process.pid)
            elif time.monotonic() > end:
                raise _GoneError(f"it has not started within {START_SECS:.0f} s")

    def _answer(self, is_urgent: Callable[[], bool]) -> dict[str, Any]:
        is_told, line = False, b""
        while not line.endswith(b"\n"):
            if self._wait(select.POLLIN):
                line += self._receive()
            elif not is_told and is_urgent():
                self._socket.send(b"!")
                is_told = True
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise _GoneError(answer["problem"])
        return answer

    def _wait(self, event: int) -> bool:
        """Wait a moment for an event of the socket; return whether there is one."""
        poll = select.poll()
        poll.register(self._socket, event)
        if poll.poll(_POLL_MS):
            return True
        # After Ctrl-Z and fg it may go on later than this process.
        self._stopped_polls = self._stopped_polls + 1 if _state_of(self._process.pid) in ("T", "t") else 0
        if self._stopped_polls > _STOPPED_POLLS:
            raise _GoneError("it is stopped")
        return False

    def _receive(self) -> bytes:
        received = self._socket.recv(1 << 20)
        if not received:
            raise _GoneError(f"it has ended with status {self._process.wait(_END_SECS)}")
        return received

    def _is_open(self) -> bool:
        """Return whether the descriptor is still the socket's: a program may close all, and open files of its own."""
        try:
            return os.path.samestat(os.fstat(self._socket.fileno()), self._status)
        except OSError:
            return False

    def leave(self) -> None:
        """Close this end in a forked process."""
        self._close()
        self._process.returncode = 0  # it is no child of this one

    def _close(self) -> None:
        if self._is_open():
            self._socket.close()
        else:
            self._socket.detach()

    def end(self) -> None:
        """End the process, and wait for that: it writes nothing afterwards."""
        with suppress(OSError):
            self._process.kill()
        self._close()
        self._process.wait()


_lock = threading.Lock()
_process: _SaverProcess | None = None
_retry_at = -RETRY_SECS
_reason = ""


def _forget() -> None:
    """In a forked child: the process is the parent's."""
    global _lock, _process
    if _process is not None:
        _process.leave()
    _lock, _process = threading.Lock(), None


after_fork_in_child(_forget)


@atexit.register
def _end() -> None:
    global _process, _retry_at
    process, _process, _retry_at = _process, None, math.inf
    if process is not None:
        process.end()


def write(
    descriptor: int, parts: Sequence[FilePart], *, is_one: bool, is_urgent: Callable[[], bool]
) -> FilePass | None:
    """Have the process write parts into an open file; see `FilePass.write`.

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
    done = FilePass()
    done.crcs, done.with_nan = answer["crcs"], answer["with_nan"]
    return done


def checksums(descriptor: int, ranges: Sequence[Sequence[int]], *, is_urgent: Callable[[], bool]) -> list[int] | None:
    """Return the checksums of ranges of an open file; None where the caller has to read it."""
    answer = _ask({"read": list(ranges)}, descriptor, is_urgent)
    return None if answer is None or "errno" in answer else answer["crcs"]


def _ask(content: dict[str, Any], descriptor: int, is_urgent: Callable[[], bool]) -> dict[str, Any] | None:
    global _process, _reason, _retry_at
    if not _lock.acquire(blocking=False):  # another saver's save is under way
        return None
    try:
        if _process is None:
            if time.monotonic() < _retry_at or not sys.executable or getattr(sys, "frozen", False):
                return None
            _process = _SaverProcess()
        return _process.request(content, descriptor, is_urgent)
    except BaseException as error:
        process, _process = _process, None
        if process is not None:
            process.end()
        if not isinstance(error, Exception):  # its answer would be taken for that to the next request
            raise
        if _retry_at < math.inf:  # else the interpreter ends
            _LOG.log(
                logging.DEBUG if str(error) == _reason else logging.WARNING,
                "The process that writes checkpoints is not available, %s: a thread of the training writes them. "
                "Another process is tried every %d min.", error, RETRY_SECS / 60,
            )  # fmt: skip
            _reason, _retry_at = str(error), time.monotonic() + RETRY_SECS
        return None  # whatever it is, a thread can write the checkpoint
    finally:
        _lock.release()


def _state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
