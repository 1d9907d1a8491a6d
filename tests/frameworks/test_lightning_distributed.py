"""Lightning in several processes: they stop, save and resume together, bit by bit, or say by name why not."""

from __future__ import annotations

import os
import re
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from trial import Job

from supervisor_core.base.errors import CheckpointError

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning", reason="lightning is not installed: make test-frameworks has it")
    import torch._dynamo  # which the first optimizer imports: once here, not in each rank
    from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
    from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy

from supervisor_core.lightning import SupervisorCallback  # noqa: E402
from supervisor_core.lightning.checkpoint import LightningState  # noqa: E402
from supervisor_core.lightning.ranks import (  # noqa: E402
    FitRanksState,
    launcher_waits,
    let_ranks_end,
)
from supervisor_core.torch.tensors import BUFFERS  # noqa: E402
from supervisor_core.training.position import FitNumber  # noqa: E402

STEPS = 18
pytestmark = pytest.mark.timeout(400)  # several processes each, of which every one may wait for every other


@pytest.fixture(scope="module")
def job(module_at: Callable[[str], ModuleType]) -> Callable[[Path], Job]:
    """Makes a job in a directory."""
    program = module_at("frameworks/lightning_ranks.py")
    return lambda directory: Job(directory, program.fit)


def steps(lines: list[str]) -> list[str]:
    """Return the lines of steps."""
    return [line for line in lines if line[0].isdigit()]


def test_a_killed_rank(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """In the middle of an epoch: the other one ends, and the next start goes on from rank 0's checkpoint, on each rank
    with the same samples in the same order, the same bits of each loss and of the epoch's averages. Hooks of the
    program at a save may wait for the other ranks."""
    killed = job(tmp_path)
    first = killed.run({"act": "kill", "rank": 1, "step": 9, "observed": 3600})
    assert killed.status == 1 and len(steps(first[1])) == 9 <= len(steps(first[0])) <= 10
    for before, (verdict, *after), expected in zip(first, killed.run(), truth, strict=True):
        assert len(steps(expected)) == STEPS and steps(before)[:9] == steps(expected)[:9]
        assert (verdict, len(steps(after))) == ("exact", 10) and after == expected[-len(after) :]
    run = killed.watch()
    one, two = run.sessions
    assert one.outcome == "error" and (two.restored_step, two.resume_exact) == (8, True)
    assert (killed.status, two.outcome, two.last_step) == (0, "completed", STEPS)
    assert [(worker.name, worker.state) for worker in run.workers] == [("rank:1", "stopped")]
    file = torch.load(tmp_path / "run" / "checkpoints" / "ckpt-12" / "lightning.ckpt", weights_only=True)
    assert (file["global_step"], file["ranks"]) == (12, 2)


@pytest.mark.parametrize(
    ("act", "rank", "status", "outcome"),
    [
        ("SIGTERM", 0, -signal.SIGTERM, "signal"),
        ("SIGTERM", 1, -signal.SIGTERM, "signal"),
        ("SIGTERM", None, -signal.SIGTERM, "signal"),
        ("SIGINT", None, 1, "signal"),  # Lightning ends the program after a Ctrl-C
        ("stop", 1, 0, "requested"),
    ],
)
def test_a_stop(
    tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]], act: str, rank: int | None, status: int,
    outcome: str,
) -> None:  # fmt: skip
    """That one rank is asked for, or all of them and the workers of their loaders: all stop after the same step, which
    is saved; Lightning's launcher kills none of them before it has ended."""
    stopped = job(tmp_path)
    first = stopped.run({"act": act, "rank": rank, "step": 9, "workers": int(rank is None)})
    done = len(steps(first[0]))
    assert stopped.status == status and 10 <= done <= 12 and len(steps(first[1])) == done
    run = stopped.watch()
    (session,) = run.sessions
    assert (session.outcome, session.last_step, run.checkpoints[-1].step) == (outcome, done, done)
    assert [(worker.name, worker.state) for worker in run.workers] == [("rank:1", "stopped")]
    if (act, rank) == ("SIGTERM", 0):
        ((verdict, *after),) = stopped.run(ranks=1)
        assert "Another number of ranks: 2 at the save, 1 now." in verdict
        epoch, batch = divmod(done, STEPS // 3)
        assert steps(after)[0].startswith(f"{epoch} {2 * batch} ")  # after as many samples
    elif (act, rank) == ("SIGTERM", 1):
        for before, (verdict, *after), expected in zip(first, stopped.run(), truth, strict=True):
            assert verdict == "exact" and [*steps(before), *steps(after)] == steps(expected)


@pytest.mark.parametrize("arguments", [{"accumulate_grad_batches": 2}, {"manual": True}], ids=["accumulated", "manual"])
def test_what_a_step_may_be(tmp_path: Path, job: Callable[[Path], Job], arguments: dict[str, Any]) -> None:
    """Of several batches, or made by the module itself: the same bits after a kill of rank 0. In a module that makes
    its steps itself each rank has other statistics of BatchNorm, which the verdict names."""
    plan = {"manual": arguments.pop("manual", False)}
    expected = job(tmp_path / "truth").run(plan, **arguments)
    killed, step = job(tmp_path / "killed"), 5 if arguments else 9
    killed.run({**plan, "act": "kill", "rank": 0, "step": step, "observed": 3600}, **arguments)
    assert killed.status == -signal.SIGKILL
    for (verdict, *after), lines in zip(killed.run(plan, **arguments), expected, strict=True):
        assert verdict == ("exact" if arguments else f"exact {BUFFERS}")
        assert len(steps(after)) == 10 and steps(after) == steps(lines)[-10:]


def test_what_is_refused(tmp_path: Path) -> None:
    """Before anything is written: the strategy, what is expected, and what to do."""
    for number, (strategy, text) in enumerate(
        [
            (FSDPStrategy, r"here are 2 under FSDPStrategy\. Use Trainer\(strategy=\"ddp\"\)"),
            (lambda: object.__new__(DeepSpeedStrategy), "here are 2 under DeepSpeedStrategy"),
            (lambda: DDPStrategy(start_method="spawn"), "starts by spawn .* in a script, or torchrun"),
            (lambda: DDPStrategy(start_method="fork"), "starts by fork"),
            (lambda: DDPStrategy(model_averaging_period=2), "another model on each rank"),
        ]
    ):
        (place := tmp_path / str(number)).mkdir()
        loop = object.__new__(lightning.pytorch.loops._FitLoop)
        trainer = SimpleNamespace(fast_dev_run=False, world_size=2, strategy=strategy(), fit_loop=loop)
        with pytest.raises(ValueError, match=text):
            SupervisorCallback(place).setup(trainer, None, "fit")
        assert not list(place.iterdir())


def test_the_launcher_leaves_ranks_alone_that_end_by_a_signal() -> None:
    """Its thread kills rank 0 as soon as another rank has ended by a signal: it has nothing to watch any more. Nor does
    it while rank 0 writes its last checkpoint and its record; after that it does."""
    ended = threading.Event()

    class Watching(_ChildProcessObserver):
        def run(self) -> None:
            ended.wait()

    watching = Watching(
        main_pid=os.getpid(), child_processes=[SimpleNamespace(poll=lambda: None, returncode=-15, pid=1)]
    )
    killed: list[bool] = []
    watching._terminate_all = lambda: killed.append(True)
    watching.start()
    with launcher_waits():
        assert not watching._run() and not killed
    assert watching._run() and killed.pop()
    let_ranks_end()
    ended.set()
    watching.join()
    assert watching._run() and not killed


def test_a_hook_that_fails() -> None:
    """In the program's own part of a save, on any rank: it is why the save has failed, on rank 0."""

    class Others:
        rank, size, is_chief = 1, 2, False

        def collect(self, value: Any) -> None:
            said.append(value)

    def dump(weights_only: bool) -> None:
        raise ArithmeticError("no such hook")

    said: list[Any] = []
    trainer = LightningState(FitNumber(), SimpleNamespace(_checkpoint_connector=SimpleNamespace(dump_checkpoint=dump)))
    FitRanksState(ranks=Others(), trainer=trainer, own=()).collect()
    assert said == [{"error": "ArithmeticError: no such hook"}]
    state = FitRanksState(ranks=SimpleNamespace(is_chief=True, collect=lambda own: [None, {}]), trainer=trainer)
    state.collect()
    with pytest.raises(ArithmeticError, match="no such hook"):
        state.capture(5)


def test_the_first_error_is_why_a_run_failed(tmp_path: Path, job: Callable[[Path], Job]) -> None:
    """Rank 0 fails as well, since it has lost that rank: its own error comes after it."""
    failed = job(tmp_path)
    failed.run({"act": "fail", "rank": 1, "step": 5, "observed": 3600})
    (session,) = failed.watch().sessions
    assert (failed.status, session.outcome) == (1, "error")
    assert re.match(
        r"ArithmeticError at \S+ in act: the loss exploded on rank 1; then on rank 0: ", session.error or ""
    )


def test_rank_0_does_not_save_alone() -> None:
    """As after an error of its own: hooks of the program may wait for the other ranks."""
    trainer = LightningState(FitNumber(), SimpleNamespace())
    with pytest.raises(CheckpointError, match="saves nothing of Lightning's alone"):
        FitRanksState(ranks=SimpleNamespace(is_chief=True), trainer=trainer, own=()).capture(3)
