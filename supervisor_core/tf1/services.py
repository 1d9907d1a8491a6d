"""The standard services of a session: which there are, how they start, what each does, and what their errors do.

Source: the service threads of ``tf.compat.v1.train.Supervisor`` (contract, items 12 to 14). Each ticks at once, then on
its interval. They run without the step lock and uncounted (``run_internal``), so they delay no snapshot and are no
steps. Each is also an instance of the original's class for it, which programs may test for.

Each takes the coordinator, its interval in seconds, its thread's name, an error `Policy`, and ``on_failure``, which is
called for every failure.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.coordinator import Coordinator
from supervisor_core.engine.retry import Backoff
from supervisor_core.engine.service import OnFailure, Policy
from supervisor_core.errors import SaveFailedError
from supervisor_core.events.telemetry import ServiceInterval
from supervisor_core.options import Options
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.coordinator import ServiceThread
from supervisor_core.tf1.global_step import read_global_step, step_value
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.tf_errors import is_outside_fault
from supervisor_core.tf1.watched_loss import WatchedLoss

_LOG = logging.getLogger("supervisor_core")

SUMMARY, STEP_COUNTER, CHECKPOINT = "summary", "step_counter", "checkpoint"
STEP_READER, LOSS_READER = "step_reader", "loss_reader"
"""The services' names in metrics and records."""

READER_SECS = 1.0
"""How often the global step and the watched losses are read for heartbeats and metrics."""

_UNFED = re.compile(r"You must feed a value for placeholder tensor '([^']*)'")


def _original(symbol: private.PrivateSymbol) -> Any:
    """Return the original's class of a service, which is a base for the ``isinstance`` checks alone."""
    try:
        return symbol.load()
    except AttributeError:
        return tf.compat.v1.train.LooperThread


_ORIGINAL: Any = SimpleNamespace(
    summary=_original(private.SUMMARY_THREAD),
    step_counter=_original(private.STEP_COUNTER_THREAD),
    checkpoint=_original(private.CHECKPOINT_THREAD),
)


class StandardServices:
    """The services of one session.

    Args:
        supervisor: says what is summarized, counted and how often, and which writer to use.
        sess: the session.
        lifecycle: where the services are known.
        options: what happens to their errors.
    """

    def __init__(
        self, supervisor: tf.compat.v1.train.Supervisor, sess: Any, lifecycle: Lifecycle, options: Options
    ) -> None:
        self._coord = supervisor.coord
        self._sess = sess
        self._lifecycle = lifecycle
        self._options = options
        self._writer = supervisor.summary_writer
        self._summary_op = supervisor.summary_op
        self._global_step = supervisor.global_step
        secs = supervisor.save_summaries_secs
        checkpoints = lifecycle.checkpoints
        self._intervals: dict[str, float] = {}
        if secs and self._writer:
            if self._summary_op is not None:
                self._intervals[SUMMARY] = secs
            if self._global_step is not None and not lifecycle.state.is_guest:
                self._intervals[STEP_COUNTER] = secs
        if checkpoints is not None and checkpoints.interval_secs is not None:
            self._intervals[CHECKPOINT] = checkpoints.interval_secs

    def described(self) -> tuple[ServiceInterval, ...]:
        """Return name and interval of each service, as the session record has them."""
        return tuple(ServiceInterval(name=name, interval_secs=secs) for name, secs in self._intervals.items())

    def start(self) -> list[ServiceThread]:
        """Start the services; return their threads, the readers of the loss and of the global step apart."""
        services = [self._make(name, secs) for name, secs in self._intervals.items()]
        readers: list[ServiceThread] = []
        if (watched := self._options.watched_loss) is not None:
            readers.append(LossReader(self._coord, self._lifecycle, self._sess, watched=watched))
        if self._global_step is not None:
            readers.append(StepReader(self._coord, self._lifecycle, self._sess, self._global_step))
        for service in [*services, *readers]:
            self._lifecycle.services.add(service).start()
        return services

    def _make(self, name: str, secs: float) -> ServiceThread:
        reserved = self._lifecycle.services.reserve_name(name)
        failed = self._lifecycle.service_failed
        if name == CHECKPOINT:
            checkpoints = self._lifecycle.checkpoints
            assert checkpoints is not None
            checkpoints.serve()

            def save() -> None:
                check_open(self._sess)
                checkpoints.save("timer")

            return CheckpointService(
                self._coord,
                secs,
                save=save,
                name=reserved,
                policy=service_policy(self._options, self._sess, max_failures=self._options.max_save_failures),
                on_failure=failed,
            )
        if name == SUMMARY:
            return SummaryService(
                self._coord,
                secs,
                self._sess,
                summary_op=self._summary_op,
                global_step=self._global_step,
                writer=self._writer,
                feed_dict=self._options.summary_feed_dict,
                name=reserved,
                policy=service_policy(self._options, self._sess),
                on_failure=failed,
            )
        return StepCounterService(
            self._coord,
            secs,
            self._sess,
            global_step=self._global_step,
            writer=self._writer,
            name=reserved,
            policy=service_policy(self._options, self._sess),
            on_failure=failed,
        )


def start_loop(
    coord: Coordinator,
    lifecycle: Lifecycle,
    options: Options,
    interval_secs: float | None,
    target: Callable[..., Any],
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
) -> ServiceThread:
    """Start a service of the program's own, and return it; see `Supervisor.loop`."""
    service = ServiceThread(
        coord,
        interval_secs,
        target=target,
        args=args,
        kwargs=kwargs,
        name=lifecycle.services.reserve_name(target),
        policy=Policy(on_error=options.service_errors),
        on_failure=lifecycle.service_failed,
    )
    lifecycle.services.add(service).start()
    return service


def start_queue_threads(sess: Any, queue_runners: Iterable[Any], coord: Coordinator) -> list[Any]:
    """Start the threads of queue runners, around the step lock, and return them."""
    inner = sess.plain_session() if isinstance(sess, SupervisedSession) else sess
    threads: list[Any] = []
    for queue_runner in queue_runners:
        threads.extend(queue_runner.create_threads(inner, coord=coord, daemon=True, start=True))
    return threads


class SummaryService(ServiceThread, _ORIGINAL.summary):
    """Runs the summary op and appends what it returns.

    Args:
        summary_op: returns a serialized ``Summary``.
        global_step: read in the same run; None when there is none.
        feed_dict: `Options.summary_feed_dict`.
    """

    def __init__(
        self,
        coord: Coordinator,
        interval_secs: float,
        sess: Any,
        *,
        summary_op: Any,
        global_step: Any,
        writer: Any,
        feed_dict: Mapping[Any, Any] | None,
        name: str,
        policy: Policy,
        on_failure: OnFailure,
    ) -> None:
        super().__init__(coord, interval_secs, name=name, policy=policy, on_failure=on_failure)
        self._run = runner(sess)
        self._summary_op = summary_op
        self._global_step = global_step
        self._writer = writer
        self._feed_dict = feed_dict

    def run_loop(self) -> None:
        """Compute and append the summaries once."""
        if self._global_step is None:
            summary, step = self._run(self._summary_op, feed_dict=self._feed_dict), None
        else:
            summary, value = self._run([self._summary_op, self._global_step], feed_dict=self._feed_dict)
            step = step_value(value, self._global_step)
        _LOG.info("Recording summary at step %s.", step)
        self._writer.add_summary(summary, step)


class StepCounterService(ServiceThread, _ORIGINAL.step_counter):
    """Appends the steps per second of each interval, as ``<global step's name>/sec``; nothing before two readings.

    Args:
        global_step: what counts.
        clock: the time; monotonic for the rate.
    """

    def __init__(
        self,
        coord: Coordinator,
        interval_secs: float,
        sess: Any,
        *,
        global_step: Any,
        writer: Any,
        name: str,
        policy: Policy,
        on_failure: OnFailure,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(coord, interval_secs, name=name, policy=policy, on_failure=on_failure, clock=clock)
        self._sess = sess
        self._global_step = global_step
        self._writer = writer
        self._tag = f"{global_step.op.name}/sec"
        self._last: tuple[float, int] | None = None

    def run_loop(self) -> None:
        """Read the step; append the rate since the last reading."""
        step = read_global_step(self._sess, self._global_step)
        now = self._clock.monotonic()
        last, self._last = self._last, (now, step)
        if last is None or now <= last[0]:
            return
        rate = (step - last[1]) / (now - last[0])
        value = tf.compat.v1.Summary.Value(tag=self._tag, simple_value=rate)
        self._writer.add_summary(tf.compat.v1.Summary(value=[value]), step)
        _LOG.info("%s: %g", self._tag, rate)


class CheckpointService(ServiceThread, _ORIGINAL.checkpoint):
    """Saves a checkpoint on a timer.

    Args:
        save: saves one checkpoint, or raises.
    """

    def __init__(
        self,
        coord: Coordinator,
        interval_secs: float,
        *,
        save: Callable[[], object],
        name: str,
        policy: Policy,
        on_failure: OnFailure,
    ) -> None:
        super().__init__(coord, interval_secs, name=name, policy=policy, on_failure=on_failure)
        self._save = save

    def run_loop(self) -> None:
        """Save once."""
        self._save()


class LossReader(ServiceThread):
    """Reads whether the watched losses are finite, so that an alert need not wait for the next checkpoint.

    Args:
        coord: the coordinator.
        lifecycle: the session's; records the result.
        sess: the session.
        watched: `Options.watched_loss`; None where none is watched.
        newest: returns other losses, of hooks; None as long as there is none.
    """

    def __init__(
        self,
        coord: Coordinator,
        lifecycle: Lifecycle,
        sess: Any,
        *,
        watched: Any,
        newest: Callable[[], Any] = lambda: None,
    ) -> None:
        name = lifecycle.services.reserve_name(LOSS_READER)
        super().__init__(coord, READER_SECS, name=name, policy=reader_policy(sess))
        self._run = runner(sess)
        self._watched = None if watched is None else WatchedLoss(sess.graph, watched)
        self._newest = newest
        self._record = lifecycle.recorder.loss_read

    def run_loop(self) -> None:
        """Read once."""
        read = None if self._watched is None else self._run(self._watched.tensor)
        losses = [np.asarray(loss) for loss in (read, self._newest()) if loss is not None]
        if losses:
            self._record(all(bool(np.all(np.isfinite(loss))) for loss in losses))


class StepReader(ServiceThread):
    """Reads the global step, for what may not touch the session: heartbeats, metrics."""

    def __init__(self, coord: Coordinator, lifecycle: Lifecycle, sess: Any, global_step: Any) -> None:
        name = lifecycle.services.reserve_name(STEP_READER)
        super().__init__(coord, READER_SECS, name=name, policy=reader_policy(sess))
        self._sess = sess
        self._global_step = global_step
        self._progress = lifecycle.recorder.progress

    def run_loop(self) -> None:
        """Read once."""
        since = self._progress.steps
        self._progress.step_read(read_global_step(self._sess, self._global_step), since)


def runner(sess: Any) -> Callable[..., Any]:
    """Return the session's uncounted, plain_session ``run``; plain ``run`` for a session that is not ours."""
    run: Callable[..., Any] = getattr(sess, "run_internal", sess.run)
    return run


def service_policy(options: Options, sess: Any, max_failures: int | None = None) -> Policy:
    """Return the policy of a service: disk and network errors are retried, other errors do as the options say.

    A service ends as planned when the program has closed the session under it.

    Args:
        options: how the run behaves.
        sess: what the service works in.
        max_failures: how many faults in a row are tolerated.
    """
    return Policy(
        on_error=options.service_errors,
        transient=is_outside_fault,
        over=ended_with(sess),
        backoff=Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs),
        max_failures=max_failures,
        give_up=_too_many_failures,
        explain=explain_unfed,
    )


def reader_policy(sess: Any) -> Policy:
    """Return the policy of a service that only reads: no error of it concerns the run."""
    return Policy(on_error="continue", transient=lambda error: isinstance(error, Exception), over=ended_with(sess))


def ended_with(sess: Any) -> Callable[[BaseException], bool]:
    """Return a function of an error: whether it only says that the program has closed the session."""

    def is_closed(error: BaseException) -> bool:
        return bool(private.CLOSED.get(sess, False)) and isinstance(error, (tf.errors.CancelledError, RuntimeError))

    return is_closed


def check_open(sess: Any) -> None:
    """Raise what TensorFlow raises for a closed session; a tick that runs nothing would not notice it."""
    if private.CLOSED.get(sess, False):
        raise RuntimeError("Attempted to use a closed Session.")


def _too_many_failures(name: str, failures: int, error: BaseException) -> BaseException:
    return SaveFailedError(
        f"The service {name!r} failed {failures} times in a row, more than Options.max_save_failures allows. "
        f"The last time: {type(error).__name__}: {error}"
    )


def explain_unfed(error: BaseException) -> str:
    """Return what to do about a summary op that needs a placeholder fed; empty for any other error."""
    unfed = _UNFED.search(str(error))
    if unfed is None:
        return ""
    return (
        f"The summary op needs the placeholder {unfed[1]!r}, which the summary service cannot feed by itself: pass "
        f"Options(summary_feed_dict={{{unfed[1]!r} or its tensor: value}}), or summary_op=None and call "
        "sv.summary_computed() in the training loop."
    )
