"""`ClusterTask`: which process of a cluster this is, and the TensorFlow server that it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.options import Options
from supervisor_core.supervision.tf_config import CHIEF_JOBS, TaskIdentity, task_from_environment
from supervisor_core.tf1.cluster.parameter_server import ParameterServer
from supervisor_core.tf1.cluster.reach import remember_cluster

SERVER_JOB = "ps"


class ClusterTask:
    """One process of a cluster: chief, worker or parameter server; or one on its own, which is a chief.

    Source: "For use with multiple replicas" in seed document 003, and the environment's ``TF_CONFIG``.

    Args:
        identity: which process it is. Default: one on its own.

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
        """Return the process that ``TF_CONFIG`` describes; one on its own where it is not set.

        Args:
            environ: the environment's variables.

        Raises:
            OptionsError: if ``TF_CONFIG`` cannot be used; says what came, what was expected, and what to do.
        """
        return cls(task_from_environment(environ))

    @property
    def name(self) -> str:
        """The task, ``worker:1``; ``worker:0`` for a process on its own."""
        return self._identity.name

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises the model, saves and writes events."""
        return self._identity.is_chief

    @property
    def is_parameter_server(self) -> bool:
        """Whether this process holds variables for the others, and trains nothing itself."""
        return self._identity.type == SERVER_JOB

    @property
    def cluster(self) -> Any:
        """The cluster, as a ``tf.train.ClusterSpec``; empty for a process on its own."""
        return tf.train.ClusterSpec(self._identity.addresses)

    @property
    def target(self) -> str:
        """The master for this process's sessions: its server's, ``""`` for a process on its own.

        Raises:
            RuntimeError: if the server was not started.
        """
        if not self._is_in_cluster:
            return ""
        if self._server is None:
            raise RuntimeError(f"The server of {self.name} does not run yet: call start_server() first.")
        return str(self._server.target)

    def start_server(self, config: Any = None, protocol: str = "grpc") -> Any:
        """Start this process's TensorFlow server, once, and return it; None for a process on its own.

        Args:
            config: a ``ConfigProto`` for the server. Default: `session_config`, which keeps it to its own part of the
                cluster.
            protocol: what the cluster speaks.

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
        """Return a context for building the model: variables on the parameter servers in turn, the rest here."""
        return tf.compat.v1.device(
            tf.compat.v1.train.replica_device_setter(cluster=self.cluster, worker_device=self._own_device)
            if self._is_in_cluster
            else None
        )

    def session_config(self, config: Any = None) -> Any:
        """Return a configuration for sessions which need the parameter servers and this process, and no other worker.

        A session without that waits for every process of the cluster when it is made, and is lost with any of them. In
        a cluster without parameter servers it has to.

        Args:
            config: the ``ConfigProto`` to begin with; it stays as it is. Filters that it has are left alone.
        """
        own = tf.compat.v1.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        if self._is_in_cluster and SERVER_JOB in self._identity.cluster and not own.device_filters:
            own.device_filters.extend([f"/job:{SERVER_JOB}", self._own_device])
        return own

    def serve(self, logdir: str | None = None, *, options: Options | None = None) -> None:
        """Be a parameter server: return when the run has finished and its workers have ended.

        SIGTERM and SIGINT end the process as ever, but it is told of as stopped, not as lost.

        Args:
            logdir: the run's directory, shared with the chief, which tells when that is. None: never returns.
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
        ParameterServer(logdir, options.worker_name or self.name, options).serve()

    @property
    def _is_in_cluster(self) -> bool:
        return bool(self._identity.cluster) and self._identity.type in (*self._identity.cluster, *CHIEF_JOBS)

    @property
    def _own_device(self) -> str:
        return f"/job:{self._identity.type}/task:{self._identity.index}"
