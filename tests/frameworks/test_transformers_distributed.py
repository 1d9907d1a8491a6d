"""Hugging Face's Trainer in several processes: they stop, save and resume together, bit by bit, or say why not."""

from __future__ import annotations

import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from trial import Job, Others, launch

from supervisor_core.base.errors import CheckpointError
from supervisor_core.training.saver import Job as SaveJob

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-frameworks has it")

if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import torch._dynamo  # noqa: E402  # which the first optimizer imports: once here, not in each rank

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    LOADED = transformers.Trainer, transformers.TrainingArguments  # here, and not in each rank

from supervisor_core import Options  # noqa: E402
from supervisor_core.base.clock import SYSTEM_CLOCK  # noqa: E402
from supervisor_core.base.errors import NoUsableCheckpointError, RanksError  # noqa: E402
from supervisor_core.checkpoint.manifest import NAME, Manifest, read_manifest  # noqa: E402
from supervisor_core.checkpoint.sealed_store import Sealed  # noqa: E402
from supervisor_core.training.distributed_run import At, Row  # noqa: E402
from supervisor_core.training.save_point import Due, SavePolicy  # noqa: E402
from supervisor_core.transformers import SupervisorCallback, ranks  # noqa: E402

STEPS = 18
pytestmark = pytest.mark.timeout(400)  # several processes each, of which every one may wait for every other


@pytest.fixture(scope="module")
def job(module_at: Callable[[str], ModuleType]) -> Callable[[Path], Job]:
    """Makes a job in a directory."""
    program = module_at("frameworks/trainer_ranks_program.py")

    def start(directory: Path, plan: dict[str, Any] | None, ranks: int) -> None:
        launch(program.train_forked, str(directory), plan, ranks=ranks)

    return lambda directory: Job(directory, start)


def test_a_killed_rank(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """In the middle of an epoch: the other one ends, and the next start goes on from the last sealed checkpoint, on
    each rank with the same samples and the same bits. With another number of ranks the verdict names it."""
    killed = job(tmp_path / "killed")
    first = killed.run({"signal": "SIGKILL", "rank": 1, "step": 9})
    assert killed.status == 1
    for before, expected in zip(first, truth, strict=True):
        assert len(expected) == STEPS + 1 and len(before) >= 10 and before == expected[: len(before)]
    newest = tmp_path / "killed" / "run" / "checkpoint-8"
    files = {file.path for file in read_manifest(str(newest)).files}
    assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt"} <= files
    shutil.copytree(tmp_path / "killed", tmp_path / "one")

    for (verdict, *after), expected in zip(killed.run(), truth, strict=True):
        assert (verdict, after) == ("exact", expected[8:])
    assert killed.status == 0
    run = killed.watch()
    one, two = run.sessions
    assert one.outcome == "error" and (two.restored_step, two.resume_exact) == (8, True)
    assert (two.outcome, two.last_step) == ("completed", STEPS)
    assert [(item.step, item.trigger) for item in run.checkpoints][-3:] == [(12, "timer"), (16, "timer"), (18, "final")]
    assert [(worker.name, worker.state) for worker in run.workers] == [("rank:1", "stopped")]

    ((verdict, *_),) = job(tmp_path / "one").run(ranks=1)
    assert "Another number of ranks: 2 at the save, 1 now." in verdict


def test_a_sigterm_to_one_rank(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """All ranks end after the same step, which is saved and sealed; the next start goes on after it."""
    stopped = job(tmp_path)
    first = stopped.run({"signal": "SIGTERM", "rank": 1, "step": 9, "save_steps": 5})
    assert [len(lines) for lines in first] == [10, 10]
    (session,) = stopped.watch().sessions
    assert (session.outcome, session.last_step) == ("signal", 10)
    assert [(item.step, item.trigger) for item in stopped.watch().checkpoints] == [(5, "timer"), (10, "signal")]
    for before, (verdict, *after), expected in zip(first, stopped.run(), truth, strict=True):
        assert verdict == "exact" and [*before, *after] == expected


def run_of(directory: Path, others: Others, **training: Any) -> Any:
    """A session of one of two ranks that has not begun."""
    state = ranks.TrainerRanksState(ranks=others, own=(), **training)
    return ranks.TrainerRun(str(directory), state=state, options=Options(), policy=SavePolicy())


def saver_of(directory: Path, others: Others) -> Any:
    """What seals on one of two ranks."""
    session = SimpleNamespace(recorder=SimpleNamespace(publisher=None), writer=None)
    return ranks.RanksSealingSaver(
        None, ranks.TrainerRanksState(ranks=others, own=()), SavePolicy(), session=session, options=Options(),
        due=Due(), clock=SYSTEM_CLOCK, directory=str(directory), restored=None, skipped=(), deletes=False,
    )  # fmt: skip


def test_a_rank_that_goes_its_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an error that names it: another step at a save, another checkpoint restored, another directory."""
    run = run_of(tmp_path, Others(row=lambda row: Row(At.STEP, 3)))
    with pytest.raises(
        RanksError, match="Rank 1 is in its loop at step 3, and rank 0 is saving a checkpoint at step 0"
    ):
        run.meet_at_save(0)

    saver = saver_of(tmp_path, Others(1, announced="checkpoint-8"))
    with pytest.raises(RanksError, match="Rank 1 has restored nothing, and rank 0 checkpoint-8: call train"):
        saver.read(False)

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "present_ranks", lambda: Others(said="/other"))
    with pytest.raises(RanksError, match=f"{tmp_path}, /other. All ranks need the same"):
        SupervisorCallback().resume_from(tmp_path)


def test_rank_0_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same checkpoint on all ranks, or the same error; the others do not look for one."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RanksError, match=r"torch.distributed is not initialised: make the TrainingArguments before"):
        SupervisorCallback().resume_from(tmp_path)
    for said in (None, Sealed(path="/run/checkpoint-8", manifest=Manifest(format="transformers", step=8))):
        monkeypatch.setattr(ranks, "present_ranks", lambda said=said: Others(1, announced=said))
        assert SupervisorCallback().resume_from(tmp_path) == (said and said.path)
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "checkpoint-8" / NAME).write_text("damaged")
    heard: list[Any] = []
    first = Others()
    first.announce = lambda value=None: heard.append(value) or value  # type: ignore[method-assign,func-returns-value]
    for other in (first, Others(1)):
        other.announced = heard and pickle.loads(pickle.dumps(heard[0]))
        monkeypatch.setattr(ranks, "present_ranks", lambda other=other: other)
        with pytest.raises(NoUsableCheckpointError, match="checkpoint-8"):
            SupervisorCallback().resume_from(tmp_path)


def test_what_splits_a_model_is_refused() -> None:
    """With an error that names it, and says what to do, before anything is trained."""
    for given, text in [
        ({"fsdp": True}, "here is FSDP, in 2 processes"),
        ({"deepspeed": "config.json"}, "here is DeepSpeed"),
        ({"distributed_state": SimpleNamespace(distributed_type="FSDP")}, "here is FSDP"),
        ({"distributed_state": SimpleNamespace(distributed_type="MEGATRON_LM")}, "here is MEGATRON_LM"),
        ({"parallelism_config": SimpleNamespace(tp_enabled=True)}, "here is Tensor parallelism"),
        ({"save_on_each_node": True}, "save_on_each_node=True: a part of each checkpoint would be missing"),
    ]:
        plain = {"world_size": 2, "fsdp": None, "deepspeed": None, "save_on_each_node": False}
        state = SimpleNamespace(distributed_type="MULTI_CPU")
        args = SimpleNamespace(**{**plain, "distributed_state": state, **given})
        with pytest.raises(ValueError, match=text):
            SupervisorCallback().on_init_end(args, None, None)


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    """Is an error that names the rank: a checkpoint without its random states is not sealed."""
    saver = saver_of(tmp_path, Others())
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "checkpoint-8" / "rng_state_0.pth").touch()
    with pytest.raises(CheckpointError, match=r"rng_state_1.pth of rank 1 is missing: all ranks need the same"):
        saver._write(SaveJob(8, "timer"))


def test_what_splits_a_state_is_refused() -> None:
    """Likewise; DistributedDataParallel is not."""
    state = SimpleNamespace(distributed_type="MULTI_GPU")
    args: Any = SimpleNamespace(
        world_size=2, fsdp=[], deepspeed=None, save_on_each_node=False, distributed_state=state
    )  # fmt: skip
    model = torch.nn.Linear(1, 1)
    ranks.refuse_split(args, model, torch.optim.SGD(model.parameters()))
    zero = SimpleNamespace(optimizer=type("ZeroRedundancyOptimizer", (), {})())
    with pytest.raises(ValueError, match="here is a ZeroRedundancyOptimizer, in 2 processes"):
        ranks.refuse_split(args, model, zero)
    split = type("DTensor", (torch.nn.Parameter,), {})(torch.zeros(1))
    model.weight = split
    with pytest.raises(ValueError, match="here is a model that is split over them"):
        ranks.refuse_split(args, model, None)
