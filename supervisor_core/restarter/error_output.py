"""`ErrorOutput`: copies the program's standard error to ours, and keeps its end. Of the keeper, so it starts fast."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import time
import tty
from collections.abc import Iterator

KEPT_BYTES = 64 << 10
"""How much of the end of standard error is kept."""


class ErrorOutput:
    """Copies the program's standard error to ours, and keeps its end.

    Where ours is a terminal, the program's is one, too: a pseudo-terminal of the same size. Else it is a pipe. While
    ours takes nothing, nothing is read either, as if the program wrote to it directly.
    """

    def __init__(self) -> None:
        self._source = -1
        self._is_terminal = False
        self._unwritten = b""
        self._kept = bytearray()
        self._is_closed = False

    def open(self) -> int:
        """Return the descriptor for the program."""
        self._is_terminal = os.isatty(2)
        if self._is_terminal:
            try:
                self._source, given = os.openpty()
                tty.setraw(given)  # our own terminal edits the lines
            except (OSError, termios.error):
                self._is_terminal = False
        if not self._is_terminal:
            self._source, given = os.pipe()
        self.resize()
        os.set_blocking(self._source, False)
        return given

    def resize(self) -> None:
        """Give the pseudo-terminal the size of ours."""
        if self._is_terminal:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                rows_and_columns = os.get_terminal_size(2)
                size = struct.pack("HHHH", rows_and_columns.lines, rows_and_columns.columns, 0, 0)
                fcntl.ioctl(self._source, termios.TIOCSWINSZ, size)

    def wanted(self, poll: select.poll) -> Iterator[tuple[int, int]]:
        """Yield the descriptors to wait for, with their events; the others are taken off."""
        for descriptor in (self._source, 2):
            with contextlib.suppress(KeyError):
                poll.unregister(descriptor)
        if self._unwritten:
            yield 2, select.POLLOUT
        elif not self._is_closed:
            yield self._source, select.POLLIN

    def move(self, descriptor: int) -> None:
        """Read or write what the poll has found."""
        if descriptor == 2:
            self._write()
        else:
            self._read()

    def drain(self) -> None:
        """Copy what is left, now that no process has it open: for at most a second, where ours takes nothing."""
        until = time.monotonic() + 1.0
        while time.monotonic() < until and (self._unwritten or not self._is_closed):
            if not self._unwritten and not self._read():
                return
            poll = select.poll()
            poll.register(2, select.POLLOUT)
            if self._unwritten and poll.poll(100):
                self._write()

    def tail(self) -> bytes:
        """Return the last `KEPT_BYTES`."""
        return bytes(self._kept[-KEPT_BYTES:])

    def _read(self) -> bool:
        try:
            data = os.read(self._source, 4096)
        except BlockingIOError:
            return False
        except OSError:  # EIO: a pseudo-terminal that nothing has open
            data = b""
        if not data:
            self._is_closed = True
            return False
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        self._unwritten = data
        return True

    def _write(self) -> None:
        try:
            self._unwritten = self._unwritten[os.write(2, self._unwritten) :]
        except BlockingIOError:
            pass
        except OSError:  # closed by who read it
            self._unwritten = b""
