"""`SessionManager`: creates sessions whose model is ready, restored or initialised, or waits for one that is.

Source: ``tf.compat.v1.train.SessionManager``; its arguments, order of operations, exceptions and their texts are kept
(contract, items 15 to 21). What differs is safety: recovery walks back over damaged checkpoints, a session that cannot
be made ready is closed, and waiting polls with backoff for as long as was asked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.tf1.announcement import Announcement
from supervisor_core.tf1.readiness import why_not_ready
from supervisor_core.tf1.restore import Restored, restore_explicit, restore_newest

_LOG = logging.getLogger("supervisor_core")

FIRST_POLL_SECS = 0.1
"""The first wait between two polls, in seconds; doubled until it is ``recovery_wait_secs``."""


class SessionManager:
    """Restores from a checkpoint, or initialises, and creates the session.

    Args:
        local_init_op: run after every session's creation; None runs nothing.
        ready_op: a 1-D string tensor that names what is not initialized; None checks nothing.
        ready_for_local_init_op: the same, for when ``local_init_op`` may run.
        graph: the model's graph. Default: the default graph.
        recovery_wait_secs: the longest wait between two polls, in seconds.
        local_init_run_options: ``RunOptions`` for the local init op.
        local_init_feed_dict: feeds for the local init op.
        session_factory: called with ``(target, graph, config)`` for each session. Default: ``tf.compat.v1.Session``.
        announcement: how the chief tells workers that the model is ready. Default: by its variables alone.
        checkpoint_basename: what checkpoint files are called, for those that no state file names. Default: any name.
        wait: waits for the seconds given and tells whether to give up. Default: waits, and never gives up.
        on_restore: called before the first byte of a checkpoint is read.
        clock: the time.

    Raises:
        ValueError: if there is a ``ready_for_local_init_op`` without a ``local_init_op``.

    Example:
        with tf.Graph().as_default():
            ...  # build the model
            manager = SessionManager()
            sess = manager.prepare_session("", init_op=init, saver=saver, checkpoint_dir="/runs/a")
    """

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
        announcement: Announcement | None = None,
        checkpoint_basename: str | None = None,
        wait: Callable[[float], bool] | None = None,
        on_restore: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op , "
                f"ready_for_local_init_op [{ready_for_local_init_op}]"
            )
        self._graph = graph if graph is not None else tf.compat.v1.get_default_graph()
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict
        self._session_factory = session_factory or _plain_session
        self._announcement = announcement
        self._checkpoint_basename = checkpoint_basename
        self._wait = wait or threading.Event().wait
        self._on_restore = on_restore
        self._clock = clock
        self._restored: Restored | None = None

    @property
    def restored(self) -> Restored | None:
        """What the last session was restored from, and what was passed over; None when it was initialised."""
        return self._restored

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
            tf.errors.NotFoundError, tf.errors.InvalidArgumentError: if the checkpoint is of another model; the text
                lists missing, extra and reshaped variables.
        """
        sess = self._open(master, config)
        try:
            if self._announcement is not None:
                sess.run(self._announcement.take_back)
            loaded = self._restore(
                sess, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs
            )
            if not loaded:
                if init_op is None and not init_fn and self._local_init_op is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                if init_op is not None:
                    sess.run(init_op, feed_dict=init_feed_dict)
                if init_fn:
                    init_fn(sess)
            if self._announcement is not None:
                sess.run(self._announcement.announce)
            reason = self._local_init(sess)
            if reason is not None:
                raise RuntimeError(
                    "Init operations did not make model ready for local_init.  "
                    f"Init op: {_name(init_op)}, init fn: {init_fn}, error: {reason}"
                )
            reason = why_not_ready(self._ready_op, sess, "Model not ready")
            if reason is not None:
                raise RuntimeError(
                    f"Init operations did not make model ready.  Init op: {_name(init_op)}, init fn: {init_fn}, "
                    f"local_init_op: {self._local_init_op}, error: {reason}"
                )
        except BaseException:
            _close_quietly(sess)
            raise
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

        The local init op runs in any case. Not ready is told by the second item, never raised.

        Args:
            master: the TensorFlow master, ``""`` for this process.
            saver: restores the model.
            checkpoint_dir: where to look for checkpoints.
            checkpoint_filename_with_path: one checkpoint to restore, whatever the state file says.
            wait_for_checkpoint: wait for a checkpoint to appear.
            max_wait_secs: for how long, in seconds.
            config: a ``ConfigProto`` for the session.

        Raises:
            ValueError: if both a directory and a file name are given.
        """
        sess = self._open(master, config)
        try:
            loaded = self._restore(
                sess, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs
            )
            not_local = self._local_init(sess)
            if not loaded:
                return sess, False
            source = checkpoint_dir or checkpoint_filename_with_path
            if not_local is not None:
                _LOG.info("Restoring model from %s did not make model ready for local init: %s", source, not_local)
                return sess, False
            reason = why_not_ready(self._ready_op, sess, "Model not ready")
            if reason is not None:
                _LOG.info("Restoring model from %s did not make model ready: %s", source, reason)
                return sess, False
        except BaseException:
            _close_quietly(sess)
            raise
        _LOG.info("Restored model from %s", source)
        return sess, True

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = float("inf")) -> Any:
        """Return a session once somebody else (the chief) has made the model ready.

        Opens a new session for each poll; polls often at first, then every ``recovery_wait_secs``, and once more at the
        end of the time.

        Args:
            master: the TensorFlow master.
            config: a ``ConfigProto`` for the session.
            max_wait_secs: how long to wait, in seconds; None waits for ever.

        Raises:
            tf.errors.DeadlineExceededError: if the model was not ready in time; the text says what was missing.
            tf.errors.CancelledError: if a stop was requested while waiting.
        """
        bound = float("inf") if max_wait_secs is None else max_wait_secs
        deadline = self._clock.monotonic() + bound
        poll = min(FIRST_POLL_SECS, self._recovery_wait_secs)
        while True:
            sess = self._open(master, config)
            try:
                reason = self._local_init(sess)
                if reason is None:
                    reason = why_not_ready(self._ready_op, sess, "Model not ready")
                if reason is None and self._announcement is not None:
                    reason = why_not_ready(self._announcement.missing, sess, "Model not ready")
            except BaseException:
                _close_quietly(sess)
                raise
            if reason is None:
                return sess
            _close_quietly(sess)
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                raise tf.errors.DeadlineExceededError(
                    None, None, f"Session was not ready after waiting {bound:g} secs. Waited for the chief: {reason}"
                )
            _LOG.info("Waiting for the chief to make the model ready: %s", reason)
            if self._wait(min(poll, remaining)):
                raise tf.errors.CancelledError(
                    None, None, f"A stop was requested while waiting for the chief to make the model ready: {reason}"
                )
            poll = min(2 * poll, self._recovery_wait_secs)

    def _open(self, master: str, config: Any) -> Any:
        return self._session_factory(master, self._graph, config)

    def _restore(
        self,
        sess: Any,
        saver: Any,
        directory: str | None,
        filename: str | None,
        wait_for_checkpoint: bool,
        max_wait_secs: float,
    ) -> bool:
        self._restored = None
        if directory and filename:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        if not saver or not (directory or filename):
            return False
        if filename:
            self._on_restore()
            self._restored = restore_explicit(sess, saver, filename)
            return True
        assert directory is not None
        deadline = self._clock.monotonic() + max_wait_secs
        poll = min(FIRST_POLL_SECS, self._recovery_wait_secs)
        while True:
            self._restored = restore_newest(
                sess, saver, directory, basename=self._checkpoint_basename, on_restore=self._on_restore
            )
            remaining = deadline - self._clock.monotonic()
            if self._restored is not None or not wait_for_checkpoint or remaining <= 0:
                return self._restored is not None
            _LOG.info("Waiting for a checkpoint to be available in %s.", directory)
            if self._wait(min(poll, remaining)):
                return False
            poll = min(2 * poll, self._recovery_wait_secs)

    def _local_init(self, sess: Any) -> str | None:
        """Run the local init op if the model is ready for it; return the reason where it is not."""
        if self._local_init_op is None:
            return None
        reason = why_not_ready(self._ready_for_local_init_op, sess, "Model not ready for local init")
        if reason is not None:
            return reason
        _LOG.info("Running local_init_op.")
        sess.run(self._local_init_op, feed_dict=self._local_init_feed_dict, options=self._local_init_run_options)
        _LOG.info("Done running local_init_op.")
        return None


def _plain_session(target: str, graph: Any, config: Any) -> Any:
    return tf.compat.v1.Session(target, graph=graph, config=config)


def _close_quietly(sess: Any) -> None:
    try:
        sess.close()
    except Exception as error:  # a session that is given up: nothing depends on its end, and the cause is elsewhere
        _LOG.info("Closing a session that was given up failed: %s", error)


def _name(op: Any) -> str:
    return "None" if op is None else getattr(op, "name", f"<no name for {type(op)}>")
