"""`Monitored`: a session that initialises its model, calls hooks, recovers when it is lost, and closes in order.

Source: seed document 004 and ``tf.compat.v1.train.MonitoredSession``: same phases in the same order, same errors.
`MonitoredRuntime` gives it what a `Supervisor` has: lock, telemetry, metrics, signals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import tensorflow as tf

from supervisor_core.base.errors import RunFinishedError
from supervisor_core.base.options import Options
from supervisor_core.engine.retry import Backoff
from supervisor_core.tf1.cluster.connect import UNAVAILABLE, FinishedSession, close_with_timeout
from supervisor_core.tf1.lifecycle import Lifecycle, RunMethods
from supervisor_core.tf1.monitored.hooked_session import HookedSession
from supervisor_core.tf1.monitored.runtime import MonitoredRuntime
from supervisor_core.tf1.monitored.session_creator import WorkerSessionCreator, default_creator, unfinalize
from supervisor_core.tf1.services import start_queue_threads
from supervisor_core.tf1.tf_errors import explain_finalized

_LOG = logging.getLogger("supervisor_core")
_CLEAN_ENDS = (tf.errors.OutOfRangeError, StopIteration)
_EAGER = (
    "Monitored sessions are incompatible with eager execution. Build the model in a graph of its own, and open the "
    "session there: with tf.Graph().as_default(): ..."
)


class Monitored(RunMethods):
    """What `MonitoredSession` and `SingularMonitoredSession` have in common.

    Args:
        session_creator: creates the TensorFlow sessions.
        hooks: called in this order.
        stop_grace_period_secs: seconds that threads have to stop.
        recovers: whether a session that is lost is recreated.
        logdir: the run's directory, if no hook names one.
    """

    StepContext = tf.compat.v1.train.MonitoredSession.StepContext
    _facade = "MonitoredSession"

    def __init__(
        self,
        session_creator: Any,
        hooks: Sequence[Any] | None,
        *,
        stop_grace_period_secs: float,
        recovers: bool,
        options: Options | None,
        logdir: str | None = None,
    ) -> None:
        if tf.executing_eagerly():
            raise RuntimeError(_EAGER)
        graph = tf.compat.v1.get_default_graph()
        self._graph_was_finalized = graph.finalized
        self._default_graph = graph
        self._hooks = list(hooks or ())
        self._creator = session_creator or default_creator()
        self._recovers = recovers
        self._session: Any = None
        self._hooked: HookedSession | None = None
        self._closed = False
        options = options if options is not None else Options()
        self._runtime = MonitoredRuntime(
            facade=self._facade,
            hooks=self._hooks,
            options=options,
            stop_grace_secs=stop_grace_period_secs,
            is_worker=isinstance(self._creator, WorkerSessionCreator),
            logdir=logdir,
        )
        self._recovery_backoff = RecoveryBackoff(options)
        self._runtime.begin(self._close_at_exit)
        try:
            self._runtime.refuse_unwritable()
            for hook in self._hooks:
                hook.begin()
            self._open_first()
            self._lifecycle.ending.signals.raise_lost_interrupt()
        except BaseException as error:
            self._give_up(error)
            raise
        if not self._lifecycle.state.reason.had_finished:
            self._lifecycle.recorder.enter("training")

    @property
    def _lifecycle(self) -> Lifecycle:
        return self._runtime.lifecycle

    @property
    def graph(self) -> Any:
        """The graph that was launched; None once the session is closed."""
        return None if self._session is None else self._session.graph

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included.

        After an `AbortedError` or `UnavailableError` the TensorFlow session is recreated from the newest checkpoint and
        the call is repeated: see `Options.max_recoveries`.

        Raises:
            RuntimeError: after a hook requested a stop, if a tensor is fed twice, or if the session is closed.
        """
        while True:
            session = self._hooked or self._open_session()  # a step is too short for a call more
            try:
                return session.run(fetches, feed_dict, options, run_metadata)
            except Exception as error:
                if not self._recovered_from(error):
                    explain_finalized(error)
                    raise

    def should_stop(self) -> bool:
        """Return whether the loop should end; cheap enough for every step. True after the session was closed."""
        if self._closed or self._hooked is None:
            return True
        coord = self._runtime.coord
        if not coord.should_stop():
            return self._hooked.stop_requested
        error = self._reported()
        if error is not None and not self._recovers:
            raise error
        if isinstance(error, UNAVAILABLE):
            self._recover(error)
            return False
        return True

    def close(self) -> None:
        """End the training: call ``end`` of each hook, save, stop threads, close the session.

        Raises:
            RuntimeError: if it is already closed.
            Exception: what a hook or a thread raised.
        """
        self._close(None)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        clean = kind is None or kind in _CLEAN_ENDS
        if self._lifecycle.ending.is_inactive:
            return clean
        if kind is tf.errors.OutOfRangeError:
            self._lifecycle.state.reason.exhausted = True
        if error is not None and not clean:
            explain_finalized(error)
        self._close(None if clean else error)
        return clean

    def _open_session(self) -> HookedSession:
        if self._hooked is None:
            raise RuntimeError("Session is already closed.")
        return self._hooked

    def _open_first(self) -> None:
        try:
            self._open()
        except RunFinishedError as error:
            self._finished(error)
        except UNAVAILABLE as error:
            if not self._recovers:
                raise
            self._recover(error)

    def _finished(self, error: RunFinishedError) -> None:
        """Use a session that runs nothing: the run has finished."""
        _LOG.warning("%s", error)
        self._session = FinishedSession(self._default_graph, str(error))
        self._hooked = self._with_hooks(())
        self._lifecycle.finished()

    def _open(self) -> None:
        """Create a TensorFlow session, start its threads, and call the hooks' ``after_create_session``."""
        coord = self._runtime.coord
        if hasattr(self._creator, "use_context"):
            self._creator.use_context(self._lifecycle)
        plain = self._creator.create_session()
        self._session = plain
        self._session = self._runtime.supervise(plain, self._creator)
        runners = self._default_graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        start_queue_threads(self._session, runners, coord)
        for hook in self._hooks:
            hook.after_create_session(self._session, coord)
        self._hooked = self._with_hooks(self._hooks)

    def _with_hooks(self, hooks: Sequence[Any]) -> HookedSession:
        return HookedSession(self._session, hooks, self._runtime.losses, self._lifecycle.recorder.progress)

    def _recovered_from(self, error: Exception) -> bool:
        """Recreate the session if an error means that it is lost; return whether it was recreated."""
        if not isinstance(error, UNAVAILABLE):
            cause = self._reported()  # this error may follow from one that a thread reported
            if not isinstance(cause, UNAVAILABLE):
                return False
            if not self._recovers:
                raise cause
            error = cause
        if not self._recovers:
            return False
        self._recover(error)
        return True

    def _reported(self) -> BaseException | None:
        """The error that was reported to the coordinator."""
        try:
            self._runtime.coord.raise_requested_exception()
        except BaseException as error:  # only looked up here; the caller decides
            return error
        return None

    def _recover(self, error: Exception) -> None:
        """Recreate the session, after a longer wait each time; raise the error after too many recoveries."""
        runtime = self._runtime
        while True:
            _LOG.warning("The TensorFlow session was lost: %s: %s", type(error).__name__, error)
            runtime.session_lost(error)
            self._hooked = None
            self._end_session(lost=True)
            delay = self._recovery_backoff.delay_secs(error, runtime.lifecycle.recorder.progress.runs)
            runtime.new_coordinator()
            _LOG.warning("Recreating it in %.1f s (recovery %d in a row).", delay, self._recovery_backoff.in_a_row)
            if runtime.coord.wait_for_stop(delay):
                self._lifecycle.state.reason.gave_up = True
                raise error
            try:
                self._open()
            except UNAVAILABLE as again:
                error = again
                continue
            except RunFinishedError as finished:
                self._finished(finished)
                return
            break
        runtime.lifecycle.recorder.enter("training")

    def _end_session(self, *, lost: bool, secs: float | None = None) -> None:
        """Stop the session's threads and close it; after a loss this raises nothing."""
        session, self._session = self._session, None
        try:
            self._runtime.stop_threads(None if session is None else session.close, at_once=lost, secs=secs)
        except Exception as error:
            if not lost:
                if not isinstance(error, UNAVAILABLE):
                    raise
                _LOG.error("A process of the cluster was unavailable when the session was closed: %s", error)
        finally:
            if session is not None:
                close_with_timeout(session, self._lifecycle.ending.closing_secs)

    def _close(self, error: BaseException | None) -> None:
        if self._closed:
            raise RuntimeError("Session is already closed.")
        self._closed = True
        if self._lifecycle.ending.is_inactive:
            return
        self._lifecycle.state.reason.body_error = error
        try:
            self._runtime.stop(lambda: self._save(error), lambda secs: self._end_session(lost=False, secs=secs))
        finally:
            self._hooked = None
            self._unfinalize()

    def _save(self, error: BaseException | None) -> None:
        """Call the hooks' ``end``, which saves; after an exception only the runtime may save."""
        self._lifecycle.recorder.enter("stopping")
        if error is not None:
            self._runtime.save_after_error()
        elif not self._lifecycle.state.reason.had_finished:  # in a finished run no hook has seen the session
            for hook in self._hooks:
                try:
                    hook.end(self._session)
                except Exception as raised:
                    explain_finalized(raised)
                    raise
            self._runtime.save_changes_of_hooks()

    def _close_at_exit(self, error: BaseException | None) -> None:
        if not self._closed:
            self._close(error)

    def _give_up(self, error: BaseException) -> None:
        """Undo a start that failed with this error."""
        self._closed = True
        explain_finalized(error)
        try:
            self._lifecycle.state.reason.body_error = error
            self._end_session(lost=True)
        finally:
            self._hooked = None
            try:
                self._runtime.end(error)
            finally:
                self._unfinalize()

    def _unfinalize(self) -> None:
        if not self._graph_was_finalized:
            unfinalize(self._default_graph)

    @property
    def _sess(self) -> Any:
        """The next session of the chain (`ChainLink`); None once it is closed."""
        if self._session is None:
            return None
        return ChainLink(self, _RECOVERS if self._recovers else _COORDINATES)

    @property
    def _coordinated_creator(self) -> CoordinatedCreator:
        return CoordinatedCreator(self)

    @property
    def _coordinator(self) -> Any:
        """The coordinator of the present session; None once it is closed."""
        return None if self._closed else self._runtime.coord

    def _tf_sess(self) -> Any:
        """The wrapped session, of the original's own name since programs call it; None once it is closed."""
        return self._session

    def _is_closed(self) -> bool:
        return self._session is None


class CoordinatedCreator:
    """View for ``MonitoredSession._coordinated_creator``: the coordinator and the wrapped session."""

    def __init__(self, monitored: Monitored) -> None:
        self._monitored = monitored

    @property
    def coord(self) -> Any:
        """The coordinator of the present session; None once it is closed."""
        return self._monitored._coordinator

    @property
    def tf_sess(self) -> Any:
        """The wrapped session; None once it is closed."""
        return self._monitored._session


_RECOVERS, _COORDINATES, _CALLS_HOOKS = range(3)
"""The places in the chain of sessions."""


class ChainLink:
    """One of the sessions that programs reach through ``sess._sess._sess._sess._sess``.

    TensorFlow's monitored session is a chain: one that recovers, one that coordinates threads, one that calls hooks,
    and the plain session. Programs and libraries follow it, or ask one link for its coordinator. Here `Monitored` does
    all of that; the links hold no state, so that they stay valid after a recovery.
    """

    def __init__(self, monitored: Monitored, position: int) -> None:
        self._monitored = monitored
        self._position = position

    @property
    def _sess(self) -> Any:
        """The next session of the chain; in the end the plain one."""
        last = self._position == _CALLS_HOOKS
        return self._monitored._session if last else ChainLink(self._monitored, self._position + 1)

    @property
    def _sess_creator(self) -> CoordinatedCreator:
        return self._monitored._coordinated_creator

    @property
    def _coord(self) -> Any:
        return self._monitored._coordinator

    @property
    def _hooks(self) -> list[Any]:
        return self._monitored._hooks

    @property
    def graph(self) -> Any:
        """The graph that was launched."""
        return self._monitored.graph

    @property
    def sess_str(self) -> Any:
        """The TensorFlow master."""
        return self._monitored._session.sess_str

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included; the first link of four recovers."""
        session = self._monitored if self._position == _RECOVERS else self._monitored._open_session()
        return session.run(fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: Callable[[Any], Any], raw_session: Any, run_with_hooks: Any) -> Any:
        """Call ``step_fn(step_context)``, again if the session is lost in it, for `MonitoredSession.run_step_fn`."""
        monitored = self._monitored
        while True:
            session = monitored._open_session()
            try:
                return step_fn(monitored.StepContext(monitored._tf_sess(), session.run))
            except Exception as error:
                if not monitored._recovered_from(error):
                    raise

    def should_stop(self) -> bool:
        """Return whether the loop should end."""
        return self._monitored.should_stop()

    def close(self) -> None:
        """Close the monitored session."""
        self._monitored.close()


class RecoveryBackoff:
    """Counts recoveries without a successful call in between, up to `Options.max_recoveries`.

    Args:
        options: for the limit and the waits.
    """

    def __init__(self, options: Options) -> None:
        self._bound = options.max_recoveries
        self._backoff = Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs)
        self._calls = -1
        self.in_a_row = 0
        """Recoveries since the last successful call."""

    def delay_secs(self, error: Exception, calls: int) -> float:
        """Return the seconds to wait before the session is recreated.

        Args:
            error: why it is recreated.
            calls: the number of successful calls so far.

        Raises:
            Exception: the error itself, when the limit is exceeded.
        """
        if calls != self._calls:
            self.in_a_row, self._calls = 0, calls
        self.in_a_row += 1
        if self._bound is not None and self.in_a_row > self._bound:
            _LOG.error(
                "The TensorFlow session was lost %d times in a row, more than Options.max_recoveries allows.",
                self.in_a_row,
            )
            raise error
        return self._backoff.next_delay(self.in_a_row)
