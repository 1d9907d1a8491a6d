"""`Life`: a run that trains, hangs, dies, is started again and ends by its script, and what is to be said of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.story.scene import HOUR, MINUTE, Hangs, Scripted, launch

LOOP, WINDOW = 3, HOUR
"""When restarts are a loop, as in `Thresholds`."""


class Act(NamedTuple):
    """What a run does for a while."""

    what: str
    secs: float = 0.0


class Due(NamedTuple):
    """An event that is due, and between which times."""

    what: str
    since: float
    until: float


SLACK = 30.0
"""What a scripted record may be later than its script: heartbeats, and summaries that are written together."""
HOLDS = {"lost": 45.0, "failed": 45.0, "stalled": 330.0, "worker_lost": 120.0, "saves_failing": 60.0}

NOT_SCRIPTED = frozenset(("checkpoint_interval_far", "checkpoint_damaged"))
"""Kinds that follow from a life, and are not among what is due: after NaN the newest checkpoint is in doubt until the
next save."""


@dataclass
class Life:
    """One run, written up to a time by each call.

    Args:
        run: its directory.
        start: when it begins.
        acts: what it does, one after the other. ``train``; ``hang``; ``disk``: saves fail; ``worker``: one is lost;
            ``nan``; ``kill``, ``fail``, ``oom`` and ``preempt``: it ends, and is started again after that time;
            ``complete``, ``request``, ``die``: it ends for good.
        seed: names its host and its losses.
    """

    run: Path
    start: float
    acts: list[Act]
    seed: int = 0
    due: list[Due] = field(default_factory=list)
    """What is to be said, as far as it has been written."""
    beat_every: float = 10.0

    def __post_init__(self) -> None:
        self.session: Any = None
        self.at = self.start
        self.launches = 0
        self._unplanned: list[float] = []
        self._looped_until = self._fails_at = 0.0
        self._acts = list(self.acts)
        self._draw = random.Random(self.seed)
        self._act: Act | None = None
        self._ends = self._began = self.start
        self._hang: Hangs | None = None
        self._holding: dict[str, float] = {}

    @property
    def until(self) -> float:
        """When its script is over."""
        return self.start + sum(act.secs for act in self.acts)

    def __call__(self, until: float) -> None:
        """Write all up to a time."""
        if until < self.start:
            return
        if self.session is None:
            self.launches = int(any(act.what == "oom" for act in self.acts))
            if self.launches:
                launch(self.run, 1, self.start)
            self._begin(0)
        while self._act is not None or self._acts:
            if self._act is None:
                self._act = self._acts.pop(0)
                self._began, self._ends = self._ends, self._ends + self._act.secs
                getattr(self, f"_begin_{self._act.what}", self._nothing)()
            if until < self._ends:
                self._write(until)
                return
            self._write(self._ends)
            getattr(self, f"_end_{self._act.what}", self._nothing)()
            self._act = None

    def _nothing(self) -> None:
        """Nothing happens at that moment."""

    def _write(self, until: float) -> None:
        what = self._act.what if self._act is not None else ""
        if self._hang is not None:
            self._hang(until)
        elif what in ("train", "worker", "nan", "disk"):
            secs = (until - self.session.at) // self.beat_every * self.beat_every
            if secs > 0:
                self.session.train(secs, failing_saves=what == "disk")

    def _begin(self, step: int) -> None:
        attempt = 1 if self.session is None else self.session.attempt + 1
        start = self._ends if self.session is not None else self.start
        self.session = Scripted(
            self.run, start, attempt=attempt, step=step, beat_every=self.beat_every, write_every=100_000,
            host=f"gpu-{self.seed % 7}", save_every=120.0,
        )  # fmt: skip
        self.session.flush()

    def _is_due(self, what: str, at: float, secs: float = 0.0) -> None:
        self.due.append(Due(what, at, at + secs))

    def _holds(self, kind: str, severity: str, since: float) -> bool:
        """A finding has held since a time and is over now: said if that was for long enough. Return whether it was."""
        hold = HOLDS[kind]
        is_said = self._ends - since > hold + MINUTE + SLACK
        if is_said:
            self._is_due(f"{severity} begins {kind}", since + hold - SLACK, 2 * SLACK)
            self._is_due(
                f"{severity} is_over {kind}",
                self._ends,
                SLACK + (self.session.save_every if kind == "saves_failing" else 0.0),
            )
        return is_said

    def _begin_hang(self) -> None:
        self._hang = Hangs(self.session, thread="MainThread", location="/app/train.py:88 load")

    def _end_hang(self) -> None:
        assert self._hang is not None
        self._hang.end()
        self._holds("stalled", "page", self._hang.since)
        self._hang = None

    def _begin_worker(self) -> None:
        for name in ("worker:1", "worker:2"):
            self.session.worker(name, "running")
        self.session.worker("worker:1", "lost")

    def _end_worker(self) -> None:
        self._holds("worker_lost", "warn", self._began)
        self.session.worker("worker:1", "running", started_at=self._ends)

    def _begin_disk(self) -> None:
        self._fails_at = self.session._next_save + self.session.save_every

    def _end_disk(self) -> None:
        self._holds("saves_failing", "page", self._fails_at)

    def _begin_nan(self) -> None:
        self.session.nan_from = self.session.step + 1
        self.session.write_every = 20

    def _end_nan(self) -> None:
        self._is_due("page begins loss_not_finite", self._began, SLACK)
        self._holding["loss_not_finite"] = self._began

    def _begin_fail(self) -> None:
        self.session.stop("error", error="ValueError: no such class")

    def _begin_preempt(self) -> None:
        self.session.stop("signal", signal="SIGTERM")

    def _begin_oom(self) -> None:
        how = {"cause": "oom", "session": self.session.session, "oom_kills": 1, "backoff_secs": self._act.secs}  # type: ignore[union-attr]
        launch(self.run, self.launches, self.session.start, self.session.at + 0.5, **how)

    def _end_kill(self) -> None:
        self._again("lost")

    def _end_fail(self) -> None:
        self._again("failed")

    def _end_preempt(self) -> None:
        self._again(None)

    def _end_oom(self) -> None:
        self.launches += 1
        launch(self.run, self.launches, self._ends)
        self._again("oom")

    def _again(self, how: str | None) -> None:
        died = self.session.at
        self._begin(max(0, self.session.step - (0 if how is None else self._draw.choice([0, 60, 400]))))
        is_said = how in ("lost", "failed") and self._holds(how, "page", died)
        if self._holding.pop("loss_not_finite", None) is not None:
            self._is_due("page is_over loss_not_finite", died, self._ends - died + MINUTE)
        if not is_said:  # else the end of what was said has the restart
            self._is_due("info happened restarted" if how is None else "restart happened restarted", self._ends, SLACK)
        self._unplanned.append(self._ends)
        window = [at for at in self._unplanned if self._ends - at <= WINDOW]
        if len(window) >= LOOP:
            if self._ends > self._looped_until:
                self._end_loop(self._looped_until)
                self._is_due("page begins restart_loop", self._ends, SLACK)
            self._looped_until = window[-LOOP] + WINDOW

    def _end_loop(self, at: float) -> None:
        """Its last restarts are an hour ago, or the run has ended as planned."""
        if self._looped_until:
            self._is_due("page is_over restart_loop", min(at, self._looped_until), SLACK)
        self._looped_until = 0.0

    def _begin_complete(self) -> None:
        self.session.stop()
        self._end_loop(self._ends)
        self._is_due("end happened completed", self._ends, SLACK)

    def _begin_request(self) -> None:
        self.session.stop("requested")
        self._end_loop(self._ends)
        self._is_due("end happened stopped", self._ends, SLACK)

    def _begin_die(self) -> None:
        self._end_loop(self._looped_until)
        self._is_due("page begins lost", self.session.at + HOLDS["lost"], SLACK)


def random_life(run: Path, start: float, seed: int, hours: float) -> Life:
    """Return a life of some hours."""
    draw = random.Random(seed)
    acts: list[Act] = [Act("train", draw.uniform(600, 1800))]
    while sum(act.secs for act in acts) < hours * HOUR:
        what = draw.choice(["hang", "disk", "worker", "kill", "fail", "oom", "preempt", "nan"])
        secs = {
            "hang": draw.choice([200.0, 330.0, 900.0]),
            "disk": 1200.0,
            "worker": draw.choice([60.0, 600.0]),
            "nan": 600.0,
            "preempt": draw.choice([20.0, 30.0]),
            "oom": draw.choice([8.0, 30.0]),
        }.get(what, draw.choice([20.0, 30.0, 900.0]))
        acts += [Act(what, secs), *([Act("kill", 15.0)] if what == "nan" else [])]
        acts.append(Act("train", draw.uniform(900, 2400)))
    acts.append(Act(draw.choice(["complete", "request", "die"])))
    return Life(run, start, acts, seed)


def short(due: list[Due]) -> Counter[str]:
    """Return how often each event is due."""
    return Counter(each.what for each in due)
