"""`Child`: one launch of the program, as the restarter sees it: started by a keeper, and over when all of it is."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from supervisor_core.base.log import command_line
from supervisor_core.process.outside import left_behind
from supervisor_core.restarter.policy import ChildEnd
from supervisor_core.restarter.processes import signal_descendants

_KEEPER = "import sys; sys.path.append(sys.argv.pop(1)); from supervisor_core.restarter.keeper import main; main()"
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAX_REPORT = 1 << 20
"""The longest line that is taken from a keeper."""
MOST_BYTES = 4096
"""Of a program's file: Linux reads its first 256 for the interpreter's name."""


@dataclass(kw_only=True)
class LeftBehind:
    """The end of a program that has left processes running."""

    status: int
    """Its own wait status."""
    statuses: dict[int, int] = field(default_factory=dict)
    """The wait statuses of those of them that have ended, by themselves or by a stop signal."""

    def job_status(self, trainings: Collection[int]) -> int:
        """Return the wait status of the job that they are, as far as it has ended: that of a training, or else of the
        first that failed.

        Args:
            trainings: process ids of the sessions that the launch had.
        """
        found = [status for pid, status in self.statuses.items() if pid in trainings] or self.statuses.values()
        return next((status for status in found if status), 0)


class Child:
    """A launch. Everything it started is gone once `end` is known.

    Args:
        command: the program and its arguments.
        spared: returns the processes below this one that belong to no launch.

    Raises:
        OSError: if not even the keeper can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        spared: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        self.leader: int | None = None
        """Its process id; None before it has started."""
        self.left: LeftBehind | None = None
        """What was left running at its end; None before, without any, and after `stop`."""
        self._program, self._environment, self._spared = command, environment, spared
        self._kills_before = oom_kills()
        self._data = b""
        self._control, theirs = socket.socketpair()
        # Neither site-packages nor the environment's modules: it starts in half the time.
        keeper = [sys.executable, "-I", "-S", "-c", _KEEPER, _PACKAGES]
        try:
            self._keeper = subprocess.Popen(
                [*keeper, str(theirs.fileno()), str(os.getpid()), *command],
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()
        self._control.setblocking(False)

    @property
    def keeper_pid(self) -> int:
        """The keeper's process id."""
        return self._keeper.pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when `poll` has something new."""
        return self._control.fileno()

    def poll(self) -> ChildEnd | None:
        """Take what the keeper reports; return how the launch ended, once it has."""
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            return self._without_keeper()
        self._data += data
        *lines, self._data = self._data.split(b"\n")
        if len(self._data) > MAX_REPORT:
            return self._without_keeper()
        for line in lines:
            kind, *words = line.split(b" ")
            if kind == b"started":
                self.leader = int(words[0])
            elif kind == b"failed":
                self._close()
                number = int(words[0])
                why = why_not_started(self._program, number, self._environment)
                return ChildEnd(exit_code=126 if number == errno.EACCES else 127, not_started=why)
            elif kind == b"ended":
                self._close()
                return replace(ChildEnd.of_status(int(words[0])), stderr=_decoded(words[1]), oom_kills=self._oom_kills)
            elif kind == b"left":
                self.left = LeftBehind(status=int(words[0]))
            elif kind == b"gone" and self.left is not None:
                self.left.statuses[int(words[0])] = int(words[1])
        return None

    def send_signal(self, signum: int) -> None:
        """Send a signal to the program alone, not to what it started."""
        self._command(f"signal {int(signum)}")

    def stop(self, signum: int, secs: float, *, came_from_others: bool = False) -> None:
        """Send a stop signal to the program, and to what it leaves behind; see `supervisor_core.restarter.stop`.

        Args:
            signum: SIGTERM or SIGINT.
            secs: how long the stop may take; the caller is going to `kill` soon after.
            came_from_others: whether the program had it from somebody else, and has ended.
        """
        self._command(f"stop {int(signum)} {secs} {int(came_from_others)}")

    def end_rest(self) -> None:
        """End what a program that is done has left behind: by SIGTERM, and after `LINGER_SECS` by SIGKILL."""
        self._command("end")

    def resize(self) -> None:
        """Have the program's terminal take the size of ours."""
        self._command("resize")

    def kill(self) -> None:
        """Kill the program and everything it started."""
        self._command("kill")

    def _command(self, line: str) -> None:
        with suppress(OSError):  # the keeper is gone: `poll` says so
            self._control.sendall(line.encode() + b"\n")

    @property
    def _oom_kills(self) -> int:
        return max(0, oom_kills() - self._kills_before)

    def _without_keeper(self) -> ChildEnd:
        """Kill what a killed keeper has left: this process is the parent of its orphans."""
        self._keeper.kill()
        self._close()
        kill_all_descendants(self._spared)
        return ChildEnd(signal=signal.SIGKILL, oom_kills=self._oom_kills)

    def _close(self) -> None:
        self._control.close()
        self._keeper.wait()


def _decoded(tail: bytes) -> str:
    with suppress(binascii.Error):
        return base64.b64decode(tail).decode("utf-8", "replace")
    return ""


def reap_others(child: Child) -> None:
    """Reap what has ended and is none of a launch's own: the duty of process 1."""
    while (found := _ended_child()) is not None and found != child.keeper_pid:
        os.waitpid(found, 0)


def _ended_child() -> int | None:
    """Return the id of a child that has ended and was not reaped; None without one."""
    with suppress(ChildProcessError):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if found is None else found.si_pid
    return None


def kill_all_descendants(spared: Callable[[], Collection[int]] = frozenset) -> None:
    """Kill every process below this one, and reap those that became its children; return when none is left, but for a
    py-spy that cannot be killed, and those that are spared."""
    pause_secs = 0.001
    while signal_descendants(signal.SIGKILL, besides={*left_behind(), *spared()}):
        reap_orphans()
        time.sleep(pause_secs)
        pause_secs = min(1.0, 2 * pause_secs)
    reap_orphans()


def reap_orphans() -> None:
    """Reap all children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def oom_kills(root: str = "/") -> int:
    """Return how many processes of this control group the kernel has killed for want of memory; 0 where unknown.

    Args:
        root: the directory with ``proc`` and ``sys``; another one in tests.
    """
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            groups = dict(line.rstrip("\n").split(":", 2)[1:] for line in file if line.count(":") >= 2)
    except (OSError, ValueError):
        return 0
    # In a container the paths name the host's groups, and its own is mounted at the top.
    own, memory = groups.get("", "").lstrip("/"), groups.get("memory", "").lstrip("/")
    for path in (
        os.path.join("sys/fs/cgroup", own, "memory.events"),
        "sys/fs/cgroup/memory.events",
        os.path.join("sys/fs/cgroup/memory", memory, "memory.oom_control"),
        "sys/fs/cgroup/memory/memory.oom_control",
    ):
        with suppress(OSError, ValueError), open(os.path.join(root, path), encoding="ascii") as file:
            for line in file:
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0


def why_not_started(command: Sequence[str], number: int, environment: Mapping[str, str]) -> str:
    """Return why the system could not run a program, and what to do.

    Args:
        command: the program and its arguments.
        number: the `errno` of its start.
        environment: the one in which it was looked for.

    Example:
        >>> why_not_started(["pyhton", "train.py"], errno.ENOENT, {"PATH": "/nowhere"})
        "there is no program 'pyhton' in the directories of PATH (/nowhere)"
    """
    name, path = command[0], environment.get("PATH", os.defpath)
    places = [name] if "/" in name else [os.path.join(each, name) for each in path.split(os.pathsep)]
    found = next(filter(os.path.exists, places), None)
    if found is None:
        missing = f"there is no program {name!r} in the directories of PATH ({path})"
        return f"there is no file {name!r}" if "/" in name else missing
    if os.path.isdir(found):
        return f"{found!r} is a directory, not a program"
    if number == errno.EACCES and not os.access(found, os.X_OK):
        return f"{found!r} is not executable: give its interpreter first, or `{command_line('chmod', '+x', found)}`"
    if number == errno.ENOEXEC:
        return f"{found!r} is neither a program of this machine nor a script whose first line begins with #!"
    with suppress(OSError), open(found if os.path.isfile(found) else os.devnull, "rb") as file:
        head = file.read(MOST_BYTES).partition(b"\n")[0]
        if head[:2] == b"#!":
            interpreter = head[2:].strip(b" \t").decode(errors="replace").split(" ")[0]
            carriage = ": the line ends with a carriage return, as in a file from Windows"
            wrong = carriage if interpreter.endswith("\r") else ""
            return f"{found!r}: {os.strerror(number)}; its first line names the interpreter {interpreter!r}{wrong}"
    return f"{found!r}: {os.strerror(number)}"
