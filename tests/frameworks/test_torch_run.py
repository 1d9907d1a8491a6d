"""`supervise(state=...)` with PyTorch's objects, in a loop over ``run.steps(n)``: the shape of CleanRL's PPO."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial import Event, Say, at, calls_of, killed_and_resumed, run_of, trial

from supervisor_core.training.position import ACCUMULATED

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each trial

from supervisor_core import supervise  # noqa: E402
from supervisor_core.torch.optimizer_steps import PENDING  # noqa: E402

ROOT = Path(__file__).parents[2]
STEPS = 14


class Walk:
    """An environment as gymnasium's, without a state that can be saved."""

    def __init__(self) -> None:
        self.np_random = np.random.default_rng(3)
        self.place = np.zeros(2)

    def reset(self) -> Any:
        self.place[:] = self.np_random.random(2)
        return self.place.copy()

    def step(self, action: int) -> Any:
        self.place += (action - 0.5) * self.np_random.random(2)
        return self.place.copy()


class Saved(Walk):
    """One with a state."""

    def get_state(self) -> Any:
        return {"place": self.place, "rng": self.np_random.bit_generator.state}

    def set_state(self, state: Any) -> None:
        self.place[:], self.np_random.bit_generator.state = state["place"], state["rng"]


def train(
    logdir: Path, say: Say, *, event: Event = lambda run, step: None, env: Callable[[], Any] = Saved, bare: bool = False
) -> None:
    """Play, and learn from it; the observation goes from step to step. Say each step's bits."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    envs, agents = env(), {"actor": torch.nn.Linear(2, 2), "critics": [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]}
    agents["actor"] = torch.nn.DataParallel(agents["actor"])  # its prefix is in no name
    parameters = [*agents["actor"].parameters(), *agents["critics"][0].parameters()]
    optimizers = [torch.optim.Adam(parameters, lr=0.01), torch.optim.SGD(agents["critics"][1].parameters(), lr=0.1)]
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.9)
    carry = {"obs": torch.tensor(envs.reset()).float(), "frames": 0}
    state = {"agents": agents, "optimizers": optimizers, "scheduler": scheduler, "env": envs, "carry": carry}
    run = supervise(logdir, state=state, save_secs=None, save_steps=4)

    def learn() -> None:
        for step in run.steps(STEPS):
            if run.exactness is not None and step == run._restored.manifest.step:  # type: ignore[union-attr]
                say(" ".join(("exact", *run.exactness.reasons)))
            run.wait_until_saved()
            event(run, step)
            obs = carry["obs"]
            policy = torch.distributions.Categorical(logits=agents["actor"].module(obs))
            action = policy.sample()
            following = torch.tensor(envs.step(int(action))).float()
            loss = -policy.log_prob(action) + sum(critic(obs) for critic in agents["critics"]).sum()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            scheduler.step()
            carry.update(obs=following, frames=carry["frames"] + 1)
            say(f"{step} {carry['frames']} {loss.item().hex()} {following.sum().item().hex()}")

    if bare:
        learn()
    else:
        with run:
            learn()


@pytest.mark.parametrize("bare", [False, True], ids=["with", "bare"])
def test_a_killed_loop_goes_on_bit_by_bit(tmp_path: Path, bare: bool) -> None:
    """Agents, optimizers and the environment come back, with ``with`` and without; nothing is named."""
    truth, _, verdict, steps = killed_and_resumed(tmp_path, partial(train, bare=bare), at(10, signal.SIGKILL))
    assert verdict == "exact" and steps == truth[-len(steps) :] and len(steps) == STEPS - 8
    assert [session.outcome for session in run_of(tmp_path / "run").sessions] == ["lost", "completed"]


def _step(model: Any, optimizer: Any, inputs: Any = None) -> None:
    optimizer.zero_grad()
    model(torch.randn(2) if inputs is None else inputs).sum().backward()
    optimizer.step()


def test_a_step_calls_few_functions(tmp_path: Path) -> None:
    """What PyTorch adds to each step is one call, and one for each optimizer's step."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts = []
    for state in ({"model": model}, {"model": model, "optimizer": optimizer}):
        with supervise(tmp_path / str(len(counts)), state=state, save_secs=None) as run:
            steps = iter(run.steps(100))
            next(steps)

            def step(steps: Any = steps) -> None:
                _step(model, optimizer)
                next(steps)

            counts.append(calls_of(step))
            assert list(steps)
    assert counts[0] <= 6 and counts[1] <= counts[0] + 1, counts


@pytest.mark.timeout(600)  # a framework's first import, on a busy machine
def test_the_example_goes_on_exactly(tmp_path: Path, starter_of: Callable[..., Any]) -> None:
    """Killed in the middle: its last lines are those of one that was not."""
    arguments = [str(ROOT / "examples" / "torch_ppo.py"), "--updates", "40", "--save-secs", "0.1", "--logdir"]
    starter = starter_of("torch")
    whole = starter.run([*arguments, str(tmp_path / "whole")]).stdout.splitlines()
    program = starter.start([*arguments, str(tmp_path / "run")])
    saved = (tmp_path / "run" / "checkpoints").glob
    assert any(line.startswith("update ") and any(saved("ckpt-*")) for line in program.stdout)
    os.kill(program.pid, signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    program.close()
    resumed = starter.run([*arguments, str(tmp_path / "run")])
    assert "not observed" in resumed.stderr
    assert resumed.stdout.splitlines() == whole[-len(resumed.stdout.splitlines()) :] != []


def test_a_loop_without_with_ends_its_session(tmp_path: Path) -> None:
    """By a break, an error, or a signal, as that of `supervised`."""

    def left(say: Say, how: str) -> None:
        for step in supervise(tmp_path / how, state={"model": torch.nn.Linear(2, 1)}, save_secs=None).steps(5):
            if step == 3 and how == "break":
                break
            if step == 3 and how == "error":
                raise ArithmeticError("the loss exploded")
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    found = {}
    for how in ("break", "error", "signal"):
        status, _ = trial(tmp_path, partial(left, how=how))
        (session,) = run_of(tmp_path / how).sessions
        found[how] = (status, session.outcome)
    assert found == {"break": (0, "completed"), "error": (1, "error"), "signal": (-signal.SIGTERM, "signal")}


def _limits(tmp_path: Path, body: Callable[[Any, Any, Any], None], steps: int = 3, **state: Any) -> list[str]:
    """Train, and return what a checkpoint at the end does not capture."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = supervise(tmp_path / "run", state={"model": model, "optimizer": optimizer, **state}, save_secs=None)
    with run:
        body(run, model, optimizer)
    return list(run.state.capture(steps).not_captured)


def test_gradients_that_are_accumulated_are_not_saved(tmp_path: Path) -> None:
    """Each pass is a step; a checkpoint waits for one in which an optimizer makes its step."""
    saved = []

    def body(run: Any, model: Any, optimizer: Any) -> None:
        for step in run.steps(8):
            run.wait_until_saved()
            saved.append(Path(run.newest_checkpoint or "none").name)
            model(torch.ones(2)).sum().backward()
            run.save()
            if step % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    assert _limits(tmp_path, body) == [ACCUMULATED.format(2)]
    assert set(saved) == {"none", "ckpt-3", "ckpt-6"}

    def two(run: Any, model: Any, optimizer: Any) -> None:
        for step in run.steps(2):
            models[1](torch.ones(2)).sum().backward()
            if step == 0:
                optimizers[1].step()
            models[0](torch.ones(2)).sum().backward()
            optimizers[0].step()

    models = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
    assert PENDING.format("pair.1") in _limits(tmp_path / "two", two, pair=optimizers, models=models)
