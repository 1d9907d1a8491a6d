"""PyTorch: a loop of its own, under ours, a snapshot at each epoch's end (PyTorch's tutorial), or accelerate."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which the first optimizer imports: once here, not in each trial
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

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
    say_verdict,
)  # fmt: skip
from supervisor_core.torch import supervised

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from accelerate import Accelerator, DataLoaderConfiguration
    from torchdata.stateful_dataloader import StatefulDataLoader

FEATURES, LABELS = digits()


class Drawing(Dataset[Any]):
    """Digits with noise, drawn from one of the random states of the process that loads them.

    Args:
        source: "torch", "numpy" or "python"; "some" is torch for a tenth of the samples.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        return index, torch.from_numpy(FEATURES[index]) + self._noise(index), int(LABELS[index])

    def _noise(self, index: int) -> Any:
        if self.source == "numpy":
            return float(np.random.standard_normal())
        if self.source == "python":
            return random.gauss(0.0, 1.0)
        return torch.randn(()) if self.source == "torch" or index % 10 == 3 else 0.0


class Stream(IterableDataset[Any]):
    """Digits in an order of its own; each worker has its share.

    Args:
        draws: shuffle by the random state of the process that iterates.
    """

    def __init__(self, draws: bool) -> None:
        self.draws = draws

    def __iter__(self) -> Iterator[Any]:
        order = list(range(SAMPLES))
        (random if self.draws else random.Random(3)).shuffle(order)
        worker = torch.utils.data.get_worker_info()
        for index in order if worker is None else order[worker.id :: worker.num_workers]:
            yield index, torch.from_numpy(FEATURES[index]), int(LABELS[index])


class Drawn:
    """Batches as a program without a loader draws them itself: from a random state of its process.

    Args:
        source: see `Drawing`.
        fetches_ahead: draw each batch when the one before was learned.
    """

    def __init__(self, source: str, fetches_ahead: bool) -> None:
        self.source = source
        self.fetches_ahead = fetches_ahead
        self.ahead: Any = None

    def __iter__(self) -> Iterator[Any]:
        for _ in range(PER_EPOCH):
            if self.fetches_ahead and self.ahead is None:
                self.ahead = self.draw()
            yield self.ahead if self.fetches_ahead else self.draw()
            if self.fetches_ahead:
                self.ahead = self.draw()

    def draw(self) -> Any:
        """Return the next batch."""
        if self.source == "numpy":
            ids = torch.from_numpy(np.random.randint(SAMPLES, size=BATCH))
        elif self.source == "python":
            ids = torch.tensor([random.randrange(SAMPLES) for _ in range(BATCH)])
        else:
            ids = torch.randint(SAMPLES, (BATCH,))
        return ids, torch.from_numpy(FEATURES)[ids], torch.from_numpy(LABELS)[ids]


def loader_of(options: dict[str, Any]) -> Any:
    """Return the loader that is asked for."""
    kind, draws, workers = options["loader"], options["draws"], options["workers"]
    if kind == "none":
        return Drawn(draws, options["ahead"])
    given: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers}
    if workers and options["persistent"]:
        given["persistent_workers"] = True
    if kind == "stream":
        return DataLoader(Stream(draws == "python"), **given)
    dataset: Any = Drawing(draws)
    if draws == "nothing":
        dataset = TensorDataset(torch.arange(SAMPLES), torch.from_numpy(FEATURES), torch.from_numpy(LABELS))
    given["shuffle"] = options["shuffle"]
    if kind == "generator":
        given["generator"] = torch.Generator().manual_seed(9)
    return (StatefulDataLoader if kind == "stateful" else DataLoader)(dataset, **given)


class Digits(torch.nn.Module):
    """A small classifier, which counts the batches that it was trained on."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(dropout), torch.nn.Linear(16, 10)
        )
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, features: Any) -> Any:
        return self.layers(features)


class Training:
    """What is trained, and one batch of it: the same under each system."""

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.options = options
        self.accumulate = options["accumulate"]
        self.model: Any = Digits(options["dropout"])
        parameters = self.model.parameters()
        if options["optimizer"] == "AdamW":
            self.optimizer: Any = torch.optim.AdamW(parameters, lr=0.01)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        schedules = {
            "none": lambda: None,
            "one cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=200),
            "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20),
        }
        self.scheduler: Any = schedules[options["scheduler"]]()
        self.ema = None
        if options["ema"]:
            self.ema = torch.optim.swa_utils.AveragedModel(
                self.model,
                avg_fn=lambda old, new, count: 0.9 * old + 0.1 * new,
                use_buffers=options["ema"] == "buffers",
            )
        scaled = options["amp"] == "bfloat16 with GradScaler"
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5) if scaled else None
        self.loader = loader_of(options)
        self.accelerator: Any = None
        self.seen = DataLoader(TensorDataset(torch.from_numpy(FEATURES[:16])), BATCH)

    @property
    def parts(self) -> dict[str, Any]:
        """What has a state, by name."""
        names = ("model", "optimizer", "scheduler", "ema", "scaler")
        return {name: part for name in names if (part := getattr(self, name)) is not None}

    def learn(self, batch: Any, interruption: Interruption) -> None:
        """Train on a batch."""
        ids, features, labels = batch
        count = self.module.count
        count += 1
        self._mix(features)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.options["amp"] != "none"):
            output = self.model(features.float()).float()
        loss = torch.nn.functional.cross_entropy(output, labels) / self.accumulate
        interruption.look(int(count))
        if self.accelerator is not None:
            self.accelerator.backward(loss)
        else:
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if int(count) % self.accumulate == 0:
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.optimizer.zero_grad()
            if self.scheduler is not None:
                self.scheduler.step()
            if self.ema is not None:
                self.ema.update_parameters(self.module)
        if self.options["evaluates"] and int(count) % PER_EPOCH == 0:
            self.evaluate()
        say_batch(int(count), ids.tolist(), loss.item())

    def evaluate(self) -> None:
        """Look at some samples; a loader's iterator draws a random number."""
        self.model.eval()
        with torch.no_grad():
            for (features,) in self.seen:
                self.model(features)
        self.model.train()

    def end(self) -> None:
        """Say the weights."""
        parts = [self.module] if self.ema is None else [self.module, self.ema]
        arrays = [value.detach().cpu().numpy() for part in parts for value in part.state_dict().values()]
        say_end(int(self.module.count), arrays)

    @property
    def module(self) -> Any:
        """The model, whatever wraps it."""
        return self.model if self.accelerator is None else self.accelerator.unwrap_model(self.model)

    def _mix(self, features: Any) -> None:
        """Add noise in the loop, from a random state of this process."""
        if self.options["noise"] == "numpy":
            features += float(np.random.standard_normal()) * 0.1
        elif self.options["noise"] == "python":
            features += random.gauss(0.0, 0.1)


def plainly(asked: Asked) -> None:
    """Without saving."""
    training = Training(asked.options)
    interruption = Interruption(asked, lambda: True)
    for _ in range(EPOCHS):
        for batch in training.loader:
            training.learn(batch, interruption)
    training.end()


def with_ours(asked: Asked) -> None:
    """`supervisor_core.torch.supervised`."""
    training = Training(asked.options)
    parts = training.parts
    drawn = training.loader if isinstance(training.loader, Drawn) else None
    loader, epochs = (training.loader, EPOCHS) if drawn is None else (range(EPOCHS * PER_EPOCH), 1)
    loop = supervised(
        loader, asked.directory, epochs=epochs, save_secs=None, save_steps=asked.save_every,
        replay=asked.options["replay"], **parts,
    )  # fmt: skip
    interruption = Interruption(asked, is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json"))
    begun, ahead = False, drawn.draw() if drawn is not None and asked.options["ahead"] else None
    for batch in loop:
        if not begun:
            say_verdict(loop.exactness)
            begun = True
        if drawn is None:
            training.learn(batch, interruption)
        elif ahead is None:
            training.learn(drawn.draw(), interruption)
        else:
            training.learn(ahead, interruption)
            ahead = drawn.draw()
    if not begun:  # nothing was left to do
        say_verdict(loop.exactness)
    training.end()


def with_snapshots(asked: Asked) -> None:
    """`torch.save` of a snapshot at each epoch's end, as in PyTorch's tutorial on torchrun, with everything that has
    a ``state_dict``."""
    path = Path(asked.directory, "snapshot.pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    training = Training(asked.options)
    first = 0
    if path.exists():
        snapshot = torch.load(path, weights_only=False)
        for name, part in training.parts.items():
            part.load_state_dict(snapshot[name])
        first = snapshot["epochs_run"]
    interruption = Interruption(asked, lambda: True)
    for epoch in range(first, EPOCHS):
        for batch in training.loader:
            training.learn(batch, interruption)
        states = {name: part.state_dict() for name, part in training.parts.items()}
        torch.save({**states, "epochs_run": epoch + 1}, path)
    training.end()


def with_accelerate(asked: Asked) -> None:
    """`Accelerator.save_state` every few batches, `load_state` and `skip_first_batches`, as accelerate's guide to
    checkpoints has it."""
    options = asked.options
    training = Training({**options, "amp": "none"})
    configuration = DataLoaderConfiguration(use_stateful_dataloader=options["loader"] == "stateful")
    accelerator = Accelerator(
        cpu=True,
        mixed_precision="no" if options["amp"] == "none" else "bf16",
        dataloader_config=configuration,
        step_scheduler_with_optimizer=False,
    )
    training.accelerator = accelerator
    training.model, training.optimizer, training.loader = accelerator.prepare(
        training.model, training.optimizer, training.loader
    )
    if training.scheduler is not None:
        training.scheduler = accelerator.prepare(training.scheduler)
    if training.ema is not None:
        accelerator.register_for_checkpointing(training.ema)
    folder = Path(asked.directory)
    found = sorted(folder.glob("step_*"), key=lambda path: int(path.name.partition("_")[2]))
    done = 0
    if found:
        accelerator.load_state(str(found[-1]))
        done = int(found[-1].name.partition("_")[2])
    interruption = Interruption(asked, lambda: True)
    first, into = divmod(done, PER_EPOCH)
    for epoch in range(first, EPOCHS):
        active = training.loader
        if into and epoch == first and options["loader"] != "stateful":
            active = accelerator.skip_first_batches(training.loader, into)
        for batch in active:
            training.learn(batch, interruption)
            count = int(training.module.count)
            if count % (asked.save_every * training.accumulate) == 0:
                accelerator.save_state(str(folder / f"step_{count}"))
    training.end()


SYSTEMS = {"none": plainly, "ours": with_ours, "torch.save": with_snapshots, "accelerate": with_accelerate}


def main(values: dict[str, Any]) -> None:
    """Train."""
    warnings.simplefilter("ignore")
    os.environ["ACCELERATE_DISABLE_RICH"] = "1"
    asked = Asked(**values)
    SYSTEMS[asked.system](asked)
