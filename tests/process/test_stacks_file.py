"""The file of stacks in memory: what a session writes there, and what a reader makes of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_core.process.stacks_file import (
    MAGIC,
    MOST_BYTES,
    StacksFile,
    StacksLook,
    look_text,
    parse,
    read_stacks,
    stacks_path,
)

STACKS = {"MainThread": ("/x/train.py:88 main", "/x/in put.py:12 Data.<locals>.next"), "a[b]": ("C:\\y.py:3 f",)}
BY_TIMER = (
    b'Stack (most recent call first):\n  File "/x/input.py", line 12 in next\n  File "/x/train.py", line 88 in main\n'
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of the session s1 is."""
    return stacks_path(tmp_path, "s1")


def test_looks_are_read_as_written(path: Path) -> None:
    """With the session, the process, titles in one line, and all frames in their order; only its user can read it."""
    file = StacksFile(path, "s1")
    file.add(look_text("no progress\nfor 30 s", 1_700_000_000.25, STACKS))
    file.add(look_text("again", 1_700_000_010.0, {}))
    reading = read_stacks(path)
    assert reading is not None
    assert (reading.session, reading.pid) == ("s1", os.getpid())
    assert [(look.title, look.at, look.by_timer) for look in reading.looks] == [
        ("no progress?for 30 s", 1_700_000_000.25, False),
        ("again", 1_700_000_010.0, False),
    ]
    assert reading.looks[0].stacks == {"MainThread": STACKS["MainThread"], "a[b)": STACKS["a[b]"]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.close(remove=True)
    assert read_stacks(path) is None


def test_what_the_timer_wrote_is_found_once(path: Path) -> None:
    """What the session itself adds is not the timer's. The newest counts."""
    file = StacksFile(path, "s1")
    file.add(look_text("no progress", 1.0, STACKS))
    assert file.by_timer() is None
    os.write(file.descriptor, BY_TIMER.replace(b"88", b"77") + BY_TIMER)
    look = StacksLook(
        title="Python could not run", at=None, stacks={"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next")}
    )
    assert file.by_timer() == look
    assert file.by_timer() is None
    reading = read_stacks(path)
    assert reading is not None and reading.looks[-1] == look and len(reading.looks) == 3
    file.close(remove=False)
    assert path.exists()


def test_it_does_not_grow_without_end(path: Path) -> None:
    """After the bound the earlier looks are dropped, the head stays."""
    file = StacksFile(path, "s1")
    file.add("x" * (MOST_BYTES + 1))
    file.add(look_text("after it", 5.0, STACKS))
    assert path.stat().st_size < 1000
    reading = read_stacks(path)
    assert reading is not None and reading.session == "s1" and [look.title for look in reading.looks] == ["after it"]
    assert file.by_timer() is None
    file.close(remove=True)


def test_an_older_file_of_the_same_name_is_replaced(path: Path) -> None:
    """A link is not followed."""
    victim = path.with_name("victim")
    victim.write_text("mine")
    path.symlink_to(victim)
    StacksFile(path, "s1").close(remove=False)
    assert victim.read_text() == "mine" and not path.is_symlink()


def test_what_is_no_file_of_stacks_is_not_read(path: Path) -> None:
    """A missing one, one of other content, a link, a FIFO."""
    assert read_stacks(path) is None
    path.write_text("something else")
    assert read_stacks(path) is None
    path.write_text(MAGIC)
    link = path.with_name("link")
    link.symlink_to(path)
    assert read_stacks(link) is None
    fifo = path.with_name("fifo")
    os.mkfifo(fifo)
    assert read_stacks(fifo) is None


LINES = st.sampled_from(
    (
        MAGIC, "session s", "pid 1", "pid 99999999999999", "== 1.000 t", "== x t", "Stack (most recent call first):",
        "Thread 0x00 [a] (most recent call first):", "Thread 0x00 (most recent call first):",
        '  File "a", line 1 in f', '  File "a", line ??? in f', '  File "a", line ٣ in f', "", "\udcff",
    )
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(st.binary(max_size=200), st.lists(LINES).map(lambda lines: "\n".join(lines).encode("utf-8", "replace")))
)
def test_any_bytes_can_be_read(data: bytes) -> None:
    """Nothing is raised, and what is returned is well-formed."""
    reading = parse(data)
    for look in reading.looks:
        assert look.by_timer == (look.at is None)
        assert all(":" in frame for frames in look.stacks.values() for frame in frames)
