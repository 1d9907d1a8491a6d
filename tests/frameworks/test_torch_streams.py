"""PyTorch: epochs over a stream have as many batches after a resume as before it, or it is said that they have not."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trial import Say, at, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from supervisor_core.torch import supervised  # noqa: E402

BATCHES, EPOCHS = 6, 4


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


class Sticks:
    """A loader with a state of its own, whose later epochs begin where a loaded state began.

    Args:
        begins: whether they begin at all.
    """

    def __init__(self, begins: bool = True) -> None:
        self.begins, self.first, self.now = begins, 0, 0

    def state_dict(self) -> dict[str, int]:
        return {"now": self.now}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.first = state["now"]

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.first, BATCHES):
            self.now = number + 1
            yield {"x": torch.full((8,), float(number))}
        if self.first and not self.begins:
            self.first = BATCHES


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
    "of its own, loaded again": Sticks,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_as_long_after_a_resume(tmp_path: Path, kind: str) -> None:
    """Stopped twice, in the second epoch and in the third: the same batches as of one uninterrupted training."""
    options = {"replay": True} if STREAMS[kind] is Sticks else {}
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


def test_a_shorter_epoch_is_a_finding(tmp_path: Path) -> None:
    """Said once, with the loader and the way out. An epoch that was left by ``break`` is none."""
    body = partial(train, tmp_path / "run", Sticks)
    assert trial(tmp_path, lambda say: body(say, at(BATCHES + 1, signal.SIGTERM)))[0] == -signal.SIGTERM
    status, said = trial(tmp_path, body)
    assert status == 0 and len(said) == 12
    (notice,) = run_of(tmp_path / "run").notices
    assert notice.text.startswith("Epoch 2 has ended after 4 batches, and the first whole one had 6: after a resume ")
    assert "(Sticks) leaves samples out. Use a plain DataLoader, or replay=True" in notice.text


def test_a_loader_that_does_not_begin_again(tmp_path: Path) -> None:
    """The error names the loader, and the way out."""
    body = partial(train, tmp_path / "run", partial(Sticks, False))
    assert trial(tmp_path, lambda say: body(say, at(BATCHES + 1, signal.SIGTERM)))[0] == -signal.SIGTERM

    def fails(say: Say) -> None:
        with pytest.raises(ValueError, match=r"\(Sticks\) yields no batch .* after a resume .* replay=True"):
            body(say)

    assert trial(tmp_path, fails)[0] == 0
