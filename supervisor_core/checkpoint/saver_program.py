"""What the saver process runs; see `saver_process`."""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from supervisor_core.checkpoint.blocks import CHUNK_BYTES, FilePart, FilePass

NICE = 5
"""By how much the priority of what is not urgent is lower. By 10 a save is durable after 3.4 instead of 2.9 times one
write and sync, where steps use every processor, and holds them up as long."""
MAY_NOT_READ = b"0"
"""Said at the start where it may not read the training's memory; else ``1``."""
_PARENT_MS = 1000
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Unreadable(Exception):  # noqa: N818
    """The parent's memory cannot be read; says why."""


def main(descriptor: int, parent: int, address: int) -> NoReturn:
    """Answer requests until the parent is gone.

    Args:
        descriptor: the socket's.
        parent: the training's process.
        address: of a byte in its memory.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # the training goes on without this process
    connection = _Connection(socket.socket(fileno=descriptor), parent)
    try:
        _Remote(parent, address, 1, np.empty(1, np.uint8))[:1]
        connection.send(b"1")
    except _Unreadable:
        connection.send(MAY_NOT_READ)
    while True:
        _answer(connection, parent)


class _Connection:
    """The child's end."""

    def __init__(self, connection: socket.socket, parent: int) -> None:
        self._socket = connection
        self._parent = parent

    def wait(self, *others: int) -> bool:
        """Return whether there is something to receive, from the parent or another descriptor, after a second at most;
        end with the parent."""
        found = _poll(_PARENT_MS, self._socket.fileno(), *others)
        if os.getppid() != self._parent:  # a process that it has forked may hold the other end
            os._exit(0)
        return found

    def next_request(self) -> tuple[dict[str, Any], int]:
        """Wait for a request; return it and its open file."""
        descriptors: list[int] = []
        while not descriptors:  # what was urgent may have ended meanwhile
            while not self.wait():
                pass
            begin, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
            if begin != b"!":
                os._exit(0)
        line = b""
        while not line.endswith(b"\n"):
            while not self.wait():
                pass
            line += self._socket.recv(1 << 20) or os._exit(0)
        return json.loads(line), descriptors[0]

    def wait_until_urgent(self, ended: int) -> None:
        """Wait until the request has become urgent, or has ended, which makes a descriptor readable."""
        while not self.wait(ended):
            pass
        if not _poll(0, ended) and not self._socket.recv(1):
            os._exit(0)

    def send(self, data: bytes) -> None:
        """Send an answer."""
        self._socket.sendall(data)


def _poll(timeout_ms: int, *descriptors: int) -> bool:
    """Return whether one of these is readable. Their numbers may be too high for ``select``."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_ms))


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Remote:
    """Bytes of the parent's memory. A slice is overwritten by the next one."""

    def __init__(self, parent: int, address: int, size: int, memory: Any) -> None:
        self._parent, self._address, self._size, self._memory = parent, address, size, memory

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> Any:
        start, stop, _ = part.indices(self._size)
        here = _Vector(self._memory.__array_interface__["data"][0], stop - start)
        there = _Vector(self._address + start, stop - start)
        got = _LIBC.process_vm_readv(self._parent, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got != stop - start:
            reason = os.strerror(ctypes.get_errno()) if got < 0 else "a part is not there"
            raise _Unreadable(f"it cannot read the memory of the training: {reason}")
        return self._memory[: stop - start]


def _answer(connection: _Connection, parent: int) -> None:
    request, file = connection.next_request()
    done = FilePass()
    try:
        if "write" in request:
            memory = np.empty(CHUNK_BYTES, np.uint8)
            parts = (FilePart(_Remote(parent, place, size, memory), dtype) for place, size, dtype in request["write"])
            steps = done.write(file, parts, is_one=request["is_one"])
        else:
            steps = done.read(file, request["read"])
        _run(steps, request["is_urgent"], connection)
        answer: dict[str, Any] = {"crcs": done.crcs, "with_nan": done.with_nan}
    except OSError as error:
        answer = {"errno": error.errno or 0}
    except EOFError:
        answer = {"errno": 0}
    except _Unreadable as error:
        answer = {"problem": str(error)}
    finally:
        os.close(file)
    connection.send(json.dumps(answer).encode() + b"\n")


def _run(steps: Iterator[None], is_urgent: bool, connection: _Connection) -> None:
    """Do the work at low priority, until it is urgent. A priority that was lowered cannot be raised again: another
    thread goes on then."""
    hurried = threading.Event()
    failed: list[BaseException] = []

    def at_low_priority() -> None:
        try:
            with suppress(OSError):  # relative: the training's own may be low, and none can be raised
                thread = threading.get_native_id()
                os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)
            for _ in steps:
                if hurried.is_set():
                    return
        except BaseException as error:
            failed.append(error)
        finally:
            os.eventfd_write(ended, 1)

    if not is_urgent:
        ended = os.eventfd(0)
        try:
            worker = threading.Thread(target=at_low_priority)
            worker.start()
            connection.wait_until_urgent(ended)
            hurried.set()
            worker.join()
        finally:
            os.close(ended)
        if failed:
            raise failed[0]
    for _ in steps:
        pass
