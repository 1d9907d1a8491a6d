"""A token in a URL is nowhere: neither in what is logged, printed, written or raised, nor in lists of processes."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor_core.notify.apprise_process import problem_of
from supervisor_core.notify.message import message_of
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.sender import Sender
from supervisor_core.notify.services import NotSent, Service
from supervisor_core.notify.settings import NotifySettings
from tests.notify.receivers import WAIT_SECS, mail_receiver, web_receiver
from tests.notify.samples import event

TOKEN = "hunter2-Zq8vX3kLm9"


@pytest.fixture
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """All loggers say everything, also those of libraries, and those that have not been made yet."""
    caplog.set_level(1)
    loggers = [
        logging.getLogger(name) for name in ("apprise", "requests", "urllib3", "urllib3.connectionpool", "smtplib")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def _error_of(service: Service) -> NotSent:
    """The error of a service that fails."""
    with pytest.raises(NotSent) as raised:
        service.send(message_of([event()]))
    return raised.value


@pytest.mark.usefixtures("_everything_is_logged")
def test_a_token_is_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services that work, that fail in every way, that repeat the token in answers: nothing that is kept has it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with web_receiver() as well, web_receiver() as wrong, web_receiver() as moved, mail_receiver() as mails:
        wrong.status, wrong.echo = 500, True
        moved.status, moved.location = 307, f"http://127.0.0.1:{wrong.port}/{TOKEN}"
        mails.status = 535
        urls = [
            well.url(TOKEN),
            wrong.url(TOKEN),
            moved.url(TOKEN),
            f"json://{TOKEN}:{TOKEN}@127.0.0.1:1/{TOKEN}?+Authorization={TOKEN}",
            f"json://{TOKEN}.invalid/{TOKEN}",
            f"jsons://127.0.0.1:{well.port}/{TOKEN}",
            f"mailto://ada:{TOKEN}@127.0.0.1:{mails.port}?from=a@example.com&to=b@example.com&mode=insecure",
        ]
        ping = f"http://127.0.0.1:{wrong.port}/{TOKEN}"
        settings = NotifySettings.of(urls=urls, ping=ping, command=f"exit 3 # {TOKEN}", state=str(tmp_path / "left"))
        assert settings is not None and len(settings.services) == 8
        box = Sender(settings, ["/runs"], gather_secs=0.0)
        box.put([event()])
        box.seen()
        well.wait(1)
        wrong.wait(2)
        box.close(0.5)
        with ThreadPoolExecutor() as pool:
            errors = list(pool.map(_error_of, settings.services[1:]))
    printed = "".join(capfd.readouterr())
    logged = "".join(f"{record.name} {record.__dict__} {record.getMessage()}\n" for record in caplog.records)
    shown = f"{errors} {[(each.__cause__, each.__context__) for each in errors]} {settings} {settings.services} {box!r}"
    shown += "".join("".join(traceback.format_exception(each)) for each in errors)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    written = "".join(f"{file} {file.read_bytes()!r}" for file in files)
    assert files and "notify 2 (json)" in logged, "something was kept in which it could be found"
    for where, text in (("printed", printed), ("logged", logged), ("shown", shown), ("written", written)):
        assert TOKEN not in text and TOKEN.lower() not in text.lower(), where


def test_a_token_is_in_no_list_of_processes() -> None:
    """The process that sends has it from its standard input: neither in its arguments nor in its environment."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("no /proc")
    of_other_tests = _children()
    with web_receiver() as server:
        server.answers.clear()
        os.environ["SUPERVISOR_NOTIFY"] = f"{server.url(TOKEN)}?rto=60"
        try:
            settings = NotifySettings.of()
            assert settings is not None
            box = Outbox(settings.services, limit_per_hour=20, gather_secs=0.0)
            box.put([event()])
            server.wait(1)
            found = [child for pid, child in _children().items() if pid not in of_other_tests]
        finally:
            del os.environ["SUPERVISOR_NOTIFY"]
        server.answers.set()
        assert box.close(WAIT_SECS)
    assert len(found) >= 1
    assert all(sys.executable in arguments and TOKEN not in arguments + environment for arguments, environment in found)


def _children() -> dict[str, tuple[str, str]]:
    """The arguments and the environment of each child of this process, by its id."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        pids: list[str] = []
        with suppress(OSError):  # a thread of another test that has just ended
            pids = (task / "children").read_text().split()
        for pid in pids:
            directory = Path("/proc") / pid
            with suppress(OSError):  # one of another test that has just ended
                found[pid] = (directory / "cmdline").read_text(), (directory / "environ").read_text()
    return found


def test_an_unexpected_error_is_shown_by_its_type_only() -> None:
    """Errors of libraries say what kind of problem it is, or nothing; their texts are not passed on."""
    error = OSError(f"https://h/{TOKEN}")
    assert str(problem_of(error)) == "no connection to it"
    assert problem_of(RuntimeError(f"https://h/{TOKEN}")) is None
    inner = ConnectionRefusedError(111, f"https://h/{TOKEN}")
    outer = RuntimeError("outer", inner)
    assert str(problem_of(outer)) == "its host refuses the connection"
    loop = OSError("a")
    loop.__context__ = ValueError(loop)
    assert str(problem_of(loop)) == "no connection to it"


def test_a_secret_shows_nothing() -> None:
    """In no way in which texts are made."""
    secret = Secret(TOKEN)
    assert f"{secret} {secret!r} {secret!s:>10} {[secret]}".count("(secret)") == 4
    assert TOKEN not in f"{secret} {secret!r} {vars(type(secret))}"
    assert secret == Secret(TOKEN) != Secret("other") and hash(secret) == hash(Secret(TOKEN))
