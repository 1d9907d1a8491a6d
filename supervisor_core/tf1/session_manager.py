"""`SessionManager`: creates sessions whose model is ready, restored or initialised, or waits for one that is.

Source: ``tf.compat.v1.train.SessionManager``; its arguments, order of operations, exceptions and their texts are kept
(contract, items 15 to 21). What differs is safety: recovery walks back over damaged checkpoints, a session that cannot
be made ready is closed, waiting polls with backoff for as long as was asked, though TensorFlow may block, and a chief
that comes after a crash keeps the model that it finds alive in its cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.cluster.connect import (
    LOCAL,
    as_unavailable,
    close_session,
    is_remote,
    raised_as_unavailable,
)
from supervisor_core.tf1.cluster.wait import DeadlineWait, SessionContext
from supervisor_core.tf1.restore import RestoreInfo, hand_over, restore_explicit, restore_newest
from supervisor_core.tf1.tf_errors import error_text, explain_finalized

_LOG = logging.getLogger("supervisor_core")


class SessionManager(tf.compat.v1.train.SessionManager):
    """Restores from a checkpoint, or initialises, and creates the session.

    Subclasses may override what they could in the original: ``_restore_checkpoint``, ``_try_run_local_init_op``,
    ``_model_ready``, ``_model_ready_for_local_init``; each is called where the original calls it.

    Args:
        local_init_op: run after every session's creation; None runs nothing.
        ready_op: a 1-D string tensor that names what is not initialized; None checks nothing.
        ready_for_local_init_op: the same, for when ``local_init_op`` may run.
        graph: the model's graph. Default: the default graph.
        recovery_wait_secs: the longest wait between two polls, in seconds.
        local_init_run_options: ``RunOptions`` for the local init op.
        local_init_feed_dict: feeds for the local init op.
        session_factory: called with ``(target, graph, config)`` for each session. Default: ``tf.compat.v1.Session``.
        ready_flag: how workers see that the chief has made the model ready. Default: by its variables alone.
        checkpoint_basename: what checkpoint files are called, for those that no state file names. Default: any name.
        context: the run that sessions are made for. Default: none.

    Raises:
        ValueError: if there is a ``ready_for_local_init_op`` without a ``local_init_op``.

    Example:
        with tf.Graph().as_default():
            ...  # build the model
            manager = SessionManager()
            sess = manager.prepare_session("", init_op=init, saver=saver, checkpoint_dir="/runs/a")
    """

    restore_info = RestoreInfo()
    """Where the last session's model came from; of one that was kept without the step."""

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Any = None,
        *,
        session_factory: Callable[[str, Any, Any], Any] | None = None,
        ready_flag: ReadyFlag | None = None,
        checkpoint_basename: str | None = None,
        context: SessionContext | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            text = "If you pass a ready_for_local_init_op you must also pass a local_init_op , ready_for_local_init_op"
            raise ValueError(f"{text} [{ready_for_local_init_op}]")
        self._graph = graph if graph is not None else tf.compat.v1.get_default_graph()
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._recovery_wait_secs = recovery_wait_secs
        self._target: str | None = None
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict
        self._session_factory = session_factory or tf.compat.v1.Session
        self._ready_flag = ready_flag
        self._checkpoint_basename = checkpoint_basename or "model.ckpt"
        self._context = context or SessionContext()
        self._local_server: Any = None

    @raised_as_unavailable()
    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return a session whose model is ready: restored from a checkpoint, or else initialised.

        A model that the run's session before this one has left alive in the cluster, when it was cut off, is kept,
        unless one checkpoint was asked for.
        Restored: neither ``init_op`` nor ``init_fn`` runs. Else ``init_op``, then ``init_fn(sess)``. Then in either
        case ``ready_for_local_init_op``, ``local_init_op``, ``ready_op``.

        Args:
            master: the TensorFlow master, ``""`` for this process.
            init_op: initialises the model.
            saver: restores the model.
            checkpoint_dir: where to look for checkpoints.
            checkpoint_filename_with_path: one checkpoint to restore, whatever the state file says.
            wait_for_checkpoint: wait for a checkpoint to appear.
            max_wait_secs: for how long, in seconds.
            config: a ``ConfigProto`` for the session.
            init_feed_dict: feeds for ``init_op``.
            init_fn: called with the session, after ``init_op``.

        Raises:
            RuntimeError: if the model can neither be restored nor initialised, or is not ready afterwards.
            ValueError: if both a directory and a file name are given.
            NoUsableCheckpointError: if there are checkpoints and none can be read.
            tf.errors.DeadlineExceededError: if the cluster has not answered in time; the text says who has not.
            tf.errors.CancelledError: if a stop was requested while waiting.
            tf.errors.NotFoundError, tf.errors.InvalidArgumentError: if the checkpoint is of another model; the text
                lists missing, extra and reshaped variables.
        """
        self.restore_info = RestoreInfo()
        sess, loaded = self._restore_checkpoint(
            master,
            saver,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
            wait_for_checkpoint=wait_for_checkpoint,
            max_wait_secs=max_wait_secs,
            config=config,
        )
        if self.restore_info.adopted:
            return sess
        with _closed_on_error(sess):
            if not loaded:
                if init_op is None and not init_fn and self._local_init_op is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                if init_op is not None:
                    sess.run(init_op, feed_dict=init_feed_dict)
                if init_fn:
                    init_fn(sess)
            if self._ready_flag is not None:
                self._ready_flag.set(sess, self._context.session)
            is_ready, reason = self._try_run_local_init_op(sess)
            if not is_ready:
                raise RuntimeError(
                    "Init operations did not make model ready for local_init.  "
                    f"Init op: {_name(init_op)}, init fn: {init_fn}, error: {reason}"
                )
            is_ready, reason = self._model_ready(sess)
            if not is_ready:
                raise RuntimeError(
                    f"Init operations did not make model ready.  Init op: {_name(init_op)}, init fn: {init_fn}, "
                    f"local_init_op: {self._local_init_op}, error: {reason}"
                )
        return sess

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Any, bool]:
        """Return a session and whether its model was recovered and is ready; initialises nothing.

        The local init op runs in any case. Not ready is the second item, never raised. For the arguments see
        `prepare_session`; `ValueError` if both a directory and a file name are given.
        """
        self.restore_info = RestoreInfo()
        sess, loaded = self._restore_checkpoint(
            master,
            saver,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
            wait_for_checkpoint=wait_for_checkpoint,
            max_wait_secs=max_wait_secs,
            config=config,
        )
        if self.restore_info.adopted:
            return sess, True
        with _closed_on_error(sess):
            is_ready, reason = self._try_run_local_init_op(sess)
            if not loaded:
                return sess, False
            source = checkpoint_dir or checkpoint_filename_with_path
            if not is_ready:
                _LOG.info("Restoring model from %s did not make model ready for local init: %s", source, reason)
                return sess, False
            is_ready, reason = self._model_ready(sess)
            if not is_ready:
                _LOG.info("Restoring model from %s did not make model ready: %s", source, reason)
                return sess, False
            if self._ready_flag is not None:
                self._ready_flag.set(sess, self._context.session)
        _LOG.info("Restored model from %s", source)
        return sess, True

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = float("inf")) -> Any:
        """Return a session once another process (the chief) has made the model ready.

        Polls with a new session each time: often at first, then every ``recovery_wait_secs``, and once at the end.

        Args:
            master: the TensorFlow master.
            config: a ``ConfigProto`` for the session.
            max_wait_secs: how long to wait, in seconds; None waits without end.

        Raises:
            tf.errors.DeadlineExceededError: if the model was not ready in time; the text says what was missing.
            tf.errors.CancelledError: if a stop was requested while waiting.
            RunFinishedError: if the run has finished, and begins no more.
        """
        self.restore_info = RestoreInfo()
        self._target = master = self._target_of(master)
        deadline = DeadlineWait(max_wait_secs, self._recovery_wait_secs, self._context)
        while True:
            if is_remote(master):
                sess, reason = deadline.call_blocking(
                    lambda: self._poll(master, config),
                    who=lambda: self._context.kept_back() or self._context.missing(config),
                    discard=lambda polled: _close_quietly(polled[0]),
                )
            else:
                sess, reason = self._poll(master, config)
            if reason is None:
                deadline.done()
                return sess
            deadline.pause(reason)

    def _poll(self, master: str, config: Any) -> tuple[Any, str | None]:
        """Return a new session and None if a worker may begin; else None and what there is to wait for."""
        reason = self._context.kept_back()
        if reason is not None:
            return None, reason
        sess = None
        try:
            sess = self._session_factory(master, self._graph, config)
            reason = self._why_not_ready(sess)
        except BaseException as error:
            gone = as_unavailable(error) if isinstance(error, Exception) and is_remote(master) else None
            if gone is None:
                _close_quietly(sess)
                raise
            reason = f"an unavailable process of the cluster: {error_text(gone)}"
        if reason is None:
            return sess, None
        _close_quietly(sess)
        return None, reason

    def _why_not_ready(self, sess: Any) -> str | None:
        is_ready, reason = self._ready_with_local_init(sess)
        if is_ready and self._ready_flag is not None:
            is_ready, reason = _readiness(self._ready_flag.missing, sess, "Model not ready")
        return None if is_ready else f"the chief to make the model ready: {reason}"

    def _ready_with_local_init(self, sess: Any) -> tuple[bool, str | None]:
        is_ready, reason = self._try_run_local_init_op(sess)
        return self._model_ready(sess) if is_ready else (False, reason)

    def _adopt(self, sess: Any, *, any_session: bool) -> bool:
        """Keep the model if it is the run's own, alive, and whole; return whether it was kept.

        Args:
            any_session: keep one that another session of the run has left, too.
        """
        if self._ready_flag is None:
            return False
        session = self._ready_flag.set_by(sess)
        if session is None or not self._context.owns(session):
            return False
        if session != self._context.session and not any_session:
            return False
        is_ready, reason = self._ready_with_local_init(sess)
        if not is_ready:
            _LOG.warning("Only a part of the model of session %s is alive in the cluster: %s", session, reason)
            return False
        self._ready_flag.set(sess, self._context.session)
        _LOG.warning("The model of session %s is alive in the cluster: it is kept, and nothing is restored.", session)
        self.restore_info = RestoreInfo(adopted=True)
        return True

    def _open(self, master: str, config: Any, deadline: DeadlineWait) -> Any:
        """Return a new session; one in a cluster once all the processes that it needs have answered."""
        if not is_remote(master):
            return self._session_factory(master, self._graph, config)

        def connected() -> Any:
            sess = self._session_factory(master, self._graph, config)
            with _closed_on_error(sess):
                # This makes the session; the first run would do it, and block.
                private.EXTEND_GRAPH.get(sess, lambda: None)()
            return sess

        return deadline.call_blocking(connected, who=lambda: self._context.missing(config), discard=_close_quietly)

    def _target_of(self, master: str) -> str:
        """Return the target to connect to. For ``local``, which TensorFlow 2 no longer knows, a server of this process
        is started; source: "What master string to use" in seed document 003."""
        if master not in LOCAL:
            return master
        self._local_server = self._local_server or tf.compat.v1.train.Server.create_local_server()
        return str(self._local_server.target)

    def _restore_checkpoint(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Any, bool]:
        """Return a new session, and whether its model has values: restored, or found alive in the cluster (`adopted`).

        For the arguments and exceptions see `prepare_session`.
        """
        self._target = self._target_of(master)
        deadline = DeadlineWait(max_wait_secs, self._recovery_wait_secs, self._context)
        sess = self._open(self._target, config, deadline)
        deadline.done()
        with _closed_on_error(sess):
            if self._adopt(sess, any_session=checkpoint_filename_with_path is None):
                if saver and checkpoint_dir:
                    hand_over(saver, CheckpointStore(checkpoint_dir, self._checkpoint_basename))
                return sess, True
            if self._ready_flag is not None:
                self._ready_flag.clear(sess)
            return sess, self._restore(
                sess, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs
            )

    def _restore(
        self, sess: Any, saver: Any, directory: str | None, filename: str | None, wait: bool, max_wait_secs: float
    ) -> bool:
        if directory and filename:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        if saver and filename:
            self._context.restoring()
            self.restore_info = RestoreInfo(restored=restore_explicit(sess, saver, filename))
            return True
        if not saver or not directory:
            return False
        deadline = DeadlineWait(max_wait_secs, self._recovery_wait_secs, self._context)
        while True:
            waits = wait and bool(deadline.remaining_secs)
            self.restore_info = restore_newest(
                sess, saver, directory, self._checkpoint_basename, self._context, waits=waits
            )
            if self.restore_info.restored is not None or not waits:
                deadline.done()
                return self.restore_info.restored is not None
            with suppress(tf.errors.DeadlineExceededError):  # one more look, and then without
                deadline.pause(f"a checkpoint to be available in {directory}.")

    def _try_run_local_init_op(self, sess: Any) -> tuple[bool, str | None]:
        """Run the local init op, if there is one and the model is ready for it; return whether, and why not."""
        if self._local_init_op is None:
            return True, None
        is_ready, reason = self._model_ready_for_local_init(sess)
        if not is_ready:
            return False, reason
        _LOG.info("Running local_init_op.")
        sess.run(self._local_init_op, feed_dict=self._local_init_feed_dict, options=self._local_init_run_options)
        _LOG.info("Done running local_init_op.")
        return True, None

    def _model_ready(self, sess: Any) -> tuple[bool, str | None]:
        """Return whether the model is ready, and why not."""
        return _readiness(self._ready_op, sess, "Model not ready")

    def _model_ready_for_local_init(self, sess: Any) -> tuple[bool, str | None]:
        """Return whether the local init op may run, and why not."""
        return _readiness(self._ready_for_local_init_op, sess, "Model not ready for local init")


@contextmanager
def _closed_on_error(sess: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        explain_finalized(error)
        _close_quietly(sess)
        raise


def _close_quietly(sess: Any) -> None:
    try:
        if sess is not None:
            close_session(sess)
    except Exception as error:  # a session that is given up: nothing depends on its end, and the cause is elsewhere
        _LOG.info("Closing a session that was given up failed: %s", error)


def _name(op: Any) -> str:
    return "None" if op is None else getattr(op, "name", f"<no name for {type(op)}>")


def _readiness(op: Any, sess: Any, what: str) -> tuple[bool, str | None]:
    """Run a ready op; return whether the model is ready, and where it is not, the reason.

    Ready means: there is no op, or its value is None, or of dtype int32, or empty. A `FailedPreconditionError` that
    speaks of uninitialized values means not ready; any other is raised. ``what`` is checked, for the log.
    """
    if op is None:
        return True, None
    try:
        value = sess.run(op)
    except tf.errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            _LOG.warning("%s: error [%s]", what, error)
            raise
        return False, str(error)
    if value is None or value.dtype == np.int32 or value.size == 0:
        return True, None
    return False, "Variables not initialized: " + ", ".join(name.decode("utf-8") for name in value)


_SERVERS = "ps"
_NAME = "supervisor_model_is_ready"
_MISSING = "the chief is still initialising the model (init_fn)"


class ReadyFlag:
    """The ops that set, clear and read the flag. Adds them to the graph.

    Args:
        graph: the model's graph, not yet finalized.
        device: a device that chief and workers share.
    """

    def __init__(self, graph: Any, device: str) -> None:
        self._model = _digest(graph)
        with graph.as_default(), tf.name_scope(_NAME), tf.device(device), tf.control_dependencies(None):
            flag = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_NAME)
            self._session = tf.compat.v1.placeholder(tf.string, [], name="session")
            self._set = tf.raw_ops.AssignVariableOp(resource=flag, value=self._session)
            self._clear = tf.raw_ops.DestroyResourceOp(resource=flag, ignore_lookup_error=True)
            self._is_set = tf.raw_ops.VarIsInitializedOp(resource=flag)
            self._value = tf.raw_ops.ReadVariableOp(resource=flag, dtype=tf.string)
            self.missing = tf.boolean_mask(tf.constant([_MISSING]), tf.reshape(tf.logical_not(self._is_set), [1]))
            """What is missing, as a 1-D string tensor; empty once the flag is set."""

    def set(self, sess: Any, session: str) -> None:
        """Mark the model as ready.

        Args:
            sess: the TensorFlow session.
            session: the id of the chief's session.
        """
        sess.run(self._set, feed_dict={self._session: f"{self._model} {session}"})

    def clear(self, sess: Any) -> None:
        """Mark the model as not ready."""
        sess.run(self._clear)

    def set_by(self, sess: Any) -> str | None:
        """Return the session that marked this model as ready; None if none did, or if it was another model."""
        if not sess.run(self._is_set):
            return None
        value: bytes = sess.run(self._value)
        model, _, session = value.decode("utf-8", "replace").partition(" ")
        return session if model == self._model else None


def ready_flag_for(graph: Any) -> ReadyFlag | None:
    """Return a ready_flag for a graph whose variables are placed on devices, as those of replicas must be.

    It is on the device of the first global variable on a parameter server, or else of the first global variable: others
    may belong to one worker. Always in CPU memory, since a GPU cannot hold a string.
    """
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    devices = [tf.DeviceSpec.from_string(device) for each in variables if (device := getattr(each, "device", None))]
    devices.sort(key=lambda device: device.job != _SERVERS)
    if not devices:
        return None
    return ReadyFlag(graph, devices[0].replace(device_type="CPU", device_index=0).to_string())


def _digest(graph: Any) -> str:
    """Return a digest of the variables' names, types, shapes and devices."""
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    properties = [[str(getattr(each, name, "")) for name in ("name", "dtype", "shape", "device")] for each in variables]
    return sha256(repr(sorted(properties)).encode()).hexdigest()[:16]
