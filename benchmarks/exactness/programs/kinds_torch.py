"""PyTorch: loops that keep something where no ``state_dict`` has it, under ours.

A buffer that is not persistent, frozen parameters and training modes come back with the model; a structure that changes
with ``on_restore``. A value (a dropout's rate, a dataset's flag or transform, label smoothing, a criterion, a best loss
with its patience) has to be named as the program stands; with ``captured`` the program sets it by the number of the
epoch or step, or gives it, and is exact. So is what is for the log alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.exactness.programs import (
    BATCH,
    EPOCHS,
    PER_EPOCH,
    SAMPLES,
    Asked,
    Interruption,
    is_any,
    say_batch,
    say_end,
    say_verdict,
)  # fmt: skip
from benchmarks.exactness.programs.shapes import FEATURES, LABELS, STEPS, Said, drawn
from supervisor_core import Options, supervise
from supervisor_core.torch import supervised

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import datasets
    from torchdata.stateful_dataloader import StatefulDataLoader


class Digits(Dataset[Any]):
    """The digits, numbered; mixed with their neighbours while the flag is set."""

    def __init__(self) -> None:
        self.mosaic, self.transform = True, torch.nn.Identity()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        features = self.transform(FEATURES[index])
        return index, (features + FEATURES[index - 1]) / 2 if self.mosaic else features, LABELS[index]


class Net(torch.nn.Module):
    """A classifier with all that may be kept elsewhere; counts the batches that it was trained on."""

    def __init__(self, follows: bool) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16)
        self.drop, self.last = torch.nn.Dropout(0.1), torch.nn.Linear(16, 10)
        self.follows = follows
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(64), persistent=False)

    def forward(self, features: Any) -> Any:
        if self.follows:
            features = features - self.mean
            self.mean.lerp_(features.detach().mean(0), 0.1)
        return self.last(self.drop(torch.relu(self.norm(self.first(features)))))


class Training:
    """What each kind has.

    Args:
        asked: how it trains.
    """

    def __init__(self, asked: Asked) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.captured: bool = asked.options["captured"]
        self.model, self.dataset = Net(asked.options["kind"] == "buffer"), Digits()
        self.criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.2)
        kind = asked.options["kind"]
        parts = self.model.last if kind == "structure" else self.model
        self.optimizer = torch.optim.SGD(parts.parameters(), lr=0.05, momentum=0.9)
        self.kept = {"best": float("inf"), "better": 0}
        self.run: Any = None
        loader: Any = stream() if kind == "stream" else DataLoader(self.dataset, BATCH, shuffle=True)
        self.epochs: Iterable[int] = range(EPOCHS)
        self.batches: Any = loader
        has_saved: Callable[[], bool] = lambda: True  # noqa: E731
        given = {"model": self.model, "optimizer": self.optimizer}
        if asked.system != "none" and kind in STEPPED:
            self.run = supervise(
                asked.directory,
                state={**given, "data": "step"},
                save_secs=None,
                save_steps=asked.save_every,
                options=Options(kept_values={"average": True} if kind == "mean" and not self.captured else None),
            )
        elif asked.system != "none":
            options = Options(
                on_restore=self.unfreeze if kind == "structure" else None,
                kept_values={"best": False, "history": False} if kind == "printed" and self.captured else None,
            )
            loop = supervised(
                loader, asked.directory, epochs=EPOCHS, save_secs=None, save_steps=asked.save_every, options=options,
                state={"kept": self.kept} if self.captured else None, **given,
            )  # fmt: skip
            self.epochs, self.batches = loop.epochs(), Said(loop)
        if asked.system != "none":
            has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
        self.interruption = Interruption(asked, has_saved)

    def learn(self, batch: Any) -> float:
        """Make a step; return the loss."""
        ids, features, labels = batch.values() if isinstance(batch, dict) else batch
        count = self.model.count
        count += 1
        loss = self.criterion(self.model(features), labels)
        self.interruption.look(int(count))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        say_batch(int(count), ids.tolist(), loss.item())
        return float(loss.detach())

    def steps(self) -> Iterable[int]:
        """Return the numbers of the steps, under `supervise`."""
        return range(STEPS) if self.run is None else Said(self.run, self.run.steps(STEPS))

    def unfreeze(self, saved: Any = None) -> None:
        """Train the first layer, too."""
        is_due = saved is None or len(saved["optimizer"]["param_groups"]) == 2
        if is_due and len(self.optimizer.param_groups) == 1:
            self.optimizer.add_param_group({"params": self.model.first.parameters()})

    def evaluate(self) -> float:
        """Return the loss of all samples."""
        self.model.eval()
        with torch.no_grad():
            loss = self.criterion(self.model(FEATURES), LABELS)
        self.model.train()
        return float(loss)


def once(training: Training, change: Callable[[], object]) -> None:
    """Something is changed as the second epoch begins."""
    for epoch in training.epochs:
        if epoch == 1:
            change()
        for batch in training.batches:
            training.learn(batch)


def by_epoch(training: Training, change: Callable[[bool], object]) -> None:
    """Something is set as each epoch begins, by its number; or once, in the second one."""
    for epoch in training.epochs:
        if training.captured or epoch == 1:
            change(epoch >= 1)
        for batch in training.batches:
            training.learn(batch)


def patience(training: Training) -> None:
    """The rate falls with each better evaluation: counted in variables, or in a dict that is in state."""
    (_in_state if training.captured else _in_variables)(training)


def _in_state(training: Training) -> None:
    kept = training.kept
    for _ in training.epochs:
        for batch in training.batches:
            training.learn(batch)
        loss = training.evaluate()
        kept.update(best=min(kept["best"], loss), better=kept["better"] + (loss < kept["best"]))
        _set_rate(training, kept["better"])


def _in_variables(training: Training) -> None:
    best, better = float("inf"), 0
    for _ in training.epochs:
        for batch in training.batches:
            training.learn(batch)
        loss = training.evaluate()
        best, better = min(best, loss), better + (loss < best)
        _set_rate(training, better)


def _set_rate(training: Training, better: int) -> None:
    for group in training.optimizer.param_groups:
        group["lr"] = 0.05 / (1 + better)


def log(training: Training) -> None:
    """Counts, sums, running means and clocks, to be printed."""
    seen, total, smooth, done, began, line = 0, 0.0, 0.0, 0, time.time(), ""
    for epoch in training.epochs:
        running, correct, started = 0.0, 0, time.perf_counter()
        for batch in training.batches:
            loss = training.learn(batch)
            seen, total, smooth = seen + len(batch[0]), total + loss, 0.9 * smooth + 0.1 * loss
            running, correct = running + loss, correct + (loss < 2.0)
        done += 1
        line = f"epoch {epoch} ({done}): {running:.3f} {correct} {seen} {total:.3f} {smooth:.3f}"
        line += f" {time.perf_counter() - started:.1f} s, {time.time() - began:.1f} s in all"
    assert line or done == 0


def printed(training: Training) -> None:
    """A best loss and a history, to be printed."""
    best, history = float("inf"), []
    for epoch in training.epochs:
        for batch in training.batches:
            training.learn(batch)
        best = min(best, training.evaluate())
        history.append(round(best, 3))
        assert f"epoch {epoch}: {best:.3f} {history}"


def rate(training: Training) -> None:
    """A factor of the rate in a variable of a loop over `Run.steps`."""
    factor = 1.0
    for step in training.steps():
        if training.captured or step == PER_EPOCH:
            factor = 0.1 if step >= PER_EPOCH else 1.0
        training.optimizer.param_groups[0]["lr"] = 0.05 * factor
        training.learn(drawn())


def mean(training: Training) -> None:
    """A running mean of the losses in a variable of a loop over `Run.steps`, by which the rate falls."""
    average = 2.0
    for step in training.steps():
        training.optimizer.param_groups[0]["lr"] = 0.05 / (1 + step) if training.captured else 0.02 * average
        average = 0.9 * average + 0.1 * training.learn(drawn())


STEPPED = ("rate", "mean")
"""Under `supervise`."""


def stream() -> Any:
    """Return torchdata's loader over a shuffled stream of Hugging Face's."""
    columns = {"index": list(range(SAMPLES)), "features": FEATURES.tolist(), "labels": LABELS.tolist()}
    found = datasets.Dataset.from_dict(columns).to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=20)
    return StatefulDataLoader(found.with_format("torch"), batch_size=BATCH)


def _modes(training: Training) -> None:
    training.model.norm.eval()


KINDS: dict[str, Callable[[Training], None]] = {
    "buffer": lambda training: once(training, lambda: None),
    "frozen": lambda training: once(training, lambda: training.model.first.requires_grad_(False)),
    "modes": lambda training: once(training, lambda: _modes(training)),
    "dropout": lambda training: by_epoch(training, lambda late: setattr(training.model.drop, "p", 0.5 * late + 0.1)),
    "mosaic": lambda training: by_epoch(training, lambda late: setattr(training.dataset, "mosaic", not late)),
    "smoothing": lambda training: by_epoch(
        training, lambda late: setattr(training.criterion, "label_smoothing", 0.2 * (not late))
    ),
    "loss": lambda training: by_epoch(
        training,
        lambda late: setattr(training, "criterion", (torch.nn.CrossEntropyLoss, torch.nn.MultiMarginLoss)[late]()),
    ),
    "transform": lambda training: by_epoch(
        training, lambda late: setattr(training.dataset, "transform", (torch.nn.Identity, torch.nn.Tanh)[late]())
    ),
    "patience": patience,
    "printed": printed,
    "log": log,
    "structure": lambda training: once(training, training.unfreeze),
    "stream": lambda training: once(training, lambda: None),
    "rate": rate,
    "mean": mean,
}


def main(values: dict[str, Any]) -> None:
    """Train."""
    warnings.simplefilter("ignore")
    asked = Asked(**values)
    training = Training(asked)
    KINDS[asked.options["kind"]](training)
    if isinstance(training.batches, Said):
        training.batches.say()
    if training.run is not None and training.run.exactness is not None:
        say_verdict(training.run.exactness)
    parts = [*training.model.state_dict().values(), training.model.mean]
    say_end(int(training.model.count), [value.detach().numpy() for value in parts])
