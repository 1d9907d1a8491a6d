"""`HangWatch`: whether a running program has made no progress for too long, seen from outside.

A session's progress page says how far it is, and what its phase may take; it is memory, so it answers while the logdir
hangs and while the program's interpreter is blocked. Of a program without a page the events files are what shows
progress. A timeout that was given says what is too long; without one, the rhythm of the files so far.

Silence is counted by this watch's own ticks: time in which the restarter did not run either (a suspended machine) does
not count, nor does the time for which someone has stopped the program (SIGSTOP, a debugger). Of the processes of one
launch, those that train wait for the one that evaluates, saves, restores or compiles alone: that time does not count,
either, as long as that one does not hang itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from supervisor_core.base.clock import SYSTEM_CLOCK, boot_secs
from supervisor_core.base.options import HANG_TIMEOUT_SECS
from supervisor_core.events.record_fields import shared
from supervisor_core.process.identity import is_stopped, stat_fields
from supervisor_core.process.progress_page import PageReading, pages_in
from supervisor_core.process.runtime_directory import private_directories
from supervisor_core.process.stacks import Activity, whereabouts
from supervisor_core.run.fold.other_writers import LEAST_HANG_TIMEOUT_SECS

STARTING_SECS = HANG_TIMEOUT_SECS["starting"]
"""What a program without a progress page has until its first event."""
MOST_TICK_SECS = 2.0
"""A longer time between two ticks counts as this: the restarter did not run."""
BLIND_SECS = 300.0
"""A program that has neither a progress page nor events after this long may write elsewhere."""
TRAINS = "training"
WAITS_FOR_NOTHING = ("stopped",)


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A program that makes no progress."""

    phase: str | None
    """None where only its events files show that it is silent."""
    secs: float
    hang_timeout_secs: float
    """It counts as a hang after this long."""
    act_after_secs: float | None
    """It is to be ended after this long; None where its page does not say."""
    pid: int
    location: str = ""
    """Where it hangs, if the program itself could say so: ``MainThread at train.py:88 in step``."""
    activity: Activity | None = None
    """What it did there between two looks; None where unknown."""
    session: str | None = None
    """The session; None where only the events files show the hang."""
    step: int | None = None
    """The last that is known."""
    root: int | None = None
    """Without a session: the process below which all of the launch is."""
    stacks: str | None = None
    """The file in memory with its own stacks."""

    @property
    def text(self) -> str:
        """What happened, in half a sentence."""
        thread, _, line = self.location.partition(" at ")
        where = f", {whereabouts(thread, line, self.activity)}" if line else ""
        what = "no events" if self.phase is None else f"no progress in phase {self.phase}"
        return f"{what} for {self.secs:.0f} s (hang timeout {self.hang_timeout_secs:.0f} s){where}"


@dataclass(frozen=True, kw_only=True)
class EventsSeen:
    """What the events files in the logdir show, those of restarters left out."""

    records: int
    """Number of events so far: it rises while the program writes."""
    usual_secs: float
    """How long they may stay as they are, by their rhythm so far."""
    step: int | None = None
    """The latest step of the newest run."""


def pages_here(*more: Path) -> list[PageReading]:
    """Return the pages of this user that were written on this machine since it started.

    Args:
        more: directories to look into besides `private_directories`.
    """
    return [page for page in pages_in((*more, *private_directories())) if page.is_here]


def _is_below(page: PageReading, ancestor: int) -> bool:
    """Say whether a page is of a descendant: a killed process leaves its page, and others get its process id."""
    return page.has_process and is_descendant(page.pid, ancestor)


def is_descendant(pid: int, ancestor: int) -> bool:
    """Say whether a process is another one, or one that it started, directly or not."""
    for _ in range(64):
        if pid == ancestor:
            return True
        fields = stat_fields(pid)
        pid = int(fields[1]) if len(fields) > 1 else 0  # its parent
        if pid <= 1:
            return False
    return False


@dataclass(eq=False)
class HangWatch:
    """Watches one launch. What a test replaces comes last."""

    leader: int
    """Process id of the program."""
    hang_timeout_secs: float | None = None
    """How long the events files of a program without a page may stay as they are. None: by their rhythm so far."""
    patience: float = 1.0
    """A timeout by their rhythm is multiplied by this."""
    records_before: int | None = None
    """Number of events when the launch began. Default: at the first look."""
    root: int | None = None
    """The process whose descendants are the launch, also when the program has ended. Default: the program."""
    pages: Callable[[], list[PageReading]] = pages_here
    """Returns the pages there are."""
    is_of: Callable[[PageReading, int], bool] = _is_below
    """Says whether the process of a page is below another."""
    stopped: Callable[[int], bool] = is_stopped
    """Says whether a process is stopped."""
    running: Callable[[PageReading], bool] = lambda page: page.is_running
    """Says whether the process of a page runs."""

    def __post_init__(self) -> None:
        self._ours: dict[str, bool] = {}
        self._silences: dict[str, _Silence] = {}
        self._records = _Silence()
        self._events: EventsSeen | None = None
        self.readings: dict[str, PageReading] = {}
        """The newest reading of each session of this launch, by its id."""
        self.alive_at_boot: dict[str, float] = {}
        """When the process of each was last seen to run, by `supervisor_core.base.clock.boot_secs`."""

    @property
    def step(self) -> int | None:
        """The highest step that a session of this launch has reached; None where no page says so."""
        return max((page.step for page in self.readings.values() if page.step is not None), default=None)

    @property
    def steps(self) -> int:
        """Number of steps that the sessions of this launch have done, as far as pages say so."""
        return sum(page.steps for page in self.readings.values())

    @property
    def lost_page(self) -> PageReading | None:
        """The page of a session that still runs, and whose directory is gone; None without one."""
        lost = (page for page in self.readings.values() if not page.ended and not page.path.parent.exists())
        return next((page for page in lost if self.running(page)), None)

    @property
    def timeout_secs(self) -> float | None:
        """How long the events files may stay as they are; None where they are not what is watched: the program has a
        progress page, or the logdir was not read yet."""
        return None if self.readings or self._events is None else self._limit_secs

    @property
    def sees_nothing(self) -> bool:
        """Whether the program has had its time, and has neither a progress page nor events."""
        is_empty = self._events is not None and not self._events.records
        return is_empty and not self.readings and self._records.secs > max(BLIND_SECS, self._timeout_secs)

    def tick(self, passed_secs: float, events: EventsSeen | None) -> Hang | None:
        """Look again; return the worst hang.

        Args:
            passed_secs: since the tick before.
            events: what is in the logdir; None where unknown.
        """
        secs = min(max(0.0, passed_secs), MOST_TICK_SECS)
        pages = self.read()
        for page in pages:
            self._count(page, secs)
        one_is_awaited = any(self._is_awaited(page) for page in pages)
        hangs = [hang for page in pages if (hang := self._judge(page, one_is_awaited)) is not None]
        if not self.readings and (hang := self._judge_events(events, secs)) is not None:
            hangs.append(hang)
        return max(hangs, key=lambda hang: hang.secs - hang.hang_timeout_secs, default=None)

    def read(self) -> list[PageReading]:
        """Return the pages of this launch as they are now."""
        found = []
        for page in self.pages():
            if page.session not in self._ours:
                self._ours[page.session] = self.is_of(page, self.leader if self.root is None else self.root)
            if self._ours[page.session]:
                self.readings[page.session] = page
                if self.running(page):
                    self.alive_at_boot[page.session] = boot_secs(SYSTEM_CLOCK)
                found.append(page)
        return found

    def _count(self, page: PageReading, secs: float) -> None:
        progress = page.steps, page.progress_at, page.phase, page.attempt
        silence = self._silences.setdefault(page.session, _Silence())
        silence.count(progress, secs, is_stopped=self.stopped(page.pid))

    def _is_awaited(self, page: PageReading) -> bool:
        """Say whether others may wait for this process: it does something else than to train, and is not to be ended
        for it."""
        if page.ended or page.hang_timeout_secs is None or page.phase in (TRAINS, *WAITS_FOR_NOTHING):
            return False
        silent_secs = self._silences[page.session].secs
        return silent_secs <= max(page.hang_timeout_secs, page.act_after_secs or 0.0) and self.running(page)

    def _judge(self, page: PageReading, one_is_awaited: bool) -> Hang | None:
        silence = self._silences[page.session]
        if page.phase == TRAINS and one_is_awaited:
            silence.secs = 0.0
            return None
        if page.ended or page.hang_timeout_secs is None or page.phase in WAITS_FOR_NOTHING:
            return None
        if silence.secs <= page.hang_timeout_secs or not self.running(page):
            return None
        stacks = None if page.stacks is None else str(page.stacks)
        return Hang(**{**shared(Hang, page), "stacks": stacks}, secs=silence.secs)

    def _judge_events(self, events: EventsSeen | None, secs: float) -> Hang | None:
        if events is None:
            return None
        self._events = events
        if self.records_before is None:
            self.records_before = events.records
        self._records.count(events.records, secs, is_stopped=self.stopped(self.leader))
        timeout_secs = self._limit_secs
        # Where there have never been events, the program may write them elsewhere.
        if self._records.secs <= timeout_secs or not events.records:
            return None
        return Hang(
            phase=None,
            secs=self._records.secs,
            hang_timeout_secs=timeout_secs,
            act_after_secs=timeout_secs,
            pid=self.leader,
            step=events.step,
            root=self.root,
        )

    @property
    def _has_begun(self) -> bool:
        return self._events is not None and self._events.records != self.records_before

    @property
    def _limit_secs(self) -> float:
        return self._timeout_secs if self._has_begun else max(self._timeout_secs, STARTING_SECS)

    @property
    def _timeout_secs(self) -> float:
        if self.hang_timeout_secs is not None:
            return self.hang_timeout_secs
        usual_secs = 0.0 if self._events is None else self._events.usual_secs
        return max(LEAST_HANG_TIMEOUT_SECS, usual_secs) * self.patience


class _Silence:
    def __init__(self) -> None:
        self.secs = 0.0
        self._before: object = None

    def count(self, now: object, secs: float, *, is_stopped: bool) -> None:
        """Count some seconds in which it is as it is now; none while its process is stopped."""
        self.secs = 0.0 if now != self._before or is_stopped else self.secs + secs
        self._before = now
