"""``tb-supervisor stacks`` of a training in several processes: which rank each is, and which are at one place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest

from supervisor_core.cli import stacks as command
from supervisor_core.events.telemetry import Place
from supervisor_core.process.identity import boot_id, this_machine
from supervisor_core.process.outside import OutsideStacks
from supervisor_core.process.stacks import digest
from supervisor_core.run.watch.liveness import LIVENESS_DIRECTORY, LivenessRecord, encode, file_name

pytestmark = pytest.mark.skipif(sys.platform != "linux" or boot_id() is None, reason="there is no /proc")

STUCK = ("/x/train.py:9 main", "/x/train.py:14 stuck_in_user_code")
WAITS = (
    "/x/train.py:25 main",
    "/venv/site-packages/torch/_tensor.py:623 Tensor.backward",
    "/venv/site-packages/torch/autograd/graph.py:1113 _engine_run_backward",
)
SESSION = """
import sys, time
from pathlib import Path
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS
directory, session, logdir, age = sys.argv[1:]
page = ProgressPage.create(Path(directory), session_id=session, logdir=logdir)
page.step_is(7, 1)
page.update(phase="training", hang_timeout_secs=6.0)
page.times[LAST_PROGRESS] = time.monotonic() - float(age)
print("here", flush=True)
sys.stdin.read()
"""
Start = Callable[[Mapping[str, tuple[str, ...]], float], dict[str, int]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a process for each session with a page; returns their ids. What py-spy finds of each is given; nothing of
    an empty stack."""
    memory = tmp_path / "memory"
    memory.mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(memory))
    found: dict[int, OutsideStacks] = {}
    monkeypatch.setattr(command, "outside_stacks", lambda pid: found[pid])
    monkeypatch.setattr(command, "thread_states", lambda pid: ())

    with ExitStack() as processes:

        def started(mains: Mapping[str, tuple[str, ...]], age_secs: float = 60.0) -> dict[str, int]:
            pids = {}
            for session, main in mains.items():
                given = [str(memory), session, str(tmp_path / "run"), str(age_secs)]
                process = processes.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", SESSION, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                    )
                )
                processes.callback(process.kill)
                assert process.stdout is not None and process.stdout.readline() == b"here\n"
                pids[session] = process.pid
                found[process.pid] = OutsideStacks(stacks={"MainThread": main}) if main else OutsideStacks(problem="no")
            return pids

        yield started


def record(directory: Path, task: str, session: str, **more: Any) -> None:
    """Write the heartbeat file of a process; it is this one's where nothing else is given."""
    machine = this_machine()
    known: dict[str, Any] = {"host": machine.host, "boot": machine.boot, "pids": machine.pids, "pid": os.getpid()}
    times = {"started_at": time.time(), "written_at": time.time(), "beats": 1, "interval_secs": 10.0}
    values = {**known, **times, "phase": "training", "step": 7, **more}
    tasks = directory / "run" / LIVENESS_DIRECTORY
    tasks.mkdir(parents=True, exist_ok=True)
    (tasks / file_name(task)).write_bytes(encode(LivenessRecord(task=task, session=session, **values)))


def test_ranks_are_named_and_equal_stacks_are_one_group(run: Callable[..., Any], start: Start, tmp_path: Path) -> None:
    """The one that hangs comes first, as the verdict does; of the others one stack is shown."""
    pids = start({"s0": WAITS, "s1": WAITS, "s2": STUCK}, 60.0)
    record(tmp_path, "rank:1", "s1")
    record(tmp_path, "rank:2", "s2")
    done = run("stacks", tmp_path / "run")
    lines = done.stdout.splitlines()
    waits = "ranks 0 and 1 wait for it at train.py:25 (backward)"
    assert lines[0] == f"rank 2 hangs at train.py:14 in stuck_in_user_code; {waits}"
    assert lines[1] == "rank 2 at train.py:14 in stuck_in_user_code:"
    assert lines[2] == f"Process {pids['s2']}, session s2, in {tmp_path / 'run'}"
    at = lines.index("ranks 0 and 1 (2 processes) at train.py:25 in main, in backward:")
    first, second = sorted((pids["s0"], pids["s1"]))
    assert lines[at + 1].startswith(f"Process {first}, ") and lines[-1].startswith(f"Process {second}, ")
    assert lines[-1].endswith(": at the same place")
    assert done.stdout.count(WAITS[0]) == done.stdout.count(STUCK[1]) == 1
    (training,) = json.loads(run("stacks", "--json", tmp_path / "run").stdout)["trainings"]
    assert training["text"] == lines[0]
    assert next((group["is_culprit"], group["ranks"]) for group in training["groups"]) == (True, ["rank:2"])
    assert {rank["name"]: rank["pid"] for rank in training["ranks"]} == {f"rank:{i}": pids[f"s{i}"] for i in range(3)}


def test_what_another_machine_has_written_is_shown(run: Callable[..., Any], start: Start, tmp_path: Path) -> None:
    """A rank there that makes no progress has a stack in its heartbeat file; of one that is over nothing is known."""
    start({"s0": WAITS}, 60.0)
    place = Place(digest=digest(STUCK), location=STUCK[-1], frames=STUCK)
    record(tmp_path, "rank:1", "s1", host="other", boot="b", pid=99, place=place, stalled=True)
    record(tmp_path, "rank:2", "s2", host="other", boot="b", ended="completed")
    record(tmp_path, "rank:3", "s3", host="other", boot="b", written_at=time.time() - 3600.0)
    record(tmp_path, "ps:0", "s4", host="other", boot="b", phase="serving")
    lines = run("stacks", tmp_path / "run").stdout.splitlines()
    waits = "rank 0 waits for it at train.py:25 (backward)"
    assert lines[0] == f"rank 1 hangs at train.py:14 in stuck_in_user_code; {waits}"
    assert lines[2].startswith("Process 99 on other, step 7: phase training, written ")
    assert f"    {STUCK[-1]}" in lines and not any(
        word in line for line in lines for word in ("rank 2", "rank 3", "ps")
    )


def test_a_rank_that_is_gone_is_the_answer(run: Callable[..., Any], start: Start, tmp_path: Path) -> None:
    """Its process is over, and it has not said so."""
    start({"s0": WAITS}, 60.0)
    record(tmp_path, "rank:1", "s1", pid=(1 << 22) + 1)
    lines = run("stacks", tmp_path / "run").stdout.splitlines()
    assert lines[0].startswith("rank 1 has written nothing for ")
    assert lines[0].endswith("; rank 0 waits for it at train.py:25 (backward)")


def test_without_a_hang_there_are_groups_and_no_verdict(run: Callable[..., Any], start: Start, tmp_path: Path) -> None:
    """Each rank makes progress."""
    start({"s0": WAITS, "s1": STUCK}, -3600.0)  # however long it takes to start them
    record(tmp_path, "rank:1", "s1")
    done = run("stacks", tmp_path / "run")
    assert "hangs" not in done.stdout and "undecided" not in done.stdout
    assert "rank 0 at train.py:25 in main, in backward:\n" in done.stdout
    assert json.loads(run("stacks", "--json", tmp_path / "run").stdout)["trainings"][0]["text"] is None


def test_a_logdir_that_does_not_answer_is_not_waited_for(
    run: Callable[..., Any], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what hangs: the stacks are shown all the same."""
    start({"s0": WAITS}, 60.0)
    answers = threading.Event()

    def hang(_path: str) -> NoReturn:
        answers.wait(30.0)
        raise TimeoutError

    monkeypatch.setattr(command, "filesystem_for", hang)
    monkeypatch.setattr(command, "READ_SECS", 0.2)
    try:
        done = run("stacks", tmp_path / "run")
        assert done.exit_code == 0 and f"    {WAITS[-1]}" in done.stdout
        assert [thread for thread in threading.enumerate() if thread.name == "read heartbeat files"]
    finally:
        answers.set()


@pytest.mark.parametrize("name", ["rank:\x1b[31m\n2", "r" * 500])
def test_a_name_that_is_none_is_shown(run: Callable[..., Any], start: Start, tmp_path: Path, name: str) -> None:
    """Of a file that anybody may have written: its beginning, without control characters."""
    start({"s0": WAITS}, 60.0)
    place = Place(digest=digest(STUCK), location=STUCK[-1], frames=STUCK)
    record(tmp_path, name, "s1", host="other", boot="b", pid=99, place=place, stalled=True)
    done = run("stacks", tmp_path / "run")
    assert "hangs at train.py:14 in stuck_in_user_code" in done.stdout
    assert "\x1b" not in done.stdout and "r" * 100 not in done.stdout
