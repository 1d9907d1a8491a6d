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
import socket
import time
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path

from supervisor_core.base.log import command_line
from supervisor_core.process.identity import boot_id
from supervisor_core.process.outside import find_py_spy, no_py_spy
from supervisor_core.restarter.failure import cause_of, failure_of, has_lost_another
from supervisor_core.restarter.hang import STARTING_SECS
from supervisor_core.restarter.journal import LaunchJournal
from supervisor_core.restarter.launch import Display, LaunchFacts, RestarterOptions, describe
from supervisor_core.restarter.logdir_view import LogdirThread, LogdirView, OpenLaunch, RunPosition
from supervisor_core.restarter.nodes import Head
from supervisor_core.restarter.policy import (
    IN_USE_STATUS,
    Decision,
    Failure,
    RestartState,
    decide,
    highest,
    next_step,
    reset,
)
from supervisor_core.restarter.running import WRITE_SECS, ReceivedSignals, RunningLaunch, kill_after_secs, prepare
from supervisor_core.restarter.watch_child import WatchChild, start_watch
from supervisor_core.run.model.thresholds import duration

MOST_LONGER_BY = 64.0
"""By this much at most a silence may be longer than usual, after launches that were ended for theirs."""
READ_SECS = 10.0
"""How long the restart waits for the logdir to say how far the run is."""
MESSAGES_SECS, LEAST_MESSAGES_SECS = 10.0, 1.0
"""How long the last messages are waited for; after a stop that took all of its time."""

_LOG = logging.getLogger("supervisor_core")


@dataclass(eq=False)
class Restarter:
    """See the module's docstring."""

    options: RestarterOptions
    """What the command line says."""
    view: LogdirView
    """The logdir."""
    _: KW_ONLY
    display: Display
    journal: LaunchJournal

    def __post_init__(self) -> None:
        self._logdir = LogdirThread()
        self._state = RestartState()
        self._position: RunPosition | None = None
        self._signals = ReceivedSignals()
        self._pages_in: Path | None = None
        """Where the program's progress pages are."""
        nodes = self.options.nodes
        head = None if nodes == 1 else Head(nodes, self.view, self._logdir, self.display, self._signals)
        self._head = head
        self._watch: WatchChild | None = None
        self._was_ended_elsewhere = False
        """Whether the last launch was ended here because it had ended on another node."""
        self._longer_by = 1.0
        """By how much the next launch may be silent for longer than its rhythm allows: twice as long after each that
        was ended for its silence."""

    def run(self) -> int:
        """Start the program, again and again, until the policy ends it or a signal does.

        Returns:
            The status to end with, or minus the signal to end by, as `subprocess` has it.
        """
        self._pages_in = prepare(self.display, self._signals)
        if (other := self._logdir.do(self.view.take, READ_SECS)) is not None:
            text = f"in use by another tb-supervisor run: {other}. Stop that one, or give another --logdir"
            self.display.line(f"{self.view.logdir} is {text}")
            return IN_USE_STATUS
        self.display.line(self._what_is_watched())
        self._watch = start_watch(self.options, self._pages_in, self.display)
        try:
            return self._run()
        finally:
            if self._watch is not None:
                secs = self._last_messages_secs(time.monotonic())
                self._watch.end(self._signals.wait_for_stop, secs, self.journal.unrecorded)

    def _run(self) -> int:
        decision = self._begin()
        while decision is None or decision.action == "restart":
            if decision is not None and not self._pause(decision):
                break
            if self._head is not None and not self._head.assemble(self._state.attempt + 1):
                break
            facts = self._launch()
            decision = self._judge(facts)
            is_false_perhaps = facts.hang is not None and facts.hang.session is None
            self._longer_by = min(2 * self._longer_by, MOST_LONGER_BY) if is_false_perhaps else 1.0
            self._announce(facts, decision)
        self.journal.close()
        if self._signals.stop_signal is not None and (decision is None or decision.action == "restart"):
            return -self._signals.stop_signal
        assert decision is not None
        if self._head is not None and self._signals.stop_signal is None:
            self._head.dismiss(decision.status)
        if decision.signal is not None:
            return -(self._signals.stop_signal or decision.signal)
        return decision.status

    # Before the first launch.

    def _what_is_watched(self) -> str:
        """Return by what a hang is seen, and what is not seen, for people."""
        given = self.options.hang_timeout_secs
        limit = (
            f"for {duration(given)}" if given is not None else "for much longer than is usual for them, 10m at least"
        )
        start = duration(max(STARTING_SECS, given or 0.0))
        text = (
            "hangs are seen by the progress page of a program that has one; of any other, by the events files in "
            f"{self.view.logdir}: it hangs if they do not grow {limit}. Not seen: progress of which no event is "
            f"written, and a hang in the first {start} without an event"
        )
        return text if find_py_spy() is not None else f"{text}; without the line: {no_py_spy()}"

    def _begin(self) -> Decision | None:
        """Read what earlier restarters have left; return the decision about a launch that was lost with one."""
        kept = self._logdir.do(self.view.read_state, READ_SECS)
        self._position = self._logdir.do(self.view.read_position, READ_SECS)
        state, left = kept if kept is not None else (None, None)
        if state is None:
            position = self._position
            saved, reached = (None, None) if position is None else (position.saved_step, position.reached_step)
            self._state = RestartState(best_saved_step=saved, best_reached_step=reached)
            return None
        self._state = reset(state) if self.options.reset else state
        if left is None:
            return None
        # On a machine that has started again, or on another one, it was the machine that ended it.
        is_same_machine = left.boot is not None and left.boot == boot_id()
        facts = LaunchFacts(attempt=state.attempt, started_at=left.started_at, directory=self._directory)
        facts.cause, facts.ended_at = "lost" if is_same_machine else "preempted", time.time()
        decision = self._decide(facts, self._position)
        self._announce(facts, decision)
        return decision

    # One launch.

    def _launch(self) -> LaunchFacts:
        now = time.time()
        self._state = replace(self._state, attempt=self._state.attempt + 1)
        facts = LaunchFacts(attempt=self._state.attempt, started_at=now, directory=self._directory)
        running = RunningLaunch(
            self.options,
            facts,
            before=self._position,
            view=self.view,
            logdir=self._logdir,
            display=self.display,
            signals=self._signals,
            pages_in=self._pages_in,
            record=partial(self.journal.runs, facts),
            patience=self._longer_by,
            ended_elsewhere=lambda: None if self._head is None else self._head.ended_elsewhere(),
        )
        spared = frozenset if self._watch is None else self._watch.processes
        running.run(lambda: self._begun(facts), spared)
        self._was_ended_elsewhere = running.was_ended_elsewhere
        return facts

    def _begun(self, facts: LaunchFacts) -> None:
        launch = OpenLaunch(started_at=facts.started_at, host=socket.gethostname(), boot=boot_id(), pid=os.getpid())
        self._write_state(launch, wait_secs=0.0)
        self.journal.begun(facts)
        self.display.line(f"launch {facts.attempt} started: process {facts.pid}")

    def _pause(self, decision: Decision) -> bool:
        """Wait before the next launch; return whether there is to be one."""
        if decision.delay_secs > 0:
            self.display.waiting(f"launch {self._state.attempt + 1}", decision.delay_secs)
        return not self._signals.wait_for_stop(decision.delay_secs)

    # After a launch.

    def _judge(self, facts: LaunchFacts) -> Decision:
        before, end = self._position, facts.end
        position = self._logdir.do(self.view.read_position, READ_SECS)
        self._position = position if position is not None else before
        session = None if position is None else position.session_since(facts.started_at, before)
        if session is not None:
            facts.session = facts.session or session.id
            # A session that ended by itself has removed its page, which was last read up to a second before.
            facts.step = highest(facts.step, session.last_step)
            facts.has_stepped |= (session.steps or 0) > 0
        elif position is not None and before is not None and position.session is None:
            has_events = position.has_scalars and (position.last_event_at or 0.0) >= facts.started_at
            facts.has_stepped |= has_events and position.records > before.records
            facts.step = position.reached_step if has_events and facts.step is None else facts.step
        facts.was_stopped = session is not None and session.outcome == "signal"
        if end.exit_code != 0:
            facts.failure = failure_of(end.stderr, end.signal, facts.step)
        asked, hang = self._signals.stop_signal is not None, facts.hang
        never = self.options.limits.never
        facts.cause = cause_of(facts, asked_to_stop=asked, is_hung=hang is not None, never=never)
        if hang is not None:
            where = hang.location or (None if facts.kept_stacks is None else facts.kept_stacks.location)
            facts.failure = Failure(type="hang", where=where, step=facts.step)
        if self._head is not None:
            has_lost = self._was_ended_elsewhere or has_lost_another(end.stderr)
            self._head.over(facts, self.options.stop_timeout_secs, has_lost=has_lost)
        return self._decide(facts, position)

    def _decide(self, facts: LaunchFacts, position: RunPosition | None) -> Decision:
        facts.reached_step = facts.step
        if position is not None:
            facts.is_known, facts.saved_step = position.is_known, position.saved_step
            facts.reached_step = highest(facts.step, position.reached_step)
        self._state, decision = decide(self._state, facts, self.options.limits, chance=random.Random().random())
        facts.decision = decision
        self._write_state(None, wait_secs=WRITE_SECS)
        self.journal.ended(facts)
        return decision

    def _announce(self, facts: LaunchFacts, decision: Decision) -> None:
        what = describe(facts)
        after = f"; next in {decision.delay_secs:.1f} s"
        if decision.action == "end":
            advice = "" if facts.cause == "stopped" else next_step(decision, facts.cause, self.view.state_path)
            after = f". It is not started again: status {decision.status}. {advice}" if advice else ""
            if advice and decision.by_counts:
                inspect = command_line("tb-supervisor", "inspect", "--run=.", "--", self._directory)
                after += (
                    f". If the newest checkpoint is in doubt, `{inspect}` says so, and names the last good one: "
                    "move those after it away first"
                )
        self.display.line(f"launch {facts.attempt} has ended: {what}; {decision.reason}{after}")

    # Helpers.

    def _last_messages_secs(self, now: float) -> float:
        """Return how long the last messages are waited for: after a stop signal, as long as there is time."""
        came_at = self._signals.stop_came_at
        if came_at is None:
            return MESSAGES_SECS
        left_secs = came_at + kill_after_secs(self.options) - now
        return min(MESSAGES_SECS, max(LEAST_MESSAGES_SECS, left_secs))

    @property
    def _directory(self) -> str:
        return self.view.logdir if self._position is None else self._position.directory

    def _write_state(self, launch: OpenLaunch | None, *, wait_secs: float) -> None:
        state = self._state
        self._logdir.do(lambda: self.view.write_state(state, launch), wait_secs)
