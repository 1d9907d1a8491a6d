"""PyTorch: loops of the shape of public training scripts, under ours; each as it stands, and as its page asks for.

A shape keeps something where a checkpoint does not have it: a batch that was fetched ahead (nanoGPT), an environment
(PPO), a loader that never ends (YOLO), a hidden state (a language model), an average of the weights (diffusion), a
prefetcher. As it stands the verdict has to name that; with ``captured`` the program gives it, and is exact.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which the first optimizer imports: once here, not in each trial
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.exactness.programs import (
    BATCH,
    EPOCHS,
    PER_EPOCH,
    SAMPLES,
    Asked,
    Interruption,
    digits,
    is_any,
    say_batch,
    say_end,
    say_logged_reasons,
    say_verdict,
)  # fmt: skip
from supervisor_core.torch import supervised

FEATURES, LABELS = map(torch.from_numpy, digits())
STEPS = EPOCHS * PER_EPOCH


class Net(torch.nn.Module):
    """A small classifier with a hidden state for who wants one; counts the batches that it was trained on."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Dropout(dropout), torch.nn.Linear(16, 10))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, features: Any, hidden: Any = 0.0) -> Any:
        return self.layers(features + hidden)

    def flops(self, steps: int) -> float:
        """Return an estimate, for the log."""
        count = sum(part.numel() for part in self.parameters())
        return 6.0 * count * steps


class Training:
    """What each shape has: a model, its optimizer, and how its loop is iterated.

    Args:
        asked: how it trains.
    """

    def __init__(self, asked: Asked) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.asked = asked
        self.captured = asked.options["captured"]
        self.model: Any = Net(asked.options["dropout"])
        parameters = self.model.parameters()
        adam = asked.options["optimizer"] == "AdamW"
        self.optimizer = (
            torch.optim.AdamW(parameters, lr=0.01) if adam else torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        )
        has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
        self.interruption = Interruption(asked, (lambda: True) if asked.system == "none" else has_saved)
        self.averages: list[Any] = []
        self._said: Said | None = None

    def loop(self, data: Any, epochs: int = 1, **given: Any) -> Iterator[Any]:
        """Return what the program iterates: its data, or ours with what the program gives."""
        if self.asked.system == "none":
            return iter([step for _ in range(epochs) for step in data]) if isinstance(data, range) else _epochs(data)
        loop = supervised(
            data, self.asked.directory, epochs=epochs, model=self.model, optimizer=self.optimizer, save_secs=None,
            save_steps=self.asked.save_every, **given,
        )  # fmt: skip
        self._said = Said(loop)
        return self._said

    def learn(self, batch: Any, hidden: Any = 0.0) -> Any:
        """Make a step; return the output."""
        ids, features, labels = batch
        count = self.model.count
        count += 1
        output = self.model(features, hidden)
        loss = torch.nn.functional.cross_entropy(output, labels)
        self.interruption.look(int(count))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        say_batch(int(count), ids.tolist(), loss.item())
        return output

    def end(self) -> None:
        """Say the weights, and the verdict if nothing was left to do."""
        if self._said is not None:
            self._said.say()
        parts = [*self.model.state_dict().values(), *self.averages]
        say_end(int(self.model.count), [value.detach().numpy() for value in parts])


class Said:
    """The loop, which says its verdict with the first batch, and what the log names later: values are compared as the
    first step ends, which may be the last one. No generator stands between it and the body."""

    def __init__(self, loop: Any, items: Any = None) -> None:
        self._loop, self._items = loop, loop if items is None else items
        self._has_said = False
        say_logged_reasons()

    def __iter__(self) -> Any:
        return map(self._with_verdict, self._items)

    def _with_verdict(self, item: Any) -> Any:
        self.say()
        return item

    def say(self) -> None:
        """Say the verdict, once."""
        if not self._has_said:
            self._has_said = True
            say_verdict(self._loop.exactness)


def _epochs(loader: Any) -> Iterator[Any]:
    for _ in range(EPOCHS):
        yield from loader


def drawn() -> Any:
    """Draw a batch."""
    ids = torch.randint(SAMPLES, (BATCH,))
    return ids, FEATURES[ids], LABELS[ids]


def data() -> Any:
    """Return the digits, numbered."""
    return TensorDataset(torch.arange(SAMPLES), FEATURES, LABELS)


def nanogpt(training: Training) -> None:
    """The next batch is drawn at the end of each step; a count of the session's own steps is for the log."""
    local_iter_num, running, raw_model = 0, -1.0, training.model
    if training.captured:
        for _ in training.loop(range(STEPS)):
            training.learn(drawn())
            if local_iter_num >= 5:
                running = 0.9 * running + 0.1 * raw_model.flops(local_iter_num)
            local_iter_num += 1
        return
    batch = drawn()
    for _ in training.loop(range(STEPS)):
        training.learn(batch)
        batch = drawn()


class Walk:
    """An environment with a state and random numbers of its own: a walk over the digits."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(5)
        self.at = 0

    def reset(self) -> int:
        """Begin an episode."""
        self.at = int(self.random.integers(SAMPLES))
        return self.at

    def step(self, action: int) -> int:
        """Go on."""
        self.at = (self.at + action + int(self.random.integers(3))) % SAMPLES
        return self.at


class SavedWalk(Walk):
    """The same, with methods for its state."""

    def get_state(self) -> dict[str, Any]:
        """Return it."""
        return {"random": self.random.bit_generator.state, "at": self.at}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set it."""
        self.random.bit_generator.state = state["random"]
        self.at = state["at"]


def ppo(training: Training) -> None:
    """An update learns from what an environment has shown since the last one."""
    env = SavedWalk() if training.captured else Walk()
    env.reset()
    given = {"state": {"env": env}} if training.captured else {}
    for _ in training.loop(range(STEPS), **given):
        ids = torch.tensor([env.step(int(torch.randint(4, ()))) for _ in range(BATCH)])
        training.learn((ids, FEATURES[ids], LABELS[ids]))


class Repeats:
    """A sampler that never ends."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


class InfiniteLoader(DataLoader[Any]):
    """One iterator over a sampler that never ends, for all epochs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Repeats(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.iterator)


def yolo(training: Training) -> None:
    """A loader that never ends, with workers; or PyTorch's, with persistent ones."""
    if training.captured:
        loader: Any = DataLoader(data(), BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    else:
        loader = InfiniteLoader(data(), BATCH, shuffle=True, num_workers=1)
    for batch in training.loop(loader, EPOCHS):
        training.learn(batch)


def language_model(training: Training) -> None:
    """A step begins with the hidden state that the one before has left."""
    kept: dict[str, Any] = {"hidden": [(torch.zeros(64), torch.zeros(64))]}
    if training.captured:
        for _ in training.loop(range(STEPS), state={"kept": kept}):
            output = training.learn(drawn(), kept["hidden"][0][0])
            kept["hidden"] = [(output.detach().mean().repeat(64), torch.zeros(64))]
        return
    hidden = kept["hidden"]
    for _ in training.loop(range(STEPS)):
        output = training.learn(drawn(), hidden[0][0])
        hidden = [(output.detach().mean().repeat(64), torch.zeros(64))]


class Average:
    """An average of the weights, as diffusion models have one; updated in some of the steps."""

    def __init__(self, model: Any, every: int) -> None:
        self.model = copy.deepcopy(model)
        self.every = every

    def update(self, model: Any) -> None:
        """Come nearer."""
        if int(model.count) % self.every == 0:
            for mine, present in zip(self.model.parameters(), model.parameters(), strict=True):
                mine.data.lerp_(present.data, 0.1)

    def state_dict(self) -> dict[str, Any]:
        """Return the average."""
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set it."""
        self.model.load_state_dict(state)


def diffusion(training: Training) -> None:
    """Noise of a drawn size is added to each batch; the weights are averaged."""
    ema = Average(training.model, training.asked.options["every"])
    training.averages = list(ema.model.state_dict().values())
    given = {"ema": ema} if training.captured else {}
    for ids, features, labels in training.loop(DataLoader(data(), BATCH, shuffle=True), EPOCHS, **given):
        training.learn((ids, features + torch.randn_like(features) * torch.rand(len(ids), 1), labels))
        ema.update(training.model)


class Prefetcher:
    """Yields each batch when the next one was taken."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batches)
        ahead = next(batches, None)
        while ahead is not None:
            present, ahead = ahead, next(batches, None)
            yield present


def prefetcher(training: Training) -> None:
    """Batches are taken ahead of the loop; or of its loader."""
    loader = DataLoader(data(), BATCH, shuffle=True)
    batches = training.loop(loader, EPOCHS) if training.captured else Prefetcher(training.loop(loader, EPOCHS))
    for batch in batches:
        training.learn(batch)


SHAPES: dict[str, Callable[[Training], None]] = {
    "nanoGPT": nanogpt,
    "PPO": ppo,
    "YOLO": yolo,
    "language model": language_model,
    "diffusion": diffusion,
    "prefetcher": prefetcher,
}


def main(values: dict[str, Any]) -> None:
    """Train."""
    warnings.simplefilter("ignore")
    asked = Asked(**values)
    training = Training(asked)
    SHAPES[asked.options["shape"]](training)
    training.end()
