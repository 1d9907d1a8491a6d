"""Whose a session is and where it runs: on every facade, without a line of the program about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_checkpoint_care import NEEDS, PROGRAM, ROOT
from trial import run_of

from supervisor_core.cli import main

SLURM = {"SLURM_JOB_USER": "ada", "SLURM_JOB_ID": "4711", "SLURM_JOB_PARTITION": "gpu", "USER": "root"}
pytestmark = pytest.mark.timeout(400)  # the framework is loaded in a process


@pytest.mark.parametrize("facade", list(NEEDS))
def test_every_facade_says_whose_a_session_is(tmp_path: Path, starter_of: Callable[[str], Any], facade: str) -> None:
    """By what Slurm and the environment say; the number of processes by the launcher's."""
    if not find_spec(NEEDS[facade]):
        pytest.skip(f"{NEEDS[facade]} is not installed: make test-frameworks has it")
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SUPERVISOR_LABELS": "team=vision", **SLURM}
    done = starter_of(facade).run([str(PROGRAM), facade, str(tmp_path), "4"], environment)
    assert done.returncode == 0, done.stderr
    run = run_of(tmp_path)
    assert dict(run.labels) == {"team": "vision", "user": "ada", "job_id": "4711", "partition": "gpu"}
    (session,) = run.sessions
    assert session.labels == run.labels
    (shown,) = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(tmp_path)]).output)["runs"]
    assert (shown["labels"], shown["sessions"][0]["labels"]) == (run.labels, run.labels)
    assert shown["sessions"][0]["device_kind"] == session.device_kind
