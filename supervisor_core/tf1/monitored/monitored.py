"""`Monitored`: a session that initialises itself, calls hooks, is recreated when it is lost, and ends as planned.

Source: seed document 004 and ``tf.compat.v1.train.MonitoredSession``: same phases in the same order, same errors. What
is behind it is `MonitoredRuntime`, the same as behind a `Supervisor`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import tensorflow as tf

from supervisor_core.errors import RunFinishedError
from supervisor_core.options import Options
from supervisor_core.tf1.cluster.away import AWAY
from supervisor_core.tf1.cluster.closing import close_at_end
from supervisor_core.tf1.cluster.finished_session import FinishedSession
from supervisor_core.tf1.lifecycle import Additions, Lifecycle
from supervisor_core.tf1.monitored.hooked_runs import HookedRuns
from supervisor_core.tf1.monitored.runtime import MonitoredRuntime
from supervisor_core.tf1.monitored.session_chain import CoordinatedCreator, CoordinatedLink, RecoverableLink
from supervisor_core.tf1.monitored.session_creator import WorkerSessionCreator
from supervisor_core.tf1.monitored.session_loss import SessionLoss
from supervisor_core.tf1.monitored.step_function import check_step_function
from supervisor_core.tf1.monitored.unfinalized import unfinalize
from supervisor_core.tf1.monitored.worker_context import default_creator
from supervisor_core.tf1.tf_errors import explain_finalized

_LOG = logging.getLogger("supervisor_core")
_CLEAN_ENDS = (tf.errors.OutOfRangeError, StopIteration)
_EAGER = (
    "Monitored sessions are incompatible with eager execution. Build the model in a graph of its own, and open the "
    "session there: with tf.Graph().as_default(): ..."
)


class Monitored(Additions):
    """What `MonitoredSession` and `SingularMonitoredSession` have in common.

    Args:
        session_creator: makes the TensorFlow sessions.
        hooks: in the order in which they are called.
        stop_grace_period_secs: seconds that threads have to end.
        recovers: whether a session that is lost is recreated.
        options: how the run behaves.
        logdir: the run's directory, for its name, where no hook says.
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
        self._runs: HookedRuns | None = None
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
        self._loss = SessionLoss(options)
        self._runtime.begin(self._close_at_exit)
        try:
            for hook in self._hooks:
                hook.begin()
            self._open_first()
            self._lifecycle.stopping.raise_lost_interrupt()
        except BaseException as error:
            self._give_up(error)
            raise
        if not self._lifecycle.ending.had_finished:
            self._lifecycle.run.enter("training")

    @property
    def _lifecycle(self) -> Lifecycle:
        return self._runtime.lifecycle

    @property
    def graph(self) -> Any:
        """The graph that was launched; None once the session is closed."""
        return None if self._session is None else self._session.graph

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included.

        An error that means that the TensorFlow session is lost (`AbortedError`, `UnavailableError`) has it recreated,
        from the newest checkpoint, and the run is done again: see `Options.max_recoveries`.

        Raises:
            RuntimeError: after a hook has asked for a stop, or if a tensor is fed twice, or the session is closed.
        """
        while True:
            runs = self._open_runs()
            try:
                return runs.run(fetches, feed_dict, options, run_metadata)
            except Exception as error:
                if not self._recovered_from(error):
                    raise

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call ``step_fn(step_context)`` and return what it returns.

        Through its context it may run without hooks (``step_context.session``), with them
        (``step_context.run_with_hooks``), and end the loop (``step_context.request_stop()``).

        Raises:
            StopIteration: if it ended the loop; a ``with`` block of this session takes that for a clean end.
            ValueError: if it takes other arguments.
        """
        check_step_function(step_fn)
        while True:
            runs = self._open_runs()
            try:
                return step_fn(self.StepContext(self._tf_sess(), runs.run))
            except Exception as error:
                if not self._recovered_from(error):
                    raise

    def should_stop(self) -> bool:
        """Return whether the loop should end; cheap enough for every step. True once the session is closed."""
        if self._closed or self._runs is None:
            return True
        coord = self._runtime.coord
        if not coord.should_stop():
            return self._runs.stop_requested
        error = self._reported()
        if error is not None and not self._recovers:
            raise error
        if isinstance(error, AWAY):
            self._recover(error)
            return False
        return True

    def close(self) -> None:
        """End the training as planned: ``end`` of each hook, a last checkpoint, then threads and session.

        Raises:
            RuntimeError: if it is closed already.
            Exception: what a hook, or a thread, raised.
        """
        self._close(None)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        clean = kind is None or kind in _CLEAN_ENDS
        if self._lifecycle.stopping.hands_off:
            return clean
        if kind is tf.errors.OutOfRangeError:
            self._lifecycle.ending.exhausted = True
        if error is not None and not clean:
            explain_finalized(error)
        self._close(None if clean else error)
        return clean

    def _open_runs(self) -> HookedRuns:
        if self._runs is None:
            raise RuntimeError("Session is already closed.")
        return self._runs

    def _open_first(self) -> None:
        try:
            self._open()
        except RunFinishedError as error:
            self._finished(error)
        except AWAY as error:
            if not self._recovers:
                raise
            self._recover(error)

    def _finished(self, error: RunFinishedError) -> None:
        """Go on without a session: there is nothing left to do."""
        _LOG.warning("%s", error)
        self._session = FinishedSession(self._default_graph, str(error))
        self._runs = HookedRuns(self._session, (), self._runtime.losses, self._runtime.step)
        self._lifecycle.finished()

    def _open(self) -> None:
        """Make a TensorFlow session, start its threads, and tell the hooks."""
        coord = self._runtime.coord
        if hasattr(self._creator, "work_in"):
            self._creator.work_in(self._runtime.surroundings())
        plain = self._creator.create_session()
        self._session = plain
        self._session = self._runtime.supervise(plain, self._creator)
        runners = self._default_graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        inner = self._session.ungated() if hasattr(self._session, "ungated") else self._session
        for queue_runner in runners:
            queue_runner.create_threads(inner, coord=coord, daemon=True, start=True)
        for hook in self._hooks:
            hook.after_create_session(self._session, coord)
        self._runs = HookedRuns(self._session, self._hooks, self._runtime.losses, self._runtime.step)

    def _recovered_from(self, error: Exception) -> bool:
        """Make the session anew if an error says that it is lost; return whether that was so."""
        if not isinstance(error, AWAY):
            cause = self._reported()  # of which this one may be the consequence
            if not isinstance(cause, AWAY):
                return False
            if not self._recovers:
                raise cause
            error = cause
        if not self._recovers:
            return False
        self._recover(error)
        return True

    def _reported(self) -> BaseException | None:
        """What was reported to the coordinator."""
        try:
            self._runtime.coord.raise_requested_exception()
        except BaseException as error:  # asked for, not handled
            return error
        return None

    def _recover(self, error: Exception) -> None:
        """Make the session anew; wait longer each time; raise the error when it has been too often."""
        runtime = self._runtime
        while True:
            _LOG.warning("The TensorFlow session was lost: %s: %s", type(error).__name__, error)
            runtime.session_lost(error)
            self._runs = None
            self._end_session(lost=True)
            delay = self._loss.delay_secs(error, runtime.lifecycle.run.progress.runs)
            runtime.new_coordinator()
            _LOG.warning("It is recreated in %.1f s (loss %d in a row).", delay, self._loss.in_a_row)
            if runtime.coord.wait_for_stop(delay):
                self._lifecycle.ending.gave_up = True
                raise error
            try:
                self._open()
            except AWAY as again:
                error = again
                continue
            except RunFinishedError as finished:
                self._finished(finished)
                return
            break
        runtime.lifecycle.run.enter("training")

    def _end_session(self, *, lost: bool, secs: float | None = None) -> None:
        """Stop the session's threads and close it; after a loss nothing of that may fail."""
        session, self._session = self._session, None
        try:
            self._runtime.stop_threads(None if session is None else session.close, at_once=lost, secs=secs)
        except Exception as error:
            if not lost:
                if not isinstance(error, AWAY):
                    raise
                _LOG.error("A process of the cluster was unavailable when the session was closed: %s", error)
        finally:
            if session is not None:
                close_at_end(session, self._lifecycle.stopping.closing_secs)

    def _close(self, error: BaseException | None) -> None:
        if self._closed:
            raise RuntimeError("Session is already closed.")
        self._closed = True
        if self._lifecycle.stopping.hands_off:
            return
        self._lifecycle.ending.body_error = error
        try:
            self._runtime.stop(lambda: self._save(error), lambda secs: self._end_session(lost=False, secs=secs))
        finally:
            self._runs = None
            self._unfinalize()

    def _save(self, error: BaseException | None) -> None:
        """Have the hooks end, which save; after an exception only the runtime may save."""
        self._lifecycle.run.enter("stopping")
        if error is not None:
            self._runtime.save_after_error()
        elif not self._lifecycle.ending.had_finished:  # else no hook has seen the session
            for hook in self._hooks:
                hook.end(self._session)

    def _close_at_exit(self, error: BaseException | None) -> None:
        if not self._closed:
            self._close(error)

    def _give_up(self, error: BaseException) -> None:
        """End what a failed start has begun; its own error is the one that counts."""
        self._closed = True
        try:
            self._lifecycle.ending.body_error = error
            self._end_session(lost=True)
        finally:
            self._runs = None
            try:
                self._runtime.end(error)
            finally:
                self._unfinalize()

    def _unfinalize(self) -> None:
        if not self._graph_was_finalized:
            unfinalize(self._default_graph)

    @property
    def _inner(self) -> Any:
        """The session inside; None once it is closed."""
        return self._session

    @property
    def _sess(self) -> Any:
        """The next session, for programs that go from one ``_sess`` to the next; None once it is closed."""
        if self._session is None:
            return None
        return RecoverableLink(self) if self._recovers else CoordinatedLink(self)

    @property
    def _coordinated_creator(self) -> CoordinatedCreator:
        return CoordinatedCreator(self)

    @property
    def _coordinator(self) -> Any:
        """The coordinator of the present session; None once it is closed."""
        return None if self._closed else self._runtime.coord

    def _tf_sess(self) -> Any:
        """The session inside, as programs have got into the habit of asking for it; None once it is closed."""
        return self._session

    def _is_closed(self) -> bool:
        return self._session is None
