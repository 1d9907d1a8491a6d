"""Plain values that no checkpoint has: those that may decide how the training goes on are warned of at the save, and
compared when the next session begins. A log's numbers, clocks and counts are not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from supervisor_core import Options  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.training.values import Values  # noqa: E402

BATCHES, EPOCHS, STOP = 4, 4, 10


class Images(Dataset[Any]):
    """A dataset with a flag, and a transform."""

    def __init__(self) -> None:
        self.mosaic, self.transforms = True, [Crop()]

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> Any:
        return torch.ones(3) * index


class Crop:
    """A transform with a size."""

    size = 8

    def __init__(self) -> None:
        self.scale = 0.5


class Meter:
    """A running mean, for the progress that is printed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.sum, self.count, self.avg = 0.0, 0, 0.0

    def update(self, value: float) -> None:
        self.sum, self.count = self.sum + value, self.count + 1
        self.avg = self.sum / self.count


class Patience:
    """Early stopping, of the program's own."""

    def __init__(self) -> None:
        self.lowest, self.waited = float("inf"), 0

    def look(self, loss: float) -> None:
        self.waited = 0 if loss < self.lowest else self.waited + 1
        self.lowest = min(self.lowest, loss)


class Training:
    """A model, its optimizer, and a loop over epochs of its own."""

    def __init__(self, logdir: Path, stop: bool, **given: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.1), torch.nn.Linear(3, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader, self.stop = DataLoader(Images(), 2), stop
        self.loop = supervised(
            self.loader, logdir, epochs=EPOCHS, model=self.model, optimizer=self.optimizer, save_secs=None, **given
        )

    def step(self, batch: Any) -> float:
        """Make a step; stop after it in the first session."""
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        if self.stop and self.loop.global_step + 1 == STOP:
            self.loop.request_stop()
        return float(loss.detach())


def _dropout(training: Training) -> None:
    for epoch in training.loop.epochs():
        if epoch == 1:
            training.model[1].p = 0.5
        for batch in training.loop:
            training.step(batch)


def _mosaic(training: Training) -> None:
    for epoch in training.loop.epochs():
        for batch in training.loop:
            training.step(batch)
        if epoch == 0:
            training.loader.dataset.mosaic = False
            training.loader.dataset.transforms[0].scale = 1.0


def _momentum(training: Training) -> None:
    training.optimizer.rho = 0.05
    for _ in training.loop.epochs():
        for batch in training.loop:
            training.step(batch)
        training.optimizer.rho = 0.1


def _criterion(training: Training) -> None:
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in training.loop.epochs():
        criterion.label_smoothing = 0.1 if epoch < 1 else criterion.label_smoothing / 2
        for batch in training.loop:
            training.step(batch)


def _best(training: Training) -> None:
    best, bad, hard = None, 0, [0, 1]
    for epoch in training.loop.epochs():
        loss = sum(training.step(batch) for batch in training.loop)
        if epoch % 2:
            bad += 1
        best = loss if best is None else min(best, loss)
        hard = hard[::-1] if epoch == 0 else hard


def _patience(training: Training) -> None:
    stopper = Patience()
    for _ in training.loop.epochs():
        loss = sum(training.step(batch) for batch in training.loop)
        stopper.look(loss)


def _temperature(training: Training) -> None:
    temperature = 1.0
    for batch in training.loop:
        training.step(batch)
        temperature *= 0.9


STATES: dict[str, tuple[Callable[[Training], None], str]] = {
    "a dropout's rate": (_dropout, "model.1.p"),
    "flags of the dataset and a transform": (
        _mosaic, "loader.dataset.mosaic, loader.dataset.transforms[0].scale"
    ),
    "an attribute of an optimizer": (_momentum, "optimizer.rho"),
    "a criterion in a variable": (_criterion, "criterion.label_smoothing"),
    "variables": (_best, "bad, best, hard"),
    "an object of the program's own": (_patience, "stopper.lowest, stopper.waited"),
    "a schedule in a variable": (_temperature, "temperature"),
}  # fmt: skip


@pytest.mark.parametrize("kind", STATES)
def test_values_that_changed_are_named_and_compared(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning at the save, one line when the next session begins, which makes the resume not exact."""
    body, names = STATES[kind]
    body(Training(tmp_path, stop=True))
    (warning,) = [text for text in caplog.messages if "may not be exact" in text]
    assert f"The value of {names} has changed since the session began" in warning
    resumed = Training(tmp_path, stop=False)
    body(resumed)
    exactness = resumed.loop.exactness
    assert exactness is not None and exactness.verdict.startswith(f"not exact: {names} at step {STOP} differs (")


def _set_by_epoch(training: Training) -> None:
    for epoch in training.loop.epochs():
        training.model[1].p = 0.1 * epoch
        training.loader.dataset.mosaic = epoch < 2
        for batch in training.loop:
            training.step(batch)


def _logs(training: Training) -> None:
    seen, total, smooth, started, shown, meter = 0, 0.0, 0.0, time.time(), "", Meter()
    finished, last_saved, epochs_done = 0, time.monotonic(), 0
    for epoch in training.loop.epochs():
        meter.reset()
        running, correct, began = 0.0, 0, time.perf_counter()
        for number, batch in zip(range(9), training.loop, strict=False):
            loss = training.step(batch)
            seen, total, smooth = seen + len(batch), total + loss, 0.9 * smooth + 0.1 * loss
            running, correct = running + loss, correct + (number > 2)
            meter.update(loss)
        shown = f"epoch {epoch} (1): {running:.2f} {correct} {total} {smooth} in {time.perf_counter() - began:.0f} s"
        finished, last_saved, epochs_done = finished + 1, time.monotonic(), epoch + 1
    assert shown and seen and started and finished and last_saved and epochs_done


def _kept(training: Training, state: dict[str, Any]) -> None:
    for _ in training.loop.epochs():
        loss = sum(training.step(batch) for batch in training.loop)
        state["best"] = min(state["best"], loss)


def _counts(training: Training) -> None:
    """An epoch by a short name, a count in the model, and a buffer that is another tensor after each step."""
    training.model.calls = 0
    training.model.register_buffer("center", torch.zeros(3), persistent=False)
    for e in training.loop.epochs():
        for batch in training.loop:
            training.step(batch)
            training.model.calls += 1
            training.model.center = 0.9 * training.model.center + 0.1 * batch.mean(0)
        training.last = e


def test_a_training_that_stops_early_has_nothing_to_warn_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`finish`, and ``break`` after the batches: no step follows from which a resume could differ."""
    training = Training(tmp_path, stop=False)
    for e in training.loop.epochs():
        for batch in training.loop:
            training.step(batch)
        if e == 2:
            training.loop.finish()
            break
    assert not [text for text in caplog.messages if "exact" in text]


@pytest.mark.parametrize(
    "body",
    [_set_by_epoch, _logs, _counts, _kept],
    ids=["set by the epoch", "for the log", "counts and a buffer", "in state"],
)
def test_what_is_right_after_a_resume_is_not_called_inexact(tmp_path: Path, body: Callable[..., None]) -> None:
    """What the program sets again by the number of the epoch, what it prints, and what it keeps in state, also within
    another dict."""
    for stop in (True, False):
        state = {"best": 1e9}
        given = [state] if body is _kept else []
        training = Training(tmp_path, stop=stop, **({"state": {"kept": {"inner": state}}} if given else {}))
        body(training, *given)
    exactness = training.loop.exactness
    assert exactness is not None and exactness.verdict == "not observed"


def _mean(training: Training) -> None:
    """A mean that decides the rate, and a best loss and a history that are printed."""
    mean, best, history = 1.0, 1e9, []
    for _ in training.loop.epochs():
        for batch in training.loop:
            training.optimizer.param_groups[0]["lr"] = 0.01 * mean
            mean = 0.9 * mean + 0.1 * training.step(batch)
        best = min(best, mean)
        history.append(best)
    assert history


@pytest.mark.parametrize(
    ("decided", "names"),
    [
        (None, "best, history"),
        ({"best": False, "history": False}, ""),
        ({"mean": True, "best": False}, "history, mean"),
    ],
)
def test_the_program_says_which_values_decide(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, decided: dict[str, bool] | None, names: str
) -> None:
    """`Options.kept_values`: what changes in each step is for the log, and other numbers are not, unless it says so."""
    for stop in (True, False):
        training = Training(tmp_path, stop=stop, options=Options(kept_values=decided))
        _mean(training)
        warned = [text for text in caplog.messages if "may not be exact" in text]
        assert (f"The value of {names} has changed" in "".join(warned)) if names else not warned
    exactness = training.loop.exactness
    verdict = "" if exactness is None else exactness.verdict
    assert verdict.startswith(f"not exact: {names} at step {STOP} differs (") if names else verdict == "not observed"


def test_values_are_compared_where_an_epoch_has_no_batch_left(tmp_path: Path) -> None:
    """Stopped after an epoch's last batch: the next session's first step is one of the next epoch."""
    for stop in (2 * BATCHES, 0):
        training, best = Training(tmp_path, stop=False), 1e9
        for _ in training.loop.epochs():
            for batch in training.loop:
                training.step(batch)
                if training.loop.global_step + 1 == stop:
                    training.loop.request_stop()
            best = min(best, training.loop.epoch + 0.5)
    exactness = training.loop.exactness
    assert exactness is not None and exactness.verdict.startswith(f"not exact: best at step {2 * BATCHES} differs (")


def test_a_value_is_compared_in_each_later_session(tmp_path: Path) -> None:
    """One that the second session sets once more, since it goes on in that epoch, and the third one does not."""
    verdicts = []
    for stop in (BATCHES + 2, 2 * BATCHES + 2, 0):
        training = Training(tmp_path, stop=False)
        for epoch in training.loop.epochs():
            if epoch == 1:
                training.loader.dataset.mosaic = False
            for batch in training.loop:
                training.step(batch)
                if training.loop.global_step + 1 == stop:
                    training.loop.request_stop()
        verdicts.append(training.loop.exactness and training.loop.exactness.verdict.partition(" at step ")[0])
    assert verdicts == [None, "not observed", "not exact: loader.dataset.mosaic"]


def test_a_save_looks_at_a_thousand_modules_within_a_millisecond_or_so() -> None:
    """Nothing per parameter, no digest of what is the same: few bytecodes for each module."""
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(1000)))
    values = Values([model], {"model": model})
    values.begin(None, {})
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        assert (values.now(), values.limits) == ({}, ())
        best = min(best, time.perf_counter() - began)
    print(f"{1000 * best:.2f} ms")
    model[7].in_features = 2
    assert values.now() == {"model.7.in_features": ("2",)}
