"""Logs that were written by the original Supervisor, by MonitoredTrainingSession and by ours, in processes that were
killed and started again, are understood: the model says what the test has seen."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked import Forked, ForkServer

from supervisor_core.events.index import LogdirIndex
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run

pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).with_name("program.py")
FACADES = ("original", "hooks", "ours")


@dataclass
class Process:
    """A training that does what it is asked."""

    process: Forked

    def hear(self) -> str:
        """Return the next answer."""
        return self.process.stdout.readline().strip()

    def answer_to(self, command: str) -> str:
        """Give a command; return the answer."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.hear()


@dataclass(frozen=True)
class Seen:
    """What a test saw of a run that was killed, started again and finished."""

    run: Run
    restored: int
    killed_at: float
    restarted_at: float


def next_second() -> float:
    """Wait for the clock's next whole second, and return it.

    The original names an events file by the second, and dates its first event by it: a file of a program that was
    started again in the same second would replace the one of the program that was killed.
    """
    second = math.floor(time.time()) + 1.0
    while (left := second - time.time()) > 0:
        threading.Event().wait(left)
    return second


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Iterator[dict[str, Seen]]:
    """Each facade's run: 7 steps, a save, 5 steps, SIGKILL, a restart, 3 steps, a save, the end. All at once."""
    logdirs = {facade: str(tmp_path_factory.mktemp("logs") / facade) for facade in FACADES}

    def start(facade: str) -> Process:
        return Process(fork_server.start([str(PROGRAM), facade, logdirs[facade]]))

    first = {facade: start(facade) for facade in FACADES}
    found = {}
    second: dict[str, Process] = {}
    try:
        killed_at, restored = {}, {}
        for facade, process in first.items():
            assert process.hear() == "ready"
            assert [process.answer_to(command) for command in ("train 7", "save", "train 5")] == ["7", "7", "12"]
            process.process.close()
            killed_at[facade] = time.time()
            restored[facade] = max(int(path.stem.rpartition("-")[2]) for path in Path(logdirs[facade]).glob("*.index"))
        restarted_at = next_second()
        second = {facade: start(facade) for facade in FACADES}
        for facade, process in second.items():
            assert process.hear() == "ready"
            assert process.answer_to("train 3") == process.answer_to("save") == str(restored[facade] + 3)
            assert process.answer_to("finish") == "finished"
        for facade, logdir in logdirs.items():
            fold = RunFold(".")
            fold.update(LogdirIndex(logdir).refresh().changed["."])
            run = fold.run(time.time())
            found[facade] = Seen(run, restored[facade], killed_at[facade], restarted_at)
        yield found
    finally:
        for process in [*first.values(), *second.values()]:
            process.process.close()


@pytest.mark.parametrize("facade", FACADES)
def test_a_killed_run_is_two_sessions(seen: dict[str, Seen], facade: str) -> None:
    """Two sessions with the steps that were seen, exact where the run recorded itself and inferred where not."""
    run, restored = seen[facade].run, seen[facade].restored
    assert [(session.first_step, session.last_step) for session in run.sessions] == [(0, 12), (restored, restored + 3)]
    assert {session.inferred for session in run.sessions} == {facade != "ours"}
    assert (run.step, run.inferred) == (restored + 3, facade != "ours")


@pytest.mark.parametrize("facade", FACADES)
def test_the_restart_is_where_it_was(seen: dict[str, Seen], facade: str) -> None:
    """The rewind is to the step that was on disk, and the restart came after the kill."""
    run, restored = seen[facade].run, seen[facade].restored
    [restart] = run.restarts
    assert (restart.from_step, restart.to_step, restart.rewind_steps) == (12, restored, 12 - restored)
    assert run.steps_lost == 12 - restored > 0
    assert restart.at is not None and restart.downtime_secs is not None
    assert restart.at >= seen[facade].restarted_at
    assert run.sessions[0].ended_at is not None and run.sessions[0].ended_at <= seen[facade].killed_at
    assert restart.downtime_secs == pytest.approx(restart.at - run.sessions[0].ended_at)


@pytest.mark.parametrize(
    ("facade", "reason", "state", "outcome"),
    [
        ("original", "unknown", "stopped", "unknown"),
        ("hooks", "unknown", "running", "running"),
        ("ours", "lost", "completed", "completed"),
    ],
)
def test_endings_are_known_where_they_were_recorded(
    seen: dict[str, Seen], facade: str, reason: str, state: str, outcome: str
) -> None:
    """Ours says how each session ended; the original's STOP says that one did; hooks say nothing."""
    run = seen[facade].run
    assert (run.restarts[0].reason, run.state, run.sessions[-1].outcome) == (reason, state, outcome)


@pytest.mark.parametrize("facade", FACADES)
def test_checkpoints_are_those_on_disk(seen: dict[str, Seen], facade: str) -> None:
    """The checkpoint that was restored is among those that the run lists, and the last one, where it was recorded
    (hooks write no event of their last)."""
    run, restored = seen[facade].run, seen[facade].restored
    expected = {restored} if facade == "hooks" else {restored, restored + 3}
    assert expected <= {saved.step for saved in run.checkpoints if saved.ok}
    assert run.session_logs["CHECKPOINT"] >= 2
