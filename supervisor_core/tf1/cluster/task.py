"""`ClusterTask`: which process of a cluster this is, its TensorFlow server, and its work as a parameter server."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import OptionsError, RunFinishedError
from supervisor_core.base.options import Options
from supervisor_core.engine.chief_status import ChiefStatus
from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.engine.signal_watch import SignalWatch
from supervisor_core.engine.tf_config import CHIEF_JOBS, TaskIdentity, task_from_environment
from supervisor_core.engine.worker_registry import WorkerRegistry
from supervisor_core.events.telemetry import StopReason, StopRecord
from supervisor_core.storage.local import absolute, local_path
from supervisor_core.tf1.cluster.wait import remember_cluster

SERVER_JOB = "ps"


class ClusterTask:
    """One process of a cluster: chief, worker or parameter server; a single process is a chief.

    Source: "For use with multiple replicas" in seed document 003, and the environment's ``TF_CONFIG``.

    Args:
        identity: which process it is. Default: a single process.

    Example:
        task = supervisor_core.ClusterTask.from_environment()
        task.start_server()
        if task.is_parameter_server:
            task.serve(logdir)  # returns when the run has finished
        else:
            with tf.Graph().as_default(), task.device():
                ...  # build the model
                sv = supervisor_core.Supervisor(logdir=logdir, is_chief=task.is_chief)
                with sv.managed_session(task.target, config=task.session_config()) as sess:
                    while not sv.should_stop():
                        sess.run(train_op)
    """

    def __init__(self, identity: TaskIdentity | None = None) -> None:
        self._identity = identity or TaskIdentity()
        self._server: Any = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> ClusterTask:
        """Return the process that ``TF_CONFIG`` describes; a single process if it is not set.

        Raises:
            OptionsError: if ``TF_CONFIG`` cannot be used.
        """
        return cls(task_from_environment(environ))

    @property
    def name(self) -> str:
        """The task, ``worker:1``; ``worker:0`` for a single process."""
        return self._identity.name

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises the model, saves and writes events."""
        return self._identity.is_chief

    @property
    def is_parameter_server(self) -> bool:
        """Whether this process holds variables for the others and does not train."""
        return self._identity.type == SERVER_JOB

    @property
    def cluster(self) -> Any:
        """The cluster, as a ``tf.train.ClusterSpec``; empty for a single process."""
        return tf.train.ClusterSpec(self._identity.addresses)

    @property
    def target(self) -> str:
        """The master for this process's sessions: its server's, ``""`` for a single process.

        Raises:
            RuntimeError: if the server was not started.
        """
        if not self._is_in_cluster:
            return ""
        if self._server is None:
            raise RuntimeError(f"The server of {self.name} does not run yet: call start_server() first.")
        return str(self._server.target)

    def start_server(self, config: Any = None, protocol: str = "grpc") -> Any:
        """Start this process's TensorFlow server, once, and return it; None for a single process.

        Args:
            config: a ``ConfigProto`` for the server. Default: `session_config`, which restricts it to its own part of
                the cluster.
            protocol: the cluster's protocol.

        Raises:
            tf.errors.UnknownError: if its port is taken.
        """
        if not self._is_in_cluster or self._server is not None:
            return self._server
        remember_cluster(self._identity.addresses)
        self._server = tf.distribute.Server(
            self.cluster,
            job_name=self._identity.type,
            task_index=self._identity.index,
            protocol=protocol,
            config=config if config is not None or self.is_parameter_server else self.session_config(),
        )
        return self._server

    def device(self) -> Any:
        """Return a context for building the model: variables on the parameter servers by turns, the rest here."""
        return tf.compat.v1.device(
            tf.compat.v1.train.replica_device_setter(cluster=self.cluster, worker_device=self._own_device)
            if self._is_in_cluster
            else None
        )

    def session_config(self, config: Any = None) -> Any:
        """Return a configuration for sessions that use only the parameter servers and this process.

        Otherwise a new session waits for every process of the cluster, and is lost with any of them; without parameter
        servers that cannot be avoided.

        Args:
            config: the ``ConfigProto`` to copy; its device filters, if any, are kept.
        """
        own = tf.compat.v1.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        if self._is_in_cluster and SERVER_JOB in self._identity.cluster and not own.device_filters:
            own.device_filters.extend([f"/job:{SERVER_JOB}", self._own_device])
        return own

    def serve(self, logdir: str | None = None, *, options: Options | None = None) -> None:
        """Serve variables; return when the run has finished and its workers have ended.

        SIGTERM and SIGINT end the process as usual; its last record says stopped, not lost.

        Args:
            logdir: the run's directory, shared with the chief, to see when the run has finished. None: never return.
            options: for ``worker_name``, ``heartbeat_secs``, ``lease_timeout_secs``, ``finished_wait_secs`` and
                ``handle_signals``.

        Raises:
            RuntimeError: if this process is no parameter server, or its server was not started.
        """
        if not self.is_parameter_server or self._server is None:
            raise RuntimeError(
                f"{self.name} cannot serve: expected a task of the job {SERVER_JOB!r} whose server was started with "
                "start_server(). Chiefs and workers train instead."
            )
        if logdir is None:
            self._server.join()
            return
        options = options or Options()
        ParameterServer(absolute(logdir), options.worker_name or self.name, options).serve()

    @property
    def _is_in_cluster(self) -> bool:
        return bool(self._identity.cluster) and self._identity.type in (*self._identity.cluster, *CHIEF_JOBS)

    @property
    def _own_device(self) -> str:
        return f"/job:{self._identity.type}/task:{self._identity.index}"


_LOG = logging.getLogger("supervisor_core")

CHECK_SECS = 5.0
"""How often a parameter server checks the run's end and the workers' heartbeats, in seconds."""

REMOTE_CHECK_SECS = 15.0
"""The same if each check is a request to an object store."""


class ParameterServer:
    """Keeps this process alive, with heartbeats, until the run no longer needs its TensorFlow server.

    Args:
        logdir: the run's directory, shared with the chief.
        task: the task's name, ``ps:0``.
        options: for intervals and signals.
        wait: waits up to the seconds given; returns whether to end now. Default: ends at a signal.
    """

    def __init__(
        self,
        logdir: str,
        task: str,
        options: Options,
        *,
        wait: Callable[[float], bool] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._handles_signals = options.handle_signals
        self._clock = clock
        self._session = uuid.uuid4().hex[:16]
        self._task = task
        self._liveness = LivenessWriter(
            logdir, task, self._session, interval_secs=options.heartbeat_secs, phase="serving", clock=clock
        )
        self._check_secs = REMOTE_CHECK_SECS if local_path(logdir) is None else CHECK_SECS
        # always_waits: a chief may open one session after another, and the next one needs the variables too.
        self._chief = ChiefStatus(logdir, finished_wait_secs=options.finished_wait_secs, always_waits=True, clock=clock)
        self._worker_registry = WorkerRegistry(
            logdir, clock=clock, lost_after_secs=options.lease_timeout_secs, interval_secs=self._check_secs
        )

    def serve(self) -> None:
        """Return when the run has been finished for `Options.finished_wait_secs` and its workers have ended.

        After a crash of the chief it waits for the next. SIGTERM and SIGINT end it at once: it writes a stop record,
        then ends the process as the signal would have.
        """
        if not self._handles_signals:
            self._serve(None)
            return
        with SignalWatch(lambda signum: self._stop.set(), clock=self._clock) as watch:
            self._serve(watch)
        watch.finish()

    def _serve(self, watch: SignalWatch | None) -> None:
        self._liveness.start()
        reason: StopReason = "requested"
        try:
            while not self._wait(self._check_secs):
                self._worker_registry.scan()  # at every check, since a heartbeat is only known to continue after two
                if self._is_finished() and not self._is_needed():
                    _LOG.info("%s: the run has finished, and no process needs its variables.", self._task)
                    reason = "completed"
                    return
            if watch is not None and watch.received is not None:
                reason = "signal"
        finally:
            self._liveness.write(StopRecord(session=self._session, reason=reason))
            self._liveness.close()

    def _is_finished(self) -> bool:
        try:
            self._chief.check()
        except RunFinishedError:
            return True
        return False

    def _is_needed(self) -> bool:
        """Whether a worker is still running: without the variables it would fail."""
        at_work = [each for each in self._worker_registry.workers() if each.phase != "serving"]
        return any(each.state in ("running", "stalled") for each in at_work)


_TASK = re.compile(r"/job:([^/]+)/(?:replica:\d+/)?task:(\d+)")


def task_name(options: Options, graph: Any) -> str:
    """Return a worker's name, ``worker:1``, from the options, ``TF_CONFIG`` or its graph, or else ``host-pid``.

    The graph gives a name if all operations outside parameter servers are placed on one task.

    Args:
        options: for `Options.worker_name`.
        graph: the worker's graph.
    """
    if options.worker_name is not None:
        return options.worker_name
    try:
        identity = task_from_environment()
    except OptionsError as error:  # the program may not use TF_CONFIG at all
        _LOG.warning("This worker's name is not known: %s", error)
        identity = None
    if identity is not None and identity.cluster:
        return identity.name
    devices = {op.device for op in graph.get_operations()}
    tasks = {(found[1], found[2]) for device in devices if (found := _TASK.search(device))}
    others = {f"{job}:{int(index)}" for job, index in tasks if job != SERVER_JOB}
    return others.pop() if len(others) == 1 else f"{socket.gethostname()}-{os.getpid()}"
