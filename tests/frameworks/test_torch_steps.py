"""A loop over step numbers, ``supervised(range(n), ...)``: the shape of nanoGPT's, killed and resumed bit by bit."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial import PAUSE, Event, Say, at, killed_and_resumed, run_of, trial

from supervisor_core.base.errors import CheckpointError

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import supervisor_core  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.position import OTHER_LOOP  # noqa: E402

ROOT = Path(__file__).parents[2]
STEPS, ACCUMULATE = 18, 3
TEXT = torch.arange(1000) * 7919 % 31


def get_batch() -> Any:
    """Draw a batch from the random states of the process, as nanoGPT does."""
    starts = torch.randint(len(TEXT) - 9, (4,))
    shift = random.randint(0, 1) + np.random.randint(2)
    rows = torch.stack([TEXT[start : start + 9] for start in starts])
    return (rows[:, :-1] + shift) % 31, rows[:, 1:]


class Net(torch.nn.Module):  # type: ignore[misc]
    """A model with dropout, which returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(31, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 31))

    def forward(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(self.layers(x).flatten(0, 1), y.flatten())


def train(
    logdir: Path,
    say: Say,
    *,
    event: Event = lambda loop, step: None,
    steps: int = STEPS,
    compiles: bool = False,
    amp: bool = False,
) -> None:
    """Accumulate gradients within a step, evaluate now and then, keep the best loss; say each step's bits."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model: Any = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if compiles:
        model = torch.compile(model, backend="eager")
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5) if amp else None
    best = {"loss": 1e9}
    with supervised(
        range(steps), logdir, model=model, optimizer=optimizer, scaler=scaler, state={"best": best}, save_secs=None,
        save_steps=4,
    ) as loop:  # fmt: skip
        for number in loop:
            assert number == loop.batch == loop.global_step
            if number and loop.exactness is not None and number == loop.run._restored.manifest.step:  # type: ignore[union-attr]
                say(" ".join(("exact", *loop.exactness.reasons)))
            loop.run.wait_until_saved()
            event(loop, number)
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (1 + number)
            if number % 5 == 0:
                with loop.phase("evaluating"), torch.no_grad():
                    best["loss"] = min(best["loss"], model(*get_batch()).item())
            for _ in range(ACCUMULATE):
                x, y = get_batch()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                    loss = model(x, y) / ACCUMULATE
                (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is None:
                optimizer.step()
            else:
                if number == 6:  # infinite: the scaler leaves the optimizer's step out
                    next(iter(model.parameters())).grad.fill_(float("inf"))
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad(set_to_none=True)
            say(f"{number} {x.sum()} {loss.item().hex()} {best['loss'].hex()}")
    say("end " + torch.cat([part.flatten() for part in model.state_dict().values()]).double().sum().item().hex())


@pytest.mark.parametrize("options", [{}, {"compiles": True}, {"amp": True}], ids=["plain", "compiled", "scaler"])
def test_a_killed_loop_over_steps_goes_on_bit_by_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    """Batches, losses, the best evaluation and the weights; also after a step that a `GradScaler` left out, which
    counts as a step."""
    truth, _, verdict, steps = killed_and_resumed(tmp_path, partial(train, **options), at(11, signal.SIGKILL))
    assert verdict == "exact" and steps == truth[-len(steps) :] and len(steps) == STEPS - 8 + 1


def test_gradients_that_are_accumulated_over_steps_are_not_saved_between(tmp_path: Path) -> None:
    """A step without the optimizer's is counted, and a checkpoint waits for the one that has it."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = []
    loop = supervised(range(8), tmp_path / "run", model=model, optimizer=optimizer, save_steps=1, save_secs=None)
    for number in loop:
        loop.run.wait_until_saved()
        saved.append(loop.run.newest_checkpoint)
        model(*get_batch()).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert saved[:4] == [None] * 4 and {Path(path or "").name for path in saved[4:]} == {"ckpt-4"}


def test_a_signal_in_an_evaluation_before_the_step_is_saved_at_once(tmp_path: Path) -> None:
    """As nanoGPT evaluates: under the number of the steps that are done, however long the evaluation goes on."""

    def body(say: Say) -> None:
        torch.set_num_threads(1)  # the threads of the parent are not in a forked process
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loop = supervised(range(9), tmp_path / "run", model=model, optimizer=optimizer, save_secs=None)
        for number in loop:
            if number == 2:
                with loop.phase("evaluating"):
                    signal.raise_signal(signal.SIGTERM)
                    while loop.run.newest_checkpoint is None:
                        PAUSE.wait(0.01)
                    say(Path(loop.run.newest_checkpoint).name)
            model(*get_batch()).backward()
            if number == 2:
                with loop.phase("evaluating"):  # half of a step: nothing can be saved
                    say(str(loop.run._saver._held))  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad()

    status, said = trial(tmp_path, body)
    assert (status, said) == (-signal.SIGTERM, ["ckpt-2", "None"])
    assert [saved.step for saved in run_of(tmp_path / "run").checkpoints] == [2, 3]


def test_supervise_captures_pytorch(tmp_path: Path) -> None:
    """Tensors, optimizers, generators and PyTorch's random state, without an adapter: exact with a data position."""

    def program(logdir: Path, say: Say, event: Event = lambda run, step: None) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())
        data = {"next": 0}
        with supervisor_core.supervise(
            logdir, state={"model": model, "optimizer": optimizer, "data": data}, save_secs=None, save_steps=4
        ) as run:
            if run.exactness is not None:
                say(" ".join(("exact", *run.exactness.reasons)))
            for step in run.steps(STEPS):
                run.wait_until_saved()
                event(run, step)
                optimizer.zero_grad()
                loss = model(TEXT[None, data["next"] : data["next"] + 8], TEXT[None, -8:])
                loss.backward()
                optimizer.step()
                data["next"] += 1
                say(f"{step} {loss.item().hex()}")

    truth, _, verdict, steps = killed_and_resumed(tmp_path, program, at(11, signal.SIGKILL))
    assert verdict == "exact" and steps == truth[-len(steps) :] and len(steps) == STEPS - 8


@pytest.mark.parametrize(("number", "name"), [(0, "torch_gpt"), (1, "torch_ppo")])
def test_the_changes_that_the_guide_shows_are_those_of_the_example(number: int, name: str) -> None:
    """At most 10 lines are changed or added, and each line is in the example, in its order."""
    page = (ROOT / "docs" / "torch-howto.md").read_text("utf-8")
    diff = re.findall(r"^```diff\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[number].splitlines()
    example = iter([line.strip() for line in (ROOT / "examples" / f"{name}.py").read_text("utf-8").splitlines()])
    assert 5 < sum(line.startswith("+") for line in diff) <= 10
    missing = [line for line in diff if not line.startswith("-") and line[1:].strip() not in example]
    assert missing == []


@pytest.mark.timeout(600)  # a framework's first import, on a busy machine
def test_the_example_goes_on_exactly(tmp_path: Path, starter_of: Callable[..., Any]) -> None:
    """Its last loss is the same without a restart, and with one after SIGTERM."""
    arguments = [str(ROOT / "examples" / "torch_gpt.py"), "--steps", "150", "--save-secs", "1000", "--logdir"]
    starter = starter_of("torch")
    whole = starter.run([*arguments, str(tmp_path / "whole")])
    program = starter.start([*arguments, str(tmp_path / "run")])
    assert program.stdout.readline().startswith("step 0: val loss")
    os.kill(program.pid, signal.SIGTERM)
    said, status = program.stdout.read(), program.wait()
    program.close()
    assert status == -signal.SIGTERM, said
    resumed = starter.run([*arguments, str(tmp_path / "run")])
    assert "not observed" in resumed.stderr and resumed.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert [session.outcome for session in run_of(tmp_path / "run").sessions] == ["signal", "completed"]


def test_another_kind_of_loop_is_refused(tmp_path: Path) -> None:
    """A checkpoint of a range in a loop over a loader, and the other way round: with what to do."""
    for first, second in ((range(2), [1, 2]), ([1, 2], range(4))):
        logdir = tmp_path / type(first).__name__
        assert len(list(supervised(first, logdir, model=Net()))) == 2
        with pytest.raises(CheckpointError, match=OTHER_LOOP.partition("{")[0]):
            list(supervised(second, logdir, model=Net(), epochs=1))
