"""What a program keeps where neither `supervised` nor a look at its variables has it: the next session's verdict names
it."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from torch.optim.optimizer import _global_optimizer_post_hooks  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.optimizer_steps import AHEAD, STEPS, THREAD  # noqa: E402
from supervisor_core.training.values import CARRIED, GENERATOR, OBJECT  # noqa: E402

SAMPLES = 24


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """Keeps a hidden state in a submodule, if it is asked to."""

    def __init__(self, keeps: bool = False) -> None:
        super().__init__()
        self.inner = Cell(keeps)

    def forward(self, batch: Any) -> Any:
        return self.inner(batch)


class Cell(torch.nn.Module):  # type: ignore[misc]
    """A layer with a hidden state that is no buffer."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.keeps = keeps
        self.hidden = torch.zeros(1, 2)

    def forward(self, batch: Any) -> Any:
        output = self.layer(batch + self.hidden)
        if self.keeps:
            self.hidden = output.detach()[:1]
        return output.sum()


class Noisy(Dataset[Any]):
    """Draws noise from a generator of its own, deep within it."""

    def __init__(self) -> None:
        self.transforms = [{"noise": np.random.default_rng(3)}]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.ones(2) * index + self.transforms[0]["noise"].random()


class Game:
    """An environment with a state of its own."""

    def reset(self) -> float:
        return 0.0

    def step(self, action: int) -> float:
        return float(action)


class Mean:
    """A mean of the weights, with a state of its own."""

    def __init__(self, model: Any) -> None:
        self.copy = copy.deepcopy(model)

    def update(self, model: Any) -> None:
        for mine, present in zip(self.copy.parameters(), model.parameters(), strict=True):
            mine.data.lerp_(present.data, 0.1)

    def state_dict(self) -> Any:
        return self.copy.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.copy.load_state_dict(state)


def ahead(items: Any) -> Iterator[Any]:
    """Yield each item when the next one was taken."""
    items = iter(items)
    present = next(items)
    for item in items:
        yield present
        present = item
    yield present


def in_a_thread(items: Any) -> Iterator[Any]:
    """Yield what a thread takes."""
    queue: Queue[Any] = Queue(maxsize=2)

    def take() -> None:
        for item in items:
            queue.put(item)
        queue.put(None)

    threading.Thread(target=take, daemon=True).start()
    return iter(queue.get, None)


def train(batches: Any, model: Any, optimizer: Any, also: Callable[[], object] = lambda: None) -> None:
    """A function without variables of its own that are of interest."""
    for batch in batches:
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        also()


def data(**options: Any) -> Any:
    """A loader of a program."""
    return DataLoader([torch.ones(2) * index for index in range(SAMPLES)], 4, **options)


def hidden_in_layers(loop: Any, model: Any, optimizer: Any) -> None:
    """The hidden state of some layers, as an LSTM in layers has it."""
    states = [(torch.zeros(2), torch.zeros(2)) for _ in range(2)]
    for batch in loop:
        states = [(h + 1, c + 1) for h, c in states]
        (model(batch) + states[0][0].sum()).backward()
        optimizer.step()


def replay_buffer(loop: Any, model: Any, optimizer: Any) -> None:
    """What was seen is learned from later."""
    seen: deque[Any] = deque(maxlen=9)
    for batch in loop:
        seen.append((batch, 1.0))
        model(seen[0][0]).backward()
        optimizer.step()


def game(loop: Any, model: Any, optimizer: Any) -> None:
    """An environment in a variable."""
    env = Game()
    env.reset()
    for batch in loop:
        (model(batch) * env.step(2)).backward()
        optimizer.step()


def second_optimizer(loop: Any, model: Any, optimizer: Any) -> None:
    """One that no variable of the loop's function has."""
    train(loop, model, optimizer, _deep(torch.optim.Adam(torch.nn.Linear(2, 2).parameters()).step))


def _deep(step: Callable[[], object]) -> Callable[[], object]:
    return _Deep(_Deep(_Deep(lambda: step())))


class _Deep:
    def __init__(self, inner: Callable[[], object]) -> None:
        self.inner = {"within": [inner]}

    def __call__(self) -> None:
        self.inner["within"][0]()


def rare_mean(loop: Any, model: Any, optimizer: Any) -> None:
    """Means of the weights that change in every third step: a model, and tensors."""
    mean = torch.nn.Linear(2, 2)
    shadow = {name: part.detach().clone() for name, part in model.named_parameters()}
    for batch in loop:
        model(batch).backward()
        optimizer.step()
        if loop.batch % 3 == 2:
            mean.weight.data.lerp_(model.inner.layer.weight.data, 0.1)
            for name, part in model.named_parameters():
                shadow[name].lerp_(part.detach(), 0.1)


CASES: dict[str, tuple[Callable[[Any, Any, Any], None], Callable[[], Any], str]] = {
    "a hidden state in layers": (hidden_in_layers, data, CARRIED.format("states")),
    "a replay buffer": (replay_buffer, data, CARRIED.format("seen")),
    "an environment": (game, data, OBJECT.format("env")),
    "a second optimizer": (second_optimizer, data, STEPS.format("Adam")),
    "a mean of the weights in some steps": (rare_mean, data, f"{OBJECT.format('mean')} {CARRIED.format('shadow')}"),
    "a hidden state within the model": (train, data, CARRIED.format("model.inner.hidden")),
    "a batch ahead": (lambda loop, *rest: train(ahead(loop), *rest), data, AHEAD),
    "batches ahead in a thread": (lambda loop, *rest: train(in_a_thread(loop), *rest), data, THREAD),
    "a generator in the dataset": (
        train,
        lambda: DataLoader(Noisy(), 4),
        GENERATOR.format("loader.dataset.transforms[0]['noise']"),
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_what_no_variable_shows_is_named(tmp_path: Path, kind: str) -> None:
    """The verdict on the next session says what was not captured; nothing listens to optimizers after the loop."""
    body, loader, reason = CASES[kind]
    hooks = len(_global_optimizer_post_hooks)
    for epochs in (1, 2):
        model = Recurrent(keeps="within the model" in kind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loop = supervised(loader(), tmp_path, epochs=epochs, model=model, optimizer=optimizer)
        body(loop, model, optimizer)
        if kind == "batches ahead in a thread":
            loop.run.wait_until_saved()
    assert loop.exactness is not None and reason in " ".join(loop.exactness.reasons)
    assert len(_global_optimizer_post_hooks) == hooks


def test_what_is_captured_or_does_not_train_is_not_named(tmp_path: Path) -> None:
    """A scheduler in any place, accumulated gradients, a skipped batch after the first, a count and a list for the
    log, an environment with a state, a generator that was added."""

    def body(steps: int) -> Any:
        model, losses, scores, cache = Recurrent(), [], [], {}  # type: ignore[var-annotated]
        mean = Mean(model)
        weights = list(mean.copy.parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        noisy, number = Noisy(), 0
        state = {"schedules": {"main": [schedule]}, "noise": noisy.transforms[0]["noise"]}
        given = {"epochs": steps, "model": model, "optimizer": optimizer, "state": state, "ema": mean}
        loop = supervised(DataLoader(noisy, 4), tmp_path, **given)
        for batch in loop:
            number += 1
            cache.setdefault(len(batch), torch.ones(2))
            print(number)
            loss = model(batch)
            loss.backward()
            losses.append(loss.item())
            if loop.batch % 2:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                mean.update(model)
                assert weights
        scores.append(number)
        return loop

    body(1)
    loop = body(2)
    assert loop.exactness is not None and loop.exactness.reasons == ()
