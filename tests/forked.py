"""Programs in processes of their own that need not import a framework: they are forked off one that has."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PROGRAM = Path(__file__).with_name("fork_server.py")
PATIENCE_SECS = 120.0


@dataclass
class Forked:
    """What the tests need of a `subprocess.Popen`."""

    pid: int
    stdin: IO[str]
    stdout: IO[str]
    _server: ForkServer
    returncode: int | None = None

    def send_signal(self, signum: int) -> None:
        """Send a signal. Until its end is known here, no other process can have its id."""
        if self.returncode is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.poll(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_SECS) -> int:
        pause, deadline = threading.Event(), time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            pause.wait(0.01)
        return status

    def close(self) -> None:
        """Leave nothing of it behind."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):  # of what it had not been given yet
                stream.close()


class Alone(subprocess.Popen[str]):
    """A process with an interpreter of its own, and with the methods of `Forked`."""

    def close(self) -> None:
        """Leave nothing of it behind."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]


class Starter:
    """Starts programs, and waits for those that `run` starts."""

    def start(
        self,
        run: list[str],
        environment: dict[str, str] | None = None,
        *,
        stderr: int = subprocess.DEVNULL,
        cwd: str | None = None,
    ) -> Any:
        """Start a program: its path, and its arguments; ``stderr`` is a descriptor."""
        return Alone(
            [sys.executable, *run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=cwd,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **(environment or {})},
        )

    def run(
        self, run: list[str], environment: dict[str, str] | None = None, *, cwd: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        with tempfile.TemporaryFile("w+") as err:
            process = self.start(run, environment, stderr=err.fileno(), cwd=cwd)
            output, status = process.stdout.read(), process.wait()
            process.close()
            err.seek(0)
            return subprocess.CompletedProcess(run, status, output, err.read())


TENSORFLOW = ("tensorflow:compat", "supervisor_core:Supervisor")


class ForkServer(Starter):
    """The process that the others are forked off: it has imported modules, by default tensorflow. It starts with the
    first of them. They inherit its environment."""

    def __init__(self, modules: tuple[str, ...] = TENSORFLOW, environment: dict[str, str] | None = None) -> None:
        self._modules = modules
        self._environment = environment or {}
        self._channel: socket.socket | None = None

    def start(
        self,
        run: list[str],
        environment: dict[str, str] | None = None,
        *,
        stderr: int = subprocess.DEVNULL,
        cwd: str | None = None,
        network: str | None = None,
    ) -> Forked:
        """Start a program: its path, or ``-c`` and its source, and its arguments.

        ``stderr`` is a descriptor, or one of subprocess's DEVNULL and STDOUT; ``network`` one of ``ip netns``.
        """
        read_input, write_input = os.pipe()
        read_output, write_output = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        error = {subprocess.DEVNULL: null, subprocess.STDOUT: write_output}.get(stderr, stderr)
        request = {"run": run, "environment": environment or {}, "cwd": cwd, "network": network}
        pid = self._ask(request, read_input, write_output, error)
        for descriptor in (read_input, write_output, null):
            os.close(descriptor)
        assert isinstance(pid, int)
        return Forked(pid, os.fdopen(write_input, "w"), os.fdopen(read_output), self)

    def poll(self, pid: int) -> int | None:
        """Return a process's status if it has ended."""
        return self._ask({"poll": pid})

    def close(self) -> None:
        """End it, if it was needed."""
        if self._channel is not None:
            self._channel.close()
            self._process.wait()

    def _ask(self, request: dict[str, Any], *descriptors: int) -> int | None:
        if self._channel is None:
            self._channel = self._begin()
        socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
        answer: int | None = json.loads(self._channel.recv(64))
        return answer

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno()), *self._modules],
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **self._environment},
                stdin=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()  # or its end would not be seen here
            if ours.recv(5) != b"ready":
                log.seek(0)
                raise AssertionError(f"the server of processes did not start: {log.read().decode()}")
        return ours
