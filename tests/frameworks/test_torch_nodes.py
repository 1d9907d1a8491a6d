"""PyTorch on two nodes, each with a restarter around torchrun: process trees here, which share a logdir. Started as the
batch script and the JobSet of examples/preemption start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from networks import Network, private_network
from ports import free_port
from trial import Job, launch, run_of

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

EXAMPLES = Path(__file__).parents[2] / "examples" / "preemption"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # PyTorch is imported four times for each start

TRAIN = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from ranks_program import train
from supervisor_core import Options
plan = json.loads(os.environ["PLAN"])
budget = Options(hang_timeout_secs={{"training": plan["budget"]}}) if "budget" in plan else None
train(str(Path(sys.argv[2]).parent), plan, options=budget)
"""
COMMANDS = {
    "tb-supervisor": f'exec {sys.executable} -c "from supervisor_core.cli import main; main()" "$@"',
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
    "scontrol": 'if [ "$1" = requeue ]; then echo "$2" >> requeued; else printf "127.0.0.1\\nnode-1\\n"; fi',
    "srun": """
while [ "$1" != bash ]; do shift; done
for node in 0 1; do SLURM_NODEID=$node setsid "$@" & pids+=" $!"; done
trap 'kill -TERM $pids' TERM
highest=0
for pid in $pids; do
  wait "$pid"
  while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
  wait "$pid"; status=$?
  [ "$status" -le "$highest" ] || highest=$status
done
exit "$highest"
""",
}
"""Stand-ins: for what is not installed here, and for Slurm, which has two nodes."""


class Cluster:
    """Two nodes.

    Args:
        directory: of the stand-ins, the program, the logdir `run`, and what the ranks say.
        port: for torchrun's store, from 20,000 on: the batch script makes it of the job's number, which has its end.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self._port = directory, port
        self._started: list[subprocess.Popen[bytes]] = []
        (directory / "bin").mkdir()
        for name, text in COMMANDS.items():
            (directory / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (directory / "bin" / name).chmod(0o755)
        (directory / "train.py").write_text(TRAIN.format(here=str(Path(__file__).parent)))

    def batch_job(self, plan: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start the batch script."""
        slurm = {"SLURM_JOB_ID": str(self._port), "SLURM_JOB_NODELIST": "node-[0-1]", "SLURM_NNODES": "2"}
        return self._start(["bash", str(EXAMPLES / "train.sbatch")], plan, {**slurm, "LOGDIR": self.logdir})

    def pod(self, node: int, plan: dict[str, Any], network: Network | None = None) -> subprocess.Popen[bytes]:
        """Start a pod of the JobSet; that of node 1 at the other end of a network, if there is one."""
        job = yaml.safe_load((EXAMPLES / "jobset.yaml").read_text())["spec"]["replicatedJobs"][0]["template"]["spec"]
        [container] = job["template"]["spec"]["containers"]
        shell, option, command = container["command"]
        for there, here in {
            "/runs/mnist": self.logdir,
            "--nodes 4": "--nodes 2",
            "--nnodes 4": "--nnodes 2",
            "--nproc-per-node 8": "--nproc-per-node 1",
            "--stop-timeout 110s": "--stop-timeout 10s",
            "training-workers-0-0.training": "127.0.0.1" if network is None else network.here,
            "29400": str(self._port),
        }.items():
            assert there in command
            command = command.replace(there, here)
        environment = {"JOB_COMPLETION_INDEX": str(node)}
        if network is None:
            return self._start([shell, option, command], plan, environment)
        before = ["ip", "netns", "exec", network.space] if node else []
        environment["GLOO_SOCKET_IFNAME"] = network.peer if node else network.link
        return self._start([*before, shell, option, command], plan, environment)

    def wait_for_rank(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the rank waits that the plan has wait."""
        while not (self.directory / "waits").exists():
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(self.log)

    def close(self) -> None:
        """End what is left."""
        for each in self._started:
            if each.poll() is None:
                each.kill()
                each.wait()

    @property
    def logdir(self) -> str:
        """The logdir that the nodes share."""
        return str(self.directory / "run")

    @property
    def log(self) -> str:
        """What all of them have printed."""
        return (self.directory / "log").read_text()

    def said(self, rank: int) -> list[str]:
        """What a rank has said so far, in all sessions."""
        return (self.directory / f"rank-{rank}").read_text().splitlines()

    def _start(self, command: list[str], plan: dict[str, Any], more: dict[str, str]) -> subprocess.Popen[bytes]:
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, **more, "PATH": path, "PLAN": json.dumps(plan), "OMP_NUM_THREADS": "1"}
        with (self.directory / "log").open("ab") as log:
            started = subprocess.Popen(command, env=environment, cwd=self.directory, stdout=log, stderr=log)
        self._started.append(started)
        return started


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes that have nothing to do."""
    port = next(port for port in iter(free_port, None) if 20_000 <= port < 30_000)
    cluster = Cluster(tmp_path, port)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def job(module_at: Callable[[str], ModuleType]) -> Callable[[Path], Job]:
    """The same training on one node."""
    program = module_at("frameworks/ranks_program.py")
    return lambda directory: Job(
        directory, lambda where, plan, **options: launch(program.train_forked, str(where), plan, **options)
    )


def assert_exact(cluster: Cluster, truth: list[list[str]], before: int, resumed_at: int) -> None:
    """Each rank did some steps, resumed exactly, and did the rest, with the bits of a training without interruption."""
    for rank, expected in enumerate(truth):
        assert cluster.said(rank) == [*expected[:before], "exact", *expected[resumed_at:]], cluster.log


def test_a_batch_job(cluster: Cluster, truth: list[list[str]]) -> None:
    """A rank on node 1 is killed: the ranks of both nodes start again, and go on exactly; the job is done, and not
    requeued."""
    batch = cluster.batch_job({"act": "kill", "rank": 1, "step": 9, "once": True})
    assert batch.wait() == 0, cluster.log
    assert_exact(cluster, truth, before=9, resumed_at=8)
    run = run_of(Path(cluster.logdir))
    assert [(launch.cause, launch.error) for launch in run.launches] == [
        ("error", "SIGKILL on rank 1 on node 1"),
        ("completed", None),
    ], cluster.log
    assert not (cluster.directory / "requeued").exists()


def test_a_network_that_is_cut(cluster: Cluster, truth: list[list[str]]) -> None:
    """Between two nodes with networks of their own: no rank sees more than silence. Node 0 ends the launch, and node
    1 reads that in the logdir; healed, both go on exactly."""
    plan = {"act": "wait", "rank": 0, "step": 9, "budget": 10.0}
    with private_network() as network:
        zero, one = cluster.pod(0, plan, network), cluster.pod(1, plan, network)
        cluster.wait_for_rank(zero)
        network.cut()
        (cluster.directory / "goes").touch()
        while not any(launch.cause for launch in run_of(Path(cluster.logdir)).launches):
            assert zero.poll() is None and one.poll() is None, cluster.log
        network.heal()
        assert (zero.wait(), one.wait()) == (0, 0), cluster.log
    assert_exact(cluster, truth, before=9, resumed_at=8)
    assert [launch.cause for launch in run_of(Path(cluster.logdir)).launches] == ["hang", "completed"], cluster.log


def test_a_rank_that_hangs(cluster: Cluster, truth: list[list[str]]) -> None:
    """On node 1: node 0, whose rank waits for it, ends the launch on both, after the stacks of both were taken."""
    plan = {"act": "hang", "rank": 1, "step": 9, "once": True, "budget": 10.0}
    zero, one = cluster.pod(0, plan), cluster.pod(1, plan)
    assert (zero.wait(), one.wait()) == (0, 0), cluster.log
    assert_exact(cluster, truth, before=9, resumed_at=8)
    assert [launch.cause for launch in run_of(Path(cluster.logdir)).launches] == ["hang", "completed"], cluster.log
    stacks = [path.read_text() for path in Path(cluster.logdir).glob("supervisor-stacks.*.txt")]
    assert any("ranks_program.py" in text and "in act" in text for text in stacks), stacks
