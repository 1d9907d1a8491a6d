"""Hugging Face's Trainer: an interrupted training goes on bit by bit from a sealed checkpoint, or says why not."""

from __future__ import annotations

import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from trial import Event, Say, at, calls_of, killed_and_resumed, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-frameworks has it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    (
        transformers.Trainer,
        transformers.TrainingArguments(report_to=[], use_cpu=True),
    )  # loaded here, and not in each trial

from supervisor_core.base.errors import NoUsableCheckpointError  # noqa: E402
from supervisor_core.base.options import Options  # noqa: E402
from supervisor_core.checkpoint.manifest import NAME  # noqa: E402
from supervisor_core.torch.tensors import BUFFERS  # noqa: E402
from supervisor_core.transformers import SupervisorCallback, sealing  # noqa: E402
from supervisor_core.transformers import data as hf_data  # noqa: E402

SAMPLES, BATCH, EPOCHS = 45, 8, 3


class Samples(torch.utils.data.Dataset[Any]):
    """Numbered samples; with ``draws``, noise is added to them; with "rarely" to one that is not probed."""

    def __init__(self, draws: bool | str = False) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        draws = index == 3 if self.draws == "rarely" else self.draws
        noise = torch.randn(4) if draws else torch.sin(torch.arange(4.0) + index)
        return {"index": index, "features": noise, "labels": index % 2}


class Model(torch.nn.Module):
    """A model with dropout; says the samples and the bits of the loss of each batch that it trains on."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say = say
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))

    def forward(self, index: Any, features: Any, labels: Any) -> dict[str, Any]:
        output = self.layers(features)
        loss = torch.nn.functional.cross_entropy(output, labels)
        if self.training:
            self.say(f"{index.tolist()} {loss.item().hex()}")
        return {"loss": loss, "logits": output}


class Happens(transformers.TrainerCallback):
    """Calls the event of a test in the middle of each step."""

    def __init__(self, event: Event, supervisor: SupervisorCallback) -> None:
        self.event = event
        self.supervisor = supervisor

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.supervisor.run.wait_until_saved()  # so that it is known which checkpoints there are
        self.event(self.supervisor.run, state.global_step)


def train(
    directory: Path,
    say: Say,
    *,
    event: Event = lambda run, step: None,
    draws: bool | str = False,
    within: bool = False,
    save_steps: int | None = None,
    callbacks: tuple[Any, ...] = (),
    **arguments: Any,
) -> None:
    """Train; say the verdict of a resume, then each batch."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given: dict[str, Any] = {
        "output_dir": str(directory), "num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH,
        "save_strategy": "steps", "save_steps": 4, "eval_strategy": "no", "save_total_limit": 2, "logging_steps": 3,
        "report_to": [], "disable_tqdm": True, "use_cpu": True, "learning_rate": 0.05, "seed": 7,
    }  # fmt: skip
    args = transformers.TrainingArguments(**{**given, **arguments})
    transformers.set_seed(7)
    supervisor = SupervisorCallback(save_secs=None, save_steps=save_steps)
    trainer = transformers.Trainer(
        model=Model(say), args=args, train_dataset=Samples(draws), eval_dataset=Samples(),
        callbacks=[Verdict(supervisor, say), supervisor, Happens(event, supervisor), *callbacks],
    )  # fmt: skip
    with supervisor if within else nullcontext():
        trainer.train(resume_from_checkpoint=supervisor.resume_from())
    say("end " + sum(part.double().sum() for part in trainer.model.state_dict().values()).item().hex())


class Verdict(transformers.TrainerCallback):
    """Says the verdict of a resume, before the first step."""

    def __init__(self, supervisor: SupervisorCallback, say: Say) -> None:
        self.supervisor, self.say = supervisor, say

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        exactness, self.supervisor = self.supervisor.exactness if self.supervisor else None, None
        if exactness is not None:
            self.say(" ".join(("exact", *exactness.reasons)))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_accumulation_steps": 2, "save_steps": 2},
        {"dataloader_num_workers": 2},
        {"dataloader_num_workers": 2, "dataloader_persistent_workers": True},
        {"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "save_steps": 6},
        {"eval_strategy": "steps", "eval_steps": 2, "lr_scheduler_type": "cosine"},
        {"eval_strategy": "epoch", "save_steps": 6},
    ],
    ids=[
        *("plain", "accumulation", "two workers", "persistent workers", "persistent workers, between two epochs"),
        *("evaluation", "evaluation after an epoch"),
    ],
)
def test_a_killed_training_goes_on_bit_by_bit(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """In the middle of the second epoch: the same samples in the same order, the same bits of each loss and of the
    model at the end."""
    killed = at(5 if "gradient_accumulation_steps" in arguments else 10, signal.SIGKILL)
    truth, _, verdict, second = killed_and_resumed(tmp_path, partial(train, **arguments), killed)
    assert verdict == "exact"
    assert second == truth[-len(second) :] and len(truth) // 3 < len(second) < len(truth)


def test_sigterm_saves_the_step_and_the_next_session_goes_on(tmp_path: Path) -> None:
    """The step under way is saved and sealed, nothing is evaluated, the process ends by the signal, which the worker of
    its DataLoader gets, too; two sessions have the steps of one. What the run's record says is what happened."""
    arguments: dict[str, Any] = {"save_strategy": "no", "eval_strategy": "epoch", "dataloader_num_workers": 1}
    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", say, **arguments))
    run = tmp_path / "run"

    def in_a_group(say: Say) -> None:
        os.setpgid(0, 0)
        train(run, say, event=at(7, signal.SIGTERM, group=True), **arguments)

    status, first = trial(tmp_path, in_a_group)
    assert (status, len(first)) == (-signal.SIGTERM, 8)
    status, (verdict, *second) = trial(tmp_path, lambda say: train(run, say, **arguments))
    assert (status, verdict) == (0, "exact") and [*first, *second] == truth
    one, two = run_of(run).sessions
    assert (one.outcome, one.last_step, two.restored_step, two.resume_exact) == ("signal", 8, 8, True)
    assert (two.outcome, two.last_step) == ("completed", 18)
    assert [(item.step, item.trigger) for item in run_of(run).checkpoints] == [(8, "signal"), (18, "final")]


def test_a_stop_in_the_last_step(tmp_path: Path) -> None:
    """The next session has no step left, and logs a mean over none: that is no value that was computed again."""
    run = tmp_path / "run"
    status, _ = trial(tmp_path, lambda say: train(run, say, event=at(17, signal.SIGTERM)))
    assert status == -signal.SIGTERM
    status, said = trial(tmp_path, lambda say: train(run, say))
    assert status == 0 and len(said) == 1
    (one, two) = run_of(run).sessions
    assert (one.last_step, two.restored_step, two.resume_exact) == (18, 18, True)


def test_an_error_and_a_second_call(tmp_path: Path) -> None:
    """Under ``with`` the session ends with the error. A process that begins after the last step trains nothing, and
    ends well: a restarter may start it."""

    def fail(run: Any, step: int) -> None:
        if step == 6:
            raise ArithmeticError("the loss exploded")

    assert trial(tmp_path, lambda say: train(tmp_path, say, event=fail, within=True))[0] == 1
    status, (verdict, *steps) = trial(tmp_path, lambda say: train(tmp_path, say))
    assert (status, verdict, len(steps)) == (0, "exact", 15)
    assert trial(tmp_path, lambda say: train(tmp_path, say)) == (0, steps[-1:])
    sessions = run_of(tmp_path).sessions
    assert [(item.outcome, item.last_step) for item in sessions] == [("error", 6), ("completed", 18), ("completed", 18)]
    line = f"{fail.__code__.co_firstlineno + 2} in fail"
    assert sessions[0].error == f"ArithmeticError at test_transformers.py:{line}: the loss exploded"


def out_of_memory(limit: int) -> Callable[..., None]:
    """Return a forward hook that raises as CUDA does, for a batch with more samples."""

    def hook(module: Any, args: Any, output: Any) -> None:
        if len(output) > limit:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    return hook


@pytest.mark.parametrize("within", [True, False])
def test_out_of_memory_is_the_cause(tmp_path: Path, within: bool) -> None:
    """Also where the program handles the exception and ends well: its type, its line and its text."""

    def body(say: Say) -> None:
        with suppress(RuntimeError), torch.nn.modules.module.register_module_forward_hook(out_of_memory(1)):
            train(tmp_path, say, within=within)
        say("handled")

    assert trial(tmp_path, body) == (0, ["handled"])
    (session,) = run_of(tmp_path).sessions
    line = out_of_memory(0).__code__.co_firstlineno + 2
    text = f"RuntimeError at test_transformers.py:{line} in hook: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert (session.outcome, session.error) == ("error", text)


@pytest.mark.parametrize("steps", [0, 5], ids=["at the first batch", "later"])
def test_a_smaller_batch_size_is_no_failure(tmp_path: Path, steps: int) -> None:
    """``auto_find_batch_size`` begins the loop again in the same session, which says why, and is completed; the next
    one resumes from it."""

    def body(say: Say) -> None:
        made: list[int] = []

        def hook(module: Any, args: Any, output: Any) -> None:
            if module.training and isinstance(module, torch.nn.Sequential):
                made.append(len(output))
                if len(made) > steps and len(output) > 2:
                    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        with torch.nn.modules.module.register_module_forward_hook(hook):
            train(tmp_path, say, auto_find_batch_size=True, per_device_train_batch_size=4, save_total_limit=None)
        say(f"{made[-2]} at last")

    status, said = trial(tmp_path, body)
    assert (status, said[-1]) == (0, "2 at last")
    run = run_of(tmp_path)
    (session,) = run.sessions
    assert (session.outcome, run.checkpoints[-1].step) == ("completed", session.last_step)
    assert all("out of memory" in notice.text and "in hook: CUDA" in notice.text for notice in run.notices)
    assert sum(notice.count for notice in run.notices) == 2


@pytest.mark.parametrize("draws", [True, "rarely"])
def test_data_that_draw_random_numbers_are_named(tmp_path: Path, draws: bool | str) -> None:
    """Not exact, and why, also where it is seen during the training only; likewise what else the Trainer does not bring
    back."""
    stop = at(7, signal.SIGTERM)
    callbacks = (transformers.EarlyStoppingCallback(early_stopping_patience=100),)
    named: dict[str, Any] = {
        "draws": draws, "callbacks": callbacks, "eval_strategy": "steps", "eval_steps": 4,
        "load_best_model_at_end": True,
    }  # fmt: skip
    assert trial(tmp_path, lambda say: train(tmp_path, say, event=stop, **named))[0] == -signal.SIGTERM
    _, (verdict, *_) = trial(tmp_path, lambda say: train(tmp_path, say, dataloader_num_workers=1, **named))
    reasons = (hf_data.DRAWS, hf_data.CALLBACKS.format("EarlyStoppingCallback"), hf_data.NO_EVALUATION)
    assert verdict == " ".join(("exact", *reasons, "Another number of workers: 0 at the save, 1 now."))


DRAW: dict[str, Callable[[], object]] = {
    "python": random.random, "numpy": lambda: np.random.rand(1), "torch": lambda: torch.rand(1),
}  # fmt: skip


def nothing() -> None:
    """What does not draw."""


def steps(watch: hf_data.DrawWatch, count: int, data: Callable[[], object], training: Callable[[], object]) -> None:
    """Do steps as the callback does: make a batch, train on it."""
    for _ in range(count):
        if watch.skips:
            watch.skips -= 1
        else:
            watch.begin()
        data()
        if watch.before is not None:
            watch.end()
        training()


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_who_draws_is_seen_or_is_not_known(draw: Callable[[], object]) -> None:
    """Also where it begins late, and between two looks: no batch that drew is called one that did not."""
    watch = hf_data.DrawWatch()
    steps(watch, hf_data.FIRST + 1, nothing, nothing)
    steps(watch, 1, draw, nothing)
    watch.compare()  # as at a save
    assert watch.unknown and not watch.found
    steps(watch, 1, nothing, nothing)
    watch.compare()
    assert watch.unknown and not watch.found
    steps(watch, 1, draw, nothing)
    assert watch.found

    watch = hf_data.DrawWatch()
    steps(watch, hf_data.FIRST + 1, nothing, nothing)
    steps(watch, hf_data.EVERY, nothing, draw)
    steps(watch, 2, nothing, draw)
    assert not watch.unknown and not watch.found  # it is the training that draws
    steps(watch, 1, draw, draw)
    assert watch.found

    watch = hf_data.DrawWatch()
    steps(watch, 3, nothing, draw)
    watch.close()
    draw()  # in an evaluation
    steps(watch, hf_data.FIRST, nothing, nothing)
    watch.reset()
    draw()  # at the begin of an epoch
    steps(watch, hf_data.EVERY, nothing, nothing)
    watch.compare()
    assert not watch.unknown and not watch.found


def test_a_step_takes_few_calls(tmp_path: Path) -> None:
    """Where nothing is due, and nothing draws: the two hooks, the count of the step, and its note for other threads.
    The random states are not read."""
    supervisor = SupervisorCallback(options=Options(handle_signals=False))
    args = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    state, control = transformers.TrainerState(), transformers.TrainerControl()

    def step() -> None:
        supervisor.on_step_end(args, state, control)
        supervisor.on_step_begin(args, state, control)

    with supervisor:
        supervisor.on_train_begin(args, state, control)
        for _ in range(hf_data.FIRST):
            step()
        assert calls_of(step) <= 4


def test_the_newest_whole_checkpoint_is_chosen(tmp_path: Path) -> None:
    """Neither one that is damaged, nor one whose save was killed, nor one that was never sealed, as long as there is a
    whole one; after that the newest that the Trainer has completed."""
    assert trial(tmp_path, lambda say: train(tmp_path, say, save_total_limit=None, save_steps=3))[0] == 0
    steps = sorted(int(path.name.removeprefix("checkpoint-")) for path in tmp_path.glob("checkpoint-*"))
    assert steps == [3, 4, 7, 8, 11, 12, 15, 16, 18]  # the Trainer's, and those asked for besides

    def file(step: int, name: str) -> Path:
        return tmp_path / f"checkpoint-{step}" / name

    weights = file(18, "model.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    for name in (NAME, sealing.TRAINER_STATE):
        file(16, name).unlink()
    file(15, NAME).unlink()
    chosen = sealing.newest(str(tmp_path))
    assert chosen is not None and chosen.manifest.step == 12
    assert sorted(Path(item.path).name for item in chosen.skipped) == [f"checkpoint-{step}" for step in (15, 16, 18)]
    for step in steps[:-3]:
        shutil.rmtree(tmp_path / f"checkpoint-{step}")
    chosen = sealing.newest(str(tmp_path))
    assert chosen is not None and (chosen.manifest.step, chosen.manifest.not_captured) == (15, (sealing.UNSEALED,))
    shutil.rmtree(tmp_path / "checkpoint-15")
    with pytest.raises(NoUsableCheckpointError, match=r"model.safetensors: its checksum is"):
        sealing.newest(str(tmp_path))
    assert sealing.newest(str(tmp_path), start_over=True) is None
    shutil.rmtree(tmp_path / "checkpoint-18")
    assert sealing.newest(str(tmp_path)) is None


def test_wrong_arguments() -> None:
    """Are refused."""
    with pytest.raises(ValueError, match="save_secs is -1"):
        SupervisorCallback(save_secs=-1)
    with pytest.raises(RuntimeError, match="Give this callback to a Trainer"):
        SupervisorCallback().resume_from()


class Drawn(torch.utils.data.BatchSampler):
    """Makes batches in a way of its own."""


class Endless(torch.utils.data.Sampler[int]):
    """Has no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(lambda: random.randrange(4), None)


def test_what_the_trainer_does_not_find_again_is_named() -> None:
    """A sampler that is not set to its epoch, or makes batches in a way of its own, a loader's own ``__iter__``,
    batches of rank 0, persistent workers of an evaluation, BatchNorm's statistics of each rank."""
    plain = {
        **{"ignore_data_skip": False, "save_only_model": False, "world_size": 2, "ddp_broadcast_buffers": None},
        **{"dataloader_num_workers": 2, "dataloader_persistent_workers": False, "eval_strategy": "steps"},
    }
    args, state, data = SimpleNamespace(**plain), transformers.TrainerState(), Samples()
    loader = torch.utils.data.DataLoader(data, 4)
    model = torch.nn.BatchNorm1d(4)
    assert hf_data.limits(args, state, loader, model) == ()
    shuffled = torch.utils.data.DataLoader(data, 4, shuffle=True)
    divided = SimpleNamespace(dataset=data, batch_sampler=SimpleNamespace(batch_sampler=shuffled.batch_sampler))
    for each in (shuffled, divided):
        assert hf_data.limits(args, state, each, model) == (hf_data.SAMPLER.format("RandomSampler"),)
    shuffled.sampler.set_epoch = print
    assert hf_data.limits(args, state, divided, model) == ()
    drawn = SimpleNamespace(dataset=data, batch_sampler=Drawn(shuffled.sampler, 4, drop_last=False))
    assert hf_data.limits(args, state, drawn, model) == (hf_data.SAMPLER.format("Drawn"),)
    endless = torch.utils.data.DataLoader(data, 4, sampler=Endless())
    assert hf_data.limits(args, state, endless, model) == (hf_data.SAMPLER.format("Endless"),)
    own = type("Own", (torch.utils.data.DataLoader,), {"__iter__": lambda self: iter(())})(data, 4)
    assert hf_data.limits(args, state, own, model) == (hf_data.LOADER.format("Own"),)
    args.dataloader_persistent_workers = True
    assert hf_data.limits(args, state, loader, model) == (hf_data.EVALUATION_WORKERS,)
    args.ddp_broadcast_buffers, args.eval_strategy = False, "no"
    handed = type("DataLoaderDispatcher", (torch.utils.data.DataLoader,), {})(data, 4)
    assert hf_data.limits(args, state, handed, model) == (hf_data.DISPATCH, BUFFERS)
