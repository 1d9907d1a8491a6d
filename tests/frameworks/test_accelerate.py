"""What accelerate has prepared, in `supervised`: killed and resumed bit by bit, in one process and in several."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ports import free_port
from trial import launch, run_of, trial

pytest.importorskip("accelerate", reason="accelerate is not installed: make test-frameworks has it")
torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")  # which the first optimizer imports: once here, not in each process

from accelerate import skip_first_batches  # noqa: E402
from accelerate.commands.launch import launch_command, launch_command_parser  # noqa: E402
from accelerate.data_loader import DataLoaderShard  # noqa: E402
from accelerate.optimizer import AcceleratedOptimizer  # noqa: E402
from accelerate.state import AcceleratorState, PartialState  # noqa: E402

from supervisor_core.torch import supervised  # noqa: E402

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
]


@pytest.fixture(scope="module")
def program(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The training."""
    return module_at("frameworks/accelerate_program.py")


def said(directory: Path, ranks: int) -> list[list[str]]:
    """What each rank has said so far."""
    return [(directory / f"rank-{rank}").read_text().splitlines() for rank in range(ranks)]


def run(program: ModuleType, directory: Path, plan: dict[str, Any], ranks: int) -> tuple[int, list[list[str]]]:
    """Train; return the exit status, and what each rank said."""
    directory.mkdir(exist_ok=True)
    before = [len(lines) for lines in said(directory, ranks)] if (directory / "rank-0").exists() else [0] * ranks

    def body(say: Any) -> None:
        if ranks == 1:
            program.train(str(directory), plan)
        else:
            launch(program.train, str(directory), plan, ranks=ranks)

    status, _ = trial(directory, body)
    return status, [lines[count:] for lines, count in zip(said(directory, ranks), before, strict=True)]


PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {}),
    "draws": (1, {"draws": True}),
    "stream": (1, {"draws": True, "stream": True}),
    "accumulation": (1, {"accumulation": 2, "precision": "bf16", "loader": {"use_seedable_sampler": True}}),
    "stateful": (1, {"loader": {"use_stateful_dataloader": True}}),
    "two ranks": (2, {"accumulation": 2, "draws": True, "own_seeds": True}),
    "split": (2, {"loader": {"split_batches": True, "use_seedable_sampler": True}}),
    "dispatch": (2, {"draws": True, "stream": True}),
    "a stream for each rank": (2, {"draws": True, "stream": True, "loader": {"dispatch_batches": False}}),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_killed_training(tmp_path: Path, program: ModuleType, name: str) -> None:
    """Goes on with the same samples, learning rates and bits, on each rank."""
    ranks, plan = PLANS[name]
    _, truth = run(program, tmp_path / "truth", plan, ranks)
    status, first = run(program, tmp_path / "killed", {**plan, "kill": 5, "rank": ranks - 1}, ranks)
    assert status == (-signal.SIGKILL if ranks == 1 else 1)
    status, second = run(program, tmp_path / "killed", plan, ranks)
    assert status == 0
    for before, (verdict, *after), expected in zip(first, second, truth, strict=True):
        assert before == expected[: len(before)] and verdict == "exact"
        assert after == expected[-len(after) :] and len(after) + len(before) >= len(expected)


def test_accelerate_launch(tmp_path: Path, program: ModuleType) -> None:
    """A rank that is killed ends the launcher with a failure; the same command goes on with the same bits on each
    rank, as a restarter would call it."""
    plan = {"precision": "bf16", "accumulation": 2, "save_steps": 2}
    _, truth = run(program, tmp_path / "truth", plan, 2)

    def started(**more: Any) -> tuple[int, list[list[str]]]:
        before = [len(lines) for lines in said(tmp_path, 2)] if (tmp_path / "rank-0").exists() else [0, 0]
        parser = launch_command_parser()
        options = [
            "--multi_gpu",
            "--num_processes=2",
            "--num_machines=1",
            "--dynamo_backend=no",
            f"--main_process_port={free_port()}",  # with 0 older versions of accelerate wait for ever
        ]
        arguments = parser.parse_args([*options, program.__file__, str(tmp_path), json.dumps({**plan, **more})])
        status, _ = trial(tmp_path, lambda say: launch_command(arguments))
        return status, [lines[count:] for lines, count in zip(said(tmp_path, 2), before, strict=True)]

    status, first = started(kill=3, rank=1)
    assert status == 1
    status, second = started()
    assert status == 0
    for before, (verdict, *after), expected in zip(first, second, truth, strict=True):
        assert before == expected[: len(before)] and verdict == "exact" and after == expected[-len(after) :]
    one, two = run_of(tmp_path / "run").sessions
    assert (one.outcome, two.outcome, two.restored_step) == ("error", "completed", 2)


@pytest.fixture
def prepared(program: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """What prepare() has returned: model, optimizer, loader, scheduler."""
    accelerator = program.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    data = torch.utils.data.TensorDataset(torch.ones(40, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    yield accelerator.prepare(model, optimizer, loader, scheduler)
    accelerator.free_memory()
    PartialState._reset_state()
    AcceleratorState._reset_state(True)


def test_what_is_not_supervised(tmp_path: Path, prepared: Any) -> None:
    """Is an error that says what to do: a loader that leaves out batches by itself, an engine's optimizer."""
    model, optimizer, loader, _ = prepared
    for other in (skip_first_batches(loader, 3), DataLoaderShard(loader.dataset, skip_batches=3)):
        with pytest.raises(ValueError, match=r"Give it the loader that prepare\(\) has returned"):
            supervised(other, tmp_path, model=model, optimizer=optimizer)
    kind = type("Wrapper", (AcceleratedOptimizer,), {"__module__": "accelerate.utils.deepspeed"})
    with pytest.raises(ValueError, match="The optimizer is DeepSpeed's"):
        supervised(loader, tmp_path, model=model, optimizer=kind(optimizer.optimizer))
    assert not list(tmp_path.iterdir())
