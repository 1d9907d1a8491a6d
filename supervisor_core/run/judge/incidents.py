"""`sentences`: what happened to several runs in a stretch of time, as the one who takes over wants to read it.

Runs that went down, stalled, or could not save together are one sentence. No sentence holds a wall time: `Sentence.at`
has it, and whoever shows the sentence writes it in the reader's time zone.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from supervisor_core.run.judge.run_incidents import ENDS, Incident, LaneKind, incidents, lane_items
from supervisor_core.run.judge.wordings import DOWN_AGAIN, WORDINGS, Wording
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.words import counted, duration, listed

LEAST_RUNS = 3
"""A sentence about several runs is about at least as many."""
BURST_RUNS = 5
BURST_SHARE = 0.05
"""Incidents of so many runs, or of this share of the live ones, within `WINDOW_SECS` have something in common."""
WINDOW_SECS = 60.0
NAMED_RUNS = 5
"""How many runs a sentence names."""
_NAMED_HOSTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What happened to one run, or to several at about the same time."""

    at: float | None
    """When it began; None of what is only counted."""
    text: str
    runs: tuple[str, ...]
    """All runs that it is about."""
    is_group: bool = False
    """Whether it is about runs that had the same incident together."""
    is_open: bool = False
    """Whether it lasts, of at least one of them."""


def sentences(runs: Iterable[Run], since: float, until: float, now: float) -> list[Sentence]:
    """Return what happened to runs in a stretch of time: incidents by time, then how many began and ended as planned.

    Args:
        runs: all runs. Of fewer, fewer incidents have something in common.
        since: begin of the stretch.
        until: its end.
        now: the current wall time.

    Example:
        >>> sentences([], 0.0, 60.0, 60.0)
        []
    """
    shown = list(runs)
    found = [item for run in shown for item in incidents(run, now)]
    stays = [stay for run in shown for stay in stays_of(run)]
    planned = planned_sentences(((run.name, planned_moments(run)) for run in shown), since, until)
    return [*incident_sentences(found, stays, since, until), *planned]


class Stay(NamedTuple):
    """A session of a run on a host."""

    run: str
    host: str | None
    since: float
    until: float
    """Infinite while it is open."""


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


def together(found: Sequence[Incident], stays: Iterable[Stay]) -> list[tuple[Incident, ...]]:
    """Return incidents by time, those that happened together as a group, one of each run.

    Incidents of a kind are together if they begin within `WINDOW_SECS` (failed saves: ten minutes), and are those of
    `BURST_RUNS` runs, or of `BURST_SHARE` of the live ones; or those of all runs of a host, at least `LEAST_RUNS`.
    """
    places = _Stays(stays)
    by_cause: defaultdict[str, list[Incident]] = defaultdict(list)
    for item in found:
        by_cause["down" if item.kind in ENDS else item.kind].append(item)
    groups: list[tuple[Incident, ...]] = []
    for kind, items in by_cause.items():
        items.sort(key=_begin)
        window_secs = _SAVES_SECS if kind == "saves" else WINDOW_SECS
        taken = set[int]()
        for index, first in enumerate(items):
            if id(first) in taken:
                continue
            end = bisect_right(items, first.at + window_secs, key=_begin)
            of_run = {item.run: item for item in reversed(items[index:end]) if id(item) not in taken}
            members = places.burst(sorted(of_run.values(), key=_begin))
            members = members if first in members else [first]
            taken.update(map(id, members))
            groups.append(tuple(members))
    return sorted(groups, key=lambda members: members[0].at)


def _begin(item: Incident) -> float:
    return item.at


class _Stays:
    """Which runs were on which host, and how many were live, at any time."""

    def __init__(self, stays: Iterable[Stay]) -> None:
        self._by_host: defaultdict[str | None, list[Stay]] = defaultdict(list)
        for stay in stays:
            self._by_host[stay.host].append(stay)
        every = [stay for of_host in self._by_host.values() for stay in of_host]
        self._begins = sorted(stay.since for stay in every)
        self._ends = sorted(stay.until for stay in every)

    def burst(self, window: Sequence[Incident]) -> Sequence[Incident]:
        """Return those incidents of a window, one of each run, that happened together; may be none."""
        if len(window) < LEAST_RUNS:
            return ()
        at = window[0].at
        live = bisect_right(self._begins, at) - bisect_left(self._ends, at)
        least = min(BURST_RUNS, max(LEAST_RUNS, math.ceil(BURST_SHARE * live)))
        by_host: defaultdict[str | None, list[Incident]] = defaultdict(list)
        for item in window:
            by_host[item.host].append(item)
        whole = {host for host, items in by_host.items() if self._has_no_other_run(host, items)}
        others = [item for item in window if item.host not in whole]
        return window if len(others) >= least else [item for item in window if item.host in whole]

    def _has_no_other_run(self, host: str | None, items: Sequence[Incident]) -> bool:
        if host is None or len(items) < LEAST_RUNS:
            return False
        there = {stay.run for stay in self._by_host[host] if stay.since <= items[0].at <= stay.until}
        return there <= {item.run for item in items}


_SAVES_SECS = 600.0


def incident_sentences(found: Iterable[Incident], stays: Iterable[Stay], since: float, until: float) -> list[Sentence]:
    """Return incidents as far as they lie in a stretch of time, as sentences by time.

    A run that went down several times in the stretch is one sentence.
    """
    near = [item for item in found if item.touches(since - _SAVES_SECS, until + _SAVES_SECS)]
    touching = [group for group in together(near, stays) if any(item.touches(since, until) for item in group)]
    again: defaultdict[str, list[Incident]] = defaultdict(list)
    for first, *others in touching:
        if not others and first.kind in ENDS:
            again[first.run].append(first)
    said, told = set[str](), []
    for group in touching:
        first = group[0]
        ends = again.get(first.run, []) if first.kind in ENDS else []
        if len(group) > 1:
            told.append(_group_sentence(group))
        elif len(ends) >= LEAST_RUNS:
            if first.run not in said:
                said.add(first.run)
                told.append(_loop_sentence(ends))
        else:
            told.append(Sentence(at=first.at, text=first.text, runs=(first.run,), is_open=_is_open(first)))
    return told


def _is_open(item: Incident) -> bool:
    return item.until is None and not item.is_over


def _loop_sentence(ends: Sequence[Incident]) -> Sentence:
    """Return what happened to a run that went down again and again."""
    last = ends[-1]
    what = DOWN_AGAIN.format(run=last.run, count=f"{len(ends):,}", span=time_span(ends))
    text = f"{what}{_cause(ends)}. Last: {last.text}"
    return Sentence(at=ends[0].at, text=text, runs=(last.run,), is_open=_is_open(last))


def _group_sentence(members: Sequence[Incident]) -> Sentence:
    of_all = WORDINGS["down"] if members[0].kind in ENDS else members[0].wording
    wording = members[0].wording if len({item.kind for item in members}) == 1 else of_all
    what = wording.together.format(number=f"{len(members):,}", several=wording.several)
    runs = tuple(item.run for item in members)
    text = f"{what} within {time_span(members)}{place(members)}{_cause(members)}."
    text += f"{_then(members, of_all)} Runs: {named(runs)}."
    return Sentence(at=members[0].at, text=text, runs=runs, is_group=True, is_open=any(map(_is_open, members)))


class _Placed(Protocol):
    """Something that happened to a run, somewhere at some time."""

    @property
    def at(self) -> float: ...

    @property
    def host(self) -> str | None: ...


def time_span(members: Sequence[_Placed]) -> str:
    """Return how long it took from the first to the last of what happened, which is given by time."""
    return duration(max(1.0, round(members[-1].at - members[0].at)))


def place(members: Sequence[_Placed]) -> str:
    """Return where things happened as the next words of a sentence; empty where that is unknown."""
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


def _cause(members: Sequence[Incident]) -> str:
    """Return what most of the records say of the cause."""
    counts = Counter(item.why for item in members if item.why is not None)
    if not counts:
        return ""
    why, number = counts.most_common(1)[0]
    if number * 2 < len(members) or number < 2:
        return ""
    return f": {why.removesuffix('.')}" if number == len(members) else f"; {number:,} of them: {why.removesuffix('.')}"


def _then(members: Sequence[Incident], wording: Wording) -> str:
    """Return what the members of a group did afterwards."""
    after = sorted(item.until - item.at for item in members if item.until is not None)
    parts = []
    if after and wording.several_again:
        took = duration(after[0]) if after[-1] - after[0] < 1 else f"{duration(after[0])} to {duration(after[-1])}"
        parts.append(f" {_number(len(after), len(members))} {wording.several_again} after {took}.")
    still = tuple(item.run for item in members if _is_open(item))
    over = tuple(item.run for item in members if item.until is None and item.is_over)
    if still:
        verb = "is" if len(still) == 1 else "are"
        parts.append(f" {_number(len(still), len(members))} {verb} {wording.still}{_which(still, members)}.")
    if over and members[0].kind in ENDS:
        number = f"{len(over):,} {'was' if len(over) == 1 else 'were'} not"
        none = len(over) == len(members)
        parts.append(f" {'None was' if none else number} started again{_which(over, members)}.")
    return "".join(parts)


def _number(count: int, total: int) -> str:
    return "All" if count == total else f"{count:,}"


def _which(names: tuple[str, ...], members: Sequence[Incident]) -> str:
    return "" if len(names) == len(members) else f": {named(names)}"


def named(names: Sequence[str]) -> str:
    """Return names as an enumeration, `NAMED_RUNS` of them at most."""
    more = len(names) - NAMED_RUNS
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMED_RUNS])} and {more:,} more"


_PLANNED: Mapping[LaneKind, str] = {"completed": "completed", "stopped": "was stopped"}
STARTED = "started"


def planned_moments(run: Run) -> list[tuple[str, float]]:
    """Return when a run was started for the first time, and when it ended as planned, unless it was started again."""
    items = lane_items(run)
    begins = [item.since for item in items if item.kind == "session"]
    newest = max(begins, default=0.0)
    ends = [(_PLANNED[item.kind], item.since) for item in items if item.kind in _PLANNED and item.since >= newest]
    return [*([(STARTED, min(begins))] if begins else []), *ends[-1:]]


def planned_sentences(
    runs: Iterable[tuple[str, Sequence[tuple[str, float]]]], since: float, until: float
) -> list[Sentence]:
    """Return how many runs were started, completed and stopped in a stretch of time, a sentence each.

    Args:
        runs: names, with `planned_moments`.
        since: begin of the stretch.
        until: its end.
    """
    names: dict[str, list[str]] = {STARTED: [], **{verb: [] for verb in _PLANNED.values()}}
    for name, moments in runs:
        for verb, at in moments:
            if since <= at <= until:
                names[verb].append(name)
    found = []
    for verb, of in names.items():
        if of:
            did = verb if len(of) == 1 else verb.replace("was ", "were ")
            what = f"{counted(len(of), 'run')} {did}"
            found.append(Sentence(at=None, text=f"{what}: {named(of)}.", runs=tuple(of)))
    return found
