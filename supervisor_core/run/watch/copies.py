"""`CopyMarks`: which directories are copies of other runs (``cp -a``, rsync), by the sessions in them.

A session runs in one directory. Where several directories have the newest session of one of them, that one is a copy of
the directory whose events have gone further: it has a later session, or later events; but a directory that its own
session names is a run, whatever others hold. Where they have gone equally far
(of a run that is over, or within a moment), the original is the directory that the session's own record names; else the
one that was the original before; else the one with the newest event.

A session that ended in a directory, and that other sessions follow only elsewhere, began a fork: that is two runs.

A session without telemetry is known by its first file: by its name, which has host and process, and its first event.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Hashable, Mapping, Set
from dataclasses import replace
from typing import Generic, TypeVar

from supervisor_core.events.chunk_builder import writer_of
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.liveness import read_chief
from supervisor_core.storage.local import local_path

SAME_SECS = 20.0
"""Events of two directories whose newest ones are no further apart have gone equally far: a copy that is renewed while
both are read may be seen to be ahead for a moment."""

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
        originals: dict[_Key, _Key] = {}
        for id, keys in holders.items():
            if len(keys) > 1:
                originals |= self._copies_of(id, keys, runs)
        return originals

    def _copies_of(self, id: str, keys: list[_Key], runs: Mapping[_Key, WatchedRun]) -> dict[_Key, _Key]:
        """Return the copies among the directories that have a session, each with what it is a copy of."""
        newest = {key: runs[key].run.sessions[-1] for key in keys}
        here = [key for key in keys if _id(newest[key]) == id]
        further = [key for key in keys if _id(newest[key]) != id]
        original = further[0] if further else _original(here, runs, newest, self._originals)
        originals: dict[_Key, _Key] = {}
        for key in here:
            is_fork = bool(further) and not _is_open(newest[key])
            if key != original and not is_fork and not _is_its_own(newest[key], runs[key], runs[original]):
                originals[key] = original
        return originals


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
    if ours is None or theirs is None or session.host != socket.gethostname() or _names(session, directory):
        return None
    try:
        chief = None if os.path.samefile(ours, theirs) else read_chief(theirs)
    except (OSError, ValueError):  # it was renamed
        return None
    return theirs if chief is not None and chief.session == session.id else None


def _original(
    keys: list[_Key], runs: Mapping[_Key, WatchedRun], newest: Mapping[_Key, Session], before: Set[_Key]
) -> _Key:
    """Return which of the directories that have one newest session it runs, or ran, in."""
    last_at = {key: runs[key].run.last_event_at or 0.0 for key in keys}
    latest = max(last_at.values())
    level = [key for key in keys if latest - last_at[key] <= SAME_SECS]
    return max(
        level, key=lambda key: (_names(newest[key], runs[key].directory), key in before, last_at[key])
    )  # the first of those that are alike


def _is_open(session: Session) -> bool:
    return session.outcome in ("running", "lost", "unknown")


def _names(session: Session, directory: str) -> bool:
    """Return whether a session's record names a directory as its own."""
    if session.logdir is None:
        return False
    ours, theirs = local_path(directory), local_path(session.logdir)
    if ours is None or theirs is None:
        return directory.rstrip("/") == session.logdir.rstrip("/")
    return os.path.realpath(ours) == os.path.realpath(theirs)


def _is_its_own(session: Session, watched: WatchedRun, original: WatchedRun) -> bool:
    """Return whether a directory is the one that its session names, and no other name of the original's: whoever can
    read a session's id can write events of it that go further."""
    if not _names(session, watched.directory):
        return False
    ours, theirs = local_path(watched.directory), local_path(original.directory)
    return ours is None or theirs is None or os.path.realpath(ours) != os.path.realpath(theirs)


def as_copy(watched: WatchedRun, original: str) -> WatchedRun:
    """Return a copy as it is shown: it has no state, and nothing of it is at risk."""
    run = watched.run
    last = run.sessions[-1]
    sessions = (*run.sessions[:-1], replace(last, outcome="unknown")) if _is_open(last) else run.sessions
    return replace(watched, copy_of=original, run=replace(run, state="unknown", sessions=sessions, at_risk=None))
