"""`Scene`: a logdir that is looked at again and again, in simulated time, and the events that come of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor_core.events.event_format import event_prefix, frame, version_event
from supervisor_core.events.telemetry import LaunchRecord, StallRecord, summary_bytes
from supervisor_core.notify.changes import Changes
from supervisor_core.notify.event import Event
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock
from tests.story import stories as voice_stories

BEGAN = 1_700_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


Scripted: Any = voice_stories.Scripted


@dataclass
class Scene:
    """A logdir and a watcher of it.

    Args:
        logdir: it need not exist.
        now: when the first look is.
        changes: the watcher's; a new one.
    """

    logdir: Path
    now: float = BEGAN
    changes: Changes = field(default_factory=Changes)
    told: list[tuple[float, Event]] = field(default_factory=list)
    """All events, each with the time of its look."""

    def __post_init__(self) -> None:
        self.clock = StillClock(self.now)
        self.watch = LogdirWatch(str(self.logdir), kept_ticks=1, all_saves=False, clock=self.clock)

    def look(self, at: float | None = None, *, unread: Collection[str] = (), is_last: bool = False) -> list[Event]:
        """Look, at a time; return the events."""
        self.now = self.clock.now = self.now if at is None else at
        snapshot = self.watch.refresh()
        found = self.changes.of(snapshot.runs, snapshot.at, unread=unread, is_last=is_last)
        self.told += [(self.now, event) for event in found]
        return found

    def go_on(self, secs: float, *writers: Callable[[float], Any], every: float = 15.0) -> list[Event]:
        """Look every so often for a while; writers write up to the time of each look before it."""
        until, found = self.now + secs, []
        while self.now + every <= until:
            for writer in writers:
                writer(self.now + every)
            found += self.look(self.now + every)
        return found


def trains(session: Any, **how: Any) -> Callable[[float], Any]:
    """Let a session train up to each time."""
    return lambda until: session.train(max(0.0, until - session.at), **how)


class Hangs:
    """Lets a session hang from its present time on, with heartbeats; `end` lets it go on.

    Args:
        session: it has written all until now.
        timeout_secs: after which time it is noticed.
        how: what the record of it holds.
    """

    def __init__(self, session: Any, timeout_secs: float = 300.0, **how: Any) -> None:
        self._session, self.since, self._timeout_secs, self._how = session, session.at, timeout_secs, how
        self._is_noticed = False

    def __call__(self, until: float) -> None:
        """Write what comes up to a time."""
        session = self._session
        while session.at + session.beat_every <= until:
            session.at += session.beat_every
            if not self._is_noticed and session.at - self.since >= self._timeout_secs:
                self._record("begin", **self._how)
                self._is_noticed = True
            session.beat(session.at - self.since)
        session.flush()

    def end(self) -> None:
        """Write that it is over."""
        if self._is_noticed:
            self._record("end")

    def _record(self, state: Any, **how: Any) -> None:
        session = self._session
        secs = session.at - self.since
        session._spend("stall", secs if state == "end" else 0.0)
        session._record(
            StallRecord(session=session.session, state=state, since=self.since, step=session.step, secs=secs,
                        timeout_secs=self._timeout_secs, **how)
        )  # fmt: skip


def names(events: Iterable[Event]) -> list[str]:
    """What each event is, in short."""
    return [f"{event.topic} {event.what} {event.kind}" for event in events]


def launch(
    run: Path,
    attempt: int,
    began: float,
    ended: float | None = None,
    *,
    host: str = "trainer-0",
    pid: int = 31,
    **how: Any,
) -> None:
    """Write what a restarter records of a launch: its begin, and its end."""
    run.mkdir(parents=True, exist_ok=True)
    path = run / "events.out.tfevents.1700000000.trainer-0.9.tb-supervisor"
    if not path.exists():
        path.write_bytes(frame(version_event(began)))
    common = {"launch": f"launch-{run.name}-{attempt}", "attempt": attempt, "started_at": began}
    common |= {"host": host, "pid": pid}
    records = [(began, LaunchRecord(state="begin", **common))]
    if ended is not None:
        how = {"action": "restart", "counted": True, **how}
        records = [(ended, LaunchRecord(state="end", **common, **how))]
    with path.open("ab") as file:
        for at, record in records:
            summary = summary_bytes(record)
            file.write(frame(event_prefix(at, 0, 5, len(summary)) + summary))
