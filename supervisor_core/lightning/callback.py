"""`SupervisorCallback` for the `Trainer` of Lightning."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from lightning.fabric.utilities.data import _auto_add_worker_init_fn
from lightning.pytorch import Callback, callbacks
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

from supervisor_core.base.options import Options
from supervisor_core.engine.timeouts import stop_timeout
from supervisor_core.lightning.checkpoint import (
    TRAINER,
    CheckpointFile,
    EpochMetrics,
    LightningState,
    clear_restart,
    loops_of,
    require_parts,
)
from supervisor_core.lightning.loaders import LoaderStates, Pass, SupervisedLoader, facts_of
from supervisor_core.lightning.ranks import (
    FitRanksState,
    launcher_waits,
    let_ranks_end,
    limits_of,
    module_of,
    refuse_strategy,
)
from supervisor_core.torch.module_state import NAME, ModuleState
from supervisor_core.torch.ranks import present_ranks
from supervisor_core.torch.shards import refuse_split
from supervisor_core.torch.tensors import KINDS, random_sources, structure_of
from supervisor_core.torch.workers import outlive_signals
from supervisor_core.torch.writer import summary_writer
from supervisor_core.training import random_state
from supervisor_core.training.distributed_run import DistributedRun
from supervisor_core.training.in_loop import FitSessions
from supervisor_core.training.position import Accumulated, FitNumber, OfThisFit
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import DATA, TrainingState
from supervisor_core.training.values import CARRIED, GENERATOR, OBJECT, Values

_LOG = logging.getLogger("supervisor_core")

_ADVICE = "Keep it in a buffer of the model, or give the callback state_dict() and load_state_dict()."
WORDS = {
    CARRIED: f"A step has changed the tensors in {{}}, and they are not captured. {_ADVICE}",
    OBJECT: f"The state of {{}} is not captured. {_ADVICE}",
    GENERATOR: f"The random generator in {{}} is not captured. {_ADVICE}",
}

METRICS = "metrics"
"""The name of the state of the epoch's metrics."""


class SupervisorCallback(FitSessions, Callback):  # type: ignore[misc]
    """Makes each ``Trainer.fit`` one supervised session of a run.

    It resumes from the newest whole checkpoint in the middle of an epoch, saves in the background, and stops between
    two batches at SIGTERM. A step is a batch after which an optimizer has stepped; nothing is saved after batches whose
    gradients are only accumulated.

    Where a program calls ``fit`` more than once with the same logdir, a restart goes on in the one that was under way;
    those before it return without training.

    In several processes (``strategy="ddp"``) rank 0 writes and saves, and all ranks stop after the same step.

    Args:
        logdir: the run's directory, on a local or mounted file system.
        options: see `supervisor_core.Options`.
        save_secs: seconds between checkpoints; None saves none by time.
        save_steps: steps between checkpoints; None saves none by steps.
        max_to_keep: the number of checkpoints to keep; None keeps all.
        keep_every_n_hours: keep one checkpoint of each such period besides; None keeps none.
        replay: on a resume load the consumed batches again and drop them, for datasets that draw random numbers in the
            loader's workers; it takes as long as loading them took.

    Raises:
        ValueError: if an interval is not positive; and in ``fit`` with several processes that are not those of
            DistributedDataParallel, or where ``training_step`` fetches its batches itself.

    Example:
        trainer = Trainer(max_epochs=3, callbacks=[SupervisorCallback("/runs/mnist")])
        trainer.fit(model, loader)
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        options: Options | None = None,
        save_secs: float | None = 600.0,
        save_steps: int | None = None,
        max_to_keep: int | None = 5,
        keep_every_n_hours: float | None = None,
        replay: bool = False,
    ) -> None:
        policy = SavePolicy(save_secs, save_steps, max_to_keep, keep_every_n_hours)
        super().__init__(logdir, options, policy)
        self._replay = replay
        self._trainer: Any = None
        self._data: LoaderStates
        self._state: LightningState
        self._random: dict[str, Any] | None = None
        self._fit = FitNumber()
        self._facts: dict[str, str] = {}
        self._of_ranks: tuple[str, ...] = ()
        self._limit_train_batches: Any = None
        self._last_step = 0
        self._accumulated = Accumulated()
        self._only: Pass | None = None
        """The training's pass over its only loader, from its first fetch to the end of the epoch."""
        self._counters: tuple[Any, Any, Any]
        self._is_stopped: Callable[[], object] = bool
        self._exit: type[Exception]
        self._is_training = self._is_probed = self._looks = self._has_stepped = False

    # What Lightning calls, in this order.

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Be there when Lightning restores, sets up the training's loaders, and takes signals."""
        if stage != "fit" or trainer.fast_dev_run:
            return
        refuse_strategy(trainer)
        if is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True):
            raise ValueError("training_step(dataloader_iter) fetches batches in the middle of a step, so the position "
                             "in the data is not known: use training_step(batch).")  # fmt: skip
        require_parts(trainer)
        self._reset()
        self._trainer, self._exit = trainer, module_of(trainer, "utilities.exceptions")._TunerExitException
        process = trainer.strategy.process_dataloader

        def wrapped(loader: Any) -> Any:
            loader = process(loader)
            _auto_add_worker_init_fn(loader, trainer.global_rank)  # Lightning does after this, where there is none
            outlive_signals(loader, stop_timeout(self._options))
            if not trainer.training:
                return loader
            return SupervisedLoader(loader, self._before_fetch, replay=self._replay, ranks=trainer.world_size)

        trainer.strategy.process_dataloader = wrapped
        register = trainer._signal_connector.register_signal_handlers

        def registered() -> None:
            before = {signum: signal.getsignal(signum) for signum in signal.Signals}
            register()
            self._take_back(before)

        trainer._signal_connector.register_signal_handlers = registered
        start = trainer._checkpoint_connector.resume_start

        def started(path: Any = None, *args: Any, **named: Any) -> None:
            self._begin(trainer)
            start(self._state.path or path, *args, **named)  # which loads what `hand_over` has

        trainer._checkpoint_connector.resume_start = started

    def _begin(self, trainer: Any) -> None:
        """Begin the session where Lightning is about to restore: of a checkpoint it restores everything, in its own
        order. The verdict has to wait for the loaders (`_restore`)."""
        self._fit = fit = FitNumber.next(self.logdir)
        size = trainer.world_size
        self._data = LoaderStates(
            fit, self._loaders, lambda: trainer.fit_loop.epoch_progress.current.processed, self.notify, ranks=size
        )
        self._state, self._metrics, self._is_probed = LightningState(fit, trainer), EpochMetrics(trainer), False
        run = self._new_run(trainer)
        run.when_recorded = lambda: _ends(run, trainer)
        run.save_point.moment = nullcontext  # Lightning's loops can be captured between two batches only
        run.begin()
        self._run = run
        run.save_point.is_in_step = True  # until the moment between two batches
        trainer.loggers = [*trainer.loggers, RunLogger(lambda: self._run, trainer.default_root_dir)]
        if run.read_tree is None:
            self._restore()
        else:
            run.change_structure({"objects": self._state.hand_over(run.read_tree)})

    def _restore(self) -> None:
        """Restore what is not Lightning's, and record the verdict."""
        run = self._run
        assert run is not None
        run.restore()
        self._is_stopped = run.stop_probe()
        self._random = random_state.capture(random_sources()) if self._fit.is_this else None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Have a ``fit`` that is over train nothing."""
        if self._run is None:
            return
        if isinstance(self._run, DistributedRun):
            for optimizer in trainer.optimizers:
                refuse_split(optimizer)
        fit = self._fit
        if fit.is_later or (fit.is_this and self._state.is_over and self._state.should_stop):
            trainer.fit_loop.setup_data()  # the verdict has to know the loaders
            self._know_loaders()
            self._limit_train_batches, trainer.limit_train_batches = trainer.limit_train_batches, 0

    def _know_loaders(self) -> None:
        """Give the verdict: the loaders are set up, and the model is where it trains."""
        run, trainer = self._run, self._trainer
        if run is None or self._facts:
            return
        self._facts, self._of_ranks = facts_of(trainer, self._loaders()), limits_of(trainer)
        if run.read_tree is None:
            run.state.probe()
        else:
            self._restore()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the first evaluation."""
        self._begin_phase()

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """End it."""
        self._phase.leave()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Have training begin where it stood."""
        if self._run is None:
            return
        self._know_loaders()
        self._data.set_positions()
        self._counters = _counters_of(trainer.fit_loop.epoch_loop)
        self._last_step, self._accumulated.count = self._optimizer_steps, 0
        if self._fit.is_this and (self._is_data_over or not self._state.is_over):
            for loop in loops_of(trainer.fit_loop.epoch_loop):
                clear_restart(loop)  # the first fetch of the epoch brings it to where it stood
            self._state.start_workers()
        self._is_training = self._looks = True
        self._has_stepped = False
        iter(trainer.fit_loop._data_fetcher)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the step, if an optimizer has stepped."""
        run = self._run
        if run is None:
            return
        if self._metrics.logged:
            self._metrics.add_logged()
        automatic, manual, batches = self._counters
        if self._only is not None:
            self._only.loader.position.batch = batches.ready
        step = automatic.completed + manual.completed
        if step != self._last_step:
            self._last_step = step
            if self._accumulated.count:  # each step pays for a call
                self._accumulated.stepped()
            run.count_step()
            self._has_stepped = True
            if not self._is_probed:
                self._is_probed = True
                self._state.probe()
        else:
            self._accumulated.add()
            run.moved()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an evaluation."""
        self._begin_phase()

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        """Progress."""
        if self._run is not None:
            self._run.moved()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End an evaluation."""
        self._phase.leave()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Complete the averages of the epoch."""
        if self._run is not None:
            self._metrics.add_logged()
            if self._looks and self._is_training:  # the program sets values when the next epoch begins
                self._look(self._run)
        self._only = None  # and its workers

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the session: save the last step, write the stop record."""
        if self._run is not None:
            self._state.is_over = True
            if self._is_data_over:
                self._data.end_epoch()
            self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the session with the error."""
        self._end(exception)
        self._reset()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the session of a ``fit`` that had nothing to do."""
        if stage == "fit":
            self._know_loaders()
            if self._run is not None and self._fit.is_this and self._state.is_over:
                _complete_averages(trainer, pl_module)
            self._end(None)
            self._reset()

    # How it works inside.

    def _new_run(self, trainer: Any) -> Run:
        training: dict[str, Any] = {
            "objects": {
                DATA: self._data,
                TRAINER: self._state,
                METRICS: OfThisFit(self._fit, self._metrics),
                NAME: OfThisFit(self._fit, ModuleState({"model": trainer.lightning_module})),
            },
            "sources": lambda: self._fit.sources(random_sources),
            "kinds": (*KINDS, CheckpointFile(trust=self._options.trust_pickled)),
            "facts": lambda: self._facts,
            "limits": lambda: (*self._data.limits, *self._accumulated.limits, *self._of_ranks),
            "watched": lambda: {"model": dict(trainer.lightning_module.named_parameters())},
        }
        named: dict[str, Any] = {
            "options": self._options,
            "policy": self._policy,
            "facade": "lightning.SupervisorCallback",
        }
        ranks = present_ranks() if trainer.world_size > 1 else None
        if ranks is None:
            return Run(self.logdir, state=TrainingState(**training), **named)
        return DistributedRun(
            self.logdir,
            state=FitRanksState(ranks=ranks, own=(DATA, METRICS), trainer=self._state, **training),
            structure=structure_of(trainer.lightning_module),
            **named,
        )

    def _loaders(self) -> list[SupervisedLoader]:
        combined = self._trainer.fit_loop._combined_loader
        return [] if combined is None else [item for item in combined.flattened if isinstance(item, SupervisedLoader)]

    def _before_fetch(self, current: Pass) -> bool:
        """A batch is about to be fetched. Return whether the training fetches it, and not another's loop."""
        run = self._run
        if self._looks and self._is_training and run is not None:
            self._look(run)
        if current is self._only and run is not None:
            if self._accumulated.count or self._random is not None or self._is_stopped():
                self._between_batches()
            else:
                run.save_if_due()
                if self._is_stopped():  # several ranks agree on it in there
                    self._between_batches()
            return True
        if not self._is_training:
            return False
        fetcher = self._trainer.fit_loop._data_fetcher
        passes = fetcher.combined_loader._iterator.iterators
        if all(item is not current for item in passes):
            return False
        ahead = fetcher.length is None
        self._data.before_fetch(passes, ahead=ahead)
        if current is passes[0] and (current.fetched or not ahead):
            self._between_batches()
        self._only = current if len(passes) == 1 else None
        return True

    def _look(self, run: Run) -> None:
        if run.state.values is None:
            run.watch_values(_values_of(self._trainer, self._loaders()), compares=self._fit.is_this)
        elif self._has_stepped:
            self._looks, self._has_stepped = run.first_step_ended(), False

    def _between_batches(self) -> None:
        run = self._run
        if run is None:
            return
        if self._random is not None:
            self._resumed()
        if not self._accumulated.count and not self._is_stopped():
            run.save_if_due()
        if self._is_stopped() and not self._is_accumulating:
            self._end(None)  # after a signal the process ends here
            raise self._exit  # with which fit returns, without the hooks of an epoch's end

    def _resumed(self) -> None:
        """Training stands where it stood when it was saved: set what has changed on the way here."""
        states, self._random = self._random, None
        assert states is not None
        for loader in self._loaders():
            loader.resume = None
        if not self._state.is_over:
            self._state.set_loops()
            self._metrics.set_module()
            batches = self._counters[2]
            if (present := self._data.present_batch(batches.ready)) != batches.ready:
                for name in ("ready", "started", "processed", "completed"):
                    setattr(batches, name, present)
            self._trainer.fit_loop._data_fetcher.fetched = batches.ready
            self._last_step = self._optimizer_steps
        random_state.restore(random_sources(), states)

    @property
    def _is_accumulating(self) -> bool:
        """Whether gradients are accumulated. With manual optimization it is not known where more batches than ever
        made no step."""
        if not self._accumulated.count:
            return False
        return self._trainer.lightning_module.automatic_optimization or not self._accumulated.is_longest

    @property
    def _is_data_over(self) -> bool:
        """Whether the last batch was the last one of its epoch."""
        return bool(self._trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)

    @property
    def _optimizer_steps(self) -> int:
        return int(self._counters[0].completed + self._counters[1].completed)

    def _take_back(self, handlers: Mapping[signal.Signals, Any]) -> None:
        """Remove Lightning's handlers: SIGTERM's raises an exception before the hooks of the step have ended, Slurm's
        saves in the middle of one."""
        run = self._run
        if run is None or threading.current_thread() is not threading.main_thread():
            return
        for signum, earlier in handlers.items():
            if signal.getsignal(signum) is earlier:
                continue
            if signum != signal.SIGTERM and earlier == signal.SIG_DFL:  # it would end the process
                _LOG.warning("Lightning does not requeue this job of Slurm: %s saves a checkpoint. Submit the job "
                             "with --requeue.", signal.Signals(signum).name)  # fmt: skip
                signal.signal(signum, lambda *_: run.ask_for_save("signal"))
            else:
                signal.signal(signum, earlier)

    def _begin_phase(self) -> None:
        if self._run is not None:
            self._phase.enter(self._run, "evaluating")

    def _end(self, error: BaseException | None) -> None:
        self._phase.leave()
        run, self._run, self._is_training, self._only = self._run, None, False, None
        if run is not None:
            run.save_point.is_in_step = False
            with launcher_waits():
                run.__exit__(None if error is None else type(error), error, None)
            self._exactness = run.exactness
            self._fit.has_returned = error is None

    def _reset(self) -> None:
        trainer, self._trainer, self._facts = self._trainer, None, {}
        if trainer is None:
            return
        vars(trainer.strategy).pop("process_dataloader", None)
        vars(trainer._signal_connector).pop("register_signal_handlers", None)
        vars(trainer._checkpoint_connector).pop("resume_start", None)
        trainer.loggers = [item for item in trainer.loggers if not isinstance(item, RunLogger)]
        if self._limit_train_batches is not None:
            trainer.limit_train_batches, self._limit_train_batches = self._limit_train_batches, None


def _complete_averages(trainer: Any, module: Any) -> None:
    """A completed ``fit`` is not gone on with, so Lightning ends no training: have the model get the averages that its
    checkpoint, which is saved before a callback after ours gives it them, does not have."""
    kind = getattr(callbacks, "WeightAveraging", ())  # from Lightning 2.6 on
    for item in trainer.callbacks:
        if isinstance(item, kind):
            item.on_train_end(trainer, module)


def _values_of(trainer: Any, loaders: list[SupervisedLoader]) -> Values:
    """Return what compares what a ``fit`` keeps in the model, the data, and callbacks without a state of their own."""
    own = [item for item in trainer.callbacks if not isinstance(item, SupervisorCallback)]
    hooks = ("state_dict", "on_save_checkpoint")
    stateless = [item for item in own if all(getattr(type(item), name) is getattr(Callback, name) for name in hooks)]
    schedulers = [item.scheduler for item in trainer.lr_scheduler_configs]
    model, optimizers = trainer.lightning_module, trainer.optimizers
    given = {"model": model, **{f"optimizers[{number}]": item for number, item in enumerate(optimizers)}}
    given |= {f"loader{number or ''}": item._inner for number, item in enumerate(loaders)}
    given |= {type(item).__name__: item for item in stateless}
    return Values((model, *optimizers, *schedulers, *set(own).difference(stateless)), given, words=WORDS)


def _ends(run: Run, trainer: Any) -> None:
    """Everything is saved and recorded; after a signal the process, or the program's call of ``fit``, ends now."""
    if run.stop_signal is None:
        return
    let_ranks_end()
    if run.stop_signal != "SIGTERM":
        return  # fit raises, and Lightning has its loggers write what they hold
    for logger in trainer.loggers:
        with suppress(Exception):  # what it holds is lost, and no more than that
            logger.finalize("failed")


def _counters_of(loop: Any) -> tuple[Any, Any, Any]:
    """Return the counters of the optimizers' steps, of both kinds of optimization, and of the batches. Each is one
    object as long as its loop; `Trainer.global_step` reads them through a dozen properties."""
    automatic = loop.automatic_optimization.optim_progress.optimizer.step.total
    return automatic, loop.manual_optimization.optim_step_progress.total, loop.batch_progress.current


class RunLogger(Logger):
    """A logger of Lightning's that writes the logged numbers as scalars of the run.

    Args:
        run: returns the session under way; None writes nothing.
        save_dir: the trainer's directory, for its other parts that ask its loggers.
    """

    def __init__(self, run: Callable[[], Run | None], save_dir: str) -> None:
        super().__init__()
        self._run = run
        self._save_dir = save_dir
        self._experiment: Any = None

    @property
    def experiment(self) -> Any:
        """A ``torch.utils.tensorboard.SummaryWriter`` that writes into the run's one events file, for modules that call
        ``self.logger.experiment.add_scalar(...)``. None outside ``fit``."""
        run = self._run()
        if self._experiment is None and run is not None:
            self._experiment = summary_writer(run)
        return self._experiment if run is not None else None

    @property
    def name(self) -> str:
        """A logger of Lightning's has a name."""
        return "supervisor"

    @property
    def version(self) -> str:
        """And a version."""
        return ""

    @property
    def save_dir(self) -> str:
        """See the class."""
        return self._save_dir

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers, at Lightning's number of the step."""
        run = self._run()
        if run is not None:
            run.log(metrics, step=step)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """They are in the checkpoint."""
