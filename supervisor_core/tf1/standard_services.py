"""`StandardServices`: which services a session has, and starting them in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor_core.options import Options
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.service import ServiceThread
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.service_policy import service_policy
from supervisor_core.tf1.services import (
    CheckpointService,
    StepCounterService,
    StepReader,
    SummaryService,
)

SUMMARY, STEP_COUNTER, CHECKPOINT, STEP_READER = "summary", "step_counter", "checkpoint", "step_reader"
"""The services' names, as metrics and records bear them."""


class StandardServices:
    """The services of one session.

    Args:
        coord: the coordinator.
        sess: the session.
        lifecycle: where the services are known.
        options: what becomes of their errors.
        writer: the summary writer; None: no summaries, no step rates.
        summary_op: what computes the summaries; None: no summaries.
        global_step: what counts; None: no step rates.
        save_summaries_secs: seconds between summaries; None or 0: none.
    """

    def __init__(
        self,
        *,
        coord: Coordinator,
        sess: Any,
        lifecycle: Lifecycle,
        options: Options,
        writer: Any,
        summary_op: Any,
        global_step: Any,
        save_summaries_secs: float | None,
    ) -> None:
        self._coord = coord
        self._sess = sess
        self._lifecycle = lifecycle
        self._options = options
        self._writer = writer
        self._summary_op = summary_op
        self._global_step = global_step
        checkpoints = lifecycle.checkpoints
        self._intervals: dict[str, float] = {}
        if save_summaries_secs and writer:
            if summary_op is not None:
                self._intervals[SUMMARY] = save_summaries_secs
            if global_step is not None:
                self._intervals[STEP_COUNTER] = save_summaries_secs
        if checkpoints is not None and checkpoints.interval_secs is not None:
            self._intervals[CHECKPOINT] = checkpoints.interval_secs

    def described(self) -> tuple[Mapping[str, Any], ...]:
        """Return name and interval of each service, as the session record has them."""
        return tuple({"name": name, "interval_secs": secs} for name, secs in self._intervals.items())

    def start(self) -> list[ServiceThread]:
        """Start the services; return their threads, the reader of the global step apart."""
        services = [self._make(name, secs) for name, secs in self._intervals.items()]
        readers = []
        if self._global_step is not None:
            tolerant = Policy(on_error="continue", transient=lambda error: isinstance(error, Exception))
            readers.append(
                StepReader(
                    self._coord,
                    self._sess,
                    global_step=self._global_step,
                    progress=self._lifecycle.run.progress,
                    name=self._lifecycle.services.reserve_name(STEP_READER),
                    policy=tolerant,
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
            return CheckpointService(
                self._coord,
                secs,
                save=lambda: checkpoints.save("timer"),
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
