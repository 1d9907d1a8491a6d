"""One watcher of a logdir, what it leaves to the next one, and files that are none of a watcher."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.notify.event import event_json
from supervisor_core.notify.message import Message
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.sender import Sender
from supervisor_core.notify.services import NotSent, Service
from supervisor_core.notify.settings import NotifySettings
from supervisor_core.notify.watch_state import FORGET_SECS, WatchState, default_directory, state_of
from supervisor_core.restarter import watching
from supervisor_core.restarter.watch_child import WatchOrder
from supervisor_core.run.model.words import DAY_SECS
from tests.notify.receivers import WAIT_SECS
from tests.notify.samples import Kept, event

posix = pytest.mark.skipif(os.name != "posix", reason="locks, modes and pipes are POSIX's")


def sender(state: Path, *services: Service, logdir: str = "/runs") -> Sender:
    """A sender with these services."""
    settings = NotifySettings(command=Secret("true"), state=str(state))
    object.__setattr__(settings, "services", services)
    return Sender(settings, [logdir], gather_secs=0.0)


_WATCHES = """
import sys
from pathlib import Path
from supervisor_core.notify.watch_state import WatchState
state = WatchState(Path(sys.argv[1]), sys.argv[2:])
print("watches", flush=True)
sys.stdin.read()
"""


@posix
def test_a_logdir_has_one_watcher(tmp_path: Path) -> None:
    """The second one says which process it is, where and since when; once that has ended, even killed, it watches."""
    command = [sys.executable, "-c", _WATCHES, str(tmp_path), "/runs/a", "/runs/b"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "watches\n"
        why = rf"^/runs/b is watched by process {first.pid} on \S+ since \d{{4}}-.* UTC\. "
        with pytest.raises(LogdirInUseError, match=why):
            WatchState(tmp_path, ["/runs/b", "/runs/c"])
        WatchState(tmp_path, ["/runs/c"]).close()
        WatchState(tmp_path / "other", ["/runs/b"]).close()
        first.kill()
    WatchState(tmp_path, ["/runs/b"]).close()


@posix
def test_the_process_of_run_waits_for_the_watcher_before_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As that of a restarter that was killed: it takes over when that ends, and does not outlive its own restarter."""
    settings = NotifySettings(command=Secret("true"), state=str(tmp_path))
    order = WatchOrder(logdir="/runs", began_at=1.0, settings=settings)
    before = WatchState(tmp_path, ["/runs"])
    waits: list[float] = []

    def wait(secs: float) -> bool:
        waits.append(secs)
        if len(waits) == 3:
            before.close()
        return False

    line = SimpleNamespace(over=SimpleNamespace(wait=wait), killed_at=None)
    taken = watching._sender(order, line)  # type: ignore[arg-type]
    assert taken is not None and len(waits) == 3 and caplog.text.count("Messages are sent from here once") == 1
    line.killed_at = 5.0
    assert watching._sender(order, line) is None  # type: ignore[arg-type]
    taken.hand_over()
    assert watching._sender(order, line) is not None  # type: ignore[arg-type]


def test_what_was_not_sent_is_sent_by_the_next_watcher(tmp_path: Path) -> None:
    """Once, and nothing that was sent is sent again; of what ends in order nothing else is kept."""
    fails, well = Kept("notify 1 (json)"), Kept("notify 2 (json)")
    fails.fails = "it answers 500"
    first = sender(tmp_path, fails, well)
    first.put([event("a"), event("\ud800")])
    first.seen()
    assert not first.close(0.3)
    fails.fails = None
    for _ in range(2):
        again = sender(tmp_path, fails, well)
        again.put([event("a"), event("\ud800")])
        assert again.close(WAIT_SECS)
    assert fails.runs == well.runs == ["a", "\ud800"]


def test_what_is_being_sent_is_kept_and_a_command_is_not_run_twice(tmp_path: Path) -> None:
    """A watcher that is killed then leaves it to the next one."""
    free = threading.Event()

    class Hangs(Service):
        def __init__(self, name: str, takes_each: bool) -> None:
            self.name, self.takes_each, self.entered = name, takes_each, threading.Event()

        def send(self, message: Message) -> None:
            self.entered.set()
            free.wait(WAIT_SECS)
            raise NotSent("it is late")

    services = [Hangs("notify 1 (json)", False), Hangs("on-event", True)]
    first = sender(tmp_path, *services)
    first.put([event("a")])
    assert all(service.entered.wait(WAIT_SECS) for service in services)
    left = first._left()
    unsent = {name: [item.event.run for item in of.unsent] for name, of in left.services.items()}
    assert unsent == {"notify 1 (json)": ["a"], "on-event": []}
    free.set()
    first.close(0.0)


@posix
def test_files_are_the_users(tmp_path: Path) -> None:
    """Nobody else can read them, and only that of what is unsent stays."""
    first = sender(tmp_path / "new" / "state", Kept())
    first.put([event()])
    (lock,) = (tmp_path / "new" / "state").glob("*.lock")
    assert lock.stat().st_mode & 0o077 == 0  # the others come and go while they are saved
    assert first.close(WAIT_SECS)
    (kept,) = (tmp_path / "new" / "state").iterdir()
    assert kept.suffix == ".json" and kept.stat().st_mode & 0o077 == kept.parent.stat().st_mode & 0o077 == 0


def test_a_watcher_knows_when_one_has_looked(tmp_path: Path) -> None:
    """At the same logdir, so that it says what has happened since; of the last day, and not of a time to come."""

    def since(now: float, logdir: str = "/runs") -> float:
        found = sender(tmp_path, logdir=logdir)
        found.close(0.0)
        return found.since(now)

    assert since(1e6) == 1e6
    first = sender(tmp_path)
    first._looked_at = 1e6
    first.close(0.0)
    assert 1e6 - 600.0 < since(1e6 + 60.0) < 1e6 - 90.0
    assert since(1e6 + 7 * DAY_SECS) == 1e6 + 6 * DAY_SECS
    assert since(5e5) < 5e5
    assert since(1e6 + 60.0, "/other") == 1e6 + 60.0


_EVENT = {**event_json(event()), "at": float("inf")}


@pytest.mark.parametrize(
    "forged",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"looked_at": "x"}',
        '{"looked_at": NaN}',
        '{"looked_at": 1e400}',
        '{"services": {"kept": {"known": [1]}}}',
        '{"services": {"kept": {"unsent": [{"since": 1}]}}}',
        json.dumps({"services": {"kept": {"unsent": [{"since": 1, "event": _EVENT}]}}}),
    ],
)
def test_a_damaged_file_is_ignored_aloud(forged: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The watcher begins anew."""
    sender(tmp_path).close(0.0)
    (kept,) = tmp_path.glob("*.json")
    kept.write_text(forged)
    service = Kept()
    again = sender(tmp_path, service)
    again.put([event()])
    assert again.close(WAIT_SECS) and service.runs == ["tuning"]
    assert f"{kept} is ignored, what was not sent before is not known: it is damaged" in caplog.text


@posix
@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "directory", "device", "other user"])
@pytest.mark.parametrize("ending", [".lock", ".json"])
def test_what_is_no_file_of_a_watcher_holds_nobody_up(
    kind: str, ending: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever can write into the directory keeps no message back, and has nothing read or written elsewhere."""
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"{}")
    first = sender(state)
    (lock,) = state.glob("*.lock")
    first.close(0.0)
    (kept,) = state.iterdir()
    place = lock if ending == ".lock" else kept
    place.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
        case "device":
            place.symlink_to("/dev/zero")
        case "other user":
            if os.geteuid() != 0:
                pytest.skip("only root makes files of other users")
            place.write_text("{}")
            os.chown(place, 12345, 12345)
        case _:
            place.symlink_to(elsewhere if kind == "link" else tmp_path / "none")
    service = Kept()
    again = sender(state, service)
    again.put([event()])
    assert again.close(WAIT_SECS) and service.runs == ["tuning"]
    assert f"{place} is ignored" in caplog.text
    assert elsewhere.read_bytes() == b"{}" and not (tmp_path / "none").exists()


@posix
@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o755, True), (0o1777, True), (0o777, False)])
def test_a_directory_that_others_may_write(
    mode: int, is_used: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They could put a file of another watcher in a file's place. With the sticky bit they cannot."""
    tmp_path.chmod(mode)
    found = state_of(["/runs"], str(tmp_path))
    assert (found is not None) is is_used
    assert ("Others may write it: chmod go-w -- " in caplog.text) is not is_used
    if found is not None:
        found.close()


def test_without_a_directory_messages_are_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once: where there is none, and where it is gone later."""
    (tmp_path / "file").write_text("")
    service = Kept()
    sent = sender(tmp_path / "file" / "state", service)
    sent.put([event()])
    assert sent.close(WAIT_SECS) and service.runs == ["tuning"]
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]
    assert "cannot be used, nothing is kept of what was sent" in caplog.text


def test_old_files_are_removed(tmp_path: Path) -> None:
    """The directory does not grow for years; what is younger stays, and what is not of a watcher."""
    old, young = FORGET_SECS + 60.0, FORGET_SECS - 3600.0
    ages = {
        f"{'a' * 16}.json": old,
        f"{'b' * 16}.json-{'a' * 16}": old,
        f"{'c' * 16}.json": young,
        "thesis.tex": old,
        "0.json": old,
    }
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    WatchState(tmp_path, ["/runs"]).close()
    assert {path.name for path in tmp_path.iterdir()} == {f"{'c' * 16}.json", "thesis.tex", "0.json"}


def test_the_users_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is where the XDG specification puts states; a relative path there is ignored. Containers have users without
    a home: there is no directory of theirs, and no error."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert default_directory() == tmp_path / ".local/state/tb-supervisor/notify"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_directory() == Path("/state/tb-supervisor/notify")

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert default_directory() is None and state_of(["/runs"]) is None
