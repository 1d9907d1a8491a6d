"""Whether a restarter is still there, by the launches that it has recorded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

from supervisor_core.events.telemetry import LaunchRecord
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.restarter_process import restarter_runs

HOST = socket.gethostname()


def launch(pid: object, host: str | None = HOST, started_at: float | None = None) -> ProgramLaunch:
    """The second launch of a restarter."""
    return ProgramLaunch(
        launch=f"{host}-{pid}-2", state="begin", attempt=2, host=host, started_at=started_at or time.time()
    )


def test_a_process_of_this_machine_is_looked_up() -> None:
    """One that has ended, or that has only the number of the restarter, is none; of another machine nothing is
    known."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert restarter_runs(launch(os.getpid())) is True
    assert restarter_runs(launch(os.getpid(), started_at=time.time() - 30 * 86400.0)) is False
    assert restarter_runs(launch(ended.pid)) is False
    assert restarter_runs(launch(os.getpid(), host="elsewhere-1")) is None
    for odd in ("x", "", "0", "9" * 30):
        assert restarter_runs(launch(odd)) is None
    assert restarter_runs(ProgramLaunch(launch="l1", state="begin", attempt=1, host=HOST)) is None


def test_a_run_has_failed_as_soon_as_its_restarter_is_gone(tmp_path: Path, writing: ModuleType) -> None:
    """Nothing is written then: each look finds out. Until then it is unknown, though its session has failed."""
    now = time.time()
    writing.RunFile(tmp_path, now - 100.0).ready().beat(now - 90.0, steps=5).stop(now - 80.0, "error")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as restarter:
        begun = LaunchRecord(launch=launch(restarter.pid).launch, state="begin", attempt=2, started_at=now, host=HOST)
        writing.RunFile(tmp_path, now, session="r").record(begun, now)
        watch = LogdirWatch(str(tmp_path))
        [before] = watch.refresh().runs.values()
        restarter.kill()
    [after] = watch.refresh().runs.values()
    assert (before.run.state, after.run.state) == ("unknown", "failed")
