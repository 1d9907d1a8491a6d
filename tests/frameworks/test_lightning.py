"""Lightning: an interrupted fit goes on bit by bit, from a checkpoint that Lightning reads, or says by name why not."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trial import PAUSE, Event, Say, at, calls_of, killed_and_resumed, run_of, trial

torch = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks has it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning", reason="lightning is not installed: make test-frameworks has it")
    import torch._dynamo  # which the first optimizer imports: once here, not in each trial
    import torchmetrics
    from lightning.pytorch.plugins.environments import SLURMEnvironment

from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

import supervisor_core.lightning.callback as loggers  # noqa: E402
from supervisor_core.lightning import SupervisorCallback  # noqa: E402

SAMPLES, BATCH, EPOCHS = 45, 8, 3
COMBINED = {
    "torchdata": lambda: stateful_loader()(samples(), BATCH, shuffle=True),
    "two loaders": lambda: [DataLoader(samples(count), BATCH, shuffle=True) for count in (SAMPLES, 2 * BATCH)],
    "drawing": lambda: DataLoader(Stream(draws=True), BATCH),
}


class Stream(IterableDataset[Any]):
    """Samples without a length.

    Args:
        draws: with noise.
    """

    def __init__(self, draws: bool = False) -> None:
        self.draws = draws

    def __iter__(self) -> Iterator[Any]:
        for number, features, label in samples():
            yield number, features + (torch.rand(()) if self.draws else 0.0), label


def samples(count: int = SAMPLES) -> Any:
    """A dataset in memory."""
    features = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(torch.arange(count), features, torch.arange(count) % 2)


def stateful_loader() -> Any:
    """Torchdata's loader, where it is installed."""
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(samples(), BATCH, shuffle=True),
    "two workers": lambda: DataLoader(samples(), BATCH, shuffle=True, num_workers=2),
    "without a length": lambda: DataLoader(Stream(), BATCH),
    "own generator": lambda: DataLoader(samples(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(9)),
}


class Model(lightning.LightningModule):
    """A model with dropout; says the samples and the bits of the loss of each batch that it trains on."""

    def __init__(self, say: Say, event: Event) -> None:
        super().__init__()
        self.say, self.event = say, event
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))

    @property
    def run(self) -> Any:
        """The session."""
        return next(item for item in self.trainer.callbacks if isinstance(item, SupervisorCallback)).run

    def should_stop(self) -> bool:
        """Whether a signal has reached the session."""
        return bool(self.run.should_stop())

    def training_step(self, batch: Any, number: int) -> Any:
        """Say what is trained on."""
        supervisor = next(item for item in self.trainer.callbacks if isinstance(item, SupervisorCallback))
        if self.run.global_step and supervisor.exactness is not None and not self.said:
            self.say(" ".join(("exact", *supervisor.exactness.reasons)))
        self.said = True
        self.run.wait_until_saved()  # so that it is known which checkpoints there are
        self.event(self, self.run.global_step)
        ids, features, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(features), labels)
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.say(f"{self.current_epoch} {number} {self.trainer.global_step} {ids.tolist()} {loss.item().hex()} {rate}")
        return loss

    said = False

    def validation_step(self, batch: Any, number: int) -> None:
        """An evaluation that draws random numbers."""
        torch.rand(1)
        self.log("val", torch.nn.functional.cross_entropy(self.layers(batch[1]), batch[2]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(
    directory: Path,
    say: Say,
    kind: str = "shuffled",
    *,
    event: Event = lambda model, step: None,
    fits: tuple[int, ...] = (EPOCHS,),
    model: type[Model] = Model,
    evaluation: Callable[[], Any] = lambda: DataLoader(samples(), BATCH),
    save_steps: int | None = 4,
    callbacks: tuple[Any, ...] = (),
    **arguments: Any,
) -> None:
    """Train; say the verdict of a resume, then each batch."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    given: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": str(directory),
    }  # fmt: skip
    lightning.seed_everything(7, verbose=False)
    supervisor = SupervisorCallback(directory, save_secs=None, save_steps=save_steps)
    trainer = lightning.Trainer(max_epochs=fits[0], callbacks=[supervisor, *callbacks], **{**given, **arguments})
    module = model(say, event)
    for epochs in fits:
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(module, {**LOADERS, **COMBINED}[kind](), evaluation())
        assert supervisor.run is None
    say("end " + sum(part.double().sum() for part in module.state_dict().values()).item().hex())


@pytest.mark.parametrize("kind", LOADERS)
def test_a_killed_fit_goes_on_bit_by_bit(tmp_path: Path, kind: str) -> None:
    """In the middle of the second epoch: the same samples in the same order, the same bits of each loss, and of the
    model at the end; the same learning rates, numbers of steps and epochs."""
    truth, _, verdict, second = killed_and_resumed(tmp_path, partial(train, kind=kind), at(10, signal.SIGKILL))
    assert verdict == "exact"
    assert len(truth) == 19 and second == truth[8:]


def test_sigterm_saves_the_step_and_the_next_session_goes_on(tmp_path: Path) -> None:
    """The process ends by the signal when the step under way is saved; two sessions have the steps of one. Lightning
    reads the checkpoint."""
    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", say))
    run = tmp_path / "run"
    status, first = trial(tmp_path, lambda say: train(run, say, event=at(8, signal.SIGTERM), save_steps=None))
    assert (status, len(first)) == (-signal.SIGTERM, 9)
    status, (verdict, *second) = trial(tmp_path, lambda say: train(run, say, save_steps=None))
    assert (status, verdict) == (0, "exact") and [*first, *second] == truth
    one, two = run_of(run).sessions
    assert (one.outcome, one.last_step, two.restored_step, two.resume_exact) == ("signal", 9, 9, True)
    assert (two.outcome, two.last_step) == ("completed", 18)
    assert [(item.step, item.trigger) for item in run_of(run).checkpoints] == [(9, "signal"), (18, "final")]
    file = torch.load(run / "checkpoints" / "ckpt-9" / "lightning.ckpt", weights_only=True)
    assert (file["epoch"], file["global_step"], len(file["optimizer_states"])) == (1, 9, 1)


def test_a_step_takes_few_calls(tmp_path: Path) -> None:
    """Where nothing is due: the hook, which counts the step, and before the next fetch the look at what is due."""

    class Measure(lightning.Callback):
        def __init__(self, say: Say, supervisor: SupervisorCallback) -> None:
            self.say, self.supervisor = say, supervisor

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
            if number != 4:  # not a step whose state is noted: after 1, 2, 4 and 8
                return
            (current,) = trainer.fit_loop._data_fetcher.combined_loader._iterator.iterators
            completed = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total

            def step() -> None:
                completed.completed += 1
                self.supervisor.on_train_batch_end(trainer, module, outputs, batch, number)
                current.loader._watch(current)

            self.say(f"{calls_of(step)} {self.supervisor.run.global_step - trainer.global_step}")
            trainer.should_stop = True

    def body(say: Say) -> None:
        supervisor = SupervisorCallback(tmp_path / "run", save_secs=None)
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[supervisor, Measure(say, supervisor)],
        )  # fmt: skip
        warnings.simplefilter("ignore")
        trainer.fit(Model(lambda line: None, lambda run, step: None), DataLoader(samples(), 4))

    assert trial(tmp_path, body)[1] == ["5 0"]


class TwoOptimizers(Model):
    """Two optimizers, stepped by the module itself."""

    def __init__(self, say: Say, event: Event) -> None:
        super().__init__(say, event)
        self.automatic_optimization = False

    def training_step(self, batch: Any, number: int) -> None:
        first, second = self.optimizers()
        loss = super().training_step(batch, number)
        first.zero_grad()
        second.zero_grad()
        self.manual_backward(loss)
        first.step()
        second.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.layers[0].parameters(), lr=0.1, momentum=0.9),
                torch.optim.AdamW(self.layers[2].parameters(), lr=0.01)]  # fmt: skip


class Several(Model):
    """Trains on the batches of several loaders."""

    def training_step(self, batch: Any, number: int) -> Any:
        return super().training_step([torch.cat(column) for column in zip(*batch, strict=True)], number)


class Averages(Model):
    """Says what it has logged and measured over an epoch."""

    def __init__(self, say: Say, event: Event) -> None:
        super().__init__(say, event)
        self.mean, self.all = torchmetrics.MeanMetric(), torchmetrics.CatMetric()

    def training_step(self, batch: Any, number: int) -> Any:
        loss = super().training_step(batch, number)
        self.mean(loss)
        self.all.update(loss)
        self.log_dict({"average": loss, "mean": self.mean}, on_epoch=True, on_step=False)
        self.log("highest", loss, on_epoch=True, on_step=False, reduce_fx="max")
        return loss

    def on_train_epoch_end(self) -> None:
        self.say(f"all {self.all.compute().tolist()}")
        self.all.reset()

    def on_train_epoch_start(self) -> None:
        self.say_values()

    def on_train_end(self) -> None:
        self.say_values()

    def say_values(self) -> None:
        """Say the values of the last epoch."""
        names = [name for name in ("average", "mean", "highest") if name in self.trainer.callback_metrics]
        self.say(" ".join(f"{name} {self.trainer.callback_metrics[name].item().hex()}" for name in names))


def test_the_averages_of_an_epoch_count_the_batches_before_a_resume(tmp_path: Path) -> None:
    """What `self.log` averages, and torchmetrics: the same bits at the end of the interrupted epoch."""
    truth, _, *said = killed_and_resumed(tmp_path, partial(train, model=Averages), at(10, signal.SIGKILL))
    lines = [said[0], *said[1]]
    second = [line for line in lines if line and not line.startswith("exact")]
    assert "exact" in lines and second == truth[-len(second) :]
    assert [line.split()[0] for line in second].count("average") == 2 == [line[:3] for line in second].count("all")


@pytest.mark.parametrize(
    "arguments",
    [
        {"accumulate_grad_batches": 4, "save_steps": 1},  # the last step of an epoch is of two batches
        {"val_check_interval": 2},  # the checkpoint is of the moment after an evaluation
        {"model": TwoOptimizers},
        {"model": Several, "kind": "two loaders"},  # the second one is shorter: it begins more than once in an epoch
        {"evaluation": lambda: DataLoader(samples(), BATCH, num_workers=1, persistent_workers=True)},
        {"kind": "own generator", "save_steps": 6},  # saved between two epochs
    ],
    ids=["accumulation", "evaluation", "two optimizers", "two loaders", "persistent workers", "own generator"],
)
def test_what_a_step_may_be(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Of several batches, followed by an evaluation, of two optimizers, of two loaders: all the same, bit by bit.
    Nothing is saved between the batches of a step."""
    killed = at(3 if "accumulate_grad_batches" in arguments else 10, signal.SIGKILL)
    truth, _, verdict, second = killed_and_resumed(tmp_path, partial(train, **arguments), killed)
    assert (
        verdict == "exact" and len(truth) == 19 and second == truth[len(truth) - len(second) :] and 7 < len(second) < 14
    )


def test_a_second_fit_and_a_run_that_is_over(tmp_path: Path) -> None:
    """A restart goes on in the fit that was under way; where all are over it trains nothing, and has the model."""
    twice = partial(train, fits=(2, 4))
    truth, _, verdict, second = killed_and_resumed(tmp_path, twice, at(16, signal.SIGKILL))
    assert len(truth) == 25 and (verdict, second) == ("exact", truth[16:])
    assert trial(tmp_path, lambda say: twice(tmp_path / "run", say)) == (0, truth[-1:])


def test_the_logger_has_an_experiment_while_fit_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules that call ``self.logger.experiment.add_scalar``: the writer into the run's one events file."""
    monkeypatch.setattr(loggers, "summary_writer", lambda run: ["the writer of", run])
    runs: list[Any] = [None]
    logger = loggers.RunLogger(lambda: runs[-1], str(tmp_path))
    assert logger.experiment is None
    runs.append("a run")
    assert logger.experiment == ["the writer of", "a run"] and logger.experiment is logger.experiment
    runs.append(None)
    assert logger.experiment is None


def test_lightning_does_not_requeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's signal saves after the step, and not in it; the loggers have written everything before the process ends
    by SIGTERM."""
    for name in ("PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    for name in ("NTASKS", "JOB_ID"):
        monkeypatch.setenv(f"SLURM_{name}", "1")

    class Holds(lightning.pytorch.loggers.CSVLogger):
        def finalize(self, status: str) -> None:
            (tmp_path / "finalized").write_text(status)

    def happens(model: Model, step: int) -> None:
        if step == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
            while model.run._due.asked_by is None:  # the signal's thread has noted it
                PAUSE.wait(0.01)
        at(6, signal.SIGTERM)(model, step)

    def body(say: Say) -> None:
        slurm, logger = SLURMEnvironment(auto_requeue=True), Holds(tmp_path / "csv")
        train(tmp_path, say, event=happens, save_steps=None, plugins=[slurm], logger=logger)

    assert trial(tmp_path, body)[0] == -signal.SIGTERM
    assert [(item.step, item.trigger) for item in run_of(tmp_path).checkpoints] == [(3, "signal"), (7, "signal")]
    assert (tmp_path / "finalized").read_text() == "failed" and not list(tmp_path.glob("hpc_ckpt*"))


class Fetches:
    """A module that fetches its batches."""

    def training_step(self, dataloader_iter: Any) -> None: ...


def test_wrong_arguments(tmp_path: Path) -> None:
    """Are refused before anything is written."""
    with pytest.raises(ValueError, match="save_secs is -1"):
        SupervisorCallback(tmp_path, save_secs=-1)
    with pytest.raises(ValueError, match="fetches batches in the middle"):
        SupervisorCallback(tmp_path).setup(SimpleNamespace(fast_dev_run=False, world_size=1), Fetches(), "fit")
    SupervisorCallback(tmp_path).setup(SimpleNamespace(fast_dev_run=True), Fetches(), "fit")
    assert not list(tmp_path.iterdir())


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(samples(), BATCH, shuffle=True),
    "two workers": lambda: DataLoader(samples(), BATCH, shuffle=True, num_workers=2),
    "without a length": lambda: DataLoader(Stream(), BATCH),
    "own generator": lambda: DataLoader(samples(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(9)),
}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_fit_after_an_error_goes_on_in_the_same_process(tmp_path: Path, keeps: bool) -> None:
    """As the cell of a notebook that is run again, with the same trainer or another one: it is the same fit."""
    _, truth = trial(tmp_path, lambda say: train(tmp_path / "truth", say))
    has_failed: list[int] = []

    def fails(model: Model, step: int) -> None:
        if step == 6 and not has_failed:
            has_failed.append(step)
            raise ArithmeticError("the loss exploded")

    def twice(say: Say) -> None:
        try:
            train(tmp_path / "run", say, event=fails)
        except ArithmeticError as error:
            trace = error.__traceback__
            assert trace is not None and trace.tb_next is not None
            found = trace.tb_next.tb_frame.f_locals
        if not keeps:
            train(tmp_path / "run", say)
            return
        module = found["module"]
        module.said = False
        found["trainer"].fit(module, LOADERS["shuffled"](), DataLoader(samples(), BATCH))
        say("end " + sum(part.double().sum() for part in module.state_dict().values()).item().hex())

    status, said = trial(tmp_path, twice)
    assert (status, said[:6], said[6]) == (0, truth[:6], "exact") and said[7:] == truth[4:]


def test_an_error_in_a_step_and_a_requested_stop(tmp_path: Path) -> None:
    """An error is the session's, and nothing is saved. After a request the last step is saved and fit returns. What a
    module logs is in the events file."""

    def happens(model: Model, step: int) -> None:
        model.log("number", float(step))
        if step == 6 and not (tmp_path / "seen").exists():
            (tmp_path / "seen").touch()
            raise ArithmeticError("the loss exploded")
        if step == 9:
            model.run.request_stop()

    body: Callable[[Say], None] = lambda say: train(tmp_path / "run", say, event=happens, log_every_n_steps=1)  # noqa: E731
    assert trial(tmp_path, body)[0] == 1
    status, (verdict, *steps) = trial(tmp_path, body)
    assert (status, verdict, len(steps)) == (0, "exact", 7)
    one, two = run_of(tmp_path / "run").sessions
    assert (one.outcome, one.last_step) == ("error", 6)
    assert one.error.startswith("ArithmeticError at test_lightning.py:")
    assert (two.outcome, two.restored_step, two.last_step) == ("requested", 4, 10)
    assert [item.step for item in run_of(tmp_path / "run").checkpoints] == [4, 8, 10]
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = sorted((tmp_path / "run").glob("events.out.*"))
    events = [event for file in files for event in EventFileLoader(str(file)).Load()]
    found = {value.tag: event.step for event in events for value in event.summary.value}
    assert (found["number"], found["val"]) == (9, 5)
