"""Several models, optimizers and schedulers, in lists and dicts: killed and resumed bit by bit."""

from __future__ import annotations

import signal
import warnings
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


def test_passes_without_any_step_are_accumulated(tmp_path: Path) -> None:
    """Nothing is saved between them: the first optimizer that makes a step ends them."""
    saved: list[int] = []

    def body(loop: Any, models: Any, optimizers: Any) -> None:
        saved.append(loop.run._saver.newest[1].step if loop.run._saver.newest else 0)
        models[1](torch.ones(1, 2)).sum().backward()
        if loop.batch % 3 == 2:
            optimizers[1].step()
            optimizers[1].zero_grad()
            loop.save()

    _loop(tmp_path, body, 9)
    assert set(saved) <= {0, 3, 6, 9}


def test_the_names_of_single_objects_are_as_before(tmp_path: Path) -> None:
    """A checkpoint of one model is read by a list of it under another name only: it says so."""
    model = torch.nn.Linear(2, 1)
    for _ in supervised(range(2), tmp_path / "run", model=model):
        pass
    for given, expected in (
        (model, ()),
        ([model], ('"model.0" is not in the checkpoint: it starts fresh.', '"model" is in the checkpoint, and this '
         "program has no state of that name.")),
    ):  # fmt: skip
        loop = supervised(range(3), tmp_path / "run", model=given, save_secs=None)
        iterator = iter(loop)
        next(iterator)
        assert loop.exactness is not None and loop.exactness.reasons == expected
        with pytest.raises(ZeroDivisionError):
            iterator.throw(ZeroDivisionError())  # type: ignore[attr-defined]


class Drawing(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples with noise, drawn when they are fetched."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return torch.randn(3) + index


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Samples without a length."""

    def __iter__(self) -> Any:
        return (torch.full((3,), float(index)) for index in range(7))


def _stateful() -> Any:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    with warnings.catch_warnings():  # torchdata 0.11 calls what torch 2.13 deprecates
        warnings.simplefilter("ignore", UserWarning)
        return torchdata.StatefulDataLoader(Drawing(), batch_size=2, shuffle=True)


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: torch.utils.data.DataLoader(Drawing(), batch_size=2, shuffle=True),
    "own generator": lambda: torch.utils.data.DataLoader(
        Drawing(), batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(5)
    ),
    "workers": lambda: torch.utils.data.DataLoader(torch.randn(7, 3), batch_size=2, shuffle=True, num_workers=1),
    "stream": lambda: torch.utils.data.DataLoader(Stream(), batch_size=2),
    "list": lambda: list(torch.randn(3, 2, 3)),
    "torchdata": _stateful,
}


def train_with_two(logdir: Path, say: Say, *, event: Event = lambda loop, step: None, kind: str = "shuffled") -> None:
    """Batches of one loader, and of another that is shorter, or longer, and asked for in two of three steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(24, 3), batch_size=4, shuffle=True)
    loop = supervised(data, logdir, epochs=3, model=model, optimizer=optimizer, save_steps=2, save_secs=None)
    unlabeled = loop.also(LOADERS[kind]())
    for batch in loop:
        if loop.exactness is not None and loop.global_step == loop.run._restored.manifest.step:  # type: ignore[union-attr]
            say(" ".join(("exact", *loop.exactness.reasons)))
        loop.run.wait_until_saved()
        event(loop, loop.global_step)
        extra = next(unlabeled) if loop.global_step % 3 else torch.zeros(1, 3)
        optimizer.zero_grad()
        (model(batch).sum() + model(extra).sum()).backward()
        optimizer.step()
        say(f"{loop.global_step} {unlabeled.epoch} {unlabeled.batch} {float(extra.sum()).hex()} {_bits(model)}")


@pytest.mark.parametrize("kind", LOADERS)
def test_a_second_loader_goes_on_where_it_was(tmp_path: Path, kind: str) -> None:
    """In the middle of its epoch, and after several: bit by bit."""
    truth, _, verdict, steps = killed_and_resumed(tmp_path, partial(train_with_two, kind=kind), at(13, signal.SIGKILL))
    assert verdict == "exact" and steps == truth[-len(steps) :] and len(steps) == STEPS - 12
    assert int(truth[-1].split()[1]) >= 2


def test_what_is_said_of_a_second_loader(tmp_path: Path) -> None:
    """It is a loader as the first one: its batch size may change, and what is not known of it is named."""
    model = torch.nn.Linear(3, 1)

    class Own:
        def __iter__(self) -> Any:
            return iter(torch.randn(4, 2, 3))

    for steps, size in ((5, 2), (8, 4)):
        loop = supervised(range(steps), tmp_path / "run", model=model, save_secs=None)
        one = loop.also(torch.utils.data.DataLoader(torch.randn(40, 3), batch_size=size))
        two = loop.also(Own())
        with pytest.raises(RuntimeError, match="before the loop"):
            next(one)
        for _ in loop:
            next(one)
            next(two)
    assert loop.exactness is not None and loop.exactness.reasons == (
        "data.2: The loader (Own) yields batches in a way of its own: whether they are the same again is not known. "
        "Give it state_dict() and load_state_dict().",
        "The data go on before the last consumed samples: about 2 of this epoch will repeat.",
        "Another batch size of data.1: 2 at the save, 4 now.",
        "Another number of batches in an epoch of data.1: 20 at the save, 10 now.",
    )
    with pytest.raises(RuntimeError, match="after the loop had begun"):
        loop.also([1])
    with pytest.raises(ValueError, match="can be iterated only once"):
        supervised(range(9), tmp_path / "run", model=model).also(iter([1]))
    empty = supervised(range(9), tmp_path / "run", model=model)
    nothing = empty.also([])
    with pytest.raises(ValueError, match="yields no batch"), empty:
        for _ in empty:
            next(nothing)


def test_an_optimizer_of_two_models_of_which_one_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state could not be split as the model is: it is an error that names both."""
    models = {"model.0": torch.nn.Linear(2, 1), "model.1": torch.nn.Linear(2, 1)}
    monkeypatch.setattr("supervisor_core.torch.shards.is_sharded", lambda model: model is models["model.1"])
    both = torch.optim.SGD([part for model in models.values() for part in model.parameters()])
    alone = torch.optim.SGD(models["model.0"].parameters())
    with pytest.raises(RanksError, match=r"'optimizer\.1' has parameters of model\.0 and model\.1"):
        shards_of(models, {"optimizer.0": alone, "optimizer.1": both})
    assert list(shards_of(models, {"optimizer.0": alone})) == ["model.1"]
