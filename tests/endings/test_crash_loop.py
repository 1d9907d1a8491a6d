"""A training that fails at one step each time, under `tb-supervisor run`: the restarter gives up, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.restarter.policy import NO_PROGRESS_STATUS
from supervisor_core.run.logdir_watch import LogdirWatch
from supervisor_core.training.tree import NumpyArrays, read_tree

LOOPS = Path(__file__).with_name("loops.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("facade", ["plain", "torch_with", "torch_for", "jax", "keras", "lightning", "transformers"])
def test_a_poisoned_state_is_never_saved(tmp_path: Path, facade: str) -> None:
    """The state is not finite at step 3, and the program raises. Each crash is one without progress, the checkpoint
    of step 2 stays the newest, and the restarter ends after a few launches."""
    framework = facade.partition("_")[0].replace("keras", "torch")
    if framework != "plain" and find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: make test-frameworks has it")
    logdir = str(tmp_path / "run")
    command = [sys.executable, "-c", "from supervisor_core.cli import main; main()", "run", "--logdir", logdir]
    program = [sys.executable, str(LOOPS), facade, "poisoned", logdir, '{"save_steps": 2}']
    ended = subprocess.run(
        [*command, "--max-backoff", "1ms", "--no-progress-limit", "2", "--", *program], capture_output=True, text=True
    )
    assert ended.returncode == NO_PROGRESS_STATUS, ended.stderr
    (item,) = LogdirWatch(logdir).refresh().runs.values()
    assert 3 <= len(item.run.sessions) <= 5
    assert {session.outcome for session in item.run.sessions} == {"error"}
    in_root = facade == "transformers"
    store = SealedStore(logdir if in_root else f"{logdir}/checkpoints", "checkpoint-" if in_root else "ckpt-")
    recovery, manifest = store.newest_usable()
    assert manifest is not None and manifest.step == 2 and not recovery.skipped
    if facade == "plain":
        assert recovery.chosen is not None
        tree: Any = read_tree(SealedFiles(recovery.chosen.path, manifest), (NumpyArrays(),))
        assert tree["objects"]["counter"]["value"][0] == 2
