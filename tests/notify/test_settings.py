"""Settings from options and the environment: what is taken, what is refused, what crosses to another process."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from supervisor_core.notify import settings
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.services import AppriseService
from supervisor_core.notify.settings import DEFAULT_TOPICS, NotifySettings, parse_topics

TOKEN = "hunter2hunter2"


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """URLs are not checked: tests of services do that."""

    def parse(urls: list[Secret]) -> list[AppriseService]:
        return [AppriseService(f"notify {number} (test)", url) for number, url in enumerate(urls, 1)]

    monkeypatch.setattr(settings, "parse_services", parse)


def of(environ: dict[str, str] | None = None, **given: Any) -> NotifySettings | None:
    """The settings of options and an environment."""
    return NotifySettings.of(environ=environ or {}, **given)


def revealed(found: NotifySettings | None) -> list[str]:
    """The URLs of services."""
    assert found is not None
    return [service.url.reveal() for service in found.notify]


def test_nothing_is_wanted() -> None:
    """Without a service, a command and a ping URL there is nothing to do, whatever else is given."""
    assert of() is None and of(tab_url="https://tab", topics="warn") is None
    assert of({"SUPERVISOR_NOTIFY": " \n", "SUPERVISOR_PING": " "}) is None


def test_options_come_before_the_environment() -> None:
    """The environment has URLs with white space between them, and counts where the command line says nothing."""
    environ = {"SUPERVISOR_NOTIFY": "a://1\n  b://2\t", "SUPERVISOR_PING": " https://h/ping\n"}
    found = of(environ)
    assert found is not None and found.ping is not None
    assert (revealed(found), found.ping.reveal()) == (["a://1", "b://2"], "https://h/ping")
    assert (found.topics, found.limit_per_hour) == (DEFAULT_TOPICS, 20)
    found = of(environ, urls=[" c://3 "], ping="http://other")
    assert found is not None and found.ping is not None
    assert (revealed(found), found.ping.reveal()) == (["c://3"], "http://other")


def test_a_command_is_one_more_service() -> None:
    """It stands after the others."""
    found = of(urls=["a://1"], command="logger")
    assert found is not None
    assert [service.name for service in found.services] == ["notify 1 (test)", "on-event"]
    assert found.text == "page, end and restart to notify 1 (test) and on-event"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"command": "  "}, "the command for events is empty; expected a line for the shell"),
        ({"ping": f"ftp://{TOKEN}"}, r"the ping URL is none of a web server, as https://HOST/ID"),
        ({"command": "x", "limit_per_hour": 0}, "the limit is 0 messages per hour; expected at least 1"),
        ({"command": "x", "topics": "page,urgent"}, "the topics are 'page,urgent'; expected some of page, warn, info,"),
        ({"command": "x", "topics": ","}, "the topics are ','; expected some of page, warn"),
    ],
)
def test_what_is_refused(given: dict[str, Any], why: str) -> None:
    """The error says what came, unless that may hold a token, and what was expected."""
    with pytest.raises(ValueError) as raised:
        of(**given)
    assert str(raised.value).startswith(why) and TOKEN not in str(raised.value)


def test_topics_are_in_one_order() -> None:
    """However they are written."""
    assert parse_topics(" end, page ,page") == ("page", "end")


def test_another_process_gets_all_of_it() -> None:
    """What is encoded is decoded as it was, and nothing else shows the secrets."""
    found = of(
        urls=[f"ntfy://{TOKEN}"],
        command=f"curl {TOKEN}",
        ping=f"https://h/{TOKEN}",
        topics="warn,end",
        limit_per_hour=7,
        runbook_base="https://wiki",
        tab_url="https://tab",
        state="/shared",
    )
    assert found is not None
    line = found.encode()
    again = NotifySettings.decode(line)
    assert "\n" not in line and again.encode() == line
    assert [service.name for service in again.services] == ["notify 1 (test)", "on-event"]
    assert (again.topics, again.limit_per_hour, again.state) == (("warn", "end"), 7, "/shared")
    shown = f"{found} {found!r} {found.text} {vars(found)} {found.services} {found.command} {found.ping:}"
    assert TOKEN not in shown
    with pytest.raises(TypeError, match="a secret cannot be pickled"):
        pickle.dumps(found)
