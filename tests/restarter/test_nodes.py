"""`tb-supervisor run --nodes`: one restarter on each of two nodes, which are two process trees here, and one logdir."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from supervisor_core.cli.run import _node
from supervisor_core.restarter.launch import LaunchFacts, RestarterOptions
from supervisor_core.restarter.logdir_view import LogdirView
from supervisor_core.restarter.nodes import (
    CALL_SUFFIX,
    Follower,
    Head,
    NodeCall,
    NodeReport,
    decisive,
    decode,
    encode,
    node_suffix,
)
from supervisor_core.restarter.policy import IN_USE_STATUS, NO_PROGRESS_STATUS, ChildEnd, Failure
from supervisor_core.restarter.running import Node, ReceivedSignals, RunningLaunch
from tests.restarter.conftest import WAIT_SECS, run_of

PROGRAM = """
import os, signal, socket, sys, threading
node, address, how = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
pause = threading.Event()
print("starts", os.getpid(), flush=True)
if node == 0:
    if os.path.exists(address):
        os.unlink(address)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address + ".new")
    listening.listen()
    os.rename(address + ".new", address)
    peer, _ = listening.accept()
else:
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(address)
            break
        except OSError:
            pause.wait(0.01)
def done(signum, frame):
    peer.sendall(b"done")
    os._exit(0)
signal.signal(signal.SIGUSR1, done)
print("trains", os.getpid(), flush=True)
if "wrong" in how:
    import a_module_that_is_missing
while not peer.recv(4):
    if "stays" not in how:
        raise RuntimeError("Connection closed by peer")
    pause.wait(0.01)
"""
"""A program whose ranks wait for each other: one that loses the other fails, as in a collective. SIGUSR1 ends both."""


class Nodes:
    """Two restarters.

    Args:
        start: starts one.
        directory: of the program, and of the logdir.
    """

    def __init__(self, start: Callable[..., Any], directory: Path) -> None:
        self._start, self._directory = start, directory
        (directory / "program.py").write_text(PROGRAM)

    def start(self, node: int, *how: str) -> Any:
        """Start the restarter of a node."""
        options = ["--max-backoff", "1ms", "--nodes", "2", "--node", str(node)]
        program = [sys.executable, "-I", str(self._directory / "program.py"), str(node), str(self._directory / "peer")]
        return self._start(*program, *how, options=options)

    def both(self, *how: str) -> tuple[Any, Any]:
        """Start both; return them when they train."""
        started = self.start(0, *how), self.start(1, *how)
        for each in started:
            assert train(each)
        return started


def train(running: Any) -> int:
    """Wait until a program trains; its process id."""
    assert running.line()[0] == "starts"
    word, pid = running.line()
    assert word == "trains"
    return int(pid)


def wait_for(running: Any, text: str) -> None:
    """Wait until a restarter's log has a text."""
    until = time.monotonic() + WAIT_SECS
    while text not in running.log:
        assert running.process.poll() is None and time.monotonic() < until, running.log
        running.has_line(0.01)


@pytest.fixture
def nodes(running: Callable[..., Any], tmp_path: Path) -> Nodes:
    """Starts restarters of two nodes."""
    return Nodes(running, tmp_path)


def test_a_program_killed_on_one_node_is_started_again_on_both(nodes: Nodes, tmp_path: Path) -> None:
    """And the record says why, and on which node; when it is done on both, all end with status 0."""
    zero, one = nodes.start(0), nodes.start(1)
    train(zero)
    os.kill(train(one), signal.SIGKILL)
    train(zero)
    train(one)
    zero.process.send_signal(signal.SIGUSR1)
    assert (zero.status(), one.status()) == (0, 0), zero.log + one.log
    assert "launch 1 has ended: SIGKILL on node 1; progress unknown" in zero.log, zero.log
    first, second = run_of(tmp_path).launches
    assert (first.cause, first.error, second.cause) == ("signal", "SIGKILL on node 1", "completed")


def test_a_job_that_is_given_up_ends_on_all_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """With the same status: what only node 1 has seen, a module that is missing there, is what decides."""
    zero = nodes.start(0)
    one = nodes.start(1, "wrong")
    assert (zero.status(), one.status()) == (NO_PROGRESS_STATUS, NO_PROGRESS_STATUS), zero.log + one.log
    assert "ModuleNotFoundError before the first step" in zero.log
    (launch,) = run_of(tmp_path).launches
    assert launch.error is not None and launch.error.startswith("ModuleNotFoundError at program.py:")


def test_a_stop_on_one_node_ends_the_launch_and_the_others_wait_for_it(nodes: Nodes, tmp_path: Path) -> None:
    """As where a node is drained: its restarter ends by the signal, and node 0 starts again when it is back."""
    zero, one = nodes.both()
    one.process.send_signal(signal.SIGTERM)
    assert one.status() == -signal.SIGTERM, one.log
    wait_for(zero, "launch 2 waits for node 1 of 2")
    again = nodes.start(1)
    train(zero)
    train(again)
    zero.process.send_signal(signal.SIGTERM)
    assert zero.status() == -signal.SIGTERM
    wait_for(again, "launch 2 has ended on node 1")
    again.process.send_signal(signal.SIGTERM)  # it waits for node 0
    assert again.status() == -signal.SIGTERM
    assert [launch.cause for launch in run_of(tmp_path).launches] == ["preempted", "stopped"]


@pytest.mark.parametrize("node", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_restarter_that_is_killed_comes_back(nodes: Nodes, tmp_path: Path, node: int) -> None:
    """With its program, on either node: the other program ends, and both start when the restarter is there again."""
    both = list(nodes.both())
    both[node].process.kill()
    assert both[node].status() == -signal.SIGKILL
    both[node] = nodes.start(node)
    for each in both:
        train(each)
    both[0].process.send_signal(signal.SIGUSR1)
    assert [each.status() for each in both] == [0, 0]
    causes = [launch.cause for launch in run_of(tmp_path).launches if launch.cause is not None]
    assert causes == ["lost", "completed"], both[0].log


def test_the_end_of_an_earlier_job_is_not_believed(nodes: Nodes) -> None:
    """The next job in the same logdir trains; whichever node is there first."""
    zero, one = nodes.both()
    zero.process.send_signal(signal.SIGUSR1)
    assert (zero.status(), one.status()) == (0, 0)
    one = nodes.start(1)
    wait_for(one, "waits for node 0")
    zero = nodes.start(0)
    train(zero)
    train(one)
    zero.process.send_signal(signal.SIGUSR1)
    assert (zero.status(), one.status()) == (0, 0)


def test_a_second_restarter_of_a_node_is_refused(nodes: Nodes) -> None:
    """It would take the first one's place in the job."""
    nodes.both()
    for node in (0, 1):
        second = nodes.start(node)
        assert second.status() == IN_USE_STATUS, second.log
        assert "in use by another tb-supervisor run" in second.log


def test_which_node_this_is() -> None:
    """From the option, or from the scheduler; else an error says what is expected."""
    assert _node(None, 1, {"SLURM_NODEID": "5"}) == 0
    assert _node(1, 2, {"SLURM_NODEID": "0"}) == _node(None, 2, {"SLURM_NODEID": "1"}) == 1
    assert _node(None, 3, {"JOB_COMPLETION_INDEX": "2"}) == 2
    for arguments, text in (
        ((None, 2, {}), "--node is missing, and none of SLURM_NODEID, JOB_COMPLETION_INDEX is set. Expected with --no"),
        ((2, 2, {}), "--node is '2'. Expected with --nodes 2: 0 to 1."),
        ((None, 2, {"SLURM_NODEID": "x"}), "SLURM_NODEID is 'x'. Expected"),
        ((0, 1, {}), "--node needs --nodes"),
    ):
        with pytest.raises(click.UsageError, match=text):
            _node(*arguments)  # type: ignore[arg-type]


def test_which_node_decides_why_a_launch_ended() -> None:
    """The one whose program failed by itself, not one that lost it; a stop signal, and a hang that node 0 has ended,
    before all; a node that says nothing only where nobody else says why."""

    def of(own: Any, *reports: NodeReport | None, was_first: bool = True, has_lost: bool = True) -> int:
        facts = LaunchFacts(attempt=1, started_at=0.0, directory="/runs", cause=own)
        return decisive(facts, dict(enumerate(reports, 1)), was_first=was_first, has_lost=has_lost)

    failed = NodeReport(restarter="a", state="ended", cause="error", end=ChildEnd(exit_code=1))
    lost = NodeReport(restarter="b", state="ended", cause="error", end=ChildEnd(exit_code=1), has_lost_another=True)
    stopped = NodeReport(restarter="c", state="ended", cause="stopped", end=ChildEnd(signal=15))
    done = NodeReport(restarter="d", state="ended", cause="completed", end=ChildEnd(exit_code=0))
    assert of("error", lost, failed) == 2
    assert of("error", lost, failed, has_lost=False) == 0
    assert of("signal", failed, has_lost=False, was_first=False) == 1  # NCCL aborts a process that lost another one
    assert of("error", failed, stopped, has_lost=False) == 2
    assert of("hang", failed, stopped) == of("stopped", failed) == 0
    assert of("error", lost, None) == 2 and of("error", lost, lost) == 0
    assert of("completed", done, None) == 0 and of("completed", done, failed) == 2


def test_the_file_of_one_node_hides_no_others(tmp_path: Path) -> None:
    """What cannot be read counts as no answer of that node alone."""
    node = Node(RestarterOptions(logdir=str(tmp_path), command=("true",), nodes=3), LogdirView(str(tmp_path)))
    Path(f"{node.view.state_path}{node_suffix(1)}").mkdir()
    report = NodeReport(restarter="b")
    node.view.write_beside(node_suffix(2), encode(report))
    assert Head(node)._look() == {2: report}


def test_node_0_waits_for_what_the_others_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own ranks often fail first: those of the node that failed have yet to end."""
    node = Node(RestarterOptions(logdir=str(tmp_path), command=("true",), nodes=2), LogdirView(str(tmp_path)))
    view, head = node.view, Head(node)
    ready = NodeReport(restarter="a", job=head._call.job, launch=1, state="ready")
    view.write_beside(node_suffix(1), encode(ready))
    assert head.assemble(1)
    ended = replace(ready, state="ended", cause="oom", end=ChildEnd(exit_code=137, oom_kills=1))

    def wait(secs: float) -> bool:
        view.write_beside(node_suffix(1), encode(ended))
        return False

    monkeypatch.setattr(node.signals, "wait_for_stop", wait)
    facts = LaunchFacts(attempt=1, started_at=0.0, directory="/runs", cause="error", end=ChildEnd(exit_code=1))
    head.over(facts, 25.0, has_lost=True)
    assert (facts.node, facts.cause, facts.end) == (1, "oom", ended.end)
    call = decode(NodeCall, view.read_beside(CALL_SUFFIX) or b"")
    assert call is not None and call.state == "over"


def test_what_the_nodes_write() -> None:
    """Is read back; a damaged file, or one of another version, is as none."""
    report = NodeReport(restarter="a", state="ended", cause="error", failure=Failure(type="KeyError", where="a.py:3"))
    call = NodeCall(job="j", launch=3, state="runs", admitted=("a", "b"))
    assert decode(NodeReport, encode(report)) == report and decode(NodeCall, encode(call)) == call
    for data in (
        b"",
        b"[1]",
        b'{"v": 2, "job": "j"}',
        b'{"v": 1, "job": 7}',
        b'{"v": 1, "job": "%s"}' % (b"j" * 5000),
        b'{"v": 1, "job": "\\ud800"}',
        b"[" * 100_000,
    ):
        assert decode(NodeCall, data) is None
    long = replace(report, failure=Failure(type="E" * 5000))
    assert decode(NodeReport, encode(long)) is None  # it would be in the log, in records and in the counts


def head_of(tmp_path: Path) -> tuple[Node, Head]:
    """Node 0 of two, beside which no other process runs."""
    node = Node(RestarterOptions(logdir=str(tmp_path), command=("true",), nodes=2), LogdirView(str(tmp_path)))
    return node, Head(node)


def test_a_stop_of_node_0_waits_for_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops it ends it soon by SIGKILL."""
    node, head = head_of(tmp_path)
    waits: list[float] = []
    monkeypatch.setattr(node.signals, "wait_for_stop", lambda secs: not waits.append(secs))
    facts = LaunchFacts(attempt=1, started_at=0.0, directory="/runs", cause="stopped", end=ChildEnd(signal=15))
    head.over(facts, 25.0, has_lost=False)
    assert (waits, facts.node, facts.end.signal) == ([], 0, 15)


def test_what_was_seen_of_an_earlier_launch_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On node 0 a restarter that has been replaced since; on another node a launch that is over."""
    node, head = head_of(tmp_path)
    view, job = node.view, head._call.job
    view.write_beside(node_suffix(1), encode(NodeReport(restarter="old")))
    head.ended_elsewhere()
    node.logdir.do(lambda: None, WAIT_SECS)
    assert head.ended_elsewhere() == "node 1 has a new restarter"
    view.write_beside(node_suffix(1), encode(NodeReport(restarter="new", job=job, launch=2, state="ready")))
    assert head.assemble(2)
    assert head.ended_elsewhere() is None

    one = Follower(node, 1)
    seen = []

    def start(self: RunningLaunch, begun: object) -> None:
        node.logdir.do(lambda: None, WAIT_SECS)
        seen.append(one._ended_elsewhere())
        self.facts.end = ChildEnd(exit_code=1)

    monkeypatch.setattr(RunningLaunch, "run", start)
    for launch in (1, 2):
        one._report = NodeReport(restarter="new", job=job, launch=launch, state="ready")
        call = NodeCall(job=job, launch=launch, state="runs", admitted=("new",))
        view.write_beside(CALL_SUFFIX, encode(call))
        one._launch(call)
        view.write_beside(CALL_SUFFIX, encode(NodeCall(job=job, launch=launch, state="over")))
        node.logdir.do(lambda: None, WAIT_SECS)
        one._latest.get()
        node.logdir.do(lambda: None, WAIT_SECS)
        assert one._ended_elsewhere() == "the launch is over on node 0"
    assert seen == [None, None]


def test_a_report_that_could_not_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of an end: node 0 would take the node for lost."""
    written: list[NodeReport] = []
    failures, polls = [OSError(28, "No space left on device")], []

    def write(self: object, suffix: str, data: bytes) -> bool:
        report = decode(NodeReport, data)
        assert report is not None
        if report.state == "ended" and failures:
            raise failures.pop()
        written.append(report)
        return True

    def read(self: object, suffix: str) -> bytes:
        state = written[-1].state if written else "waits"
        asked: Any = {"waits": "assembles", "ready": "runs", "ended": "ends"}[state]
        admitted = tuple(each.restarter for each in written)
        return encode(NodeCall(job="j", launch=1, state=asked, status=256, admitted=admitted))

    def start(self: RunningLaunch, begun: object) -> None:
        self.facts.end = ChildEnd(exit_code=1)

    def wait(self: ReceivedSignals, secs: float) -> bool:
        polls.append(secs)
        self.stop_signal = signal.SIGTERM if len(polls) > 100 else None
        return self.stop_signal is not None

    for owner, name, instead in (
        (LogdirView, "write_beside", write),
        (LogdirView, "read_beside", read),
        (ReceivedSignals, "wait_for_stop", wait),
        (Node, "prepare", lambda self, suffix: None),
        (RunningLaunch, "run", start),
    ):
        monkeypatch.setattr(owner, name, instead)
    node, _ = head_of(tmp_path)
    assert Follower(node, 1).run() == 255  # 256 would be 0
    assert [report.state for report in written] == ["ready", "ended", "gone"]
