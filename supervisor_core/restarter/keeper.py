"""The keeper: a small process between the restarter and the program, which lets no process outlive its launch.

    restarter   decides; a subreaper: if the keeper is killed, it ends what the keeper has left behind
      keeper    this file, run by its path: reaps, passes signals on, copies standard error; a subreaper
        leader  the program, in a session of its own; killed by the kernel if the keeper dies (PR_SET_PDEATHSIG)

The two ends talk over a socket, one line per message. To the keeper: ``signal N``, ``resize``, ``kill``. From it:
``started PID``, ``failed ERRNO``, ``ended STATUS CORE``, then the end of standard error, base64. The socket's end is
the restarter's end: then everything is killed.

Needs the standard library only, and imports nothing that takes long to start.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
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
from collections.abc import Collection, Iterator

KEPT_BYTES = 64 << 10
"""How much of the end of standard error is kept."""
LINGER_SECS = 5.0
"""How long processes that a program with status 0 has left behind have to end after SIGTERM."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_OF_OTHERS = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def become_subreaper() -> None:
    """Become the parent of every orphan among one's descendants. Raises OSError where the system has no such thing."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants() -> list[tuple[int, int]]:
    """Return the process id and the start time, in clock ticks, of each descendant of this process that has not ended.

    The children of a subreaper are its own, however they were orphaned, so none is missed.
    """
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _parent_and_start(int(name))) is not None:
            parents[int(name)] = found
    known = {os.getpid()}
    mine: list[tuple[int, int]] = []
    while True:
        new = [pid for pid, (parent, _) in parents.items() if parent in known and pid not in known]
        if not new:
            return mine
        known.update(new)
        mine += [(pid, parents[pid][1]) for pid in new]


def signal_descendants(signum: int, besides: Collection[int] = ()) -> int:
    """Send a signal to every descendant, but for some; return their number."""
    found = [(pid, start) for pid, start in descendants() if pid not in besides]
    for pid, start in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # of another user: not ours to end
            _send_signal(pid, start, signum)
    return len(found)


def _send_signal(pid: int, start: int, signum: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # a kernel, or a sandbox, without it: the number could be another process's for an instant
        os.kill(pid, signum)
        return
    try:
        now = _parent_and_start(pid)
        if now is not None and now[1] == start:  # else the number is another process's by now
            signal.pidfd_send_signal(handle, signum)
    finally:
        os.close(handle)


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    """Return the parent and the start time of a process that has not ended; None of any other."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}) failed: {os.strerror(number)}")


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
        self._is_orphan = False
        self._kill_at = math.inf
        self._poll = select.poll()
        self._errors = _ErrorOutput()

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
            if self._has_ended and self._kill_at == math.inf:
                self._end_the_rest()
            if time.monotonic() >= self._kill_at:
                signal_descendants(signal.SIGKILL)
                pause_secs = min(1.0, 2 * pause_secs)  # they may have forked meanwhile, so it is done again
            self._wait(wakeup, pause_secs if self._kill_at <= time.monotonic() else 1.0)
        self._errors.drain()
        if not self._is_orphan:
            tail = base64.b64encode(self._errors.tail()).decode()
            self._send(f"ended {self._status} {int(os.WCOREDUMP(self._status))} {tail}")

    def _end_the_rest(self) -> None:
        """End what the leader has left behind: in peace where it was done, which leaves time to finish an upload."""
        self._kill_at = time.monotonic()
        if self._status == 0:
            signal_descendants(signal.SIGTERM)
            signal_descendants(signal.SIGCONT)
            self._kill_at += LINGER_SECS

    def _start(self, command: list[str]) -> bool:
        """Start the leader; return whether it runs."""
        failing, failure = os.pipe()
        stderr = self._errors.open()
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_leader(command, keeper, stderr, failure)
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
            if pid == self._leader:
                self._leader, self._status, self._has_ended = None, status, True

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
            if words[0] == b"signal":
                self._signal(int(words[1]))
            elif words[0] == b"resize":
                self._errors.resize()
            elif words[0] == b"kill":
                self._kill_at = 0.0

    def _signal(self, signum: int) -> None:
        """Pass a signal on to the leader alone: its own children are its own to end."""
        if self._leader is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._leader, signum)
        if signum in _ENDING:  # what is stopped does not see it
            signal_descendants(signal.SIGCONT)

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the restarter is gone: the socket's end says so
            self._control.sendall(line.encode() + b"\n")


def _become_leader(command: list[str], keeper: int, stderr: int, failure: int) -> None:
    """Turn this forked process into the program."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, other programs do not expect that
            signal.signal(signum, signal.SIG_DFL)
        os.dup2(stderr, 2)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(failure, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


class _ErrorOutput:
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


def _ignore(signum: int, frame: object) -> None:
    """Do nothing; the wakeup descriptor wakes the loop."""


if __name__ == "__main__":
    main()
