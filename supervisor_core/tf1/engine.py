"""`Engine`: what works behind a `Supervisor`'s API, built from the supervisor's attributes when it is first needed.

Only from attributes that the original has too. So a subclass whose constructor is a copy of the original's, or which
sets some of them itself after the constructor, gets what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.engine.lifecycle import Claim
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.options import Options
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
from supervisor_core.tf1.cluster.task import task_name
from supervisor_core.tf1.lifecycle import Lifecycle


class Engine:
    """The parts of one supervisor.

    Args:
        supervisor: a `Supervisor`, whose attributes say what is supervised.
    """

    def __init__(self, supervisor: Any) -> None:
        options: Options = supervisor._options
        logdir = supervisor._absolute(supervisor._shared_logdir or supervisor._logdir)
        self._is_unsaved = not supervisor.saver and supervisor._ready_flag is None
        self._global_step = supervisor.global_step
        self._begin: Callable[[], object] = supervisor._begin
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
        )
        self._add_checkpoints(supervisor, supervisor._absolute(supervisor.save_path))

    def new_session(self, target: str, graph: Any, config: Any) -> Any:
        """Return a new supervised session on a TensorFlow master."""
        if not self.lifecycle.is_under_way:
            self._begin()
        return self.supervise(tf.compat.v1.Session(target, graph=graph, config=config))

    def supervise(self, sess: Any) -> Any:
        """Return a session that does what this one does, supervised; this one itself if it is none of TensorFlow's."""
        return self.lifecycle.supervise(sess, self._global_step)

    def claim(self, *, serves: bool) -> Claim:
        """Return how the logdir is taken, by what this process can come to write there.

        Args:
            serves: whether the services are started at once.
        """
        if self._is_unsaved:
            return "gives way"
        return "required" if serves else "if free"

    def _add_checkpoints(self, supervisor: Any, save_path: str | None) -> None:
        if not (supervisor.is_chief and save_path and supervisor.saver and supervisor.save_model_secs):
            return
        checkpoint_writer = CheckpointWriter(
            graph=supervisor._graph,
            saver=supervisor.saver,
            save_path=save_path,
            global_step=supervisor.global_step,
            meta_graph_def=supervisor._meta_graph_def,
            step_lock=self.lifecycle.step_lock,
            options=self.lifecycle.options,
        )
        self.lifecycle.use(CheckpointManager(checkpoint_writer, supervisor.save_model_secs))
