"""`verdict_of`: which process of a training in several keeps the others waiting, from where each of them is.

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
from typing import Literal

from supervisor_core.events.place import Place
from supervisor_core.process.stacks import location
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
