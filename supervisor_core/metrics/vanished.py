"""`VanishedRuns`: runs that were served, had not ended as planned, and whose directories are gone.

Each stays on the page as ``unreachable`` until it is back or is forgotten. But a run that was dead, below a logdir that
is still the same directory and misses no live run, was deleted by someone: it is served as ``deleted`` for an hour, so
that its alerts end, and is no trouble. Whoever can rename directories can have any number of runs vanish, so only what
is served of one is kept, and of a bounded number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from supervisor_core.metrics.metric import Stage
from supervisor_core.metrics.page import RunText, write_run
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.run import LIVE
from supervisor_core.run.model.snapshot import WatchedRun

Key: TypeAlias = tuple[int, str]
"""Number of the logdir, and name of the run below it."""

Identity: TypeAlias = tuple[int, int] | None
"""Inode and device of a directory; None where that is not known."""

DEAD = ("lost", "failed")
"""A run in one of these states, or of `LIVE`, has not ended as planned."""

DELETED_SECS = 3600.0
"""How long a run that was deleted is served: Prometheus may be down for a while."""

MAX_RUNS = 5_000
MAX_BYTES = 32 << 20
"""Of the text of the vanished runs of one logdir."""
MAX_BYTES_OF_RUN = 64 << 10
"""Of a run whose text is longer, neither threads, workers nor versions are served."""


@dataclass(slots=True, kw_only=True)
class VanishedRun:
    """What is kept of one."""

    own_name: str | None
    since: float
    """When it was first missed, as wall time."""
    identity: Identity
    newest_file: str | None
    given_up_at: float | None
    """When a lost run is not active any more."""
    is_live: bool
    """Whether it was running or stalled when it was last seen."""
    deleted_at: float | None = None
    """When it turned out that someone has deleted it; None while it is unreachable."""
    text: RunText = field(repr=False)

    @property
    def bytes(self) -> int:
        """Length of what is served of it."""
        return self.text.length

    def delete(self, now: float) -> None:
        """Serve it as deleted from now on."""
        self.deleted_at = now
        status = self.text.status
        reading = replace(status.reading, success=True)  # its state is known
        status = replace(
            status, state="deleted", active=False, phase=None, stall=None, error=None, workers=(), reading=reading
        )
        self.text = write_run(status, self.text.stage)

    def is_kept(self, now: float, forget_after_secs: float) -> bool:
        """Whether it is still served, if it stays away."""
        if self.deleted_at is not None:
            return now - self.deleted_at <= DELETED_SECS
        return now - self.since <= forget_after_secs

    def written(self, label: str, now: float) -> RunText:
        """Return what is served of it now."""
        status = self.text.status
        active = False if self.given_up_at is not None and now > self.given_up_at else status.active
        if (status.run, status.active) != (label, active):
            self.text = write_run(replace(status, run=label, active=active), self.text.stage)
        return self.text


class Missed(NamedTuple):
    """What an update has found."""

    renamed: Mapping[Key, str]
    """Directories that were renamed -> the labels of their runs."""
    dropped: Mapping[int, int]
    """How many runs of each logdir are not kept because there are too many."""
    deleted: Mapping[int, list[str]]
    """The labels of the runs of each logdir that turned out to be deleted."""


class VanishedRuns:
    """See the module's docstring.

    Args:
        forget_after_secs: how long one is kept, and how long after its last record a lost run is not active
            any more.
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
            now: the present wall time.
            identities: the inode and device of each logdir; None where that is not known.
            elsewhere: the runs that are there, and that another shard serves: they have not vanished.
        """
        kept = {
            key: run
            for key, run in self.runs.items()
            if key[0] in found
            and key[1] not in found[key[0]]
            and key not in elsewhere
            and run.is_kept(now, self._forget_after_secs)
        }
        for key, (watched, text) in served.items():
            is_missing = key[0] in found and key[1] not in found[key[0]] and key not in elsewhere
            if is_missing and watched.run.state in (*LIVE, *DEAD) and text.stage is not Stage.AT_REST:
                kept[key] = self._kept(watched, text, now)
        renamed = _renamed(kept, served, found) if kept else {}
        for _, old in renamed.values():
            kept.pop(old, None)
        deleted = self._deleted(kept, found, identities, now)
        self.runs, dropped = _bounded(kept)
        return Missed({new: label for new, (label, _) in renamed.items()}, dropped, deleted)

    def _deleted(
        self,
        kept: Mapping[Key, VanishedRun],
        found: Mapping[int, Mapping[str, WatchedRun]],
        identities: Mapping[int, Identity],
        now: float,
    ) -> dict[int, list[str]]:
        """Find the runs that someone has deleted; return the labels of those that are new among them, by logdir."""
        for index, runs in found.items():
            if runs:
                self._homes[index] = identities[index]
        missing_live = {index for (index, _), run in kept.items() if run.is_live}
        deleted: dict[int, list[str]] = {}
        for (index, _), run in kept.items():
            home = identities[index]
            is_in_place = bool(found[index]) if home is None else home == self._homes.get(index)
            if run.deleted_at is None and is_in_place and index not in missing_live:
                run.delete(now)
                deleted.setdefault(index, []).append(run.text.status.run)
        return deleted

    def _kept(self, watched: WatchedRun, text: RunText, now: float) -> VanishedRun:
        run, status = watched.run, text.status
        if text.length > MAX_BYTES_OF_RUN:
            session = None if status.session is None else replace(status.session, versions={})
            status = replace(status, threads=(), workers=(), session=session)
        if run.state in LIVE:
            gone = replace(watched, unreachable=True, problem="it is not there")
            status = replace(status, findings=findings(gone, now))
        status = replace(status, state="unreachable", reading=replace(status.reading, success=False))
        is_lost = run.state == "lost" and run.last_event_at is not None
        return VanishedRun(
            own_name=watched.own_name,
            since=now,
            identity=watched.identity,
            newest_file=_base(watched.files[-1].path) if watched.files else None,
            is_live=run.state in LIVE,
            given_up_at=(run.last_event_at or 0.0) + self._forget_after_secs if is_lost else None,
            text=write_run(status, max(text.stage, Stage.LIVE)),
        )


def _renamed(
    vanished: Mapping[Key, VanishedRun],
    served: Mapping[Key, tuple[WatchedRun, RunText]],
    found: Mapping[int, Mapping[str, WatchedRun]],
) -> dict[Key, tuple[str, Key]]:
    """Return each run that is new and in the directory of a vanished one -> the label and the key that that had.

    An inode is used again for another directory; so the newest file must be in it, too.
    """
    by_identity = {run.identity: key for key, run in vanished.items() if run.identity is not None}
    renamed: dict[Key, tuple[str, Key]] = {}
    for index, runs in found.items():
        for name, watched in runs.items():
            old = by_identity.get(watched.identity) if watched.identity is not None else None
            if old is None or (index, name) in served:
                continue
            run = vanished[old]
            if any(_base(file.path) == run.newest_file for file in watched.files):
                renamed[index, name] = run.text.status.run, old
    return renamed


def _bounded(runs: dict[Key, VanishedRun]) -> tuple[dict[Key, VanishedRun], Counter[int]]:
    """Return the newest of each top-level directory in turn, until there are too many; and how many more there are."""
    if len(runs) <= MAX_RUNS and sum(run.bytes for run in runs.values()) <= MAX_BYTES:
        return runs, Counter()
    turns: Counter[tuple[int, str]] = Counter()
    ranked: list[tuple[int, float, Key]] = []
    for key, run in sorted(runs.items(), key=lambda item: -item[1].since):
        top = key[0], key[1].partition("/")[0]
        turns[top] += 1
        ranked.append((turns[top], -run.since, key))
    count: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    dropped: Counter[int] = Counter()
    kept: set[Key] = set()
    for _, _, key in sorted(ranked):
        index, length = key[0], runs[key].bytes
        if count[index] < MAX_RUNS and taken[index] + length <= MAX_BYTES:
            count[index] += 1
            taken[index] += length
            kept.add(key)
        else:
            dropped[index] += 1
    return {key: run for key, run in runs.items() if key in kept}, dropped


def _base(path: str) -> str:
    return path.rpartition("/")[2]
