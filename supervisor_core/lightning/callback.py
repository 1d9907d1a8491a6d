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
from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.trainer.connectors.signal_connector import _HandlersCompose
from lightning.pytorch.utilities.exceptions import _TunerExitException
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

from supervisor_core.base.options import Options
from supervisor_core.engine.timeouts import stop_timeout
from supervisor_core.lightning.checkpoint import CheckpointFile, EpochMetrics, LightningState, clear_restart, loops_of
from supervisor_core.lightning.loaders import LoaderStates, Pass, SupervisedLoader, facts_of
from supervisor_core.lightning.ranks import (
    FitRanksState,
    launcher_waits,
    let_ranks_end,
    limits_of,
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

_LOG = logging.getLogger("supervisor_core")

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
        self._before_ahead: dict[str, Any] | None = None
        """The random states before Lightning fetched ahead of a loader without a length: that pass is begun again."""
        self._fit = FitNumber()
        self._limit_train_batches: Any = None
        self._last_step = 0
        self._accumulated = Accumulated()
        self._only: Pass | None = None
        """The training's pass over its only loader, from its first fetch to the end of the epoch."""
        self._counters: tuple[Any, Any, Any]
        self._is_stopped: Callable[[], object] = bool
        self._is_training = self._is_probed = False

    # What Lightning calls, in this order.

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Be there when the training's loaders are set up."""
        if stage != "fit" or trainer.fast_dev_run:
            return
        refuse_strategy(trainer)
        if is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True):
            raise ValueError("training_step(dataloader_iter) fetches batches in the middle of a step, so the position "
                             "in the data is not known: use training_step(batch).")  # fmt: skip
        self._reset()
        self._trainer = trainer
        process = trainer.strategy.process_dataloader

        def wrapped(loader: Any) -> Any:
            loader = process(loader)
            _auto_add_worker_init_fn(loader, trainer.global_rank)  # Lightning does after this, where there is none
            outlive_signals(loader, stop_timeout(self._options))
            if not trainer.training:
                return loader
            return SupervisedLoader(loader, self._before_fetch, replay=self._replay, ranks=trainer.world_size)

        trainer.strategy.process_dataloader = wrapped
        connector = trainer._signal_connector
        register = connector.register_signal_handlers

        def registered() -> None:
            register()
            self._take_signals_back()

        connector.register_signal_handlers = registered

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the session, and restore."""
        if self._trainer is None:
            return
        trainer.fit_loop.setup_data()  # the verdict on a resume has to know the loaders
        if self._before_ahead is not None:
            random_state.restore(random_sources(), self._before_ahead)
        self._fit = fit = FitNumber.next(self.logdir)
        size = trainer.world_size
        self._data = LoaderStates(
            fit, self._loaders, lambda: trainer.fit_loop.epoch_progress.current.processed, ranks=size
        )
        self._state, self._metrics, self._is_probed = LightningState(trainer), EpochMetrics(trainer), False
        run = self._new_run(trainer)
        run.when_recorded = lambda: _ends(run, trainer)
        run.save_point.moment = nullcontext  # Lightning's loops can be captured between two batches only
        run.__enter__()
        self._run, self._exactness, self._is_stopped = run, run.exactness, run.stop_probe()
        trainer.loggers = [*trainer.loggers, RunLogger(lambda: self._run, trainer.default_root_dir)]
        self._random = random_state.capture(random_sources()) if fit.is_this else None
        if fit.is_later or (fit.is_this and self._state.is_over and self._state.should_stop):
            self._limit_train_batches, trainer.limit_train_batches = trainer.limit_train_batches, 0

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
        self._data.set_positions()
        self._counters = _counters_of(trainer.fit_loop.epoch_loop)
        self._last_step, self._accumulated.count = self._optimizer_steps, 0
        if self._fit.is_this and not self._state.is_over:
            for loop in loops_of(trainer.fit_loop.epoch_loop):
                clear_restart(loop)  # the first fetch of the epoch brings it to where it stood
            self._state.start_workers()
        self._is_training = self._run.save_point.is_in_step = True  # until the moment between two batches
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
        self._only = None  # and its workers

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the session: save the last step, write the stop record."""
        if self._run is not None:
            self._state.is_over = True
            self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the session with the error."""
        self._end(exception)
        self._reset()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the session of a ``fit`` that had nothing to do."""
        if stage == "fit":
            self._end(None)
            self._reset()

    # How it works inside.

    def _new_run(self, trainer: Any) -> Run:
        facts = facts_of(trainer, self._loaders())
        of_ranks = limits_of(trainer)
        training: dict[str, Any] = {
            "objects": {
                DATA: self._data,
                "trainer": OfThisFit(self._fit, self._state),
                METRICS: OfThisFit(self._fit, self._metrics),
                NAME: OfThisFit(self._fit, ModuleState({"model": trainer.lightning_module})),
            },
            "sources": lambda: self._fit.sources(random_sources),
            "kinds": (*KINDS, CheckpointFile(trust=self._options.trust_pickled)),
            "facts": lambda: facts,
            "limits": lambda: (*self._data.limits, *self._accumulated.limits, *of_ranks),
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
        for optimizer in trainer.optimizers:
            refuse_split(optimizer)
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
        if current is self._only and run is not None:
            if self._accumulated.count or self._random is not None or self._is_stopped():
                self._between_batches()
            else:
                run.save_if_due()
                if self._is_stopped():  # several ranks agree on it in there
                    self._between_batches()
            return True
        if not self._is_training:
            if run is None and self._before_ahead is None:
                self._before_ahead = random_state.capture(random_sources())
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
            raise _TunerExitException  # with which fit returns, without the hooks of an epoch's end

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
    def _optimizer_steps(self) -> int:
        return int(self._counters[0].completed + self._counters[1].completed)

    def _take_signals_back(self) -> None:
        """Remove Lightning's handlers: SIGTERM's raises an exception before the hooks of the step have ended, Slurm's
        saves in the middle of one."""
        run = self._run
        if run is None or threading.current_thread() is not threading.main_thread():
            return
        connector = self._trainer._signal_connector
        for signum, earlier in connector._original_handlers.items():
            if not isinstance(signal.getsignal(signum), _HandlersCompose):
                continue
            if signum != signal.SIGTERM and earlier == signal.SIG_DFL:  # it would end the process
                _LOG.warning("Lightning does not requeue this job of Slurm: %s saves a checkpoint. Submit the job "
                             "with --requeue.", signal.Signals(signum).name)  # fmt: skip
                signal.signal(signum, lambda *_: run.ask_for_save("signal"))
            else:
                signal.signal(signum, earlier)
        connector.received_sigterm = False

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
            self._fit.has_returned = error is None

    def _reset(self) -> None:
        trainer, self._trainer, self._before_ahead = self._trainer, None, None
        if trainer is None:
            return
        vars(trainer.strategy).pop("process_dataloader", None)
        vars(trainer._signal_connector).pop("register_signal_handlers", None)
        trainer.loggers = [item for item in trainer.loggers if not isinstance(item, RunLogger)]
        if self._limit_train_batches is not None:
            trainer.limit_train_batches, self._limit_train_batches = self._limit_train_batches, None


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
