"""Events and services for tests of what is sent."""

from __future__ import annotations

import threading
from typing import Any

from supervisor_core.notify.event import Event, event_id
from supervisor_core.notify.message import Message
from supervisor_core.notify.services import NotSent, Service
from tests.notify.receivers import WAIT_SECS


def event(run: str = "tuning", **changed: Any) -> Event:
    """An event of a run: it is lost, if nothing else is said."""
    values: dict[str, Any] = {
        "what": "begins",
        "topic": "page",
        "kind": "lost",
        "severity": "page",
        "run": run,
        "logdir": f"/runs/{run}",
        "text": f"{run}: lost at step 2,500 on gpu-7",
        "at": 1_800_000_000.0,
        "host": "gpu-7",
        **changed,
    }
    return Event(**{"id": event_id(run, values["kind"], values["what"], values["at"]), **values})


def restart(run: str = "tuning", **changed: Any) -> Event:
    """A restart of a run."""
    text = f"{run}: OOM-killed at step 2,500 on gpu-7; restarted after 8 s, 120 steps recomputed"
    values = {"what": "happened", "topic": "restart", "kind": "restarted", "severity": "info", "text": text}
    return event(run, **{**values, **changed})


class Kept(Service):
    """Keeps the messages, and fails as long as `fails` is set."""

    def __init__(self, name: str = "kept") -> None:
        self.name = name
        self.fails: str | None = None
        self.attempts = 0
        self.messages: list[Message] = []
        self._changed = threading.Condition()

    def send(self, message: Message) -> None:
        with self._changed:
            fails = self.fails  # whoever waits for the attempt may change it at once
            self.attempts += 1
            if fails is None:
                self.messages.append(message)
            self._changed.notify_all()
        if fails is not None:
            raise NotSent(fails)

    def wait(self, count: int) -> list[Message]:
        """Wait for that many messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, WAIT_SECS)
            return list(self.messages)

    def wait_for_attempts(self, count: int) -> None:
        """Wait until it was tried that often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.attempts >= count, WAIT_SECS)

    @property
    def runs(self) -> list[str]:
        """Of all events that came, in order."""
        return [event.run for message in self.messages for event in message.events]
