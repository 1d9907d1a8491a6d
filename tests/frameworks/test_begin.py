"""How a session begins, on every facade: what it finds out before it trains, and says instead of a wrong end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.watch.logdir_watch import LogdirWatch

PROGRAM = Path(__file__).parent / "begin_program.py"
NEEDS = {
    "torch": ("torch",),
    "lightning": ("lightning",),
    "transformers": ("transformers", "accelerate"),
    "jax": ("jax", "orbax"),
    "keras": ("keras", "jax"),
}
FACADES = [
    pytest.param(name, marks=pytest.mark.skipif(not all(map(find_spec, needs)), reason=f"needs {', '.join(needs)}"))
    for name, needs in NEEDS.items()
]
STEPS = [f"step {step}" for step in range(4)]
Process = Callable[..., tuple[int, list[str]]]
pytestmark = pytest.mark.timeout(600)  # the frameworks are loaded in each process


@pytest.fixture
def process(starter_of: Callable[..., Any]) -> Process:
    """Makes the sessions in one process; returns its status and what it said."""

    def run(facade: str, logdir: Path, *sessions: dict[str, object]) -> tuple[int, list[str]]:
        done = starter_of(facade, "jax").run([str(PROGRAM), facade, str(logdir), json.dumps(sessions)])
        sys.stderr.write(done.stderr)
        return done.returncode, done.stdout.splitlines()

    return run


def outcomes(logdir: Path) -> list[str]:
    """How the sessions of a run ended, as every reader sees it."""
    (item,) = LogdirWatch(str(logdir)).refresh().runs.values()
    return [session.outcome for session in item.run.sessions]


@pytest.mark.parametrize("facade", FACADES)
def test_a_loop_that_is_called_once_for_each_epoch(tmp_path: Path, process: Process, facade: str) -> None:
    """It counts all epochs itself, so the second call has nothing left to do: an error that says what to write instead,
    and no completed run with a part of its training. Where each call is a training of its own, all of them train. A new
    process that finds a finished run ends well, and so does a second loop that goes further in it."""
    logdir = tmp_path / "run"
    status, said = process(facade, logdir, {}, {}, {})
    if facade in ("lightning", "keras"):  # they number the calls of fit()
        assert (status, [line.split()[0] for line in said].count("step")) == (0, 12)
        return
    *trained, error, again = [line for line in said if not line.startswith("exact")]
    assert (status, trained, again) == (1, [*STEPS, "done"], error)
    assert error.startswith(f"ValueError: Nothing is left to do: the run in {logdir} has ")
    assert " They are counted over all sessions of a run. " in error and "another logdir." in error
    assert outcomes(logdir) == ["completed", *(["error"] * 2 if facade != "transformers" else [])]
    for steps in (4, 0):
        status, said = process(facade, logdir, {}, {"epochs": 2})
        assert status == 0 and said.count("done") == 2
        assert [line.split()[0] for line in said].count("step") == steps


@pytest.mark.parametrize("facade", [item for item in FACADES if item.values[0] != "transformers"])
def test_a_state_that_cannot_be_saved(tmp_path: Path, process: Process, facade: str) -> None:
    """Is an error before the first step, and before anything is restored: not ten minutes later, at the first save.
    Keras' callbacks have their states once training has begun: there it is one after the first step."""
    kinds = ("fine", "raises", "hook", "fine")
    _, said = process(facade, tmp_path, *({"epochs": 9, "stop": 2, "bad": kind} for kind in kinds))
    errors = [number for number, line in enumerate(said) if line.startswith("CheckpointError: ")]
    raised, hook = (said[number] for number in errors)
    assert "no attribute 'weights'" in raised and ("['hook'] is a builtins.function" in hook or "Can't pickle" in hook)
    assert all("state['bad']" in line or "BadCallback" in line for line in (raised, hook))
    begun = said.index("done") + 1
    steps = [line for line in said[begun : errors[1]] if line.startswith("step")]
    assert len(steps) == (2 if facade == "keras" else 0)
    assert (said[-1], outcomes(tmp_path)[:3]) == ("done", ["requested", "error", "error"])
