"""Services of Apprise: what they get, what is said of one that fails, and what is said of URLs that cannot be used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.notify import apprise_process, services
from supervisor_core.notify.apprise_process import SendProblem, ask
from supervisor_core.notify.message import message_of
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.services import AppriseService, NotSent, parse_services
from tests.notify.receivers import Received, mail_receiver, web_receiver
from tests.notify.samples import event

TOKEN = "hunter2hunter2"
MESSAGE = message_of([event(action="tb-supervisor inspect /runs/tuning")])


@pytest.fixture
def web() -> Iterator[Received]:
    """A web server."""
    with web_receiver() as received:
        yield received


def why_not_sent(url: str) -> str:
    """Send to a URL that fails; return the error's text."""
    with pytest.raises(NotSent) as raised:
        AppriseService("notify 1 (json)", Secret(url)).send(MESSAGE)
    assert raised.value.__cause__ is raised.value.__context__ is None
    return str(raised.value)


def test_a_web_hook_gets_title_body_and_urgency(web: Received) -> None:
    """One request, as Apprise documents it for ``json://``."""
    AppriseService("notify 1 (json)", Secret(web.url(TOKEN))).send(MESSAGE)
    (item,) = web.items
    assert web.paths == [f"POST /{TOKEN}"]
    assert (item["title"], item["message"], item["type"]) == (MESSAGE.title, MESSAGE.body, "failure")


def test_a_message_is_sent_from_a_directory_that_is_deleted(
    web: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training may outlive the directory that it was started in; its messages, too."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    AppriseService("notify 1 (json)", Secret(web.url(TOKEN))).send(MESSAGE)
    assert [item["title"] for item in web.items] == [MESSAGE.title]


def test_a_mail_has_title_and_body() -> None:
    """The title is the subject, the lines of the body are lines."""
    with mail_receiver() as mails:
        url = (
            f"mailto://ada:{TOKEN}@127.0.0.1:{mails.port}?from=a@example.com&to=b@example.com&mode=insecure&format=text"
        )
        AppriseService("notify 1 (mailto)", Secret(url)).send(MESSAGE)
        (mail,) = mails.items
    assert mail["Subject"] == MESSAGE.title
    text = mail.get_body(("plain",)).get_content()
    assert [line.rstrip() for line in text.splitlines() if line.strip()] == MESSAGE.body.splitlines()


def test_a_service_that_answers_an_error(web: Received) -> None:
    """Its status is said, not what it answers: that may repeat the token."""
    web.status, web.echo = 500, True
    assert why_not_sent(web.url(TOKEN)) == "it answers 500 (Internal Server Error)"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"problem": "status", "status": 404}, "it answers 404 (Not Found)"),
        ({"problem": "status", "status": 799}, "it answers 799"),
        ({"problem": "timeout", "status": None}, "no answer in time"),
        ({"problem": "status", "status": TOKEN}, "the process that sends ended before it was done"),
        ({"problem": TOKEN}, "the process that sends ended before it was done"),
        ({}, "the process that sends ended before it was done"),
    ],
)
def test_what_a_process_answers_is_one_of_few_words(answer: dict[str, Any], text: str) -> None:
    """Whatever else it answers is not shown."""
    assert str(SendProblem.from_json(answer)) == text


def test_a_redirect_is_no_success(web: Received) -> None:
    """It is not followed: the message would be dropped on the way, and the other server's 200 be taken for success."""
    with web_receiver() as other:
        web.status, web.location = 302, f"http://127.0.0.1:{other.port}/"
        assert why_not_sent(web.url(TOKEN)) == "it answers 302 (Found)"
        assert other.paths == []


def test_an_endless_answer_takes_little_memory() -> None:
    """What is not read for the answer's sake is not kept: whoever pays for the memory may be the training."""
    written = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500)
            self.end_headers()
            with suppress(OSError):
                while written[0] < 4 * apprise_process.MOST_BYTES:
                    written[0] += self.wfile.write(bytes(1 << 20))

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as endless:
        threading.Thread(target=endless.serve_forever, args=(0.02,), daemon=True).start()
        why_not_sent(f"json://127.0.0.1:{endless.server_port}/{TOKEN}")
        endless.shutdown()
    assert written[0] < 2 * apprise_process.MOST_BYTES


def test_a_service_that_refuses() -> None:
    """Nothing listens there."""
    assert why_not_sent(f"json://127.0.0.1:1/{TOKEN}") == "its host refuses the connection"


def test_a_host_without_an_address() -> None:
    """A name that does not exist."""
    assert why_not_sent(f"json://{TOKEN}.invalid/") == "the name of its host cannot be resolved"


def test_a_service_that_answers_late(web: Received) -> None:
    """It has the time that the URL says, or 15 s."""
    web.answers.clear()
    assert why_not_sent(f"{web.url(TOKEN)}?rto=0.3") == "no answer in time"


def test_a_service_that_hangs_is_left(web: Received) -> None:
    """After the time limit the process is killed, whatever it does."""
    web.answers.clear()
    request = {"url": f"{web.url(TOKEN)}?rto=600", "title": "t", "body": "b", "type": "info"}
    assert ask(request, timeout_secs=1.5) == {"problem": "killed", "status": None}


def test_a_mail_server_that_does_not_know_the_user() -> None:
    """What it answers, which may hold the password, is not said."""
    with mail_receiver() as mails:
        mails.status = 535
        url = f"mailto://ada:{TOKEN}@127.0.0.1:{mails.port}?from=a@example.com&to=b@example.com&mode=insecure"
        assert why_not_sent(url) == "it does not accept the user's name or password"


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of this message, not of the watcher."""
    monkeypatch.setattr(apprise_process.sys, "executable", "/nowhere/python")
    assert why_not_sent(f"json://127.0.0.1:1/{TOKEN}") == "the process that sends ended before it was done"


def test_services_are_named_by_number_and_kind() -> None:
    """No name holds anything of a URL but its kind; addresses that services give to their users are taken, too."""
    urls = [
        f"ntfys://{TOKEN}",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        f"mailtos://ada:{TOKEN}@example.com",
    ]
    found = parse_services([Secret(url) for url in urls])
    assert [service.name for service in found] == ["notify 1 (ntfy)", "notify 2 (slack)", "notify 3 (mailto)"]
    assert TOKEN not in f"{found} {[vars(service) for service in found]}"


@pytest.mark.parametrize(
    ("urls", "why"),
    [
        (["ntfy://topic", TOKEN], "notify URL 2 is not SCHEME://...; expected one as ntfy://TOPIC"),
        ([""], "notify URL 1 is not SCHEME://...; expected one as ntfy://TOPIC"),
        ([f"{TOKEN}://{TOKEN}"], "Apprise knows no service for notify URL 1, or a part of it, or a package"),
        (["ntfy://topic", f"slack://{TOKEN}", f"https://example.com/{TOKEN}"], "for notify URL 2 and 3, or a part"),
    ],
)
def test_urls_that_cannot_be_used(urls: list[str], why: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The error says which, and what is expected; it holds nothing of them."""
    with pytest.raises(ValueError) as raised:
        parse_services([Secret(url) for url in urls])
    assert why in str(raised.value) and TOKEN not in str(raised.value)
    assert TOKEN not in "".join(capfd.readouterr())


def test_without_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    monkeypatch.setattr(services, "ask", lambda _: {"problem": "no_apprise", "status": None})
    monkeypatch.setattr(services, "install_command", lambda extra: f"install {extra}")
    with pytest.raises(ValueError, match=r"Apprise, which is not installed: `install notify` installs it$"):
        parse_services([Secret("ntfy://topic")])


def test_urls_that_cannot_be_checked_in_time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is too slow holds up no training: the services are used as they are, which is logged."""
    monkeypatch.setattr(services, "ask", lambda _: {"problem": "killed", "status": None})
    (service,) = parse_services([Secret(f"ntfy://{TOKEN}")])
    assert service.name == "notify 1 (not checked)"
    assert caplog.messages == ["the notify URLs cannot be checked: it took too long, and was killed"]


def test_modules_beside_the_program_are_not_imported(
    web: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file called as a library in the working directory, which may be a logdir, is not executed."""
    for name in ("json", "requests", "apprise"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('executed').touch()\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    AppriseService("notify 1 (json)", Secret(web.url())).send(MESSAGE)
    assert len(web.items) == 1 and not (tmp_path / "executed").exists()
