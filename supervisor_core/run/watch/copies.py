"""`CopyMarks`: which directories are copies of other runs (``cp -a``, rsync), by the sessions in them.

A session runs in one directory. Of several that have it as their newest, or that go on from it, one is a copy of
another only by what whoever wrote the copy cannot have got from others (`_ran_there`): its own record names the other
directory, or the training's user owns the other one and not the copy. Where a record names no directory, the run that
has gone further (later events; within a moment, the one that was the original before) is the original among those of
one owner. Where nothing decides, all are runs: whoever can read a session's id can write newer events of it.

A session that ended in a directory, and that other sessions follow only elsewhere, began a fork: that is two runs.

A session without telemetry is known by its first file: by its name, which has host and process, and its first event.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Generic, TypeVar

from supervisor_core.events.chunk_builder import writer_of
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.liveness import chief_path, read_chief
from supervisor_core.run.watch.place import SEVERAL, Place, place_of
from supervisor_core.storage.local import local_path

SAME_SECS = 20.0
"""Events of two directories whose newest ones are no further apart have gone equally far: a copy that is renewed while
both are read may be seen to be ahead for a moment."""
MOST_COMPARED = 16
"""Directories that each copy is compared with, the likeliest originals: of thousands those beyond are runs."""

_Key = TypeVar("_Key", bound=Hashable)


class CopyMarks(Generic[_Key]):
    """Marks the copies among some runs, again and again. Used by one thread at a time.

    Example:
        >>> CopyMarks[str]().marked({})
        {}
    """

    def __init__(self) -> None:
        self._marked: dict[_Key, tuple[WatchedRun, WatchedRun]] = {}
        """Each copy as it came, and as it was handed out."""
        self._originals: set[_Key] = set()
        """All others, as of the last time."""
        self._places: dict[tuple[str, str, object], Place] = {}
        """Of what was compared the last time, by directory, session and identity: a look costs no file."""

    def marked(self, runs: Mapping[_Key, WatchedRun]) -> dict[_Key, WatchedRun]:
        """Return the runs; each copy with `WatchedRun.copy_of`, and without a state of its own.

        Args:
            runs: all that are known of; in the same order each time.
        """
        before, self._marked = self._marked, {}
        found = dict(runs)
        for key, original in self._copied(runs).items():
            watched, directory = runs[key], runs[original].directory
            known = before.get(key)
            if known is not None and known[0] is watched and known[1].copy_of == directory:
                self._marked[key] = known
            else:
                self._marked[key] = watched, as_copy(watched, directory)
            found[key] = self._marked[key][1]
        self._originals = found.keys() - self._marked.keys()
        return found

    def _copied(self, runs: Mapping[_Key, WatchedRun]) -> dict[_Key, _Key]:
        """Return each copy with the run that it is a copy of."""
        ids = {key: found for key, watched in runs.items() if (found := _ids(watched))}
        newest = {found[-1] for found in ids.values()}
        holders: dict[str, list[_Key]] = {}
        for key, found in ids.items():
            for id in found:
                if id in newest:
                    holders.setdefault(id, []).append(key)
        shared = {id: keys for id, keys in holders.items() if len(keys) > 1}
        before, self._places = self._places, {}
        places = {key: self._place(runs[key], before) for key in {key for keys in shared.values() for key in keys}}
        copies: dict[_Key, _Key] = {}
        for id, keys in shared.items():
            copies |= self._copies_of(id, keys, runs, places)
        return {key: original for key in copies if (original := _followed(copies, key)) is not None}

    def _place(self, watched: WatchedRun, before: Mapping[tuple[str, str, object], Place]) -> Place:
        session = watched.run.sessions[-1]
        about = watched.directory, session.session, watched.identity
        self._places[about] = before.get(about) or place_of(session, watched.directory)
        return self._places[about]

    def _copies_of(
        self, id: str, keys: list[_Key], runs: Mapping[_Key, WatchedRun], places: Mapping[_Key, Place]
    ) -> dict[_Key, _Key]:
        """Return the copies among the directories that have a session, each with what it is a copy of."""
        newest = {key: runs[key].run.sessions[-1] for key in keys}
        here = [key for key in keys if _id(newest[key]) == id]
        further = [key for key in keys if _id(newest[key]) != id]
        here.sort(key=self._rank(here, runs, places))
        likeliest = [*further, *here][:MOST_COMPARED]
        copies: dict[_Key, _Key] = {}
        for number, key in enumerate(here, len(further)):
            if further and not _is_open(newest[key]):
                continue
            for at, other in enumerate(likeliest):
                if other != key and _ran_there(places[key], places[other], goes_on=at < number):
                    copies[key] = other
                    break
        return copies

    def _rank(
        self, keys: list[_Key], runs: Mapping[_Key, WatchedRun], places: Mapping[_Key, Place]
    ) -> Callable[[_Key], tuple[bool, bool, bool, bool, float]]:
        """Return the order of directories that have one newest session: the likeliest original first."""
        last_at = {key: runs[key].run.last_event_at or 0.0 for key in keys}
        latest = max(last_at.values(), default=0.0)
        own: dict[str, _Key] = {}
        for key in sorted(keys, key=lambda key: _links(runs[key].directory, places[key].directory)):
            own.setdefault(places[key].directory, key)
        return lambda key: (
            own[places[key].directory] != key,
            not places[key].is_recorded_by(places[key]),
            latest - last_at[key] > SAME_SECS,
            key not in self._originals,
            -last_at[key],
        )


def _links(directory: str, real: str) -> tuple[int, int]:
    """Return how far a path is from the one without links: anybody may make a link, whose name comes first.

    Example:
        >>> sorted(["/r/a/run", "/r/run"], key=lambda path: _links(path, "/data/run"))
        ['/r/run', '/r/a/run']
    """
    parts, of_real = (path.rstrip("/").split("/") for path in (local_path(directory) or directory, real))
    pairs = zip(reversed(parts), reversed(of_real), strict=False)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return -same, len(parts)


def _followed(copies: Mapping[_Key, _Key], key: _Key) -> _Key | None:
    """Return the run that a copy, or the copy of a copy, is one of; None where they only name each other."""
    seen = set()
    while key in copies and key not in seen:
        seen.add(key)
        key = copies[key]
    return None if key in seen else key


def _ran_there(copy: Place, other: Place, *, goes_on: bool) -> bool:
    """Say whether the session of a directory runs in another one: first by the user whose training it is, then by the
    path that its record has.

    Args:
        goes_on: whether the other one has gone further; alone it decides nothing, since anybody can write that.
    """
    if copy.directory == other.directory:  # another name of it
        return goes_on
    if copy.is_recorded_by(copy):
        return False
    if other.owner not in (None, copy.owner):
        return other.owner == copy.user and (copy.owner != SEVERAL or other.is_recorded_by(copy))
    if copy.recorded is None:
        return goes_on and copy.owner == other.owner and copy.owner not in (None, SEVERAL)
    return other.is_recorded_by(copy)


def _ids(watched: WatchedRun) -> tuple[str, ...]:
    """Return what copies of a run are found by, of each session; nothing of what is a copy already."""
    sessions = watched.run.sessions
    if watched.copy_of is not None or not sessions or _id(sessions[-1]) is None:
        return ()
    return tuple([id for session in sessions if (id := _id(session)) is not None])


def _id(session: Session) -> str | None:
    """Return what identifies a session in all of its copies; None where its file's name has no process."""
    if not session.inferred:
        return session.id
    path = session.files[0] if session.files else ""
    return None if writer_of(path) is None else f"{path.rpartition('/')[2]} {session.started_at}"


def original_of(session: Session, directory: str) -> str | None:
    """Return where a session of this machine is, if that is not this directory: then the progress page, and the
    process, are of that run. None where this is its own, or it is unknown.

    Args:
        session: the newest; open.
        directory: where its events were read.
    """
    ours, theirs = local_path(directory), None if session.logdir is None else local_path(session.logdir)
    if ours is None or theirs is None or session.host != socket.gethostname():
        return None
    if os.path.realpath(ours) == os.path.realpath(theirs):
        return None
    try:
        chief = read_chief(theirs)
    except (OSError, ValueError):  # it was renamed
        return None
    if chief is None or chief.session != session.id:
        return None
    there = place_of(replace(session, files=(chief_path(theirs),)), theirs)
    return theirs if _ran_there(place_of(session, directory), there, goes_on=False) else None


def _is_open(session: Session) -> bool:
    return session.outcome in ("running", "lost", "unknown")


def as_copy(watched: WatchedRun, original: str) -> WatchedRun:
    """Return a copy as it is shown: it has no state, and nothing of it is at risk."""
    run = watched.run
    last = run.sessions[-1]
    sessions = (*run.sessions[:-1], replace(last, outcome="unknown")) if _is_open(last) else run.sessions
    return replace(watched, copy_of=original, run=replace(run, state="unknown", sessions=sessions, at_risk=None))
