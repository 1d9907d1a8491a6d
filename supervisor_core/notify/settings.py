"""`NotifySettings`: what is sent, how often, and where: from options and from the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor_core.notify.event import TOPICS, Topic
from supervisor_core.notify.ping import check_ping_url
from supervisor_core.notify.secret import NOTIFY_VARIABLE, PING_VARIABLE, Secret
from supervisor_core.notify.services import AppriseService, CommandService, Service, parse_services
from supervisor_core.run.model.words import listed

DEFAULT_TOPICS: tuple[Topic, ...] = ("page", "end", "restart")
LIMIT_PER_HOUR = 20
GATHER_SECS = 10.0


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """Where messages are sent, and which. Neither its `repr` nor its `text` shows a URL or the command."""

    notify: tuple[AppriseService, ...] = ()
    topics: tuple[Topic, ...] = DEFAULT_TOPICS
    limit_per_hour: int = LIMIT_PER_HOUR
    """How many messages a service gets at most; the command gets every event of the topics."""
    command: Secret | None = None
    """Run for each event."""
    ping: Secret | None = None
    """Requested while the watcher sees."""
    runbook_base: str | None = None
    tab_url: str | None = None
    state: str | None = None
    """The directory for what is unsent; None for the user's own."""
    services: tuple[Service, ...] = field(init=False)
    """All that gets messages."""

    def __post_init__(self) -> None:
        own = () if self.command is None else (CommandService(self.command),)
        object.__setattr__(self, "services", (*self.notify, *own))

    @classmethod
    def of(
        cls,
        *,
        urls: Sequence[str] = (),
        topics: str | None = None,
        limit_per_hour: int = LIMIT_PER_HOUR,
        command: str | None = None,
        ping: str | None = None,
        runbook_base: str | None = None,
        tab_url: str | None = None,
        state: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> NotifySettings | None:
        """Return the settings of a command line, and of the environment where that says nothing; None where neither
        names a service, a command or a ping URL. Starts a process, which checks the URLs.

        Args:
            urls: of services.
            topics: names with commas between them.
            limit_per_hour: as the field.
            command: as the field.
            ping: as the field.
            runbook_base: as the field.
            tab_url: as the field.
            state: as the field.
            environ: the environment.

        Raises:
            ValueError: if something cannot be used; the text holds nothing of a URL.
        """
        chosen = [Secret(url.strip()) for url in urls or environ.get(NOTIFY_VARIABLE, "").split()]
        ping_url = ping or environ.get(PING_VARIABLE, "").strip()
        if command is not None and not command.strip():
            raise ValueError("the command for events is empty; expected a line for the shell")
        if not chosen and not ping_url and command is None:
            return None
        if ping_url:
            check_ping_url(Secret(ping_url))
        if limit_per_hour < 1:
            raise ValueError(f"the limit is {limit_per_hour} messages per hour; expected at least 1")
        return cls(
            topics=DEFAULT_TOPICS if topics is None else parse_topics(topics),
            notify=tuple(parse_services(chosen)),
            limit_per_hour=limit_per_hour,
            command=None if command is None else Secret(command),
            ping=Secret(ping_url) if ping_url else None,
            runbook_base=runbook_base,
            tab_url=tab_url,
            state=state,
        )

    @property
    def text(self) -> str:
        """Where messages go, and which, in a few words.

        Example:
            >>> NotifySettings(command=Secret("logger"), ping=Secret("http://h")).text
            'page, end and restart to on-event; the ping URL is requested'
        """
        where = listed([service.name for service in self.services])
        what = f"{listed(self.topics)} to {where}" if where else ""
        return "; ".join(filter(None, [what, "the ping URL is requested" if self.ping else ""]))

    def encode(self) -> str:
        """Return it as one line for another process's standard input. It holds the URLs."""
        return json.dumps(
            {
                **vars(self),
                "services": None,
                "notify": [[service.name, service.url.reveal()] for service in self.notify],
                "command": None if self.command is None else self.command.reveal(),
                "ping": None if self.ping is None else self.ping.reveal(),
            }
        )

    @classmethod
    def decode(cls, line: str | bytes) -> NotifySettings:
        """Return what `encode` was called on."""
        values = json.loads(line)
        del values["services"]
        for name in ("command", "ping"):
            values[name] = None if values[name] is None else Secret(values[name])
        values["notify"] = tuple(AppriseService(name, Secret(url)) for name, url in values["notify"])
        values["topics"] = tuple(values["topics"])
        return cls(**values)


def parse_topics(text: str) -> tuple[Topic, ...]:
    """Return the topics of a text with commas between them.

    Raises:
        ValueError: if one is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = tuple(topic for topic in TOPICS if topic in names)
    if not names or set(names) != set(found):
        raise ValueError(f"the topics are {text!r}; expected some of {listed(TOPICS)}, with commas between them")
    return found
