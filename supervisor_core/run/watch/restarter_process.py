"""`restarter_runs`: whether the process that has started a launch is still there."""

from __future__ import annotations

import socket

from supervisor_core.process.identity import is_running, started_at
from supervisor_core.run.model.program_launch import ProgramLaunch

SLACK_SECS = 60.0
"""A wall clock may have been set by this much since."""


def restarter_runs(launch: ProgramLaunch) -> bool | None:
    """Return whether a launch's restarter runs; None on another machine. Its process is in the launch's id.

    A process that started after the launch is another one of the same number, after a reboot for example.
    """
    host, _, rest = launch.restarter.rpartition("-")
    if launch.host is None or launch.host != host or host != socket.gethostname():
        return None
    if not (rest.isascii() and rest.isdigit()) or not 0 < int(rest[:10]) < 1 << 31:
        return None
    pid = int(rest[:10])
    if not is_running(pid):
        return False
    began = started_at(pid)
    return began is None or launch.started_at is None or began <= launch.started_at + SLACK_SECS
