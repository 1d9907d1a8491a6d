"""PyTorch: a program with a loop over epochs of its own, ``for epoch in loop.epochs()``, killed and resumed."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trial import PAUSE, Event, Say, at, killed_and_resumed, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each trial
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from supervisor_core import Options  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402

ROOT = Path(__file__).parents[2]
EPOCHS, BATCHES = 3, 6


class Stream(IterableDataset[Any]):
    """Samples without a length, which draw."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(45):
            yield torch.tensor(index), torch.randn(4)


def loader_of(kind: str) -> Any:
    """A loader of six batches."""
    data = TensorDataset(torch.arange(45), torch.randn(45, 4, generator=torch.Generator().manual_seed(1)))
    if kind == "torchdata":
        with warnings.catch_warnings():  # torchdata 0.11 calls what torch 2.13 deprecates
            warnings.simplefilter("ignore", UserWarning)
            return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(data, 8, shuffle=True)
    own = torch.Generator().manual_seed(3) if kind == "own generator" else None
    return DataLoader(Stream(), 8) if kind == "stream" else DataLoader(data, 8, shuffle=True, generator=own)


def program(
    logdir: Path,
    say: Say,
    *,
    event: Event = lambda loop, step: None,
    after: Callable[[Any, int], None] = lambda loop, epoch: None,
    kind: str = "shuffled",
    most: int = 99,
    within: bool = False,
    **options: Any,
) -> None:
    """Train as the examples of PyTorch do: a function for an epoch, a test, and the scheduler's step after it; say each
    step's bits."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    def train(loader: Any, epoch: int) -> None:
        model.train()
        for ids, features in loader:
            loop.run.wait_until_saved()
            event(loop, loop.global_step)
            optimizer.zero_grad()
            loss = model(features).square().mean()
            loss.backward()
            optimizer.step()
            say(f"{epoch} {loop.batch} {loop.global_step} {ids.tolist()} {loss.item().hex()}")
            if loop.batch + 1 == most:
                break

    def test(epoch: int) -> None:
        model.eval()
        with torch.no_grad():
            say(f"test {epoch} {model(torch.randn(3, 4)).sum().item().hex()} {scheduler.get_last_lr()}")

    options = {"epochs": EPOCHS, "save_secs": None, "save_steps": 2, **options}
    loop = supervised(loader_of(kind), logdir, model=model, optimizer=optimizer, scheduler=scheduler, **options)

    said: list[int] = []

    def train_all() -> None:
        for epoch in loop.epochs():
            order = torch.randn(2).sum().item()  # what a program draws before the batches is drawn at a resume, too
            if loop.exactness is not None and not said:
                said.append(epoch)
                say(" ".join(("exact", *loop.exactness.reasons)))
            train(loop, epoch)
            test(epoch)
            after(loop, epoch)
            scheduler.step()
            assert order is not None

    if within:
        with loop:
            train_all()
    else:
        train_all()
    say("end " + torch.cat([part.flatten() for part in model.parameters()]).double().sum().item().hex())


def in_epoch(number: int, signum: int) -> Callable[[Any, int], None]:
    """What happens in the part of an epoch after its batches."""

    def after(loop: Any, epoch: int) -> None:
        if epoch == number:
            loop.run.wait_until_saved()
            at(0, signum)(loop.run if signum == signal.SIGKILL else loop, 0)

    return after


@pytest.mark.parametrize(("kind", "step"), [("shuffled", 3), ("stream", 6), ("stream", 9), ("shuffled", 11)])
def test_a_killed_program_goes_on_in_its_epoch(tmp_path: Path, kind: str, step: int) -> None:
    """In its first epoch or a later one, at its begin and its end: the same steps, tests and schedule."""
    truth, _, verdict, steps = killed_and_resumed(tmp_path, partial(program, kind=kind), at(step, signal.SIGKILL))
    assert verdict == "exact" and steps == truth[-len(steps) :]
    saved = step - step % 2
    assert len(steps) == 18 - saved + 3 - (saved - 1) // 6 + 1  # with the tests of the epochs, and the end


@pytest.mark.parametrize(("save_steps", "most"), [(2, 99), (3, 2), (4, 99)])
def test_a_kill_between_the_batches_and_the_epochs_end(tmp_path: Path, save_steps: int, most: int) -> None:
    """What follows the batches is done once more, from the state before it: the schedule is that of no kill. Also where
    the program leaves an epoch's batches by ``break``."""

    def killed(logdir: Path, say: Say, event: Event | None = None) -> None:
        options: dict[str, Any] = {} if event is None else {"after": in_epoch(1, signal.SIGKILL)}
        program(logdir, say, save_steps=save_steps, most=most, **options)

    truth, _, verdict, steps = killed_and_resumed(tmp_path, killed, at(0, 0))
    assert verdict == "exact" and steps == truth[-len(steps) :]


@pytest.mark.parametrize(("within", "signum"), [(False, signal.SIGTERM), (True, signal.SIGINT)])
def test_a_signal_within_an_epoch(tmp_path: Path, signum: int, within: bool) -> None:
    """The process ends when the step has ended: no test and no schedule of half an epoch."""
    _, truth = trial(tmp_path, lambda say: program(tmp_path / "truth", say))

    def body(say: Say) -> None:
        try:
            program(tmp_path / "run", say, event=at(8, signum), within=within)
        except KeyboardInterrupt:
            say("interrupted")

    status, first = trial(tmp_path, body)
    ends = ["interrupted"] if signum == signal.SIGINT else []
    assert (status, first) == (0 if ends else -signum, [*truth[:10], *ends])
    status, (verdict, *second) = trial(tmp_path, lambda say: program(tmp_path / "run", say, within=within))
    assert (status, verdict, second) == (0, "exact", truth[10:])
    assert [one.outcome for one in run_of(tmp_path / "run").sessions] == ["signal", "completed"]


def test_a_signal_after_the_batches(tmp_path: Path) -> None:
    """The state before is saved at once, however long a test goes on; at its end that of the epoch's end is, too."""
    _, truth = trial(tmp_path, lambda say: program(tmp_path / "truth", say))

    def after(loop: Any, epoch: int) -> None:
        if epoch == 1:
            signal.raise_signal(signal.SIGTERM)
            while loop.run.newest_checkpoint is None:
                PAUSE.wait(0.01)

    status, first = trial(tmp_path, lambda say: program(tmp_path / "run", say, after=after, save_steps=99))
    assert (status, first) == (-signal.SIGTERM, truth[:14])
    saved = run_of(tmp_path / "run").checkpoints
    assert [item.step for item in saved] == [12, 12]
    status, (verdict, *second) = trial(tmp_path, lambda say: program(tmp_path / "run", say))
    assert (status, verdict, second) == (0, "exact", truth[14:])


def test_the_last_batch_is_seen(tmp_path: Path) -> None:
    """After a kill and a resume, too; a stream, which has no length, has none that is known."""

    def flat(logdir: Path, say: Say, event: Event = lambda loop, step: None) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = loader_of("shuffled")
        loop = supervised(loader, logdir, epochs=2, model=model, optimizer=optimizer, save_secs=None, save_steps=1)
        for ids, features in loop:
            if loop.exactness is not None and loop.global_step == loop.run._restored.manifest.step:  # type: ignore[union-attr]
                say(" ".join(("exact", *loop.exactness.reasons)))
            loop.run.wait_until_saved()
            event(loop, loop.global_step)
            is_last = loop.is_last
            optimizer.zero_grad()
            loss = model(features).square().mean()
            loss.backward()
            optimizer.step()
            say(f"{loop.epoch} {loop.batch} {is_last} {ids.tolist()} {loss.item().hex()}")

    truth, _, verdict, steps = killed_and_resumed(tmp_path, flat, at(7, signal.SIGKILL))
    assert verdict == "exact" and steps == truth[7:]
    assert [line.split()[2] for line in truth] == [*["False"] * 5, "True"] * 2
    loop = supervised(loader_of("stream"), tmp_path / "stream", model=torch.nn.Linear(4, 1))
    with loop, pytest.raises(TypeError, match="has no length"):
        print(loop.is_last)


def test_the_changes_that_the_guide_shows_are_those_of_the_example() -> None:
    """At most 8 lines are changed or added, and each line is in the example, in its order."""
    page = (ROOT / "docs" / "torch-howto.md").read_text("utf-8").split("loop over epochs", 1)[1]
    diff = re.findall(r"^```diff\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0].splitlines()
    example = iter([line.strip() for line in (ROOT / "examples" / "torch_mnist.py").read_text("utf-8").splitlines()])
    assert 3 < sum(line.startswith("+") for line in diff) <= 8
    missing = [line for line in diff if not line.startswith("-") and line[1:].strip() not in example]
    assert missing == []


@pytest.mark.timeout(600)  # a framework's first import, on a busy machine
def test_the_example_goes_on_exactly(tmp_path: Path, starter_of: Callable[..., Any]) -> None:
    """Killed with -9 in its second epoch: its tests print what those of a program print that nothing has killed."""
    arguments = [str(ROOT / "examples" / "torch_mnist.py"), "--epochs", "3", "--save-steps", "20", "--logdir"]
    starter = starter_of("torch")
    tests = [line for line in starter.run([*arguments, str(tmp_path / "whole")]).stdout.splitlines() if "Test" in line]
    program = starter.start([*arguments, str(tmp_path / "run")])
    while not program.stdout.readline().startswith("Train Epoch: 1 [3200"):
        pass
    program.kill()
    program.wait()
    program.close()
    resumed = starter.run([*arguments, str(tmp_path / "run")])
    assert "not observed" in resumed.stderr and len(tests) == 3
    assert [line for line in resumed.stdout.splitlines() if "Test" in line] == tests[1:]


@pytest.mark.parametrize("within", [False, True])
def test_an_error_in_an_epoch(tmp_path: Path, within: bool) -> None:
    """In its batches, or after them: it is the session's, nothing is saved, and a later start goes on exactly."""
    _, truth = trial(tmp_path, lambda say: program(tmp_path / "truth", say))

    def fail(loop: Any, step: int) -> None:
        if step == 9:
            raise ArithmeticError("the loss exploded")

    def after(loop: Any, epoch: int) -> None:
        if epoch == 1:
            raise ArithmeticError("the test failed")

    status, _ = trial(tmp_path, lambda say: program(tmp_path / "run", say, event=fail, within=within))
    assert status == 1
    status, (_, *second) = trial(tmp_path, lambda say: program(tmp_path / "run", say, after=after, within=within))
    assert status == 1 and second == truth[9:14]
    status, (verdict, *third) = trial(tmp_path, lambda say: program(tmp_path / "run", say))
    assert (status, verdict, third) == (0, "exact", truth[13:])
    assert [one.outcome for one in run_of(tmp_path / "run").sessions] == ["error", "error", "completed"]


def test_a_structure_that_changes_is_restored(tmp_path: Path) -> None:
    """The first save after a parameter group was added says that a restart needs it; the function that adds it is
    called with the saved states before they are restored, and training goes on bit by bit, in that epoch, too."""

    def work(logdir: Path, say: Say, *, event: Event = lambda loop, step: None, restores: bool = True) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        head, body = torch.nn.Linear(4, 1), torch.nn.Linear(4, 4)
        model = torch.nn.Sequential(body, head)
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.1)

        def unfreeze(saved: Any = None) -> None:
            is_due = saved is None or len(saved["optimizer"]["param_groups"]) == 2
            if is_due and len(optimizer.param_groups) == 1:
                optimizer.add_param_group({"params": body.parameters()})

        options = Options(on_restore=unfreeze if restores else None)
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "options": options}
        loop = supervised(loader_of("shuffled"), logdir, epochs=EPOCHS, save_secs=None, save_steps=2, **parts)
        for epoch in loop.epochs():
            if epoch == 1:
                unfreeze()
            for _, features in loop:
                loop.run.wait_until_saved()
                event(loop, loop.global_step)
                optimizer.zero_grad()
                loss = model(features).square().mean()
                loss.backward()
                optimizer.step()
                say(f"{loop.global_step} {loss.item().hex()}")

    _, truth = trial(tmp_path, lambda say: work(tmp_path / "truth", say))
    for step in (4, 9, 15):
        run = tmp_path / f"run {step}"
        status, first = trial(tmp_path, lambda say: work(run, say, event=at(step, signal.SIGKILL), restores=False))  # noqa: B023
        assert status == -signal.SIGKILL
        said = [notice.text for notice in run_of(run).notices]
        assert (len(said), "the structure of optimizer" in "".join(said)) == ((0, False) if step == 4 else (1, True))
        status, second = trial(tmp_path, lambda say: work(run, say))  # noqa: B023
        assert status == 0 and first == truth[: len(first)] and second == truth[-len(second) :]
