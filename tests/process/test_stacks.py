"""Stacks of all threads: which lines they have, without a look at a source file, and which of them is the program's."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref

import pytest

from supervisor_core.process.stacks import MAX_FRAMES, MAX_LOCATION, location, main_stack, python_stacks, user_line

LIBRARY = "/usr/lib/python3.11/threading.py:327 Condition.wait"
PACKAGE = "/home/me/.venv/lib/python3.11/site-packages/tensorflow/session.py:900 run"
OURS = "/opt/supervisor_core/tf1/session.py:88 SupervisedSession.run"
OWN = "/home/me/train.py:88 main"


def test_stacks_name_each_thread_and_its_place() -> None:
    """The stack of a waiting thread has the function in which it waits, the innermost frame last."""
    waiting, go = threading.Event(), threading.Event()

    def wait_here() -> None:
        waiting.set()
        go.wait()

    thread = threading.Thread(target=wait_here, name="the-one-that-waits")
    thread.start()
    waiting.wait()
    stacks = python_stacks()
    go.set()
    thread.join()
    lines = stacks["the-one-that-waits"]
    assert any(line.startswith(f"{__file__}:") and line.endswith("wait_here") for line in lines)
    assert "threading.py" in lines[0]
    assert any("test_stacks_name_each_thread" in line for line in stacks[threading.current_thread().name])


def test_a_deep_stack_is_cut_to_its_innermost_frames() -> None:
    """A recursion of hundreds of calls gives no more than the bound, with the caller of the dump in it."""

    def descend(depth: int) -> dict[str, tuple[str, ...]]:
        return descend(depth - 1) if depth else python_stacks()

    lines = descend(300)[threading.current_thread().name]
    assert len(lines) == MAX_FRAMES
    assert "descend" in lines[0] and "python_stacks" in lines[-2]


def test_no_source_file_is_read() -> None:
    """Not one file is opened for the stacks: the sources may be on the mount that hangs."""
    code = """
import sys
from supervisor_core.process.stacks import python_stacks
opened = []
watching = False
sys.addaudithook(lambda event, args: opened.append(args[0]) if watching and event == "open" else None)
watching = True
stacks = python_stacks()
watching = False
print(opened, len(stacks["MainThread"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] 3\n"


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ((OWN, OURS, PACKAGE, LIBRARY), OWN),
        (("<string>:3 main", LIBRARY), "<string>:3 main"),
        ((PACKAGE, "<frozen runpy>:198 _run", LIBRARY), LIBRARY),
        ((), None),
    ],
)
def test_the_program_s_line_is_the_innermost_outside_of_libraries(stack: tuple[str, ...], line: str | None) -> None:
    """Of a stack without one, the innermost of all."""
    assert user_line(stack) == line


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (OWN, "train.py:88 in main"),
        (r"C:\runs\train.py:88 main", "train.py:88 in main"),
        ("train.py:88 in main", "train.py:88 in main"),
        ("train.py:88 Trainer.fit.<locals>.step", "train.py:88 in Trainer.fit.<locals>.step"),
        ("what\never", "what?ever"),
        ("a\x1b[31m.py:1 f\x00", "a?[31m.py:1 in f?"),
        ("train.py:88 " + "x" * 500, "train.py:88 in " + "x" * (MAX_LOCATION - 18) + "..."),
    ],
)
def test_a_location_is_one_printable_line(line: str, text: str) -> None:
    """The file without its directories, the line, and the function; as a label's value of bounded length."""
    assert location(line) == text


def test_no_frame_of_a_running_thread_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame objects of a thread that runs would be freed while they are read, or free its objects in this thread."""
    monkeypatch.delattr(sys, "_current_frames")
    held: list[weakref.ref[Held]] = []
    go, done = threading.Event(), threading.Event()

    class Held:
        pass

    def runs_été() -> None:
        mine = Held()
        held.append(weakref.ref(mine))
        done.set()
        go.wait()

    thread = threading.Thread(target=runs_été, name="runs")
    thread.start()
    done.wait()
    stacks = python_stacks()
    go.set()
    thread.join()
    assert any(line.endswith(" runs_été") for line in stacks["runs"]) and held[0]() is None
    assert any("test_no_frame_of" in line for line in main_stack())


def test_beyond_what_is_dumped_the_main_thread_is_found() -> None:
    """A dump has the newest 100 threads."""
    go = threading.Event()
    threads = [threading.Thread(target=go.wait, daemon=True) for _ in range(110)]
    for thread in threads:
        thread.start()
    stacks = python_stacks()
    go.set()
    assert any("test_beyond" in line for line in stacks["MainThread"]) and len(stacks) > 110
