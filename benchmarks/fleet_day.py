"""`FleetDay`: a fleet of runs with scripted lives, watched for simulated days, and what was said compared with the
script.

There are always as many runs in the logdir: where a life is over another run begins, and the run that ended first is
deleted.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.outbox import Delivery
from supervisor_core.notify.watcher import LogdirLooks, Watcher
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock
from tests.notify.samples import Kept
from tests.story.lives import NOT_SCRIPTED, Life, random_life
from tests.story.scene import BEGAN, HOUR, MINUTE, Scripted

GATHER_SECS = 10.0
LONGEST_SECS = 4.5 * HOUR
"""No life takes longer, with an hour after which its loop of restarts is over."""


@dataclass
class FleetDay:
    """See the module's docstring.

    Args:
        logdir: is filled.
        runs: how many.
        live: how many of them train at a time.
        interval_secs: simulated seconds between two looks.
        seed: of the lives.
    """

    logdir: Path
    runs: int = 200
    live: int = 12
    interval_secs: float = MINUTE
    seed: int = 0
    problems: list[str] = field(default_factory=list)
    """What was said that is not in the script, or was not said."""

    def __post_init__(self) -> None:
        self.clock = StillClock(BEGAN)
        self.service = Kept()
        self.changes = Changes()
        self._delivery = Delivery(self.service, limit_per_hour=1_000_000, gather_secs=GATHER_SECS, clock=self.clock)
        watch = LogdirWatch(str(self.logdir), kept_ticks=1, all_saves=False, clock=self.clock)
        self._looks = LogdirLooks([watch], lambda logdir, run: run, clock=self.clock)
        self.watcher = Watcher(self._looks.look, self.changes, self._delivery.add, clock=self.clock)
        self._told: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
        self._lives: list[Life] = []
        self._at_rest = deque[Path]()
        self._draw = random.Random(self.seed)
        self.expected = self.messages = self.events = self.looks = self._number = 0

    def run(self, minutes: float, each_hour: Callable[[float], object] = lambda at: None) -> None:
        """Watch for a time, and then until all lives are over.

        Args:
            minutes: simulated.
            each_hour: called every simulated hour with the hours since the begin.
        """
        for number in range(self.runs - self.live):
            old = self.logdir / f"old-{number:03d}"
            Scripted(old, BEGAN - 40 * HOUR, beat_every=300.0, write_every=100_000).train(3 * HOUR).stop()
            self._at_rest.append(old)
        self._lives = [self._new(BEGAN + self._draw.uniform(0, 2 * HOUR)) for _ in range(self.live)]
        until = BEGAN + minutes * MINUTE
        now, hours = BEGAN, 0
        while self._lives or now < until:
            self._live_on(now, until - LONGEST_SECS)
            self._look(now)
            if now - BEGAN >= hours * HOUR:
                each_hour(hours)
                hours += 1
            now += self.interval_secs

    def _new(self, start: float) -> Life:
        self._number += 1
        name, hours = f"run-{self._number:05d}", self._draw.uniform(0.5, 2.0)
        return random_life(self.logdir / name, start, 1_000 * self.seed + self._number, hours)

    def _live_on(self, now: float, last_start: float) -> None:
        for life in list(self._lives):
            life(now)
            if now > life.until + HOUR + 2 * self.interval_secs + GATHER_SECS:
                self._lives.remove(life)
                self._compare(life)
                self._at_rest.append(life.run)
                if now < last_start:
                    self._lives.append(self._new(now + self._draw.uniform(0, MINUTE)))
                    shutil.rmtree(self._at_rest.popleft())

    def _look(self, now: float) -> None:
        self.clock.now = now
        self.looks += 1
        self.watcher.look()
        self.clock.now = now + GATHER_SECS
        while self._delivery.deliver():
            pass
        for message in self.service.messages:
            self.messages += 1
            for event in message.events:
                self.events += 1
                if event.kind not in NOT_SCRIPTED:
                    self._told[event.run].append((f"{event.topic} {event.what} {event.kind}", self.clock.now))
        self.service.messages.clear()

    def _compare(self, life: Life) -> None:
        """Compare what was said of a run with its script, and when."""
        told, due = self._told.pop(life.run.name, []), list(life.due)
        self.expected += len(due)
        wrong = Counter(what for what, _ in told)
        wrong.subtract(each.what for each in due)
        self.problems += [f"{life.run.name}: {what}: {number:+d}" for what, number in wrong.items() if number]
        if not any(wrong.values()):
            for (what, at), each in zip(sorted(told), sorted(due), strict=True):
                if not each.since <= at <= each.until + self.interval_secs + GATHER_SECS:
                    window = f"{each.since - BEGAN:.0f} to {each.until - BEGAN:.0f}"
                    self.problems.append(f"{life.run.name}: {what} at {at - BEGAN:.0f}, due {window}")

    @property
    def false_runs(self) -> list[str]:
        """Runs of which something was said, and that were not in the script."""
        return sorted(self._told)
