"""The twenty real logdirs, read from disk and folded."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events.index import LogdirIndex
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run

LOGDIRS = Path(__file__).parents[4] / "shared" / "logdirs"
pytestmark = pytest.mark.skipif(not LOGDIRS.is_dir(), reason=f"the real logdirs are not at {LOGDIRS}")
MANIFEST = json.loads((LOGDIRS / "manifest.json").read_text()) if LOGDIRS.is_dir() else []

SESSIONS = {
    "keras/log-base/train": [(0, 3), (0, 3)],
    "keras/log-base/validation": [(0, 3), (0, 3)],
    "lightning/version_13": [(9, 511)],  # its hp_metric sits at step 0
    "tf1-hooks-captcha": [(0, 3000)],
    "tf1-hooks-restart": [(1, 1000), (1001, 3000)],
    "tf1-hooks-restart/eval": [(1000, 3000)],
    "tf1-supervisor-short": [(0, 0)],
    "torch/duplicate_steps": [(0, 99), (90, 199)],
    "torch/two-files-restart-from-zero": [(0, 9), (0, 9)],
    "version-record-only": [],
}
"""First and last step of the sessions, where it is not one session from the first step written to the largest."""


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """Every run below the logdirs, a day after the last event of all."""
    found = {}
    for name, chunks in LogdirIndex(str(LOGDIRS)).refresh().changed.items():
        fold = RunFold(name)
        fold.update(chunks)
        found[name] = fold.run(now=1_795_000_000.0)
    return found


@pytest.mark.parametrize("facts", MANIFEST, ids=[facts["dir"] for facts in MANIFEST])
def test_sessions_and_restarts_are_sane(facts: dict[str, Any], runs: dict[str, Run]) -> None:
    """One session per launch and no other, all inferred; a restart between two; nothing is known of how they are."""
    run = runs[facts["dir"]]
    expected = SESSIONS.get(run.name, [(run.first_step, run.max_step)])
    assert [(session.first_step, session.last_step) for session in run.sessions] == expected
    assert len(run.restarts) == max(0, len(run.sessions) - 1)
    assert (run.state, run.inferred) == ("unknown", True)
    assert all(session.inferred for session in run.sessions)
    rewinds = [max(0, before[1] - after[0]) for before, after in pairwise(expected)]
    assert [restart.rewind_steps for restart in run.restarts] == rewinds
    assert all(restart.downtime_secs is not None and restart.downtime_secs >= 0 for restart in run.restarts)
    assert sum(run.goodput.secs.values()) == run.goodput.wall_secs


def test_lightning_s_hyperparameters(runs: dict[str, Run]) -> None:
    """Its logger writes them into the run itself; no other run has some."""
    found = {name: run.hparams for name, run in runs.items() if run.hparams}
    assert {name: len(hparams) for name, hparams in found.items()} == {
        "lightning/rf-detr-502-tags": 88,
        "lightning/version_13": 26,
        "lightning/version_14": 21,
    }
    assert found["lightning/version_13"]["data/batch_size"] == 32.0
