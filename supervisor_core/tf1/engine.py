"""`Engine`: what works behind a `Supervisor`'s API, built from the supervisor's attributes when it is first needed.

Only from attributes that the original has too. So a subclass whose constructor is a copy of the original's, or which
sets some of them itself after the constructor, gets what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.clock import SYSTEM_CLOCK
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.options import Options
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
from supervisor_core.tf1.cluster.task import task_name
from supervisor_core.tf1.lifecycle import Claim, Lifecycle
from supervisor_core.tf1.session import supervise


class Engine:
    """The parts of one supervisor.

    Args:
        supervisor: whose attributes say what is supervised.
        options: how the run behaves.
        logdir: the run's directory, absolute, which a worker knows too.
        save_path: what checkpoints' paths begin with, absolute; None where none are saved.
        sets_ready_flag: whether workers may wait for this process.
        begin: begins a session, for a program that makes a TensorFlow session of its own before there is one.
    """

    def __init__(
        self,
        supervisor: tf.compat.v1.train.Supervisor,
        options: Options,
        *,
        logdir: str | None,
        save_path: str | None,
        sets_ready_flag: bool,
        begin: Callable[[], object],
    ) -> None:
        self._is_unsaved = not supervisor.saver and not sets_ready_flag
        self._step_lock = StepLock(clock=SYSTEM_CLOCK)
        self._global_step = supervisor.global_step
        self._begin = begin
        self.writer = supervisor.summary_writer
        """Takes the telemetry: the program's summary writer, or one of our own; None where nothing is written."""
        self.is_writer_own = self.writer is None
        """Whether the program has no summary writer."""
        if self.writer is None and supervisor.is_chief and logdir and options.write_telemetry:
            self.writer = FileWriter(logdir)
        self.lifecycle = Lifecycle(
            coord=supervisor.coord,
            options=options,
            facade="Supervisor",
            logdir=logdir,
            writer=self.writer,
            is_chief=supervisor.is_chief,
            task=None if supervisor.is_chief else task_name(options, supervisor._graph),
            checkpoints=_checkpoints(supervisor, save_path, options, self._step_lock),
            clock=SYSTEM_CLOCK,
        )

    def new_session(self, target: str, graph: Any, config: Any) -> Any:
        """Return a new supervised session on a TensorFlow master."""
        if not self.lifecycle.is_under_way:
            self._begin()
        return self.supervise(tf.compat.v1.Session(target, graph=graph, config=config))

    def supervise(self, sess: Any) -> Any:
        """Return a session that does what this one does, supervised; this one itself if it is none of TensorFlow's."""
        observer = self.lifecycle.recorder.progress
        return supervise(sess, step_lock=self._step_lock, observer=observer, global_step=self._global_step)

    def claim(self, *, serves: bool) -> Claim:
        """Return how the logdir is taken, by what this process can come to write there.

        Args:
            serves: whether the services are started at once.
        """
        if self._is_unsaved:
            return "gives way"
        return "required" if serves else "if free"


def _checkpoints(
    supervisor: tf.compat.v1.train.Supervisor, save_path: str | None, options: Options, step_lock: StepLock
) -> CheckpointManager | None:
    if not (supervisor.is_chief and save_path and supervisor.saver and supervisor.save_model_secs):
        return None
    checkpoint_writer = CheckpointWriter(
        graph=supervisor._graph,
        saver=supervisor.saver,
        save_path=save_path,
        global_step=supervisor.global_step,
        meta_graph_def=supervisor._meta_graph_def,
        step_lock=step_lock,
        options=options,
    )
    return CheckpointManager(checkpoint_writer, supervisor.save_model_secs)
