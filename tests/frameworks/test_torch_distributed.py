"""PyTorch in several processes: they stop, save and resume together, bit by bit, or say by name why not."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import torch._dynamo  # noqa: E402  # which the first optimizer imports: once here, not in each rank
from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: E402

from supervisor_core.watch.logdir_watch import LogdirWatch  # noqa: E402

STEPS = 18


@pytest.fixture(scope="session")
def program(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The training that the ranks run."""
    return module_at("frameworks/ranks_program.py")


class Job:
    """Starts a training's ranks as torchrun does, by its own launcher, in processes forked off the test's."""

    def __init__(self, directory: Path, trial: ModuleType, program: ModuleType) -> None:
        self.directory = directory
        self._trial = trial
        self._program = program
        directory.mkdir(exist_ok=True)

    def run(self, plan: dict[str, Any] | None = None, *, ranks: int = 2) -> list[list[str]]:
        """Run to the end; return what each rank said."""
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=ranks, run_id=uuid.uuid4().hex, rdzv_backend="c10d",
            rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.05, start_method="fork",
        )  # fmt: skip
        before = {path.name: len(path.read_text().splitlines()) for path in self.directory.glob("rank-*")}

        def launch(say: Callable[[str], None]) -> None:
            elastic_launch(config, self._program.train_forked)(str(self.directory), plan)

        self.status, _ = self._trial.trial(self.directory, launch)
        said = [(self.directory / f"rank-{rank}").read_text().splitlines() for rank in range(ranks)]
        return [lines[before.get(f"rank-{rank}", 0) :] for rank, lines in enumerate(said)]

    def watch(self) -> Any:
        """The run, as the tab sees it."""
        (item,) = LogdirWatch(str(self.directory / "run")).refresh().runs.values()
        return item.run


@pytest.fixture(scope="session")
def job(trial_in: ModuleType, program: ModuleType) -> Callable[[Path], Job]:
    """Makes a job in a directory."""
    return lambda directory: Job(directory, trial_in, program)


@pytest.fixture(scope="session")
def truth(job: Callable[[Path], Job], tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What two ranks say in a training that nothing interrupts."""
    return job(tmp_path_factory.mktemp("truth")).run()


def test_a_killed_rank(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """In the middle of an epoch: the other one ends, and the next start goes on from rank 0's checkpoint, on each rank
    with the same samples and the same bits."""
    killed = job(tmp_path)
    first = killed.run({"act": "kill", "rank": 1, "step": 9})
    assert killed.status == 1 and [len(lines) for lines in first] == [9, 9]
    for before, (verdict, *after), expected in zip(first, killed.run(), truth, strict=True):
        assert len(expected) == STEPS + 1 and before == expected[:9]
        assert (verdict, after) == ("exact", expected[8:])
    assert killed.status == 0
    run = killed.watch()
    one, two = run.sessions
    assert one.outcome == "error" and (two.restored_step, two.resume_exact) == (8, True)
    assert (two.outcome, two.last_step) == ("completed", STEPS)
    assert [(worker.name, worker.state) for worker in run.workers] == [("rank:1", "stopped")]


@pytest.mark.parametrize("who", ["launcher", "rank"])
def test_a_sigterm(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]], who: str) -> None:
    """To the launcher, or to one rank only: all ranks stop after the same step, and rank 0 saves it."""
    stopped = job(tmp_path)
    first = stopped.run({"act": who, "rank": 0 if who == "launcher" else 1, "step": 9})
    done = len(first[0])
    assert 10 <= done <= 12 and [len(lines) for lines in first] == [done, done]
    (session,) = stopped.watch().sessions
    assert (session.outcome, session.last_step, stopped.watch().checkpoints[-1].step) == ("signal", done, done)
    if who == "rank":
        ((verdict, *_),) = stopped.run(ranks=1)
        assert verdict.endswith("Another number of ranks: 2 at the save, 1 now.")
        return
    for before, (verdict, *after), expected in zip(first, stopped.run(), truth, strict=True):
        assert verdict == "exact" and [*before, *after] == expected
