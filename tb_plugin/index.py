"""`Index`: the one thread that reads the events files, and the `View` that it renews."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import EventsError
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.judge.held import HeldRun
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from supervisor_core.storage.local import join
from tb_plugin.logdirs import Logdir
from tb_plugin.run_data import RunView, View, overview_line

if TYPE_CHECKING:
    from supervisor_core.run.watch.logdir_watch import LogdirWatch

_LOG = logging.getLogger("supervisor_core")

IDLE_SECS = 600.0
"""Time without a request after which the thread pauses."""
MOST_REST_SECS = 60.0
"""The longest rest, however slow looking is, unless a longer one was asked for."""
JUDGED_AGAIN_SECS = 60.0
"""How often all runs are judged, those too that have not changed: what is said of one depends on its age."""
_LONG_SECS = 100 * 365 * 86_400.0
"""After which nothing is recent."""
_REMEMBERED = 1_000
"""Limit of `View.removed`."""


class Index:
    """Keeps a view of some logdirs up to date, from `start` to `close`, in a daemon thread.

    The thread rests after ten minutes without a request. A logdir that cannot be read is a problem in the
    view, and is tried again each time.

    Args:
        logdirs: what to read.
        refresh_secs: how long to wait between two looks; longer where looking itself takes long.
        watch: makes what reads a logdir.
        clock: its wall hand begins the generations, its monotonic hand measures idleness.
    """

    def __init__(
        self,
        logdirs: Sequence[Logdir],
        refresh_secs: float,
        watch: Callable[[str], LogdirWatch],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._logdirs = tuple(logdirs)
        self._refresh_secs = refresh_secs
        self._watch = watch
        self._clock = clock
        self._watches: dict[Logdir, LogdirWatch] = {}
        self._read: dict[Logdir, LogdirSnapshot] = {}
        self._held: dict[str, HeldRun] = {}
        self._judged_at = clock.wall()
        self._faults: set[str] = set()
        self._asked = threading.Event()
        self._asked_at = clock.monotonic()
        self._closed = threading.Event()
        self._changed = threading.Condition()
        first = int(clock.wall() * 1000)
        self._view = View(
            generation=first,
            oldest=first,
            at=clock.wall(),
            logdir=", ".join(logdir.path for logdir in self._logdirs),
            reading=(0, 0),
        )
        self._thread = threading.Thread(target=self._serve, name="supervisor-index", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after the scan under way."""
        self._closed.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join()
        for watch in self._watches.values():
            watch.close()

    def view(self, wait_secs: float = 0.0) -> View:
        """Return the newest view. Thread-safe.

        Args:
            wait_secs: how long to wait for the first whole view.
        """
        self._asked_at = self._clock.monotonic()
        self._asked.set()
        if wait_secs and not self._view.is_whole:
            with self._changed:
                self._changed.wait_for(lambda: self._view.is_whole, wait_secs)
        return self._view

    def _serve(self) -> None:
        """Scan again and again; never for more than a fifth of the time, so that TensorBoard has the rest.

        The first scan reads everything, and says nothing of how long the later ones take.
        """
        while not self._closed.is_set():
            is_first = not self._view.is_whole
            began = self._clock.monotonic()
            try:
                self.refresh()
            except Exception as error:  # a fault of ours: what was known stays, and it is tried again
                text = f"The tab could not look at its logdir: {error!r}."
                if text not in self._view.problems:  # logged once, however often it is tried
                    _LOG.exception("The Supervisor tab could not look at its logdir")
                self._publish(replace(self._view, problems=(text,), is_whole=True, reading=None))
            took = 0.0 if is_first else self._clock.monotonic() - began
            self._rest(max(self._refresh_secs, min(4.0 * took, MOST_REST_SECS)))

    def _rest(self, secs: float) -> None:
        self._asked.clear()
        self._closed.wait(secs)
        if self._clock.monotonic() - self._asked_at > IDLE_SECS:
            self._asked.wait()
            self._wake()

    def _wake(self) -> None:
        """Go on after a rest: what lasted before it has lasted through it, and nothing waits since the reader was
        away."""
        self._held = {name: HeldRun(held.state) for name, held in self._held.items()}

    def refresh(self) -> None:
        """Look at every logdir once. Called by the index's own thread once it is started."""
        began = self._clock.monotonic()
        for logdir in self._logdirs:
            try:
                if logdir not in self._watches:
                    self._watches[logdir] = self._watch(logdir.path)
                self._read[logdir] = self._watches[logdir].refresh(None if self._view.is_whole else self._progress)
            except EventsError as error:
                at = self._clock.wall()
                self._read[logdir] = LogdirSnapshot(logdir=logdir.path, at=at, problems=(str(error),))
            if len(self._logdirs) > 1 and not self._view.is_whole:
                self._publish(self._next_view(began, is_whole=False))
        self._publish(self._next_view(began, is_whole=True))

    def _progress(self, done: int, total: int) -> None:
        self._view = replace(self._view, reading=(done, total))

    def _publish(self, view: View) -> None:
        with self._changed:
            self._view = view
            self._changed.notify_all()

    def _next_view(self, began: float, *, is_whole: bool) -> View:
        """Return the view of what was read of each logdir last, during a scan or, if it is whole, at its end."""
        before = self._view
        generation = before.generation + 1
        runs, problems = self._runs(generation)
        gone = [(generation, name) for name in before.runs if name not in runs]
        removed = (*before.removed, *gone)
        differs = bool(gone) or any(run.generation == generation for run in runs.values())
        return View(
            generation=generation if differs else before.generation,
            oldest=before.oldest if len(removed) <= _REMEMBERED else removed[-_REMEMBERED - 1][0],
            at=min((snapshot.at for snapshot in self._read.values()), default=self._clock.wall()),
            logdir=before.logdir,
            runs=runs,
            removed=removed[-_REMEMBERED:],
            problems=problems,
            snapshots=tuple(self._read.values()),
            secs=self._clock.monotonic() - began if is_whole else None,
            is_whole=is_whole,
            reading=None if is_whole else before.reading,
        )

    def _runs(self, generation: int) -> tuple[dict[str, RunView], tuple[str, ...]]:
        """Return the runs of all logdirs by name, and the problems. A run that has not changed stays the same object,
        one of whose line and findings none has changed keeps its generation."""
        problems: list[str] = []
        runs: dict[str, RunView] = {}
        now = max((snapshot.at for snapshot in self._read.values()), default=self._clock.wall())
        judges_all = now - self._judged_at >= JUDGED_AGAIN_SECS
        if judges_all:
            self._judged_at = now
        for logdir, snapshot in self._read.items():
            problems += snapshot.problems
            for relative, watched in snapshot.runs.items():
                name = printable_name(logdir.run_name(relative))
                if name in runs:
                    problems.append(f"Two runs are called {name}; that of {logdir.path} is shown.")
                known, holds = self._view.runs.get(name), self._held.setdefault(name, HeldRun())
                is_same = known is not None and known.watched is watched
                if known is not None and is_same and (known.is_settled or (holds.is_settled() and not judges_all)):
                    holds.skip(snapshot.at)
                    runs[name] = known
                    continue
                said = self._findings(name, watched, snapshot.at)
                held: tuple[Finding, ...] = ()
                if said is not None:
                    holds.update(watched, snapshot.at, said=said)
                    held = holds.findings
                if known is not None and is_same and (known.findings, known.held) == (said, held):
                    settled = holds.is_settled() and self._is_settled(name, watched, snapshot.at, said)
                    runs[name] = replace(known, is_settled=True) if settled else known
                    continue
                line = overview_line(name, watched, said, held)
                looks_the_same = (
                    known is not None
                    and (known.line, known.findings) == (line, said)
                    and known.run.hparams == watched.run.hparams
                )
                runs[name] = RunView(
                    name=name,
                    directory=events_directory(watched) or join(logdir.path, relative),
                    watched=watched,
                    findings=said,
                    held=held,
                    line=line,
                    generation=known.generation if known is not None and looks_the_same else generation,
                )
        self._held = {name: held for name, held in self._held.items() if name in runs}
        return runs, tuple(problems)

    def _is_settled(self, name: str, watched: WatchedRun, now: float, said: tuple[Finding, ...] | None) -> bool:
        """Return whether time does not change the findings of a run: of one that is over it can only end some."""
        is_known = watched.run.state not in ("running", "stalled", "lost") and said is not None
        return is_known and self._findings(name, watched, now + _LONG_SECS) == said

    def _findings(self, name: str, watched: WatchedRun, now: float) -> tuple[Finding, ...] | None:
        """Return what is to be said of a run; None where judging it failed: a fault of ours, which costs no more."""
        try:
            return judged(watched, now)
        except Exception:
            if name not in self._faults:  # logged once, however often it is tried
                self._faults.add(name)
                _LOG.exception("The Supervisor tab could not judge the run %r", name)
            return None


def judged(watched: WatchedRun, now: float) -> tuple[Finding, ...]:
    """Return what is to be said of a run, worst first; with whole paths, since commands are pasted elsewhere."""
    directory = watched.directory
    if directory and "://" not in directory:
        directory = os.path.abspath(directory)
    return findings(replace(watched, directory=directory), now)


def events_directory(watched: WatchedRun) -> str | None:
    """Return where a run's files are, spelt as in their paths: by those it is known which session wrote them. None
    without files."""
    if not watched.files:
        return None
    path = watched.files[0].path
    directory = path.rpartition("/")[0] if "://" in path else os.path.dirname(path)
    return watched.directory if directory == watched.directory else directory


def printable_name(name: str) -> str:
    """Return a name as text that can be sent and asked for: directories may be named in bytes that are none."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
