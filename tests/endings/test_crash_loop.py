"""A training that fails at one step each time: nothing is lost, and `tb-supervisor run` gives up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore
from supervisor_core.restarter.policy import NO_PROGRESS_STATUS
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.training.tree import NumpyArrays, read_tree

LOOPS = Path(__file__).with_name("loops.py")
OPTIONS = '{"save_steps": 2}'


def resumed_from(logdir: str, *, sessions: range, facade: str = "plain") -> str:
    """The checkpoint of step 2, from which each of so many sessions went on, to end by an error."""
    (item,) = LogdirWatch(logdir).refresh().runs.values()
    assert len(item.run.sessions) in sessions
    assert {session.outcome for session in item.run.sessions} == {"error"}
    in_root = facade == "transformers"
    store = SealedStore(logdir if in_root else f"{logdir}/checkpoints", "checkpoint-" if in_root else "ckpt-")
    found = Sealed.chosen(store.newest_usable())
    assert found is not None and found.manifest.step == 2 and not found.skipped
    return found.path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("facade", ["torch_with", "torch_for", "jax", "keras", "lightning", "transformers"])
def test_a_poisoned_state_is_never_saved(tmp_path: Path, facade: str, starter_of: Callable[..., Any]) -> None:
    """The state is not finite at step 3, and the program raises: the checkpoint of step 2 stays the newest."""
    framework = facade.partition("_")[0].replace("keras", "torch")
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: make test-frameworks has it")
    for _ in range(2):
        done = starter_of(facade).run([str(LOOPS), facade, "poisoned", str(tmp_path), OPTIONS])
        assert done.returncode == 1, done.stderr
    resumed_from(str(tmp_path), sessions=range(2, 3), facade=facade)


def test_a_restarter_ends_after_crashes_without_progress(tmp_path: Path) -> None:
    """After a few launches, each of which has come to the same step; the state is that of step 2."""
    logdir = str(tmp_path / "run")
    command = [sys.executable, "-c", "from supervisor_core.cli import main; main()", "run", "--logdir", logdir]
    limits = ["--max-backoff", "1ms", "--no-progress-limit", "2"]
    program = [sys.executable, str(LOOPS), "plain", "poisoned", logdir, OPTIONS]
    ended = subprocess.run([*command, *limits, "--", *program], capture_output=True, text=True)
    assert ended.returncode == NO_PROGRESS_STATUS, ended.stderr
    path = resumed_from(logdir, sessions=range(3, 6))
    tree: Any = read_tree(SealedFiles.of(path), (NumpyArrays(),))
    assert tree["objects"]["counter"]["value"][0] == 2
