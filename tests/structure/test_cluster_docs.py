"""The examples that docs/cluster.md names for Kubernetes and for Slurm describe clusters that can be read."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from supervisor_core.engine.tf_config import parse_tf_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "preemption"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
def test_the_slurm_script_gives_each_process_its_task(tmp_path: Path) -> None:
    """Of four nodes the first is the parameter server, the second the chief, the others are workers."""
    commands = {
        "scontrol": "printf '%s\\n' a b c d",
        "srun": 'while [ "$1" != bash ]; do shift; done\nfor each in 0 1 2 3; do SLURM_PROCID=$each "$@"; done',
        "python": 'echo "$TF_CONFIG"',
    }
    for name, body in commands.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    script = EXAMPLES / "cluster.sbatch"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "[a-d]"}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=True)
    tasks = [parse_tf_config(line) for line in done.stdout.splitlines()]
    assert [task.name for task in tasks] == ["ps:0", "chief:0", "worker:0", "worker:1"]
    assert tasks[0].cluster == {"ps": ("a:2222",), "chief": ("b:2222",), "worker": ("c:2222", "d:2222")}
