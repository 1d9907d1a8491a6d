"""`CoordinatedThreads`: the threads of a training, and how all of them stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from supervisor_core.clock import Clock
from supervisor_core.options import Options
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.service import ServiceThread
from supervisor_core.tf1.coordinator import Coordinator
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.session import SupervisedSession


class CoordinatedThreads:
    """Loops and queue runners of the program, and the request to stop.

    Args:
        coord: the coordinator.
        graph: whose queue runners are meant.
        lifecycle: where the services are known.
        options: what becomes of a service's errors.
        clock: the time.
    """

    def __init__(self, coord: Coordinator, graph: Any, lifecycle: Lifecycle, options: Options, clock: Clock) -> None:
        self._coord = coord
        self._runners_graph = graph
        self._lifecycle = lifecycle
        self._threads_options = options
        self._threads_clock = clock

    @property
    def coord(self) -> Coordinator:
        """The coordinator, for threads of the program's own."""
        return self._coord

    def start_queue_runners(self, sess: Any, queue_runners: Iterable[Any] | None = None) -> list[Any]:
        """Start threads for queue runners, around the gate: a full queue must not hold up a checkpoint.

        Args:
            sess: the session.
            queue_runners: which. Default: all that the graph collected.

        Raises:
            RuntimeError: under eager execution.
        """
        if tf.executing_eagerly():
            raise RuntimeError(
                "Queues are not compatible with eager execution. Start them where the graph is the default one: "
                "with tf.Graph().as_default(): ..."
            )
        if queue_runners is None:
            queue_runners = self._runners_graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        inner = sess.ungated() if isinstance(sess, SupervisedSession) else sess
        threads: list[Any] = []
        for queue_runner in queue_runners:
            threads.extend(queue_runner.create_threads(inner, coord=self._coord, daemon=True, start=True))
        return threads

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> ServiceThread:
        """Start a service of the program's own: ``target(*args, **kwargs)`` at once, then on its interval.

        Args:
            timer_interval_secs: seconds between two calls. None: back to back.
            target: what to call; an exception of it stops the run (`Options.service_errors`).
            args: positional arguments.
            kwargs: named arguments.
        """
        services = self._lifecycle.services
        service = ServiceThread(
            self._coord,
            timer_interval_secs,
            target=target,
            args=args,
            kwargs=kwargs,
            name=services.reserve_name(target),
            policy=Policy(on_error=self._threads_options.service_errors),
            on_failure=self._lifecycle.service_failed,
            clock=self._threads_clock,
        )
        services.add(service).start()
        return service

    def request_stop(self, ex: Any = None) -> None:
        """Ask everything to stop; see `Coordinator.request_stop`."""
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Tell whether a stop was requested; cheap enough for every step."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """Return a context that reports the exception of its block; see `Coordinator.stop_on_exception`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Block until a stop is requested."""
        self._coord.wait_for_stop()
