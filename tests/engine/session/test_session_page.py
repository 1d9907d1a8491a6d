"""A session's progress page: there while it runs, gone after its end, and what the next session learns from it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine import hang_stacks
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.telemetry import CheckpointRecord
from supervisor_core.process import runtime_directory
from supervisor_core.process.identity import boot_id
from supervisor_core.process.progress_page import PageReading, page_in, read_page
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.process.stacks_file import stacks_path
from supervisor_core.run.watch.liveness import chief_path, read_chief
from tests.story.holds import edit

Begin = Callable[..., SessionRecorder]

pytestmark = pytest.mark.skipif(boot_id() is None, reason="without a boot id a page does not count")


@pytest.fixture(autouse=True)
def directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for pages, the test's own."""
    found = tmp_path_factory.mktemp("pages")
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(found))
    return found


def page_of(run: SessionRecorder) -> PageReading:
    """What the page of a session says."""
    found = read_page(page_in(private_directory(), run.session_id))
    assert found is not None
    return found


def test_the_page_follows_the_session(begin: Begin, tmp_path: Path, directory: Path) -> None:
    """Each step and phase is on it at once; the liveness file names it; the end removes it."""
    run = begin()
    assert run._liveness is not None
    assert run._liveness._state.page == str(directory / f"{run.session_id}.page")
    assert (page_of(run).session, page_of(run).attempt, page_of(run).pid) == (run.session_id, 1, os.getpid())
    assert (page_of(run).phase, page_of(run).step, page_of(run).logdir) == ("starting", None, str(tmp_path))
    run.ready(restored_step=90)
    run.enter("training")
    for number in range(1, 4):
        run.progress.run_ended(True, 5.0, 5.0 + number)
        assert (page_of(run).step, page_of(run).steps, page_of(run).progress_at) == (90 + number, number, 5.0 + number)
    run.progress.run_ended(False, 9.0, 9.5)
    assert (page_of(run).step, page_of(run).progress_at, page_of(run).phase) == (93, 9.5, "training")
    assert (page_of(run).hang_timeout_secs, page_of(run).act_after_secs) == (300.0, 300.0)
    for number in range(4, 30):
        run.progress.run_ended(True, 5.0 + number, 6.0 + number)
    run.progress.sample()
    assert (page_of(run).hang_timeout_secs, page_of(run).act_after_secs) == (8.0, 300.0)
    run.progress.rewound(40)
    assert page_of(run).step == 40
    run.end(StopInfo(reason="completed"))
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("dumps", [True, False])
def test_a_session_takes_a_signal_only_for_the_dump(
    begin: Begin, directory: Path, monkeypatch: pytest.MonkeyPatch, dumps: bool
) -> None:
    """`Options.dump_blocked_stacks` turns timer and handler off; the file for its own looks stays."""
    made: list[int] = []

    def timer(descriptor: int) -> None:
        made.append(descriptor)
        raise OSError("none is free")

    monkeypatch.setattr(hang_stacks, "DeadManTimer", timer)
    run = begin(Options(dump_blocked_stacks=dumps))
    assert (len(made), stacks_path(directory, run.session_id).exists()) == (int(dumps), True)


def test_what_cannot_be_written_is_on_it(begin: Begin, writer: Any) -> None:
    """A failed save at once; events that cannot be written within a second; and their ends."""
    run = begin()
    assert (page_of(run).save_failures_in_a_row, page_of(run).events_fail) == (0, False)

    def save(error: str | None) -> None:
        path = None if error else "/run/ckpt-1"
        run.saved(
            CheckpointRecord(session=run.session_id, trigger="timer", path=path, step=1, secs=1.0,
                             blocked_secs=0.0, error=error)
        )  # fmt: skip

    for _ in range(2):
        save("OSError: no room")
    found = page_of(run)
    assert (found.save_failures, found.save_failures_in_a_row, found.save_error) == (2, 2, "OSError: no room")
    save(None)
    found = page_of(run)
    assert (found.save_failures, found.save_failures_in_a_row, found.save_error) == (2, 0, "")
    writer.failing, writer.last_error = True, OSError("no room")
    run._ticked(1)
    assert (page_of(run).events_fail, page_of(run).events_error) == (True, "no room")
    writer.failing = False
    run._ticked(1)
    assert (page_of(run).events_fail, page_of(run).events_error) == (False, "")


def test_a_worker_keeps_a_page_too(begin: Begin, directory: Path) -> None:
    """Named by its session id, which its heartbeat file has; so does a session without a logdir."""
    for arguments in ({"is_chief": False, "task": "worker:1"}, {"logdir": None}):
        run = begin(**arguments)
        run.progress.run_ended(True, 1.0, 2.0)
        assert (page_of(run).steps, page_of(run).step) == (1, None)
        run.end(StopInfo(reason="completed"))
        assert list(directory.iterdir()) == []


def test_a_reading_of_the_step_that_came_between_two_steps_is_put_right(begin: Begin) -> None:
    """The first one may include a step that was not counted yet; a later one that does not corrects it."""
    run = begin()
    run.progress.step_read(11, 0)
    run.progress.run_ended(True, 1.0, 2.0)
    assert page_of(run).step == 12
    run.progress.step_read(11, 1)
    assert (page_of(run).step, run.progress.step_estimate) == (11, 11)


@pytest.mark.parametrize("chmod", [True, False], ids=["refused", "full"])
def test_training_goes_on_without_a_page(
    begin: Begin,
    directory: Path,
    tmp_path: Path,
    chmod: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where every directory is refused, or the memory full, the log says so, once."""
    if chmod:
        directory.chmod(0o777)
        monkeypatch.setattr(runtime_directory, "_SHARED", ())
    else:
        monkeypatch.setattr("supervisor_core.process.page_writer.mmap.mmap", no_memory)
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        run = begin()
    run.ready(restored_step=90)
    run.progress.run_ended(True, 1.0, 2.0)
    assert run.status().global_step == 91
    run.end(StopInfo(reason="completed"))
    [line] = [text for record in caplog.records if "no progress page" in (text := record.getMessage())]
    assert line.startswith("This session has no progress page; training goes on, but no other process sees when it")
    assert list(directory.iterdir()) == []
    chief = read_chief(tmp_path)
    assert chief is not None and (chief.page is None) == chmod


def no_memory(*arguments: Any) -> Any:
    """Fail as where the memory is full."""
    raise OSError(12, "Cannot allocate memory")


def killed(begin: Begin, logdir: Path, **changes: Any) -> SessionRecorder:
    """A session at step 95 that leaves its files and page as a killed one does, its liveness at step 90."""
    run = begin()
    run.ready(restored_step=90)
    run.stop_ticks()
    for _ in range(5):
        run.progress.run_ended(True, 1.0, 2.0)
    run.progress.sample()
    page = page_in(private_directory(), run.session_id)
    left = page.read_bytes()
    run.end(StopInfo(reason="error"))
    page.write_bytes(left)
    edit(logdir, **{"pid": 1 << 30, "step": 90, "ended": None, **changes})
    os.utime(chief_path(logdir), (1e9, 1e9))  # long ago, so that the holder is dead on any machine
    return run


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 95),
        ({"boot": "another"}, 90),
        ({"boot": None}, 90),
        ({"session": "another"}, 90),
        ({"ended": "error"}, 90),
    ],
    ids=str,
)
def test_only_the_page_of_that_session_and_boot_counts(
    begin: Begin, writer: Any, tmp_path: Path, changes: dict[str, Any], step: int
) -> None:
    """What another session, or the machine before it was restarted, has left is not this one's."""
    killed(begin, tmp_path, **changes)
    begin().ready(restored_step=90)
    session = writer.of("session")[-1]
    assert (session.previous_step, session.previous_step_exact) == (step, step == 95 or "ended" in changes)


def test_a_killed_session_ran_until_its_last_sign_of_life(begin: Begin, writer: Any, tmp_path: Path) -> None:
    """Not only until its last heartbeat: the page's ticks and steps are later."""
    written_at = 1.7e9
    run = killed(begin, tmp_path, written_at=written_at, written_boot_secs=1.0, started_boot_secs=0.5)
    page = read_page(page_in(private_directory(), run.session_id))
    assert page is not None
    begin().ready(restored_step=90)
    session = writer.of("session")[-1]
    assert page.ticks > 0
    assert session.previous_seen_at == pytest.approx(written_at + page.tick_boot_secs - 1.0, abs=0.001)


def test_a_stall_is_on_the_page_with_its_place(begin: Begin, clock: Any) -> None:
    """As long as it lasts."""
    since = clock.now
    run = begin(Options(hang_timeout_secs={"training": 60.0}), clock=clock)
    run.stop_ticks()  # its ticks are the test's
    run.ready(restored_step=90)
    run.enter("training")
    for _ in range(70):  # sampled each second, so that it is no silence
        clock.now += 1.0
        run.tick()
    assert page_of(run).stalled_since == since
    assert page_of(run).location.startswith("MainThread at test_session_page.py:")
    run.progress.run_ended(True, since, clock.now)
    run.tick()
    assert (page_of(run).stalled_since, page_of(run).location) == (None, "")
