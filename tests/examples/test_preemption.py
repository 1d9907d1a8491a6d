"""The manifests and the batch script of examples/preemption."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor_core.restarter.policy import IN_USE_STATUS, NO_PROGRESS_STATUS, SPENT_STATUS
from tests.cases import each

EXAMPLES = Path(__file__).parents[2] / "examples" / "preemption"


def manifest(name: str) -> Any:
    """A manifest as plain values."""
    return yaml.safe_load((EXAMPLES / name).read_text())


def jobs() -> dict[str, Any]:
    """The Job, and the one in the JobSet."""
    nested = manifest("jobset.yaml")["spec"]["replicatedJobs"][0]["template"]
    in_set = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "training"}, **nested}
    return {"job.yaml": manifest("job.yaml"), "jobset.yaml": in_set}


@each("name", ["job.yaml", "jobset.yaml"])
def test_kubernetes_takes_the_jobs(name: str) -> None:
    """By its own schema, strictly. A JobSet's own fields have none there."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="for development only")
    kubernetes_validate.validate(jobs()[name], "1.30", strict=True)


@each("name", ["job.yaml", "jobset.yaml"])
def test_what_no_restart_helps_is_not_started_again(name: str) -> None:
    """The statuses are the restarter's, preemption does not count, and the pod outlives the stop timeout."""
    spec = jobs()[name]["spec"]
    refused, ignored = spec["podFailurePolicy"]["rules"]
    assert refused["action"] == "FailJob"
    assert refused["onExitCodes"]["values"] == [NO_PROGRESS_STATUS, SPENT_STATUS]
    assert ignored["action"] == "Ignore" and ignored["onPodConditions"][0]["type"] == "DisruptionTarget"
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and pod["terminationGracePeriodSeconds"] == 120
    assert "--stop-timeout" in " ".join(pod["containers"][0]["command"])


@each(
    "status, requeued",
    [(0, False), (1, True), (143, True), (NO_PROGRESS_STATUS, False), (SPENT_STATUS, False), (IN_USE_STATUS, False)],
)
def test_slurm_requeues_what_a_restart_helps(tmp_path: Path, status: int, requeued: bool) -> None:
    """The script with a stand-in for Slurm's commands: requeued or not, and the status is the training's."""
    scontrol = 'if [ "$1" = requeue ]; then echo "$@" > "$REQUEUED"; else echo node-0; fi'
    for name, text in {"srun": f"exit {status}", "scontrol": scontrol}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node-0",
        "REQUEUED": str(tmp_path / "requeued"),
    }
    done = subprocess.run(["bash", str(EXAMPLES / "train.sbatch")], env=environment, capture_output=True, timeout=60)
    assert done.returncode == status
    assert (tmp_path / "requeued").exists() == requeued
