"""`sentences`: what happened to several runs in a stretch of time, as the one who takes over wants to read it.

Runs to which the same happened at the same time are one sentence, by a plain rule: those of `BURST_SHARE` of the live
runs within `WINDOW_SECS`, of at least `BURST_RUNS` and at most `BURST_MOST`; of one host at least `LEAST_RUNS`, and all
of its runs. What follows within `_CLOSE_SECS` is in it, too, and what is further off at either end is not. No
sentence holds a wall time: `Sentence.at` has it, and whoever shows the sentence writes it in the reader's time zone.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.history import ENDS, history
from supervisor_core.run.judge.wordings import DOWN_AGAIN, WORDINGS, Wording
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.words import counted, duration, listed

LEAST_RUNS = 3
"""A sentence about several runs is about at least as many."""
BURST_RUNS = 5
BURST_SHARE = 0.01
BURST_MOST = 25
WINDOW_SECS = 60.0
_CLOSE_SECS = 12.0
NAMED_RUNS = 5
"""How many runs a sentence names."""
_NAMED_HOSTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What happened to one run, or to several at about the same time."""

    at: float
    """When it began."""
    text: str
    runs: tuple[str, ...]
    """All runs that it is about."""
    is_group: bool = False
    """Whether it is about runs to which the same happened together."""
    is_open: bool = False
    """Whether it lasts, of at least one of them."""


class Happened(NamedTuple):
    """What went wrong in a run: an item of its `history`."""

    run: str
    found: Finding

    @property
    def at(self) -> float:
        """When it began."""
        return self.found.since or 0.0

    @property
    def host(self) -> str | None:
        """Where."""
        host = self.found.evidence.get("host")
        return host if isinstance(host, str) else None


class Stay(NamedTuple):
    """A session of a run on a host."""

    run: str
    host: str | None
    since: float
    until: float
    """Infinite while it is open."""


def sentences(runs: Iterable[Run], since: float, until: float, now: float) -> list[Sentence]:
    """Return what happened to runs in a stretch of time, by time.

    Args:
        runs: all runs. Of fewer, less is found to have happened together.
        since: begin of the stretch.
        until: its end.
        now: the current wall time.

    Example:
        >>> sentences([], 0.0, 60.0, 60.0)
        []
    """
    shown = list(runs)
    happened = [Happened(run.name, item) for run in shown for item in history(run)]
    return sentences_of(happened, [stay for run in shown for stay in stays_of(run)], since, until, now)


def stays_of(run: Run, name: str | None = None) -> list[Stay]:
    """Return where a run was, and when, by the reader's clock."""
    ahead = run.clock_skew_secs or 0.0
    return [
        Stay(
            run.name if name is None else name,
            session.host,
            session.started_at - ahead,
            math.inf if session.is_open or session.ended_at is None else session.ended_at - ahead,
        )
        for session in run.sessions
        if session.started_at is not None
    ]


def sentences_of(
    happened: Iterable[Happened], stays: Iterable[Stay], since: float, until: float, now: float
) -> list[Sentence]:
    """Return what happened in a stretch of time as sentences, by time. A run that went down several times is one.

    Args:
        happened: to any of the runs, at any time.
        stays: of all runs.
        since: begin of the stretch.
        until: its end.
        now: the current wall time.
    """
    near = [item for item in happened if _touches(item, since - WINDOW_SECS, until + WINDOW_SECS)]
    groups = [group for group in _together(near, stays) if any(_touches(item, since, until) for item in group)]
    again: defaultdict[str, list[Happened]] = defaultdict(list)
    for first, *others in groups:
        if not others and first.found.kind in ENDS:
            again[first.run].append(first)
    loops = {run: ends for run, ends in again.items() if len(ends) >= LEAST_RUNS}
    told = [_loop_sentence(ends, now) for ends in loops.values()]
    for group in groups:
        first = group[0]
        if len(group) > 1:
            told.append(_group_sentence(group, now))
        elif first.run not in loops or first.found.kind not in ENDS:
            text = f"{first.run}: {first.found.text.removesuffix('.')}."
            told.append(Sentence(at=first.at, text=text, runs=(first.run,), is_open=_is_open(first, now)))
    return sorted(told, key=lambda item: item.at)


def _touches(item: Happened, since: float, until: float) -> bool:
    return item.at <= until and (item.found.until is None or item.found.until >= since)


def _is_open(item: Happened, now: float) -> bool:
    return item.found.until is None or item.found.until > now


def _together(happened: Iterable[Happened], stays: Iterable[Stay]) -> Iterator[Sequence[Happened]]:
    """Yield what happened together as a group, one item of each run; everything else alone."""
    by_host: defaultdict[str | None, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_host[stay.host].append(stay)
    begins = sorted(stay.since for of_host in by_host.values() for stay in of_host)
    ends = sorted(stay.until for of_host in by_host.values() for stay in of_host)

    def is_whole(host: str | None, items: Sequence[Happened]) -> bool:
        """Return whether these are of all runs of a host."""
        if host is None or len(items) < LEAST_RUNS:
            return False
        there = {stay.run for stay in by_host[host] if stay.since <= items[0].at <= stay.until}
        return there <= {item.run for item in items}

    by_kind: defaultdict[str, list[Happened]] = defaultdict(list)
    for item in happened:
        by_kind["down" if item.found.kind in ENDS else item.found.kind].append(item)
    for items in by_kind.values():
        items.sort(key=lambda item: item.at)
        taken = set[int]()
        for index, first in enumerate(items):
            if id(first) in taken:
                continue
            if first.found.kind not in ENDS and not WORDINGS.get(first.found.kind, Wording()).several:
                yield [first]  # nothing is known to be said of several
                continue
            end = bisect_right(items, first.at + WINDOW_SECS, key=lambda item: item.at)
            live = bisect_right(begins, first.at) - bisect_left(ends, first.at)
            least = max(BURST_RUNS, min(BURST_MOST, math.ceil(BURST_SHARE * live)))
            while index + least <= end < len(items) and items[end].at - items[end - 1].at <= _CLOSE_SECS:
                end += 1
            window = {item.run: item for item in reversed(items[index:end]) if id(item) not in taken}
            group = [item for item in items[index:end] if window.get(item.run) is item]
            while len(group) > least and group[-1].at - group[-2].at > _CLOSE_SECS:
                group.pop()
            is_apart = len(group) > least and group[1].at - first.at > _CLOSE_SECS
            if len(group) < least or (is_apart and group[least].at - group[1].at <= WINDOW_SECS):
                here = [item for item in group if item.host == first.host]
                group = here if is_whole(first.host, here) else [first]
            taken.update(map(id, group))
            yield group


def _loop_sentence(ends: Sequence[Happened], now: float) -> Sentence:
    """Return what happened to a run that went down again and again."""
    last = ends[-1]
    what = DOWN_AGAIN.format(run=last.run, count=f"{len(ends):,}", span=time_span(ends))
    text = f"{what}{_cause(ends)}. Last: {last.found.text}."
    return Sentence(at=ends[0].at, text=text, runs=(last.run,), is_open=_is_open(last, now))


def _group_sentence(members: Sequence[Happened], now: float) -> Sentence:
    kinds = {item.found.kind for item in members}
    wording = WORDINGS[members[0].found.kind if len(kinds) == 1 else "down"]
    runs = tuple(item.run for item in members)
    text = f"{len(runs):,} runs {wording.several} within {time_span(members)}{place(members)}{_cause(members)}."
    lasts = tuple(item.run for item in members if _is_open(item, now))
    if lasts and wording.still:
        which = f"all {wording.still}" if len(lasts) == len(runs) else f"{wording.still}: {named(lasts)}"
        text += f" {which[0].upper()}{which[1:]}."
    is_open = bool(lasts)
    return Sentence(at=members[0].at, text=f"{text} Runs: {named(runs)}.", runs=runs, is_group=True, is_open=is_open)


def time_span(members: Sequence[Any]) -> str:
    """Return how long it took from the first to the last of what happened, which is given by time: each has ``at``."""
    return duration(max(1.0, round(members[-1].at - members[0].at)))


def place(members: Sequence[Any]) -> str:
    """Return where things happened, each at its ``host``, as the next words of a sentence; empty if unknown."""
    counts = Counter(item.host for item in members if item.host is not None)
    if not counts:
        return ""
    if len(counts) == 1 and counts.total() == len(members):
        return f", all on {next(iter(counts))}"
    if len(counts) <= _NAMED_HOSTS and counts.total() == len(members):
        return f", on {listed([host for host, _ in counts.most_common()])}"
    host, number = counts.most_common(1)[0]
    most = f", {number:,} of them on {host}" if number >= LEAST_RUNS else ""
    return f", on {counted(len(counts), 'host')}{most}"


def _cause(members: Sequence[Happened]) -> str:
    """Return what the records of most of them say of the cause."""
    counts = Counter(item.found.evidence["error"] for item in members if "error" in item.found.evidence)
    why, number = counts.most_common(1)[0] if counts else ("", 0)
    if number * 2 < len(members) or number < 2:
        return ""
    text = str(why).removesuffix(".")
    return f": {text}" if number == len(members) else f"; {number:,} of them: {text}"


def named(names: Sequence[str]) -> str:
    """Return names as an enumeration, `NAMED_RUNS` of them at most."""
    more = len(names) - NAMED_RUNS
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMED_RUNS])} and {more:,} more"
