"""Which of several watchers sends an event: threads, processes, watchers that die or cannot send."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor_core.notify.claims import FORGET_SECS, TAKE_OVER_SECS, Claims, default_directory
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.sender import Sender
from supervisor_core.notify.settings import NotifySettings
from supervisor_core.run.model.words import DAY_SECS
from tests.conftest import StillClock

SERVICE = Secret("ntfy://token")


@pytest.fixture
def clock() -> StillClock:
    """Some time."""
    return StillClock(1000.0)


def test_an_event_is_one_watchers(tmp_path: Path, clock: StillClock) -> None:
    """The first one that asks owns it; the others learn that it was sent."""
    one, two = Claims(tmp_path, clock), Claims(tmp_path, clock)
    assert one.take("e", "s") == "mine" == one.take("e", "s")
    assert two.take("e", "s") == "other"
    assert one.attempt("e", "s")
    one.sent("e", "s")
    assert two.take("e", "s") == "sent" == one.take("e", "s")
    assert two.take("e", "another service") == "mine"


def test_each_attempt_keeps_the_claim(tmp_path: Path, clock: StillClock) -> None:
    """It is taken over only after a time without an attempt; the first owner learns that before its next one."""
    one, two = Claims(tmp_path, clock), Claims(tmp_path, clock)
    one.take("e", "s")
    for _ in range(5):
        assert two.take("e", "s") == "other"
        clock.now += TAKE_OVER_SECS - 1.0
        assert one.attempt("e", "s")
    assert two.take("e", "s") == "other"
    clock.now += TAKE_OVER_SECS
    assert two.take("e", "s") == "mine"
    assert not one.attempt("e", "s")
    assert one.take("e", "s") == "other"
    two.sent("e", "s")
    assert one.take("e", "s") == "sent"


def test_what_was_given_back_is_taken_at_once(tmp_path: Path, clock: StillClock) -> None:
    """A watcher that ends, or gives up, leaves its events to others."""
    one, two, three = (Claims(tmp_path, clock) for _ in range(3))
    one.take("e", "s")
    one.give_back("e", "s")
    assert [two.take("e", "s"), three.take("e", "s"), one.take("e", "s")] == ["mine", "other", "other"]


def test_one_of_several_takes_over(tmp_path: Path, clock: StillClock) -> None:
    """Watchers that find an abandoned claim at the same moment: one gets it."""
    Claims(tmp_path, clock).take("e", "s")
    others = [Claims(tmp_path, clock) for _ in range(8)]
    assert {each.take("e", "s") for each in others} == {"other"}
    clock.now += TAKE_OVER_SECS
    owners, start = list[str](), threading.Barrier(len(others))

    def take(claims: Claims) -> None:
        start.wait()
        owners.append(claims.take("e", "s"))

    threads = [threading.Thread(target=take, args=(each,)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(owners) == ["mine", *["other"] * 7]


_TAKES = """
import sys
from pathlib import Path
from supervisor_core.notify.claims import Claims
from supervisor_core.notify.secret import Secret
claims = Claims(Path(sys.argv[1]))
service = claims.key(Secret("ntfy://token"))
print(service, flush=True)
sys.stdin.read()
print(*(event for event in range(300) if claims.take(f"{event}", service) == "mine"))
"""


def test_two_processes_take_each_event_once(tmp_path: Path) -> None:
    """Watchers in two processes, which begin at the same moment: none has an event of the other, none is missing."""
    command = [sys.executable, "-c", _TAKES, str(tmp_path / "new" / "claims")]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    keys = {process.stdout.readline() for process in processes if process.stdout is not None}
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None  # communicate() would flush it
    taken = [event for process in processes for event in process.communicate()[0].split()]
    assert len(keys) == 1
    assert sorted(map(int, taken)) == list(range(300))


def test_files_are_the_users_and_hold_no_url(tmp_path: Path) -> None:
    """Others cannot read them; neither names nor contents show the URL, or a plain hash of it."""
    import hashlib

    directory = tmp_path / "claims"
    claims = Claims(directory)
    key = claims.key(Secret("ntfy://hunter2"))
    claims.take("e", key)
    claims.sent("e", key)
    assert directory.stat().st_mode & 0o077 == 0
    files = list(directory.iterdir())
    assert len(files) == 2 and all(file.stat().st_mode & 0o077 == 0 for file in files)
    shown = "".join(f"{file.name}{file.read_bytes()!r}" for file in files)
    assert "hunter2" not in shown and hashlib.sha256(b"ntfy://hunter2").hexdigest()[:16] not in shown
    assert key == Claims(directory).key(Secret("ntfy://hunter2")) != Claims(tmp_path).key(Secret("ntfy://hunter2"))


def test_old_files_are_removed(tmp_path: Path, clock: StillClock) -> None:
    """The directory does not grow for years, nor under a watcher that never ends; what is younger stays, and what is
    not of a watcher: any directory can be given."""
    claim, old, young = f"{'e' * 16}-{'5' * 16}", FORGET_SECS + 60.0, FORGET_SECS - 3600.0
    watcher = Claims(tmp_path, clock)
    key = watcher.key(SERVICE)
    watcher.take("e" * 16, key)
    mine = f"{'e' * 16}-{key}.0"
    looks = {f"look-{'a' * 16}": old, f"look-{'a' * 16}-{'b' * 16}": old}
    ages = {
        **looks,
        f"{claim}.0": old,
        f"{claim}.1": young,
        f"key-{'a' * 16}": old,
        "key": old,
        "thesis.tex": old,
        "0.0": old,
    }
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    watcher.take("d" * 16, key)
    left = {f"{claim}.1", "key", "thesis.tex", "0.0", mine, f"{'d' * 16}-{key}.0", f"{'c' * 16}-{key}.0"}
    assert left | ages.keys() == {*(file.name for file in tmp_path.iterdir()), f"{'c' * 16}-{key}.0"}, "once a day"
    clock.now += DAY_SECS
    watcher.take("c" * 16, key)
    assert {file.name for file in tmp_path.iterdir()} == left


def test_a_watcher_knows_when_another_one_has_looked(tmp_path: Path) -> None:
    """Of the same logdirs, so that it says what has happened since; of the last day, and not of a time to come."""
    state = str(tmp_path / "state")
    settings = NotifySettings(command=Secret("true"), state=state)

    def since(watched: str, now: float) -> float:
        sender = Sender(settings, watched=watched)
        sender.close(0.0)
        return sender.since(now)

    assert since("/runs", 1e6) == 1e6
    Claims(tmp_path / "state").looked("/runs", 1e6)
    assert 1e6 - 600.0 < since("/runs", 1e6 + 60.0) < 1e6 - 90.0
    assert since("/runs", 1e6 + 7 * DAY_SECS) == 1e6 + 6 * DAY_SECS
    assert since("/runs", 5e5) < 5e5
    assert since("/other", 1e6 + 60.0) == 1e6 + 60.0
    (look,) = (tmp_path / "state").glob("look-*")
    for forged in ("nan", "1e400", "", "x" * 100):
        look.write_text(forged)
        assert since("/runs", 1e6 + 60.0) == 1e6 + 60.0


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "directory", "device"])
@pytest.mark.parametrize("name", ["key", "e-s.0"])
def test_what_is_no_file_of_a_watcher_holds_nobody_up(tmp_path: Path, kind: str, name: str) -> None:
    """Whoever can write into the directory keeps no message back, and has nothing read or written elsewhere."""
    place, elsewhere, directory = tmp_path / "claims" / name, tmp_path / "elsewhere", tmp_path / "claims"
    directory.mkdir()
    elsewhere.write_bytes(b"sent")
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
        case "device":
            place.symlink_to("/dev/zero")
        case _:
            place.symlink_to(elsewhere if kind == "link" else tmp_path / "none")
    claims = Claims(directory)
    claims.key(Secret("ntfy://token"))
    assert claims.take("e", "s") == "mine"
    assert claims.attempt("e", "s")
    claims.sent("e", "s")
    assert elsewhere.read_bytes() == b"sent" and not (tmp_path / "none").exists()


def test_an_owned_claim_that_becomes_a_link_is_not_written_through(tmp_path: Path) -> None:
    """Its owner goes on."""
    claims, elsewhere = Claims(tmp_path / "claims"), tmp_path / "elsewhere"
    claims.key(SERVICE)
    claims.take("e", "s")
    elsewhere.touch()
    (tmp_path / "claims" / "e-s.0").unlink()
    (tmp_path / "claims" / "e-s.0").symlink_to(elsewhere)
    assert claims.attempt("e", "s")
    claims.sent("e", "s")
    assert elsewhere.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_a_claim_of_another_user_keeps_no_message_back(tmp_path: Path) -> None:
    """Neither says it that a message was sent."""
    claims = Claims(tmp_path)
    claims.key(SERVICE)
    (tmp_path / "e-s.0").write_bytes(b"sent")
    os.chown(tmp_path / "e-s.0", 12345, 12345)
    assert claims.take("e", "s") == "mine"


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o755, True), (0o1777, True), (0o777, False)])
def test_a_directory_that_others_may_write(
    mode: int, is_used: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They could give a claim of one event the name of another, which would then not be sent. With the sticky bit
    they cannot."""
    tmp_path.chmod(mode)
    one, two = Claims(tmp_path), Claims(tmp_path)
    assert [claims.key(SERVICE) is not None for claims in (one, two)] == [is_used, is_used]
    assert ("Others may write it: chmod go-w -- " in caplog.text) is not is_used
    if not is_used:
        assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers have such users: there is no directory of theirs, and no error."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert default_directory() is None


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOME", str(tmp_path))
    yield


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", ".local/state/tb-supervisor/notify"), ("relative", ".local/state/tb-supervisor/notify")],
)
@pytest.mark.usefixtures("_home")
def test_the_users_own_directory(value: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is where the XDG specification puts states; a relative path there is ignored, as it says."""
    monkeypatch.setenv("XDG_STATE_HOME", value)
    assert default_directory() == tmp_path / expected
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_directory() == Path("/state/tb-supervisor/notify")
