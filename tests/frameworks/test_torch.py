"""PyTorch: an interrupted training goes on bit by bit, with every kind of loader, or says by name why not."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trial import PAUSE, Event, Say, at, calls_of, killed_and_resumed, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")

import torch._dynamo  # noqa: E402, F811  # which the first optimizer imports: once here, not in each trial
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from supervisor_core.base.options import Options  # noqa: E402
from supervisor_core.checkpoint.manifest import Manifest, read_manifest  # noqa: E402
from supervisor_core.checkpoint.sealed_files import SealedFiles  # noqa: E402
from supervisor_core.torch import supervised  # noqa: E402
from supervisor_core.torch.loop import LEFT  # noqa: E402
from supervisor_core.torch.position import (  # noqa: E402
    LoaderPosition,
    batch_size_of,
    loader_facts,
)
from supervisor_core.torch.tensors import (  # noqa: E402
    KINDS,
    random_sources,
)
from supervisor_core.training.state import TrainingState  # noqa: E402
from supervisor_core.training.tree import read_tree, write_tree  # noqa: E402

SAMPLES, BATCH, EPOCHS = 45, 8, 3


class Drawing(Dataset[Any]):
    """A dataset that augments its samples with random numbers."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Any, int]:
        return index, torch.randn(4) + index % 2, index % 2


class Stream(IterableDataset[Any]):
    """A stream in an order of its own."""

    def __iter__(self) -> Iterator[Any]:
        order = list(range(SAMPLES))
        random.Random(3).shuffle(order)
        worker = torch.utils.data.get_worker_info()
        for index in order if worker is None else order[worker.id :: worker.num_workers]:
            yield index, torch.full((4,), float(index)), index % 2


def samples() -> Any:
    """A dataset in memory."""
    features = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(torch.arange(SAMPLES), features, torch.arange(SAMPLES) % 2)


def stateful(**options: Any) -> Any:
    """Torchdata's loader, where it is installed."""
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    with warnings.catch_warnings():  # torchdata 0.11 calls what torch 2.13 deprecates
        warnings.simplefilter("ignore", UserWarning)
        return torchdata.StatefulDataLoader(samples(), **options)


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(samples(), BATCH, shuffle=True),
    "a generator of its own": lambda: DataLoader(
        samples(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(9)
    ),
    "a dataset that draws": lambda: DataLoader(Drawing(), BATCH, shuffle=True),
    "two workers": lambda: DataLoader(samples(), BATCH, shuffle=True, num_workers=2),
    "two workers that draw, replayed": lambda: DataLoader(Drawing(), BATCH, shuffle=True, num_workers=2),
    "a stream": lambda: DataLoader(Stream(), BATCH),
    "a stream with two workers": lambda: DataLoader(Stream(), BATCH, num_workers=2),
    "without batches": lambda: DataLoader(TensorDataset(*(part[:6] for part in samples().tensors)), batch_size=None),
    "a list": lambda: [
        tuple(part[start : start + BATCH] for part in samples().tensors) for start in range(0, SAMPLES, BATCH)
    ],
    "stateful": lambda: stateful(batch_size=BATCH, shuffle=True),
    "stateful with two workers": lambda: stateful(batch_size=BATCH, shuffle=True, num_workers=2),
}


def train(
    logdir: Path,
    say: Say,
    kind: str = "shuffled",
    *,
    event: Event = lambda loop, step: None,
    accumulate: int = 1,
    amp: bool = False,
    within: bool = False,
    **options: Any,
) -> None:
    """Train a model with dropout, momentum, a schedule and an average; say each step's samples and the bits of its
    loss."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)
    average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda old, new, count: 0.9 * old + 0.1 * new)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5) if amp else None
    loop = supervised(
        LOADERS[kind](), logdir, epochs=EPOCHS, model=model, optimizer=optimizer, scheduler=scheduler, ema=average,
        scaler=scaler, save_secs=None, save_steps=4, replay="replayed" in kind, **options,
    )  # fmt: skip
    has_said = False
    with loop if within else nullcontext():
        for ids, features, labels in loop:
            if loop.run.global_step and not has_said:
                assert loop.exactness is not None
                say(" ".join(("exact", *loop.exactness.reasons)))
            has_said = True
            loop.run.wait_until_saved()  # so that it is known which checkpoints there are
            event(loop, loop.run.global_step)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                output = model(features if features.dim() > 1 else features[None]).float()
            loss = torch.nn.functional.cross_entropy(output, labels.reshape(-1)) / accumulate
            (loss if scaler is None else scaler.scale(loss)).backward()
            if (loop.batch + 1) % accumulate == 0:
                if scaler is None:
                    optimizer.step()
                else:
                    scaler.step(optimizer)
                    scaler.update()
                optimizer.zero_grad()
                scheduler.step()
                average.update_parameters(model)
            loop.log("loss", loss)
            say(f"{loop.epoch} {loop.batch} {ids.reshape(-1).tolist()} {loss.item().hex()}")
    weights = [part for each in (model, average) for part in each.state_dict().values()]
    say("end " + torch.cat([part.reshape(-1).double() for part in weights]).sum().item().hex())


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if kind not in ("shuffled", "two workers")])
def test_a_killed_training_goes_on_bit_by_bit(tmp_path: Path, kind: str) -> None:
    """In the middle of the second epoch: the same samples in the same order, the same bits of each loss, and of the
    model and its average at the end. `test_torch_loaders` has the plain loader, and workers."""
    truth, _, verdict, steps = killed_and_resumed(tmp_path, partial(train, kind=kind), at(9, signal.SIGKILL))
    assert steps == truth[-len(steps) :] and len(steps) > len(truth) // 3
    assert verdict == ("exact")


@pytest.mark.parametrize("amp", [False, True])
def test_accumulated_gradients(tmp_path: Path, amp: bool) -> None:
    """A step is the optimizer's; nothing is saved between two batches of one, and a stop waits for its end."""
    options: dict[str, Any] = {"accumulate": 3, "amp": amp}
    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", say, **options))
    run = tmp_path / "run"
    status, first = trial(tmp_path, lambda say: train(run, say, event=at(3, signal.SIGTERM), **options))
    assert status == -signal.SIGTERM and len(first) == 12
    status, (verdict, *steps) = trial(tmp_path, lambda say: train(run, say, **options))
    assert (status, verdict) == (0, "exact") and [*first, *steps] == truth
    seen = run_of(run)
    one, two = seen.sessions
    assert (one.outcome, one.last_step, two.restored_step, two.resume_exact) == ("signal", 4, 4, True)
    assert (two.outcome, two.last_step, seen.state) == ("completed", 6, "completed")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_whole_group(tmp_path: Path, signum: int) -> None:
    """As launchers and terminals send it: the workers go on until the trainer has ended its step, and end after it."""
    workers: list[int] = []

    def event(loop: Any, step: int) -> None:
        if step == 2 and not workers:
            workers.extend(child.pid for child in multiprocessing.active_children())
            os.killpg(0, signum)
            while not loop.should_stop():
                PAUSE.wait(0.01)

    def body(say: Say) -> None:
        os.setpgid(0, 0)
        try:
            train(tmp_path / "run", say, "two workers", accumulate=3, event=event)
        except KeyboardInterrupt:
            say(f"interrupted {sum(Path(f'/proc/{pid}').exists() for pid in workers)}")

    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", say, "two workers", accumulate=3))
    status, first = trial(tmp_path, body)
    ends = ["interrupted 0"] if signum == signal.SIGINT else []
    assert (status, first) == (0 if ends else -signum, [*truth[:9], *ends])
    assert [(session.outcome, session.last_step) for session in run_of(tmp_path / "run").sessions] == [("signal", 3)]


def test_a_loop_that_is_left_early(tmp_path: Path) -> None:
    """By break: the step that was made counts, and is saved; a second call goes on after it. The checkpoint says that
    the body was left, also where one was due at the end of the step."""

    def until(count: int) -> Callable[[Say], None]:
        def body(say: Say) -> None:
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loop = supervised(DataLoader(samples(), BATCH), tmp_path / "run", model=model, optimizer=optimizer)
            for _, features, labels in loop:
                torch.nn.functional.cross_entropy(model(features), labels).backward()
                optimizer.step()
                say(str(loop.run.global_step))
                if loop.run.global_step == count - 1:
                    loop.save()
                    break
            assert loop.run.newest_checkpoint is not None
            say(str(LEFT in read_manifest(loop.run.newest_checkpoint).not_captured))

        return body

    assert trial(tmp_path, until(3)) == (0, ["0", "1", "2", "True"])
    assert trial(tmp_path, until(5)) == (0, ["3", "4", "True"])


@pytest.mark.parametrize("within", [False, True])
def test_an_error_in_the_loop(tmp_path: Path, within: bool) -> None:
    """It is the session's error, and nothing is saved; a bare loop may not know which error it was."""

    def fail(loop: Any, step: int) -> None:
        if step == 9:
            raise ArithmeticError("the loss exploded")

    def body(say: Say) -> None:
        with suppress(ArithmeticError):
            train(tmp_path / "run", say, event=fail, within=within)

    assert trial(tmp_path, body)[0] == 0
    run = run_of(tmp_path / "run")
    (session,) = run.sessions
    line = f"{fail.__code__.co_firstlineno + 2} in fail"
    text = f"ArithmeticError at test_torch.py:{line}: the loss exploded"
    if not within and sys.version_info < (3, 12):
        text = f"SupervisorError: An exception left the loop at {__file__}:{line}."
    assert (session.outcome, session.error) == ("error", text)
    assert run.checkpoints[-1].step == 8
    status, (verdict, *_) = trial(tmp_path, lambda say: train(tmp_path / "run", say))
    assert (status, verdict) == (0, "exact")


def test_pytorchs_own_writer(tmp_path: Path) -> None:
    """Existing lines go to the run's one events file, at the run's step where they give none."""
    pytest.importorskip("tensorboard")

    def body(say: Say) -> None:
        loop = supervised([1, 2, 3], tmp_path / "run", model=torch.nn.Linear(2, 1))
        for number in loop:
            loop.writer.add_scalar("value", number)
            loop.writer.add_histogram("weights", torch.arange(5), 7)

    assert trial(tmp_path, body)[0] == 0
    (file,) = (tmp_path / "run").glob("events.out.*")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = [(value.tag, event.step) for event in EventFileLoader(str(file)).Load() for value in event.summary.value]
    assert [step for tag, step in found if tag == "value"] == [0, 1, 2]
    assert [step for tag, step in found if tag == "weights"] == [7, 7, 7]


def test_a_step_takes_few_calls(tmp_path: Path) -> None:
    """Where nothing is due: the loop's three generators, the step's number, its count, and its note for other
    threads."""
    model = torch.nn.Linear(2, 2)
    with supervised([0] * 1000, tmp_path, model=model, options=Options(handle_signals=False)) as loop:
        batches = iter(loop)
        next(batches)
        assert calls_of(lambda: next(batches)) <= 6


@pytest.mark.parametrize(
    ("kind", "size", "batch", "shift"),
    [
        ("shuffled", 4, 6, "The data go on after the samples that were consumed."),
        ("shuffled", 5, 4, "The data go on before the last consumed samples: about 4 of this epoch will repeat."),
        ("shuffled", 32, 0, "The data go on before the last consumed samples: about 24 of this epoch will repeat."),
        ("sampler", 4, 6, "The data go on after the samples that were consumed."),
        ("stream", 4, 6, "The data go on after the samples that were consumed."),
    ],
)
def test_another_batch_size(tmp_path: Path, kind: str, size: int, batch: int, shift: str) -> None:
    """The training goes on after the samples that were consumed, or some before; the verdict says which."""

    def loader(size: int) -> Any:
        if kind == "stream":
            return DataLoader(Stream(), size)
        if kind == "sampler":
            order = torch.utils.data.RandomSampler(samples())
            return DataLoader(samples(), batch_sampler=torch.utils.data.BatchSampler(order, size, False))
        return DataLoader(samples(), size, shuffle=True)

    def part(size: int) -> tuple[LoaderPosition, TrainingState]:
        data = loader(size)
        position = LoaderPosition(data, random_sources, batch_size=batch_size_of(data))
        facts = loader_facts(data)
        return position, TrainingState(
            objects={"data": position}, sources=random_sources, kinds=KINDS, facts=lambda: facts
        )

    position, state = part(BATCH)
    batches = position.batches()
    order = []
    for _ in range(3):
        order += next(batches)[0].tolist()
        position.batch += 1
    captured = state.capture(3)
    write_tree(str(tmp_path), captured.tree, KINDS)
    order += [index for ids, *_ in batches for index in ids.tolist()]
    position, state = part(size)
    manifest = Manifest(format="", step=3, facts={"batch size": "8"}, data_position=captured.data_position)
    exactness = state.resume(manifest, read_tree(SealedFiles.of(str(tmp_path)), KINDS), {})
    assert exactness.reasons == (shift, f"Another batch size: 8 at the save, {size} now.")
    assert position.batch == batch
    assert [index for ids, *_ in position.batches() for index in ids.tolist()] == order[batch * size :]


def test_a_step_does_nothing_on_a_device(tmp_path: Path) -> None:
    """Between two bodies of the loop no operation of PyTorch runs: so there is no synchronisation and no collective.
    But for steps whose state is noted, of a model on the CPU."""

    def work(say: Say) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                say(str(func))
                return func(*args, **(kwargs or {}))

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters())
        loop = supervised([torch.ones(3)] * 20, tmp_path, model=model, optimizer=optimizer, save_secs=None)
        batches = iter(loop)
        loss = model(next(batches)).sum()
        for step in range(1, 8):
            optimizer.step()
            with nullcontext() if step in (1, 2, 4) else Seen():
                next(batches)
        assert loop.run.global_step == 7
        with Seen():
            loss.item()
        loop.run.request_stop()
        optimizer.step()
        list(batches)

    assert trial(tmp_path, work) == (0, ["aten._local_scalar_dense.default"])


def test_wrong_arguments(tmp_path: Path) -> None:
    """Are refused before anything is written."""
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="epochs is 0"):
        supervised([], tmp_path, epochs=0, model=model)
    with pytest.raises(ValueError, match="state has data, which supervised"):
        supervised([], tmp_path, model=model, state={"data": model})
    with pytest.raises(TypeError, match=r"state\['ema'\] is a builtins.int"):
        supervised([], tmp_path, model=model, ema=5)
    assert not list(tmp_path.iterdir())


def test_a_signal_to_a_worker_that_starts(tmp_path: Path) -> None:
    """It is held back until the worker can outlive it, so the training goes on with that worker."""

    def body(say: Say) -> None:
        os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
        train(tmp_path / "run", say, "two workers")

    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", say, "two workers"))
    assert trial(tmp_path, body) == (0, truth)
