"""What scheduler, launcher, machine and framework say of a session: whose it is, where it runs, on what."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace as Module
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.base.session_labels import MAX_LABELS, MAX_VALUE_CHARS
from supervisor_core.engine.placement import Placement, labels_of_session, placement

SLURM = {
    "SLURM_JOB_USER": "ada", "USER": "root", "SLURM_JOB_ID": "4715", "SLURM_ARRAY_JOB_ID": "4711",
    "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_NODELIST": "node[1-4]",
}  # fmt: skip
POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "digits-0-x7k2p", "POD_NAMESPACE": "ml", "NODE_NAME": "node-3",
    "JOB_COMPLETION_INDEX": "0",
}  # fmt: skip


def labels(root: Path, environ: Mapping[str, str], **given: str) -> dict[str, str]:
    """The labels of a session in an environment."""
    return dict(labels_of_session(Options(labels=given), environ, root))


def test_slurm(tmp_path: Path) -> None:
    """The tasks of an array have the array's id in common."""
    assert labels(tmp_path, SLURM) == {
        "user": "ada", "job_id": "4711", "array_index": "3", "partition": "gpu", "node_list": "node[1-4]",
    }  # fmt: skip
    alone = {name: value for name, value in SLURM.items() if "ARRAY" not in name}
    assert labels(tmp_path, alone)["job_id"] == "4715"


def test_kubernetes(tmp_path: Path) -> None:
    """By the downward API; the namespace also by what is mounted into each pod."""
    assert labels(tmp_path, POD) == {
        "array_index": "0", "node_list": "node-3", "namespace": "ml", "pod": "digits-0-x7k2p",
    }  # fmt: skip
    mounted = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    mounted.mkdir(parents=True)
    (mounted / "namespace").write_text("research\n")
    assert labels(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == {"namespace": "research"}
    assert labels(tmp_path, {}) == {}


def test_whose_word_counts(tmp_path: Path) -> None:
    """The program's, then the environment's, then what is found; an empty value leaves a label out."""
    environ = {"USER": "root", "POD_NAME": "p-0", "SUPERVISOR_LABELS": " team = vision, project=a=b ,user=ada"}
    assert labels(tmp_path, environ, team="speech") == {
        "team": "speech", "project": "a=b", "user": "ada", "pod": "p-0",
    }  # fmt: skip
    assert labels(tmp_path, {**environ, "SUPERVISOR_LABELS": "user="}, pod="") == {}


def test_an_environment_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Costs the label that it is about and a line of the log, never the training."""
    many = [f"a{number}=x" for number in range(MAX_LABELS + 1)]
    text = ",".join(["my-team=x", "novalue", f"long={'x' * 129}", "bell=\a", "run=x", "__name__=x", "1st=x", *many])
    found = labels(tmp_path, {"SUPERVISOR_LABELS": text, "USER": "ada\n" * 99})
    assert found == {f"a{number}": "x" for number in range(MAX_LABELS)}
    assert [record.getMessage().split("'")[1].split("=")[0] for record in caplog.records] == [
        "my-team", "novalue", "long", "bell", "run", "__name__", "1st", f"a{MAX_LABELS}",
    ]  # fmt: skip
    assert all(record.getMessage().startswith("SUPERVISOR_LABELS: a label is left out.") for record in caplog.records)


def test_what_names_nothing_is_left_out_and_the_rest_is_plain(tmp_path: Path) -> None:
    """torchrun makes up an id, "none". Whatever the environment holds is shown to people, and is a label of metrics."""
    assert labels(tmp_path, {"USER": "ada", "TORCHELASTIC_RUN_ID": "exp-7"}) == {"user": "ada", "job_id": "exp-7"}
    assert labels(tmp_path, {"TORCHELASTIC_RUN_ID": "none"}) == {}
    (user,) = labels(tmp_path, {"USER": "a\n\x1b[31m" + "x" * 999}).values()
    assert user.startswith("a\\n\\x1b[31mx") and len(user) == MAX_VALUE_CHARS and user.isprintable()


def gpus(root: Path, *, there: int, granted: int, model: str = "NVIDIA H100 80GB HBM3") -> None:
    """Lay out the files of a machine with some GPUs, as a container sees them that was granted some."""
    (root / "dev").mkdir()
    for number in range(there):
        directory = root / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0"
        directory.mkdir(parents=True)
        (directory / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 33\nDevice Minor: \t {number}\n")
    for number in range(granted):
        (root / f"dev/nvidia{number}").touch()


TORCHRUN = {"WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "8"}
STEP = {"SLURM_STEP_NUM_TASKS": "32", "SLURM_STEP_NUM_NODES": "4"}
TF = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "task": {"type": "chief", "index": 0}}


@pytest.mark.parametrize(
    ("environ", "size", "kind", "count"),
    [
        ({}, None, "NVIDIA H100 80GB HBM3", 8),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None, "NVIDIA H100 80GB HBM3", 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1,-1,3"}, None, "NVIDIA H100 80GB HBM3", 1),
        ({"CUDA_VISIBLE_DEVICES": ""}, None, "cpu", None),
        ({"CUDA_VISIBLE_DEVICES": "-1", "WORLD_SIZE": "4"}, 4, "cpu", None),
        (TORCHRUN, 32, "NVIDIA H100 80GB HBM3", 32),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, 8, "NVIDIA H100 80GB HBM3", 16),  # two for each process
        ({**TORCHRUN, "CUDA_VISIBLE_DEVICES": "3"}, 32, "NVIDIA H100 80GB HBM3", 32),  # each has its own
        (STEP, 32, "NVIDIA H100 80GB HBM3", 32),
        ({**STEP, "CUDA_VISIBLE_DEVICES": "0"}, 32, "NVIDIA H100 80GB HBM3", 32),
        ({"WORLD_SIZE": "16"}, 16, "NVIDIA H100 80GB HBM3", 16),  # on how many machines is not known
        ({"TF_CONFIG": json.dumps(TF)}, 3, "NVIDIA H100 80GB HBM3", 3),
        ({"TF_CONFIG": "{"}, None, "NVIDIA H100 80GB HBM3", 8),
        ({"WORLD_SIZE": "many"}, None, "NVIDIA H100 80GB HBM3", 8),
        ({"WORLD_SIZE": "9" * 99}, None, "NVIDIA H100 80GB HBM3", 8),
    ],
)
def test_devices_of_nvidia(
    tmp_path: Path, environ: dict[str, str], size: int | None, kind: str, count: int | None
) -> None:
    """By the kernel's files, CUDA_VISIBLE_DEVICES and the launcher; a container's own only."""
    gpus(tmp_path, there=10, granted=8)
    assert placement(environ, tmp_path, {}) == Placement(world_size=size, device_kind=kind, device_count=count)


@pytest.mark.skipif(sys.platform != "linux", reason="what there is is a file on Linux only")
def test_without_an_accelerator(tmp_path: Path) -> None:
    """It is a CPU that trains; where there may be one that says nothing, that is not known."""
    gpus(tmp_path, there=8, granted=0)
    assert placement({}, tmp_path, {}) == Placement(device_kind="cpu")
    assert placement({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path, {}) == Placement(device_kind="gpu", device_count=2)
    (tmp_path / "dev/kfd").touch()
    assert placement({}, tmp_path, {}) == Placement()


def jax(platform: str, *, initialised: bool = True) -> dict[str, Any]:
    """JAX on eight devices of two processes."""
    device = Module(platform=platform, device_kind="TPU v5")
    return {
        "jax": Module(devices=lambda: [device] * 8, process_count=lambda: 2),
        "jax._src.xla_bridge": Module(backends_are_initialized=lambda: initialised),
    }


def torch(*, initialised: bool) -> dict[str, Any]:
    """PyTorch in a group of four, on AMD's devices."""

    def refused() -> Any:
        raise AssertionError("this would initialise it")

    return {
        "torch.distributed": Module(
            is_available=lambda: True, is_initialized=lambda: initialised,
            get_world_size=(lambda: 4) if initialised else refused,
        ),
        "torch.cuda": Module(
            is_initialized=lambda: initialised, get_device_name=(lambda: "AMD MI300X") if initialised else refused
        ),
    }  # fmt: skip


def test_frameworks_that_are_initialised_are_asked(tmp_path: Path) -> None:
    """They know more than any file; one that is not initialised is left alone."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert placement({}, tmp_path, jax("tpu")) == Placement(world_size=2, device_kind="TPU v5", device_count=8)
    assert placement({}, tmp_path, jax("cpu")).device_count is None
    assert placement({}, tmp_path, jax("tpu", initialised=False)) == Placement()
    assert placement({}, tmp_path, torch(initialised=True)) == Placement(world_size=4, device_kind="AMD MI300X")
    assert placement({"WORLD_SIZE": "2"}, tmp_path, torch(initialised=False)) == Placement(world_size=2)


def test_a_framework_of_another_version(tmp_path: Path) -> None:
    """Whatever it raises costs what it would have said, and nothing else."""
    modules = {"jax": Module(), "jax._src.xla_bridge": Module(), "torch.distributed": Module(), "torch.cuda": None}
    assert placement({"WORLD_SIZE": "2"}, tmp_path, modules).world_size == 2


def test_nothing_is_imported() -> None:
    """Not even what is installed."""
    program = (
        "import sys; import supervisor_core.engine.placement as p; before = set(sys.modules); p.placement(); "
        "from supervisor_core.base.options import Options; p.labels_of_session(Options()); "
        "print(sorted(name for name in set(sys.modules) - before if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
