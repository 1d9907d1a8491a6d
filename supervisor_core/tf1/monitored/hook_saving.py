"""`Saving`: how a `CheckpointSaverHook` saves: in the background of a session of ours, or blocking in any other."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from supervisor_core.options import Options
from supervisor_core.runtime.gate import Gate
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
from supervisor_core.tf1.global_step import collected_global_step
from supervisor_core.tf1.graph_record import GraphRecord, export_meta_graph

_LOG = logging.getLogger("supervisor_core")


class Saving(Protocol):
    """Saves the checkpoints of one hook in one session, always called by the thread that trains."""

    @property
    def on_timer(self) -> bool:
        """Whether it saves at an interval in seconds by itself, so that the hook has no run to watch."""

    @property
    def at_end(self) -> bool:
        """Whether a checkpoint is wanted when the session ends."""

    def begin(self, session: Any) -> None:
        """Record the session's graph."""

    def save(self, session: Any, step: int, *, is_last: bool, until_written: bool) -> bool:
        """Have this moment saved; return whether it is on the disk, as far as that was waited for.

        Args:
            session: the session.
            step: its global step.
            is_last: whether the session ends with it.
            until_written: wait for the disk. Else only until training may go on.

        Raises:
            Exception: what kept it from being saved, where nothing tries again.
        """

    def finish(self) -> None:
        """Save what has changed since the last save though the step has not, because the session ends."""


class BlockingSaving:
    """Saves while the thread that trains waits: for sessions that are not ours.

    As the plain ``Saver.save``, but a checkpoint that is there is whole: it is written aside, synced, read back and
    moved into its place, then the state file is replaced. Nothing is added to the graph.

    Args:
        saver: returns what saves.
        save_path: what checkpoints' paths begin with.
        save_graph_def: whether to write ``graph.pbtxt`` and the checkpoints' ``.meta``.
        writer: the summary writer of the checkpoints' directory.
    """

    on_timer = False
    at_end = True

    def __init__(self, saver: Callable[[], Any], save_path: str, save_graph_def: bool, writer: Any) -> None:
        self._find_saver = saver
        self._save_path = save_path
        self._save_graph_def = save_graph_def
        self._writer = writer
        self._saver: CheckpointWriter | None = None

    def begin(self, session: Any) -> None:
        """Write ``graph.pbtxt``, and graph and meta graph to the events file."""
        graph = tf.compat.v1.get_default_graph()
        graph_def = graph.as_graph_def(add_shapes=True)
        record = GraphRecord(graph, graph_def, export_meta_graph(graph, graph_def, self._find_saver()))
        if self._save_graph_def:
            record.write_file(os.path.dirname(self._save_path))
        record.write_events(self._writer)

    def save(self, session: Any, step: int, *, is_last: bool, until_written: bool) -> bool:
        """Save; raises whatever kept it from being saved."""
        _LOG.info("Saving checkpoints for %d into %s.", step, self._save_path)
        if self._saver is None:
            self._saver = self._new_saver(session.graph)
        result = self._saver.save(session, "final" if is_last else "timer")
        if result.cause is not None:
            raise result.cause
        if result.path is not None:  # else the saver has nothing to save
            log = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.CHECKPOINT, checkpoint_path=result.path)
            self._writer.add_session_log(log, step)
        return True

    def finish(self) -> None:
        """Do nothing: as in the original, a step that was saved is not saved again."""

    def _new_saver(self, graph: Any) -> CheckpointWriter:
        saver = self._find_saver()
        tf.io.gfile.makedirs(os.path.dirname(self._save_path) or ".")
        meta_graph_def = None
        if self._save_graph_def:
            meta_graph_def = export_meta_graph(graph, graph.as_graph_def(add_shapes=True), saver)
        return CheckpointWriter(
            graph=graph,
            saver=saver,
            save_path=self._save_path,
            global_step=collected_global_step(graph),
            meta_graph_def=meta_graph_def,
            gate=Gate(),
            options=Options(),
            blocking=True,
        )
