"""The progress page: what is written is what is read, by the published layout, whatever happens to writer and file."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.base.options import PHASES
from supervisor_core.process import page_writer, progress_page
from supervisor_core.process.identity import boot_id, started_ticks
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import (
    LAST_PROGRESS,
    PAGE_BYTES,
    STEPS,
    PageReading,
    pages_in,
    read_page,
    remove_oldest,
)

DOC = Path(__file__).parents[2] / "docs" / "progress-page.md"


def training(directory: Path, session: str = "6f1d3c0a9b7e4d21") -> ProgressPage:
    """A page of this process at global step 1,042, in a stall, that cannot write."""
    page = ProgressPage.create(
        directory, session_id=session, attempt=3, started_at=1e9, started_boot_secs=50.0, logdir="/logs/run"
    )
    page.step_is(1000, 2)
    page.update(phase="training", hang_timeout_secs=30.0, act_after_secs=300.0)
    page.counts[STEPS], page.times[LAST_PROGRESS] = 21, 77.5
    page.tick(at=80.0, boot_secs=95.0, main_thread_secs=1.5)
    page.update(stalled_since=77.5, location="MainThread at train.py:88 in step", activity="waits")
    page.update(
        save_failures=5, save_failures_in_a_row=2, save_error="OSError: renamed", events_fail=True, events_error="full"
    )
    return page


def reading(page: ProgressPage | Path) -> PageReading:
    """What a page's file says."""
    found = read_page(path_of(page) if isinstance(page, ProgressPage) else page)
    assert found is not None
    return found


def path_of(page: ProgressPage) -> Path:
    """The page's file."""
    assert page.path is not None
    return page.path


def altered(directory: Path, alter: Callable[[bytearray], object]) -> Path:
    """A copy of a page with other bytes; before, it can be read."""
    path = directory / "altered.page"
    path.write_bytes(path_of(training(directory)).read_bytes())
    assert read_page(path) is not None
    data = bytearray(path.read_bytes())
    alter(data)
    path.write_bytes(data)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """All fields, and what follows from them."""
    page = training(tmp_path)
    found = reading(page)
    assert (found.session, found.attempt, found.pid, found.logdir) == (
        "6f1d3c0a9b7e4d21",
        3,
        os.getpid(),
        "/logs/run",
    )
    assert (found.started_at, found.started_boot_secs) == (1e9, 50.0)
    assert (found.steps, found.step, found.phase) == (21, 1042, "training")
    assert (found.hang_timeout_secs, found.act_after_secs) == (30.0, 300.0)
    assert found.is_step_exact
    assert (found.progress_at, found.progress_boot_secs) == (77.5, 92.5)
    assert (found.ticks, found.tick_at, found.tick_boot_secs, found.main_thread_secs) == (1, 80.0, 95.0, 1.5)
    assert (found.stalled_since, found.location, found.ended) == (77.5, "MainThread at train.py:88 in step", False)
    assert found.activity == "waits"
    assert found.stacks == tmp_path / "6f1d3c0a9b7e4d21.stacks"
    assert (found.save_failures, found.save_failures_in_a_row, found.save_error) == (5, 2, "OSError: renamed")
    assert (found.events_fail, found.events_error) == (True, "full")
    page.update(save_failures_in_a_row=0, save_error="", events_fail=False, events_error="")
    again = reading(page)
    assert (again.save_failures, again.save_failures_in_a_row, again.save_error) == (5, 0, "")
    assert (again.events_fail, again.events_error, again.location) == (False, "", found.location)
    assert found.process_started_ticks == started_ticks(os.getpid())
    if boot_id() is not None:
        assert (found.is_here, found.is_running, found.is_dead) == (True, True, False)


def test_a_new_page_knows_nothing(tmp_path: Path) -> None:
    """No step was read, the phase is unknown, no hang timeout, no stall: absent, not zero."""
    found = reading(ProgressPage.create(tmp_path, session_id="new"))
    assert (found.step, found.phase, found.hang_timeout_secs, found.stalled_since) == (None, "unknown", None, None)
    assert found.act_after_secs is None
    assert (found.steps, found.ticks, found.location, found.logdir) == (0, 0, "", None)


def test_the_layout_is_the_documented_one(tmp_path: Path) -> None:
    """A reader that knows only the documentation's tables reads the same."""
    data = path_of(training(tmp_path)).read_bytes()
    assert len(data) == PAGE_BYTES
    tables = DOC.read_text().split("## Byte by byte")[1]
    head, slot, phases = re.split(r"\| offset in the slot \||\| phase \| name \|", tables)
    at = 512 * (1 + documented(head, data)[64] % 2)
    assert documented(head, data)[64] >> 32 == zlib.crc32(data[at : at + 512])
    values = documented(head, data)
    assert [values[place] for place in (0, 8, 16, 32, 40, 48)] == ["SUPVPAGE", 1, os.getpid(), 1e9, 50.0, 3]
    assert [values[place] for place in (72, 80, 88, 96, 104, 112)] == [21, 77.5, 1, 80.0, 95.0, 1.5]
    assert [values[place] for place in (128, 2560)] == ["6f1d3c0a9b7e4d21", "/logs/run"]
    assert values[1536] == str(tmp_path / "6f1d3c0a9b7e4d21.stacks")
    assert [values[place] for place in (3584, 3840)] == ["OSError: renamed", "full"]
    inside = documented(slot, data[at : at + 512])
    assert inside.pop(128) == "MainThread at train.py:88 in step"
    assert inside.pop(72) == zlib.crc32(data[3584:4096])
    assert inside == {0: 1000, 8: 2, 16: 1 + 2 + 16 + 32 + 64, 24: 3, 32: 30.0, 40: 77.5, 48: 300.0, 56: 5, 64: 2}
    names = dict(re.findall(r"^\| (\d+) \| (\w+) \|$", phases, re.MULTILINE))
    assert [names[str(number)] for number in range(len(names))] == list(progress_page.PHASES)


def documented(table: str, data: bytes) -> dict[int, object]:
    """The numbers and texts that a table describes, by offset."""
    codes = {"u64": "<Q", "i64": "<q", "f64": "<d"}
    found: dict[int, object] = {}
    for at, length, kind in re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", table, re.MULTILINE):
        if kind == "text":
            found[int(at)] = data[int(at) : int(at) + int(length)].rstrip(b"\0").decode()
        elif kind in codes:
            found[int(at)] = struct.unpack_from(codes[kind], data, int(at))[0]
    return found


def test_a_page_of_an_older_version_has_one_timeout(tmp_path: Path) -> None:
    """It has zeros where the second one is: not known, which is neither at once nor never. Nor does it say what cannot
    be written, which is not the same as that all can."""

    def age(data: bytearray) -> None:
        at = 512 * (1 + data[64] % 2)
        data[at + 16 : at + 24] = struct.pack("<Q", 19)
        data[at + 48 : at + 80] = bytes(32)
        data[68:72] = struct.pack("<I", zlib.crc32(data[at : at + 512]))
        data[3584:] = bytes(512)

    found = reading(altered(tmp_path, age))
    assert (found.hang_timeout_secs, found.act_after_secs) == (30.0, None)
    assert (found.save_failures, found.save_failures_in_a_row, found.save_error) == (None, None, "")
    assert not found.events_fail


def test_every_phase_has_a_number(tmp_path: Path) -> None:
    """What a session can be doing is read back by name; what a later version may add is unknown."""
    assert set(PHASES) <= set(progress_page.PHASES)
    page = training(tmp_path)
    for phase in PHASES:
        page.update(phase=phase, hang_timeout_secs=None, act_after_secs=None)
        assert (reading(page).phase, reading(page).hang_timeout_secs) == (phase, None)
    page.update(phase="dreaming", hang_timeout_secs=1.0, act_after_secs=1.0)
    assert reading(page).phase == "unknown"


def test_what_does_not_fit(tmp_path: Path) -> None:
    """A place is cut between letters; a cut path would be another path, so it is left out, and so is a global step."""
    page = ProgressPage.create(tmp_path, session_id="long", logdir="/x" * 600)
    page.update(stalled_since=1.0, location="é" * 400)
    page.step_is(1 << 70, 1)
    found = reading(page)
    assert (found.logdir, found.location, found.step) == (None, "é" * 192, None)


def put(at: int, new: bytes) -> Callable[[bytearray], object]:
    """Put bytes in place of as many others."""
    return lambda data: data.__setitem__(slice(at, at + len(new)), new)


def test_texts_that_were_cut_off_by_a_kill_are_unknown(tmp_path: Path) -> None:
    """The numbers, which are in a slot, are those of the last whole change."""
    found = reading(altered(tmp_path, put(3584, b"Runtim")))
    assert (found.save_failures_in_a_row, found.save_error, found.events_error) == (2, "", "")
    assert found.events_fail


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.clear(),
        lambda data: data.pop(),
        lambda data: data.append(0),
        put(0, bytes(PAGE_BYTES)),
        put(0, b"X"),
        put(8, b"\2"),
        lambda data: put(512, bytes(byte ^ 1 for byte in data[512:1536]))(data),
        put(80, struct.pack("<d", math.nan)),
        put(32, struct.pack("<d", math.inf)),
        put(72, b"\xff" * 8),
        put(128, bytes(64)),
    ],
    ids=["empty", "short", "long", "zeros", "magic", "version", "slots", "nan", "infinite", "steps", "nameless"],
)
def test_what_is_no_page_is_none(tmp_path: Path, damage: Callable[[bytearray], object]) -> None:
    """A reader gets a page that is whole, or nothing; never an error."""
    assert read_page(altered(tmp_path, damage)) is None


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    """The path may come from a stranger's logdir: no link is followed, no pipe waited for, no name is an error."""
    (tmp_path / "link").symlink_to(path_of(training(tmp_path)))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "link", tmp_path / "pipe", tmp_path, tmp_path / "missing", "/dev/zero", "a\0b"):
        assert read_page(path) is None


def test_a_change_that_was_cut_off_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it wrote the new state, a process leaves the old one."""
    page = training(tmp_path)

    def killed(data: bytes) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(page_writer.zlib, "crc32", killed)
    with pytest.raises(KeyboardInterrupt):
        page.update(phase="checkpointing", hang_timeout_secs=1.0, act_after_secs=1.0)
    monkeypatch.undo()
    assert (reading(page).phase, reading(page).step) == ("training", 1042)


def test_a_reader_never_sees_half_a_change(tmp_path: Path) -> None:
    """While another thread changes step and phase together, each reading holds a pair that was written."""
    page = training(tmp_path)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            page.update(phase=PHASES[number % 5], hang_timeout_secs=float(number % 5), act_after_secs=float(number % 5))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [reading(page) for _ in range(500)]
    finally:
        stop.set()
        writer.join()
    for each in found:
        assert (each.phase, each.hang_timeout_secs) == ("training", 30.0) or each.phase == PHASES[
            int(each.hang_timeout_secs or 0)
        ]


def test_an_end_removes_the_page(tmp_path: Path) -> None:
    """Or leaves it, marked; what is written later goes nowhere, and a second end changes nothing."""
    page = training(tmp_path)
    path = path_of(page)
    page.close()
    assert not path.exists()
    page.counts[STEPS] = 5
    page.update(phase="stopped", hang_timeout_secs=None)
    page.close()
    training(tmp_path).close(remove=False)
    assert (reading(path).ended, reading(path).step) == (True, 1042)


def test_a_full_memory_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised when the page is created, not when a step is stored, and no file stays."""

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        training(tmp_path)
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) - 1)
    with pytest.raises(OSError, match="in full"):
        training(tmp_path)
    assert list(tmp_path.iterdir()) == []


FORKS = """
import json, os, sys
from pathlib import Path
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS, read_page

page = ProgressPage.create(Path(sys.argv[1]), session_id="parent")
path = page.path
page.update(phase="training", hang_timeout_secs=30.0, act_after_secs=300.0)
page.counts[STEPS] = 7
child = os.fork()
if not child:
    page.counts[STEPS], page.times[LAST_PROGRESS] = 1000, 1000.0
    page.update(phase="stopping", hang_timeout_secs=1.0, act_after_secs=1.0)
    page.tick(at=1.0, boot_secs=1.0, main_thread_secs=1.0)
    page.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
found = read_page(path)
print(json.dumps([found.steps, found.phase, found.progress_at, found.ticks, found.ended]))
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_leaves_the_page_alone_and_a_kill_leaves_it_whole(tmp_path: Path) -> None:
    """What a child stores, and its end, change nothing. After `kill -9` the last step is there; the process is dead."""
    done = subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == [7, "training", 0.0, 0, False], done.stderr
    found = reading(tmp_path / "parent.page")
    assert (found.steps, found.is_running) == (7, False)
    assert found.is_dead == (boot_id() is not None)


@pytest.mark.skipif(boot_id() is None, reason="without a boot id no process is known to be dead")
def test_of_dead_processes_the_newest_pages_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much, in number or in size, goes with its stacks. Those of processes that live, or may, are not
    dead; other files are no pages."""
    monkeypatch.setattr(progress_page, "MOST_DEAD", 4)
    training(tmp_path, "living")
    (tmp_path / "other.page").write_text("of another program")
    for number in range(7):
        ProgressPage.create(tmp_path, session_id=f"{number}", started_at=1e9 + number)
        rewrite(tmp_path / f"{number}.page", 24, struct.pack("<q", 1))  # the process id belongs to another process now
        (tmp_path / f"{number}.stacks").write_text("MainThread")
    rewrite(tmp_path / "0.page", 256, b"pid:[1]\0".ljust(64, b"\0"))  # in another container
    dead = [page for page in pages_in([tmp_path, tmp_path / "missing"]) if page.is_dead]
    assert sorted(page.session for page in dead) == ["1", "2", "3", "4", "5", "6"]
    remove_oldest(dead)
    assert sorted(path.stem for path in tmp_path.glob("*.page")) == ["0", "3", "4", "5", "6", "living", "other"]
    assert sorted(path.stem for path in tmp_path.glob("*.stacks")) == ["0", "3", "4", "5", "6"]
    monkeypatch.setattr(progress_page, "MOST_DEAD_BYTES", 10_000)
    remove_oldest([page for page in dead if page.path.exists()])
    assert sorted(path.stem for path in tmp_path.glob("*.page")) == ["0", "5", "6", "living", "other"]


def rewrite(path: Path, at: int, data: bytes) -> None:
    """Change bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
