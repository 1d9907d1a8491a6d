"""The keeper: a small process between the restarter and the program, which lets no process outlive its launch.

    restarter   decides; a subreaper: if the keeper is killed, it ends what the keeper has left behind
      keeper    `main`: reaps, passes signals on, copies standard error; a subreaper
        leader  the program, in a session of its own; killed by the kernel if the keeper dies (PR_SET_PDEATHSIG)

The two ends talk over a socket, one line per message. The socket's end is the restarter's end: then everything is
killed. To the keeper:

    signal N                          to the leader alone
    stop N SECS CAME_FROM_OTHERS      a stop signal, see `Stop`; ``kill`` comes after SECS
    end                               SIGTERM to all that is left, SIGKILL after `LINGER_SECS`
    kill, resize

From it:

    started PID, failed ERRNO
    left STATUS                       the leader has ended, and processes of it have not; not after ``stop``
    gone PID STATUS                   one of these has ended, by itself or by ``stop``
    ended STATUS TAIL                 all have ended; TAIL: the end of standard error, base64

It runs without the packages of its environment, and imports nothing that takes long to start.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import math
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import tty
from collections.abc import Iterator

from supervisor_core.restarter.processes import (
    allow_tracer,
    become_subreaper,
    descendants,
    die_with_parent,
    signal_descendants,
)
from supervisor_core.restarter.stop import Stop

KEPT_BYTES = 256 << 10
"""How much of the end of standard error is kept."""
LINGER_SECS = 5.0
"""How long what a training that is done has left behind has to end after SIGTERM."""

_OF_OTHERS = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
)  # fmt: skip


def main() -> None:
    """Run the program of the command line: FD PARENT COMMAND..."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)  # its end must be ours
    become_subreaper()
    if os.getppid() != int(sys.argv[2]):  # the restarter died before it could be watched
        return
    Keeper(control).run(sys.argv[3:])


class Keeper:
    """One launch of the program.

    Args:
        control: the socket to the restarter.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._commands = b""
        self._leader: int | None = None
        self._status = 0
        self._has_ended = False
        self._left: set[int] | None = None
        """What the leader has left behind; None before that is known."""
        self._stop: Stop | None = None
        self._pass_on_at = 0.0
        """When the stop signal is to be passed on again."""
        self._is_orphan = False
        self._kill_at = math.inf
        self._poll = select.poll()
        self._errors = ErrorOutput()

    def run(self, command: list[str]) -> None:
        """Start the program, and return when it and all of its descendants have ended."""
        wakeup, waker = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        inherited = [signum for signum in _OF_OTHERS if signal.getsignal(signum) == signal.SIG_DFL]
        for signum in (*inherited, signal.SIGCHLD):
            signal.signal(signum, _ignore)  # a handler, not SIG_IGN, which the program would inherit
        if not self._start(command):
            return
        self._poll.register(wakeup, select.POLLIN)
        self._poll.register(self._control, select.POLLIN)
        pause_secs = 0.005
        while self._reap():
            wait_secs = 1.0
            if time.monotonic() >= self._kill_at:
                signal_descendants(signal.SIGKILL)
                wait_secs = pause_secs = min(1.0, 2 * pause_secs)  # they may have forked meanwhile: done again
            elif self._stop is not None:
                if (now := time.monotonic()) >= self._pass_on_at:
                    self._pass_on_at = min(self._stop.pass_on(), now + 1.0)
                wait_secs = max(0.0, self._pass_on_at - now)
            elif self._has_ended and self._left is None:
                self._left = {each.pid for each in descendants() if each.parent == os.getpid()}
                self._send(f"left {self._status}")
            self._wait(wakeup, wait_secs)
        self._errors.drain()
        if not self._is_orphan:
            tail = base64.b64encode(self._errors.tail()).decode()
            self._send(f"ended {self._status} {tail}")

    def _start(self, command: list[str]) -> bool:
        """Start the leader; return whether it runs."""
        failing, failure = os.pipe()
        stderr = self._errors.open()
        restarter, keeper = os.getppid(), os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_leader(command, restarter, keeper, stderr, failure)
        os.close(failure)
        os.close(stderr)
        told = os.read(failing, 16)
        os.close(failing)
        self._leader = pid
        if told:
            os.waitpid(pid, 0)
            self._send(f"failed {told.decode()}")
            return False
        self._send(f"started {pid}")
        return True

    def _reap(self) -> bool:
        """Reap what has ended; return whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._pass_on_at = 0.0
            if pid == self._leader:
                self._leader, self._status, self._has_ended = None, status, True
            elif self._left is not None and pid in self._left and self._kill_at == math.inf:
                self._send(f"gone {pid} {status}")

    def _wait(self, wakeup: int, most_secs: float) -> None:
        """Wait for a message, a child's end, or output to copy; copy it and obey."""
        for source in self._errors.wanted(self._poll):
            self._poll.register(*source)
        for descriptor, _ in self._poll.poll(most_secs * 1000):
            if descriptor == wakeup:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeup, 512)
            elif descriptor == self._control.fileno():
                self._obey()
            else:
                self._errors.move(descriptor)

    def _obey(self) -> None:
        try:
            data = self._control.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._is_orphan, self._kill_at = True, 0.0
            self._poll.unregister(self._control)  # it would be readable from now on
            return
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            words = line.split()
            if words[0] == b"signal" and self._leader is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._leader, int(words[1]))
            elif words[0] == b"stop":
                self._stop = Stop(int(words[1]), float(words[2]), came_from_others=words[3] == b"1")
                self._stop.pass_on()
                self._pass_on_at = 0.0
                signal_descendants(signal.SIGCONT)  # what is stopped sees no signal
            elif words[0] == b"end":
                signal_descendants(signal.SIGTERM)
                signal_descendants(signal.SIGCONT)
                self._kill_at = min(self._kill_at, time.monotonic() + LINGER_SECS)
            elif words[0] == b"kill":
                self._kill_at = 0.0
            elif words[0] == b"resize":
                self._errors.resize()

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the restarter is gone: the socket's end says so
            self._control.sendall(line.encode() + b"\n")


def _become_leader(command: list[str], restarter: int, keeper: int, stderr: int, failure: int) -> None:
    """Turn this forked process into the program."""
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != keeper:
            os._exit(1)
        allow_tracer(restarter)
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, other programs do not expect that
            signal.signal(signum, signal.SIG_DFL)
        # Even if it is ignored here, as in a shell's background: `Stop` recognises a shell's own background by it.
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        os.dup2(stderr, 2)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(failure, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _ignore(signum: int, frame: object) -> None:
    """Do nothing; the wakeup descriptor wakes the loop."""


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
