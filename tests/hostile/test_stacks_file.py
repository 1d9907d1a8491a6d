"""A file of stacks that somebody has made up."""

from __future__ import annotations

from pathlib import Path

from supervisor_core.process.stacks import MAX_FRAMES, MAX_LOCATION, location, user_line
from supervisor_core.process.stacks_file import MAGIC, MOST_BYTES, MOST_LETTERS, MOST_LOOKS, MOST_THREADS, read_stacks
from tests.cases import each

FRAME = '  File "x.py", line 1 in f\n'


@each(
    "text",
    [
        "Stack (most recent call first):\n" * 10_000,
        "== 1.000 t\n" + "".join(f"Thread 0x0 [{n}] (most recent call first):\n" + FRAME for n in range(5_000)),
        "Stack (most recent call first):\n" + FRAME * 10_000,
        "Stack (most recent call first):\n" + f'  File "{"x" * 100_000}", line 1 in f\n' + FRAME,
        "Stack (most recent call first):\n" + f'  File "\x1b[2J\x00.py", line 1 in {"f" * 4_000}\n',
        "x" * 3 * MOST_BYTES,
        "Thread 0x0 [" * 100_000,
    ],
)
def test_a_file_of_stacks_that_was_made_up_is_bounded(text: str, tmp_path: Path) -> None:
    """In looks, threads, frames and letters; what becomes a label is a printable line."""
    path = tmp_path / "s1.stacks"
    path.write_text(f"{MAGIC}\nsession s1\n\n{text}")
    reading = read_stacks(path)
    assert reading is not None and len(reading.looks) <= MOST_LOOKS
    for look in reading.looks:
        assert len(look.stacks) <= MOST_THREADS
        for frames in look.stacks.values():
            assert len(frames) <= MAX_FRAMES and all(len(frame) <= MOST_LETTERS for frame in frames)
            line = user_line(frames)
            if line is not None:
                assert location(line).isprintable() and len(location(line)) <= MAX_LOCATION
