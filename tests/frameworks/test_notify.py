"""What a program says of its run on each facade: `facade_program.py` is the training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from trial import NEEDS, Train, run_of

from supervisor_core.cli import main
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun

pytestmark = pytest.mark.timeout(900)  # frameworks are loaded in each process


SLURM = {"SLURM_JOB_USER": "ada", "SLURM_JOB_ID": "4711", "SLURM_JOB_PARTITION": "gpu", "USER": "root"}
FACADES = [pytest.param(name, marks=() if name == "supervise" else pytest.mark.long) for name in NEEDS]


@pytest.mark.parametrize("facade", FACADES, indirect=True)
def test_what_a_program_says_and_whose_it_is(tmp_path: Path, train: Train, facade: str) -> None:
    """What it says is a finding with its severity and in its words, from any thread, and an event. Before the session
    it is in the log only. Whose the session is, and where, comes from Slurm and the environment."""
    labels = {"SUPERVISOR_LABELS": "team=vision", **SLURM}
    done = train(facade, tmp_path, 3, labels, notify_at=1, events=1)
    assert done.returncode == 0, done.stderr
    if facade != "MonitoredTrainingSession":  # which begins as it is made
        assert "WARNING notify: too early (not recorded: no session has begun)" in done.stderr
    run = run_of(tmp_path)
    assert [(each.severity, each.text, each.count) for each in run.notices] == [
        (severity, f"this is {severity}", 1) for severity in ("page", "warn", "info")
    ]
    now = (run.last_event_at or 0.0) + 1
    said = [
        (each.severity, each.text) for each in findings(WatchedRun(run=run, files=()), now) if each.kind == "notice"
    ]
    assert said == [(severity, f"this is {severity}.") for severity in ("page", "warn", "info")]
    told = sorted(line for line in done.stdout.splitlines() if line.startswith("event "))
    assert told == ["event completed", *["event notice"] * 3]
    assert run.state == "completed" and run.sessions[-1].last_step == 3
    assert dict(run.labels) == {"team": "vision", "user": "ada", "job_id": "4711", "partition": "gpu"}
    (session,) = run.sessions
    (shown,) = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(tmp_path)]).output)["runs"]
    assert shown["labels"] == shown["sessions"][0]["labels"] == session.labels == run.labels
    assert shown["sessions"][0]["device_kind"] == session.device_kind
