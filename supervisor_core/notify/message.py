"""`Message`: what is sent to a service: one event, or all that happened within a few seconds, in a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from supervisor_core.base.clock import utc_text
from supervisor_core.base.fair_share import fair_order
from supervisor_core.base.log import printable
from supervisor_core.notify.event import Event, Topic
from supervisor_core.run.judge.finding import Severity
from supervisor_core.run.judge.together import LEAST_RUNS, named, place, time_span
from supervisor_core.run.judge.wordings import WORDINGS, Wording

PRIORITY: tuple[Topic, ...] = ("page", "warn", "end", "restart", "info")
"""What is said first, and is kept where there is too much."""
MOST_LINES = 10
"""How many lines of events a message has."""
_TITLE_CHARACTERS = 200

JOINER = "\u200d"
"""Zero-width: it is not seen, and ends what a chat takes for a name."""
_MENTION = re.compile(
    r"[@\ufe6b\uff20]|!(?=[a-z\[])|<(?=[@!#&%]|users/|at\b|[a-z][a-z0-9+.-]*:)|\](?=\()", re.IGNORECASE
)
"""What a chat, or Apprise on the way to it, takes for a call of its members, or for a link that shows another address
than its own. Each ``@`` is one: what may follow it, as blanks or ``_``, differs from service to service."""

AppriseType = Literal["failure", "warning", "info", "success"]
_TYPES: dict[Severity, AppriseType] = {"page": "failure", "warn": "warning", "info": "info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. Its texts are printable but for each `JOINER` of ours; its title is one line."""

    title: str
    body: str
    severity: Severity
    """The worst of what it says."""
    events: tuple[Event, ...]
    """What it is about, the worst first."""
    apprise_type: AppriseType = "info"
    """By what a service chooses a colour, or a sign."""


def message_of(events: Sequence[Event], *, more: int = 0, since: float | None = None) -> Message:
    """Return the message about events.

    Args:
        events: one or more.
        more: how many other events there were, which are only counted.
        since: when the oldest of all happened that could not be sent at once; None if all could.
    """
    timed = sorted(events, key=lambda event: event.at)
    # A planned stop does not hide why the run had failed before.
    found = sorted(zip(urgencies(timed), timed, strict=True), key=lambda item: (item[1].kind == "stopped", item[0]))
    ordered = tuple(event for _, event in found)
    worst, lines = ordered[0], _lines(ordered)
    total = len(ordered) + more
    first, of_first = lines[0]
    title = printable(first if total == of_first else f"{first.removesuffix('.')} (and {total - of_first:,} more)")
    is_all = len(lines) == 1 and len(title) <= _TITLE_CHARACTERS
    body = [] if is_all else [_plain(line) for line, _ in lines[:MOST_LINES]]
    left = sum(number for _, number in lines[MOST_LINES:]) + more
    if left:
        body.append(f"And {left:,} more{'' if since is None else f' since {_minute(since)}'}.")
    is_one_run = all(event.logdir == worst.logdir for event in ordered)
    body += _details(ordered) if is_one_run else [f"{_span(ordered)} UTC"]
    body += [
        f"{name}: {printable(url)}" for name, url in (("Runbook", worst.runbook_url), ("Tab", worst.tab_url)) if url
    ]
    return Message(
        title=_plain(title if len(title) <= _TITLE_CHARACTERS else f"{title[: _TITLE_CHARACTERS - 4]} ..."),
        body="\n".join(body),
        severity=min((event.severity for event in ordered), key=list(_TYPES).index),
        events=ordered,
        apprise_type=_type(ordered),
    )


def urgencies(events: Sequence[Event]) -> list[tuple[int, int]]:
    """Return for each event how urgent it is, the smallest first: by its topic, then by turns of the owners of runs,
    and of each owner's runs. So no user keeps back what another one says."""
    found = [(0, 0)] * len(events)
    for rank, topic in enumerate(PRIORITY):
        own = [index for index, event in enumerate(events) if event.topic == topic]
        turns = fair_order(own, lambda index: events[index].owner, lambda index: events[index].run)
        for turn, index in enumerate(turns):
            found[index] = rank, turn
    return found


def _type(events: Iterable[Event]) -> AppriseType:
    """Return how urgent events look: what is over is good news."""
    bad = [event.severity for event in events if event.what != "is_over" and event.kind != "completed"]
    return _TYPES[min(bad, key=list(_TYPES).index)] if bad else "success"


def _details(events: Sequence[Event]) -> list[str]:
    """Return what is to be done about events of one run, the worst first, and when and where they happened. In a
    command an empty word stands for a joiner, so that a shell takes it as it was; within ``$'...'`` it cannot."""
    labels = "".join(f", {name}={value}" for name, value in sorted(events[0].labels.items()))
    hosts = ", ".join(dict.fromkeys(event.host for event in events if event.host is not None))
    to_do = next((event.action for event in events if event.action is not None), None)
    is_left_out = to_do is None or ("$'" in to_do and _MENTION.search(to_do))
    action = [] if to_do is None or is_left_out else [_MENTION.sub(lambda found: f"{found[0]}''", printable(to_do))]
    return [*action, _plain(f"{_span(events)} UTC{f' on {hosts}' if hosts else ''}, {events[0].logdir}{labels}")]


def _span(events: Sequence[Event]) -> str:
    """Return when events happened."""
    first, last = _second(min(event.at for event in events)), _second(max(event.at for event in events))
    return first if first == last else f"{first} to {last}"


def _lines(events: Sequence[Event]) -> list[tuple[str, int]]:
    """Return lines about events, each with the number of its events: what happened to several runs is one line. They
    are in the order of the events."""
    groups: dict[tuple[str, ...], list[tuple[int, Event]]] = {}
    for index, event in enumerate(events):
        groups.setdefault((event.topic, event.kind, event.what), []).append((index, event))
    found: list[tuple[int, str, int]] = []
    for placed in groups.values():
        members = [event for _, event in placed]
        runs = list(dict.fromkeys(event.run for event in members))
        if len(runs) >= LEAST_RUNS:
            found.append((placed[0][0], _of_several(members, runs), len(members)))
        else:
            found += [(index, event.text, 1) for index, event in placed]
    return [(text, number) for _, text, number in sorted(found)]


def _of_several(members: Sequence[Event], runs: Sequence[str]) -> str:
    first = members[0]
    where = f"within {time_span(members)}{place(members)}"
    wording = WORDINGS.get(first.kind, Wording())
    what = wording.several_again if first.what == "is_over" else wording.several
    if not what:
        return f"{len(runs):,} runs {where}: {named(runs)}. The first: {first.text}"
    return f"{len(runs):,} runs {what} {where}. Runs: {named(runs)}."


def _second(at: float) -> str:
    return utc_text(at) or f"{at:g}"  # what no calendar has


def _minute(at: float) -> str:
    text = utc_text(at)
    return f"{at:g}" if text is None else f"{text[11:16]} UTC"


def _plain(text: str) -> str:
    """Return a text that no terminal obeys, and by which no chat calls its members."""
    return _MENTION.sub(lambda found: found[0] + JOINER, printable(text))
