"""Copies of runs (``cp -a``, rsync): they have no state, and name the original."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch import copies, place
from supervisor_core.run.watch.copies import CopyMarks
from supervisor_core.run.watch.logdir_watch import LogdirWatch

Look = Callable[[], dict[str, WatchedRun]]


@pytest.fixture
def look(tmp_path: Path, clock: Any) -> Look:
    """Returns the runs below the logdir, as one watch sees them at each call."""
    watch = LogdirWatch(str(tmp_path), clock=clock)
    return lambda: dict(watch.refresh().runs)


def kinds(runs: dict[str, WatchedRun]) -> dict[str, str]:
    """The state of each run, or ``copy of`` and the name of the original."""
    return {
        name: run.run.state if run.copy_of is None else f"copy of {Path(run.copy_of).name}"
        for name, run in runs.items()
    }


def test_a_copy_of_a_live_run_is_no_run(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """Whether it is copied once or again and again, it is never lost; a new session in it makes it a run."""
    file = writing.RunFile(tmp_path / "run").ready().beat(clock.now - 5, steps=5)
    assert kinds(look()) == {"run": "running"}
    shutil.copytree(tmp_path / "run", tmp_path / "backup")
    assert kinds(look()) == {"run": "running", "backup": "copy of run"}, "just as new"
    clock.now += 300
    file.beat(clock.now - 1, steps=9)
    runs = look()
    assert kinds(runs) == {"run": "running", "backup": "copy of run"}
    assert runs["backup"].run.sessions[-1].outcome == "unknown"
    shutil.copytree(tmp_path / "run", tmp_path / "backup", dirs_exist_ok=True)
    clock.now += 300
    assert kinds(look()) == {"run": "lost", "backup": "copy of run"}, "a death is told once, of the original"
    writing.RunFile(tmp_path / "backup", clock.now - 10, "next").ready(attempt=2).beat(clock.now - 1, steps=9)
    assert kinds(look()) == {"run": "copy of backup", "backup": "running"}, "continued elsewhere"


def test_the_record_tells_which_is_the_original(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """Of directories that have gone equally far the one in which the session says that it ran; it is not hidden where
    another one was made of it."""
    logdir = str(tmp_path / "z-run")
    file = writing.RunFile(tmp_path / "z-run").ready(logdir=logdir).beat(clock.now - 90, steps=5)
    shutil.copytree(tmp_path / "z-run", tmp_path / "a-copy")
    assert kinds(look()) == {"z-run": "lost", "a-copy": "copy of z-run"}
    writing.RunFile(tmp_path / "a-copy", clock.now - 10, "next").ready(attempt=2).beat(clock.now - 1, steps=9)
    assert kinds(look()) == {"z-run": "lost", "a-copy": "running"}
    file.stop(clock.now - 80)
    assert kinds(look()) == {"z-run": "completed", "a-copy": "running"}


def test_a_fork_of_a_run_that_has_ended_is_another_run(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """Also where the record does not say in which directory the session ran."""
    writing.RunFile(tmp_path / "base").ready().beat(clock.now - 50, steps=5).stop(clock.now - 40)
    shutil.copytree(tmp_path / "base", tmp_path / "tuned")
    assert kinds(look()) == {"base": "completed", "tuned": "copy of base"}
    writing.RunFile(tmp_path / "tuned", clock.now - 10, "next").ready(attempt=2).beat(clock.now - 1, steps=9)
    assert kinds(look()) == {"base": "completed", "tuned": "running"}


def test_a_run_of_another_writer_is_known_by_its_file(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """By its name, if that holds the process, and its first event: containers may share the name. The one that goes on
    is the original."""
    for name in ("a-copy", "run", "other"):
        file = writing.RunFile(tmp_path / name, clock.now - (9.0 if name == "other" else 10.0))
        file.path = file.path.rename(file.path.with_name("events.out.tfevents.1700000000.node-3.7.0"))
        file.scalar("loss", 1, clock.now - 5).scalar("loss", 2, clock.now - 4)
    assert kinds(look()) == {"a-copy": "running", "run": "copy of a-copy", "other": "running"}
    clock.now += 60
    writing.RunFile.scalar(file, "loss", 3, clock.now)
    run = tmp_path / "run" / file.path.name
    run.write_bytes(run.read_bytes() + file.path.read_bytes()[-50:])
    found = look()
    assert kinds(found) == {"a-copy": "copy of run", "run": "running", "other": "running"}
    assert (found["a-copy"].run.step, found["run"].run.step) == (2, 3)


def test_a_file_that_names_no_process_is_no_copy(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """A program may write several in the same second."""
    writing.RunFile(tmp_path / "run").scalar("loss", 1, clock.now - 5).scalar("loss", 2, clock.now - 4)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert kinds(look()) == {"run": "running", "copy": "running"}


def test_a_copy_of_a_live_run_of_this_machine_has_its_own_values(tmp_path: Path, writing: Any, clock: Any) -> None:
    """Also where the original is not read: its progress page and its process are not the copy's. Once the original
    was renamed, they are those of the run in any directory."""
    logdir, backup, host = tmp_path / "logs", tmp_path / "backup", socket.gethostname()
    file = writing.RunFile(logdir / "run", clock.now - 100).ready(logdir=str(logdir / "run"), host=host)
    file.beat(clock.now - 50, steps=5)
    page = ProgressPage.create(
        tmp_path, session_id=file.session_id, started_at=clock.now - 100, started_boot_secs=clock.now - 100
    )
    assert page is not None
    page.step_is(900, 1)
    page.update(phase="training", hang_timeout_secs=60.0)
    page.tick(at=clock.now - 10, boot_secs=clock.now - 10, main_thread_secs=1.0)
    page.times[LAST_PROGRESS] = clock.now - 10
    file.lives(clock.now - 45, steps=6, host=host, page=str(page.path))
    shutil.copytree(logdir / "run", backup / "run")

    def seen(directory: Path) -> tuple[str | None, str, int | None]:
        (found,) = LogdirWatch(str(directory), clock=clock).refresh().runs.values()
        assert found.copy_of is None or [each.kind for each in findings(found, clock.now)] == ["copy"]
        return found.copy_of, found.run.state, found.run.step

    assert seen(logdir) == (None, "running", 900)
    assert seen(backup) == (str(logdir / "run"), "unknown", 6)
    shutil.rmtree(logdir)
    assert seen(backup) == (None, "running", 900)
    page.close()


@pytest.mark.parametrize("names_itself", [False, True])
def test_a_forged_copy_hides_no_run(names_itself: bool, tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """Whoever can read a session's id can write newer events of it elsewhere: the run in its own place keeps its
    state."""
    writing.RunFile(tmp_path / "run", session="one").ready(logdir=str(tmp_path / "run")).beat(clock.now - 300, steps=5)
    named = str(tmp_path / ("forged" if names_itself else "run"))
    forged = writing.RunFile(tmp_path / "forged", session="one").ready(logdir=named).beat(clock.now - 1, steps=9)
    assert kinds(look())["run"] == "lost"
    forged.stop(clock.now)
    assert kinds(look())["run"] == "lost"


ALICE, MALLORY = 4001, 4002
"""Users of this machine."""


def owned(directory: Path, uid: int) -> None:
    """Give a directory to a user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to others")
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, uid)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("names_itself", [False, True])
@pytest.mark.parametrize("uid", [ALICE, None])
def test_the_training_is_its_users(
    uid: int | None, names_itself: bool, later: bool, tmp_path: Path, writing: Any, look: Look, clock: Any
) -> None:
    """Where a reader sees the logdir by another path than the training did: who goes further in a directory of another
    user hides nothing, and is a copy where the record names the user."""
    run = writing.RunFile(tmp_path / "run", clock.now - 400, "one").ready(logdir="/data/run", uid=uid)
    run.beat(clock.now - 300, steps=5)
    logdir = str(tmp_path / "x") if names_itself else "/data/run"
    forged = writing.RunFile(tmp_path / "x", clock.now - 400, "one").ready(logdir=logdir, uid=uid)
    forged.beat(clock.now - 1, steps=9)
    if later:
        writing.RunFile(tmp_path / "x", clock.now - 10, "two").ready(attempt=2, logdir=logdir).beat(
            clock.now - 1, steps=10
        )
    owned(tmp_path / "run", ALICE)
    owned(tmp_path / "x", MALLORY)
    is_copy = uid == ALICE and not names_itself and not later
    assert kinds(look()) == {"run": "lost", "x": "copy of run" if is_copy else "running"}
    forged.stop(clock.now)
    assert kinds(look())["run"] == "lost"


@pytest.mark.parametrize("kind", ["fuse.gcsfuse", "ext4", "nfs4"])
@pytest.mark.parametrize("top", ["/bucket", "/bucket/team"])
@pytest.mark.parametrize("is_linked", [False, True])
def test_the_recorded_path_below_another_mount_point(
    is_linked: bool, top: str, kind: str, tmp_path: Path, writing: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells the original where the same relative path is below both; else both are runs, and both are told."""
    mounted = tmp_path / "mounted here"
    monkeypatch.setattr(
        place, "_mounts", lambda: f"1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / {mounted!s} rw - {kind} b rw\n".replace(
            "mounted here", "mounted\\040here").encode()
    )  # fmt: skip
    logdir = f"{top}/alice/run" if top == "/bucket" else f"{top}/run"
    seen = mounted / "alice" / "run"
    writing.RunFile(seen, clock.now - 400, "one").ready(logdir=logdir).beat(clock.now - 300, steps=5)
    forged = writing.RunFile(mounted / "mallory" / "x", clock.now - 400, "one").ready(logdir=logdir)
    forged.beat(clock.now - 1, steps=9)
    writing.RunFile(mounted / "mallory" / "alice" / "run", clock.now - 400, "one").ready(logdir=logdir).beat(
        clock.now - 1, steps=9
    )
    (tmp_path / "link").symlink_to(mounted)
    runs = LogdirWatch(str(tmp_path / "link" if is_linked else mounted), clock=clock).refresh().runs
    other = "copy of run" if top == "/bucket" else "running"
    assert kinds(dict(runs)) == {"alice/run": "lost", "mallory/x": other, "mallory/alice/run": other}
    told = [name for name, run in runs.items() if any(each.kind == "lost" for each in findings(run, clock.now))]
    assert told == ["alice/run"]


def test_a_file_system_without_owners_decides_nothing(
    tmp_path: Path, writing: Any, look: Look, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a recorded path has none of the evidence: a copy on a bucket is shown beside it."""
    monkeypatch.setattr(place, "_mounts", lambda: f"2 1 0:2 / {tmp_path} rw - fuse.s3fs b rw\n".encode())
    writing.RunFile(tmp_path / "run", clock.now - 400, "one").ready().beat(clock.now - 300, steps=5)
    writing.RunFile(tmp_path / "x", clock.now - 400, "one").ready().beat(clock.now - 1, steps=9)
    assert kinds(look()) == {"run": "lost", "x": "running"}


def test_a_directory_at_the_recorded_path_is_the_training_users(
    tmp_path: Path, writing: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the training's machine, too, where only the original is read: whoever makes the directory that its record
    names, and a liveness file in it, hides nothing."""
    decoy, host = tmp_path / "decoy", socket.gethostname()
    run = writing.RunFile(tmp_path / "logs" / "run", clock.now - 400, "one")
    run.ready(logdir=str(decoy), host=host, uid=ALICE).beat(clock.now - 300, steps=5)
    writing.RunFile(decoy, clock.now - 400, "one").lives(clock.now - 1, steps=9, host=host)
    owned(tmp_path / "logs" / "run", ALICE)
    owned(decoy, MALLORY)
    (seen,) = LogdirWatch(str(tmp_path / "logs"), clock=clock).refresh().runs.values()
    assert (seen.copy_of, seen.run.state) == (None, "lost")
    owned(decoy, ALICE)
    (seen,) = LogdirWatch(str(tmp_path / "logs"), clock=clock).refresh().runs.values()
    assert seen.copy_of == str(decoy)


def test_thousands_of_copies_take_time_in_proportion(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """Each is compared with a few."""
    seen: list[object] = []
    file = writing.RunFile(tmp_path / "run", session="one").ready(logdir="/data/run").beat(clock.now - 5, steps=5)
    (watched,) = look().values()
    runs = {str(number): replace(watched, directory=f"/logs/{number}") for number in range(3000)}
    compare, copies._ran_there = copies._ran_there, lambda *args, **more: seen.append(args) or compare(*args, **more)
    try:
        CopyMarks[str]().marked(runs)
    finally:
        copies._ran_there = compare
    assert len(seen) <= 3000 * copies.MOST_COMPARED and file


def test_another_name_of_a_directory_is_a_copy(tmp_path: Path, writing: Any, look: Look, clock: Any) -> None:
    """A link to a run's directory is not a second run, and takes neither its name nor its state, whatever its name is,
    also where the logdir itself is a link."""
    run = tmp_path / "real" / "logs" / "team" / "run"
    writing.RunFile(run).ready(logdir=str(run)).beat(clock.now - 5, steps=5)
    for link in (tmp_path / "real" / "logs" / "evil", tmp_path / "real" / "logs" / "evil" / "team"):
        link.mkdir()
        (link / "run").symlink_to(run)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "logs")
    for logdir in (tmp_path / "real" / "logs", tmp_path / "link"):
        found = LogdirWatch(str(logdir), clock=clock).refresh().runs
        assert {name for name, seen in found.items() if seen.copy_of is None} == {"team/run"}
        assert found["team/run"].run.state == "running" and len(found) == 3
