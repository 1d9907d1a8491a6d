"""How a loop of the program's own comes to its end: by steps, or finished by the program; at each later start, too."""

from __future__ import annotations

import gc
import multiprocessing.util
import re
import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trial import Event, Say, Train, at, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each trial
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from supervisor_core import Options  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402


@pytest.mark.parametrize("facade", ["supervise", "torch", "torch, for", "jax"], indirect=True)
def test_a_training_that_the_program_finishes(tmp_path: Path, train: Train, facade: str) -> None:
    """It is completed after that step; a later start makes none, until it has more steps, where it goes on."""

    def weights(steps: int, **given: int) -> str:
        done = train(facade, tmp_path, steps, **given)
        assert done.returncode == 0, done.stderr
        (found,) = re.findall(r"(?m)^weights .*$", done.stdout)
        return str(found)

    assert weights(12, finish_at=4, save_at=4) == weights(12)
    ended = [(session.outcome, session.last_step) for session in run_of(tmp_path).sessions]
    assert ended == [("completed", 5)] * 2
    if "torch" not in facade:  # whose loader is another one with more steps
        weights(13)
        assert run_of(tmp_path).sessions[-1].last_step == 13


def steps_of(
    logdir: Path, say: Say, *, event: Event = lambda loop, step: None, stream: bool = False, **ends: Any
) -> None:
    """Train on shuffled batches, six in an epoch, with a dropout; say each step's batch and the bits of its loss."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(45), torch.randn(45, 4))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader: Any = DataLoader(data, 8, shuffle=True)
    loop = supervised(loader, logdir, model=model, optimizer=optimizer, save_secs=None, save_steps=4, **ends)
    for ids, features in loop:
        loop.run.wait_until_saved()
        event(loop, loop.global_step)
        optimizer.zero_grad()
        loss = model(features).square().mean()
        loss.backward()
        optimizer.step()
        say(f"{loop.global_step} {loop.epoch} {loop.batch} {ids.tolist()} {loss.item().hex()}")


def said(tmp_path: Path, logdir: Path, **options: Any) -> tuple[int, list[str]]:
    """Train in a process of its own; return its status and what it said."""
    return trial(tmp_path, lambda say: steps_of(logdir, say, **options))


def test_a_loop_ends_after_its_steps(tmp_path: Path) -> None:
    """Over all sessions, within an epoch; a later start makes none, and one with more steps goes on bit by bit."""
    status, truth = said(tmp_path, tmp_path / "truth", steps=20)
    assert status == 0 and len(truth) == 20 and truth[-1].startswith("19 3 1 ")
    run = tmp_path / "run"
    status, first = said(tmp_path, run, steps=16, event=at(9, signal.SIGKILL))
    assert (status, len(first)) == (-signal.SIGKILL, 9)
    assert said(tmp_path, run, steps=16) == (0, truth[8:16])
    assert said(tmp_path, run, steps=16) == (0, [])
    assert said(tmp_path, run, steps=20) == (0, truth[16:])
    ends = [(session.outcome, session.last_step) for session in run_of(run).sessions]
    assert ends == [("lost", 9), ("completed", 16), ("completed", 16), ("completed", 20)]


@pytest.mark.parametrize(("epochs", "expected"), [(None, []), (3, [])])
def test_a_finished_loop_goes_on_with_a_higher_limit(tmp_path: Path, epochs: int | None, expected: list[str]) -> None:
    """Bit by bit, as if it had not been finished."""

    def finish(loop: Any, step: int) -> None:
        if step == 7:
            loop.finish()

    _, truth = said(tmp_path, tmp_path / "truth", epochs=4)
    run = tmp_path / "run"
    ends: dict[str, Any] = {"epochs": epochs, "steps": 18}
    assert said(tmp_path, run, event=finish, **ends) == (0, truth[:8])
    assert said(tmp_path, run, **ends) == (0, expected)
    assert said(tmp_path, run, epochs=4) == (0, truth[8:])


def test_wrong_ends(tmp_path: Path) -> None:
    """Are refused before anything is written, and say what to give."""
    begin: Callable[..., Any] = partial(supervised, logdir=tmp_path / "run", model=torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="steps is 0; expected a number from 1"):
        begin([], steps=0)
    with pytest.raises(ValueError, match="steps is 7, and the loader is a range, whose numbers are the steps"):
        begin(range(9), steps=7)
    for model in (None, {}, [], {"layers": 3}):
        with pytest.raises(TypeError, match=r"model is .*; expected a module, or a list, tuple or dict of them"):
            begin([], model=model)
    with pytest.raises(TypeError, match=r"optimizer is a dict without one; expected an optimizer, or a list"):
        begin([], optimizer={})
    with pytest.raises(TypeError, match="The loader is a int; expected a DataLoader"):
        begin(3)
    assert not (tmp_path / "run").exists()


def test_an_optimizer_that_makes_no_step_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is saved, and a training that has a number of steps does not end."""
    model = torch.nn.Linear(1, 1)
    given, other = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    for _ in supervised(range(1001).__iter__(), tmp_path / "run", model=model, optimizer=given):
        other.step()
    assert caplog.text.count("1000 batches, and the optimizer has made no step: nothing is saved") == 1


@pytest.mark.parametrize("form", ["for", "with", "del", "break", "exception"])
def test_workers_end_with_the_loop(tmp_path: Path, form: str) -> None:
    """Persistent workers wait for no stop timeout once the loop has ended, however it ends."""

    def body(say: Say) -> None:
        loader: Any = DataLoader(TensorDataset(torch.randn(16, 4)), 8, num_workers=2, persistent_workers=True)
        model = torch.nn.Linear(4, 1)
        options = Options(stop_timeout_secs=100_000)

        def work(loader: Any) -> None:
            loop = supervised(loader, tmp_path / "run", epochs=2, model=model, options=options)
            with loop if form == "with" else nullcontext():
                for (features,) in loop:
                    model(features).sum().backward()
                    if form == "exception":
                        raise ZeroDivisionError
                    if form == "break":
                        break

        with suppress(ZeroDivisionError):
            work(loader)
        workers = multiprocessing.active_children()
        assert len(workers) == 2
        if form == "del":
            gc.disable()
            del loader
        else:
            for worker in workers:
                worker.terminate()
        for worker in workers:
            worker.join()
        say("ended")

    assert trial(tmp_path, body) == (0, ["ended"])


def test_workers_end_with_their_trainer(tmp_path: Path) -> None:
    """A trainer that exits within the loop waits for no stop timeout either."""

    def body(say: Say) -> None:
        loader: Any = DataLoader(TensorDataset(torch.randn(16, 4)), 8, num_workers=2, persistent_workers=True)
        options = Options(stop_timeout_secs=100_000)
        batches = iter(supervised(loader, tmp_path / "run", model=torch.nn.Linear(4, 1), options=options))
        next(batches)
        multiprocessing.util._exit_function()  # type: ignore[attr-defined]  # as at the interpreter's end
        say(f"{len(multiprocessing.active_children())} left")

    assert trial(tmp_path, body) == (0, ["0 left"])
