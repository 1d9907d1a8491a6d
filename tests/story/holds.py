"""Chiefs that hold a logdir, and what their liveness files say: for tests."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.engine.liveness_writer import LivenessFile
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.events.telemetry import StopRecord
from supervisor_core.process.identity import Machine
from supervisor_core.run.model.liveness_record import RunSoFar
from supervisor_core.run.watch.liveness import CHIEF, LivenessRecord, chief_path, read_chief

HOLDER = """
import sys
from supervisor_core.engine.logdir_hold import LogdirHold
hold = LogdirHold(sys.argv[1])
hold.acquire("elsewhere")
hold.liveness.chief_lives(400, None)
hold.liveness.write_now()
print("held", flush=True)
sys.stdin.read()
"""
"""A program that holds the logdir that it is given, until its input ends."""
_OF_HISTORY = {field.name for field in fields(RunSoFar)}


def peek(logdir: str | os.PathLike[str]) -> LivenessRecord | None:
    """What the last chief of a logdir says. None if unreadable or absent."""
    try:
        return read_chief(logdir)
    except (OSError, ValueError):
        return None


def said(logdir: str | os.PathLike[str]) -> Any:
    """What the last chief of a logdir says, which is there."""
    found = peek(logdir)
    assert found is not None
    return found


def machine(name: str) -> Machine:
    """A machine, with a kernel of its own."""
    return Machine(host=name, boot=f"kernel-{name}")


def beats(hold: LogdirHold, step: int | None = None, **history: Any) -> Exception | None:
    """Have a chief write a heartbeat; return why it could not."""
    assert hold.liveness is not None
    hold.liveness.chief_lives(step, None)
    hold.liveness.note_history(**history)
    return hold.liveness.write_now()


def ends(hold: LogdirHold, reason: Any, step: int | None = None) -> None:
    """End a chief's session."""
    if hold.liveness is not None:
        hold.liveness.write(StopRecord(session=hold.session or "", reason=reason, step=step))
        hold.liveness.write_now()
    hold.release()


def edit(logdir: Path, **changes: Any) -> None:
    """Change fields in the chief's liveness file, as if another session had written it."""
    path = Path(chief_path(logdir))
    values = json.loads(path.read_bytes())
    for name, value in changes.items():
        (values["history"] if name in _OF_HISTORY else values)[name] = value
    path.write_text(json.dumps(values))


class Holds:
    """Makes holds of one logdir, which are all released at the end of a test."""

    def __init__(self, logdir: Path, clock: Any) -> None:
        self.logdir, self._clock = logdir, clock
        self.made: list[LogdirHold] = []

    def __call__(self, **options: Any) -> LogdirHold:
        hold = LogdirHold(self.logdir, clock=self._clock, **options)
        self.made.append(hold)
        return hold

    def hold(self, session: str, **options: Any) -> LogdirHold:
        """One that a session has acquired."""
        hold = self(**options)
        hold.acquire(session)
        return hold

    def refuse(self, session: str, match: str = "The logdir", **options: Any) -> None:
        """Check that a session cannot acquire one, and why."""
        with pytest.raises(LogdirInUseError, match=match):
            self(**options).acquire(session)


class Chief:
    """A chief that says by its liveness file that it is at work, or how it ended.

    Args:
        logdir: the run's directory.
    """

    def __init__(self, logdir: str) -> None:
        self._logdir = logdir
        self._session = "none"

    def acquire(self, session: str) -> None:
        """Begin a session."""
        self._session = session
        self._say(phase="training")

    def release(self, reason: str, last_step: int | None = None) -> None:
        """End it."""
        self._say(phase="stopped", ended=reason, step=last_step)

    def _say(self, **values: Any) -> None:
        record = LivenessRecord(
            task=CHIEF, session=self._session, host=socket.gethostname(), pid=os.getpid(), started_at=1.0,
            written_at=1.0, beats=1, interval_secs=10.0, **values,
        )  # fmt: skip
        assert LivenessFile(self._logdir, CHIEF, self._session).write(record) is None
