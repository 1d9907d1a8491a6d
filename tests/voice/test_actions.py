"""Each finding says what to do first: its commands are pasted into a shell, for a run that has it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.log import command_line
from supervisor_core.run.judge.finding import KINDS, Finding
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock
from tests.story.stories import STORIES

pytestmark = pytest.mark.real

NO_ACTION = {"copy", "not_captured", "restarted", "resumed_not_exactly", "stopped"}
"""Kinds that ask nobody for anything."""
SAYS = {
    "inspect": ({0}, ""),
    "verify": ({0, 1}, "  good     step "),
    "rewind": ({0}, "The next start in "),
    "stacks": ({2}, "No session trains in "),  # its process is another machine's
    "df": ({0}, "Avail"),
    "ls": ({0}, "root"),
}
"""Command -> statuses, and what it prints: `inspect` the finding itself."""


def _with_session(**fields: Any) -> Callable[[WatchedRun], WatchedRun]:
    def change(watched: WatchedRun) -> WatchedRun:
        last = replace(watched.run.sessions[-1], **fields)
        return replace(watched, run=replace(watched.run, sessions=(*watched.run.sessions[:-1], last)))

    return change


def _lacking(watched: WatchedRun) -> WatchedRun:
    saved = replace(watched.run.checkpoints[-1], not_captured=("The state of rng is not captured.",))
    return replace(watched, run=replace(watched.run, checkpoints=(*watched.run.checkpoints[:-1], saved)))


CHANGED: Mapping[str, tuple[str, Callable[[WatchedRun], WatchedRun]]] = {
    "unreachable": ("trains", lambda watched: replace(watched, unreachable=True, problem="it is gone")),
    "read_error": ("has a damaged checkpoint", lambda watched: replace(watched, problem="a record is damaged")),
    "events_failing": ("trains", _with_session(events_error="[Errno 28] No space left on device")),
    "disk_low": ("has a loss that is NaN", lambda watched: replace(watched, free_bytes=1)),
    "clock_skew": ("trains", lambda watched: replace(watched, run=replace(watched.run, clock_skew_secs=120.0))),
    "completed_unsaved": (
        "cannot save any more",
        lambda watched: replace(watched, run=replace(watched.run, state="completed")),
    ),
    "not_captured": ("trains", _lacking),
    "copy": ("trains", lambda watched: replace(watched, copy_of="other")),
}
"""Kind -> a story that has it after a change: nothing on disk says it without a clock or a full disk."""


@pytest.fixture(scope="module")
def go_on() -> list[Callable[[float], Any]]:
    """What lets the runs that live go on: while the first commands run, the others would be lost."""
    return []


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, go_on: list[Callable[[float], Any]]) -> Mapping[str, list[Finding]]:
    """What is said of a story for each kind, and of all in which the loss was not finite."""
    logdir, now = tmp_path_factory.mktemp("it's here"), time.time()
    wanted = {name for name, _ in CHANGED.values()}
    for kind in KINDS:
        of_kind = [name for name, story in STORIES.items() if f" {kind}" in "".join(f" {each}" for each in story.says)]
        wanted.update(of_kind if kind == "loss_not_finite" else of_kind[:2])
    for name in wanted:
        go_on.append(STORIES[name].write(logdir / name, now))
    runs = LogdirWatch(str(logdir), clock=StillClock(now)).refresh().runs
    every = [runs[name] for name in sorted(wanted)] + [change(runs[name]) for name, change in CHANGED.values()]
    found: dict[str, list[Finding]] = {}
    for each in (finding for watched in every for finding in findings(watched, now)):
        found.setdefault(each.kind, []).append(each)
    return found


@pytest.fixture(scope="module")
def shell(
    tmp_path_factory: pytest.TempPathFactory, go_on: list[Callable[[float], Any]]
) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Returns what runs a command as somebody pastes it, in another directory."""
    home = tmp_path_factory.mktemp("home")
    program = home / "bin" / "tb-supervisor"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom supervisor_core.cli import main\nmain(prog_name='tb-supervisor')\n")
    program.chmod(0o755)
    paths = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[2])}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        for each in go_on:
            each(time.time())
        return subprocess.run(
            ["bash", "-c", command], cwd=home, env={**os.environ, **paths, "COLUMNS": "200"}, capture_output=True,
            text=True, timeout=100, check=False,
        )  # fmt: skip

    return run


def commands_of(found: Finding) -> list[str]:
    """The commands in what a finding says to do first."""
    action = found.action or ""
    return [action] if found.is_command else re.findall(r"\(((?:tb-supervisor|df|ls|mv) .+?)\)(?=[,:])", action)


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_do_first(said: Mapping[str, list[Finding]], shell: Any, kind: str) -> None:
    """A command that runs for that run and shows or does what it is for, or else a sentence that needs none."""
    for found in said[kind]:
        assert (found.action is None) == (kind in NO_ACTION), found
        for command in commands_of(found):
            words = shlex.split(command)
            if words[0] == "mv":
                assert shell(command).returncode == 0 and Path(words[-1]).is_dir()
                Path(words[-1]).rename(words[-2])  # for the other findings of this run
                continue
            statuses, text = SAYS[words[1] if words[0] == "tb-supervisor" else words[0]]
            text, done = text or found.text[:60], shell(command)
            assert done.returncode in statuses and text in done.stdout + done.stderr, (command, done)


def test_after_rewind_every_view_names_the_same_checkpoint(said: Mapping[str, list[Finding]], shell: Any) -> None:
    """The one that the finding named is what a restart would resume from, and what a death's action then says."""
    tried = 0
    for found in said["loss_not_finite"]:
        for command in commands_of(found):
            assert shell(command).returncode == 0
            good = Path(str(found.evidence["path"]))
            run, step = good.parent, good.name.rpartition("-")[2]
            verified = shell(command_line("tb-supervisor", "verify", "--", str(run)))
            assert f"A restart would resume from {good.name} (step {int(step):,})" in verified.stdout
            watched = LogdirWatch(str(run)).refresh().runs["."]
            assert watched.run.last_good is not None and str(watched.run.last_good.step) == step
            lost = [each for each in findings(watched, time.time()) if each.kind == "lost"]
            assert all(f"it resumes at step {int(step):,}." in (each.action or "") for each in lost)
            tried += 1
    assert tried >= 2
