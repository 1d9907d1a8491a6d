"""`Restarter`: starts a program, and starts it again when it has died or hangs, as `policy` decides.

    take the logdir    lock out other restarters; read what earlier ones have left; look how far the run is
    launch             a keeper starts the program; its end, signals and hangs are awaited in one loop
    judge              why it ended, how far it came; the decision is written down before it is carried out
    wait               the backoff, which a signal cuts short
    end                with a status of its own, or as the signal would have

One thread, which waits on descriptors. Nothing in it touches the logdir: what may hang is done by `LogdirThread`.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Literal

from supervisor_core.process.identity import boot_id
from supervisor_core.process.outside import TRACER_VARIABLE
from supervisor_core.restarter import keeper
from supervisor_core.restarter.child import Child, ChildEnd, reap_others
from supervisor_core.restarter.failure import cause_of, failure_of, signal_name
from supervisor_core.restarter.hang import Hang, HangWatch
from supervisor_core.restarter.hang_stacks import KeptStacks, hang_stacks
from supervisor_core.restarter.launch import Display, Journal, LaunchFacts, describe
from supervisor_core.restarter.logdir_view import LogdirLook, LogdirThread, LogdirView, OpenLaunch
from supervisor_core.restarter.policy import (
    IN_USE_STATUS,
    Decision,
    EndedLaunch,
    Failure,
    Limits,
    RestartState,
    decide,
    next_step,
    reset,
)
from supervisor_core.runtime.deadline import STOP_DEADLINE_VARIABLE

TICK_SECS = 1.0
CONFIRM_SECS = 10.0
"""Time between the two looks at the stacks of a program that hangs, or twice its budget where that is less: progress
in it ends the alarm."""
HURRY_SECS, AGAIN_SECS = 5.0, 0.5
"""What a program has after a second stop signal. Two within the second time are one: some senders reach every process
of a job."""
HANG_SECS = 300.0
"""How long a program that hangs is left alone where neither an option nor its page says."""
MARGIN_SECS = 3.0
"""How much earlier than the restarter's own deadline that of the program is."""
FOLLOW_SECS = 10.0
"""How often the events files are read while the program runs."""
LOOK_SECS, WRITE_SECS = 10.0, 1.0
"""How long the restart waits for the logdir: for how far the run is, and for a file to be written."""

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)

_LOG = logging.getLogger("supervisor_core")


@dataclass(frozen=True, kw_only=True)
class RestarterOptions:
    """What the command line says."""

    logdir: str
    command: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    stop_timeout_secs: float = 28.0
    """How long the program may take to end after a stop signal."""
    stall_timeout_secs: float | None = None
    """How long the events files of a program without a progress page may stay as they are; None: without limit."""
    on_hang: Literal["restart", "observe"] = "restart"
    hang_timeout_secs: float | None = None
    """A program that hangs is ended only after this long without progress, even where its budget is shorter: a budget
    that was learned knows nothing of what the program has not done yet. None: after the time that its page says, as its
    own watchdog would act; `HANG_SECS` where there is none."""
    reset: bool = False
    """Whether the counts of earlier restarters begin at zero."""


@dataclass(frozen=True, kw_only=True)
class RestarterEnd:
    """How the restarter ends."""

    status: int = 0
    signal: int | None = None
    """The signal to end by; None: with the status."""


class Restarter:
    """See the module's docstring.

    Args:
        options: what the command line says.
        view: the logdir.
        display: shows what happens.
        journal: writes it down.
        environment: the program's.
        stacks_of: returns a path with the stacks of a program that hangs; None without any.
    """

    def __init__(
        self,
        options: RestarterOptions,
        view: LogdirView,
        *,
        display: Display,
        journal: Journal,
        environment: Mapping[str, str] = os.environ,
        stacks_of: Callable[[Hang], str | None] = hang_stacks,
    ) -> None:
        self._options = options
        self._view = view
        self._display = display
        self._journal = journal
        self._environment = environment
        self._stacks_of = stacks_of
        self._logdir = LogdirThread()
        self._state = RestartState()
        self._look: LogdirLook | None = None
        self._received: list[int] = []
        self._stop_signal: int | None = None
        self._stopped_at = 0.0
        self._kill_at: float | None = None
        self._wakeup: socket.socket
        """Readable when a signal came."""

    def run(self) -> RestarterEnd:
        """Start the program, again and again, until the policy ends it or a signal does."""
        keeper.become_subreaper()
        self._install_handlers()
        if self._logdir.do(self._view.take, LOOK_SECS) is False:
            text = (
                f"{self._view.logdir} is in use by another tb-supervisor run. Stop that one, or give another --logdir"
            )
            self._display.line(text)
            return RestarterEnd(status=IN_USE_STATUS)
        decision = self._begin()
        while decision is None or decision.action == "restart":
            if decision is not None and not self._pause(decision):
                break
            facts = self._launch()
            decision = self._judge(facts)
            self._announce(facts, decision)
        self._journal.close()
        if self._stop_signal is not None and (decision is None or decision.action == "restart"):
            return RestarterEnd(signal=self._stop_signal)
        assert decision is not None
        if decision.signal is not None:
            return RestarterEnd(signal=self._stop_signal or decision.signal)
        return RestarterEnd(status=decision.status)

    # Before the first launch.

    def _begin(self) -> Decision | None:
        """Read what earlier restarters have left; return the decision about a launch that was lost with one."""
        kept = self._logdir.do(self._view.read_state, LOOK_SECS)
        self._look = self._logdir.do(self._view.look, LOOK_SECS)
        state, left = kept if kept is not None else (None, None)
        if state is None:
            look = self._look
            saved, reached = (None, None) if look is None else (look.saved_step, look.reached_step)
            self._state = RestartState(best_saved_step=saved, best_reached_step=reached)
            return None
        self._state = reset(state) if self._options.reset else state
        if left is None:
            return None
        # On a machine that has started again, or on another one, it was the machine that ended it.
        is_same_machine = left.boot is not None and left.boot == boot_id()
        facts = LaunchFacts(attempt=state.attempt, started_at=left.started_at, directory=self._directory)
        facts.cause, facts.ended_at = "lost" if is_same_machine else "preempted", time.time()
        decision = self._decide(facts, self._look)
        self._announce(facts, decision)
        return decision

    # One launch.

    def _launch(self) -> LaunchFacts:
        """Start the program; return when all of it has ended."""
        now = time.time()
        self._state = replace(self._state, attempt=self._state.attempt + 1)
        facts = LaunchFacts(attempt=self._state.attempt, started_at=now, directory=self._directory)
        try:
            child = Child(self._options.command, self._child_environment())
        except FileNotFoundError:
            raise
        except OSError as error:  # no more processes, no memory: counted, and tried again
            facts.ended_at = time.time()
            facts.end = ChildEnd(exit_code=1, stderr=f"The keeper could not be started: {error}".encode())
            self._has_stepped = False
            return facts
        watch: HangWatch | None = None
        poll = select.poll()
        poll.register(child, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        end: ChildEnd | None = None
        ticked_at = time.monotonic()
        alarm = _Alarm()
        follow = _Follow(self._logdir, self._view)
        while end is None:
            with suppress(InterruptedError):
                poll.poll(self._most_wait_secs() * 1000)
            end = child.look()
            if child.leader is not None and watch is None:
                facts.pid = child.leader
                watch = HangWatch(child.leader, self._options.stall_timeout_secs)
                self._begun(facts)
            self._pass_signals_on(child)
            passed_secs = time.monotonic() - ticked_at
            if watch is not None and end is None and passed_secs >= TICK_SECS:
                ticked_at += passed_secs
                reap_others(child)
                self._check_hang(child, facts, alarm, watch.tick(passed_secs, follow.records()))
                for text in watch.write_changes():
                    self._display.line(f"launch {facts.attempt} {text}")
        if watch is not None:
            watch.read()  # a killed process leaves its page, with the step that it had reached
            facts.step = watch.step
            facts.session = (
                max(watch.readings.values(), key=lambda page: page.started_at).session if watch.readings else None
            )
        facts.ended_at, facts.end = time.time(), end
        facts.hang, facts.kept_stacks = alarm.acted, alarm.stacks
        self._has_stepped = watch is not None and watch.steps > 0
        self._kill_at = None
        return facts

    def _begun(self, facts: LaunchFacts) -> None:
        launch = OpenLaunch(started_at=facts.started_at, host=socket.gethostname(), boot=boot_id(), pid=os.getpid())
        self._write_state(launch, wait_secs=0.0)
        self._journal.begun(facts)
        self._display.line(f"launch {facts.attempt} started: process {facts.pid}")

    def _check_hang(self, child: Child, facts: LaunchFacts, alarm: _Alarm, hang: Hang | None) -> None:
        """Take the stacks of a program that hangs, twice; if it still hangs then, end it."""
        if self._stop_signal is not None or alarm.acted is not None:
            return
        if hang is None:
            if alarm.seen_at is not None:
                self._display.line("it makes progress again")
            alarm.clear()
            return
        now = time.monotonic()
        if alarm.seen_at is None:
            alarm.seen_at = now
            self._display.line(f"launch {facts.attempt} may hang: {hang.text}")
            self._take_stacks(hang, facts, alarm)
        elif hang.secs >= (limit_secs := self._act_after_secs(hang)) and not alarm.is_confirmed:
            if now - alarm.seen_at < min(CONFIRM_SECS, 2 * hang.budget_secs):
                return
            alarm.is_confirmed = True
            self._take_stacks(hang, facts, alarm)
            shown = "" if alarm.stacks is None else f"; stacks: {alarm.stacks.text}"
            if self._options.on_hang == "observe":
                self._display.line(f"launch {facts.attempt} hangs, and is left alone: {hang.text}{shown}")
                return
            limit = f"ended after {limit_secs:g} s"
            advice = 'what takes longer needs phase("evaluating"), or a longer --hang-timeout'
            self._display.line(f"launch {facts.attempt} hangs, and is ended: {hang.text}, {limit} ({advice}){shown}")
            alarm.acted = hang
            child.send_signal(signal.SIGTERM)
            self._kill_at = now + self._options.stop_timeout_secs

    def _take_stacks(self, hang: Hang, facts: LaunchFacts, alarm: _Alarm) -> None:
        """Take the stacks of a program that hangs, and copy them into the logdir, if that answers."""
        path = self._stacks_of(hang)
        if path is not None:
            alarm.stacks = kept = KeptStacks(path)
            self._logdir.do(lambda: kept.copy_to(facts.directory), WRITE_SECS)

    def _act_after_secs(self, hang: Hang) -> float:
        """Return after how long without progress a program that hangs is ended."""
        given = self._options.hang_timeout_secs
        if given is not None:
            return given
        return HANG_SECS if hang.act_after_secs is None else hang.act_after_secs

    def _most_wait_secs(self) -> float:
        if self._kill_at is None:
            return TICK_SECS
        return max(0.0, min(TICK_SECS, self._kill_at - time.monotonic()))

    # Signals.

    def _install_handlers(self) -> None:
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for signum in (*_STOPPING, *_PASSED_ON, signal.SIGWINCH):
            if signal.getsignal(signum) != signal.SIG_IGN:  # as under nohup
                signal.signal(signum, self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._received.append(signum)

    def _pass_signals_on(self, child: Child) -> None:
        with suppress(BlockingIOError):
            self._wakeup.recv(512)
        received, self._received = self._received, []
        for signum in received:
            if signum == signal.SIGWINCH:
                child.resize()
            elif signum in _PASSED_ON:
                child.send_signal(signum)
            else:
                self._stop(child, signum)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._display.line("it has not ended in time, and is killed")
            child.kill()

    def _stop(self, child: Child, signum: int) -> None:
        """Pass a stop signal on to the program; a second one leaves it less time, a third none."""
        now = time.monotonic()
        if self._stop_signal is None:
            self._stop_signal, self._stopped_at = signum, now
            self._kill_at = now + self._options.stop_timeout_secs
            self._stops = 1
            secs = self._options.stop_timeout_secs
            self._display.line(f"{signal_name(signum)}: the program has {secs:.0f} s to end")
        elif now - self._stopped_at < AGAIN_SECS:
            return
        else:
            self._stops += 1
            self._stopped_at = now
            self._kill_at = now + HURRY_SECS if self._stops == 2 else now
        child.send_signal(signum)

    def _pause(self, decision: Decision) -> bool:
        """Wait before the next launch; return whether there is to be one."""
        until = time.monotonic() + decision.delay_secs
        if decision.delay_secs > 0:
            self._display.waiting(f"launch {self._state.attempt + 1}", decision.delay_secs)
        try:
            while True:
                with suppress(BlockingIOError):
                    self._wakeup.recv(512)
                received, self._received = self._received, []
                stops = [signum for signum in received if signum in _STOPPING]
                if stops:
                    self._stop_signal = stops[0]
                    return False
                left_secs = until - time.monotonic()
                if left_secs <= 0:
                    return True
                select.select([self._wakeup], [], [], left_secs)
        finally:
            self._display.done()

    # After a launch.

    def _judge(self, facts: LaunchFacts) -> Decision:
        """Return what to do after a launch."""
        before, end = self._look, facts.end
        assert end is not None
        look = self._logdir.do(self._view.look, LOOK_SECS)
        self._look = look if look is not None else before
        is_ours = look is not None and (look.newest_session_at or 0.0) >= facts.started_at - 1.0
        if look is not None and is_ours:
            facts.session = facts.session or look.session
            # A session that ended by itself has removed its page, which was last read up to a second before.
            facts.step = max((step for step in (facts.step, look.session_step) if step is not None), default=None)
            self._has_stepped |= look.session_steps > 0
        elif look is not None and before is not None and look.session is None:
            has_events = look.has_scalars and (look.last_event_at or 0.0) >= facts.started_at
            self._has_stepped |= has_events and look.records > before.records
            facts.step = look.reached_step if has_events and facts.step is None else facts.step
        failure = None
        if end.exit_code != 0:
            failure = failure_of(end.stderr, end.signal, facts.step)
        facts.cause = cause_of(
            end,
            failure,
            asked_to_stop=self._stop_signal is not None,
            is_hung=facts.hang is not None,
            never=self._options.limits.never,
            stopped_by_signal=is_ours and look is not None and look.session_outcome == "signal",
        )
        if facts.hang is not None:
            failure = Failure(type="hang", where=facts.hang.location or facts.place, step=facts.step)
        self._failure = failure
        facts.error = None if failure is None else str(failure)
        return self._decide(facts, look)

    def _decide(self, facts: LaunchFacts, look: LogdirLook | None) -> Decision:
        end = facts.end
        assert facts.cause is not None
        facts.saved_step = None if look is None else look.saved_step
        launch = EndedLaunch(
            cause=facts.cause,
            at=facts.ended_at or time.time(),
            exit_code=None if end is None else end.exit_code,
            signal=None if end is None else end.signal,
            failure=self._failure,
            is_known=look is not None and look.is_known,
            saved_step=facts.saved_step,
            reached_step=max(
                (step for step in (facts.step, None if look is None else look.reached_step) if step is not None),
                default=None,
            ),
            has_stepped=self._has_stepped,
        )
        self._state, decision = decide(self._state, launch, self._options.limits, chance=random.random())
        facts.decision = decision
        self._write_state(None, wait_secs=WRITE_SECS)
        self._journal.ended(facts)
        return decision

    def _announce(self, facts: LaunchFacts, decision: Decision) -> None:
        assert facts.cause is not None
        what = describe(facts)
        if decision.action == "end":
            advice = "" if facts.cause == "stopped" else next_step(decision, self._view.state_path)
            after = f". It is not started again: status {decision.status}. {advice}" if advice else ""
            self._display.line(f"launch {facts.attempt} has ended: {what}; {decision.reason}{after}")
        else:
            self._display.line(
                f"launch {facts.attempt} has ended: {what}; {decision.reason}; next in {decision.delay_secs:.1f} s"
            )

    # Helpers.

    _failure: Failure | None = None
    _has_stepped = False
    _stops = 0

    @property
    def _directory(self) -> str:
        return self._view.logdir if self._look is None else self._look.directory

    def _write_state(self, launch: OpenLaunch | None, *, wait_secs: float) -> None:
        state = self._state
        self._logdir.do(lambda: self._view.write_state(state, launch), wait_secs)

    def _child_environment(self) -> dict[str, str]:
        secs = max(self._options.stop_timeout_secs - MARGIN_SECS, self._options.stop_timeout_secs / 2)
        return {
            **self._environment,
            STOP_DEADLINE_VARIABLE: f"{secs:g}",
            TRACER_VARIABLE: str(os.getpid()),
        }


class _Alarm:
    """A suspected hang."""

    def __init__(self) -> None:
        self.acted: Hang | None = None
        self.stacks: KeptStacks | None = None
        self.clear()

    def clear(self) -> None:
        self.seen_at: float | None = None
        self.is_confirmed = False


class _Follow:
    """Reads the events files now and then, without waiting for them."""

    def __init__(self, thread: LogdirThread, view: LogdirView) -> None:
        self._thread, self._view = thread, view
        self._records: int | None = None
        self._asked_at = -FOLLOW_SECS
        self._is_asked = False

    def records(self) -> int | None:
        """Return the number of events at the last look; None before the first."""
        now = time.monotonic()
        if not self._is_asked and now - self._asked_at >= FOLLOW_SECS:
            self._asked_at, self._is_asked = now, True
            self._thread.do(self._look, 0.0)
        return self._records

    def _look(self) -> None:
        try:
            self._records = self._view.follow()
        finally:
            self._is_asked = False
