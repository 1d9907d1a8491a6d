"""Jobs of several nodes. `Head`: what node 0 does besides, which decides for all when the program runs; `Follower`: the
restarter of another node; `NodeCall`, `NodeReport`: what they write for each other, below the logdir that they share.

Node 0 alone is a whole restarter: it judges, counts, waits and records. Before each launch it calls, and starts the
program when every other node is ready for that launch; when the program has
ended on one node, the launch is over on all. No clock is compared: a call names the job (one life of node 0's
restarter), the launch, and the restarters that take part in it; a report answers one call.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeVar

from supervisor_core.base.json_records import record_of
from supervisor_core.events.record_fields import MAX_TEXT, Name, Whole
from supervisor_core.restarter.failure import cause_of, failure_of, has_lost_another
from supervisor_core.restarter.launch import LaunchFacts, describe, say
from supervisor_core.restarter.policy import IN_USE_STATUS, Cause, ChildEnd, Failure, RestartState, decide
from supervisor_core.restarter.running import (
    ALONE_SECS,
    SPARE_SECS,
    Latest,
    Node,
    RunningLaunch,
)

VERSION = 1
CALL_SUFFIX = ".job"
"""Of the file with node 0's call; node K's report has ``.node-K``."""
POLL_SECS = 0.5
ANSWER_SECS = 10.0
"""How long the logdir may take to read or write one of these files."""
GONE_SECS = 60.0
"""How long node 0 stays at the end of the job for a node that has not said that it ends, too."""
MOST_STATUS = 255
"""The highest exit status: of a larger number the system takes the rest."""
QUIET_SECS = 2.0
"""How long node 0 waits for the others before it says so."""

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class NodeCall:
    """What node 0 has decided."""

    job: Name
    launch: Whole = 0
    state: Literal["assembles", "runs", "over", "ends"] = "assembles"
    status: Whole = 0
    """With ``ends``: the exit status of all."""
    admitted: tuple[Name, ...] = ()
    """With ``runs`` and ``ends``: the restarters that are meant."""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """What another node has to say of one launch."""

    restarter: Name
    job: Name = ""
    launch: Whole = 0
    state: Literal["waits", "ready", "runs", "ended", "gone"] = "waits"
    cause: Cause | None = None
    end: ChildEnd = field(default_factory=ChildEnd)
    """How its part of the launch ended."""
    failure: Failure | None = None
    has_lost_another: bool = False
    """Whether its ranks failed because they lost one on another node."""

    @property
    def has_failed(self) -> bool:
        """Whether the program failed on this node by itself."""
        return self.state == "ended" and self.cause not in (None, "completed") and not self.has_lost_another


def encode(item: NodeCall | NodeReport) -> bytes:
    """Return the content of a file."""
    return json.dumps({"v": VERSION, **asdict(item)}).encode() + b"\n"


def decode(cls: type[_T], data: bytes) -> _T | None:
    """Return what a file holds; None where it is of another version, or damaged."""
    try:
        values = json.loads(data)
        json.dumps(values, ensure_ascii=False).encode()  # an escaped half of a character cannot be shown
        return record_of(cls, values) if isinstance(values, dict) and values.pop("v", None) == VERSION else None
    except (ValueError, RecursionError):
        return None


def node_suffix(node: int) -> str:
    """Return the end of the name of a node's report."""
    return f".node-{node}"


def decisive(facts: LaunchFacts, reports: Mapping[int, NodeReport | None], *, was_first: bool, has_lost: bool) -> int:
    """Return the node whose end says why a launch ended.

    Args:
        facts: the launch as node 0 saw it, with its cause.
        reports: of the other nodes; None of one that did not answer.
        was_first: whether the program ended on node 0 before it was known to have ended elsewhere.
        has_lost: whether node 0's ranks failed because they lost another one.
    """
    if facts.cause in ("stopped", "hang"):
        return 0
    stopped = [node for node, report in reports.items() if report is not None and report.cause == "stopped"]
    if stopped:
        return stopped[0]
    failed = [node for node, report in reports.items() if report is not None and report.has_failed]
    if facts.cause == "completed" or has_lost or not was_first:
        silent = [node for node, report in reports.items() if report is None]
        return next(iter(failed + ([] if facts.cause == "completed" else silent)), 0)
    return 0


class Head:
    """See the module's docstring."""

    def __init__(self, node: Node) -> None:
        self._nodes, self._others = node.options.nodes, range(1, node.options.nodes)
        self._view, self._logdir, self._signals = node.view, node.logdir, node.signals
        self._call = NodeCall(job=uuid.uuid4().hex)
        self._latest: Latest[dict[int, NodeReport]] = Latest(self._logdir, self._read)
        self._ids: dict[int, str] = {}
        self._was_first = True

    def assemble(self, launch: int) -> bool:
        """Wait until all nodes are ready for a launch, and start it on them; False if a stop signal came before."""
        self._was_first, is_named = True, False
        since = time.monotonic()
        is_told = self._tell(NodeCall(job=self._call.job, launch=launch))
        while True:
            found = self._look()
            missing = [node for node in self._others if self._answer(found, node) != "ready"]
            if not missing:
                self._latest = Latest(self._logdir, self._read)  # the old one may show an earlier launch
                self._ids = {node: found[node].restarter for node in self._others}
                return self._tell(replace(self._call, state="runs", admitted=tuple(self._ids.values()))) or True
            if not is_named and time.monotonic() - since > QUIET_SECS:
                is_named = True
                names = ", ".join(map(str, missing))
                say(f"launch {launch} waits for node {names} of {self._nodes} (0 to {self._nodes - 1})")
            if self._signals.wait_for_stop(POLL_SECS):
                return False
            is_told = is_told or self._tell(self._call)

    def ended_elsewhere(self) -> str | None:
        """Return on which node the program has ended before it has ended here, in words; None while it runs on all."""
        for node, report in (self._latest.get() or {} if self._others else {}).items():
            if report.restarter != self._ids.get(node):
                self._was_first = False
                return f"node {node} has a new restarter"
            if self._answer({node: report}, node) == "ended":
                self._was_first = False
                return f"the program has ended on node {node}"
        return None

    def over(self, facts: LaunchFacts, stop_timeout_secs: float, *, has_lost: bool) -> None:
        """End a launch on all nodes, and put into the facts what ended it, if that was on another node.

        Args:
            facts: the launch, which has ended here, with its cause.
            stop_timeout_secs: how long a program may take to end that has ended well here.
            has_lost: whether the ranks here failed because they lost another one.
        """
        self._tell(replace(self._call, state="over"))
        if facts.cause == "stopped":
            return
        until = time.monotonic() + ALONE_SECS + (stop_timeout_secs + SPARE_SECS if facts.cause == "completed" else 0.0)
        while True:
            found = self._look()
            reports = {node: found[node] if self._answer(found, node) == "ended" else None for node in self._others}
            is_known = all(report is not None for report in reports.values())
            if is_known or time.monotonic() > until or self._signals.wait_for_stop(POLL_SECS):
                break
        node = decisive(facts, reports, was_first=self._was_first, has_lost=has_lost)
        if not node:
            return
        facts.node, report = node, reports[node]
        facts.end = ChildEnd() if report is None else report.end
        failure = None if report is None else report.failure
        facts.failure = None if failure is None else replace(failure, step=facts.step)
        facts.cause = "lost" if report is None else "preempted" if report.cause == "stopped" else report.cause

    def dismiss(self, status: int) -> None:
        """End the restarters of the other nodes with an exit status; wait for them for a while."""
        until, told = time.monotonic() + GONE_SECS, None
        while True:
            found = self._look()
            admitted = tuple(report.restarter for report in found.values())
            if admitted != told and self._tell(replace(self._call, state="ends", status=status, admitted=admitted)):
                told = admitted
            left = [node for node in self._others if not self._is_gone(found, node)]
            if not left:
                return
            if time.monotonic() > until or self._signals.wait_for_stop(POLL_SECS):
                say(f"node {', '.join(map(str, left))} did not say that it has ended")
                return

    def _answer(self, found: Mapping[int, NodeReport], node: int) -> str:
        """Return the state that a node reports of the present launch; empty where it reports another one."""
        report, call = found.get(node), self._call
        return report.state if report is not None and (report.job, report.launch) == (call.job, call.launch) else ""

    def _is_gone(self, found: Mapping[int, NodeReport], node: int) -> bool:
        return node in found and (found[node].state, found[node].job) == ("gone", self._call.job)

    def _look(self) -> dict[int, NodeReport]:
        return self._logdir.do(self._read, ANSWER_SECS) or {} if self._others else {}

    def _read(self) -> dict[int, NodeReport]:
        found = {}
        for node in self._others:
            try:
                data = self._view.read_beside(node_suffix(node))
            except OSError as error:  # of this file: the others count
                self._logdir.warn(error)
                continue
            if data is not None and (report := decode(NodeReport, data)) is not None:
                found[node] = report
        return found

    def _tell(self, call: NodeCall) -> bool:
        """Write a call, if there are other nodes; return whether that went well."""
        self._call, data = call, encode(call)
        if not self._others:
            return True
        return self._logdir.do(lambda: self._view.write_beside(CALL_SUFFIX, data), ANSWER_SECS) is not None


@dataclass(eq=False)
class Follower:
    """The restarter of a node that is not node 0. It counts nothing and decides nothing: it answers node 0's calls,
    starts the program with the other nodes, and reports how it ended here. A hang is reported with its stacks; node 0
    ends it, since a rank that hangs holds up all."""

    node: Node
    number: int
    """Of this node, from 1."""

    def __post_init__(self) -> None:
        self._view, self._logdir, self._signals = self.node.view, self.node.logdir, self.node.signals
        self._report = NodeReport(restarter=uuid.uuid4().hex)
        self._is_told = False
        """Whether the report is on the disk."""
        self._latest: Latest[NodeCall | None] = Latest(self._logdir, self._read)

    def run(self) -> int:
        """Run the program whenever node 0 does, until it ends the job or a signal comes.

        Returns:
            The status to end with, or minus the signal to end by, as `subprocess` has it.
        """
        if (other := self.node.prepare(f"{node_suffix(self.number)}.lock")) is not None:
            say(f"node {self.number} of {self._view.logdir} is in use by another tb-supervisor run: {other}")
            return IN_USE_STATUS
        say(f"node {self.number} of {self.node.options.nodes} waits for node 0, which decides")
        while True:
            call = self._logdir.do(self._read, ANSWER_SECS)
            answer = self._answer(call)
            if answer is not None or not self._is_told:
                self._tell(answer or self._report)
            if call is not None and self._is_meant(call):
                if call.state == "ends":
                    say(f"node 0 has ended the job: status {call.status}")
                    return min(call.status, MOST_STATUS)
                if call.state == "runs" and self._is_for(call) and self._report.state == "ready":
                    facts = self._launch(call)
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

    def _launch(self, call: NodeCall) -> LaunchFacts:
        """Start the program; return when all of it has ended here, and that is reported."""
        self._latest = Latest(self._logdir, self._read)  # the old one may show an earlier launch
        facts = LaunchFacts(attempt=call.launch, started_at=time.time(), directory=self._view.logdir)
        running = RunningLaunch(
            replace(self.node, options=replace(self.node.options, hang_action="observe")),
            facts,
            ended_elsewhere=self._ended_elsewhere,
            why_observe="node 0 ends it",
        )
        running.run(lambda: self._begun(facts))
        end = facts.end
        if end.exit_code != 0:
            facts.failure = failure_of(end.stderr, end.signal, facts.step)
        is_stopped = self._signals.stop_signal is not None
        facts.cause = cause_of(facts, asked_to_stop=is_stopped, is_hung=False, never=self.node.options.limits.never)
        say(f"launch {facts.attempt} has ended on node {self.number}: {describe(facts)}")
        self._tell(
            replace(
                self._report,
                state="ended",
                cause=facts.cause,
                end=replace(
                    end,
                    stderr=end.stderr[-MAX_TEXT:],
                    not_started=None if end.not_started is None else end.not_started[:MAX_TEXT],
                ),
                failure=facts.failure,
                has_lost_another=running.was_ended_elsewhere or has_lost_another(end.stderr),
            )
        )
        return facts

    def _begun(self, facts: LaunchFacts) -> None:
        self._tell(replace(self._report, state="runs"))
        say(f"launch {facts.attempt} started: process {facts.pid}")

    def _end_of_stopped(self, facts: LaunchFacts) -> int:
        """Return the status after a stop signal: the program's own, or minus the signal."""
        _, decision = decide(RestartState(), facts, self.node.options.limits, chance=0.0)
        assert self._signals.stop_signal is not None
        return decision.status if decision.signal is None else -self._signals.stop_signal

    def _ended_elsewhere(self) -> str | None:
        """Return why the program is to end here; None while node 0 runs the same launch."""
        call = self._latest.get()
        if call is None or (self._is_for(call) and call.state == "runs"):
            return None
        return "the launch is over on node 0"

    def _read(self) -> NodeCall | None:
        data = self._view.read_beside(CALL_SUFFIX)
        return None if data is None else decode(NodeCall, data)

    def _tell(self, report: NodeReport) -> None:
        """Write a report, or note that it is to be written."""
        self._report, data = report, encode(report)
        written = self._logdir.do(lambda: self._view.write_beside(node_suffix(self.number), data), ANSWER_SECS)
        self._is_told = written is not None
