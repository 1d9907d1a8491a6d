"""What the saver process runs; see `saver_process`."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from supervisor_core.checkpoint.blocks import Part, Pass

NICE = 10
"""The priority of what is not urgent: behind each step, before what waits for an idle machine."""
_PARENT_SECS = 1.0
_MAX_DESCRIPTORS = 253


def main(descriptor: int, parent: int) -> NoReturn:
    """Answer requests until the parent is gone.

    Args:
        descriptor: the socket's.
        parent: the training's process.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # those of the whole group are for the training
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # the training goes on without this process
    connection = _Connection(socket.socket(fileno=descriptor), parent)
    mapped: dict[int, Any] = {}
    while True:
        _answer(connection, mapped)


class _Connection:
    """The child's end."""

    def __init__(self, connection: socket.socket, parent: int) -> None:
        self._socket = connection
        self._parent = parent
        self._buffer = bytearray()

    def wait(self, *others: int) -> bool:
        """Return whether there is something to receive, from the parent or another descriptor, after a second at most;
        end with the parent."""
        found = bool(select.select([self._socket.fileno(), *others], [], [], _PARENT_SECS)[0])
        if os.getppid() != self._parent:  # a process that it has forked may hold the other end
            os._exit(0)
        return found

    def next_request(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for a request; return it and its open files."""
        while not self.wait():
            pass
        begin, descriptors, _, _ = socket.recv_fds(self._socket, 1, _MAX_DESCRIPTORS)
        while begin == b"!" and not descriptors:  # what was urgent has ended meanwhile
            begin, descriptors, _, _ = socket.recv_fds(self._socket, 1, _MAX_DESCRIPTORS)
        if not begin:
            os._exit(0)
        while b"\n" not in self._buffer:
            self._receive()
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        return json.loads(line), list(descriptors)

    def receive(self, size: int) -> bytes:
        """Return the next bytes."""
        while len(self._buffer) < size:
            self._receive()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _receive(self) -> None:
        while not self.wait():
            pass
        data = self._socket.recv(1 << 20)
        if not data:
            os._exit(0)
        self._buffer += data

    def wait_until_urgent(self, ended: int) -> None:
        """Wait until the request has become urgent, or has ended, which makes a descriptor readable."""
        while not self.wait(ended):
            pass
        if not select.select([ended], [], [], 0)[0] and not self._socket.recv(1):
            os._exit(0)

    def send(self, answer: dict[str, Any]) -> None:
        """Send an answer."""
        self._socket.sendall(json.dumps(answer).encode() + b"\n")


def _answer(connection: _Connection, mapped: dict[int, Any]) -> None:
    request, (file, *segments) = connection.next_request()
    done, answer = Pass(), {}
    try:
        if "write" in request:
            parts = _parts(request["write"], _memory(segments, mapped), connection)
            steps = done.write(file, parts, is_one=request["is_one"])
        else:
            steps = done.read(file, request["read"])
        _run(steps, request["is_urgent"], connection)
        answer = {"crcs": done.crcs, "with_nan": done.with_nan}
    except OSError as error:
        answer = {"errno": error.errno or 0}
    except EOFError:
        answer = {"errno": 0}
    finally:
        for each in (file, *segments):
            os.close(each)
    connection.send(answer)


def _memory(segments: list[int], mapped: dict[int, Any]) -> list[Any]:
    """Return the segments' memory, mapped once."""
    numbers = [os.fstat(each).st_ino for each in segments]
    for number in mapped.keys() - numbers:
        del mapped[number]
    for number, each in zip(numbers, segments, strict=True):
        if number not in mapped:
            size = os.fstat(each).st_size
            memory = mmap.mmap(each, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            mapped[number] = np.frombuffer(memory, np.uint8)
    return [mapped[number] for number in numbers]


def _parts(items: list[list[Any]], memory: list[Any], connection: _Connection) -> list[Part]:
    parts = []
    for dtype, size, *place in items:
        if place:
            segment, offset = place
            parts.append(Part(memory[segment][offset : offset + size], dtype))
        else:
            parts.append(Part(np.frombuffer(connection.receive(size), np.uint8), dtype))
    return parts


def _run(steps: Iterator[None], is_urgent: bool, connection: _Connection) -> None:
    """Do the work at low priority, until it is urgent. A priority that was lowered cannot be raised again: another
    thread goes on then."""
    hurried, ended = threading.Event(), os.eventfd(0)
    failed: list[BaseException] = []

    def at_low_priority() -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
            for _ in steps:
                if hurried.is_set():
                    return
        except BaseException as error:
            failed.append(error)
        finally:
            os.eventfd_write(ended, 1)

    if not is_urgent:
        thread = threading.Thread(target=at_low_priority)
        thread.start()
        connection.wait_until_urgent(ended)
        hurried.set()
        thread.join()
        if failed:
            raise failed[0]
    os.close(ended)
    for _ in steps:
        pass
