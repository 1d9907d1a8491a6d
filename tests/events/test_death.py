from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    # Python 3.12 warns of each fork of a process with threads, which is what these are about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


TRAINER = """
import sys
from supervisor_core.events import EventsWriter
writer = EventsWriter(sys.argv[1])
step = 0
while True:
    for _ in range(int(sys.argv[2])):
        step += 1
        writer.scalar("loss", 0.5, step)
        if step % 10 == 0:
            writer.payload("graph_def", b"x" * 20_000, step)
    writer.sync()
    print(step, flush=True)
"""


def test_tensorboard_reads_what_a_killed_process_left(tmp_path: Path) -> None:
    """TensorBoard's own loader gets every synced event out of the file of a killed process, up to the torn record."""
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path), "50"], stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdout is not None
        for _ in range(5):
            synced = int(trainer.stdout.readline())
        trainer.kill()
    (path,) = tmp_path.glob("*tfevents*")
    # A record cut in half, as a kill in the middle of a write leaves it.
    data = path.read_bytes()
    path.write_bytes(data + data[-100:-50].ljust(12, b"\xff"))
    loader = """
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")  # TensorBoard as it is without tensorflow
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
events = list(EventFileLoader(sys.argv[1]).Load())
print(events[0].file_version, sum(len(e.summary.value) for e in events), max(e.step for e in events))
"""
    done = run(loader, str(path))
    version, scalars, last = done.stdout.split()
    assert version == "brain.Event:2", done.stderr
    assert int(scalars) >= synced
    assert int(last) >= synced


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise KeyError('x')", "del writer"])
def test_a_program_that_forgets_to_close_loses_nothing(tmp_path: Path, end: str, read_logdir: Any) -> None:
    """However the interpreter exits as planned, everything that was added is in the file."""
    done = run(
        "import sys\nfrom supervisor_core.events import FileWriter\nwriter = FileWriter(sys.argv[1])\n"
        f"for step in range(1, 5001): writer.scalar('a', 1.0, step)\n{end}\n",
        str(tmp_path),
    )
    assert "supervisor_core" not in done.stderr
    (contents,) = read_logdir(tmp_path)
    assert (contents.steps, contents.torn_bytes) == (list(range(1, 5001)), 0)


def test_an_exit_handler_may_still_add(tmp_path: Path, read_logdir: Any) -> None:
    """Events added while the interpreter shuts down are written, if flushed."""
    run(
        "import atexit, sys\nadd = []\natexit.register(lambda: [f() for f in add])\n"
        "from supervisor_core.events import EventsWriter\nwriter = EventsWriter(sys.argv[1])\n"
        "add += [lambda: writer.scalar('a', 1.0, 1), writer.flush]",
        str(tmp_path),
    )
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1]]


def test_an_exit_on_a_full_disk_is_short_and_said(tmp_path: Path, read_logdir: Any) -> None:
    """What cannot be written when the program ends is said in the log, and does not hold up its end."""
    done = run(
        "import resource, signal, sys\nfrom supervisor_core.events import EventsWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwriter = EventsWriter(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nwriter.scalar('a', 1.0, 1)\n",
        str(tmp_path),
    )
    assert done.returncode == 0
    assert "1 event could not be written" in done.stderr


FORK = """
import os, sys
from supervisor_core.base.errors import WriterClosedError
from supervisor_core.events import EventsWriter
writer = EventsWriter(sys.argv[1])
for step in range(1, 1001):
    writer.scalar("parent", 1.0, step)
if sys.argv[2] == "closed":
    writer.close()
path = writer.path
pid = os.fork()
if pid == 0:
    try:
        links = [os.readlink(link) for link in map("/proc/self/fd/{}".format, os.listdir("/proc/self/fd"))
                 if os.path.exists(link)]
        assert path not in links, "the parent's file is open in the child"
        assert writer.pending == writer.written == writer.dropped == 0
        assert writer.path is None or sys.argv[2] == "closed"
        if sys.argv[2] == "adds":
            writer.scalar("child", 1.0, 1)
            writer.flush()
            assert writer.path != path
            writer.scalar("child", 1.0, 2)
            writer.close()
        elif sys.argv[2] == "flushes":
            writer.flush(); writer.sync(); writer.close()
        elif sys.argv[2] == "closed":
            assert writer.closed
            try:
                writer.scalar("child", 1.0, 0)
            except WriterClosedError:
                writer.reopen()
            writer.scalar("child", 1.0, 1)
            writer.close()
    except BaseException as error:
        print("child:", repr(error), file=sys.stderr)
        os._exit(1)
    if sys.argv[2] == "exits":
        sys.exit(0)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
if sys.argv[2] != "closed":
    writer.scalar("parent", 1.0, 1001)
    writer.close()
"""


@pytest.mark.parametrize(
    ("child", "child_steps"), [("adds", [1, 2]), ("flushes", None), ("exits", None), ("closed", [1])]
)
def test_a_forked_child_starts_clean(tmp_path: Path, child: str, child_steps: Any, read_logdir: Any) -> None:
    """A child writes into a file of its own if it writes at all; the parent's file holds the parent's events, once."""
    done = run(FORK, str(tmp_path), child)
    assert (done.returncode, done.stderr) == (0, "")
    by_tag: dict[str, list[list[int]]] = {}
    for contents in read_logdir(tmp_path):
        tags = {event.summary.value[0].tag for event in contents.events}
        assert len(tags) == 1, "an empty or a mixed file"
        by_tag.setdefault(tags.pop(), []).append(contents.steps)
        assert contents.torn_bytes == 0
    assert by_tag.pop("parent") == [list(range(1, 1001 if child == "closed" else 1002))]
    assert by_tag == ({"child": [child_steps]} if child_steps else {})


def test_a_fork_in_the_middle_of_everything_is_safe(tmp_path: Path, read_logdir: Any) -> None:
    """Forking while threads add and the writer writes leaves neither side waiting for a lock without a holder."""
    code = """
import os, sys, threading
from supervisor_core.events import EventsWriter
writer = EventsWriter(sys.argv[1], max_queue=50)
stop = threading.Event()
counts = [0, 0]
def produce(index):
    while not stop.is_set():
        counts[index] += 1
        writer.payload("graph_def", b"p" * 100, counts[index])
        if counts[index] % 10 == 0:
            writer.flush()
threads = [threading.Thread(target=produce, args=(index,)) for index in range(2)]
for thread in threads:
    thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        writer.scalar("child", 1.0, 1)
        writer.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
writer.close()
print(sum(counts), writer.written, writer.dropped)
"""
    done = run(code, str(tmp_path))
    added, written, dropped = map(int, done.stdout.split())
    assert (written, dropped) == (added, 0), done.stderr
    files = read_logdir(tmp_path)
    assert sorted(len(contents.events) for contents in files) == [1] * 20 + [added]
    assert not any(contents.torn_bytes for contents in files)


def test_a_signal_handler_may_add_and_flush(tmp_path: Path, read_logdir: Any) -> None:
    """A handler that interrupts its own thread inside the writer gets through: nothing in it can deadlock."""
    code = """
import os, signal, sys
from supervisor_core.events import EventsWriter
writer = EventsWriter(sys.argv[1], max_queue=20)
handled = 0
def handle(number, frame):
    global handled
    handled += 1
    writer.payload("graph_def", b"s", handled)
    writer.flush()
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
step = 0
while handled < 200:
    step += 1
    writer.payload("graph_def", b"m", step)
    writer.scalar("m", 1.0, step)
signal.setitimer(signal.ITIMER_REAL, 0)
writer.close()
print(2 * step + handled, writer.written)
"""
    done = run(code, str(tmp_path))
    added, written = map(int, done.stdout.split())
    assert added == written, done.stderr
    assert os.listdir(tmp_path)
