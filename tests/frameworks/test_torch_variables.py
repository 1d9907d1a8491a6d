"""What a loop keeps where no checkpoint has it: the verdict of the next session says so by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.loop import ENUMERATED, GIVEN  # noqa: E402
from supervisor_core.training.values import CARRIED, GENERATOR, ITERATOR, UNSEEN  # noqa: E402

DIFFERS = "{} at step 2 differs ({} before, {} now)."
DATA = torch.arange(1000) * 7919 % 31


def get_batch() -> Any:
    """Draw a batch from PyTorch's random state, which is captured."""
    rows = torch.stack([DATA[start : start + 9] for start in torch.randint(len(DATA) - 9, (4,))])
    return rows[:, :-1], rows[:, 1:]


class Net(torch.nn.Module):  # type: ignore[misc]
    """A model that returns its loss, and may count its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(31, 8), torch.nn.Linear(8, 31))

    def forward(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(self.layers(x).flatten(0, 1), y.flatten())


class Reader:
    """An object of the program's own, with a position and a generator."""

    at = 0

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.rest = iter(range(9))

    def read(self) -> None:
        self.at += 1

    def draw(self) -> float:
        return self.rng.random()


def _loops(loop_dir: Path = Path()) -> dict[str, tuple[Callable[[Any, Any], None], str]]:
    """Loops that keep what no checkpoint has; and what is said of each."""

    def ahead(loop: Any, model: Any) -> None:
        x, y = get_batch()
        for _ in loop:
            model(x, y)
            x, y = get_batch()

    def own_generator(loop: Any, model: Any) -> None:
        rng = np.random.default_rng(3)
        for _ in loop:
            rng.random()

    def iterator(loop: Any, model: Any) -> None:
        batches = iter([get_batch() for _ in range(9)])
        for _ in loop:
            next(batches)

    def progress_bar(loop: Any, model: Any) -> None:
        hidden = torch.zeros(2)
        for _ in (item for item in loop):
            hidden = hidden + 1

    def untouched(loop: Any, model: Any) -> None:
        data, kept = torch.zeros(2), random.Random(3)
        over = (item for item in [])
        assert not list(over)
        for _ in loop:
            x, y = get_batch()
            model(x + data[0].int(), y)
        kept.random()

    def reused(loop: Any, model: Any) -> None:
        x, y = torch.zeros(9), torch.zeros(9)
        for x, y in (get_batch() for _ in loop):
            model(x, y)

    def logged(loop: Any, model: Any) -> None:
        n = 0
        for _ in loop:
            n = n + 1
            print(n)

    def position(loop: Any, model: Any) -> None:
        at, best, running = 0, 1e9, 0.0
        for _ in loop:
            at += 9
            DATA[at]
            if best < 1:
                break
            best = min(best, 3.25)
            running = 0.9 * running + at

    def object_of_its_own(loop: Any, model: Any) -> None:
        reader = Reader()
        for _ in loop:
            reader.read()
            reader.draw()

    def file(loop: Any, model: Any) -> None:
        with Path(__file__).open("rb", buffering=0) as text, (loop_dir / "log").open("a") as log:
            for _ in loop:
                text.read(9)
                log.write("a step\n")

    def optimizers(loop: Any, model: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        scaler, off = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False)
        for _ in loop:
            scaler.scale(model(*get_batch())).backward()
            scaler.step(optimizer)
            scaler.update()
            off.update()
            schedule.step()

    def second_model(loop: Any, model: Any) -> None:
        mean, teacher = torch.optim.swa_utils.AveragedModel(model), Net()
        wrapped, part = torch.nn.Sequential(model), model.layers[0]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in loop:
            (wrapped[0](*get_batch()) + part.weight.sum() + teacher(*get_batch()).detach()).backward()
            optimizer.step()
            mean.update_parameters(model)

    def in_place(loop: Any, model: Any) -> None:
        total, counts, means = torch.zeros(2), np.zeros(2), {"w": torch.zeros(2)}
        weights, own = list(model.parameters()), model.layers[1].bias.data
        for _ in loop:
            total += 1
            counts[1] += 1
            means["w"].data.lerp_(torch.ones(2), 0.5)
            with torch.no_grad():
                weights[0].add_(1)
                own.add_(1)

    return {
        "a position, and the best value": (position, DIFFERS.format("at", "18", "9")),
        "an object of the program's own": (
            object_of_its_own,
            " ".join(
                (DIFFERS.format("reader.at", "2", "1"), ITERATOR.format("reader.rest"), GENERATOR.format("reader.rng"))
            ),
        ),
        "a file": (file, ITERATOR.format("text")),
        "an optimizer, a scheduler, a scaler": (
            optimizers,
            " ".join(
                (GIVEN % argument).format(name)
                for name, argument in (("optimizer", "optimizer"), ("schedule", "scheduler"), ("scaler", "scaler"))
            ),
        ),
        "a mean of the weights": (
            second_model,
            f"{(GIVEN % 'optimizer').format('optimizer')} {(GIVEN % 'ema').format('mean')}",
        ),
        "tensors that are changed in place": (in_place, CARRIED.format("counts, means, total")),
        "names that were there before the loop": (reused, CARRIED.format("x, y")),
        "a count that is only logged": (logged, DIFFERS.format("n", "2", "1")),
        "a batch fetched ahead": (ahead, CARRIED.format("x, y")),
        "a generator": (own_generator, GENERATOR.format("rng")),
        "an iterator": (iterator, ITERATOR.format("batches")),
        "a hidden state, through a progress bar": (progress_bar, CARRIED.format("hidden")),
        "nothing": (untouched, ""),
    }


@pytest.mark.parametrize("kind", _loops())
def test_what_the_loop_keeps_in_variables_is_named(tmp_path: Path, kind: str) -> None:
    """The verdict of the next session says by name what was not captured."""
    body, limit = _loops(tmp_path)[kind]
    model = Net()
    body(supervised(range(2), tmp_path / "run", model=model), model)
    loop = supervised(range(3), tmp_path / "run", model=model)
    body(loop, model)
    assert loop.exactness is not None and " ".join(loop.exactness.reasons) == limit


def bar(batches: Any) -> Any:
    """A progress bar."""
    yield from batches


@pytest.mark.parametrize("own_epochs", [False, True])
@pytest.mark.parametrize("around", [iter, enumerate, lambda loop: enumerate(bar(loop), 1)], ids=["none", "it", "a bar"])
def test_the_numbers_of_enumerate_are_named(tmp_path: Path, around: Callable[[Any], Any], own_epochs: bool) -> None:
    """They begin again in an epoch that goes on; not at its end. Whether they are for the log alone is not known."""
    until, reasons = 2, () if around is iter else (ENUMERATED,)
    for session in range(2):
        loop = supervised([1.0] * 4, tmp_path, epochs=2, model=torch.nn.Linear(1, 1), save_secs=None)
        for _ in loop.epochs() if own_epochs else range(1):
            for _ in around(loop):
                if loop.global_step == until:
                    break
            if not session:
                break
        until = 99
    assert loop.exactness is not None
    assert tuple(reason for reason in loop.exactness.reasons if "enumerate" in reason) == reasons
    assert any("enumerate" in limit for limit in loop.limits) is (bool(reasons) and not own_epochs)


class Odd:
    """What cannot be asked what it is."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not yet connected")


class Unshown:
    """What cannot be shown, once it was trained with."""

    is_used = False

    def __repr__(self) -> str:
        if self.is_used:
            raise OSError("gone")
        return "unshown"


class Closed(torch.nn.Linear):  # type: ignore[misc]
    """A model that is closed while the training goes on."""

    is_closed = False

    def parameters(self, recurse: bool = True) -> Any:
        if self.is_closed:
            raise OSError("closed")
        return super().parameters(recurse)


def test_what_cannot_be_looked_at_is_named_and_ends_nothing(tmp_path: Path) -> None:
    """Before the first step, after it, and at a later save."""
    model = Net()
    odd, item, teacher = Odd(), Unshown(), Closed(1, 1)
    array = np.array([item], dtype=object)
    with supervised(range(3), tmp_path, model=model, save_secs=None) as loop:
        for step in loop:
            model(*get_batch())
            item.is_used = True
            teacher.is_closed = step == 2
        limits = loop.run.state.all_limits()
    del odd, array
    assert [limit for limit in limits if "cannot be looked at" in limit] == [
        UNSEEN.format("odd", "RuntimeError: not yet connected"),
        UNSEEN.format("array", "OSError: gone"),
        UNSEEN.format("teacher", "OSError: closed"),
    ]
    assert loop.global_step == 3
