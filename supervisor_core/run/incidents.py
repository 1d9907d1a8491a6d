"""`sentences`: what happened to several runs in a stretch of time, as the one who takes over wants to read it.

Runs that went down, stalled, or could not save together are one sentence. No sentence holds a wall time: `Sentence.at`
has it, and whoever shows the sentence writes it in the reader's time zone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple, Protocol

from supervisor_core.run.model import Run
from supervisor_core.run.run_incidents import ENDS, Incident, IncidentKind, LaneKind, incidents, lane_items
from supervisor_core.run.words import DAY_SECS, counted, duration, listed

LEAST_RUNS = 3
"""Runs that have something in common are one sentence from this number on."""
NAMED_RUNS = 5
"""How many runs a sentence names."""
_NAMED_HOSTS = 3
_BEFORE_SECS = DAY_SECS
"""How long before a stretch of time incidents begin that are looked at, too, for what happens together by chance."""
_BY_CHANCE = 0.05
"""Expected number of bursts that have no cause in common, among all incidents of a kind."""


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
        now: the present wall time.

    Example:
        >>> sentences([], 0.0, 60.0, 60.0)
        []
    """
    shown = list(runs)
    found = [item for run in shown for item in recent(incidents(run, now), since, until)]
    planned = planned_sentences(((run.name, planned_moments(run)) for run in shown), since, until)
    return [*incident_sentences(together(found), since, until), *planned]


def recent(found: Iterable[Incident], since: float, until: float) -> list[Incident]:
    """Return the incidents that are looked at for the sentences of a stretch of time: those that lie in it, that begin
    after it, or in the day before."""
    return [item for item in found if item.at >= since - _BEFORE_SECS or item.touches(since, until)]


class IncidentGroup(NamedTuple):
    """Incidents of one kind that began at about the same time, one of each run; or a single incident."""

    members: tuple[Incident, ...]
    """By time."""
    label: str | None = None
    """What else they have in common, as ``name=value``."""


def together(found: Sequence[Incident]) -> list[IncidentGroup]:
    """Return incidents, those that happened together as a group, by time.

    Incidents are together if more of one kind begin within two minutes (saves: ten) than chance explains, or if
    `LEAST_RUNS` of them do on one host.
    """
    groups: list[IncidentGroup] = []
    by_class: defaultdict[_Class, list[Incident]] = defaultdict(list)
    for item in found:
        by_class[_class_of(item.kind)].append(item)
    for kind, items in by_class.items():
        bursts, alone = _on_one_host(items, kind.window_secs)
        on_several = list(_bursts(sorted(alone, key=_begin), kind.window_secs))
        bursts += [burst for burst in on_several if len(burst) > 1]
        groups += [IncidentGroup(tuple(burst), _common_label(burst, items)) for burst in bursts]
        groups += [IncidentGroup((burst[0],)) for burst in on_several if len(burst) == 1]
    return sorted(groups, key=lambda group: group.members[0].at)


def _begin(item: Incident) -> float:
    return item.at


def _on_one_host(items: Sequence[Incident], window_secs: float) -> tuple[list[list[Incident]], list[Incident]]:
    """Return the bursts of single hosts, those of several hosts at one time joined, and the incidents in none."""
    by_host: defaultdict[str | None, list[Incident]] = defaultdict(list)
    for item in items:
        by_host[item.host].append(item)
    found, alone = [], by_host.pop(None, [])
    for on_host in by_host.values():
        for burst in _bursts(sorted(on_host, key=_begin), window_secs):
            if len(burst) > 1:
                found.append(burst)
            else:
                alone += burst
    joined: list[list[Incident]] = []
    for burst in sorted(found, key=lambda each: each[0].at):
        is_near = bool(joined) and burst[0].at - joined[-1][0].at <= window_secs
        if is_near and not {item.run for item in burst} & {item.run for item in joined[-1]}:
            joined[-1] = sorted([*joined[-1], *burst], key=_begin)
        else:
            joined.append(burst)
    return joined, alone


class _Class(NamedTuple):
    """Kinds of incidents that may have one cause."""

    name: str
    window_secs: float
    what: Callable[[int], str]
    """What happened to a number of runs."""
    after: str
    """What the runs did afterwards."""
    still: str
    """What those do to which it lasts."""


_DOWN = _Class("down", 120.0, lambda n: f"{n:,} runs went down", "were started again", "still down")
_STALLED = _Class("stall", 120.0, lambda n: f"{n:,} runs stalled", "made progress again", "still stalled")
_SAVES = _Class("saves", 600.0, lambda n: f"Saves of {n:,} runs began to fail", "saved again", "still failing to save")
_SILENT = _Class("silence", 120.0, lambda n: f"{n:,} runs were halted", "ran again", "still halted")
_RECOVERED = _Class("recovery", 120.0, lambda n: f"{n:,} runs lost TensorFlow's session", "continued", "still lost")
_LOSS = _Class("loss", 120.0, lambda n: f"The loss of {n:,} runs became NaN or infinite", "", "not finite since")

_CLASSES: Mapping[IncidentKind, _Class] = {
    "stall": _STALLED, "saves": _SAVES, "silence": _SILENT, "recovery": _RECOVERED, "loss": _LOSS,
}  # fmt: skip
_ENDED: Mapping[IncidentKind, str] = {
    "lost": "were lost",
    "error": "failed",
    "oom": "were OOM-killed",
    "hang": "hung and were killed",
    "signal": "were stopped by a signal",
}


def _class_of(kind: IncidentKind) -> _Class:
    return _CLASSES.get(kind, _DOWN)


def _bursts(items: Sequence[Incident], window_secs: float) -> Iterator[list[Incident]]:
    """Yield incidents of one kind, by time, those of a burst together: at most one of each run."""
    if not items:
        return
    span = max(items[-1].at - items[0].at, DAY_SECS)
    least = _least_burst(len(items), window_secs / span)
    index = 0
    while index < len(items):
        burst = _of_window(items, index, window_secs)
        later = _of_window(items, index + 1, window_secs) if len(burst) >= least else []
        if len(burst) < least or len(later) > len(burst):  # the first one came before the others by chance
            burst, end = [items[index]], index + 1
        else:
            end = bisect_right(items, burst[-1].at, key=_begin)
        yield burst
        taken = set(map(id, burst))
        yield from ([item] for item in items[index:end] if id(item) not in taken)
        index = end


def _of_window(items: Sequence[Incident], index: int, window_secs: float) -> list[Incident]:
    """Return the incidents of a window that begins with one of them: of each run the first."""
    if index >= len(items):
        return []
    end = bisect_right(items, items[index].at + window_secs, key=_begin)
    first = {item.run: item for item in reversed(items[index:end])}
    return sorted(first.values(), key=_begin)


def _least_burst(number: int, share: float) -> int:
    """Return the number of incidents that is a burst: chance makes hardly one of it, if each comes independently.

    Args:
        number: of incidents.
        share: of all time, of a window.
    """
    mean = number * share
    term, tail, least = exp(-mean), 1.0 - exp(-mean), 2  # chances of no other incident in a window; of at least one
    while least < LEAST_RUNS or number * tail > _BY_CHANCE:
        term *= mean / (least - 1)
        tail -= term
        least += 1
    return least


def _common_label(members: Sequence[Incident], all_items: Sequence[Incident]) -> str | None:
    """Return a label that all members have, and not every other one; None without one, or on one host."""
    if len({item.host for item in members}) < 2 or len(all_items) == len(members):
        return None
    for pair in members[0].labels.items():
        name, value = pair
        if all(item.labels.get(name) == value for item in members) and not all(
            item.labels.get(name) == value for item in all_items
        ):
            return f"{name}={value}"
    return None


def incident_sentences(groups: Sequence[IncidentGroup], since: float, until: float) -> list[Sentence]:
    """Return what `together` found as sentences, as far as it lies in a stretch of time, by time.

    A run that went down several times in the stretch is one sentence.
    """
    touching = [group for group in groups if any(item.touches(since, until) for item in group.members)]
    again: defaultdict[str, list[Incident]] = defaultdict(list)
    for group in touching:
        if len(group.members) == 1 and group.members[0].kind in ENDS:
            again[group.members[0].run].append(group.members[0])
    said, found = set[str](), []
    for group in touching:
        first = group.members[0]
        ends = again.get(first.run, []) if first.kind in ENDS else []
        if len(group.members) > 1:
            found.append(_group_sentence(group))
        elif len(ends) >= LEAST_RUNS:
            if first.run not in said:
                said.add(first.run)
                found.append(_loop_sentence(ends))
        else:
            found.append(Sentence(at=first.at, text=first.text, runs=(first.run,), is_open=_is_open(first)))
    return found


def _is_open(item: Incident) -> bool:
    return item.until is None and not item.is_over


def _loop_sentence(ends: Sequence[Incident]) -> Sentence:
    """Return what happened to a run that went down again and again."""
    last = ends[-1]
    text = f"{last.run} went down {len(ends):,} times within {time_span(ends)}{_cause(ends)}. Last: {last.text}"
    return Sentence(at=ends[0].at, text=text, runs=(last.run,), is_open=_is_open(last))


def _group_sentence(group: IncidentGroup) -> Sentence:
    members = group.members
    kind = _class_of(members[0].kind)
    kinds = {item.kind for item in members}
    what = kind.what(len(members))
    if len(kinds) == 1 and members[0].kind in ENDS:
        what = f"{len(members):,} runs {_ENDED[members[0].kind]}"
    label = "" if group.label is None else f", all with {group.label}"
    runs = tuple(item.run for item in members)
    text = f"{what} within {time_span(members)}{place(members)}{label}{_cause(members)}."
    text += f"{_then(members, kind)} Runs: {named(runs)}."
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


def _then(members: Sequence[Incident], kind: _Class) -> str:
    """Return what the members of a group did afterwards."""
    after = sorted(item.until - item.at for item in members if item.until is not None)
    parts = []
    if after and kind.after:
        took = duration(after[0]) if after[-1] - after[0] < 1 else f"{duration(after[0])} to {duration(after[-1])}"
        parts.append(f" {_number(len(after), len(members))} {kind.after} after {took}.")
    still = tuple(item.run for item in members if _is_open(item))
    over = tuple(item.run for item in members if item.until is None and item.is_over)
    if still:
        verb = "is" if len(still) == 1 else "are"
        parts.append(f" {_number(len(still), len(members))} {verb} {kind.still}{_which(still, members)}.")
    if over and kind is _DOWN:
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
_OF_SEVERAL: Mapping[str, str] = {"was stopped": "were stopped"}
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
            what = f"{counted(len(of), 'run')} {verb if len(of) == 1 else _OF_SEVERAL.get(verb, verb)}"
            found.append(Sentence(at=None, text=f"{what}: {named(of)}.", runs=tuple(of)))
    return found
