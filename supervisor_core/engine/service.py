"""`RuntimeLooperThread`: calls a function at an interval until the coordinator stops. `RuntimeServiceThread`: one with
health and retries.

A `Policy` decides which errors of a service are retried, end the service, or stop the run. A `ServiceRegistry` keeps
the services of a session, with unique names.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Literal, Protocol, TypeVar

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import ServiceError
from supervisor_core.engine.coordinator import RuntimeCoordinator, text_of
from supervisor_core.engine.retry import Backoff
from supervisor_core.events.telemetry import ThreadStatus


def never(_error: BaseException) -> bool:
    """Return False, for any error."""
    return False


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Which errors of a service are retried, which end the service, and which stop the run.

    Example, for a checkpoint service:
        >>> from supervisor_core.engine.retry import is_outside_fault
        >>> policy = Policy(transient=is_outside_fault, max_failures=10)
        >>> policy.transient(OSError("disk full")), policy.transient(ValueError("not a number"))
        (True, False)
    """

    on_error: Literal["stop", "continue"] = "stop"
    """``"stop"``: an error stops the run. ``"continue"``: it ends the service, and training continues."""
    transient: Callable[[BaseException], bool] = never
    """Whether an error has an external cause that may pass: it is retried while training continues. Default: none."""
    over: Callable[[BaseException], bool] = never
    """Whether an error only means that the service has no more work: it stops without a failure. Default: none."""
    backoff: Backoff = field(default_factory=Backoff)
    """The wait before each retry."""
    max_failures: int | None = None
    """The largest number of transient failures in a row; one more stops the run, whatever ``on_error`` is. Default: no
    limit."""
    give_up: Callable[[str, int, BaseException], BaseException] | None = None
    """Creates the error that then stops the run, from the service's name, the number of failures and the last error,
    its cause. Default: a `ServiceError`."""
    explain: Callable[[BaseException], str] | None = None
    """Returns what the user can do about an error, in sentences; may be empty."""


_COORDINATOR_METHODS = ("should_stop", "wait_for_stop", "request_stop", "register_thread", "stop_on_exception")


class RuntimeLooperThread(threading.Thread):
    """A daemon thread that calls `run_loop`, or ``target``, until the coordinator stops; the first time at once.

    An exception is reported to the coordinator and ends the thread. Calls keep the phase of the schedule (start,
    start + interval, ...): a late one does not shift those after it, and missed ones are skipped, not made up for in a
    burst. The schedule follows the monotonic clock.

    Subclasses override `start_loop`, `run_loop` and `stop_loop`.
    """

    def __init__(
        self,
        coord: RuntimeCoordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Register with the coordinator; ``start()`` starts it.

        Args:
            coord: a `RuntimeCoordinator`, or anything with its methods.
            timer_interval_secs: seconds from the start of one call to the start of the next; None calls back to back.
            target: what to call. Default: nothing; a subclass overrides `run_loop`.
            args: positional arguments of the target.
            kwargs: named arguments of the target.

        Raises:
            ValueError: ``coord`` is no coordinator, or there are arguments without a target.
        """
        if not all(callable(getattr(coord, method, None)) for method in _COORDINATOR_METHODS):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")  # type: ignore[repr-in-text]  # as it came
        if not target and (args or kwargs):
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        super().__init__(target=target, daemon=True)
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._clock = clock
        self._target = target
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})
        self._coord.register_thread(self)

    def run(self) -> None:
        """Loop until the coordinator stops. The thread's body; not to be called."""
        with self._coord.stop_on_exception():
            self.start_loop()
            due = self._clock.monotonic()
            while not self._coord.wait_for_stop(due - self._clock.monotonic()):
                self.run_loop()
                due = next_due(due, self._timer_interval_secs or 0.0, self._clock.monotonic())
            self.stop_loop()

    def start_loop(self) -> None:
        """Do nothing; called once in the thread, before the first call of `run_loop`."""

    def stop_loop(self) -> None:
        """Do nothing; called once in the thread after the loop, but not after an exception."""

    def run_loop(self) -> None:
        """Call the target; called every ``timer_interval_secs``."""
        if self._target:
            self._target(*self._args, **self._kwargs)


def next_due(due: float, interval_secs: float, now: float) -> float:
    """Return the time of the call after the one at ``due``: the next one of the schedule that is not before ``now``.

    Example:
        >>> next_due(10.0, 2.0, 10.5), next_due(10.0, 2.0, 15.0)
        (12.0, 16.0)
    """
    if interval_secs <= 0:
        return now
    return due + max(1, math.ceil((now - due) / interval_secs)) * interval_secs


logger = logging.getLogger("supervisor_core")

OnFailure = Callable[[str, BaseException, int], object]
"""Called with a service's name, the error, and the tick's number from 1 (0: before the first)."""

SHORT_TEXT = 500
"""Length of an error's first line in a status, in characters; the log has the whole text."""


class RuntimeServiceThread(RuntimeLooperThread):
    """A periodic service with a health, whose errors are retried, stop the run, or end only the service.

    By default an exception is reported to the coordinator, with a note that names the service (from Python 3.11), so
    ``should_stop()`` becomes True and ``join()`` raises it. Exceptions that are a clean stop for the coordinator are no
    failures. An error after a stop request is recorded, and the service still ends as ``stopped``.
    """

    def __init__(
        self,
        coord: RuntimeCoordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str,
        policy: Policy | None = None,
        on_failure: OnFailure | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Register with the coordinator; ``start()`` starts it.

        Args:
            timer_interval_secs: seconds from the start of one tick to the start of the next; None ticks back to back.
            target: what a tick calls. Default: nothing; a subclass overrides `run_loop`.
            args: positional arguments of the target.
            kwargs: named arguments of the target.
            name: the thread's name, in logs, telemetry and metrics; unique within a run.
            policy: how errors are handled. Default: all stop the run.
            on_failure: called after every failure, in the service's thread.

        Raises:
            ValueError: as in `RuntimeLooperThread`, and if ``coord`` is no `RuntimeCoordinator` of this package.
        """
        if not isinstance(coord, RuntimeCoordinator):
            raise ValueError(f"'coord' argument must be a supervisor_core Coordinator: {coord}")
        super().__init__(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs, clock=clock)
        self.name = name
        self._policy = policy or Policy()
        self._on_failure = on_failure
        self._wake_queue: SimpleQueue[bool] = SimpleQueue()
        self._health: tuple[ThreadStatus, float | None] = (
            ThreadStatus(name=name, state="starting", interval_secs=timer_interval_secs),
            None,
        )
        """The status without what depends on the present time, and when a tick is due, or began. Replaced as a whole,
        by the service's own thread only: readers need no lock."""
        self._failures_in_a_row = 0
        self._given_up: BaseException | None = None

    def wake(self) -> None:
        """Make the service tick at once, or again right after the present tick; the schedule does not change.

        Calls before the tick starts count as one. Safe in a signal handler.
        """
        self._wake_queue.put(False)

    def status(self) -> ThreadStatus:
        """Return the service's present health; from any thread.

        ``overdue``: the start of the next tick, or the end of the present one, is late by more than the interval.
        ``failed``: ended by an error, or at least the last two ticks have failed.
        """
        status, due = self._health
        interval_secs, state = status.interval_secs, status.state
        if due is None or not interval_secs:
            age_secs = late_secs = 0.0
        else:
            age_secs = max(0.0, self._clock.monotonic() - due)
            # During a tick the next one is due.
            late_secs = max(0.0, age_secs - interval_secs) if state == "ticking" else age_secs
        is_ticking = state == "ticking" and due is not None and interval_secs
        if state in ("idle", "ticking") and interval_secs and late_secs > interval_secs:
            state = "overdue"
        elif state == "idle" and self._failures_in_a_row > 1:
            state = "failed"
        return replace(status, state=state, overdue_secs=late_secs, ticking_secs=age_secs if is_ticking else None)

    def _change(self, due: float | None, **changes: Any) -> None:
        self._health = (replace(self._health[0], **changes), due)

    def run(self) -> None:
        """Tick until the coordinator stops. The thread's body; not to be called."""
        with self._coord.stop_on_exception():
            try:
                self._recording_failure(self.start_loop)
                self._tick_until_stop()
                self._recording_failure(self.stop_loop)
            except BaseException as error:
                if self._concerns_the_run(error):
                    raise
            else:
                self._change(None, state="stopped")

    def _tick_until_stop(self) -> None:
        regular_due = due = self._clock.monotonic()
        self._change(due, state="idle")
        while not self._coord.wait_for_stop(due - self._clock.monotonic(), wake_queue=self._wake_queue):
            while not self._wake_queue.empty():
                self._wake_queue.get()
            retry_secs = self._tick()
            now = self._clock.monotonic()
            if now >= regular_due:  # an early tick, requested or retried, does not move the schedule
                regular_due = next_due(regular_due, self._timer_interval_secs or 0.0, now)
            due = regular_due if retry_secs is None else now + retry_secs
            self._change(due, state="idle")

    def _tick(self) -> float | None:
        """Do one tick; return None if it succeeded, otherwise the seconds to wait before the retry."""
        started = self._clock.monotonic()
        self._change(started, state="ticking", ticks=self._health[0].ticks + 1)
        try:
            self._recording_failure(self.run_loop)
        except Exception as error:
            if self._coord.is_clean_stop(error) or self._policy.over(error) or not self._policy.transient(error):
                raise
            return self._retry_delay_secs(error)
        else:
            self._failures_in_a_row = 0
            return None
        finally:
            ended = self._clock.monotonic()
            self._change(started, last_tick_at=self._clock.wall(), last_tick_secs=ended - started)

    def _retry_delay_secs(self, error: Exception) -> float:
        failures, bound = self._failures_in_a_row, self._policy.max_failures
        text = f"{type(error).__name__}: {text_of(error)}"
        if bound is not None and failures > bound:
            if self._policy.give_up is not None:
                self._given_up = self._policy.give_up(self.name, failures, error)
            else:
                self._given_up = ServiceError(f"The service {self.name} failed {failures} times in a row: {text}")
            raise self._given_up from error
        delay_secs = self._policy.backoff.next_delay(failures)
        again = f"trying again in {delay_secs:.1f} s while training continues"
        logger.warning("Service %s: failed %d time(s) in a row, %s: %s", self.name, failures, again, text)
        return delay_secs

    def _recording_failure(self, body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:
            if not self._coord.is_clean_stop(error) and not self._policy.over(error):
                self._record_failure(error)
            raise

    def _record_failure(self, error: BaseException) -> None:
        status, due = self._health
        first_line = text_of(error).strip().partition("\n")[0]
        self._failures_in_a_row += 1
        self._change(
            due,
            failures=status.failures + 1,
            last_error=f"{type(error).__name__}: {first_line}"[:SHORT_TEXT],
            last_failure_at=self._clock.wall(),
        )
        if self._on_failure is None:
            return
        try:
            self._on_failure(self.name, error, status.ticks)
        except Exception:  # the service's own error is handled, not this one
            logger.exception("Service %s: the on_failure callback raised", self.name)

    def _concerns_the_run(self, error: BaseException) -> bool:
        """Set the final state after an exception; return whether to report it to the coordinator."""
        text = f"{type(error).__name__}: {text_of(error)}"
        is_clean, is_over = self._coord.is_clean_stop(error), self._policy.over(error)
        if is_clean or is_over or self._coord.should_stop():
            self._change(None, state="stopped")
            if is_over and not is_clean:
                logger.warning("Service %s: ends, since it has nothing left to work on: %s", self.name, text)
            elif not is_clean:
                what = "failed after the stop was requested, which changes nothing"
                logger.info("Service %s: %s: %s", self.name, what, text)
            return is_clean
        self._change(None, state="failed")
        remedy = self._remedy(error)
        if self._policy.on_error == "continue" and error is not self._given_up and isinstance(error, Exception):
            logger.error(
                "Service %s: failed and has ended; training continues without it. %s", self.name, remedy, exc_info=True
            )
            return False
        logger.error("Service %s: failed, which stops the run: %s. %s", self.name, text, remedy)
        if hasattr(error, "add_note"):  # Python 3.11
            instead = "With Options(service_errors='continue') it would end the service alone."
            error.add_note(f"Raised in the service {self.name}, which stops the run. {remedy} {instead}")
        return True

    def _remedy(self, error: BaseException) -> str:
        explain = self._policy.explain
        try:
            return explain(error) if explain is not None else ""
        except Exception:  # a missing remedy must not hide the error
            logger.exception("Service %s: its error could not be explained", self.name)
            return ""


class HasStatus(Protocol):
    """Anything with a name and a health: a `RuntimeServiceThread`, or an adapter for another thread."""

    @property
    def name(self) -> str:
        """Its unique name."""

    def status(self) -> ThreadStatus:
        """Return its present health."""


ServiceT = TypeVar("ServiceT", bound=HasStatus)


class ServiceRegistry:
    """Keeps the services of a session in the order of their names' reservation. Thread-safe.

    Example:
        >>> registry = ServiceRegistry()
        >>> def evaluate(): ...
        >>> registry.reserve_name(evaluate), registry.reserve_name(evaluate)
        ('evaluate', 'evaluate-2')
    """

    def __init__(self) -> None:
        self._services_lock = threading.Lock()
        self._services: dict[str, HasStatus | None] = {}

    def reserve_name(self, wanted: str | Callable[..., object]) -> str:
        """Return a name that no other service has or gets: the wanted one, else with ``-2``, ``-3``... appended.

        Args:
            wanted: a name, or a callable to take it from.
        """
        base = wanted if isinstance(wanted, str) else _name_of(wanted)
        with self._services_lock:
            name, count = base, 1
            while name in self._services:
                count += 1
                name = f"{base}-{count}"
            self._services[name] = None
            return name

    def add(self, service: ServiceT) -> ServiceT:
        """Add a service and return it.

        Raises:
            ValueError: another service has its name.
        """
        with self._services_lock:
            known = self._services.get(service.name)
            if known is not None and known is not service:
                raise ValueError(f"There is a service named {service.name!r} already; take a name from reserve_name().")
            self._services[service.name] = service
            return service

    def statuses(self) -> tuple[ThreadStatus, ...]:
        """Return the present health of each service, in the order of their names' reservation."""
        with self._services_lock:
            services = list(self._services.values())
        return tuple(service.status() for service in services if service is not None)

    def clear(self) -> None:
        """Remove all services and names, for a new session."""
        with self._services_lock:
            self._services.clear()


def _name_of(target: Callable[..., object]) -> str:
    inner = getattr(target, "func", target)  # functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    return "loop" if name == "<lambda>" else str(name)
