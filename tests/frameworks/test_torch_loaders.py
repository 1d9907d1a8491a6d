"""A loader of any kind: a supervised loop sees what a bare one sees, and so does one that was killed, or it says so."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial import Say, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each trial
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)

from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.position import EMPTY, ONCE, WORKERS_DRAW, WORKERS_STAY  # noqa: E402
from supervisor_core.training.position import LOADER, SAMPLER  # noqa: E402

SAMPLES, BATCH, EPOCHS, KILL_AT = 45, 8, 3, 9


class Samples(Dataset[Any]):
    """Numbered samples; counts those that this process has loaded."""

    loaded = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        Samples.loaded += 1
        return index, torch.sin(torch.arange(4.0) + index), index % 2


class Noisy(Samples):
    """Draws noise from a random state of its process, or from a generator of its own.

    Args:
        source: which one.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.transforms = [{"rng": np.random.default_rng(3)}]

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        _, features, label = super().__getitem__(index)
        draw = {
            "torch": lambda: torch.rand(()).item(),
            "numpy": np.random.random,
            "python": random.random,
            "its own": self.transforms[0]["rng"].random,
        }
        return index, features + draw[self.source](), label


class Repeats:
    """As ultralytics' _RepeatSampler: never ends."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


class Infinite(DataLoader[Any]):
    """As ultralytics' InfiniteDataLoader: one iterator over a sampler without an end, for all epochs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Repeats(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.iterator)


class Draws(Sampler[int]):
    """Draws its order from the process's random state."""

    def __iter__(self) -> Iterator[int]:
        order = list(range(SAMPLES))
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return SAMPLES


class GoesOn(Draws):
    """Draws its order from a generator of its own, which goes on from epoch to epoch."""

    def __init__(self) -> None:
        self.random = random.Random(5)

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.sample(range(SAMPLES), SAMPLES))


class OfEpoch(Draws):
    """Has an order for each epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(self.epoch).sample(range(SAMPLES), SAMPLES))


class Reversed(BatchSampler):
    """Makes batches in a way of its own."""

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            yield batch[::-1]


class Buckets(OfEpoch):
    """Batches of samples of a kind, in an order for each epoch."""

    def __iter__(self) -> Any:
        order = list(super().__iter__())
        batches = []
        for kind in range(3):
            bucket = [index for index in order if index % 3 == kind]
            batches += [bucket[start : start + BATCH] for start in range(0, len(bucket), BATCH)]
        random.Random(self.epoch).shuffle(batches)
        return iter(batches)

    def __len__(self) -> int:
        return 6


class Stream(IterableDataset[Any]):
    """Says that it has fewer samples than each of its workers yields."""

    def __len__(self) -> int:
        return BATCH

    def __iter__(self) -> Iterator[Any]:
        return (Samples()[index] for index in range(SAMPLES))


class Batches:
    """No DataLoader, and as good as one."""

    def __iter__(self) -> Iterator[Any]:
        return iter(DataLoader(Samples(), BATCH, shuffle=True))


def loaders() -> dict[str, tuple[Callable[[], Any], tuple[str, ...]]]:
    """The loaders by name, and what is said of each after a resume."""
    data, own = Samples(), torch.Generator
    shuffled = {"batch_size": BATCH, "shuffle": True}
    return {
        "plain": (lambda: DataLoader(data, **shuffled), ()),
        "weighted": (lambda: DataLoader(data, BATCH, sampler=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES)), ()),
        "a list of batches": (lambda: DataLoader(data, batch_sampler=[[3, 1], [2, 5, 7], [4], [8], [9], [6]]), ()),
        "infinite": (lambda: Infinite(data, **shuffled), (LOADER.format("Infinite"),)),
        "own iterable": (Batches, (LOADER.format("Batches"),)),
        "own sampler": (lambda: DataLoader(data, BATCH, sampler=Draws()), (SAMPLER.format("Draws"),)),
        "own sampler of the epoch": (lambda: DataLoader(data, BATCH, sampler=OfEpoch()), ()),
        "own batch sampler": (
            lambda: DataLoader(data, batch_sampler=Reversed(RandomSampler(data), BATCH, False)),
            (SAMPLER.format("Reversed"),),
        ),
        "buckets and workers": (lambda: DataLoader(data, batch_sampler=Buckets(), num_workers=2), ()),
        "workers": (lambda: DataLoader(data, num_workers=2, **shuffled), ()),
        "persistent workers": (
            lambda: DataLoader(data, num_workers=2, persistent_workers=True, **shuffled),
            (),
        ),
        "persistent workers and a generator": (
            lambda: DataLoader(
                data, num_workers=2, persistent_workers=True, generator=own().manual_seed(9), **shuffled
            ),
            (),
        ),
        "a stream that is longer than its length": (lambda: DataLoader(Stream(), BATCH, num_workers=2), ()),
    }


def train(kind: str, logdir: Path | None, say: Say, kill_at: int = -1) -> None:
    """Train with dropout; say each batch's samples and the bits of its loss. Without a logdir: as a bare loop."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = OTHERS[kind]() if kind in OTHERS else loaders()[kind][0]()
    loop: Any = None
    if logdir is None:
        batches = bare(loader)
    else:
        batches = loop = supervised(
            loader, logdir, epochs=EPOCHS, model=model, optimizer=optimizer, save_secs=None, save_steps=4
        )
    has_said = False
    for ids, features, labels in islice(batches, 100):
        if loop is not None:
            is_first, has_said = not has_said, True
            if is_first and loop.exactness is not None:
                say(" ".join((f"resumed {Samples.loaded}", *loop.exactness.reasons)))
            loop.run.wait_until_saved()
            if loop.run.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(f"{ids.tolist()} {loss.item().hex()}")
    say("end " + sum(part.double().sum() for part in model.state_dict().values()).item().hex())


def bare(loader: Any) -> Iterator[Any]:
    """The loop of a program without us; a sampler is told its epoch, as PyTorch asks for."""
    for epoch in range(EPOCHS):
        for item in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
            if hasattr(item, "set_epoch"):
                item.set_epoch(epoch)
        yield from loader


OTHERS: dict[str, Callable[[], Any]] = {
    "a sampler that goes on": lambda: DataLoader(Samples(), BATCH, sampler=GoesOn()),
    **{
        f"workers that draw from {source}": lambda source=source: DataLoader(
            Noisy(source), BATCH, shuffle=True, num_workers=2
        )
        for source in ("torch", "its own")
    },
    "persistent workers that draw": lambda: DataLoader(
        Noisy("torch"), BATCH, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "infinite with workers": lambda: Infinite(Samples(), BATCH, shuffle=True, num_workers=2),
}
"""Those that no resume brings back."""


def killed_and_resumed(tmp_path: Path, kind: str) -> tuple[list[str], list[str], str]:
    """What the bare loop says, what a supervised one says that is killed in its second epoch and goes on, without what
    it did twice, and the verdict."""
    status, truth = trial(tmp_path, lambda say: train(kind, None, say))
    assert status == 0
    status, first = trial(tmp_path, lambda say: train(kind, tmp_path / "run", say, KILL_AT))
    assert (status, len(first)) == (-signal.SIGKILL, KILL_AT)
    status, (verdict, *second) = trial(tmp_path, lambda say: train(kind, tmp_path / "run", say))
    assert status == 0
    return truth, [*first[:8], *second], verdict


@pytest.mark.parametrize("kind", loaders())
def test_a_loader_of_any_kind(tmp_path: Path, kind: str) -> None:
    """A killed training goes on with the same samples and the same bits as a bare loop, to the same number of batches.
    What is not known is named. Where nothing else than PyTorch's own draws the order, no consumed sample is loaded."""
    truth, said, verdict = killed_and_resumed(tmp_path, kind)
    assert said == truth
    loaded, *reasons = verdict.removeprefix("resumed ").partition(" ")[::2]
    assert reasons == [" ".join(loaders()[kind][1])]
    if kind in ("plain", "weighted", "a list of batches"):
        assert int(loaded) <= BATCH


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("a sampler that goes on", SAMPLER.format("GoesOn")),
        ("infinite with workers", LOADER.format("Infinite")),
        *((f"workers that draw from {source}", WORKERS_DRAW) for source in ("torch", "its own")),
        ("persistent workers that draw", WORKERS_STAY),
    ],
)
def test_what_no_resume_brings_back_is_named(tmp_path: Path, kind: str, reason: str) -> None:
    """A loader or a sampler that keeps something from epoch to epoch: other samples come, as many as without us."""
    truth, said, verdict = killed_and_resumed(tmp_path, kind)
    assert reason in verdict
    assert said != truth and len(said) == len(truth)


class Once:
    """Can be iterated once, and does not show it."""

    def __init__(self) -> None:
        self._items = iter(DataLoader(Samples(), BATCH))

    def __iter__(self) -> Any:
        return self._items


def test_an_epoch_that_yields_nothing(tmp_path: Path) -> None:
    """Is an error, and no epoch: at the call where it can be seen, else when it begins. One epoch may be an iterator; a
    loader that is known to be empty is no error."""
    model = torch.nn.Linear(4, 2)
    twice = zip(DataLoader(Samples(), BATCH), range(100), strict=False)
    with pytest.raises(ValueError, match="epochs is 2, and the loader is a zip") as raised:
        supervised(twice, tmp_path / "zip", epochs=2, model=model)
    assert ONCE in str(raised.value) and not (tmp_path / "zip").exists()
    assert len(list(supervised(twice, tmp_path / "zip", model=model))) == 6
    loop = supervised(Once(), tmp_path / "once", epochs=2, model=model)
    seen = []
    with pytest.raises(ValueError) as raised:
        seen.extend(map(str, loop))
    assert str(raised.value) == EMPTY.format("Once") and loop.run.global_step == 6
    with pytest.raises(ValueError, match="yields no batch"):
        list(supervised(twice, tmp_path / "exhausted", model=model))
    assert list(supervised([], tmp_path / "empty", epochs=3, model=model)) == []


def test_a_loop_for_each_epoch_with_a_checkpoint_of_the_last_batch(tmp_path: Path) -> None:
    """The second loop of the process yields nothing, whatever the checkpoint is of: an error, and no silent end. One
    object is iterated once."""

    def body(say: Say) -> None:
        data = torch.utils.data.DataLoader(list(range(6)), batch_size=2)
        for _ in range(2):
            loop = supervised(data, tmp_path / "run", epochs=1, model=torch.nn.Linear(1, 1), save_steps=3)
            try:
                for _batch in loop:
                    say("step")
                    loop.run.wait_until_saved()
                next(iter(loop))
            except (RuntimeError, ValueError) as error:
                say(f"{type(error).__name__}: {error}"[:40])

    status, lines = trial(tmp_path, body)
    steps = ["step"] * 3
    assert (status, lines) == (
        0,
        [*steps, "RuntimeError: This supervised() was iter", "ValueError: Nothing is left to do: the r"],
    )
