"""What a restarter sees of a launch: killed for want of memory, and standard error on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from supervisor_core.restarter import child, processes
from supervisor_core.restarter.child import oom_kills
from tests.cases import each


@each(
    "groups, path, text",
    [
        ("0::/user/job\n", "sys/fs/cgroup/user/job/memory.events", "low 0\noom 3\noom_kill 2\n"),
        ("0::/kubepods/pod1\n", "sys/fs/cgroup/memory.events", "oom_kill 2\noom_group_kill 0\n"),
        ("9:memory:/slurm/1\n1:name=systemd:/\n", "sys/fs/cgroup/memory/slurm/1/memory.oom_control", "oom_kill 2\n"),
        ("9:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill 2\n"),
    ],
)
def test_the_kernels_count_of_oom_kills(tmp_path: Path, groups: str, path: str, text: str) -> None:
    """Of the own control group in both versions, on a host and within a container."""
    for name, content in (("proc/self/cgroup", groups), (path, text)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert oom_kills(str(tmp_path)) == 2


def test_what_cannot_be_killed_is_not_waited_for_if_it_was_only_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that waits for a mount; the program itself is waited for."""
    looker, program = (processes.Process(pid, parent=1, group=1, start=1) for pid in (7, 8))
    lives = [[looker, program], [looker, program], [looker]]
    killed: list[int] = []
    monkeypatch.setattr(processes, "descendants", lambda: lives.pop(0))
    monkeypatch.setattr(processes, "send_signal", lambda target, signum: killed.append(target.pid))
    monkeypatch.setattr(child, "reap_orphans", lambda: None)
    monkeypatch.setattr(child, "left_behind", lambda: frozenset({7}))
    child.kill_all_descendants()
    assert (lives, killed) == ([], [8, 8])


def test_on_a_terminal_the_programs_standard_error_is_one(tmp_path: Path, run_command: list[str]) -> None:
    """With the terminal's size, so that progress bars look as they do without a restarter; a pipe stays one."""
    ours, theirs = pty.openpty()
    program = "import os, sys; print(sys.stderr.isatty(), os.get_terminal_size(2).columns, file=sys.stderr)"
    command = [*run_command, "--logdir", str(tmp_path), "--", sys.executable, "-I", "-c", program]
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 133, 0, 0))
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as running:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 60.0)[0]:
            try:
                data = os.read(ours, 4096)
            except OSError:  # closed by all
                break
            shown += data
    os.close(ours)
    assert running.returncode == 0, shown
    assert b"True 133\r\n" in shown
    assert b"launch 1 has ended: status 0; completed" in shown


@each("text", ["", "oom_kill many\n", "\xff"])
def test_an_unknown_count_is_none(tmp_path: Path, text: str) -> None:
    """No control groups, or ones with other files."""
    assert oom_kills(str(tmp_path)) == 0
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.events").write_text(text)
    assert oom_kills(str(tmp_path)) == 0
