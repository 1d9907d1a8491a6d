"""`SessionLifecycle`: the session of a facade: takes the logdir, begins, is ready. How it ends is in `ending`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import LogdirInUseError, OptionsError
from supervisor_core.base.options import Options
from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.engine import open_sessions
from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.deadline import StopDeadline
from supervisor_core.engine.ending import Ending, SessionState
from supervisor_core.engine.notices import HAS_ENDED, NOT_BEGUN, log_unrecorded
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.engine.timeouts import stop_timeout
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import ServiceInterval, Severity, SkippedCheckpoint

if TYPE_CHECKING:
    from supervisor_core.notify.callable import EventCalls

_LOG = logging.getLogger("supervisor_core")

Claim = Literal["required", "if free", "gives way"]
"""How a chief takes its logdir. ``required``: it writes checkpoints; where another one does already, it is refused.
``if free``: it may come to write some; if another one does already, it is not the owner. ``gives way``: it cannot; it
is not the owner wherever another has written any, and from when another begins to."""

EndingT = TypeVar("EndingT", bound=Ending)

_SHORTENED = (
    "A stop may take %g s, not Options.stop_timeout_secs (%g s): tb-supervisor run kills this program then. Give it "
    "--stop-timeout %gs."
)


class SessionLifecycle(Generic[EndingT]):
    """The session under way, and the one before it.

    Args:
        new_ending: makes what ends them, from the session's state, the options and the clock.
        options: how the run behaves.
        logdir: the run's directory; None where nothing is written.
        writer: the run's summary writer, or None.
        is_chief: whether this process writes.
        snapshots: the values of `Options.snapshot` that the facade has.
        recording: what each session's `SessionRecorder` is given besides: facade, task, interval of the checkpoints.
    """

    not_begun = "There is no session yet."
    """The error's text where something is asked of a session before the first one."""

    def __init__(
        self,
        new_ending: Callable[[SessionState, Options, Clock], EndingT],
        *,
        coord: RuntimeCoordinator,
        options: Options,
        logdir: str | None,
        writer: Any,
        is_chief: bool,
        clock: Clock = SYSTEM_CLOCK,
        snapshots: Collection[str] = ("copy",),
        **recording: Any,
    ) -> None:
        if options.snapshot not in snapshots:
            raise OptionsError(
                f"Options.snapshot is {options.snapshot!r}; {recording['facade']} saves copies only: expected 'copy'. "
                "supervise() and PyTorch's supervised() have 'shards'."
            )
        self.services = ServiceRegistry()
        self.options = options
        """How the run behaves."""
        deadline = StopDeadline(stop_timeout(options), clock)
        if (given := options.stop_timeout_secs) is not None and deadline.stop_timeout_secs < given:
            _LOG.warning(_SHORTENED, deadline.stop_timeout_secs, given, given)
        self.state = SessionState(coord=coord, logdir=logdir, writer=writer, deadline=deadline)
        """The session under way, or the last one."""
        self.ending = new_ending(self.state, options, clock)
        """How it ends."""
        self._is_chief = is_chief
        self._recording = recording
        self._clock = clock
        self._claim: Claim = "required"
        self._refusal: LogdirInUseError | None = None

    @property
    def recorder(self) -> SessionRecorder:
        """The session under way, or the last one.

        Raises:
            RuntimeError: before the first session.
        """
        if self.state.recorder is None:
            raise RuntimeError(self.not_begun)
        return self.state.recorder

    @property
    def has_begun(self) -> bool:
        """Whether there is, or was, a session since the last `begin`; not when the logdir was refused."""
        return self.state.recorder is not None

    @property
    def is_under_way(self) -> bool:
        """Whether a session has begun and not ended."""
        return self.state.recorder is not None and not self.state.recorder.ended

    def begin(
        self,
        at_exit: open_sessions.AtExit,
        claim: Claim = "required",
        *,
        ends_with_call: bool = False,
        after_attempt: int = 0,
    ) -> SessionRecorder:
        """Begin a session; one that is still open ends as requested.

        Args:
            at_exit: stops the session when the interpreter ends; see `open_sessions.add`.
            claim: how a chief takes the logdir; see `Claim`.
            ends_with_call: see `open_sessions.add`.
            after_attempt: the newest session's number in a checkpoint; this session's is higher.

        Raises:
            LogdirInUseError: if another live chief holds the logdir, and it is required.
        """
        state = self.state
        self._prepare()
        if state.recorder is not None:
            self.ending.record(None)
            state.recorder.close(0.0)
            self.ending.finish_event_calls(0.0)
            self.services.clear()
        self.ending.begin()
        state.recorder = self._refusal = None
        state.is_ready = state.is_not_owner = False
        self._claim = claim
        try:
            state.recorder = self._begun_recorder(self._is_chief, state.writer, after_attempt)
        except LogdirInUseError as error:
            if claim == "required":
                raise
            self._give_up_ownership(error)
            state.recorder = self._begun_recorder(False, None, 0)
        state.event_calls = self._begun_event_calls(state.recorder)
        open_sessions.add(self.ending, at_exit, ends_with_call=ends_with_call)
        if state.reason.signum is not None:  # it came meanwhile
            state.coord.request_stop()
        return state.recorder

    def loop_begins(self) -> None:
        """Say that from here on it is the loop that asks whether to stop. A Ctrl-C until then asks for a stop at once,
        as its `KeyboardInterrupt` may get lost."""
        self.state.is_ready = True
        self.state.coord.reset_loop_checks()

    def ready(self, *, skipped: Iterable[Skipped], services: Sequence[ServiceInterval], **found: Any) -> None:
        """Record that the session is ready.

        Args:
            skipped: the checkpoints that were passed over.
            services: the services that are about to start.
            found: where the model came from; see `SessionRecorder.ready`.
        """
        reasons = tuple(SkippedCheckpoint(**shared(SkippedCheckpoint, item)) for item in skipped)
        self.recorder.ready(skipped=reasons, services=tuple(services), **found)

    def _prepare(self) -> None:
        """What a facade does before a session begins."""

    def _begun_recorder(self, is_chief: bool, writer: Any, after_attempt: int) -> SessionRecorder:
        recorder = SessionRecorder(
            logdir=self.state.logdir,
            options=self.options,
            writer=writer,
            services=self.services,
            is_chief=is_chief,
            yields_logdir=is_chief and self._claim == "gives way",
            on_taken_over=self._taken_over,
            on_stalled=lambda error: self.state.coord.request_stop(error),
            save_stalled=self.ending.save_stalled,
            save_soon=self._save_soon,
            after_attempt=after_attempt,
            clock=self._clock,
            **self._recording,
        )
        recorder.begin()
        return recorder

    def _begun_event_calls(self, recorder: SessionRecorder) -> EventCalls | None:
        call, logdir, session = self.options.on_event, self.state.logdir, recorder.status().session
        if call is None or logdir is None or session is None or recorder.publisher is None:
            return None
        from supervisor_core.notify.callable import EventCalls  # other programs need not load it

        calls = EventCalls(call, logdir, recorder.status().run, session.started_at or 0.0, clock=self._clock)
        calls.start()
        return calls

    def _save_soon(self) -> None:
        """Save a checkpoint as soon as that is possible; whether it could be saved is recorded."""
        checkpoints = self.ending.serving()
        if checkpoints is not None:
            with suppress(Exception):  # training goes on; the next save may succeed
                checkpoints.save_now("timer")

    def _taken_over(self, error: BaseException) -> None:
        """Another chief has taken the logdir over."""
        if self._claim == "gives way":
            self._give_up_ownership(error)
        else:
            self.state.coord.request_stop(error)

    def _give_up_ownership(self, error: BaseException) -> None:
        assert isinstance(error, LogdirInUseError)
        self._refusal = error
        self.state.is_not_owner, self.state.checkpoints = True, None
        _LOG.info("%s belongs to another run: this process writes no telemetry there. %s", self.state.logdir, error)


class _HasLifecycle(Protocol):
    """A facade."""

    @property
    def _lifecycle(self) -> SessionLifecycle[Any]: ...


class Notifies:
    """`notify`, of every facade."""

    def notify(self: _HasLifecycle, text: str, severity: Severity = "warn") -> None:
        """Say something of the run: it becomes a finding for an hour, as those that the supervisor finds itself, and an
        alert and a message. From any thread, on any rank; cheap. It is logged only outside of a session.

        Args:
            text: one line; the first 200 characters count. The same text again is counted: leave numbers that change
                out of it.
            severity: ``page``: work is being lost, act now. ``warn``: today. ``info``: when there is time.

        Raises:
            ValueError: if the severity is none of these.

        Example:
            if accuracy < 0.9 * best:
                run.notify("validation accuracy fell")
        """
        recorder = self._lifecycle.state.recorder
        if recorder is None:
            log_unrecorded(text, severity, NOT_BEGUN)
        elif recorder.ended:
            log_unrecorded(text, severity, HAS_ENDED)
        else:
            recorder.notices.say(text, severity)
