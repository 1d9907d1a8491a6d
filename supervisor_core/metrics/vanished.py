"""`VanishedRuns`: runs that were served, had not ended as planned, and whose directories are gone.

Each stays on the page as ``unreachable`` until it is back or is forgotten. But a run that was dead, below a logdir that
is still the same directory and misses no live run, was deleted by someone: it is served no more. A live run is
forgotten an hour after it went from such a logdir. Whoever can rename directories can have any number of runs vanish,
so only what is served of one is kept, and of a bounded number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from supervisor_core.metrics.metric import Stage
from supervisor_core.metrics.page import RunText, write_run
from supervisor_core.run.judge.finding import Finding, worst_first
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.run import LIVE
from supervisor_core.run.model.snapshot import WatchedRun

Key: TypeAlias = tuple[int, str]
"""Number of the logdir, and name of the run below it."""

Identity: TypeAlias = tuple[int, int] | None
"""Inode and device of a directory; None where that is not known."""

DEAD = ("lost", "failed")
"""A run in one of these states, or of `LIVE`, has not ended as planned."""

GONE_SECS = 3600.0
"""How long a live run is served that is gone from a logdir that is there."""

MAX_RUNS = 5_000
"""Of one logdir."""


@dataclass(slots=True, kw_only=True)
class VanishedRun:
    """What is kept of one."""

    own_name: str | None
    since: float
    """When it was first missed, as wall time."""
    place: tuple[tuple[int, int], str] | None
    held: tuple[Finding, ...]
    """What was held of it."""
    missed: Finding | None
    """That it is gone, of one that was running or stalled; None of others: they may be deleted."""
    is_in_place: bool = False
    """Whether its logdir is still the same directory; what is gone as a whole is said of the logdir."""
    text: RunText = field(repr=False)

    def written(self, label: str, now: float, hold_secs: float) -> RunText:
        """Return what is served of it now; that it is gone once that has lasted for `hold_secs`."""
        status, held = self.text.status, self.held
        if self.missed is not None and self.is_in_place and now - self.since >= hold_secs:
            held = worst_first((*held, self.missed))
        if (status.run, status.findings) != (label, held):
            self.text = write_run(replace(status, run=label, findings=held), self.text.stage)
        return self.text


class Missed(NamedTuple):
    """What an update has found."""

    labels: Mapping[Key, str]
    """Directories that were renamed -> the labels of their runs."""
    renamed: Mapping[Key, Key]
    """The same -> what they were before."""
    dropped: Mapping[int, int]
    """How many runs of each logdir are not kept because there are too many."""
    deleted: Mapping[int, list[str]]
    """The labels of the runs of each logdir that turned out to be deleted."""


class VanishedRuns:
    """See the module's docstring.

    Args:
        forget_after_secs: how long one is kept while its logdir is gone.
    """

    def __init__(self, forget_after_secs: float) -> None:
        self._forget_after_secs = forget_after_secs
        self.runs: dict[Key, VanishedRun] = {}
        """Those that are kept, in the order in which they were missed."""
        self._homes: dict[int, Identity] = {}

    def clear(self) -> None:
        """Forget all."""
        self.runs, self._homes = {}, {}

    def is_displaced(self, index: int, identity: Identity) -> bool:
        """Say whether a logdir is another directory than the one in which there were runs last."""
        home = self._homes.get(index)
        return home is not None and identity is not None and identity != home

    def update(
        self,
        served: Mapping[Key, tuple[WatchedRun, RunText]],
        found: Mapping[int, Mapping[str, WatchedRun]],
        now: float,
        identities: Mapping[int, Identity],
        elsewhere: Set[Key] = frozenset(),
    ) -> Missed:
        """Take in what was found.

        Args:
            served: what the page had of each run that was there.
            found: the runs that are there now, by logdir; only of these logdirs may runs have vanished.
            now: the current wall time.
            identities: the inode and device of each logdir; None where that is not known.
            elsewhere: the runs that are there, and that another shard serves: they have not vanished.
        """

        def is_missing(key: Key) -> bool:
            return key[0] in found and key[1] not in found[key[0]] and key not in elsewhere

        kept = {key: run for key, run in self.runs.items() if is_missing(key)}
        for key, (watched, text) in served.items():
            if is_missing(key) and watched.run.state in (*LIVE, *DEAD) and text.stage is not Stage.AT_REST:
                kept[key] = self._kept(watched, text, now)
        renamed = _renamed(kept, served, found) if kept else {}
        labels = {new: kept[old].text.status.run for new, old in renamed.items()}
        for old in renamed.values():
            kept.pop(old, None)
        deleted = self._without_deleted(kept, found, identities, now)
        self.runs, dropped = _bounded(kept)
        return Missed(labels, renamed, dropped, deleted)

    def _without_deleted(
        self,
        kept: dict[Key, VanishedRun],
        found: Mapping[int, Mapping[str, WatchedRun]],
        identities: Mapping[int, Identity],
        now: float,
    ) -> dict[int, list[str]]:
        """Drop the runs that someone has deleted, and those that are forgotten; return the labels of the deleted."""
        for index, runs in found.items():
            if runs:
                self._homes[index] = identities[index]
        missing_live = {index for (index, _), run in kept.items() if run.missed is not None}
        deleted: dict[int, list[str]] = {}
        for (index, name), run in list(kept.items()):
            home = identities[index]
            run.is_in_place = bool(found[index]) if home is None else home == self._homes.get(index)
            if run.is_in_place and index not in missing_live:
                deleted.setdefault(index, []).append(run.text.status.run)
                del kept[index, name]
            elif now - run.since > (GONE_SECS if run.is_in_place else self._forget_after_secs):
                del kept[index, name]
        return deleted

    def _kept(self, watched: WatchedRun, text: RunText, now: float) -> VanishedRun:
        run, status, missed = watched.run, text.status, None
        if run.state in LIVE:
            gone = replace(watched, unreachable=True, problem="it is not there")
            missed = next((each for each in findings(gone, now) if each.kind == "unreachable"), None)
            missed = missed and replace(missed, since=now)
        reading = replace(status.reading, success=False)
        status = replace(status, state="unreachable", threads=(), workers=(), reading=reading)
        return VanishedRun(
            own_name=watched.own_name,
            since=now,
            place=watched.place,
            held=status.findings,
            missed=missed,
            text=write_run(status, max(text.stage, Stage.LIVE)),
        )


def _renamed(
    vanished: Mapping[Key, VanishedRun],
    served: Mapping[Key, tuple[WatchedRun, RunText]],
    found: Mapping[int, Mapping[str, WatchedRun]],
) -> dict[Key, Key]:
    """Return each run that is new and in the directory of a vanished one -> the key that that had."""
    by_identity = {run.place[0]: key for key, run in vanished.items() if run.place is not None}
    renamed: dict[Key, Key] = {}
    for index, runs in found.items():
        for name, watched in runs.items():
            old = by_identity.get(watched.identity) if watched.identity is not None else None
            if old is not None and (index, name) not in served and watched.was_at(vanished[old].place):
                renamed[index, name] = old
    return renamed


def _bounded(runs: dict[Key, VanishedRun]) -> tuple[dict[Key, VanishedRun], Counter[int]]:
    """Return the newest of each top-level directory in turn, until there are too many; and how many more there are."""
    if len(runs) <= MAX_RUNS:
        return runs, Counter()
    turns: Counter[tuple[int, str]] = Counter()
    ranked: list[tuple[int, float, Key]] = []
    for key, run in sorted(runs.items(), key=lambda item: -item[1].since):
        top = key[0], key[1].partition("/")[0]
        turns[top] += 1
        ranked.append((turns[top], -run.since, key))
    count: Counter[int] = Counter()
    kept: set[Key] = set()
    for _, _, key in sorted(ranked):
        count[key[0]] += 1
        if count[key[0]] <= MAX_RUNS:
            kept.add(key)
    return {key: run for key, run in runs.items() if key in kept}, Counter(key[0] for key in runs.keys() - kept)
