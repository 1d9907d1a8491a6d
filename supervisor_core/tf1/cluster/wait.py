"""`DeadlineWait`: waits for processes of the cluster until a deadline or a stop, and names those that do not answer."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import OptionsError
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.engine.blocking_call import BlockingCall
from supervisor_core.engine.tf_config import task_from_environment

T = TypeVar("T")

_LOG = logging.getLogger("supervisor_core")

FIRST_POLL_SECS = 0.1
"""The first wait between two polls, in seconds; doubled each time up to the longest."""

CHECK_SECS = 1.0
"""How often a wait for a blocked call checks for a stop request, in seconds."""

LEAST_SECS = 5.0
"""The least time that a call gets, whatever the limit: enough for one answer of a cluster, in seconds."""

NAME_SECS = 5.0
"""How long a call may block before the unreachable processes are looked up, repeatedly; and how long that lookup may
delay the end of a wait. In seconds."""

LONG_SECS = 30.0
"""After how many seconds a wait is logged as a warning, once: without a logging setup only warnings are seen."""


class DeadlineWait:
    """One wait, starting now.

    Args:
        bound_secs: the limit in seconds; None: no limit.
        longest_poll_secs: the longest time between two polls.
        context: says whether to give up, and is notified of what is waited for.
    """

    def __init__(self, bound_secs: float | None, longest_poll_secs: float, context: SessionContext) -> None:
        self._bound_secs = float("inf") if bound_secs is None else bound_secs
        self._longest_secs = longest_poll_secs
        self._poll_secs = min(FIRST_POLL_SECS, longest_poll_secs)
        self._context = context
        self._began = context.clock.monotonic()
        self._deadline = self._began + self._bound_secs
        self._reported: str | None = None
        self._warned = False

    @property
    def remaining_secs(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, self._deadline - self._context.clock.monotonic())

    def pause(self, what: str) -> None:
        """Wait until the next poll.

        Raises:
            tf.errors.DeadlineExceededError: after the deadline.
            tf.errors.CancelledError: if a stop was requested.
        """
        self._check(what)
        self._report(what)
        stopped = self._context.wait(min(self._poll_secs, self.remaining_secs))
        self._poll_secs = min(2 * self._poll_secs, self._longest_secs)
        if stopped:
            self._cancel(what)

    def call_blocking(self, call: Callable[[], T], *, who: Callable[[], str], discard: Callable[[T], object]) -> T:
        """Make a call that may block forever, in its own thread, and return its result.

        Args:
            call: gets at least `LEAST_SECS`.
            who: returns what blocks the call; may take a while, and its exceptions end the wait.
            discard: called with a result that comes after the wait has ended.

        Raises:
            tf.errors.DeadlineExceededError: after the deadline.
            tf.errors.CancelledError: if a stop was requested.
        """
        blocking = BlockingCall(call, name="supervisor_cluster_call", discard=discard)
        naming: BlockingCall[str] | None = None
        try:
            what, began = "the cluster to answer", self._context.clock.monotonic()
            named = began
            while not blocking.wait(min(CHECK_SECS, self.remaining_secs)):
                if self._context.wait(0.0):
                    self._cancel(what)
                is_over, now = not self.remaining_secs, self._context.clock.monotonic()
                if naming is None and (is_over or now - named >= NAME_SECS):
                    naming, named = BlockingCall(who, name="supervisor_cluster_probe"), now
                if naming is not None and naming.wait(NAME_SECS if is_over else 0.0):
                    what, naming = naming.result(), None
                    self._report(what)
                if is_over and not blocking.wait(max(0.0, began + LEAST_SECS - now)):
                    self._check(what)
            return blocking.result()
        except BaseException:
            blocking.abandon()
            raise

    def done(self) -> None:
        """Report that the wait is over."""
        if self._reported is not None:
            self._context.waiting_for(None)
        self._reported = None

    def _report(self, what: str) -> None:
        waited = self._context.clock.monotonic() - self._began
        if waited >= LONG_SECS and not self._warned:
            self._warned = True
            _LOG.warning("Waiting, for %.0f s by now, for %s", waited, what)
        elif what != self._reported:
            _LOG.info("Waiting for %s", what)
        if what != self._reported:
            self._context.waiting_for(what)
        self._reported = what

    def _check(self, what: str) -> None:
        if not self.remaining_secs:
            raise tf.errors.DeadlineExceededError(
                None, None, f"Session was not ready after waiting {self._bound_secs:g} secs. Waited for {what}"
            )

    def _cancel(self, what: str) -> None:
        self._context.gave_up()
        raise tf.errors.CancelledError(None, None, f"A stop was requested while waiting for {what}")


class SessionContext:
    """What a session manager works for. This default has no stop signal, no listener and no adoptable model."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._never = threading.Event()

    @property
    def session(self) -> str:
        """The id of the session that prepares a model; stored with the model to recognise it."""
        return ""

    @property
    def starts_over(self) -> bool:
        """Whether to start at step 0 if all checkpoints are damaged, rather than raise."""
        return False

    def publisher(self, directory: str) -> Publisher | None:
        """Return the publisher of a directory if this session saves there."""
        return None

    def wait(self, secs: float) -> bool:
        """Wait for a number of seconds; return whether to give up."""
        return self._never.wait(secs)

    def restoring(self) -> None:
        """Called before a checkpoint is read."""

    def waiting_for(self, what: str | None) -> None:
        """Called with what is waited for; None at the end of the wait."""

    def gave_up(self) -> None:
        """Called when a stop request ends the wait."""

    def kept_back(self) -> str | None:
        """Return why a worker must wait though the model may be ready; None if it need not.

        Raises:
            RunFinishedError: if the run has finished.
        """
        return None

    def owns(self, session: str) -> bool:
        """Return whether a model that a session marked as ready belongs to this run and can be adopted."""
        return False

    def missing(self, config: Any) -> str:
        """Return a text that names the processes of the cluster that do not answer."""
        return unreachable_tasks(config)


ANSWER_SECS = 1.0
"""How long a process has to accept a connection, in seconds."""

_NAMED = 5
"""How many unreachable processes are named."""
_AT_ONCE = 256
"""How many processes are probed at most: one that hangs is enough."""
_THREADS = 64

_known: dict[str, str] = {}


def remember_cluster(addresses: Mapping[str, Mapping[int, str]]) -> None:
    """Remember the addresses of this process's cluster for `unreachable_tasks`."""
    _known.clear()
    _known.update(_flat(addresses))


def unreachable_tasks(config: Any) -> str:
    """Return which of the cluster's processes accept no connection; a general text if no addresses are known.

    Args:
        config: the session's ``ConfigProto``, for its device filters and its cluster; or None.
    """
    tasks = _tasks(config)
    unreachable = _unreachable(tasks) if tasks else []
    if unreachable:
        more = f" and {len(unreachable) - _NAMED} more" if len(unreachable) > _NAMED else ""
        return ", ".join(f"{name} ({tasks[name]})" for name in unreachable[:_NAMED]) + more + ": unreachable"
    if tasks:
        return "the cluster: all its processes accept connections, but the session is not ready yet"
    return "a process of the cluster that does not answer (set TF_CONFIG to name it)"


def _tasks(config: Any) -> dict[str, str]:
    """Return the tasks that a session with this configuration needs, name -> address."""
    tasks: dict[str, str] = {}
    if config is not None and config.HasField("cluster_def"):
        tasks = {f"{job.name}:{index}": at for job in config.cluster_def.job for index, at in job.tasks.items()}
    tasks = tasks or dict(_known)
    if not tasks:
        try:
            identity = task_from_environment()
        except OptionsError:  # reported when the server is started from it
            identity = None
        tasks = {} if identity is None else _flat(identity.addresses)
    filters = list(config.device_filters) if config is not None else []
    if filters:
        tasks = {name: address for name, address in tasks.items() if any(_is_in(name, each) for each in filters)}
    return dict(list(tasks.items())[:_AT_ONCE])


def _flat(addresses: Mapping[str, Mapping[int, str]]) -> dict[str, str]:
    return {f"{job}:{index}": address for job, tasks in addresses.items() for index, address in tasks.items()}


def _is_in(name: str, device_filter: str) -> bool:
    job, _, index = name.partition(":")
    parts = [part for part in device_filter.split("/") if part]
    return f"job:{job}" in parts and (f"task:{index}" in parts or not any(part.startswith("task:") for part in parts))


def _unreachable(tasks: Mapping[str, str]) -> list[str]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="supervisor_probe") as threads:
        answers = list(threads.map(_accepts, tasks.values()))
    return [name for name, answer in zip(tasks, answers, strict=True) if not answer]


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECS).close()
    except (OSError, ValueError):
        return False
    return True
