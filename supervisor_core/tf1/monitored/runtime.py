"""`MonitoredRuntime`: gives a monitored session what a `Supervisor` has.

That is one `Lifecycle` with its lock, telemetry, metrics and signals, one writer per directory, and one checkpoint
manager per checkpoint hook. The session's `HostedHook` objects decide what it does: without any of them nothing is
written and no signal is handled.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.options import Options
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import ServiceInterval
from supervisor_core.storage.local import absolute
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpoint_manager import CheckpointManager, refuse_unwritable_saves
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter, SaveLocation
from supervisor_core.tf1.cluster.task import task_name
from supervisor_core.tf1.global_step import collected_global_step, read_global_step
from supervisor_core.tf1.graph import GraphRecord
from supervisor_core.tf1.lifecycle import RELEASE_AFTER_SECS, Lifecycle
from supervisor_core.tf1.monitored.checkpoint_hook import (
    ON_DEMAND_SECS,
    CheckpointSaverHook,
    SnapshotService,
)
from supervisor_core.tf1.monitored.hooked_session import HookLosses
from supervisor_core.tf1.monitored.hosted_hook import HostedHook, writer_for
from supervisor_core.tf1.restore import RestoreInfo
from supervisor_core.tf1.services import CHECKPOINT, Coordinator, new_readers, new_service
from supervisor_core.tf1.tf_errors import error_text

_LOG = logging.getLogger("supervisor_core")
_START = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)

_NO_GLOBAL_STEP = (
    "The graph has no global step: calls are counted instead, checkpoints have no step, and there are no step rates. "
    "tf.compat.v1.train.get_or_create_global_step() creates one."
)

SAVE_WAIT_SECS = 30.0
"""How long a save in progress may take to finish after the session is lost, in seconds."""


class MonitoredRuntime:
    """The supervised session of one monitored session; and the host of its hooks.

    Args:
        facade: the public class or function that the program called.
        hooks: the session's hooks.
        stop_grace_secs: seconds that threads have to stop.
        is_worker: whether the session waits for a chief.
        logdir: the run's directory, if no hook names one.
    """

    def __init__(
        self,
        *,
        facade: str,
        hooks: Sequence[Any],
        options: Options,
        stop_grace_secs: float,
        is_worker: bool = False,
        logdir: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options
        self.coord = Coordinator(clean_stop_exception_types=(), clock=clock)
        """The coordinator of the present TensorFlow session."""
        self.global_step: Any = None
        """The variable that counts the steps, once there is a session; None without one."""
        self._stop_grace_secs = stop_grace_secs
        own = [hook for hook in hooks if isinstance(hook, HostedHook)]
        self._savers = [hook for hook in own if isinstance(hook, CheckpointSaverHook)]
        directories = [hook.output_dir for hook in own if hook.output_dir]
        # TensorBoard is pointed at rates and summaries, so telemetry goes there too.
        directories.sort(key=lambda directory: directory in [saver.checkpoint_dir for saver in self._savers])
        self._directory = directories[0] if directories else None
        self._logdir = self._savers[0].checkpoint_dir if self._savers else self._directory
        self._name_source = self._logdir or (logdir and absolute(logdir))
        self._is_worker = is_worker
        self._own = own
        self._writers = RunWriters([(hook.output_dir, hook.given_dir) for hook in own])
        self._writer = self._writers.get(self._directory) if self._directory else None
        self.lifecycle = Lifecycle(
            coord=self.coord,
            options=options,
            facade=facade,
            logdir=self._name_source,
            writer=self._writer,
            is_chief=bool(self._savers),
            task=task_name(options, tf.compat.v1.get_default_graph()) if is_worker else None,
            checkpoint_interval_secs=self._savers[0].interval_secs if self._savers else None,
            clock=clock,
        )
        self.losses = HookLosses(hooks, self.lifecycle.step_lock)
        """The losses that NaN hooks check."""
        self._open = ExitStack()
        self._checkpoints: dict[int, CheckpointManager] = {}
        self._graph_record: GraphRecord | None = None
        self._recovery: _Recovery | None = None

    def begin(self, at_exit: Callable[[BaseException | None], object]) -> None:
        """Take the logdir's lock, install signal handlers.

        Args:
            at_exit: closes the session at interpreter exit, unless it is closed by then.

        Raises:
            LogdirInUseError: if another live chief saves to the same directory.
        """
        try:
            if self._directory or (self._is_worker and self._name_source):
                self._open.enter_context(self.lifecycle.ending.signals.watched())
            self._open.callback(self.lifecycle.ending.stop_serving)
            self.lifecycle.begin(at_exit)
        except BaseException:  # refused: write nothing into the run of the live chief
            self._writers.close()
            self._open.close()
            raise
        for hook in self._own:
            if hook.output_dir:
                self.lifecycle.recorder.guard(hook.output_dir)
        self._progress = self.lifecycle.recorder.progress
        for hook in self._own:
            hook.join(self)
            if isinstance(hook, CheckpointSaverHook):
                tf.io.gfile.makedirs(hook.checkpoint_dir)
            elif hook.output_dir:
                self._writers.get(hook.output_dir)

    def refuse_unwritable(self) -> None:
        """Raise `SaveFailedError` where a hook could save no checkpoint; see `environment.refuse_unwritable`."""
        for saver in self._savers:
            refuse_unwritable_saves(saver.save_path, self.options)

    def supervise(self, sess: Any, maker: Any) -> Any:
        """Return a supervised session around a new one; begin its records and start its readers.

        Args:
            maker: its creator, which may know where the model came from.
        """
        graph = sess.graph
        first = self._graph_record is None
        if first:
            with graph.as_default():
                self.global_step = collected_global_step(graph)
        supervised = self.lifecycle.supervise(sess, self.global_step)
        restore_info = RestoreInfo.of(maker, supervised, self.global_step)
        step = None if self.global_step is None else read_global_step(supervised, self.global_step)
        self.losses.clear()
        if first:
            self._build_checkpoints(graph, self._record_graph(graph))
            if self.global_step is None and self._own:
                _LOG.warning(_NO_GLOBAL_STEP)
            self.lifecycle.session_ready(supervised, restore_info, self._services())
        else:
            assert self._recovery is not None
            secs = self.lifecycle.clock.monotonic() - self._recovery.since
            if restore_info.step is None:  # initialised, here or by the chief
                restore_info = replace(restore_info, step=step)
            self.lifecycle.recovered(supervised, restore_info, self._recovery.error, self._recovery.times, secs)
        self._recovery = None
        for checkpoints in self._checkpoints.values():
            checkpoints.attach(supervised, self.lifecycle.recorder, self._writer, restore_info)
        if step is not None:
            self._progress.rewound(step)
            if first and self._writer is not None:
                self._writer.add_session_log(_START, step)
        newest_loss = self.losses.newest if self.losses.keys else None
        for reader in new_readers(self.coord, self.lifecycle, supervised, self.global_step, newest_loss):
            self.lifecycle.services.add(reader).start()
        return supervised

    def step(self) -> int:
        """Return an estimate of the global step that needs no call; without a global step, the calls made so far."""
        return self._progress.step_estimate

    def read_step(self) -> int:
        """Return the global step, read in the session; without a global step, the calls made so far."""
        if self.global_step is None:
            return self._progress.step_estimate
        since = self._progress.steps
        step = read_global_step(self.lifecycle.state.tf_session, self.global_step)
        self._progress.step_read(step, since)
        return step

    def writer_of(self, directory: str) -> Any:
        """Return the summary writer of a directory: the run's own if the run writes there."""
        return self._writers.find(directory) or writer_for(directory)

    def hook_saver(self, hook: CheckpointSaverHook) -> SnapshotService | None:
        """Return what saves for a hook in the present session; None if its saver has no variables."""
        checkpoints = self._checkpoints.get(id(hook))
        if checkpoints is None:
            return None
        interval_secs = None if hook.listens else hook.interval_secs
        service = new_service(
            SnapshotService,
            self.coord,
            self.lifecycle,
            self.lifecycle.state.tf_session,
            name=CHECKPOINT,
            interval_secs=interval_secs or ON_DEMAND_SECS,
            target=lambda taken: checkpoints.save("timer", taken),
        )
        checkpoints.serving = True
        service.lifecycle, service.checkpoints = self.lifecycle, checkpoints
        self.lifecycle.services.add(service)
        return service

    def save_after_error(self) -> None:
        """Save the last state after an exception ended the loop, if the options say so. Never raises."""
        for checkpoints in self._checkpoints.values():
            try:
                self.lifecycle.ending.save(checkpoints)
            except Exception:  # the error that ended the training is raised, not this one
                _LOG.exception("The checkpoint after the error could not be saved")

    def save_changes_of_hooks(self) -> None:
        """Save what hooks have changed in their ``end``; raises `SaveFailedError`."""
        for checkpoints in self._checkpoints.values():
            if checkpoints.has_changed:
                self.lifecycle.ending.save(checkpoints)

    def session_lost(self, error: Exception) -> None:
        """Record that the TensorFlow session is lost, maybe before it was ready."""
        text = error_text(error)
        if self._recovery is None:
            self._recovery = _Recovery(self.lifecycle.clock.monotonic(), text)
        self._recovery.error, self._recovery.times = text, self._recovery.times + 1
        self.lifecycle.recovering()

    def new_coordinator(self) -> None:
        """Start with a new coordinator and no services, for a new TensorFlow session."""
        self.lifecycle.services.clear()
        self.coord = Coordinator(clean_stop_exception_types=(), clock=self.lifecycle.clock)
        self.lifecycle.coordinate(self.coord)

    def stop_threads(self, release: Any, *, at_once: bool, secs: float | None = None) -> None:
        """Stop the present session's threads and wait for them.

        Args:
            release: closes the session, which releases threads that block in it.
            at_once: whether to release them immediately.
            secs: how long to wait at most. Default: ``stop_grace_secs``.

        Raises:
            BaseException: what was reported to the coordinator.
        """
        self.coord.request_stop()
        if at_once:
            for checkpoints in self._checkpoints.values():  # a snapshot taken before the loss is good
                checkpoints.wait_until_saved(SAVE_WAIT_SECS)
        if release is not None:
            self.coord.register_release(release, after_secs=0.0 if at_once else RELEASE_AFTER_SECS)
        grace_secs = self._stop_grace_secs if secs is None else secs
        self.coord.join(stop_grace_period_secs=grace_secs, ignore_live_threads=True)

    def stop(self, save: Callable[[], object], join: Callable[[float], object]) -> None:
        """End the session in the order of `Ending`; after a signal, end the process as the signal would have.

        Args:
            save: saves the last state.
            join: waits for the threads, up to the seconds given, and closes the session.
        """
        with self._open:  # its exit stops serving metrics, and ends the process after a signal
            self.lifecycle.ending.stop(self._stop_grace_secs, save=save, join=join, close=self._close_writers)

    def end(self, error: BaseException) -> None:
        """Record that the session ended before it was ready."""
        with self._open:
            try:
                self.lifecycle.ending.record(error)
            finally:
                self._close_writers()

    def _close_writers(self) -> None:
        for hook in self._own:
            hook.join(None)
        self.lifecycle.ending.close_writer()
        self._writers.close()

    def _record_graph(self, graph: Any) -> GraphRecord:
        saver = self._savers[0]._get_saver() if self._savers else None
        self._graph_record = GraphRecord.of(graph, saver)
        if self._savers:
            if self._logdir and self._savers[0].save_graph_def:
                self._graph_record.write_file(self._logdir)
            if self._writer is not None:
                self._graph_record.write_events(self._writer)
        return self._graph_record

    def _build_checkpoints(self, graph: Any, graph_record: GraphRecord) -> None:
        locks: dict[str, threading.RLock] = {}  # of the directories
        locations: dict[str, SaveLocation] = {}
        for hook in self._savers:
            path = os.path.normpath(hook.save_path)
            lock = locks.setdefault(os.path.dirname(path), threading.RLock())
            location = locations.setdefault(path, SaveLocation(hook.save_path, lock=lock))
            saver = hook._get_saver()
            if saver is None or not _saves_anything(saver):
                continue
            checkpoint_writer = CheckpointWriter(
                graph=graph,
                saver=saver,
                save_path=hook.save_path,
                global_step=self.global_step,
                meta_graph_def=graph_record.meta_graph_def if hook.save_graph_def else None,
                step_lock=self.lifecycle.step_lock,
                options=self.options,
                location=location,
                watched=self.losses.newest,
                clock=self.lifecycle.clock,
            )
            checkpoints = CheckpointManager(checkpoint_writer, hook.interval_secs, self.lifecycle.clock)
            if not self._checkpoints:
                self.lifecycle.use(checkpoints)
            self._checkpoints[id(hook)] = checkpoints

    def _services(self) -> tuple[ServiceInterval, ...]:
        return tuple(
            ServiceInterval(name=CHECKPOINT, interval_secs=hook.interval_secs, interval_steps=hook.interval_steps)
            for hook in self._savers
        )


@dataclass
class _Recovery:
    """The recovery in progress: monotonic start, last error, number of attempts."""

    since: float
    error: str
    times: int = 0


def _saves_anything(saver: Any) -> bool:
    """Whether a saver has variables to save."""
    return not private.IS_EMPTY.get(saver, getattr(saver, "saver_def", saver) is None)


class RunWriters:
    """The writers of the directories that a session writes to, each opened at its first use.

    While one is open, ``tf.compat.v1.summary.FileWriterCache`` returns it too, so that programs and TensorFlow's own
    hooks append to the same events file.

    Args:
        names: each hook's directory, absolute, and as the program has named it.
    """

    def __init__(self, names: Sequence[tuple[str | None, str | None]]) -> None:
        self._names = names
        self._writers: dict[str, FileWriter] = {}
        self._displaced: dict[str, Any] = {}

    def get(self, directory: str) -> FileWriter:
        """Return the writer of a directory.

        Raises:
            EventsWriteError: if its file cannot be created.
        """
        key = _key(directory)
        if key not in self._writers:
            self._writers[key] = FileWriter(directory)
        self._lend(directory, self._writers[key])
        return self._writers[key]

    def find(self, directory: str) -> FileWriter | None:
        """Return the writer of a directory, if it is open."""
        writer = self._writers.get(_key(directory))
        if writer is not None:
            self._lend(directory, writer)
        return writer

    def close(self) -> None:
        """Close the writers and restore TensorFlow's cache."""
        for directory, earlier in self._displaced.items():
            cache = _cache()
            if earlier is not None:
                cache[directory] = earlier
            else:
                cache.pop(directory, None)
        self._displaced.clear()
        for writer in self._writers.values():
            writer.close()

    def _lend(self, directory: str, writer: FileWriter) -> None:
        cache = _cache()
        for name in (directory, *(given for path, given in self._names if path == directory)):
            if name is not None and name not in self._displaced:
                self._displaced[name] = cache.get(name)
                cache[name] = writer


def _key(directory: str) -> str:
    return os.path.abspath(directory) if "://" not in directory else directory


def _cache() -> dict[str, Any]:
    """TensorFlow's cache of writers by directory; an unused one if this TensorFlow has none."""
    found = private.WRITER_CACHE.get(tf.compat.v1.summary.FileWriterCache)
    return found if isinstance(found, dict) else {}
