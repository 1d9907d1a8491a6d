"""`Supervisor`: the drop-in successor of ``tf.compat.v1.train.Supervisor``.

Same arguments, defaults, properties, methods, aliases, events and order of events; what is better is listed in
docs/why.md. What happens behind the API is in `lifecycle`, `checkpoint_manager` and `services`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from supervisor_core.base.errors import RunFinishedError
from supervisor_core.base.options import Options
from supervisor_core.engine.lifecycle import Claim
from supervisor_core.engine.service import Policy
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.storage.local import absolute
from supervisor_core.tf1.checkpoint_manager import CheckpointManager, refuse_unwritable_saves
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
from supervisor_core.tf1.cluster.connect import FinishedSession, close_with_timeout
from supervisor_core.tf1.cluster.task import task_name
from supervisor_core.tf1.global_step import find_global_step, read_global_step
from supervisor_core.tf1.graph import VARIABLES, GraphRecord
from supervisor_core.tf1.lifecycle import RELEASE_AFTER_SECS, Lifecycle, RunMethods
from supervisor_core.tf1.restore import RestoreInfo
from supervisor_core.tf1.services import Coordinator, ServiceThread, StandardServices, start_queue_threads
from supervisor_core.tf1.session_manager import ReadyFlag, SessionManager, ready_flag_for
from supervisor_core.tf1.tf_errors import explain_finalized

_LOG = logging.getLogger("supervisor_core")
_KEYS = tf.compat.v1.GraphKeys
_START = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
_EAGER = "with eager execution. Build and run the model in a graph: with tf.Graph().as_default(): ..."


class Supervisor(RunMethods, tf.compat.v1.train.Supervisor):
    """Keeps a training alive that runs for days: checkpoints, summaries, recovery, and metrics to watch it by.

    Source: seed documents 000, 002 and 003; arguments, defaults and order are those of the original.

    Args:
        graph: the model's graph, which is finalized here. Default: the default graph.
        ready_op: a 1-D string tensor that names what is not initialized. None checks nothing.
        ready_for_local_init_op: the same, for when ``local_init_op`` may run. Default: from its collection, or None.
        is_chief: whether this process initialises, restores, saves and writes; others wait for it.
        init_op: initialises the model. Default: all global variables. None initialises nothing.
        init_feed_dict: feeds for ``init_op``.
        local_init_op: run for every new session. Default: local variables and tables. None runs nothing.
        logdir: where checkpoints and events go. None writes nothing.
        summary_op: computes summaries. Default: all of the graph's, merged. None runs no summary service.
        saver: saves and restores. Default: one for all global variables. None saves nothing: then the logdir may be
            that of another process's run, into which nothing is written but what the program adds itself.
        global_step: an integer of size 1 that counts steps. Default: the graph's ``global_step``. None: not recorded.
        save_summaries_secs: seconds between summaries, and between step rates. 0: none.
        save_model_secs: seconds between checkpoints. 0: none.
        recovery_wait_secs: the longest wait between two looks whether the chief has made the model ready, in seconds.
        stop_grace_secs: seconds that threads have to end once a stop was requested.
        checkpoint_basename: what checkpoint files are called.
        session_manager: creates the sessions. Default: a `SessionManager`.
        summary_writer: where summaries go. Default: a `FileWriter` on the logdir. None: nowhere; telemetry goes to an
            events file of its own (`Options.write_telemetry`).
        init_fn: called with the session after ``init_op``, when nothing was restored.
        local_init_run_options: ``RunOptions`` for ``local_init_op``.
        options: what the original does not know; see `Options`.

    Raises:
        RuntimeError: under eager execution.
        ValueError: if this is no chief and a variable has no device.

    Example:
        sv = supervisor_core.Supervisor(logdir="/my/training/directory")
        with sv.managed_session() as sess:
            while not sv.should_stop():
                sess.run(train_op)
    """

    USE_DEFAULT = 0
    """Stands for "use the default", by identity; None means "do without"."""

    # For subclasses whose constructor is a copy of the original's.
    _options = Options()
    _ready_flag: ReadyFlag | None = None
    _shared_logdir: str | None = None
    _absolute_paths: Mapping[str, str] = MappingProxyType({})
    _checkpoint_basename: str | None = None
    _graph_def: Any = None

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
        *,
        options: Options | None = None,
    ) -> None:
        if tf.executing_eagerly():
            raise RuntimeError(f"Supervisors are incompatible {_EAGER}")
        self._options = options if options is not None else Options()
        self._graph = graph if graph is not None else tf.compat.v1.get_default_graph()
        with self._graph.as_default():
            self._init_ready_op(ready_op=ready_op, ready_for_local_init_op=ready_for_local_init_op)
            self._init_init_op(init_op=init_op, init_feed_dict=init_feed_dict)
            self._init_local_init_op(local_init_op=local_init_op)
            self._init_saver(saver=saver)
            self._init_summary_op(summary_op=summary_op)
            self._init_global_step(global_step=global_step)
            # The last that is added: the graph is captured as it is trained, to the last node.
            self._ready_flag = ready_flag_for(self._graph) if session_manager is None else None
        record = GraphRecord.of(self._graph, self._saver)
        self._graph_def, self._meta_graph_def = record.graph_def, record.meta_graph_def
        self._is_chief = is_chief
        self._coord: Any = Coordinator()
        self._recovery_wait_secs = recovery_wait_secs
        self._stop_grace_secs = stop_grace_secs
        self._init_fn = init_fn
        self._local_init_run_options = local_init_run_options
        self._checkpoint_basename = checkpoint_basename
        self._shared_logdir = logdir
        self._logdir = logdir if is_chief else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._save_path = os.path.join(logdir, checkpoint_basename) if is_chief and logdir else None
        given = (logdir, self._save_path)
        self._absolute_paths = {os.fspath(path): absolute(path) for path in given if path}
        self._summary_writer = summary_writer if is_chief else None
        if is_chief and summary_writer is Supervisor.USE_DEFAULT:
            self._summary_writer = FileWriter(logdir) if logdir else None
        self._graph_added_to_summary = False
        self._init_session_manager(session_manager=session_manager)
        self._verify_setup()
        self._graph.finalize()

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Return a session whose model is ready: restored or initialised here, or by the chief.

        Args:
            master: the TensorFlow master, ``""`` for this process.
            config: a ``ConfigProto`` for the session.
            wait_for_checkpoint: wait for a checkpoint rather than initialise.
            max_wait_secs: how long to wait, in seconds.
            start_standard_services: start the services and the queue runners.

        A worker that comes when the run has finished gets a closed session; ``should_stop()`` is True.

        Raises:
            LogdirInUseError: if another live chief holds the logdir.
            NoUsableCheckpointError: if there are checkpoints and none can be read.
            SaveFailedError: if checkpoints are to be saved where this process may not write.
        """
        self._coord.clear_stop()
        self._begin(serves=start_standard_services)
        try:
            if self._is_chief:
                sess = self._session_manager.prepare_session(
                    master,
                    init_op=self.init_op,
                    saver=self.saver,
                    checkpoint_dir=self._absolute(self._logdir),
                    wait_for_checkpoint=wait_for_checkpoint,
                    max_wait_secs=max_wait_secs,
                    config=config,
                    init_feed_dict=self._init_feed_dict,
                    init_fn=self._init_fn,
                )
                sess = self._lifecycle.supervise(sess, self._global_step)
                self._write_graph()
            else:
                sess = self._session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
            self._ready(sess, serves=start_standard_services)
            if start_standard_services:
                if self._is_chief:
                    _LOG.info("Starting standard services.")
                    self.start_standard_services(sess)
                _LOG.info("Starting queue runners.")
                self.start_queue_runners(sess)
            self._lifecycle.ending.signals.raise_lost_interrupt()
        except RunFinishedError as error:
            _LOG.warning("%s", error)
            self._lifecycle.finished()
            return FinishedSession(self._graph, str(error))
        except BaseException as error:
            self._lifecycle.state.reason.body_error = error
            self._lifecycle.ending.record(error)
            self._lifecycle.ending.signals.stopped()
            raise
        self._prepared(sess)
        return sess

    def start_standard_services(self, sess: Any) -> list[Any] | None:
        """Log START and start the summary, step counter and checkpoint services, as far as they are wanted.

        Returns:
            Their threads, in that order; None, with a warning, without a logdir. `RuntimeError` on a worker.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if not self._logdir:
            _LOG.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        self._ready(sess, serves=True)
        self._lifecycle.require_ownership()
        if (checkpoints := self._lifecycle.checkpoints) is not None:
            refuse_unwritable_saves(checkpoints.checkpoint_writer.save_path, self._options)
        writer = self._lifecycle.state.writer
        if self._global_step is not None and writer and not self._lifecycle.state.is_not_owner:
            step = read_global_step(sess, self._global_step)
            self._lifecycle.recorder.progress.step_read(step)  # before training: from here on steps are counted
            writer.add_session_log(_START, step)
        return StandardServices(self, sess, self._lifecycle).start()

    def stop(
        self, threads: Iterable[Any] | None = None, close_summary_writer: bool = True, ignore_live_threads: bool = False
    ) -> None:
        """Stop the services: a final checkpoint after a clean end, then STOP. The session stays open.

        After a SIGTERM or SIGINT outside of a managed session's block, which stops the services itself, the process
        then ends as the signal would have ended it. In a forked child of the session's process nothing happens.

        Args:
            threads: threads to join besides the services, queue runners and loops.
            close_summary_writer: log STOP and close the writer.
            ignore_live_threads: only log threads that did not end in time.

        Raises:
            Exception: the first that was reported to the coordinator.
            RuntimeError: if threads did not end within ``stop_grace_secs``.
            SaveFailedError: if the final checkpoint could not be saved.
        """
        ending = self._lifecycle.ending
        ignore_live_threads |= self._lifecycle.state.reason.ignores_live_threads
        try:
            ending.stop(
                self._stop_grace_secs,
                save=ending.save,
                join=lambda secs: self._coord.join(threads, secs, ignore_live_threads),
                close=self._close_writer if close_summary_writer or self._summary_writer is None else lambda: None,
            )
        finally:
            ending.signals.stopped()

    def summary_computed(self, sess: Any, summary: Any, global_step: int | None = None) -> None:
        """Append a summary, a ``Summary`` or one serialized, to the run's events file.

        Args:
            sess: the session, to read the step in.
            summary: the summary; `TypeError` if it is none.
            global_step: the summary's step. Default: the present one.

        Raises:
            RuntimeError: without a summary writer.
        """
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = read_global_step(sess, self._global_step)
        self._summary_writer.add_summary(summary, global_step)

    def start_queue_runners(self, sess: Any, queue_runners: Iterable[Any] | None = None) -> list[Any]:
        """Start threads for queue runners, around the step lock: a full queue must not hold up a checkpoint.

        Args:
            sess: the session.
            queue_runners: which. Default: all that the graph collected.

        Raises:
            RuntimeError: under eager execution.
        """
        if tf.executing_eagerly():
            raise RuntimeError(f"Queues are not compatible {_EAGER}")
        if queue_runners is None:
            queue_runners = self._graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        return start_queue_threads(sess, queue_runners, self._coord)

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
        service = ServiceThread(
            self._coord,
            timer_interval_secs,
            target,
            args,
            kwargs,
            name=self._lifecycle.services.reserve_name(target),
            policy=Policy(on_error=self._options.service_errors),
            on_failure=self._lifecycle.service_failed,
        )
        self._lifecycle.services.add(service).start()
        return service

    @contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """Be a ``with`` block's session whose model is ready, and end everything as planned when the block ends.

        An exception of the block or of a service is raised when the block ends; `OutOfRangeError`, exhausted input, is
        a clean end. SIGTERM and SIGINT make ``should_stop()`` true; the process then ends as the signal would have it.

        Args:
            master: the TensorFlow master, ``""`` for this process.
            config: a ``ConfigProto`` for the session.
            start_standard_services: start the services and the queue runners.
            close_summary_writer: close the writer at the end.
        """
        # A subclass may override what is called here: it gets the arguments that the original passes, and no others.
        ending = self._lifecycle.ending
        with ending.signals.watched():
            try:
                try:
                    sess = self.prepare_or_wait_for_session(
                        master=master, config=config, start_standard_services=start_standard_services
                    )
                    self._prepared(sess)
                except BaseException:
                    self._give_up(close_summary_writer)
                    raise
                # A run that blocks in a dequeue is released by closing the session, before the time for a stop is over.
                self.coord.register_release(sess.close, after_secs=RELEASE_AFTER_SECS)
                yield from self._guarded(sess, close_summary_writer)
            finally:
                ending.stop_serving()

    def _guarded(self, sess: Any, close_summary_writer: bool) -> Iterator[Any]:
        ending, reason = self._lifecycle.ending, self._lifecycle.state.reason
        try:
            try:
                yield sess
            except BaseException as error:
                if ending.is_inactive:
                    raise
                reason.stop_was_requested |= self.coord.should_stop()
                reason.body_error = error
                if not isinstance(error, Exception):
                    raise
                explain_finalized(error)
                self.request_stop(error)
            finally:
                self._stop(close_summary_writer)
        finally:
            if not ending.is_inactive:  # whose TensorFlow has no threads that could close anything
                close_with_timeout(sess, ending.closing_secs)
        if reason.body_error is not None and not ending.is_clean(reason.body_error):
            raise reason.body_error  # which the coordinator ignores if a stop had been requested before

    def _stop(self, close_summary_writer: bool) -> None:
        reason = self._lifecycle.state.reason
        body_error, reason.ignores_live_threads = reason.body_error, True
        try:
            self.stop(close_summary_writer=close_summary_writer)
        except BaseException as error:
            if body_error is not None and error is not body_error and error.__context__ is None:
                error.__context__ = body_error
            raise

    def _give_up(self, close_summary_writer: bool) -> None:
        """End what a failed preparation has begun; its own error is the one that counts."""
        state = self._lifecycle.state
        if not self._lifecycle.has_begun:  # refused: not a word into the run of the one at work
            if state.writer is not None:
                state.writer.close()
            return
        state.reason.ignores_live_threads = True
        try:
            self.stop(close_summary_writer=close_summary_writer)
        except Exception as error:
            _LOG.info("Stopping after a failed preparation failed: %s", error)

    def _absolute(self, path: str | None) -> str | None:
        """Return a path as it was when the program passed it, whatever the working directory has become."""
        return path and (self._absolute_paths.get(os.fspath(path)) or absolute(path))

    @cached_property
    def _lifecycle(self) -> Lifecycle:
        """What works behind this API, built from its attributes.

        Only from attributes that the original has too. So a subclass whose constructor is a copy of the original's, or
        which sets some of them itself after the constructor, gets what they say.
        """
        if not isinstance(self._coord, Coordinator):  # a subclass's constructor has made TensorFlow's
            self._coord = Coordinator()
        logdir = self._absolute(self._shared_logdir or self._logdir)
        writer = self.summary_writer
        if writer is None and self.is_chief and logdir and self._options.write_telemetry:
            writer = FileWriter(logdir)  # of our own, for the telemetry
        lifecycle = Lifecycle(
            coord=self.coord,
            options=self._options,
            facade="Supervisor",
            logdir=logdir,
            writer=writer,
            is_chief=self.is_chief,
            task=None if self.is_chief else task_name(self._options, self._graph),
        )
        save_path = self._absolute(self.save_path)
        if self.is_chief and save_path and self.saver and self.save_model_secs:
            checkpoint_writer = CheckpointWriter(
                graph=self._graph,
                saver=self.saver,
                save_path=save_path,
                global_step=self.global_step,
                meta_graph_def=self._meta_graph_def,
                step_lock=lifecycle.step_lock,
                options=self._options,
            )
            lifecycle.use(CheckpointManager(checkpoint_writer, self.save_model_secs))
        return lifecycle

    def _new_session(self, target: str, graph: Any, config: Any) -> Any:
        """Return a new supervised session on a TensorFlow master."""
        if not self._lifecycle.is_under_way:
            self._begin()
        sess = tf.compat.v1.Session(target, graph=graph, config=config)
        return self._lifecycle.supervise(sess, self._global_step)

    def _begin(self, *, serves: bool = False) -> None:
        """Begin a session: take the logdir, open the writer, watch for signals."""
        if writer := self._lifecycle.state.writer:
            writer.reopen()
        claim: Claim = "required" if serves else "if free"
        if not self.saver and self._ready_flag is None:  # it can come to write no checkpoint
            claim = "gives way"
        self._lifecycle.begin(self._stop_at_exit, claim)
        self._lifecycle.ending.signals.watch_until_stopped()

    def _prepared(self, sess: Any) -> None:
        """Say that training begins; where a subclass prepares the session its own way, `managed_session` says so."""
        if self._lifecycle.is_under_way and not self._lifecycle.state.reason.had_finished:
            self._ready(sess, serves=False)
            if self._lifecycle.recorder.progress.phase in ("starting", "restoring"):
                self._lifecycle.recorder.enter("training")

    def _ready(self, sess: Any, *, serves: bool) -> None:
        """Say that the session is ready, and where its model came from; once. One that the program made begins here."""
        if not self._lifecycle.is_under_way:
            self._begin(serves=serves)
        if self._lifecycle.state.is_ready:
            return
        services = StandardServices(self, sess, self._lifecycle).described() if serves else ()
        self._lifecycle.session_ready(sess, RestoreInfo.of(self._session_manager, sess, self._global_step), services)

    def _close_writer(self) -> None:
        self._lifecycle.ending.close_writer()
        self._graph_added_to_summary = False

    def _stop_at_exit(self, error: BaseException | None) -> None:
        reason = self._lifecycle.state.reason
        reason.body_error, reason.ignores_live_threads = error, True  # there was no block, and no thread is waited for
        self.stop()

    def _init_ready_op(self, ready_op: Any = USE_DEFAULT, ready_for_local_init_op: Any = USE_DEFAULT) -> None:
        """Settle what says whether the model is ready; this and the next methods are there to be overridden."""
        self._ready_op = self._chosen(ready_op, _KEYS.READY_OP, tf.compat.v1.report_uninitialized_variables)
        if ready_for_local_init_op is Supervisor.USE_DEFAULT:  # then only what the collection holds
            ready_for_local_init_op = self._get_first_op_from_collection(_KEYS.READY_FOR_LOCAL_INIT_OP)
        self._ready_for_local_init_op = ready_for_local_init_op

    def _init_init_op(self, init_op: Any = USE_DEFAULT, init_feed_dict: Mapping[Any, Any] | None = None) -> None:
        self._init_op = self._chosen(init_op, _KEYS.INIT_OP, tf.compat.v1.global_variables_initializer)
        self._init_feed_dict = init_feed_dict

    def _init_local_init_op(self, local_init_op: Any = USE_DEFAULT) -> None:
        def both() -> Any:
            return tf.group(tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer())

        self._local_init_op = self._chosen(local_init_op, _KEYS.LOCAL_INIT_OP, both)

    def _init_saver(self, saver: Any = USE_DEFAULT) -> None:
        def unsharded() -> Any:
            return tf.compat.v1.train.Saver() if tf.compat.v1.global_variables() else None

        self._saver = self._chosen(saver, _KEYS.SAVERS, unsharded)

    def _init_summary_op(self, summary_op: Any = USE_DEFAULT) -> None:
        self._summary_op = self._chosen(summary_op, _KEYS.SUMMARY_OP, tf.compat.v1.summary.merge_all)

    def _init_global_step(self, global_step: Any = USE_DEFAULT) -> None:
        self._global_step = self._chosen(global_step, _KEYS.GLOBAL_STEP, self._default_global_step_tensor)

    def _chosen(self, given: Any, key: str, make: Callable[[], Any]) -> Any:
        """What was given, else the collection's first item, else a new one, which is added to the collection."""
        if given is not Supervisor.USE_DEFAULT:
            return given
        found = self._get_first_op_from_collection(key)
        if found is None:
            found = make()
            if found is not None:
                tf.compat.v1.add_to_collection(key, found)
        return found

    def _get_first_op_from_collection(self, key: str) -> Any:
        items = tf.compat.v1.get_collection(key)
        if len(items) > 1:
            _LOG.info("Found %d %s operations. Returning the first one.", len(items), key)
        return items[0] if items else None

    def _default_global_step_tensor(self) -> Any:
        return find_global_step(tf.compat.v1.get_default_graph())

    def _init_session_manager(self, session_manager: Any = None) -> None:
        if session_manager is None:
            session_manager = SessionManager(
                local_init_op=self._local_init_op,
                ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op,
                graph=self._graph,
                recovery_wait_secs=self._recovery_wait_secs,
                local_init_run_options=self._local_init_run_options,
                session_factory=self._new_session,
                ready_flag=self._ready_flag,
                checkpoint_basename=self._checkpoint_basename,
                context=self._lifecycle,
            )
        self._session_manager = session_manager

    def _verify_setup(self) -> None:
        """Raise `ValueError` for a variable without a device: replicas would each keep one of their own."""
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in VARIABLES and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")

    def _write_graph(self) -> None:
        """Write ``graph.pbtxt``, and graph and meta graph once into each events file."""
        assert self._is_chief
        if self._lifecycle.state.is_not_owner:
            return
        record = GraphRecord(self._graph, self._graph_def, self._meta_graph_def)
        if logdir := self._absolute(self._logdir):
            record.write_file(logdir)
        if self._summary_writer and not self._graph_added_to_summary:
            record.write_events(self._summary_writer)
            self._graph_added_to_summary = True

    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Stop = stop
    Loop = loop
    SummaryComputed = summary_computed
