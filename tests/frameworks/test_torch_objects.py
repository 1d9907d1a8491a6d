"""Several models, optimizers and schedulers, in lists and dicts: killed and resumed bit by bit."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trial import Event, Say, at, killed_and_resumed

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each trial

from supervisor_core.base.errors import RanksError  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.optimizer_steps import PENDING  # noqa: E402
from supervisor_core.torch.shards import shards_of  # noqa: E402

STEPS = 18


def _bits(*models: Any) -> str:
    parts = [part.flatten().double() for model in models for part in model.state_dict().values()]
    return float(torch.cat(parts).sum()).hex()


def _group(kind: str, one: Any, two: Any) -> Any:
    return {"dict": {"g": one, "c": two}, "list": [one, two], "nested": ({"g": one}, [two, None])}[kind]


def train_gan(
    logdir: Path, say: Say, *, event: Event = lambda loop, step: None, kind: str = "dict", every: int = 3
) -> None:
    """A generator that makes a step in every third pass, and a critic that makes one in each, as WGAN has them."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = torch.utils.data.DataLoader(torch.randn(24, 3), batch_size=4, shuffle=True)
    generator: Any = torch.nn.Linear(2, 3)
    inner: Any = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    critic = torch.nn.DataParallel(inner) if kind == "dict" else inner  # its prefix is in no name
    optimizers = [torch.optim.RMSprop(model.parameters(), lr=0.01) for model in (generator, critic)]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) for optimizer in optimizers]
    parts = {
        "model": _group(kind, generator, critic),
        "optimizer": _group(kind, *optimizers),
        "scheduler": _group(kind, *schedulers),
    }
    with supervised(data, logdir, epochs=3, save_steps=2, save_secs=None, **parts) as loop:
        for real in loop:
            if loop.exactness is not None and loop.global_step == loop.run._restored.manifest.step:  # type: ignore[union-attr]
                say(" ".join(("exact", *loop.exactness.reasons)))
            loop.run.wait_until_saved()
            event(loop, loop.global_step)
            optimizers[1].zero_grad()
            (inner(generator(torch.randn(4, 2)).detach()) - inner(real)).mean().backward()
            optimizers[1].step()
            if loop.global_step % every == 0:
                optimizers[0].zero_grad()
                (-inner(generator(torch.randn(4, 2))).mean()).backward()
                optimizers[0].step()
                for scheduler in schedulers:
                    scheduler.step()
            say(f"{loop.global_step} {_bits(generator, inner)}")


@pytest.mark.parametrize("kind", ["dict", "list", "nested"])
def test_a_killed_gan_goes_on_bit_by_bit(tmp_path: Path, kind: str) -> None:
    """Two models, two optimizers, two schedulers: all come back, and nothing is named."""
    truth, first, verdict, steps = killed_and_resumed(tmp_path, partial(train_gan, kind=kind), at(11, signal.SIGKILL))
    assert verdict == "exact" and len(first) == 11 and steps == truth[-len(steps) :] and len(steps) == STEPS - 10


def _loop(tmp_path: Path, body: Callable[[Any, Any, Any], None], steps: int) -> tuple[Any, list[str]]:
    """Train two models, and return what the last checkpoint does not capture."""
    torch.manual_seed(0)
    models = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    loop = supervised(range(steps), tmp_path / "run", model=models, optimizer=optimizers, save_secs=None)
    for _ in loop:
        body(loop, models, optimizers)
    return loop, list(loop.limits)


def test_gradients_that_another_optimizer_has_not_used_are_named(tmp_path: Path) -> None:
    """A pass in which one of two optimizers makes a step is a step; what the other one accumulates is not saved."""

    def body(loop: Any, models: Any, optimizers: Any) -> None:
        for model in models:
            model(torch.ones(1, 2)).sum().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        if loop.batch % 4 == 3:
            optimizers[1].step()
            optimizers[1].zero_grad()

    loop, limits = _loop(tmp_path, body, 6)
    assert loop.global_step == 6 and limits == [PENDING.format("optimizer.1")]
    _, limits = _loop(tmp_path, body, 8)
    assert limits == []


def test_an_optimizer_of_two_models_of_which_one_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state could not be split as the model is: it is an error that names both."""
    models = {"model.0": torch.nn.Linear(2, 1), "model.1": torch.nn.Linear(2, 1)}
    monkeypatch.setattr("supervisor_core.torch.shards.is_sharded", lambda model: model is models["model.1"])
    both = torch.optim.SGD([part for model in models.values() for part in model.parameters()])
    alone = torch.optim.SGD(models["model.0"].parameters())
    with pytest.raises(RanksError, match=r"'optimizer\.1' has parameters of model\.0 and model\.1"):
        shards_of(models, {"optimizer.0": alone, "optimizer.1": both})
    assert list(shards_of(models, {"optimizer.0": alone})) == ["model.1"]
