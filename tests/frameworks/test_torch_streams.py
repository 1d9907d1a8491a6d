"""PyTorch: epochs over a stream have as many batches after a resume as before it."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_shorter import BATCHES, EPOCHS, Sticks
from trial import Say, at, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from supervisor_core.torch import supervised  # noqa: E402


def stream(*, workers: int = 0, is_kept: bool = False, is_shuffled: bool = False) -> Any:
    """Torchdata's loader over a stream of Hugging Face's."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: make test-frameworks has it")
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    found = datasets.Dataset.from_dict({"x": [float(number) for number in range(8 * BATCHES)]})
    found = found.to_iterable_dataset(num_shards=4)
    if is_shuffled:
        found = found.shuffle(seed=3, buffer_size=10)
    return loaders.StatefulDataLoader(
        found.with_format("torch"), batch_size=8, num_workers=workers, persistent_workers=is_kept
    )


def batch(number: float) -> Any:
    """A batch of one value."""
    return {"x": torch.full((8,), number)}


def train(
    logdir: Path, loader: Callable[[], Any], say: Say, event: Any = lambda loop, step: None, **options: Any
) -> None:
    """Train; say each batch."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loop = supervised(loader(), logdir, epochs=EPOCHS, model=model, optimizer=optimizer, save_secs=None, **options)
    for batch in loop:
        event(loop, loop.global_step)
        say(f"{loop.epoch} {loop.global_step} {batch['x'].tolist()}")
        optimizer.zero_grad()
        model(batch["x"][:, None]).pow(2).mean().backward()
        optimizer.step()


STREAMS: dict[str, Callable[[], Any]] = {
    "in order": stream,
    "shuffled": partial(stream, is_shuffled=True),
    "workers": partial(stream, workers=2),
    "persistent workers": partial(stream, workers=2, is_kept=True),
    "of its own, loaded again": partial(Sticks, batch),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_as_long_after_a_resume(tmp_path: Path, kind: str) -> None:
    """Stopped twice, in the second epoch and in the third: the same batches as of one uninterrupted training."""
    options = {"replay": True} if kind == "of its own, loaded again" else {}
    body = partial(train, tmp_path / "run", STREAMS[kind], **options)
    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", STREAMS[kind], say))
    said = []
    for step in (BATCHES + 2, 2 * BATCHES + 3):
        status, lines = trial(tmp_path, lambda say: body(say, at(step, signal.SIGTERM)))  # noqa: B023
        assert status == -signal.SIGTERM
        said += lines
    status, lines = trial(tmp_path, body)
    assert status == 0 and [*said, *lines] == truth and len(truth) == EPOCHS * BATCHES
    assert not run_of(tmp_path / "run").notices


def test_a_loader_that_does_not_begin_again(tmp_path: Path) -> None:
    """The error names the loader, and the way out."""
    body = partial(train, tmp_path / "run", partial(Sticks, batch, False))
    assert trial(tmp_path, lambda say: body(say, at(BATCHES + 1, signal.SIGTERM)))[0] == -signal.SIGTERM

    def fails(say: Say) -> None:
        with pytest.raises(ValueError, match=r"\(Sticks\) yields no batch .* after a resume .* replay=True"):
            body(say)

    assert trial(tmp_path, fails)[0] == 0
