"""`SupervisorCallback` for the `Trainer` of Hugging Face Transformers."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

from transformers import IntervalStrategy, Trainer, TrainerCallback

from supervisor_core.base.errors import CheckpointError, SupervisorError
from supervisor_core.base.options import Options, refuse_resume_options
from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore
from supervisor_core.engine.timeouts import stop_timeout
from supervisor_core.events.telemetry import Severity
from supervisor_core.storage.local import absolute
from supervisor_core.torch.module_state import ModuleState
from supervisor_core.torch.tensors import structure_of
from supervisor_core.torch.workers import outlive_signals
from supervisor_core.training.in_loop import OpenPhase, notify_in
from supervisor_core.training.ranks import NUMBER
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import Exactness, TrainingState
from supervisor_core.training.step_loop import finished, refuse_again
from supervisor_core.training.values import CARRIED, GENERATOR, OBJECT, Values
from supervisor_core.transformers import data, ranks, sealing
from supervisor_core.transformers.sealing import PREFIX, SealingSaver

_LOG = logging.getLogger("supervisor_core")

LEFT = "An exception left train(), or sys.exit()."
LOOP = "_inner_training_loop"
"""The Trainer's method that `train` calls, again after each batch size that was too large."""
_ADVICE = (
    "Keep it in a buffer of the model, or let the callback be an ExportableState, with "
    "restore_callback_states_from_checkpoint=True."
)
WORDS = {
    CARRIED: f"A step has changed the tensors in {{}}, and they are not captured. {_ADVICE}",
    OBJECT: f"The state of {{}} is not captured. {_ADVICE}",
    GENERATOR: f"The random generator in {{}} is not captured. {_ADVICE}",
}
TRAIN_ONCE = "Call train() once, with num_train_epochs or max_steps for all of them."


class SupervisorCallback(TrainerCallback):
    """Makes each call of ``Trainer.train`` one supervised session: sealed checkpoints, one events file, a clean stop.

    The Trainer saves and loads as it does; each of its checkpoints is then verified and sealed. At SIGTERM it saves the
    step under way, and training ends.

    Args:
        logdir: the run's directory, for the events file. Default: the Trainer's ``output_dir``.
        options: see `supervisor_core.Options`.
        save_secs: seconds after which a checkpoint is saved besides the Trainer's own; None saves none by time.
        save_steps: steps between checkpoints besides the Trainer's own; None saves none by steps.

    Raises:
        ValueError: if an interval is not positive.

    Example:
        supervisor = SupervisorCallback()
        trainer = Trainer(model, args, train_dataset=data, callbacks=[supervisor])
        trainer.train(resume_from_checkpoint=supervisor.resume_from())
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        *,
        options: Options | None = None,
        save_secs: float | None = 600.0,
        save_steps: int | None = None,
    ) -> None:
        self._logdir = None if logdir is None else absolute(logdir)
        self._options = options or Options()
        refuse_resume_options(self._options, "a Trainer")
        self._policy = SavePolicy(save_secs=save_secs, save_steps=save_steps)
        self._args: Any = None
        self._found: Sealed | None = None
        self._saver: SealingSaver | None = None
        self._phase = OpenPhase()
        self._save_began: float | None = None
        self._is_training = False
        self._draws = data.DrawWatch()
        self._modules = ModuleState({})
        self._doubt = 0
        self._epochs = data.EpochSteps()
        self._facts: dict[str, str] = {}
        self._others: tuple[str, ...] = ()
        self._out_of_memory: str | None = None
        """The error after which the Trainer begins its loop again with a smaller batch size."""
        self._is_stopped: Callable[[], object] = bool
        self._is_put_off = self._is_evaluation_skipped = self._looks = self._has_stepped = False
        self._callbacks: list[Any] = []
        self.run: Run | None = None
        """The session under way, or the last one; None before the first."""

    @property
    def exactness(self) -> Exactness | None:
        """Whether the resume was exact; None for a new run."""
        return None if self.run is None else self.run.exactness

    def resume_from(self, output_dir: str | os.PathLike[str] | None = None) -> str | None:
        """Return the newest checkpoint that is sealed and whole, for ``train(resume_from_checkpoint=...)``; None for a
        new run.

        Each is read and compared with its manifest, from the newest back. Where none is sealed, as in a run that was
        begun without this callback, it is the newest that the Trainer has completed. In several processes rank 0
        chooses, and all ranks have to call this.

        Args:
            output_dir: where they are. Default: the ``output_dir`` of the Trainer that this callback was given to.

        Raises:
            NoUsableCheckpointError: if there are sealed checkpoints, and none is whole.
            RanksError: if the processes have other directories, or one of them has ended.
            RuntimeError: if this callback was given to no Trainer.
        """
        if output_dir is None and self._args is None:
            raise RuntimeError("Give this callback to a Trainer before resume_from() is called, or give output_dir.")
        directory = os.fspath(self._args.output_dir if output_dir is None else output_dir)
        start_over = self._options.unusable_checkpoints == "start_over"
        count = int(os.environ.get("WORLD_SIZE") or 1) if self._args is None else self._args.world_size
        if count == 1:
            self._found = sealing.newest(directory, start_over=start_over, trust=self._options.trust_pickled)
        else:
            self._found = ranks.newest(directory, start_over=start_over, trust=self._options.trust_pickled)
        if self._found is not None:
            for item in self._found.skipped:
                _LOG.warning("Skipped the checkpoint %s: %s", item.path, item.reason)
        return None if self._found is None else self._found.path

    def notify(self, text: str, severity: Severity = "warn") -> None:
        """Say something of the run, as a finding, an alert and a message; see `supervisor_core.Run.notify`."""
        notify_in(self.run, text, severity)

    def __enter__(self) -> SupervisorCallback:
        """Return this; an exception in the block is then the session's error."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """End the session that an exception has left open."""
        self._end(error)

    # The Trainer's events, in their order.

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember where the Trainer saves: from now on that is the same directory after ``os.chdir``.

        Raises:
            ValueError: if its processes are not under DistributedDataParallel alone.
        """
        ranks.refuse_split(args, kwargs.get("model"), kwargs.get("optimizer"))
        args.output_dir = absolute(args.output_dir)
        self._args = args
        self._watch_loop()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a session.

        Raises:
            ValueError: if its processes are not under DistributedDataParallel alone, or no step is left and a train()
                of this process came to that end before.
        """
        model = kwargs.get("model")
        ranks.refuse_split(args, model, kwargs.get("optimizer"))
        self._args = args
        self._watch_loop()
        loader = kwargs.get("train_dataloader")
        outlive_signals(loader, stop_timeout(self._options))
        if self._is_training and self._out_of_memory:
            self._begin_again(args, state, loader, model)
            return
        self._end(SupervisorError(self._out_of_memory or LEFT))
        logdir = self._logdir or args.output_dir
        refuse_again(logdir, "steps", state.max_steps, state.global_step, TRAIN_ONCE)
        limits = data.limits(args, state, loader, model)
        self._facts = data.facts(args, state, loader, model)
        restored, skipped = self._restored(args.output_dir, state.global_step)
        self._modules = ModuleState({"model": model})
        if restored is not None and model is not None:
            self._modules.read(restored.path)
        self._draws = draws = data.DrawWatch()
        draws.found = data.DRAWS in limits or (restored is not None and data.DRAWS in restored.manifest.not_captured)
        if state.global_step:
            data.start_workers_unseen(loader)
        self._epochs = data.EpochSteps(None if restored is None else restored.manifest, self._facts)
        if restored is not None:
            saved = restored.manifest
            known = (*saved.not_captured, *limits)
            then = {NUMBER: "1", **saved.facts} if saved.facts else {}  # earlier versions saved in one process only
            restored = replace(restored, manifest=replace(saved, not_captured=known, facts=then))

        training: dict[str, Any] = {
            "sources": lambda: (),
            "facts": lambda: self._facts,
            "limits": lambda: (*data.DOUBTS[self._doubt], *self._others),
            "watched": lambda: {"model": dict(model.named_parameters())} if model is not None else {},
        }
        named: dict[str, Any] = {
            "options": self._options,
            "policy": self._policy,
            "facade": "transformers.SupervisorCallback",
            "saver": partial(
                SealingSaver if args.world_size == 1 else ranks.RanksSealingSaver,
                directory=args.output_dir, restored=restored, skipped=skipped, deletes=bool(args.save_total_limit),
            ),
        }  # fmt: skip
        self._others = ()
        if args.world_size == 1:
            self.run = Run(logdir, state=TrainingState(**training), **named)
            self.run.__enter__()
        else:
            state = ranks.TrainerRanksState(ranks=ranks.known_ranks(), own=(), **training)
            self.run = run = ranks.TrainerRun(logdir, state=state, structure=structure_of(model), **named)
            run.__enter__()
            limits = run.merged(limits)
        assert isinstance(self.run._saver, SealingSaver)
        self._saver = self.run._saver
        self.run.unfinished = LEFT
        self._take_limits(limits)
        self._is_stopped = self.run.stop_probe()
        captured = [model, kwargs.get("optimizer"), kwargs.get("lr_scheduler")]
        stateless = [item for item in self._callbacks if item is not self and not hasattr(item, "state")]
        given = {"model": model, "optimizer": captured[1], "loader": loader}
        given |= {type(item).__name__: item for item in stateless}
        self.run.watch_values(Values(captured, given, words=WORDS))
        self._looks, self._has_stepped = True, False
        self._is_training = self.run.save_point.is_in_step = True  # a step's end asks the Trainer for what is due

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch's order is drawn, and that is not the data's. In one that is resumed Transformers 5.0 draws the
        order of the first epoch: so set its number."""
        sampler = data.samplers_of(kwargs.get("train_dataloader"))[1]
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(int(state.epoch or 0))
        self._draws.reset()
        self._epochs.begin(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The batches of a step are made: see whether that drew random numbers."""
        draws = self._draws
        if draws.before is not None:
            draws.end()
        if self._looks:
            self._look()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Progress: gradients were accumulated."""
        if self.run is not None:
            self.run.moved()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step; ask for what is due, and for the end at a signal."""
        run, saver = self.run, self._saver
        if run is None or saver is None:
            return
        if self._phase.name:  # each step pays for a call
            self._phase.leave()
        run.step()
        self._has_stepped = True
        draws = self._draws
        if draws.skips:
            draws.skips -= 1
        else:
            draws.begin()
        if saver.wanted is not None:
            control.should_save = True
        if control.should_save or control.should_training_stop or self._is_stopped():
            stops = run.should_stop()
            draws.compare()
            evaluates_after = args.eval_strategy == IntervalStrategy.EPOCH and float(state.epoch).is_integer()
            self._is_evaluation_skipped = stops and (control.should_evaluate or evaluates_after)
            self._stop_or_go_on(saver, state, control, stops)
            self._is_put_off = control.should_save and evaluates_after and not stops
            if self._is_put_off:  # an evaluation draws random numbers: a checkpoint before it would not be exact
                control.should_save = False
            if control.should_save:
                self._begin_save(args, state, control)
        if control.should_evaluate:
            draws.close()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save what was put off; and the last step, where training ends for another reason than its number of steps."""
        run, saver = self.run, self._saver
        if run is None or saver is None:
            return
        self._phase.leave()
        self._draws.close()
        self._look()  # the program sets values when the next epoch begins
        said = self._epochs.end(state, control, kwargs.get("train_dataloader"))
        if said is not None:
            run.notify(said)
        control.should_save = control.should_save or self._is_put_off
        self._is_put_off = False
        stops = run.should_stop()
        self._is_evaluation_skipped = stops and control.should_evaluate
        self._stop_or_go_on(saver, state, control, stops)
        self._begin_save(args, state, control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Be in the phase of evaluation."""
        if self.run is not None and self._is_training:
            self._phase.enter(self.run, "evaluating")
            self.run.moved()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The evaluation has ended."""
        saver = self._saver
        if self._is_training and saver is not None:
            self._phase.leave()
            may_save = args.save_strategy == "best" and not saver.is_saved(state.global_step)
            self._begin_save(args, state, control, may_save=may_save)
            self._draws.begin()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write the logs' numbers into the run's events file, under the tags that TensorBoard shows for a Trainer. The
        loss that it logs as it ends is a mean over the session's own steps, and not compared with another session's."""
        if self.run is None or not self._is_training:
            return
        ends = "train_runtime" in (logs or {})
        for name, value in (logs or {}).items():
            if isinstance(value, (int, float)) and not (ends and name == "train_loss"):
                group, _, rest = name.partition("_")
                self.run.log(f"{group}/{rest}" if group in ("eval", "test") and rest else f"train/{name}", value)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seal what the Trainer has saved."""
        saver = self._saver
        if saver is None or self.run is None or not self._is_training:
            return
        self._doubt = self._draws.doubt
        if args.process_index == 0 and kwargs.get("model") is not None:
            self._modules.write(saver.path(state.global_step))
        if isinstance(self.run, ranks.TrainerRun):
            self._doubt = self.run.meet_at_save(self._doubt)
        self._phase.leave()
        trigger, saver.wanted = saver.wanted or "timer", None
        if self.run.should_stop():
            trigger = "signal"
        elif control.should_training_stop:
            trigger = "final"
        limits = (data.NO_EVALUATION,) if self._is_evaluation_skipped else ()
        began, self._save_began = self._save_began, None
        if began is None:  # a callback after this one asked for it
            session = self.run.run_status().session
            moved_at = None if session is None else session.last_progress_at
            blocked_secs = 0.0 if moved_at is None else max(0.0, time.time() - moved_at)
        else:
            blocked_secs = time.monotonic() - began
        saver.written(state.global_step, self._epochs.counters(state.epoch or 0.0), trigger, blocked_secs, limits)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the session; after a signal, the process ends as the signal would have ended it."""
        finished(self._logdir or args.output_dir, "steps", state.max_steps, state.global_step)
        self._end(None)

    # How it works inside.

    def _look(self) -> None:
        if self._looks and self._has_stepped and self.run is not None:
            self._looks, self._has_stepped = self.run.first_step_ended(), False

    def _watch_loop(self) -> None:
        """See the exceptions that end the Trainer's loop, which callbacks do not: find the Trainer that calls."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not _has(frame.f_locals.get("self"), self):
            frame = frame.f_back
        if frame is None:
            return
        trainer = frame.f_locals["self"]
        self._callbacks = trainer.callback_handler.callbacks
        if LOOP in vars(trainer):
            return
        loop, reference = getattr(type(trainer), LOOP, None), weakref.ref(trainer)
        if loop is None:
            return  # a Trainer with a loop of its own

        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return loop(reference(), *args, **kwargs)
            except BaseException as error:
                self._loop_failed(error)
                raise

        watched.__signature__ = inspect.signature(getattr(trainer, LOOP))  # type: ignore[attr-defined]
        setattr(trainer, LOOP, watched)

    def _loop_failed(self, error: BaseException) -> None:
        if self.run is None or not self._is_training:
            return
        from accelerate.utils.memory import should_reduce_batch_size

        if self._args.auto_find_batch_size and isinstance(error, Exception) and should_reduce_batch_size(error):
            # Without the exception: its frames keep the memory.
            self._out_of_memory = self.run.unfinished = self.run.describe(error)
        else:
            # The Trainer has not saved its last step: no clean end.
            self._end(SupervisorError(LEFT) if isinstance(error, SystemExit) and not error.code else error)

    def _begin_again(self, args: Any, state: Any, loader: Any, model: Any) -> None:
        """The Trainer was out of memory, and begins its loop again with a smaller batch size, in the same session."""
        run, saver, error = self.run, self._saver, self._out_of_memory
        assert run is not None and saver is not None
        run.notify(f"The Trainer was out of memory and goes on with a smaller batch size. {error}", "info")
        self._out_of_memory, run.unfinished = None, LEFT
        self._phase.leave()
        self._facts, limits = data.facts(args, state, loader, model), data.limits(args, state, loader, model)
        self._take_limits(run.merged(limits) if isinstance(run, ranks.TrainerRun) else limits)
        self._draws.reset()
        self._epochs = data.EpochSteps()
        self._is_put_off, self._save_began, saver.wanted = False, None, None
        run.began_again(state.global_step)

    def _take_limits(self, limits: tuple[str, ...]) -> None:
        self._draws.found |= data.DRAWS in limits
        self._others = tuple(text for text in limits if text != data.DRAWS)

    def _restored(self, directory: str, step: int) -> tuple[Sealed | None, tuple[Skipped, ...]]:
        """Return the checkpoint that the Trainer has restored, and what was skipped; None where it begins at step 0."""
        found, self._found = self._found, None
        if found is not None and found.manifest.step == step:
            return found, found.skipped
        path = os.path.join(directory, f"{PREFIX}{step}")
        if not step:
            if self._args.process_index == 0 and SealedStore(directory, PREFIX).candidates():
                _LOG.warning("There are checkpoints in %s, and train() was called without resume_from_checkpoint="
                             "supervisor.resume_from(): this session begins at step 0.", directory)  # fmt: skip
            return None, ()
        try:
            manifest = read_manifest(path)
        except CheckpointError:
            manifest = sealing.unsealed(path, step)
        manifest = replace(manifest, not_captured=(*manifest.not_captured, sealing.UNKNOWN))
        return Sealed(path=path, manifest=manifest), ()

    def _stop_or_go_on(self, saver: SealingSaver, state: Any, control: Any, stops: bool) -> None:
        if stops:
            control.should_training_stop = True
            control.should_evaluate = False
        if control.should_training_stop and self._options.save_on_stop:
            control.should_save = True
        if saver.is_saved(state.global_step):
            control.should_save = False

    def _begin_save(self, args: Any, state: Any, control: Any, *, may_save: bool = False) -> None:
        """The Trainer is about to save, unless it evaluates first; or it may, which it decides after this."""
        saver, run = self._saver, self.run
        self._save_began = time.monotonic() if control.should_save else None
        if saver is None or run is None or control.should_evaluate or not (control.should_save or may_save):
            return
        if control.should_save:
            self._phase.enter(run, "checkpointing")
        saver.wait_until_saved()  # so that it deletes none that is being sealed
        is_clear = args.process_index != 0 or sealing.clear_the_way(args.output_dir, state.global_step)
        if isinstance(run, ranks.TrainerRun):  # no rank writes before rank 0 has looked
            is_clear = run.ranks.announce(is_clear)
        if not is_clear:
            control.should_save, self._save_began = False, None

    def _end(self, error: BaseException | None) -> None:
        if self._is_training and self.run is not None:
            self._phase.leave()
            self._is_training = self.run.save_point.is_in_step = False
            self._out_of_memory = None
            self.run.__exit__(None if error is None else type(error), error, None)


def _has(trainer: Any, callback: SupervisorCallback) -> bool:
    return isinstance(trainer, Trainer) and callback in trainer.callback_handler.callbacks
