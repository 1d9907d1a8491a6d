"""The standard services of a session: which there are, how they start, what each does, and what their errors do.

Source: the service threads of ``tf.compat.v1.train.Supervisor`` (contract, items 12 to 14). Each ticks at once, then on
its interval. They run without the step lock and uncounted (``run_internal``), so they delay no snapshot and are no
steps.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.retry import Backoff
from supervisor_core.engine.service import Policy, RuntimeLooperThread, RuntimeServiceThread
from supervisor_core.events.telemetry import ServiceInterval
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.global_step import internal_run, read_global_step, step_value
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.snapshot import WatchedLoss
from supervisor_core.tf1.tf_errors import is_outside_fault


class Coordinator(RuntimeCoordinator, tf.compat.v1.train.Coordinator):
    """Coordinates threads; see `supervisor_core.engine.coordinator.RuntimeCoordinator`.

    Args:
        clean_stop_exception_types: exceptions that end the run cleanly. Default: ``(tf.errors.OutOfRangeError,)``.
        clock: replaced in tests.
    """

    def __init__(
        self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        types = (
            (tf.errors.OutOfRangeError,) if clean_stop_exception_types is None else tuple(clean_stop_exception_types)
        )
        RuntimeCoordinator.__init__(self, types, clock=clock)


class _OriginalLooperThread(tf.compat.v1.train.LooperThread):
    """TensorFlow's class for the ``isinstance`` checks alone: its own constructor would register a second time."""

    def __init__(self, target: Callable[..., object] | None = None, daemon: bool | None = None) -> None:
        threading.Thread.__init__(self, target=target, daemon=daemon)


class ServiceThread(RuntimeServiceThread, _OriginalLooperThread):
    """A periodic service; see `supervisor_core.engine.service.RuntimeServiceThread`."""


class LooperThread(RuntimeLooperThread, _OriginalLooperThread):
    """Calls a target periodically; see `supervisor_core.engine.service.RuntimeLooperThread`."""

    @staticmethod
    def loop(
        coord: RuntimeCoordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Start a thread of this class that calls ``target(*args, **kwargs)`` on its interval, and return it."""
        looper = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        looper.start()
        return looper


_LOG = logging.getLogger("supervisor_core")

SUMMARY, STEP_COUNTER, CHECKPOINT = "summary", "step_counter", "checkpoint"
STEP_READER, LOSS_READER = "step_reader", "loss_reader"
"""The services' names in metrics and records."""

READER_SECS = 1.0
"""How often the global step and the watched losses are read for heartbeats and metrics."""

_UNFED = re.compile(r"You must feed a value for placeholder tensor '([^']*)'")


class StandardServices:
    """The services of one session.

    Args:
        supervisor: says what is summarized, counted and how often, and which writer to use.
        lifecycle: where the services are known; its options say what happens to their errors.
    """

    def __init__(self, supervisor: tf.compat.v1.train.Supervisor, sess: Any, lifecycle: Lifecycle) -> None:
        self._coord = supervisor.coord
        self._sess = sess
        self._lifecycle = lifecycle
        self._writer = supervisor.summary_writer
        self._summary_op = supervisor.summary_op
        self._global_step = supervisor.global_step
        self._last_step: tuple[float, int] | None = None  # when it was read, and what it was
        secs = supervisor.save_summaries_secs
        self._checkpoints = checkpoints = lifecycle.checkpoints
        self._intervals: dict[str, float] = {}
        if secs and self._writer:
            if self._summary_op is not None:
                self._intervals[SUMMARY] = secs
            if self._global_step is not None and not lifecycle.state.is_not_owner:
                self._intervals[STEP_COUNTER] = secs
        if checkpoints is not None and checkpoints.interval_secs is not None:
            self._intervals[CHECKPOINT] = checkpoints.interval_secs

    def described(self) -> tuple[ServiceInterval, ...]:
        """Return name and interval of each service, as the session record has them."""
        return tuple(ServiceInterval(name=name, interval_secs=secs) for name, secs in self._intervals.items())

    def start(self) -> list[ServiceThread]:
        """Start the services; return their threads, the readers of the loss and of the global step apart."""
        work = {SUMMARY: self._summarize, STEP_COUNTER: self._count_steps, CHECKPOINT: self._save}
        services = [
            new_service(
                ServiceThread,
                self._coord,
                self._lifecycle,
                self._sess,
                name=name,
                interval_secs=secs,
                target=work[name],
            )
            for name, secs in self._intervals.items()
        ]
        if CHECKPOINT in self._intervals and self._checkpoints is not None:
            self._checkpoints.serving = True
        for service in [*services, *new_readers(self._coord, self._lifecycle, self._sess, self._global_step)]:
            self._lifecycle.services.add(service).start()
        return services

    def _summarize(self) -> None:
        """Compute and append the summaries once."""
        run, feed_dict = internal_run(self._sess), self._lifecycle.options.summary_feed_dict
        if self._global_step is None:
            summary, step = run(self._summary_op, feed_dict=feed_dict), None
        else:
            summary, value = run([self._summary_op, self._global_step], feed_dict=feed_dict)
            step = step_value(value, self._global_step)
        _LOG.info("Recording summary at step %s.", step)
        self._writer.add_summary(summary, step)

    def _count_steps(self) -> None:
        """Read the step; append the rate since the last reading, as ``<global step's name>/sec``."""
        step = read_global_step(self._sess, self._global_step)
        now = SYSTEM_CLOCK.monotonic()
        last, self._last_step = self._last_step, (now, step)
        if last is None or now <= last[0]:
            return
        write_rate(self._writer, f"{self._global_step.op.name}/sec", (step - last[1]) / (now - last[0]), step)

    def _save(self) -> None:
        assert self._checkpoints is not None
        if private.CLOSED.get(self._sess, False):  # a tick that runs nothing would not notice it
            raise RuntimeError("Attempted to use a closed Session.")
        self._checkpoints.save("timer")


def write_rate(writer: Any, tag: str, rate: float, step: int) -> None:
    """Append steps per second to an events file, if there is one, and to the log."""
    if writer is not None:
        value = tf.compat.v1.Summary.Value(tag=tag, simple_value=rate)
        writer.add_summary(tf.compat.v1.Summary(value=[value]), step)
    _LOG.info("%s: %g", tag, rate)


Service = TypeVar("Service", bound=ServiceThread)


def new_service(
    kind: type[Service],
    coord: RuntimeCoordinator,
    lifecycle: Lifecycle,
    sess: Any,
    *,
    name: str,
    interval_secs: float,
    target: Callable[..., object],
) -> Service:
    """Return a service of a session, not yet started."""
    return kind(
        coord,
        interval_secs,
        target,
        name=lifecycle.services.reserve_name(name),
        policy=service_policy(lifecycle.options, sess, name),
        on_failure=lifecycle.service_failed,
    )


def new_readers(
    coord: RuntimeCoordinator,
    lifecycle: Lifecycle,
    sess: Any,
    global_step: Any,
    newest_loss: Callable[[], Any] | None = None,
) -> list[ServiceThread]:
    """Return what reads for heartbeats and metrics, which may not touch the session; not yet started.

    Whether the watched losses are finite is read, so that an alert need not wait for the next checkpoint, and the
    global step.

    Args:
        lifecycle: the session's; records what is read.
        global_step: what counts its steps, or None.
        newest_loss: returns other losses, of hooks; None as long as there is none. Default: there are no others.
    """
    reads: dict[str, Callable[[], None]] = {}
    watched, recorder = lifecycle.options.watched_loss, lifecycle.recorder
    tensor = None if watched is None else WatchedLoss(sess.graph, watched).tensor

    def read_loss() -> None:
        read = None if tensor is None else internal_run(sess)(tensor)
        newest = None if newest_loss is None else newest_loss()
        losses = [np.asarray(loss) for loss in (read, newest) if loss is not None]
        if losses:
            recorder.loss_read(all(bool(np.all(np.isfinite(loss))) for loss in losses))

    def read_step() -> None:
        since = recorder.progress.steps
        recorder.progress.step_read(read_global_step(sess, global_step), since)

    if watched is not None or newest_loss is not None:
        reads[LOSS_READER] = read_loss
    if global_step is not None:
        reads[STEP_READER] = read_step
    names = lifecycle.services
    # No error of a service that only reads concerns the run.
    policy = Policy(on_error="continue", transient=lambda error: isinstance(error, Exception), over=ended_with(sess))
    return [
        ServiceThread(coord, READER_SECS, read, name=names.reserve_name(name), policy=policy)
        for name, read in reads.items()
    ]


def start_queue_threads(sess: Any, queue_runners: Iterable[Any], coord: RuntimeCoordinator) -> list[Any]:
    """Start the threads of queue runners, around the step lock, and return them."""
    inner = sess.plain_session() if isinstance(sess, SupervisedSession) else sess
    threads: list[Any] = []
    for queue_runner in queue_runners:
        threads.extend(queue_runner.create_threads(inner, coord=coord, daemon=True, start=True))
    return threads


def service_policy(options: Options, sess: Any, name: str) -> Policy:
    """Return the policy of a service: disk and network errors are retried, other errors do as the options say.

    A service ends as planned when the program has closed the session under it.

    Args:
        options: how the run behaves.
        name: which service it is; `Options.max_save_failures` is for the one that saves.
    """
    return Policy(
        on_error=options.service_errors,
        transient=is_outside_fault,
        over=ended_with(sess),
        backoff=Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs),
        max_failures=options.max_save_failures if name == CHECKPOINT else None,
        give_up=_too_many_failures,
        explain=explain_unfed,
    )


def ended_with(sess: Any) -> Callable[[BaseException], bool]:
    """Return a function of an error: whether it only says that the program has closed the session."""

    def is_closed(error: BaseException) -> bool:
        return bool(private.CLOSED.get(sess, False)) and isinstance(error, (tf.errors.CancelledError, RuntimeError))

    return is_closed


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
