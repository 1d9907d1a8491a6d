"""A stop signal to `tb-supervisor run` reaches the training, whatever has started it, once: its last step is saved."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.restarter.conftest import assert_last_step_is_saved, run_of, training

RECORDER = """
import os, signal
signals = {signal.SIGTERM, signal.SIGINT}
for signum in signals:
    signal.signal(signum, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print(os.getpid(), flush=True)
got = [signal.sigwaitinfo(signals)]
while (again := signal.sigtimedwait(signals, 1.0)) is not None:
    got.append(again)
with open(os.environ["GOT"], "w") as file:
    file.write(" ".join(f"{each.si_signo}:{each.si_pid}" for each in got))
"""
"""Writes down which signals came, and from which processes, until a second after the last of them."""


SCRIPTS = {
    "a script": "LINE\necho done\n",
    "a script that execs": "exec LINE\n",
    "a script with a trap": "trap 'echo cleaning up' TERM INT\nLINE\necho done\n",
    "a script with a trap at its end": "trap 'echo cleaning up' EXIT\nLINE\necho done\n",
    "a trap that passes on": "trap 'kill -TERM $!' TERM INT\nLINE &\nwait $!\n",
    "a trap that passes on and waits": "trap 'kill -TERM $!; wait $!' TERM INT\nLINE &\nwait $!\n",
    "a trap that ends the script": "trap 'exit 3' TERM INT\nLINE &\nwait $!\n",
}
COMMANDS = {
    "nothing": [],
    "timeout": ["timeout", "600"],
    "bash -c": ["bash", "-c", "LINE; echo done"],
    "sh -c": ["sh", "-c", "LINE; echo done"],
    "a subshell": ["bash", "-c", "(LINE; echo inner); echo outer"],
    "tee": ["bash", "-c", "LINE | tee LOG"],
}


def wrapped(kind: str, directory: Path, program: list[str]) -> list[str]:
    """The command that starts a program in one of the ways that people do."""
    line, log = shlex.join(program), shlex.quote(str(directory / "log"))
    if kind in SCRIPTS:
        path = directory / "train.sh"
        path.write_text("#!/bin/bash\n" + SCRIPTS[kind].replace("LINE", line))
        path.chmod(0o755)
        return [str(path)]
    words = [word.replace("LINE", line).replace("LOG", log) for word in COMMANDS[kind]]
    return words if "-c" in words else [*words, *program]


PASSING_ON = ["timeout", "a trap that passes on", "a trap that passes on and waits"]
OF_SCRIPT = {
    "a trap that passes on": {signal.SIGTERM: 143, signal.SIGINT: 130},
    "a trap that passes on and waits": {signal.SIGTERM: 143, signal.SIGINT: 130},
    "a trap that ends the script": {signal.SIGTERM: 3, signal.SIGINT: 3},
}
"""Statuses that the script itself ends with. In all other cases the end is the signal."""


@pytest.mark.parametrize(
    ("kind", "signum"),
    [
        *((kind, signal.SIGTERM) for kind in (*COMMANDS, *SCRIPTS)),
        *((kind, signal.SIGINT) for kind in ("nothing", "tee", "a script", "a trap that passes on and waits")),
    ],
)
def test_the_last_step_is_saved_whatever_starts_the_training(
    running: Callable[..., Any], tmp_path: Path, kind: str, signum: signal.Signals
) -> None:
    """The session's record names the signal, the launch was stopped, and `run` ends by the signal or as the script."""
    restarter = running(*wrapped(kind, tmp_path, training(tmp_path)), options=["--stop-timeout", "16s"])
    restarter.line()
    restarter.process.send_signal(signum)
    assert restarter.status() == OF_SCRIPT.get(kind, {}).get(signum, -signum), restarter.log
    assert_last_step_is_saved(tmp_path)
    found = run_of(tmp_path)
    assert found.sessions[-1].outcome == "signal"
    assert (found.launches[-1].cause, found.launches[-1].decided_by) == ("stopped", "signal")
    assert "SIGKILL" not in restarter.log


@pytest.mark.parametrize(
    ("kind", "signum"),
    [
        *((kind, signal.SIGTERM) for kind in ("nothing", "bash -c", "tee", "a script with a trap", *PASSING_ON)),
        ("bash -c", signal.SIGINT),
    ],
)
def test_no_process_gets_the_signal_twice(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, signum: signal.Signals
) -> None:
    """From the keeper once; not at all where the wrapper passes it on, also if it ends at once after that."""
    monkeypatch.setenv("GOT", str(tmp_path / "got"))
    restarter = running(*wrapped(kind, tmp_path, [sys.executable, "-c", RECORDER]), options=["--stop-timeout", "60s"])
    restarter.line()
    (keeper,) = Path(f"/proc/{restarter.process.pid}/task/{restarter.process.pid}/children").read_text().split()
    restarter.process.send_signal(signum)
    restarter.status()
    got = [word.split(":") for word in (tmp_path / "got").read_text().split()]
    assert [sender for _, sender in got].count(keeper) == (0 if kind in PASSING_ON else 1), restarter.log
    assert kind in PASSING_ON or got == [[str(int(signum)), keeper]]


def test_it_may_itself_run_in_the_background_of_a_shell(running: Callable[..., Any], tmp_path: Path) -> None:
    """Which makes it ignore SIGINT and SIGQUIT: a script's own background is told from its foreground by that."""
    ignoring = ["bash", "-c", "trap '' INT QUIT; exec \"$@\"", "bash"]
    command = wrapped("a script with a trap", tmp_path, training(tmp_path))
    restarter = running(*command, options=["--stop-timeout", "16s"], before=ignoring)
    restarter.line()
    restarter.process.send_signal(signal.SIGTERM)
    assert restarter.status() == -signal.SIGTERM, restarter.log
    assert_last_step_is_saved(tmp_path)


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGQUIT])
def test_a_lost_terminal_is_a_stop_for_the_program(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    """SIGHUP and SIGQUIT come to it as SIGTERM, which every program knows; `run` itself ends by what it got."""
    monkeypatch.setenv("GOT", str(tmp_path / "got"))
    restarter = running(sys.executable, "-c", RECORDER)
    restarter.line()
    restarter.process.send_signal(signum)
    # The status is the program's own: it has ended by itself.
    assert restarter.status() == 0, restarter.log
    assert (tmp_path / "got").read_text().split(":")[0] == str(int(signal.SIGTERM))


CLEANING_UP = """
import os, signal
signals = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
with open(os.environ["GOT"], "w") as file:
    file.write(str(signal.sigtimedwait(signals, 1.0)))
"""


@pytest.mark.parametrize("event", ["TERM", "EXIT"])
def test_what_a_trap_runs_is_left_alone(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """It was started by the signal, and is given time."""
    monkeypatch.setenv("GOT", str(tmp_path / "got"))
    (tmp_path / "clean.py").write_text(CLEANING_UP)
    command = shlex.join([sys.executable, str(tmp_path / "clean.py")])
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/bash\ntrap {shlex.quote(command)} {event}\n{shlex.join(training(tmp_path))}\n")
    script.chmod(0o755)
    restarter = running(str(script), options=["--stop-timeout", "60s"])
    restarter.line()
    restarter.process.send_signal(signal.SIGTERM)
    restarter.status()
    assert (tmp_path / "got").read_text() == "None", restarter.log
    assert_last_step_is_saved(tmp_path)


RING = """
import os, signal, subprocess, sys
one, two = os.pipe(), os.pipe()
program = "import signal; print(end='', flush=True); signal.pause()"
for stdin, stdout in ((one[0], two[1]), (two[0], one[1])):
    subprocess.Popen([sys.executable, "-c", program], stdin=stdin, stdout=stdout)
print("ready", flush=True)
signal.pause()
"""


def test_processes_that_write_to_each_other_are_stopped(running: Callable[..., Any]) -> None:
    """None of them is first."""
    restarter = running(sys.executable, "-c", RING, options=["--stop-timeout", "60s"])
    restarter.line()
    restarter.process.send_signal(signal.SIGTERM)
    assert restarter.status() == -signal.SIGTERM
    assert "SIGKILL" not in restarter.log


ON_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("event", ["Ctrl-C", "the terminal is gone"])
@pytest.mark.parametrize("kind", ["nothing", "tee"])
def test_on_a_terminal(tmp_path: Path, run_command: list[str], kind: str, event: str) -> None:
    """What is typed goes to `run` alone, since the program is in a session of its own; the end of a connection, too."""
    command = wrapped(kind, tmp_path, training(tmp_path))
    ours, theirs = pty.openpty()
    out, into = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, *run_command, "--logdir", str(tmp_path / "logs"), "--", *command],
        stdin=theirs, stdout=into, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.close(into)
    with os.fdopen(out, "rb") as lines, process:
        assert lines.readline().startswith(b"trains")
        if event == "Ctrl-C":
            os.write(ours, b"\x03")
            expected = -signal.SIGINT
        else:
            os.close(ours)
            expected = -signal.SIGHUP
        if event == "Ctrl-C":
            read_all(ours)
            os.close(ours)
        assert process.wait(60.0) == expected
    assert_last_step_is_saved(tmp_path)
    assert run_of(tmp_path).sessions[-1].outcome == "signal"


def read_all(descriptor: int) -> bytes:
    """All that a terminal shows, until every process has closed it."""
    shown = b""
    while select.select([descriptor], [], [], 60.0)[0]:
        try:
            shown += os.read(descriptor, 4096)
        except OSError:  # closed by all
            break
    return shown


def test_a_wrapper_that_others_end_leaves_the_training_its_time(running: Callable[..., Any], tmp_path: Path) -> None:
    """SIGTERM to the shell alone: the training saves within the time of a stop, then it is started again."""
    restarter = running(*wrapped("bash -c", tmp_path, training(tmp_path)), options=["--stop-timeout", "16s"])
    shell = restarter.leader()
    restarter.line()
    os.kill(shell, signal.SIGTERM)
    assert (restarter.line()[0], restarter.line()[0]) == ("saves", "trains")
    assert "was ended by SIGTERM from outside and left 1 process:" in restarter.log
    restarter.process.send_signal(signal.SIGTERM)
    assert restarter.status() == -signal.SIGTERM
    first, second = run_of(tmp_path).sessions
    assert first.outcome == "signal" and second.restored_step is not None and second.restored_step > 3
