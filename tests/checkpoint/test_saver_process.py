"""The saver process: what it writes and reads is what a thread would, whatever becomes of it."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.checkpoint import blocks, saver_process, saver_program
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter, FilePart, FilePass
from tests.cases import each

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="the process needs Linux"),
]

SIZES = (5, 0, 3 << 20, 700_000)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockWriter]:
    """Has the process write everything; one that is there already is ended first, and this one afterwards."""
    monkeypatch.setattr(blocks, "MIN_BYTES", 1)
    monkeypatch.setattr(saver_process, "_retry_at", -saver_process.RETRY_SECS)
    end()
    yield BlockWriter(has_process=True)
    end()


def end() -> None:
    """End the process, if there is one."""
    if saver_process._process is not None:
        saver_process._process.end()
        saver_process._process = None


def parts() -> list[FilePart]:
    """Numbers, and other bytes."""
    memory = [(np.arange(size) % (7 + number)).astype(np.uint8) for number, size in enumerate(SIZES)]
    return [FilePart(b"header"), *(FilePart(part, "uint8") for part in memory)]


def written(writer: BlockWriter, path: Path, content: list[FilePart], *, is_one: bool = True) -> tuple[FilePass, bytes]:
    """What a writer says of a new file, and what is in it."""
    with path.open("xb", buffering=0) as file:
        done = writer.write(file.fileno(), content, size=sum(SIZES), is_one=is_one)
    return done, path.read_bytes()


def pid() -> int:
    """The process's."""
    assert saver_process._process is not None
    return saver_process._process._process.pid


@each("is_one", [True, False])
def test_it_writes_what_a_thread_writes(writer: BlockWriter, tmp_path: Path, is_one: bool) -> None:
    """Bytes, checksums, NaN; of memory that has changed since the save before."""
    content = parts()
    content[3].data[:4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    content[3] = content[3]._replace(dtype="float32")
    for save in range(3):
        content[4].data[save] += 1
        done, data = written(writer, tmp_path / f"process-{save}", content, is_one=is_one)
        expected, same = written(IN_THREAD, tmp_path / f"thread-{save}", content, is_one=is_one)
        assert pid() and (data, done.crcs, done.with_nan) == (same, expected.crcs, expected.with_nan)
        assert done.with_nan == 3


def test_it_reads_back(writer: BlockWriter, tmp_path: Path) -> None:
    """The checksums of ranges; of a file that ends before, the caller says what is wrong."""
    content = parts()
    done, data = written(writer, tmp_path / "file", content, is_one=False)
    ranges, offset = [], 0
    for part in content:
        ranges.append((offset, len(part.data)))
        offset += len(part.data)
    with (tmp_path / "file").open("rb") as file:
        assert writer.checksums(file.fileno(), ranges) == done.crcs
        assert writer.checksums(file.fileno(), [(0, len(data) + 1)]) is None
        assert writer.checksums(file.fileno(), ranges) == done.crcs, "it goes on"


def test_a_disk_that_is_full_is_an_error(writer: BlockWriter) -> None:
    """As where a thread writes."""
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError) as caught:
        writer.write(full.fileno(), parts(), size=sum(SIZES), is_one=True)
    assert caught.value.errno == errno.ENOSPC


@each("ends", [signal.SIGKILL, signal.SIGSTOP])
def test_a_thread_takes_over(
    writer: BlockWriter, tmp_path: Path, ends: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    """From a process that is killed or stopped, whatever it has written; said once; later there is another one.

    The request is longer than what a socket takes that nobody reads."""
    content = [*parts(), *[FilePart(b"")] * 30_000]
    written(writer, tmp_path / "before", content)
    first = pid()
    os.kill(first, ends)
    for name in ("one", "two"):
        done, data = written(writer, tmp_path / name, content)
        assert (data, done.crcs) == (b"".join(bytes(part.data) for part in content), done.crcs)
    assert saver_process._process is None
    assert len([record for record in caplog.records if "is not available" in record.message]) == 1
    saver_process._retry_at = -saver_process.RETRY_SECS
    written(writer, tmp_path / "three", content)
    assert pid() != first


def test_it_is_killed_within_a_write(writer: BlockWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread writes the file from its begin."""
    content = parts()
    written(writer, tmp_path / "before", content)
    real = saver_process._SaverProcess._answer

    def answer(process: Any, is_urgent: Callable[[], bool]) -> Any:
        while not (tmp_path / "file").stat().st_size:
            pass
        os.kill(process._process.pid, signal.SIGKILL)
        process._process.wait()
        process._socket.shutdown(1)
        process._socket.recv(1 << 20)  # an answer that came before
        return real(process, is_urgent)

    monkeypatch.setattr(saver_process._SaverProcess, "_answer", answer)
    done, data = written(writer, tmp_path / "file", content)
    assert data == b"".join(bytes(part.data) for part in content)
    assert done.crcs == written(IN_THREAD, tmp_path / "other", content)[0].crcs


def test_it_is_stopped_for_a_moment(
    writer: BlockWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After Ctrl-Z and ``fg`` the training may go on first."""
    written(writer, tmp_path / "before", parts())
    process, looks = pid(), []

    def state_of(pid: int) -> str:
        looks.append(pid)
        if len(looks) == 3:
            os.kill(pid, signal.SIGCONT)
        return "T"

    os.kill(process, signal.SIGSTOP)
    monkeypatch.setattr(saver_process, "_state_of", state_of)
    written(writer, tmp_path / "file", parts())
    assert pid() == process and not caplog.records


def test_an_answer_that_nobody_has_waited_for(
    writer: BlockWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C within a save: the next request gets its own answer."""
    with monkeypatch.context() as interrupted:
        interrupted.setattr(saver_process._SaverProcess, "_answer", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            written(writer, tmp_path / "before", parts())
    done, data = written(writer, tmp_path / "file", [FilePart(b"other")])
    expected, same = written(IN_THREAD, tmp_path / "same", [FilePart(b"other")])
    assert pid() and (data, done.crcs) == (same, expected.crcs)


def test_a_program_that_closes_every_descriptor(writer: BlockWriter, tmp_path: Path) -> None:
    """What it opens in the socket's place gets no request, and stays open."""
    written(writer, tmp_path / "before", parts())
    process = saver_process._process
    assert process is not None
    number = process._socket.fileno()
    ours, theirs = socket.socketpair()
    with ours, socket.socket(fileno=os.dup2(theirs.detach(), number)):
        assert written(writer, tmp_path / "file", parts())[1] == b"".join(bytes(part.data) for part in parts())
        os.fstat(number)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)


@each("what", ["executable", "silent", "frozen", "memory"])
def test_without_a_process_a_thread_writes(
    writer: BlockWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where none can be started, the program is no Python, or the system keeps memory from other processes.

    The same reason is not said again at each attempt."""
    content, tracers = parts(), []
    monkeypatch.setattr(saver_process, "set_tracer", tracers.append)
    if what == "executable":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    elif what == "silent":
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\nexec sleep 1000\n")
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))
        monkeypatch.setattr(saver_process, "START_SECS", 0.2)
    elif what == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:  # as where it may not be read
        refused = "from supervisor_core.checkpoint.saver_program import _LIBC; _LIBC.process_vm_readv = lambda *_: -1"
        monkeypatch.setattr(saver_process, "_PROGRAM", saver_process._PROGRAM.replace("\nmain(", f"\n{refused}\nmain("))
    for attempt in ("first", "second"):
        assert written(writer, tmp_path / attempt, content)[1] == b"".join(bytes(part.data) for part in content)
        assert saver_process._process is None
        saver_process._retry_at = -saver_process.RETRY_SECS
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == (what != "frozen")
    assert len(tracers) == 2 * (what == "memory"), "the permission is another process's while it is not needed"


def test_it_leaves_who_may_read_the_memory(
    writer: BlockWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yama has room for one process: ``run``, a debugger, or MPI's. It is taken only where a read is refused."""
    tracers: list[int] = []
    monkeypatch.setattr(saver_process, "set_tracer", tracers.append)
    written(writer, tmp_path / "file", parts())
    assert pid() and not tracers


LAST_SAVES = """
import atexit, os, sys, threading
from supervisor_core.checkpoint import blocks
blocks.MIN_BYTES = 1
writer = blocks.BlockWriter(has_process=True)
def save(name, content):
    with open(os.path.join(sys.argv[1], name), "xb", buffering=0) as file:
        writer.write(file.fileno(), [blocks.FilePart(content)], size=len(content), is_one=True)
def at_exit():
    save("last", bytes(1 << 20))
    from supervisor_core.checkpoint import saver_process
    assert saver_process._process is not None
    started.set()
    while not os.path.exists(os.path.join(sys.argv[1], "cut")):
        pass
def in_thread():
    started.wait()
    save("cut", bytes(1 << 30))
started = threading.Event()
threading.Thread(target=in_thread, daemon=True).start()  # newer Pythons start none at their exit
atexit.register(at_exit)
save("first", bytes(1 << 20))
"""


def test_the_interpreter_ends(tmp_path: Path) -> None:
    """A session's last save comes before; the end of the process within a save is nothing to warn of."""
    ended = subprocess.run(
        [sys.executable, "-c", LAST_SAVES, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert (tmp_path / "last").stat().st_size == 1 << 20
    assert ended.stderr == ""


PROGRAM = """
import os, sys
from supervisor_core.checkpoint import blocks, saver_process
blocks.MIN_BYTES = 1
writer = blocks.BlockWriter(has_process=True)
with open(sys.argv[1], "xb", buffering=0) as file:
    writer.write(file.fileno(), [blocks.FilePart(bytes(1 << 20))], size=1 << 20, is_one=True)
held = os.dup(saver_process._process._socket.fileno())
child = os.fork() if sys.argv[2] == "forked" else 0
if sys.argv[2] == "forked" and not child:
    import signal
    signal.pause()
print(saver_process._process._process.pid, child, flush=True)
if sys.argv[2] != "ends":
    sys.stdin.read()
"""


@each("how", ["ends", "killed", "forked"])
def test_it_ends_with_the_training(tmp_path: Path, how: str) -> None:
    """However that ends, and whoever has inherited its end of the socket."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "file"), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        saver, child = map(int, training.stdout.readline().split())
        watched = os.pidfd_open(saver) if how != "ends" else -1
        if how != "ends":
            training.kill()
    try:
        if watched >= 0:
            assert select.select([watched], [], [], 60)[0]
            os.close(watched)
        assert not Path(f"/proc/{saver}").exists() or "Z" in Path(f"/proc/{saver}/stat").read_text()
    finally:
        if child:
            os.kill(child, signal.SIGKILL)


def test_a_training_with_many_open_files(writer: BlockWriter, tmp_path: Path) -> None:
    """The sockets have numbers that ``select`` does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("no more than 2,000 open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        held.callback(end)
        for _ in range(1100):
            held.callback(os.close, os.dup(0))
        written(writer, tmp_path / "file", parts())
        assert pid()


def test_signals_to_the_group_do_not_end_it(
    writer: BlockWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, Ctrl-Z, and a SIGTERM to all processes of a job, also as it starts: the last save comes after them."""
    start = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}:
            os.kill(process.pid, number)
        return process

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    written(writer, tmp_path / "one", parts())
    assert pid() and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@each("is_refused", [False, True])
def test_the_priority_of_a_training_that_has_a_low_one(monkeypatch: pytest.MonkeyPatch, is_refused: bool) -> None:
    """That of a save is lower, as none may be raised; a save does not fail of it."""
    wanted, done = [], []

    def setpriority(_which: int, _who: int, priority: int) -> None:
        wanted.append(priority)
        if is_refused:
            raise PermissionError

    monkeypatch.setattr(os, "getpriority", lambda *_: 10)
    monkeypatch.setattr(os, "setpriority", setpriority)

    class Connection:
        def wait_until_urgent(self, ended: int) -> None:
            os.eventfd_read(ended)

    saver_program._run((done.append(number) for number in range(3)), False, Connection())  # type: ignore[arg-type]
    assert wanted == [10 + saver_program.NICE] and done == [0, 1, 2]


def test_a_save_that_fails_leaves_no_open_file(writer: BlockWriter) -> None:
    """A disk that is full for a day is a thousand failed saves."""
    opened = []
    for _ in range(3):
        with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space"):
            writer.write(full.fileno(), parts(), size=sum(SIZES), is_one=True)
        opened.append(len(os.listdir(f"/proc/{pid()}/fd")))
    assert opened == opened[:1] * 3


def test_what_is_urgent_is_done_at_full_priority() -> None:
    """The thread of low priority leaves off, and another goes on where it was."""
    threads = []

    def steps() -> Iterator[None]:
        for number in range(100):
            threads.append((threading.get_ident(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
            if number == 10:
                urgent.set()
                while not told.is_set():
                    pass
            yield

    urgent, told = threading.Event(), threading.Event()

    class Connection:
        def wait_until_urgent(self, ended: int) -> None:
            urgent.wait()
            told.set()

    before = os.getpriority(os.PRIO_PROCESS, 0)
    saver_program._run(steps(), False, Connection())  # type: ignore[arg-type]
    assert threads[0][1] > before and threads[-1] == (threading.get_ident(), before)
    assert len(threads) == 100


def test_a_save_is_urgent_after_half_of_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or if somebody waits for it."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    writer, awaited = BlockWriter(), threading.Event()
    writer.begin(20.0, awaited.is_set)
    now[0] = 9.0
    assert not writer._is_urgent()
    now[0] = 11.0
    assert writer._is_urgent()
    writer.begin(None, awaited.is_set)
    assert not writer._is_urgent()
    awaited.set()
    assert writer._is_urgent()


def test_it_is_small(writer: BlockWriter, tmp_path: Path) -> None:
    """It loads no framework: below 60 MB."""
    written(writer, tmp_path / "file", parts())
    status = Path(f"/proc/{pid()}/status").read_text().splitlines()
    own = {line.split()[0]: int(line.split()[1]) for line in status if line.startswith("Rss")}
    assert own["RssAnon:"] + own["RssFile:"] < 60 << 10
