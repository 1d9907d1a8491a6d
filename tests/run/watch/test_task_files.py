"""A run's ranks as their heartbeat files have them: read as they are, whatever is in them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.events.place import Place, WorkerStatus
from supervisor_core.events.telemetry import StallRecord, StopRecord
from supervisor_core.metrics.page import run_status
from supervisor_core.process.identity import this_machine
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, read_page
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.live_session import with_page
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY, LivenessRecord, encode, file_name
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.task_files import TaskReader, with_shared_timeout, with_verdict

WAITS = Place(digest="a", location="/home/me/train.py:25 train", waits_in="backward")
STUCK = Place(digest="b", location="/home/me/train.py:14 stuck")
"""Where two ranks are."""
STACK = ("/home/me/train.py:25 train", "/x/site-packages/torch/autograd/graph.py:8 _engine_run_backward")
VERDICT = "rank 1 hangs at train.py:14 in stuck; rank 0 waits for it at train.py:25 (backward)"


def record(rank: int, now: float, **fields: Any) -> LivenessRecord:
    """Return what a rank of this process has written."""
    return LivenessRecord(
        **{
            **{"task": f"rank:{rank}", "session": f"r{rank}", "host": this_machine().host, "pid": os.getpid()},
            **{"started_at": now - 100.0, "written_at": now, "beats": 3, "interval_secs": 10.0, "phase": "training"},
            **{"step": 40, "steps": 40, "progress_age_secs": 12.0, "hang_timeout_secs": 6.0, **fields},
        }
    )


def put(logdir: Path, *records: LivenessRecord) -> None:
    """Write heartbeat files."""
    (logdir / LIVENESS_DIRECTORY).mkdir(exist_ok=True)
    for item in records:
        (logdir / LIVENESS_DIRECTORY / file_name(item.task)).write_bytes(encode(item))


def test_a_rank_is_as_its_file_says(tmp_path: Path) -> None:
    """Not as its chief said a minute ago; a later look has what is new."""
    now = time.time()
    put(tmp_path, record(1, now))
    reader = TaskReader(str(tmp_path))
    assert reader.read(["rank:1", "rank:2"], now, is_stalled=False)["rank:1"].step == 40
    put(tmp_path, record(1, now, step=41, beats=4, place=STUCK))
    found = reader.read(["rank:1"], now + 20, is_stalled=False)
    assert (found["rank:1"].step, found["rank:1"].place, found["rank:1"].last_seen_at) == (41, STUCK, now + 20)
    assert reader.read(["rank:1"], now + 50, is_stalled=False)["rank:1"].last_seen_at == now + 20


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"v":1}', encode(record(7, 1.7e9)), b"\xff" * 100, b"x" * 100_000],
    ids=["empty", "cut", "a list", "no fields", "another's name", "no text", "long"],
)
def test_what_is_malformed_is_left_out(tmp_path: Path, content: bytes) -> None:
    """One file, not the others."""
    now = time.time()
    put(tmp_path, record(2, now))
    (tmp_path / LIVENESS_DIRECTORY / file_name("rank:1")).write_bytes(content)
    assert list(TaskReader(str(tmp_path)).read(["rank:1", "rank:2"], now, is_stalled=False)) == ["rank:2"]


def test_no_file_is_no_error(tmp_path: Path) -> None:
    """A pipe nobody writes to does not keep a reader waiting; nor does a directory that is missing."""
    reader = TaskReader(str(tmp_path))
    assert reader.read(["rank:1"], 0.0, is_stalled=True) == {}
    (tmp_path / LIVENESS_DIRECTORY).mkdir()
    os.mkfifo(tmp_path / LIVENESS_DIRECTORY / file_name("rank:1"))
    assert TaskReader(str(tmp_path)).read(["rank:1"], 0.0, is_stalled=True) == {}
    assert reader.read([], 0.0, is_stalled=True) == {}


NOW = 1_700_000_100.0
"""By the clock of the watch: a hundred seconds after the run began."""


class Logdir:
    """A run of two ranks, of which the chief has recorded the other one half a minute ago, at step 10."""

    def __init__(self, directory: Path, writing: ModuleType, clock: Any) -> None:
        self.directory, self.clock, self.at = directory, clock, NOW - 30.0
        other = WorkerStatus(
            name="rank:1", state="running", phase="training", step=10, steps=10, last_seen_at=NOW - 30,
            started_at=NOW - 99.0, host="trainer-1", pid=7,
        )  # fmt: skip
        self.file = writing.RunFile(directory).ready().beat(NOW - 30.0, steps=10, workers=(other,))

    def rank(self, **fields: Any) -> Logdir:
        """The other one writes its file, on a machine of its own."""
        put(self.directory, record(1, NOW - 2.0, **{"host": "trainer-1", "started_at": NOW - 99.0, **fields}))
        os.utime(self.directory / LIVENESS_DIRECTORY / file_name("rank:1"), (NOW - 2.0, NOW - 2.0))
        return self

    def stall(self, **fields: Any) -> Logdir:
        """The chief makes no progress."""
        self.file.beat(NOW - 5.0, steps=40, progress_age_secs=8.0, progress_timeout_secs=6.0)
        stall = StallRecord(
            session=self.file.session_id, state="begin", since=NOW - 13.0, step=40, secs=8.0, timeout_secs=6.0,
            thread="MainThread", location=STACK[0], stacks={"MainThread": STACK}, **fields,
        )  # fmt: skip
        self.at = NOW - 5.0
        self.file.record(stall, self.at)
        return self

    def watched(self) -> Any:
        """The run, as every reader sees it."""
        os.utime(self.file.path, (self.at, self.at))
        [found] = LogdirWatch(str(self.directory), clock=self.clock).refresh().runs.values()
        return found


@pytest.fixture
def logdir(tmp_path: Path, writing: ModuleType, clock: Any) -> Logdir:
    """Two ranks."""
    return Logdir(tmp_path / "run", writing, clock)


def test_healthy_ranks_are_as_new_as_their_files(logdir: Logdir) -> None:
    """The chief records them with every sixth heartbeat."""
    [rank] = logdir.rank(progress_age_secs=0.1).watched().run.workers
    assert (rank.step, rank.last_seen_at, rank.state) == (40, NOW - 2.0, "running")
    [rank] = logdir.rank(ended="error", error="ValueError: boom").watched().run.workers
    assert (rank.state, rank.error, [span.state for span in rank.spans]) == (
        "failed",
        "ValueError: boom",
        ["running", "failed"],
    )


LOST = "RuntimeError: [pair.cc:545] Connection reset by peer"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"ended": "error", "error": "KeyError: 1"}, f"KeyError: 1 on rank 1; then on rank 0: {LOST}"),
        (
            {"host": this_machine().host, "boot": this_machine().boot, "pids": this_machine().pids, "pid": 2**22 + 1},
            f"RuntimeError: lost rank 1 (process {2**22 + 1} on {this_machine().host}), which was killed or has "
            "crashed: [pair.cc:545] Connection reset by peer",
        ),
        ({}, LOST),
    ],
    ids=["failed", "killed", "alive"],
)
def test_which_rank_a_chief_lost_that_ended_at_once(logdir: Logdir, how: dict[str, Any], expected: str) -> None:
    """The chief has not read the file again; who looks later reads it."""
    logdir.rank(**how).at = NOW - 5.0
    stop = StopRecord(session=logdir.file.session_id, reason="error", error=LOST, step=40, steps=40)
    logdir.file.record(stop, logdir.at)
    run = logdir.watched().run
    assert (run.state, run.sessions[-1].error) == ("failed", expected)


def test_a_file_of_an_earlier_process_changes_nothing(logdir: Logdir) -> None:
    """It was there before the chief saw the present one."""
    [rank] = logdir.rank(started_at=NOW - 500.0, step=99).watched().run.workers
    assert rank.step == 10


def test_the_chiefs_verdict_counts(logdir: Logdir) -> None:
    """What it has recorded is said, and is in the metrics."""
    found = logdir.rank(place=WAITS).stall(verdict=VERDICT, culprit="rank 1", culprit_location="train.py:14 in stuck")
    watched = found.watched()
    assert watched.run.verdict == VERDICT
    [stalled, *_] = findings(watched, NOW, Thresholds())
    assert stalled.text == f"No progress in the phase training. {VERDICT[0].upper()}{VERDICT[1:]}."
    assert stalled.evidence["culprit"] == "rank 1"
    status = run_status(watched.run, NOW)
    assert status.stall is not None and status.stall.culprit == "rank 1"


def test_by_the_files_where_the_chief_says_nothing(logdir: Logdir) -> None:
    """Its place is in its stall record, the other's in its file."""
    run = logdir.rank(place=STUCK).stall().watched().run
    assert (run.state, run.verdict, run.stalls[-1].culprit) == ("stalled", VERDICT, "rank 1")


def test_a_chief_that_gives_no_sign_of_life(logdir: Logdir) -> None:
    """Its rank waits for it, and says where."""
    logdir.clock.now = NOW + 200.0
    put(logdir.directory, record(1, NOW + 198.0, host="trainer-1", started_at=NOW - 99.0, place=WAITS))
    watched = logdir.watched()
    assert (watched.run.state, watched.run.verdict) == (
        "lost",
        "rank 0 has written nothing for more than 2 min; rank 1 waits for it at train.py:25 (backward)",
    )
    assert "Rank 0 has written nothing for" in findings(watched, NOW + 200.0, Thresholds())[0].text


def test_a_chief_that_is_lost_and_a_rank_that_goes_on(logdir: Logdir) -> None:
    """Nobody waits."""
    logdir.clock.now = NOW + 200.0
    put(logdir.directory, record(1, NOW + 198.0, host="trainer-1", started_at=NOW - 99.0, progress_age_secs=0.1))
    assert logdir.watched().run.verdict is None


def page(tmp_path: Path, *, age: float, phase: str = "training") -> Any:
    """The page of a chief that has run no Python for so long; its hang timeout is the default."""
    made = ProgressPage.create(tmp_path, session_id="s1")
    made.step_is(100, 1)
    made.update(phase=phase, hang_timeout_secs=300.0, act_after_secs=300.0)
    made.tick(at=1000.0 - age, boot_secs=1000.0 - age, main_thread_secs=1.0)
    made.times[LAST_PROGRESS] = 1000.0 - age
    assert made.path is not None
    found = read_page(made.path)
    made.close()
    return found


@pytest.mark.parametrize(
    ("phase", "fields", "secs"),
    [
        ("training", {"place": WAITS}, 30.0),
        ("training", {"place": WAITS, "hang_timeout_secs": 9.0, "phase": "evaluating"}, 300.0),
        ("training", {"progress_age_secs": 0.1}, 300.0),  # the rank goes on
        ("evaluating", {"place": WAITS}, 300.0),
    ],
)
def test_the_hang_timeout_of_a_chief_that_cannot_say_it(
    logdir: Logdir, tmp_path: Path, phase: str, fields: dict[str, Any], secs: float
) -> None:
    """Its rank has made no progress for as long; less than half a minute may be a save."""
    run = logdir.rank(**fields).watched().run
    found = with_shared_timeout(page(tmp_path, age=40.0, phase=phase), run, NOW)
    assert found is not None and found.hang_timeout_secs == secs


def test_a_chief_whose_interpreter_is_blocked(logdir: Logdir, tmp_path: Path) -> None:
    """Its page shows that it hangs; where, nobody knows yet; the rank waits for it."""
    run = logdir.rank(place=WAITS).watched().run
    seen = with_shared_timeout(page(tmp_path, age=40.0), run, NOW)
    found = with_verdict(with_page(run, seen, NOW, 1000.0, lambda page: None), NOW)
    assert (found.state, found.verdict) == (
        "stalled",
        "rank 0 has run no Python for more than 30 s: native code holds the interpreter lock; "
        "rank 1 waits for it at train.py:25 (backward)",
    )
