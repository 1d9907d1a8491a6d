"""What a run says calls nobody: each service that docs/notify.md names, and some others, after Apprise's formatting."""

from __future__ import annotations

import json
import logging
import re
import smtplib
from collections.abc import Iterator
from email import message_from_string
from email.header import decode_header, make_header
from email.policy import default as policy
from typing import Any
from urllib.parse import unquote_plus

import pytest

from supervisor_core.notify.apprise_process import answer_to
from supervisor_core.notify.message import JOINER, message_of
from tests.notify.samples import event

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise imports
apprise = pytest.importorskip("apprise")
requests = pytest.importorskip("requests")

CALLS = (
    "@all_ @here_ @channel__ @everyone",  # Mattermost, Rocket.Chat, Discord
    "@&815 @815 <@&815> < @&815> <@815> @ 815",  # Discord
    "<!channel> < !here> !channel> <!subteam^S1> !channel|x> <@U1|ada> @U1>",  # Slack
    "<at>ada</at> <at id=all>",  # Teams, Feishu
    "@room @ada:example.org https://matrix.to/#/@ada:example.org",  # Matrix
    "@**all** @_**ada** @*team*",  # Zulip
    "<users/all> <@all>",  # Google Chat, Webex
    "@ada_bot [ada](tg://user?id=815) <tg://user?id=815>",  # Telegram
    '@"ada" \uff20ada \ufe6bada',  # Nextcloud Talk, Misskey
    "[log in](https://evil.example) <https://evil.example|log in>",  # another address than the one shown
)
CALL = re.compile(
    rf"[@\uff20\ufe6b](?!{JOINER}|'')|![a-z]\w*[|>]|!\[|<[\s\\]*(?:!(?!{JOINER}|'')|[#%]|users/|at\b|tg:|https:)|\](?=\()",
    re.IGNORECASE,
)
URLS = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/general",
    "slack, bot": "slack://xoxb-1234-1234-abc124/general",
    "slack, blocks": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/general?blocks=yes",
    "discord": f"discord://{'i' * 24}/{'t' * 64}",
    "teams": f"workflows://host/{'w' * 24}/{'s' * 24}",
    "ntfy": "ntfy://topic",
    "telegram": "tgram://123456789:abcdefg_hijklmnop/12315544",
    "pagerduty": f"pagerduty://{'i' * 32}@{'a' * 32}/source",
    "webhook": "json://host",
    "mail": "mailto://ada:secret@mail.example?from=a@mail.example&to=b@mail.example&mode=insecure",
    "mattermost": "mmost://host/3ccdd113474722377935511fc85d3dd4",
    "rocketchat": f"rocket://{'a' * 23}/{'b' * 43}@host/general?mode=webhook",
    "matrix": "matrix://ada@secret?mode=matrix",
    "zulip": f"zulip://bot@org/{'a' * 32}",
    "google chat": "gchat://space/key/token",
    "webex": f"wxteams://{'a' * 80}",
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All texts that were sent; there is no network."""
    texts: list[str] = []

    def send(_session: Any, request: Any, **_: Any) -> Any:
        body = request.body.decode() if isinstance(request.body, bytes) else request.body or ""
        try:
            texts.extend(leaves(json.loads(body)))
        except ValueError:
            texts.append(unquote_plus(body))
        texts.extend(str(make_header(decode_header(request.headers.get("X-Title", "")))).splitlines())
        response = requests.Response()
        response.status_code, response._content = 200, b'{"ok": true, "channel": "C1", "result": {}}'
        return response

    class Mail:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def sendmail(self, _from: str, _to: Any, text: str) -> None:
            mail = message_from_string(text, policy=policy)
            texts.append(str(mail["Subject"]))
            texts.extend(part.get_content() for part in mail.walk() if not part.is_multipart())

        def __getattr__(self, _name: str) -> Any:
            return lambda *_, **__: None

    monkeypatch.setattr(requests.Session, "send", send)
    monkeypatch.setattr(requests.Session, "get_redirect_target", None)
    monkeypatch.setattr(smtplib, "SMTP", Mail)
    monkeypatch.setattr(smtplib, "SMTP_SSL", Mail)
    for name in ("socket_connect_timeout", "socket_read_timeout", "overflow_mode"):
        monkeypatch.setattr(apprise.NotifyBase, name, getattr(apprise.NotifyBase, name))
    logger = logging.getLogger("apprise")
    handlers, level, propagates = list(logger.handlers), logger.level, logger.propagate
    yield texts
    logger.handlers, logger.propagate = handlers, propagates
    logger.setLevel(level)


def leaves(value: Any) -> list[str]:
    """The texts within JSON."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return [text for each in value for text in leaves(each)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("text_format", ["", "text", "markdown", "html"])
@pytest.mark.parametrize("service", URLS)
def test_what_a_run_says_calls_nobody(service: str, text_format: str, sent: list[str]) -> None:
    """Its text, its name, its directory, host, labels and what to do; as title and in the body."""
    url = URLS[service]
    url += f"{'&' if '?' in url else '?'}format={text_format}" if text_format else ""
    for call in CALLS:
        found = event(
            text=f"run: {call}", logdir=f"/runs/{call}", host=call, labels={"team": call}, action=f"tail {call}"
        )
        for message in (message_of([found]), message_of([found, event("other", kind="nan", text=f"x: {call}")])):
            sent.clear()
            answer_to({"url": url, "title": message.title, "body": message.body, "type": message.apprise_type})
            assert any("08:00:00" in text for text in sent), sent
            for text in (text.replace("&apos;", "'") for text in sent):
                assert CALL.search(text) is None, (call, text)
                assert "\U0001f449" not in text, "Discord's mark of those who are called"
