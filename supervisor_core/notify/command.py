"""`CommandService`: a command of the user's that gets each event as JSON on its standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from supervisor_core.notify.event import event_json
from supervisor_core.notify.secret import Secret, without_secrets
from supervisor_core.notify.services import NotSent, Service
from supervisor_core.run.model.words import duration

if TYPE_CHECKING:
    from supervisor_core.notify.message import Message

COMMAND_SECS = 30.0
"""How long the command may take for one event."""


class CommandService(Service):
    """Runs a command for each event, one at a time, in a process group of its own. Its output is dropped.

    Args:
        command: a line for the shell.
        timeout_secs: after that it is killed, with everything that it has started.
    """

    name = "on-event"
    takes_each = True

    def __init__(self, command: Secret, timeout_secs: float = COMMAND_SECS) -> None:
        self._command, self._timeout_secs = command, timeout_secs
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, message: Message) -> None:
        """Run the command for each event of a message."""
        try:
            for event in message.events:
                self._run(self._command.reveal(), json.dumps(event_json(event)).encode() + b"\n")
        finally:
            self._process = None  # its `repr` shows the command

    def abandon(self) -> None:
        """Kill the command that runs: after this process its timeout would not end it."""
        process = self._process
        if process is not None and process.returncode is None:
            _kill_group(process)

    def _run(self, command: str, line: bytes) -> None:
        try:
            self._process = process = subprocess.Popen(
                command,
                shell=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=without_secrets(),
                start_new_session=True,
            )
        except OSError as error:
            raise NotSent(f"the command cannot be started: {error.strerror}") from None
        try:
            process.communicate(line, timeout=self._timeout_secs)
        except subprocess.TimeoutExpired:
            _kill(process)
            why = f"the command was killed, it took longer than {duration(self._timeout_secs)}"
            raise NotSent(why) from None
        if process.returncode:
            raise NotSent(_status(process.returncode))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was not waited for, and what it has started."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started."""
    _kill_group(process)
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def _status(status: int) -> str:
    if status > 0:
        return f"the command ended with status {status}"
    return f"the command was killed by signal {-status}"
