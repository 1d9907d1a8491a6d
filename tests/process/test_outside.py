"""The stacks of another process, from py-spy: what it prints, and why it may print nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.install import PY_SPY, pip_install
from supervisor_core.process import outside
from supervisor_core.process.outside import PERMISSION, allow_tracer, find_py_spy, left_behind, outside_stacks, parse


def thread(name: str | None, id: int, *frames: tuple[str, int, str], **more: Any) -> dict[str, Any]:
    """A thread as py-spy prints it, the innermost frame first."""
    printed = [{"filename": file, "line": line, "name": function} for file, line, function in frames]
    return {"pid": 5, "thread_name": name, "os_thread_id": id, "frames": printed, **more}


@pytest.mark.parametrize(("threads", "name"), [(1, "MainThread"), (2, "a thread without a name")])
def test_a_thread_without_name_and_id_is_the_main_one_if_it_is_the_only_one(threads: int, name: str) -> None:
    """py-spy may find neither, as in Python 3.10 while a thread holds the interpreter's lock in native code."""
    nameless = [
        {"pid": 5, "thread_name": None, "os_thread_id": None, "frames": [], "owns_gil": True} for _ in range(threads)
    ]
    found = parse(json.dumps(nameless).encode())
    assert found.holds_lock is not None and found.holds_lock.startswith(name)
    assert len(found.stacks) == threads
    assert found.threads == ({name: 5} if threads == 1 else {})


def test_threads_are_as_from_inside() -> None:
    """Outermost frame first; two of one name stay two; the holder of the lock is named."""
    found = parse(
        json.dumps(
            [
                thread("w", 7, ("/x/a.py", 1, "f")),
                thread("w", 8),
                thread(None, 9, ("/x/b.py", 2, "g")),
                thread("MainThread", 5, ("/x/in.py", 12, "next"), ("/x/train.py", 88, "main"), owns_gil=True),
                "odd",
                {"frames": "odd"},
            ]
        ).encode()
    )
    assert found.stacks == {
        "w": ("/x/a.py:1 f",),
        "w (8)": (),
        "thread 9": ("/x/b.py:2 g",),
        "MainThread": ("/x/train.py:88 main", "/x/in.py:12 next"),
    }
    assert found.threads == {"w": 7, "w (8)": 8, "thread 9": 9, "MainThread": 5}
    assert (found.holds_lock, found.problem) == ("MainThread", None)


@pytest.mark.parametrize("output", [b"", b"{}", b"[]", b"[1]", b"[" * 100_000, b'{"a'])
def test_odd_output_is_a_problem(output: bytes) -> None:
    """Nothing is raised."""
    found = parse(output)
    assert found.stacks == {} and found.problem is not None


def program(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script stand for py-spy."""
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    monkeypatch.setattr(outside, "find_py_spy", lambda: str(path))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", PERMISSION),
        ("echo 'Error: Operation not permitted (os error 1)' >&2; exit 1", PERMISSION),
        ("echo 'Error: x' >&2; echo 'No such process (os error 3)' >&2; exit 1", "there is no such process"),
        ("echo 'Error: Failed to find a python version' >&2; exit 1", "py-spy failed: Failed to find a python version"),
        ("exit 1", "py-spy failed: no reason given"),
        ("echo nonsense", "py-spy printed something else"),
    ],
)
def test_a_failure_has_a_reason(text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that say what to do, where something can be done."""
    program(tmp_path, text, monkeypatch)
    found = outside_stacks(1, timeout_secs=60.0)
    assert found.stacks == {} and found.problem is not None and found.problem.startswith(problem)


@pytest.mark.parametrize("where", ["", ">&2"])
def test_endless_output_is_not_read_to_its_end(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How deep its stacks are, and how long the names of its files, a program decides: the reader keeps 16 MiB."""
    program(tmp_path, f"exec yes {'x' * 4000} {where}", monkeypatch)
    tracemalloc.start()
    try:
        found = outside_stacks(1, timeout_secs=600.0)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert found.stacks == {} and "printed more than 16 MiB: the stacks" in (found.problem or "")


@pytest.mark.skipif(sys.platform != "linux", reason="another process has limits on Linux only")
@pytest.mark.real
def test_py_spy_takes_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    """It holds all frames at once, each with the name of its file: 64 threads, a thousand deep, of 4,000 letters."""
    if find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    deep = tmp_path / "deep.py"
    deep.write_text(
        "import sys, threading\n"
        "sys.setrecursionlimit(5000)\n"
        "code = 'def f(n):\\n    if n: f(n - 1)\\n    else: at.wait(); go.wait()\\n'\n"
        "at, go, names = threading.Barrier(65), threading.Event(), {}\n"
        "exec(compile(code, '/' + 'x' * 4000, 'exec'), names)\n"
        "names.update(at=at, go=go)\n"
        "for _ in range(64): threading.Thread(target=names['f'], args=(900,), daemon=True).start()\n"
        "at.wait()\n"
        "print('deep', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, deep], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"deep\n"
        found = outside_stacks(process.pid, timeout_secs=600.0)
        process.kill()
    assert found.problem is not None
    if found.problem == PERMISSION:
        pytest.skip("the kernel does not allow it here")
    assert "py-spy needs more than 512 MiB of memory: the stacks of that process are too deep" in found.problem


def test_what_holds_its_output_open_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that py-spy has left behind, with SIGTERM ignored, has the pipe."""
    started = tmp_path / "pid"
    program(tmp_path, f"trap '' TERM; sleep 600 & echo $! > {started}.new; mv {started}.new {started}", monkeypatch)
    found = outside_stacks(1, timeout_secs=0.5)
    while not started.exists():  # a slow machine: it was killed before, and is tried again
        found = outside_stacks(1, timeout_secs=5.0)
    assert "did not end within" in (found.problem or "")
    end = Path(f"/proc/{int(started.read_text())}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):  # it is reaped at some moment
        while end.read_text().rpartition(")")[2].split()[0] != "Z":
            os.sched_yield()


class Unkillable:
    """A process in state D: SIGKILL changes nothing until the device answers."""

    pid = 4711
    answers = threading.Event()

    def __init__(self, *args: object, **options: object) -> None:
        self.stdout, self.stderr = (os.fdopen(os.pipe()[0]) for _ in range(2))  # nothing is written

    def __enter__(self) -> Unkillable:
        return self

    def __exit__(self, *error: object) -> None:
        self.answers.wait()
        self.stdout.close()
        self.stderr.close()


def test_a_py_spy_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the stacks goes on."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(outside, "find_py_spy", lambda: "py-spy")
    monkeypatch.setattr(outside, "END_SECS", 0.01)
    monkeypatch.setattr(subprocess, "Popen", Unkillable)
    monkeypatch.setattr(os, "killpg", lambda *signal: killed.append(signal))
    before = set(threading.enumerate())
    try:
        assert "nor when it was killed" in (outside_stacks(1, timeout_secs=0.01).problem or "")
        assert left_behind() == {4711}
    finally:
        Unkillable.answers.set()
        for thread in set(threading.enumerate()) - before:
            thread.join()
    assert killed == [(4711, signal.SIGKILL)]
    assert left_behind() == frozenset()


def test_without_py_spy_what_to_install_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There are machines for which it has no wheel."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = outside_stacks(1).problem or ""
    assert said == f"py-spy is not installed; to install it: {pip_install(PY_SPY)}" and str(tmp_path / "python") in said


@pytest.mark.parametrize(("value", "allowed"), [("4711", [4711]), *((each, []) for each in ("0", "-1", "x", "", None))])
def test_a_tracer_is_allowed_that_the_environment_names(
    value: str | None, allowed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restarter and what it starts; never everyone."""
    calls: list[int] = []
    monkeypatch.setattr(outside, "set_tracer", calls.append)
    environment = {} if value is None else {outside.TRACER_VARIABLE: value}
    allow_tracer(environment)
    assert calls == allowed
