"""The command that gets events: what it reads, when it is killed, and what of it is shown."""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
from pathlib import Path

import pytest

from supervisor_core.base.log import printable
from supervisor_core.notify.message import message_of
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.services import CommandService, NotSent
from tests.notify.receivers import WAIT_SECS
from tests.notify.samples import event

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the commands are a POSIX shell's")


def run(command: str, *runs: str, timeout_secs: float = WAIT_SECS) -> None:
    """Run a command for events of some runs."""
    CommandService(Secret(command), timeout_secs).send(message_of([event(name) for name in runs or ("tuning",)]))


def test_each_event_is_a_line_of_json(tmp_path: Path) -> None:
    """The command, a line of the shell's, reads one object."""
    run(f"cat >> {shlex.quote(str(tmp_path / 'events'))}; echo", "a", "b")
    found = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [each["run"] for each in found] == ["a", "b"]
    assert found[0]["text"] == "a: lost at step 2,500 on gpu-7" and found[0]["id"] == event("a").id


def test_what_a_program_writes_is_harmless(tmp_path: Path) -> None:
    """In every text of the object: no control character reaches a terminal that prints it, and no half of a character
    a parser that refuses it."""
    raw = "a\x1b[31m\x07\n\x9b\u202e\udcff"
    found = event(raw, text=raw, action=raw, host=raw, logdir=f"/runs/{raw}", labels={"team": raw})
    CommandService(Secret(f"cat > {shlex.quote(str(tmp_path / 'event'))}")).send(message_of([found]))
    line = (tmp_path / "event").read_text()
    shown = r"a\x1b[31m\x07\n\x9b\u202e\udcff"
    read = json.loads(line)
    assert {read[name] for name in ("run", "text", "action", "host")} == {shown} == set(read["labels"].values())
    assert read["logdir"] == f"/runs/{shown}"
    assert printable(line.rstrip("\n")) == line.rstrip("\n")


def test_a_command_may_ignore_its_input() -> None:
    """One that ends without reading has done its work."""
    run("true", "tuning")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 3", "the command ended with status 3"),
        ("/nowhere/hunter2", "the command ended with status 127"),
        ("kill -9 $$", "the command was killed by signal 9"),
    ],
)
def test_a_command_that_fails(command: str, why: str) -> None:
    """The error says how it ended; neither the command nor its output are in it."""
    with pytest.raises(NotSent) as raised:
        run(command)
    assert str(raised.value) == why


def test_one_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    """After the time limit nothing of its process group is left."""
    pid_file = tmp_path / "pid"
    child = f"sleep 600 & echo $! > {shlex.quote(str(pid_file))}"
    with pytest.raises(NotSent, match=r"^the command was killed, it took longer than 2 s$"):
        run(f"{child}; wait", timeout_secs=2.0)
    wait_for_end(int(pid_file.read_text()))


def wait_for_end(pid: int) -> None:
    """Wait until a process that was killed is gone: that takes the system a moment."""
    pause = threading.Event()
    while not has_ended(pid):
        pause.wait(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):  # the latter where it goes between opening and reading
        return True


def test_one_that_runs_when_its_watcher_ends_is_killed(tmp_path: Path) -> None:
    """No process would be there to do so when its time is over."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    outbox = Outbox(
        [CommandService(Secret(f"echo $$ > {shlex.quote(str(fifo))}; exec sleep 600"))],
        limit_per_hour=1,
        gather_secs=0.0,
    )
    outbox.put([event()])
    pid = int(fifo.read_text())
    assert not outbox.close(0.1)
    ended, until = has_ended(pid), time.monotonic() + WAIT_SECS
    while not ended and time.monotonic() < until:  # the kernel ends it in its own time
        ended = has_ended(pid)
    assert ended


def test_it_has_no_urls_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints or records of its environment holds no token; the rest is as it was."""
    for name in ("SUPERVISOR_NOTIFY", "SUPERVISOR_PING"):
        monkeypatch.setenv(name, "ntfy://hunter2")
    monkeypatch.setenv("KEPT", "yes")
    run(f"env > {shlex.quote(str(tmp_path / 'environment'))}")
    text = (tmp_path / "environment").read_text()
    assert "KEPT=yes" in text and "hunter2" not in text


def test_it_is_shown_nowhere() -> None:
    """A command may hold a token."""
    service = CommandService(Secret("curl -H 'Authorization: hunter2' http://h"))
    assert "hunter2" not in f"{service!r} {service.name} {vars(service)}"
