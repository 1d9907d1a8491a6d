"""`Watcher`: looks at some logdirs again and again, and hands on what has changed.

    look (a thread for each logdir)  ->  one list of runs  ->  what has changed  ->  the outbox
                                                           ->  the ping, if everything could be seen

A look that hangs, on a dead mount, holds up no other logdir: its runs count as unread, and after some minutes as
unreachable, until it is over. There is no ping meanwhile. No error of a look ends the watcher.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.copies import CopyMarks
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.problem_log import ProblemLog

if TYPE_CHECKING:
    from supervisor_core.notify.changes import Changes
    from supervisor_core.notify.event import Event

INTERVAL_SECS = 15.0
"""Seconds from the beginning of one look to that of the next, where nothing else is said."""
LOOK_SECS = 30.0
"""How long all logdirs are waited for at a look; one that takes longer is seen at a later one."""
FIRST_LOOK_SECS = 600.0
"""The same of the first look, which reads everything."""

_LOG = logging.getLogger("supervisor_core")

_LIMITS = Thresholds()
_Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """All runs of some logdirs at one moment."""

    at: float
    """Wall time to which the runs' states refer."""
    runs: Mapping[str, WatchedRun] = field(default_factory=dict)
    """By the names that messages have."""
    unread: Collection[str] = ()
    """Names of the runs that the look did not come to: they are as they were before."""
    problems: tuple[str, ...] = ()
    """What could not be looked at."""
    sees: bool = True
    """Whether the watcher sees: each logdir answered, is the directory that it was, and some run could be read."""


class Watcher:
    """See the module's docstring.

    Args:
        look: returns all runs as they are.
        changes: what compares them with those of the look before.
        put: takes what has changed; must not block.
        seen: called after each look at which everything could be seen; must not block.
        interval_secs: from the beginning of one look to that of the next.
        clock: replaced in tests.
    """

    def __init__(
        self,
        look: Callable[[], Looked],
        changes: Changes,
        put: Callable[[Sequence[Event]], object],
        *,
        seen: Callable[[], object] = lambda: None,
        interval_secs: float = INTERVAL_SECS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._look, self._changes, self._put, self._seen = look, changes, put, seen
        self._interval_secs, self._clock = interval_secs, clock
        self._problems = ProblemLog()

    def run(self, stop: threading.Event, is_over: Callable[[Looked | None], bool] = lambda looked: False) -> None:
        """Look until stopped.

        Args:
            stop: ends it, after the look that is under way.
            is_over: called after each look, with None after one that failed; True ends it.
        """
        due = self._clock.monotonic()
        while not stop.is_set():
            if is_over(self.look()):
                return
            due = max(due + self._interval_secs, self._clock.monotonic())
            stop.wait(due - self._clock.monotonic())

    def look(self, *, is_last: bool = False) -> Looked | None:
        """Look once; return what was seen, None where the look failed.

        Args:
            is_last: whether it is the last look: nothing is waited for any more.
        """
        try:
            looked = self._look()
            self._put(self._changes.of(looked.runs, looked.at, unread=looked.unread, is_last=is_last))
        except Exception:  # the next one may do better
            _LOG.exception("A look has failed")
            return None
        self._problems.look_had(looked.problems)
        if looked.sees:
            self._seen()
        return looked


class LogdirLooks:
    """Looks at logdirs, each in a thread of its own.

    Args:
        watches: the logdirs; used by nothing else from now on.
        name: returns a run's name in messages, of its logdir and its name in there.
        clock: replaced in tests.
    """

    def __init__(
        self,
        watches: Sequence[LogdirWatch],
        name: Callable[[str, str], str],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._logdirs = [_LogdirLook(watch, clock) for watch in watches]
        self._name, self._clock = name, clock
        self._copies = CopyMarks[_Key]()
        self._named: dict[_Key, tuple[WatchedRun, WatchedRun]] = {}
        self._is_first = True

    def look(self) -> Looked:
        """Return the runs as they are now. Raises nothing: what could not be read is a problem."""
        until = self._clock.monotonic() + (FIRST_LOOK_SECS if self._is_first else LOOK_SECS)
        self._is_first = False
        for logdir in self._logdirs:
            logdir.begin()
        for logdir in self._logdirs:
            logdir.wait(max(0.0, until - self._clock.monotonic()))
        found = {(index, run): seen for index, each in enumerate(self._logdirs) for run, seen in each.runs().items()}
        behind = {index for index, each in enumerate(self._logdirs) if each.why_behind}
        if len(self._logdirs) > 1:  # a copy may be in another logdir than what it is a copy of
            found = self._copies.marked(found)
        names = {key: self._name(self._logdirs[key[0]].watch.logdir, key[1]) for key in found}
        runs = {names[key]: self._with_name(key, watched, names[key]) for key, watched in found.items()}
        self._named = {key: self._named[key] for key in found}
        return Looked(
            at=self._clock.wall(),
            runs=runs,
            unread=frozenset(name for key, name in names.items() if key[0] in behind and not found[key].unreachable),
            problems=tuple(problem for each in self._logdirs for problem in each.problems),
            sees=all(each.sees for each in self._logdirs) and (not found or not all(map(_is_unread, found.values()))),
        )

    def close(self) -> None:
        """Bring the caches up to date; of a logdir whose look is under way not."""
        for logdir in self._logdirs:
            logdir.close()

    def _with_name(self, key: _Key, watched: WatchedRun, name: str) -> WatchedRun:
        """Return a run with its name in messages: the same object as long as the run is the same."""
        known = self._named.get(key)
        if known is None or known[0] is not watched:
            renamed = watched if watched.run.name == name else replace(watched, run=replace(watched.run, name=name))
            known = self._named[key] = watched, renamed
        return known[1]


class _LogdirLook:
    """The looks at one logdir: one at a time."""

    def __init__(self, watch: LogdirWatch, clock: Clock) -> None:
        self.watch = watch
        self._clock = clock
        self._snapshot: LogdirSnapshot | None = None
        """The newest; None before the first."""
        self._home: tuple[int, int] | None = None
        """The directory in which there were runs last."""
        self._is_displaced = False
        self._ended_at = clock.monotonic()
        self.why_behind: str | None = self._no_answer
        """Why the newest look has found nothing: it is under way, and was not waited for, or it failed; None if it has
        found something."""
        self._done = threading.Event()
        self._done.set()
        self._found: list[LogdirSnapshot] = []

    @property
    def sees(self) -> bool:
        """Whether the newest look came to its end, and the logdir was there: no empty mount point in its place."""
        if self.why_behind or self._is_displaced or self._snapshot is None:
            return False
        return self._snapshot.reachable and self._snapshot.is_whole

    @property
    def problems(self) -> list[str]:
        """What could not be read."""
        found = [] if self._snapshot is None else list(self._snapshot.problems)
        if self.why_behind:
            found.append(self.why_behind)
        elif self._is_displaced:
            found.append(f"{self.watch.logdir} is another directory than before, without runs: is it mounted?")
        return found

    def runs(self) -> Mapping[str, WatchedRun]:
        """Return the runs of the newest look; as unreachable if it is too old."""
        found = {} if self._snapshot is None else self._snapshot.runs
        if not self.why_behind or self._clock.monotonic() - self._ended_at < _LIMITS.behind_secs:
            return found
        return {name: replace(each, unreachable=True, problem=self.why_behind) for name, each in found.items()}

    def begin(self) -> None:
        """Look, in a thread, unless a look is under way."""
        if self._done.is_set():
            self._done.clear()
            try:
                threading.Thread(target=self._refresh, name="watch-look", daemon=True).start()
            except RuntimeError as error:  # no more threads now; the next look may do better
                _LOG.error("A look at %s cannot begin: %s", self.watch.logdir, error)
                self._done.set()

    def wait(self, secs: float) -> None:
        """Wait for the look's end, and take what it has found."""
        if not self._done.wait(secs):
            self.why_behind = self._no_answer
            return
        if not self._found:
            self.why_behind = f"{self.watch.logdir} could not be looked at."
            return
        self.why_behind = None
        self._ended_at = self._clock.monotonic()
        while self._found:
            self._snapshot = newest = self._found.pop()
            if newest.runs and newest.reachable:
                self._home = newest.identity
            is_other = None not in (self._home, newest.identity) and newest.identity != self._home
            self._is_displaced = is_other and not newest.runs

    def close(self) -> None:
        """Bring the cache up to date, unless a look is under way."""
        if self._done.is_set():
            self.watch.close()

    @property
    def _no_answer(self) -> str:
        return f"{self.watch.logdir} does not answer."

    def _refresh(self) -> None:
        try:
            self._found.append(self.watch.refresh())
        except Exception:  # a fault of ours: `refresh` raises nothing
            _LOG.exception("A look at %s has failed", self.watch.logdir)
        finally:
            self._done.set()


def _is_unread(watched: WatchedRun) -> bool:
    """Say whether a run is as it was at an earlier look: its directory, or its newest file, could not be read."""
    return watched.unreachable or (bool(watched.files) and watched.files[-1].unreadable)
