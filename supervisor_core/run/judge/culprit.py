"""Which process of a training in several keeps the others waiting: `verdict_of` if it hangs, from where each of them
is, and `straggler` if it is slow, from the pace of each.

A process that waits in a collective is a waiter: another one did not come. So, the first that decides:

    no sign of life     one that is gone or silent, unless another one hangs outside any collective
    not in a collective the only place where some are in none, at most half of them, while the others wait
    behind              the one place with the lowest step, of fewer than half of them
    another phase       the one place in another phase than the others, of fewer than half of them
    the minority        the smaller one of two places

Otherwise it is undecided: no process is named that may be a waiter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from supervisor_core.events.telemetry import Pace, Place, WorkerStatus
from supervisor_core.process.stacks import location
from supervisor_core.run.model.thresholds import LEAST_SHARE
from supervisor_core.run.model.words import duration, named, shown_name

SHOWN_PLACES = 4
_SHOWN_SECS = (30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0, 86400.0)

Unresponsive = Literal["silent", "failed", "blocked"]
"""A process that has written nothing for too long, has ended by an error, or runs no Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process of a training, which makes no progress."""

    name: str
    """``rank:2``, ``worker:1``, ``chief``."""
    place: Place | None = None
    """None where it is not known."""
    phase: str | None = None
    step: int | None = None
    unresponsive: Unresponsive | None = None
    """Why it publishes no place; None where it is alive and runs Python."""
    silent_secs: float | None = None
    """Of a silent or blocked one: for how long it has written nothing."""
    is_late: bool = True
    """Whether it has made no progress for longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Processes at one place."""

    ranks: tuple[str, ...]
    """Their names, as they were given: `named` makes text of them."""
    location: str | None
    """The program's line, as `supervisor_core.process.stacks.location` returns it; None where it is not known."""
    waits_in: str | None
    """The collective operation in which they wait; None: in none that is known."""
    phase: str | None
    step: int | None
    unresponsive: Unresponsive | None
    silent_secs: float | None
    """Of silent ones, the least."""
    is_late: bool
    frames: tuple[str, ...]
    """The innermost frames of their stacks; empty where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which process keeps the others waiting."""

    culprits: tuple[RankGroup, ...]
    """Those that do; empty: undecided."""
    others: tuple[RankGroup, ...]
    """All others; the largest group first."""
    text: str
    """The verdict, in one line without a full stop."""

    @property
    def key(self) -> tuple[object, ...]:
        """What differs between two verdicts, whatever the time."""
        return tuple(
            (group.ranks, group.location, group.waits_in, group.unresponsive, group.phase, group.step)
            for group in (*self.culprits, *self.others)
        )

    @property
    def culprit(self) -> str | None:
        """The names of those that keep the others waiting, for people; None where it is undecided."""
        return named([name for group in self.culprits for name in group.ranks]) if self.culprits else None

    @property
    def location(self) -> str | None:
        """Where these are; None where that is not known, or not one place."""
        places = {group.location for group in self.culprits}
        return places.pop() if len(places) == 1 else None


def verdict_of(ranks: Iterable[Rank]) -> Verdict | None:
    """Return which process keeps the others waiting; None with fewer than two, or if no place is known.

    Args:
        ranks: the processes that make no progress, or cannot any more.

    Example:
        >>> at = Place(digest="a", location="/home/me/train.py:14 stuck_in_user_code")
        >>> waits = Place(digest="b", location="/home/me/train.py:25 train", waits_in="backward")
        >>> ranks = [Rank(name=f"rank:{number}", place=waits) for number in range(2)]
        >>> verdict_of([*ranks, Rank(name="rank:2", place=at)]).text
        'rank 2 hangs at train.py:14 in stuck_in_user_code; ranks 0 and 1 wait for it at train.py:25 (backward)'
    """
    found = list(ranks)
    if len(found) < 2 or all(rank.place is None and rank.unresponsive is None for rank in found):
        return None
    groups = _groups(found)
    culprits = tuple(_culprits(groups, len(found)))
    chosen = {id(group) for group in culprits}  # a thousand groups are too many to compare each with each
    others = tuple(group for group in groups if id(group) not in chosen)
    return Verdict(culprits=culprits, others=others, text=_text(culprits, others))


def _groups(ranks: Sequence[Rank]) -> list[RankGroup]:
    """Return the processes by their places, the largest group first."""
    by_place: dict[tuple[object, ...], list[Rank]] = {}
    for rank in ranks:
        digest = None if rank.place is None else rank.place.digest
        by_place.setdefault((rank.unresponsive, digest, rank.phase, rank.step), []).append(rank)
    found = [_group(members) for members in by_place.values()]
    return sorted(found, key=lambda group: -len(group.ranks))


def _group(members: Sequence[Rank]) -> RankGroup:
    first = members[0]
    place = first.place
    return RankGroup(
        ranks=tuple(rank.name for rank in members),
        location=None if place is None or place.location is None else location(place.location),
        waits_in=None if place is None or place.waits_in is None else shown_name(place.waits_in),
        phase=None if first.phase is None else shown_name(first.phase),
        step=first.step,
        unresponsive=first.unresponsive,
        silent_secs=min((rank.silent_secs for rank in members if rank.silent_secs is not None), default=None),
        is_late=any(rank.is_late for rank in members),
        frames=() if place is None else place.frames,
    )


def _culprits(groups: Sequence[RankGroup], count: int) -> Iterable[RankGroup]:
    unresponsive = [group for group in groups if group.unresponsive is not None]
    alive = [group for group in groups if group.unresponsive is None]
    waiting = [group for group in alive if group.waits_in is not None]
    apart = [group for group in alive if group.waits_in is None]
    if unresponsive:  # while another one is in no collective, either may be what the others wait for
        return () if apart and waiting else unresponsive
    # A process whose line is not known may be in a collective that is not known.
    if any(group.location is None for group in apart) or len(alive) < 2:
        return ()
    if waiting and apart:
        found = apart if len(apart) == 1 and 2 * len(apart[0].ranks) <= count else _behind(apart, count)
        return () if any(_is_ahead(group, waiting) for group in found) else found
    if len({group.step for group in alive}) > 1:  # all wait, or none does: who is behind has not come
        return _behind(alive, count)
    return _in_another_phase(alive, count) or _minority(alive)


def _behind(groups: Sequence[RankGroup], count: int) -> list[RankGroup]:
    """Return the one group whose step is lower than all others'; nothing where there is none, and where it is half of
    the processes or more."""
    steps = [group.step for group in groups if group.step is not None]
    if len(steps) < len(groups):
        return []
    return _few([group for group in groups if group.step == min(steps)], count)


def _in_another_phase(groups: Sequence[RankGroup], count: int) -> list[RankGroup]:
    phases = {group.phase for group in groups}
    if len(phases) != 2 or None in phases:
        return []
    return next(
        (few for phase in phases if (few := _few([each for each in groups if each.phase == phase], count))),
        [],
    )


def _minority(groups: Sequence[RankGroup]) -> list[RankGroup]:
    most, least = groups[0], groups[-1]
    return [least] if len(groups) == 2 and len(least.ranks) < len(most.ranks) else []


def _few(groups: list[RankGroup], count: int) -> list[RankGroup]:
    return groups if len(groups) == 1 and 2 * len(groups[0].ranks) < count else []


def _is_ahead(group: RankGroup, waiting: Sequence[RankGroup]) -> bool:
    """Return whether a group has done more steps than all that wait: those do not wait for it then."""
    steps = [each.step for each in waiting if each.step is not None]
    return group.step is not None and len(steps) == len(waiting) and group.step > max(steps)


# The sentence.


def _text(culprits: Sequence[RankGroup], others: Sequence[RankGroup]) -> str:
    groups = (*culprits, *others)
    has_steps = len({group.step for group in groups if group.unresponsive is None}) > 1
    has_phases = len({group.phase for group in groups if group.unresponsive is None}) > 1

    def details(group: RankGroup) -> str:
        if group.unresponsive is not None:
            return ""
        step = f" at step {group.step:,}" if has_steps and group.step is not None else ""
        phase = f" in the phase {group.phase}" if has_phases and group.phase else ""
        return f"{step}{phase}"

    if not culprits:
        if len(others) == 1:
            return f"undecided: {named(others[0].ranks)} are all at {_at(others[0])}"
        parts = [f"{named(group.ranks)} {_state(group)}{details(group)}" for group in others[:SHOWN_PLACES]]
        return f"undecided: {_counted(len(others))} groups: {_joined(parts, len(others), ', ')}"
    it = "it" if sum(len(group.ranks) for group in culprits) == 1 else "them"
    said = [_hangs(group) + details(group) for group in culprits]
    said += [_waits(group, it) + details(group) for group in others]
    return _joined(said[:SHOWN_PLACES], len(said), "; ")


def _joined(parts: Sequence[str], count: int, between: str) -> str:
    left = count - len(parts)
    return between.join((*parts, *([f"and {left:,} more"] if left > 0 else [])))


def _counted(count: int) -> str:
    return {2: "two", 3: "three", 4: "four"}.get(count, f"{count:,}")


def _at(group: RankGroup) -> str:
    """Return the place of a group: the program's line with the collective, or else with its function."""
    if group.location is None:
        return "an unknown place"
    line = group.location
    return line if group.waits_in is None else f"{line.partition(' in ')[0]} ({group.waits_in})"


def _why_unresponsive(group: RankGroup) -> str:
    has = "have" if len(group.ranks) > 1 else "has"
    if group.unresponsive == "failed":
        return f"{has} failed"
    if group.unresponsive == "blocked":
        return f"{has} run no Python for {_at_least(group.silent_secs)}: native code holds the interpreter lock"
    return f"{has} written nothing for {_at_least(group.silent_secs)}"


def _at_least(secs: float | None) -> str:
    """Return a duration that stays the same for a while: a finding whose text changes is said again."""
    passed = [each for each in _SHOWN_SECS if each <= (secs or 0.0)]
    return f"more than {duration(passed[-1])}" if passed else duration(secs)


def _state(group: RankGroup) -> str:
    return f"at {_at(group)}" if group.unresponsive is None else _why_unresponsive(group)


def _hangs(group: RankGroup) -> str:
    who, several = named(group.ranks), len(group.ranks) > 1
    if group.unresponsive is not None:
        return f"{who} {_why_unresponsive(group)}"
    verb = ("hang" if several else "hangs") if group.is_late else ("are" if several else "is")
    return f"{who} {verb} at {_at(group)}"


def _waits(group: RankGroup, it: str) -> str:
    who, several = named(group.ranks), len(group.ranks) > 1
    if group.unresponsive is not None:
        return _hangs(group)
    if group.waits_in is None:
        return f"{who} {'are' if several else 'is'} at {_at(group)}"
    return f"{who} {'wait' if several else 'waits'} for {it} at {_at(group)}"


# What the workers say of themselves.

SILENT_SECS = 35.0
"""A process that has written nothing for longer is silent: its heartbeats are at most 10 s apart."""
_APART = ("serving", "stopped")
"""Phases of processes for which no other process waits: parameter servers, and what has ended."""


def shared_timeout(workers: Sequence[WorkerStatus], now: float, *, own_secs: float | None) -> float | None:
    """Return how long none of the processes of a training may make progress: the least hang timeout of those that
    train. None where one of the workers may keep the others waiting: it makes progress, is in another phase or in a
    save and still has time, or says nothing of this.

    Args:
        workers: the processes other than the chief.
        now: the present wall time, by the clock of their ``last_seen_at``.
        own_secs: the chief's hang timeout, where it trains.
    """
    alive = [worker for worker in workers if _takes_part(worker) and _unresponsive(worker, now) is None]
    trains = [worker.hang_timeout_secs for worker in alive if worker.phase == "training" and not worker.held]
    least = min((secs for secs in (own_secs, *trains) if secs is not None), default=None)
    return least if all(_is_late(worker, now, least) for worker in alive) else None


def ranks_of(workers: Sequence[WorkerStatus], now: float, *, least_secs: float | None) -> list[Rank] | None:
    """Return the workers as `verdict_of` takes them; None where one of them makes progress: then no worker waits for
    the chief, and the chief does not wait for that worker.

    Args:
        workers: the processes other than the chief.
        now: the present wall time, by the clock of their ``last_seen_at``.
        least_secs: see `shared_timeout`.
    """
    found = []
    for worker in workers:
        if not _takes_part(worker):
            continue
        unresponsive = _unresponsive(worker, now)
        if unresponsive is None and worker.place is None and worker.progress_age_secs is not None:
            return None
        rank = Rank(
            name=worker.name,
            place=None if unresponsive else worker.place,
            phase=worker.phase,
            step=worker.step,
            unresponsive=unresponsive,
            silent_secs=_silent_secs(worker, now) if unresponsive == "silent" else None,
            is_late=_is_late(worker, now, least_secs),
        )
        found.append(rank)
    return found


def name_of_chief(others: Iterable[str]) -> str:
    """Return the chief's name beside processes of these names: ``rank:0`` among ranks, or ``chief``."""
    return "rank:0" if any(name.startswith("rank:") for name in others) else "chief"


def place_text(worker: WorkerStatus) -> str | None:
    """Return where a worker is that makes no progress, for people; None of any other, and where that is not known.

    Example:
        >>> place = Place(digest="a", location="/home/me/train.py:25 train", waits_in="backward")
        >>> place_text(WorkerStatus(name="rank:1", state="running", progress_age_secs=12.0, place=place))
        'no progress for 12 s, at train.py:25 in train (backward)'
    """
    place = worker.place
    if place is None or place.location is None or worker.progress_age_secs is None:
        return None
    waits = "" if place.waits_in is None else f" ({place.waits_in})"
    return f"no progress for {duration(worker.progress_age_secs)}, at {location(place.location)}{waits}"


def _takes_part(worker: WorkerStatus) -> bool:
    return worker.state != "stopped" and worker.phase not in _APART


def _silent_secs(worker: WorkerStatus, now: float) -> float:
    return 0.0 if worker.last_seen_at is None else max(0.0, now - worker.last_seen_at)


def _unresponsive(worker: WorkerStatus, now: float) -> Unresponsive | None:
    if worker.state == "failed":
        return "failed"
    return "silent" if worker.state == "lost" or _silent_secs(worker, now) > SILENT_SECS else None


def _is_late(worker: WorkerStatus, now: float, least_secs: float | None) -> bool:
    """Return whether a worker that is alive has made no progress for longer than it may."""
    age = worker.progress_age_secs
    if age is not None and worker.place is not None:  # progress would have been written at once
        age += _silent_secs(worker, now)
    limit = least_secs if worker.phase == "training" and not worker.held else worker.hang_timeout_secs
    return age is not None and limit is not None and age > limit


# The pace of each.


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """One process, and its pace."""

    name: str
    host: str | None
    pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A process that is slower than the others."""

    paced: Paced
    secs: float
    """What it takes for a step: by itself, where the others wait for it in each step, and else in all."""
    usual_secs: float
    """The median of the same of the others."""
    is_waited_for: bool
    """Whether the others wait for it in each step."""


def straggler(ranks: Sequence[Paced]) -> Straggler | None:
    """Return the process that is slower than the others by more than a quarter of a step; None where there is none.

    Args:
        ranks: the processes that train.

    Example:
        >>> def paced(name, own_secs):
        ...     return Paced(name=name, host=None, pace=Pace(step_secs=0.2, own_secs=own_secs))
        >>> found = straggler([paced("rank:0", 0.09), paced("rank:1", 0.18), paced("rank:2", 0.08)])
        >>> found.paced.name, found.is_waited_for
        ('rank:1', True)
    """
    if len(ranks) < 2 or any(rank.pace.step_secs <= 0.0 for rank in ranks):  # as no process writes it
        return None
    for is_waited_for in (True, False):
        secs = [
            min(rank.pace.own_secs, rank.pace.step_secs) if is_waited_for else rank.pace.step_secs for rank in ranks
        ]
        slowest = max(range(len(ranks)), key=secs.__getitem__)
        others = [each for index, each in enumerate(secs) if index != slowest]
        usual, step_secs = median(others), ranks[slowest].pace.step_secs
        others_step = median(rank.pace.step_secs for index, rank in enumerate(ranks) if index != slowest)
        is_synchronous = step_secs <= (1.0 + LEAST_SHARE) * others_step
        if is_synchronous == is_waited_for and secs[slowest] - usual > LEAST_SHARE * step_secs:
            return Straggler(paced=ranks[slowest], secs=secs[slowest], usual_secs=usual, is_waited_for=is_waited_for)
    return None
