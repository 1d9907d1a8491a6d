"""`StandardServices`: which services a session has, and starting them in their order; and the program's own threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.options import Options
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.policy import Policy
from supervisor_core.tf1.coordinator import ServiceThread
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.services import (
    CheckpointService,
    LossReader,
    StepCounterService,
    StepReader,
    SummaryService,
    check_open,
    reader_policy,
    service_policy,
)
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.watched_loss import WatchedLoss

SUMMARY, STEP_COUNTER, CHECKPOINT, STEP_READER = "summary", "step_counter", "checkpoint", "step_reader"
LOSS_READER = "loss_reader"
"""The services' names in metrics and records."""


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
            if self._global_step is not None and not lifecycle.is_guest:
                self._intervals[STEP_COUNTER] = secs
        if checkpoints is not None and checkpoints.interval_secs is not None:
            self._intervals[CHECKPOINT] = checkpoints.interval_secs

    def described(self) -> tuple[Mapping[str, Any], ...]:
        """Return name and interval of each service, as the session record has them."""
        return tuple({"name": name, "interval_secs": secs} for name, secs in self._intervals.items())

    def start(self) -> list[ServiceThread]:
        """Start the services; return their threads, the readers of the loss and of the global step apart."""
        services = [self._make(name, secs) for name, secs in self._intervals.items()]
        readers: list[ServiceThread] = []
        if self._options.watched_loss is not None:
            readers.append(
                LossReader(
                    self._coord,
                    self._sess,
                    watched=WatchedLoss(self._sess.graph, self._options.watched_loss),
                    tell=self._lifecycle.run.loss_read,
                    name=self._lifecycle.services.reserve_name(LOSS_READER),
                    policy=reader_policy(self._sess),
                )
            )
        if self._global_step is not None:
            readers.append(
                StepReader(
                    self._coord,
                    self._sess,
                    global_step=self._global_step,
                    progress=self._lifecycle.run.progress,
                    name=self._lifecycle.services.reserve_name(STEP_READER),
                    policy=reader_policy(self._sess),
                )
            )
        for service in [*services, *readers]:
            self._lifecycle.services.add(service).start()
        return services

    def _make(self, name: str, secs: float) -> ServiceThread:
        reserved = self._lifecycle.services.reserve_name(name)
        failed = self._lifecycle.service_failed
        if name == CHECKPOINT:
            checkpoints = self._lifecycle.checkpoints
            assert checkpoints is not None
            checkpoints.serving = True

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
    """Start the threads of queue runners, around the gate, and return them."""
    inner = sess.ungated() if isinstance(sess, SupervisedSession) else sess
    threads: list[Any] = []
    for queue_runner in queue_runners:
        threads.extend(queue_runner.create_threads(inner, coord=coord, daemon=True, start=True))
    return threads
