"""PyTorch in several processes: they stop, save and resume together, bit by bit, or say by name why not."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from trial import Job, Others, launch, run_of

from supervisor_core.engine.loop_exit import LoopExit
from supervisor_core.training.distributed_run import At, DistributedRun, Row
from supervisor_core.training.ranks import ALONE

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import torch._dynamo  # noqa: E402  # which the first optimizer imports: once here, not in each rank

from supervisor_core import Options  # noqa: E402
from supervisor_core.base.clock import SYSTEM_CLOCK  # noqa: E402
from supervisor_core.base.errors import CheckpointError, LogdirInUseError, RanksError  # noqa: E402
from supervisor_core.checkpoint.manifest import Manifest, read_manifest  # noqa: E402
from supervisor_core.checkpoint.sealed_files import SealedFiles  # noqa: E402
from supervisor_core.checkpoint.sealed_store import SealedStore  # noqa: E402
from supervisor_core.engine.retry import is_outside_fault  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.position import LoaderPosition  # noqa: E402
from supervisor_core.torch.shards import ShardFiles, Shards, refuse_split, write_shards  # noqa: E402
from supervisor_core.torch.tensors import KINDS, random_sources  # noqa: E402
from supervisor_core.training import random_state  # noqa: E402
from supervisor_core.training.distributed_run import RankSaver  # noqa: E402
from supervisor_core.training.ranks import (  # noqa: E402
    NUMBER,
    RanksState,
)
from supervisor_core.training.save_point import Due, SavePolicy  # noqa: E402
from supervisor_core.training.tree import read_tree  # noqa: E402

STEPS = 18
pytestmark = pytest.mark.timeout(400)  # several processes each, of which every one may wait for every other


@pytest.fixture(scope="session")
def program(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The training that the ranks run."""
    return module_at("frameworks/ranks_program.py")


@pytest.fixture(scope="module")
def job(program: ModuleType) -> Callable[[Path], Job]:
    """Makes a job in a directory."""

    def start(directory: Path, plan: dict[str, Any] | None, **options: int) -> None:
        launch(program.train_forked, str(directory), plan, **options)

    return lambda directory: Job(directory, start)


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


@pytest.mark.parametrize(
    ("kind", "step", "text"),
    [
        ("disk", 17, "OSError: [Errno 28] No space left on device"),
        ("state", 6, "CheckpointError: a list that contains itself"),
    ],
)
def test_rank_0_cannot_save(tmp_path: Path, job: Callable[[Path], Job], kind: str, step: int, text: str) -> None:
    """At the end, or in the middle, where no retry would help: it is an error on every rank, with the reason."""
    failing = job(tmp_path)
    first, second = failing.run({"act": "full", "error": kind, "step": step})
    assert failing.status == 1 and text in first[-1] and len(first) == len(second)
    assert second[-1] == f"RanksError: Rank 0 has ended with an error: {first[-1]}"


def test_torchrun_restarts_its_ranks(
    tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same job, after a kill of one: with a store of their own they go on, with the same bits."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    restarted = job(tmp_path)
    said = restarted.run({"act": "kill", "rank": 1, "step": 9, "once": True}, restarts=1)
    assert restarted.status == 0
    for lines, expected in zip(said, truth, strict=True):
        assert lines == [*expected[:9], "exact", *expected[8:]]


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


def test_a_fully_sharded_model(tmp_path: Path, job: Callable[[Path], Job], program: ModuleType) -> None:
    """Each rank writes its shards. Where one rank's are damaged, all take the checkpoint before, and go on with the
    same bits. Another number of ranks takes the same tensors, in other parts."""
    if not hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("this PyTorch has no fully_shard: 2.6 has")
    expected = job(tmp_path / "truth").run({"fsdp": True})
    killed = job(tmp_path / "killed")
    first = killed.run({"fsdp": True, "act": "kill", "rank": 1, "step": 9})
    assert all(before == lines[:9] and len(lines) == STEPS + 1 for before, lines in zip(first, expected, strict=True))
    newest = tmp_path / "killed" / "run" / "checkpoints" / "ckpt-8"
    own = {file.path for file in read_manifest(str(newest)).files if file.path.startswith("shards/")}
    assert own == {"shards/.metadata", "shards/__0_0.distcp", "shards/__1_0.distcp"}

    saved = read_tree(SealedFiles.of(str(newest)), (*KINDS, ShardFiles(is_split=True, whole=True)))["objects"]
    moments = [each["exp_avg"] for each in saved["optimizer"]["state"].values()]
    shutil.copytree(tmp_path / "killed", tmp_path / "three")
    for verdict, found, _ in job(tmp_path / "three").run({"fsdp": True, "act": "show"}, ranks=3):
        assert verdict.endswith("Another number of ranks: 2 at the save, 3 now.")
        assert found == program.total([*saved["model"].values(), *moments])

    shutil.copytree(tmp_path / "killed", tmp_path / "half")
    for verdict, *_ in job(tmp_path / "half").run({"fsdp": True, "act": "show", "dtype": "bfloat16"}):
        assert verdict.startswith("exact Another dtype of the model: float32 at the save, ")
        assert "bfloat16" in verdict  # FSDP leaves what it does not shard as it was

    shard = bytearray((newest / "shards" / "__1_0.distcp").read_bytes())
    shard[len(shard) // 2] ^= 1
    (newest / "shards" / "__1_0.distcp").write_bytes(shard)
    for (verdict, *after), lines in zip(killed.run({"fsdp": True}), expected, strict=True):
        assert (verdict, after) == ("exact", lines[4:])
    (skipped,) = killed.watch().sessions[-1].skipped
    assert "__1_0.distcp: its checksum is" in skipped.reason
    assert not list(newest.parent.glob("*.saving-*"))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_state_that_cannot_be_saved(tmp_path: Path, job: Callable[[Path], Job], rank: int) -> None:
    """On one rank: it is an error on all of them, before the first step."""
    failing = job(tmp_path)
    said = failing.run({"act": "state", "rank": rank})
    assert failing.status == 1
    error = "state['own'] cannot be saved: its state is not returned, but ZeroDivisionError: integer division or modulo"
    ((own,), (other,)) = said[rank], said[1 - rank]
    assert own.startswith(f"CheckpointError: {error}")
    assert other.startswith(f"CheckpointError: Rank {rank} has a state that cannot be saved: {error}")
    (session,) = failing.watch().sessions
    assert (session.outcome, session.last_step) == ("error", None)


def test_a_loop_that_all_ranks_leave(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """By break at the same step: the last step is saved, and the next call goes on after it. A rank that leaves alone,
    by an error in the body of a bare loop, records it; all end, and nothing is saved."""
    left = job(tmp_path)
    first = left.run({"act": "leave", "step": 7})
    assert left.status == 0 and left.watch().checkpoints[-1].step == 7
    second = left.run({"act": "fail", "rank": 1, "step": 9, "bare": True})
    for before, (verdict, *after), expected in zip(first, second, truth, strict=True):
        assert before[:-1] == expected[:7] and verdict != "exact" and after == expected[7:9]
    assert left.status == 1
    record = json.loads((tmp_path / "run" / ".supervisor.live" / "rank-1.json").read_text())
    assert record["ended"] == "error" and record["error"].startswith("ArithmeticError at ranks_program.py:")
    one, two = left.watch().sessions
    assert (one.outcome, two.outcome, left.watch().checkpoints[-1].step) == ("completed", "error", 7)


@pytest.mark.timeout(600)  # PyTorch is imported six times, one after the other where there is one core
def test_torchrun_under_the_restarter(tmp_path: Path) -> None:
    """A rank that is killed ends torchrun, which is started again, and the record names the rank: the run goes on
    exactly, and is complete."""
    plan = {"act": "kill", "rank": 1, "step": 9, "once": True, "workers": 1}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [str(Path(__file__).parent / "ranks_program.py"), str(tmp_path), json.dumps(plan)]
    restarter = [sys.executable, "-c", "from supervisor_core.cli import main; main()", "run", "--logdir"]
    ended = subprocess.run(
        [*restarter, str(tmp_path / "run"), "--", *torchrun, *program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    run = run_of(tmp_path / "run")
    assert len(run.sessions) == 2, ended.stderr
    one, two = run.sessions
    assert (one.outcome, two.outcome, two.restored_step, two.last_step) == ("error", "completed", 8, STEPS)
    assert run.launches[0].error == "SIGKILL on rank 1"
    for rank in (0, 1):
        lines = (tmp_path / f"rank-{rank}").read_text().splitlines()
        assert lines[9].startswith("exact") and len(lines) == 9 + 1 + 10 + 1


def test_groups_are_closed_before_the_interpreter_ends() -> None:
    """While Python still works: a thread of theirs that asks for it later may abort the process. The child that was
    forked leaves them alone."""
    program = """
import atexit, os
import torch.distributed as dist
from supervisor_core.torch.ranks import TorchRanks
atexit.register(lambda: print("left open:", len(TorchRanks._earlier), flush=True))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ranks = TorchRanks()
ranks.open()
assert ranks.compare([1]) == [[1]]
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
else:
    print("in the child", flush=True)
    atexit._run_exitfuncs()
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["in the child", "left open: 2", "left open: 0"]


def test_wrong_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are errors that say what to do, before anything is written."""
    model = torch.nn.Linear(1, 1)
    loop = supervised([1], tmp_path, model=model)
    with monkeypatch.context() as patch:
        patch.setattr("supervisor_core.torch.loop.present_ranks", lambda: object())
        with pytest.raises(RanksError, match=r"call init_process_group\(\) before supervised"):
            next(iter(loop))
    assert not list(tmp_path.iterdir())

    def begin() -> None:
        raise LogdirInUseError("The logdir is in use.")

    loop = supervised([1], tmp_path, model=model)
    monkeypatch.setattr(loop.run, "__enter__", begin)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LogdirInUseError, match=r"one of 2 processes .* is not initialised"):
        next(iter(loop))
    with pytest.raises(RanksError, match="state of a ZeroRedundancyOptimizer"):
        refuse_split(type("ZeroRedundancyOptimizer", (), {})())


@pytest.mark.parametrize(("rank", "size", "batch"), [(2, 3, 4), (1, 4, 3), (0, 1, 12)])
def test_another_number_of_ranks(rank: int, size: int, batch: int) -> None:
    """Each takes the position of a rank that there was, before the samples that two ranks had consumed; one reason
    names it."""
    position = LoaderPosition([1], random_sources, ranks=size)
    state = RanksState(ranks=Others(rank, size), objects={"data": position}, sources=random_sources)
    data = {"data": {"epoch": 1, "batch": 6, "start": None, "ranks": 2}}
    random = random_state.capture(random_sources())
    tree = {"objects": data, "random": random, "ranks": [{"objects": data, "random": random, "position": "0"}]}
    exactness = state.resume(Manifest(format="state-tree", step=12, facts={NUMBER: "2"}), tree, {})
    assert exactness.reasons == (f"Another number of ranks: 2 at the save, {size} now.",)
    assert (position.epoch, position.batch) == (1, batch)


def test_a_rank_that_cannot_write_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is why the save has failed, on rank 0; what the others have written is deleted. A retry may help."""

    def full(found: Any, directory: str, group: Any) -> None:
        raise OSError("The shards could not be written: rank 1: OSError: [Errno 28] No space left on device")

    monkeypatch.setattr("supervisor_core.torch.shards.write", full)
    parts = Shards("model", lambda whole: {"weight": 1.0}, lambda state, whole: None)
    ranks = Others()
    state = RanksState(
        ranks=ranks, objects={"model": parts}, shards=(parts,), write_shards=partial(write_shards, ranks)
    )
    store = SealedStore(tmp_path)
    session = Mock()
    saver = RankSaver(store, state, SavePolicy(), session=session, options=Options(), due=Due(), clock=SYSTEM_CLOCK)
    saver.collect(5, is_saved=True)
    assert state.staging is not None and os.path.isdir(state.staging)
    with pytest.raises(OSError, match="rank 1: OSError: ") as failure:
        state.capture(5)
    assert is_outside_fault(failure.value)
    saver.release()
    assert not os.listdir(tmp_path)
    with pytest.raises(CheckpointError, match="split over the ranks, and not all of them save"):
        state.capture(5)


def run_with(logdir: Path, others: Others) -> DistributedRun:
    """A session of one of several ranks that has not begun."""
    state = RanksState(ranks=others, objects={"data": LoaderPosition([1], random_sources)})
    return DistributedRun(str(logdir), state=state, options=Options(), policy=SavePolicy(), facade="supervised")


def test_ranks_at_different_steps(tmp_path: Path) -> None:
    """Are an error that names them, on every rank."""
    run = run_with(tmp_path, Others(row=lambda row: Row(At.STEP, 4)))
    with pytest.raises(RanksError, match=r"Rank 1 is in its loop at step 4, and rank 0 is at its loop's end at step 5"):
        run._compare(Row(At.END, 5))


def test_a_checkpoint_of_rank_0_alone() -> None:
    """Says that, and not that there were other ranks."""
    state = RanksState(ranks=Others(1), objects={"data": LoaderPosition([1], random_sources, ranks=2)})
    tree = {"objects": {"data": {"epoch": 1, "batch": 6, "start": None, "ranks": 2}}, "random": {}}
    manifest = Manifest(format="state-tree", step=12, facts={NUMBER: "2"}, not_captured=(ALONE,))
    assert state.resume(manifest, tree, {}).reasons == (ALONE,)


def test_ranks_that_left_wait_for_the_last_checkpoint(tmp_path: Path) -> None:
    """As long as it takes: the time limit is for those that have not left."""
    others = Others(1)
    run = run_with(tmp_path, others)
    run.left_by(LoopExit(False))
    run._compare(Row(At.END, 5))
    run._compare(Row(At.RECORDED, 5))
    assert others.meetings == 1


@pytest.mark.parametrize("signum", [None, 15])
def test_what_a_signal_ends(tmp_path: Path, signum: int | None) -> None:
    """A framework's own end of a program comes before the signal, in each rank: not after a loop that was complete."""
    others = Others(1)
    run = run_with(tmp_path, others)
    run._met_at_end, run._session.reason.signum = True, signum
    run._recorded(None)
    assert others.has_left is (signum is not None)
