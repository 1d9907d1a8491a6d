"""`Event`: one change in a run: what messages are about, and what commands and functions get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Literal, get_args

from supervisor_core.base.log import printable
from supervisor_core.run.judge.finding import Severity
from supervisor_core.run.judge.held import What as What

SCHEMA_VERSION = 1

Topic = Literal["page", "warn", "info", "restart", "end"]
"""What `--notify-on` chooses by. The first three: findings of that severity, their begin and their end. ``restart``:
the run was started again. ``end``: it was completed, or was stopped."""
TOPICS: tuple[Topic, ...] = get_args(Topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change in a run. Its texts may hold what the program wrote: show them as `printable`, as `event_json` does.

    Times are wall-clock seconds since the epoch, by the clock of the machine that looks.
    """

    id: str
    """The same for every watcher of the run, whatever machine it is on and whenever it looks: see `event_id`."""
    what: What
    topic: Topic
    kind: str
    """One of the kinds of findings, or ``completed``, ``stopped``, ``restarted``."""
    severity: Severity
    run: str
    """The run's name, as the watcher calls it."""
    logdir: str
    """The run's directory, complete."""
    text: str
    """What happened, in one line after the run's name: ``tuning: completed after 2 d 4 h, goodput 97.1 %``."""
    action: str | None = None
    """What to do first: a sentence, or a command that can be pasted; None where there is nothing to do."""
    at: float
    """When it began, ended or happened."""
    host: str | None = None
    step: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of the run: ``team``, ``user``, ``job_id`` ..."""
    owner: int | None = None
    """User id of the owner of the run's directory; in a store without owners that of its session, by its records."""
    runbook_url: str | None = None
    """The entry of the runbook; None where there is none, or no base was configured."""
    tab_url: str | None = None
    """The run in the TensorBoard tab; None where no address was configured."""


def event_id(*parts: object) -> str:
    """Return the id of the event that these parts identify: 16 hexadecimal digits.

    Args:
        parts: what every watcher of the run reads alike: a session's id, a kind, whether it begins, the owner. Not the
            run's name or directory, which depend on where the watcher looks from, and no time that depends on when it
            looks.

    Example:
        >>> event_id("host-1-4711", "lost", "begins")
        '2bfa839cba4e9050'
    """
    return sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as the object of docs/event.schema.json: `v`, the version, then its fields. All texts are
    `printable`: a command prints them on a terminal, and a path may hold bytes that are no text."""
    values = {item.name: _shown(getattr(event, item.name)) for item in fields(event)}
    return {"v": SCHEMA_VERSION, **values}


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {printable(name): printable(text) for name, text in value.items()}
    return printable(value) if isinstance(value, str) else value
