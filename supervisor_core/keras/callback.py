"""`SupervisorCallback`: a ``model.fit`` as one supervised session of a run."""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import keras

from supervisor_core.base.options import Options
from supervisor_core.keras.fit_call import FitCall, fit_call
from supervisor_core.keras.state import (
    FitPosition,
    ModelVariables,
    Siblings,
    facts_of,
    metrics_of,
    random_sources,
    sync,
    watched,
)
from supervisor_core.training import random_state
from supervisor_core.training.in_loop import FitSessions, last_of_epoch
from supervisor_core.training.position import FitNumber, OfThisFit
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import DATA, TrainingState
from supervisor_core.training.values import Values


class SupervisorCallback(FitSessions, keras.callbacks.Callback):  # type: ignore[misc]
    """Makes each ``fit`` one supervised session of a run.

    It resumes from the newest whole checkpoint in the middle of an epoch, saves in the background, and stops between
    two batches at SIGTERM. A step is one batch, or ``steps_per_execution`` of them.

    Where a program calls ``fit`` more than once with the same logdir, a restart goes on in the one that was under way;
    those before it return at once.

    Args:
        logdir: the run's directory, on a local or mounted file system.
        options: see `supervisor_core.Options`.
        save_secs: seconds between checkpoints; None saves none by time.
        save_steps: steps between checkpoints; None saves none by steps.
        max_to_keep: the number of checkpoints to keep; None keeps all.
        keep_every_n_hours: keep one checkpoint of each such period besides; None keeps none.

    Raises:
        ValueError: if an interval is not positive; and in ``fit`` beside `keras.callbacks.BackupAndRestore`.

    Example:
        model.fit(x, y, epochs=3, callbacks=[SupervisorCallback("/runs/mnist")])
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
    ) -> None:
        keras.callbacks.Callback.__init__(self)
        policy = SavePolicy(save_secs, save_steps, max_to_keep, keep_every_n_hours)
        FitSessions.__init__(self, logdir, options, policy)
        self._position = FitPosition(FitNumber())
        self._variables: ModelVariables
        self._siblings: Siblings
        self._swaps: list[Any] = []
        self._random: dict[str, Any] | None = None
        self._resumes = self._skips = self._holds_siblings = self._is_probed = False
        self._looks = self._has_stepped = False
        self._data: Any = None
        self._batches = 0
        """Of the present epoch, with those that were passed."""
        self._last_begins: float = math.inf
        self._last_call: AbstractContextManager[None] | None = None
        self._finalizer: Any = None

    @property
    def is_training(self) -> bool:
        """Whether batches are trained on; False while those are passed that were consumed before a resume."""
        return self._run is not None and not self._skips

    # What Keras calls.

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Begin the session, and restore."""
        if self._finalizer is not None:
            self._finalizer()
        call = fit_call(self)
        callbacks = [item for item in (call.list.callbacks if call.list is not None else ()) if item is not self]
        if any(isinstance(item, keras.callbacks.BackupAndRestore) for item in callbacks):
            raise ValueError("BackupAndRestore and SupervisorCallback both resume a training; leave one of them out.")
        _set_back(self.model)
        _build(self.model, call)
        fit = FitNumber.next(self.logdir)
        batches = " of ".join(call.facts.get(name, "?") for name in ("number of batches", "batch size"))
        self._position = position = FitPosition(fit, batches)
        self._variables, self._siblings = ModelVariables(self.model), Siblings(callbacks)
        self._data = call.data
        self._swaps = [item for item in callbacks if isinstance(item, keras.callbacks.SwapEMAWeights)]
        steps = self.params.get("steps")
        self._last_begins = math.inf if steps is None else steps - self.model.steps_per_execution
        self._last_call, self._is_probed = None, False
        run = self._new_run({**call.facts, **facts_of(self.model)}, call.limits)
        run.save_point.moment = self._moment
        run.__enter__()
        self._run = run
        position.is_read = True
        run.watch_values(Values([self.model], {"model": self.model, "data": call.data}), compares=fit.is_this)
        self._looks, self._has_stepped = True, False
        self._resumes, self._skips, self._holds_siblings = fit.is_this, False, False
        if fit.is_this:
            self._random = random_state.capture(random_sources())
            self.model._initial_epoch = self.params["epochs"] if position.is_over else position.epoch
        elif fit.is_later:
            self.model._initial_epoch = self.params["epochs"]
        if call.list is not None:
            self._finalizer = weakref.finalize(call.list, self._left, run)
            self._finalizer.atexit = False  # there the run ends itself, with the error that ends the program

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Begin an epoch; after a restore begin it as it began then."""
        if self._run is None:
            return
        self.model._initial_epoch = None
        position = self._position
        self._siblings.begin()
        self._batches = 0
        if not self._resumes:
            position.begin_epoch(epoch)
            return
        self._resumes = False
        if position.batch and position.start is not None:
            random_state.restore(random_sources(), position.start)
            self._skip()
        else:
            self._siblings.apply()
            position.begin_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Begin a step; allow the last call of the train function in an epoch to compile: it may have fewer samples."""
        run = self._run
        if run is None:
            return
        run.save_point.is_in_step = not self._skips
        self._look(run)
        if batch >= self._last_begins:
            self._last_call = last_of_epoch(run)
            self._last_call.__enter__()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count a step; save if that is due, and end if a stop was requested."""
        run = self._run
        if run is None:
            return
        if self._last_call is not None:
            self._last_call.__exit__(None, None, None)
            self._last_call = None
        self._batches = batch + 1
        if self._skips:
            if batch + 1 >= self._position.batch:
                self._skipped(logs)
            return
        run.save_point.is_in_step = False
        self._position.batch = self._batches
        if not self._is_probed:
            self._is_probed = True
            self._siblings.probe()
        run.step()
        self._has_stepped = True
        if run.should_stop():
            self._look(run)
            self._stop()

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Begin an evaluation; keep what it changes, so that it can be interrupted."""
        run = self._run
        if run is None:
            return
        run.save_point.is_in_step = False  # Keras begins a step, and then finds that the data has ended
        if self._skips:  # the epoch has fewer batches than it had
            self._skipped(None)
        if self._holds_siblings:
            self._siblings.apply()
            self._holds_siblings = False
        self._variables.metrics = metrics_of(self.model)
        self._siblings.held = self._siblings.states()
        self._phase.enter(run, "evaluating")

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """End if a stop was requested: the evaluation is made again by the next session."""
        if self._run is None or not self._run.should_stop():
            return
        with self._at_evaluation():
            try:
                self._stop()
            finally:
                self._end_phase()

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """End an evaluation."""
        self._end_phase()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Write the epoch's values."""
        if self._run is None:
            return
        self._run.save_point.is_in_step = False
        if self._skips:
            self._skipped(None)
        self._look(self._run)  # the program sets values when the next epoch begins
        said = None if self.model.stop_training else self._position.length.ended(epoch, self._batches, self._data)
        if said is not None:
            self._run.notify(said)
        self._run.log({name: value for name, value in (logs or {}).items() if _is_number(value)})

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """End the session: save the last step, write the stop record."""
        run, position = self._run, self._position
        if run is None:
            return
        self.model._initial_epoch = None
        run.save_point.is_in_step = False
        if self._resumes:  # it was over
            self._siblings.begin()
            self._siblings.apply()
        elif not position.fit.is_later:
            is_early = self.model.stop_training and position.epoch + 1 < self.params["epochs"]
            position.end_epoch(is_over=is_early)
        self._end()

    # How it works inside.

    def _look(self, run: Run) -> None:
        if self._looks and self._has_stepped:
            self._looks, self._has_stepped = run.first_step_ended(), False

    def _new_run(self, facts: Mapping[str, str], limits: tuple[str, ...]) -> Run:
        position, siblings = self._position, self._siblings
        state = TrainingState(
            objects={
                DATA: position,
                "model": OfThisFit(position.fit, self._variables),
                "callbacks": OfThisFit(position.fit, siblings),
            },
            sources=lambda: position.fit.sources(random_sources),
            facts=lambda: {**facts, "list of callbacks": siblings.names},
            limits=lambda: (*limits, *siblings.limits, *self._variables.limits),
            watched=lambda: watched(self.model),
        )
        return Run(self.logdir, state=state, options=self._options, policy=self._policy, facade="SupervisorCallback")

    def _skip(self) -> None:
        """Have the consumed batches loaded, without training on them."""
        self._skips = True
        model = self.model
        values = model.get_metrics_result()
        count = model.steps_per_execution

        def load(iterator: Any) -> None:
            next(iterator)
            with contextlib.suppress(StopIteration):
                for _ in range(count - 1):
                    next(iterator)

        def on_tensorflow(iterator: Any) -> Any:
            load(iterator)
            return values

        def on_jax(state: Any, iterator: Any) -> Any:
            load(iterator)
            return values, state

        functions = {"tensorflow": on_tensorflow, "jax": on_jax, "torch": lambda data: values}
        function: Any = functions[keras.backend.backend()]
        function.trains = model.train_function
        model.train_function = function

    def _skipped(self, logs: dict[str, Any] | None) -> None:
        """The consumed batches are passed: set everything to the moment of the save."""
        self._skips = False
        self.model.train_function = self.model.train_function.trains
        self._variables.load_again()
        self._holds_siblings = self._position.is_evaluating
        self._position.is_evaluating = False
        self._siblings.apply(last=not self._holds_siblings)
        if logs is not None:  # for the callbacks after this one
            logs.update({name: float(value) for name, value in self.model.get_metrics_result().items()})
        if self._random is not None:
            random_state.restore(random_sources(), self._random)
            self._random = None

    @contextlib.contextmanager
    def _moment(self) -> Iterator[int | None]:
        """A phase begins that does not train: an evaluation, or one of the program's own, as in a batch's callback."""
        if self._run is not None and self._run.save_point.is_in_step:
            yield None
            return
        with self._at_evaluation() as step:
            yield step

    @contextlib.contextmanager
    def _at_evaluation(self) -> Iterator[int]:
        """Be where the next session begins the evaluation under way again; yield the step."""
        swaps = [item for item in self._swaps if getattr(item, "_ema_weights_in_model", False)]
        for item in swaps:
            item.on_test_end()
        self._position.is_evaluating = True
        try:
            yield 0 if self._run is None else self._run.global_step
        finally:
            self._position.is_evaluating = False
            for item in swaps:
                item.on_test_begin()

    def _stop(self) -> None:
        """End the session here: a signal then ends the process, after any other request ``fit`` ends."""
        self.model.stop_training = True
        self._end()

    def _end(self) -> None:
        run, self._run = self._run, None
        assert run is not None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        run.__exit__(None, None, None)
        self._exactness = run.exactness
        self._position.fit.has_returned = True

    def _left(self, run: Run) -> None:
        """`fit` was left by an exception: Keras calls no callback then, so this is called when its frame is gone."""
        if self._run is run:
            self._run, self._finalizer = None, None
            self._end_phase()
            run.left_by_unknown("fit() was left by an exception.")

    def _end_phase(self) -> None:
        self._variables.metrics = self._siblings.held = None
        self._phase.leave()


def _set_back(model: Any) -> None:
    """Have the model train again: an exception may have left it at what an earlier resume had set."""
    model.train_function = getattr(model.train_function, "trains", model.train_function)
    with contextlib.suppress(RuntimeError):  # JAX: left in the middle of a step, whose memory is given away
        sync(model)


def _build(model: Any, call: FitCall) -> None:
    """Create the variables that TensorFlow's trainer creates in the first batch, so that they can be restored."""
    if keras.backend.backend() != "tensorflow" or call.epoch_iterator is None:
        return
    if call.is_replayable:
        batch = None
        for _, _, iterator in call.epoch_iterator:
            batch = next(iterator)
            break
        call.epoch_iterator.reset()
        with model.distribute_strategy.scope():
            model._symbolic_build(data_batch=batch)
    elif model.built and model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
