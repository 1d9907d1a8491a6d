"""`Launcher`: starts programs in processes of their own, without the seconds that importing TensorFlow takes each time.

A server process imports TensorFlow and the project, runs nothing of either, and forks a child for each program. The
child leaves the server's loop and runs its program as the main program of a process would be run, so that exceptions,
signals and the interpreter's own end are what a user sees. When the caller is gone the server kills what still runs.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.faults.syscalls import Strike, strike

OWN_PROGRAMS = ("benchmarks.faults.training", "benchmarks.faults.appending", "benchmarks.faults.dumping")
"""One server starts these; each other program has one of its own, since frameworks do not all go together."""
READY_TIMEOUT_SECS = 600.0
"""For the imports, on a machine that is busy."""
START_TIMEOUT_SECS = 60.0
HANG_SECS = 300.0
"""After this time a process counts as hung: on a machine that is busy, imports and ends take a minute."""
TENSORFLOW_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
"""Keeps it quiet, and off the graphics card."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class TrialError(Exception):
    """A process did not do what the trial waits for; the text says what it did instead."""


class Process:
    """A program that was started. It says what it does in lines of a word and its values.

    Args:
        pid: its process, and process group.
        output: the read end of its standard output.
        errors: the file that its standard error goes to.
    """

    def __init__(self, pid: int, output: int, errors: Path) -> None:
        self.pid = pid
        self.errors = errors
        self.said: list[list[str]] = []
        self.said_at: dict[str, float] = {}
        """When each word came last, monotonic."""
        self.returncode: int | None = None
        self._output = output
        self._rest = b""
        self._open = True
        self._exited = threading.Event()

    def until(self, word: str, timeout_secs: float = HANG_SECS) -> list[str]:
        """Wait for a line that begins with a word; return its values.

        Raises:
            TrialError: if it does not come in time, or the process ends before.
        """
        deadline = time.monotonic() + timeout_secs
        while True:
            line = self._next(deadline)
            if line is None:
                if not self._open:
                    self._exited.wait(max(0.0, deadline - time.monotonic()))
                raise TrialError(f"no line {word!r} from process {self.pid} within {timeout_secs:g} s{self.story()}")
            if line[0] == word:
                return line[1:]

    def listen(self, secs: float) -> None:
        """Read what it says until the time is over or it ends."""
        deadline = time.monotonic() + secs
        while self._next(deadline) is not None:
            pass

    def last(self, word: str) -> int | None:
        """Return the first value of the last line with a word, of those read so far."""
        return next((int(line[1]) for line in reversed(self.said) if line[0] == word), None)

    def kill(self, signum: int) -> None:
        """Send it a signal, unless it has ended: it may have, and its end not be read yet."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def wait(self, timeout_secs: float = HANG_SECS) -> int:
        """Read the rest of what it says, wait for its end, and return its status as `subprocess` has it.

        Raises:
            TrialError: if it does not end in time.
        """
        deadline = time.monotonic() + timeout_secs
        while self._open and time.monotonic() < deadline and not self._exited.is_set():
            self._next(min(deadline, time.monotonic() + 0.05))
        if not self._exited.wait(max(0.0, deadline - time.monotonic())):
            raise TrialError(f"process {self.pid} did not end within {timeout_secs:g} s{self.story()}")
        self.listen(0.0)
        assert self.returncode is not None
        return self.returncode

    def close(self) -> None:
        """Leave nothing of it behind, nor of the processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._exited.wait(10.0)
        os.close(self._output)

    def story(self) -> str:
        """Return the end of what it said and logged, for a report."""
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        errors = [line.strip()[:200] for line in lines if not line.startswith((" ", "INFO"))][-5:]
        said = ["; ".join(" ".join(line) for line in self.said[-3:])]
        status = "runs" if self.returncode is None else f"ended with {self.returncode}"
        return f" ({status}; said: {said[0] or 'nothing'}; logged: {' / '.join(errors) or 'nothing'})"

    def exited(self, returncode: int) -> None:
        """Take its status from the server."""
        self.returncode = returncode
        self._exited.set()

    def _next(self, deadline: float) -> list[str] | None:
        """Return the next line in words; None when there is none up to the deadline, or ever."""
        while b"\n" not in self._rest:
            ready = select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0]
            data = os.read(self._output, 65536) if ready and self._open else b""
            if not data:
                self._open = self._open and not ready
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        self.said.append(line.decode(errors="replace").split() or [""])
        self.said_at[self.said[-1][0]] = time.monotonic()
        return self.said[-1]


class Launcher:
    """Starts programs; a context manager that ends all of them. Thread-safe.

    Args:
        directory: where the server's own log goes.
        programs: the modules that it imports, of which it starts ``main``.
        python: the interpreter.
    """

    def __init__(self, directory: Path, programs: tuple[str, ...] = OWN_PROGRAMS, python: str = sys.executable) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = directory / f"launcher-{programs[0]}.log"
        with open(log, "wb") as errors, theirs:
            self._server = subprocess.Popen(
                [python, "-W", "ignore", "-m", "benchmarks.faults.launcher", str(theirs.fileno()), *programs],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is the caller's
                env=os.environ | TENSORFLOW_ENVIRONMENT,
            )
        self._lock = threading.Lock()
        self._is_ready = threading.Event()
        self._started: queue.Queue[int] = queue.Queue()
        self._processes: dict[int, Process] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._is_ready.wait(READY_TIMEOUT_SECS)
        if self._server.poll() is not None or not self._is_ready.is_set():
            text = log.read_text(errors="replace")
            raise TrialError(f"The server of processes did not start within {READY_TIMEOUT_SECS:g} s:\n{text}")

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.shutdown(socket.SHUT_RDWR)
        self._server.wait()
        self._reader.join()
        self._channel.close()

    def start(self, program: str, config: dict[str, Any], errors: Path, struck: Strike | None = None) -> Process:
        """Start ``main(config)`` of one of the modules, and have it struck."""
        output, write = os.pipe()
        plan = None if struck is None else asdict(struck)
        with self._lock, open(errors, "ab") as log:
            request = json.dumps({"program": program, "config": config, "strike": plan}).encode()
            socket.send_fds(self._channel, [request], [write, log.fileno()])
            os.close(write)
            try:
                pid = self._started.get(timeout=START_TIMEOUT_SECS)
            except queue.Empty:
                raise TrialError(f"not started within {START_TIMEOUT_SECS:.0f} s") from None
            process = self._processes[pid]
            process._output, process.errors = output, errors
        return process

    def _read(self) -> None:
        while True:
            try:
                message = self._channel.recv(65536)
            except OSError:
                return
            if not message:
                self._is_ready.set()  # or, if it never was, its caller would wait
                return
            values = json.loads(message)
            if "ready" in values:
                self._is_ready.set()
            elif "started" in values:
                self._processes[values["started"]] = Process(values["started"], -1, Path(os.devnull))
                self._started.put(values["started"])
            else:
                self._processes[values["exited"]].exited(values["status"])


class Launchers:
    """A launcher for each program, started when it is first asked for; a context manager. Thread-safe.

    Args:
        directory: where the servers' logs go.
        peers_python: the interpreter of the peers' programs.
    """

    def __init__(self, directory: Path, peers_python: str = sys.executable) -> None:
        self._directory = directory
        self.peers_python = peers_python
        self._lock = threading.Lock()
        self._launchers: dict[str, Launcher] = {}

    def __enter__(self) -> Launchers:
        return self

    def __exit__(self, *error: object) -> None:
        for launcher in self._launchers.values():
            launcher.__exit__(*error)

    def start(self, program: str, config: dict[str, Any], errors: Path, struck: Strike | None = None) -> Process:
        """Start ``main(config)`` of a module."""
        own = program in OWN_PROGRAMS
        programs, python = (OWN_PROGRAMS, sys.executable) if own else ((program,), self.peers_python)
        with self._lock:
            if programs[0] not in self._launchers:
                self._launchers[programs[0]] = Launcher(self._directory, programs, python)
            launcher = self._launchers[programs[0]]
        return launcher.start(program, config, errors, struck)


def serve(channel: socket.socket, programs: list[str]) -> dict[str, Any] | None:
    """Fork a child for each request. Returns it in each child; None in the server, at its end."""
    for name in programs:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or each child, as it ends, looks through all that was imported: a second of processor time
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    alive: set[int] = set()
    channel.send(json.dumps({"ready": True}).encode())
    while True:
        ready = select.select([channel.fileno(), read], [], [])[0]
        if read in ready:
            os.read(read, 4096)
            _reap(channel, alive)
        if channel.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(channel, 65536, 2)
        if not message:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            return None
        pid = os.fork()
        if pid == 0:
            _become_main(channel, [read, write], descriptors)
            request: dict[str, Any] = json.loads(message)
            return request
        with suppress(OSError):  # the child does the same: whoever is first
            os.setpgid(pid, pid)
        alive.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps({"started": pid}).encode())


def _reap(channel: socket.socket, alive: set[int]) -> None:
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        alive.discard(pid)
        channel.send(json.dumps({"exited": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def _become_main(channel: socket.socket, pipes: list[int], descriptors: list[int]) -> None:
    """Make of the forked child what a shell would have started."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGHUP, signal.SIGQUIT):  # which a shell's background and nohup ignore
        signal.signal(signum, signal.SIG_DFL)
    channel.close()
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
    for descriptor in (*pipes, *descriptors):
        os.close(descriptor)


if __name__ == "__main__":
    asked = serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    if asked is not None:
        if asked["strike"] is not None:
            strike(Strike(**asked["strike"]))
        importlib.import_module(asked["program"]).main(asked["config"])
