"""`Follower`: the restarter of a node that is not node 0, in a job of several nodes.

It counts nothing and decides nothing: it answers node 0's calls (`supervisor_core.restarter.nodes`), starts the program
with the other nodes, and reports how it ended here. A hang is reported with its stacks; node 0 ends it, since a rank
that hangs holds up all.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path

from supervisor_core.events.record_fields import MAX_TEXT
from supervisor_core.restarter.failure import cause_of, failure_of, has_lost_another
from supervisor_core.restarter.hang import pages_here
from supervisor_core.restarter.launch import Display, LaunchFacts, RestarterOptions, describe
from supervisor_core.restarter.logdir_view import LogdirThread, LogdirView
from supervisor_core.restarter.nodes import (
    ANSWER_SECS,
    CALL_SUFFIX,
    POLL_SECS,
    Latest,
    NodeCall,
    NodeReport,
    decode,
    encode,
    node_suffix,
)
from supervisor_core.restarter.policy import IN_USE_STATUS, RestartState, decide
from supervisor_core.restarter.processes import become_subreaper
from supervisor_core.restarter.program import directory_for_pages, start_program
from supervisor_core.restarter.running import ReceivedSignals, RunningLaunch

MOST_STATUS = 255
"""The highest exit status: of a larger number the system takes the rest."""


@dataclass(eq=False)
class Follower:
    """See the module's docstring."""

    options: RestarterOptions
    """What the command line says."""
    view: LogdirView
    """The logdir that all nodes share."""
    node: int
    """This one's number."""
    _: KW_ONLY
    display: Display

    def __post_init__(self) -> None:
        self._logdir = LogdirThread()
        self._signals = ReceivedSignals()
        self._report = NodeReport(restarter=uuid.uuid4().hex)
        self._is_told = False
        """Whether the report is on the disk."""
        self._latest: Latest[NodeCall | None] = Latest(self._logdir, self._read)

    def run(self) -> int:
        """Run the program whenever node 0 does, until it ends the job or a signal comes.

        Returns:
            The status to end with, or minus the signal to end by, as `subprocess` has it.
        """
        become_subreaper()
        self._signals.install()
        pages_in = directory_for_pages(self.display)
        suffix = node_suffix(self.node)
        if self._logdir.do(partial(self.view.take, f"{suffix}.lock"), ANSWER_SECS) is False:
            self.display.line(f"node {self.node} of {self.view.logdir} is in use by another tb-supervisor run")
            return IN_USE_STATUS
        self.display.line(f"node {self.node} of {self.options.nodes} waits for node 0, which decides")
        while True:
            call = self._logdir.do(self._read, ANSWER_SECS)
            answer = self._answer(call)
            if answer is not None or not self._is_told:
                self._tell(answer or self._report)
            if call is not None and self._is_meant(call):
                if call.state == "ends":
                    self.display.line(f"node 0 has ended the job: status {call.status}")
                    return min(call.status, MOST_STATUS)
                if call.state == "runs" and self._is_for(call) and self._report.state == "ready":
                    facts = self._launch(call, pages_in)
                    if self._signals.stop_signal is not None:
                        return self._end_of_stopped(facts)
            if self._signals.wait_for_stop(POLL_SECS):
                assert self._signals.stop_signal is not None
                return -self._signals.stop_signal

    def _is_meant(self, call: NodeCall) -> bool:
        return self._report.restarter in call.admitted

    def _is_for(self, call: NodeCall) -> bool:
        return (self._report.job, self._report.launch) == (call.job, call.launch)

    def _answer(self, call: NodeCall | None) -> NodeReport | None:
        """Return what is to be said to a call; None where that was said."""
        if call is None:
            return None
        if call.state == "ends" and self._is_meant(call):
            return NodeReport(restarter=self._report.restarter, job=call.job, launch=call.launch, state="gone")
        if call.state == "assembles" and not self._is_for(call):
            return NodeReport(restarter=self._report.restarter, job=call.job, launch=call.launch, state="ready")
        return None

    def _launch(self, call: NodeCall, pages_in: Path | None) -> LaunchFacts:
        """Start the program; return when all of it has ended here, and that is reported."""
        self._latest = Latest(self._logdir, self._read)  # the old one may show an earlier launch
        facts = LaunchFacts(attempt=call.launch, started_at=time.time(), directory=self.view.logdir)
        running = RunningLaunch(
            replace(self.options, hang_action="observe"),
            facts,
            before=None,
            view=self.view,
            logdir=self._logdir,
            display=self.display,
            signals=self._signals,
            pages=partial(pages_here, *([] if pages_in is None else [pages_in])),
            ended_elsewhere=self._ended_elsewhere,
            why_observe="node 0 ends it",
        )
        child = start_program(self.options, pages_in, facts)
        if child is not None:
            running.run(child, lambda: self._begun(facts))
        end = facts.end
        if end.exit_code != 0:
            facts.failure = failure_of(end.stderr, end.signal, facts.step)
        is_stopped = self._signals.stop_signal is not None
        facts.cause = cause_of(facts, asked_to_stop=is_stopped, is_hung=False, never=self.options.limits.never)
        self.display.line(f"launch {facts.attempt} has ended on node {self.node}: {describe(facts)}")
        self._tell(
            replace(
                self._report,
                state="ended",
                cause=facts.cause,
                exit_code=end.exit_code,
                signal=end.signal,
                oom_kills=end.oom_kills,
                failure=facts.failure,
                has_lost_another=running.was_ended_elsewhere or has_lost_another(end.stderr),
                not_started=None if end.not_started is None else end.not_started[:MAX_TEXT],
                stderr=end.stderr.decode("utf-8", "replace")[-MAX_TEXT:],
            )
        )
        return facts

    def _begun(self, facts: LaunchFacts) -> None:
        self._tell(replace(self._report, state="runs"))
        self.display.line(f"launch {facts.attempt} started: process {facts.pid}")

    def _end_of_stopped(self, facts: LaunchFacts) -> int:
        """Return the status after a stop signal: the program's own, or minus the signal."""
        _, decision = decide(RestartState(), facts, self.options.limits, chance=0.0)
        assert self._signals.stop_signal is not None
        return decision.status if decision.signal is None else -self._signals.stop_signal

    def _ended_elsewhere(self) -> str | None:
        """Return why the program is to end here; None while node 0 runs the same launch."""
        call = self._latest.get()
        if call is None or (self._is_for(call) and call.state == "runs"):
            return None
        return "the launch is over on node 0"

    def _read(self) -> NodeCall | None:
        data = self.view.read_beside(CALL_SUFFIX)
        return None if data is None else decode(NodeCall, data)

    def _tell(self, report: NodeReport) -> None:
        """Write a report, or note that it is to be written."""
        self._report, data = report, encode(report)
        written = self._logdir.do(lambda: self.view.write_beside(node_suffix(self.node), data), ANSWER_SECS)
        self._is_told = written is not None
