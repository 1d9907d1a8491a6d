"""`Restarter`: starts a program, and starts it again when it has died or hangs, as `policy` decides.

    take the logdir    lock out other restarters; read what earlier ones have left; look how far the run is
    launch             a keeper starts the program; its end, signals and hangs are awaited in one loop
    judge              why it ended, how far it came; the decision is written down before it is carried out
    wait               the backoff, which a signal cuts short
    end                with a status of its own, or as the signal would have

One thread, which waits on descriptors. Nothing in it touches the logdir: what may hang is done by `LogdirThread`.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from functools import partial

from supervisor_core.base.log import command_line
from supervisor_core.process.identity import boot_id
from supervisor_core.process.outside import find_py_spy, no_py_spy
from supervisor_core.restarter.failure import cause_of, failure_of, has_lost_another
from supervisor_core.restarter.journal import LaunchJournal
from supervisor_core.restarter.launch import LaunchFacts, describe, say
from supervisor_core.restarter.logdir_view import RunPosition
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
from supervisor_core.restarter.running import READ_SECS, WRITE_SECS, Node, RunningLaunch, kill_after_secs
from supervisor_core.restarter.watch_child import WatchChild, start_watch
from supervisor_core.run.model.thresholds import duration

MOST_LONGER_BY = 64.0
"""By this much at most a silence may be longer than usual, after launches that were ended for theirs."""
MESSAGES_SECS, LEAST_MESSAGES_SECS = 10.0, 1.0
"""How long the last messages are waited for; after a stop that took all of its time."""


@dataclass(eq=False)
class Restarter:
    """See the module's docstring."""

    node: Node
    journal: LaunchJournal

    def __post_init__(self) -> None:
        self._options, self._view, self._signals = self.node.options, self.node.view, self.node.signals
        self._state = RestartState()
        self._position: RunPosition | None = None
        self._head = Head(self.node)
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
        if (other := self.node.prepare()) is not None:
            text = f"in use by another tb-supervisor run: {other}. Stop that one, or give another --logdir"
            say(f"{self._view.logdir} is {text}")
            return IN_USE_STATUS
        say(self._what_is_watched())
        self._watch = start_watch(self._options, self.node.pages_in)
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
            if not self._head.assemble(self._state.attempt + 1):
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
        if self._signals.stop_signal is None:
            self._head.dismiss(decision.status)
        if decision.signal is not None:
            return -(self._signals.stop_signal or decision.signal)
        return decision.status

    # Before the first launch.

    def _what_is_watched(self) -> str:
        """Return by what a hang is seen, and what is not seen, for people."""
        given = self._options.hang_timeout_secs
        limit = "much longer than is usual, 10m at least" if given is None else duration(given)
        text = f"hangs are seen by the progress page, or if {self._view.logdir} has no new events for {limit}"
        return text if find_py_spy() is not None else f"{text}; without the line: {no_py_spy()}"

    def _begin(self) -> Decision | None:
        """Read what earlier restarters have left; return the decision about a launch that was lost with one."""
        state = self.node.logdir.do(self._view.read_state, READ_SECS)
        self._position = self.node.logdir.do(self._view.read_position, READ_SECS)
        if state is None:
            position = self._position
            saved, reached = (None, None) if position is None else (position.saved_step, position.reached_step)
            self._state = RestartState(best_saved_step=saved, best_reached_step=reached)
            return None
        self._state = reset(state) if self._options.reset else state
        if state.launched_at is None:
            return None
        # On a machine that has started again, or on another one, it was the machine that ended it.
        is_same_machine = state.boot is not None and state.boot == boot_id()
        facts = LaunchFacts(attempt=state.attempt, started_at=state.launched_at, directory=self._directory)
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
            self.node,
            facts,
            before=self._position,
            record=partial(self.journal.runs, facts),
            patience=self._longer_by,
            ended_elsewhere=self._head.ended_elsewhere,
        )
        spared = frozenset if self._watch is None else self._watch.processes
        running.run(lambda: self._begun(facts), spared)
        self._was_ended_elsewhere = running.was_ended_elsewhere
        return facts

    def _begun(self, facts: LaunchFacts) -> None:
        self._write_state(replace(self._state, launched_at=facts.started_at, boot=boot_id()), wait_secs=0.0)
        self.journal.begun(facts)
        say(f"launch {facts.attempt} started: process {facts.pid}")

    def _pause(self, decision: Decision) -> bool:
        """Wait before the next launch; return whether there is to be one."""
        return not self._signals.wait_for_stop(decision.delay_secs)

    # After a launch.

    def _judge(self, facts: LaunchFacts) -> Decision:
        before, end = self._position, facts.end
        position = self.node.logdir.do(self._view.read_position, READ_SECS)
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
        never = self._options.limits.never
        facts.cause = cause_of(facts, asked_to_stop=asked, is_hung=hang is not None, never=never)
        if hang is not None:
            where = hang.location or (None if facts.kept_stacks is None else facts.kept_stacks.location)
            facts.failure = Failure(type="hang", where=where, step=facts.step)
        has_lost = self._was_ended_elsewhere or has_lost_another(end.stderr)
        self._head.over(facts, self._options.stop_timeout_secs, has_lost=has_lost)
        return self._decide(facts, position)

    def _decide(self, facts: LaunchFacts, position: RunPosition | None) -> Decision:
        facts.reached_step = facts.step
        if position is not None:
            facts.is_known, facts.saved_step = position.is_known, position.saved_step
            facts.reached_step = highest(facts.step, position.reached_step)
        state = replace(self._state, launched_at=None, boot=None)
        state, decision = decide(state, facts, self._options.limits, chance=random.Random().random())
        facts.decision = decision
        self._write_state(state, wait_secs=WRITE_SECS)
        self.journal.ended(facts)
        return decision

    def _announce(self, facts: LaunchFacts, decision: Decision) -> None:
        what = describe(facts)
        after = f"; next in {decision.delay_secs:.1f} s"
        if decision.action == "end":
            advice = "" if facts.cause == "stopped" else next_step(decision, facts.cause, self._view.state_path)
            after = f". It is not started again: status {decision.status}. {advice}" if advice else ""
            if advice and decision.by_counts:
                inspect = command_line("tb-supervisor", "inspect", "--run=.", "--", self._directory)
                after += (
                    f". If the newest checkpoint is in doubt, `{inspect}` says so, and how to resume from the last "
                    "good one"
                )
        say(f"launch {facts.attempt} has ended: {what}; {decision.reason}{after}")

    # Helpers.

    def _last_messages_secs(self, now: float) -> float:
        """Return how long the last messages are waited for: after a stop signal, as long as there is time."""
        came_at = self._signals.stop_came_at
        if came_at is None:
            return MESSAGES_SECS
        left_secs = came_at + kill_after_secs(self._options) - now
        return min(MESSAGES_SECS, max(LEAST_MESSAGES_SECS, left_secs))

    @property
    def _directory(self) -> str:
        return self._view.logdir if self._position is None else self._position.directory

    def _write_state(self, state: RestartState, *, wait_secs: float) -> None:
        self._state = state
        self.node.logdir.do(lambda: self._view.write_state(state), wait_secs)
