"""A scripted fleet: it knows second by second what each run did, and what its report has to say.

`ScriptedFleet` writes telemetry, which is folded as always. `sessions_on_hosts` makes sessions without records, fast
enough for a hundred fleets. The truth of both is kept by the script; nothing of the product computes it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import BUCKETS, Goodput, Run, Session, SessionTime

BEGAN = 1_700_000_000.0
DAY, HOUR = 86400.0, 3600.0
SIZES = (1, 8, 8, 16, 32, 64, 256)
TEAMS = ("vision", "speech", "text", "robots")
HOSTS = tuple(f"node-{number:02d}" for number in range(64))
BAD_HOST = "node-17"
SAVING, WASTED, DOWN = (
    "unproductive_checkpoint_save",
    "wasted_progress_from_disruption",
    "infrastructure_recovery_from_disruption",
)


class Span(NamedTuple):
    """What a run did for a while."""

    begin: float
    end: float
    bucket: str


@dataclass
class TrueRun:
    """The truth about one run."""

    name: str
    devices: int
    team: str
    spans: list[Span] = field(default_factory=list)
    alive: list[tuple[float, float]] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)
    """When, and on which host."""

    def secs(self, since: float, until: float) -> Counter[str]:
        """Return the seconds by bucket in a window."""
        found: Counter[str] = Counter()
        for span in self.spans:
            found[span.bucket] += max(0.0, min(span.end, until) - max(span.begin, since))  # type: ignore[assignment]
        return found

    def take_back(self, since: float, bucket: str) -> None:
        """Let the steps since a time have been in vain."""
        cut: list[Span] = []
        for span in self.spans:
            if span.bucket != "productive" or span.end <= since:
                cut.append(span)
                continue
            if span.begin < since:
                cut.append(span._replace(end=since))
            cut.append(Span(max(span.begin, since), span.end, bucket))
        self.spans = cut


class ScriptedFleet:
    """Runs of two days that fail, are preempted, hang, are continued on other hosts, or are given up.

    Args:
        trainer: the class of tests/run/conftest.py that writes a session's telemetry.
        seed: of its random numbers.
        runs: their number.
    """

    def __init__(self, trainer: Any, seed: int, runs: int = 500) -> None:
        self._trainer, self._random = trainer, random.Random(seed)
        self.now = BEGAN + 3 * DAY
        self.truth: list[TrueRun] = []
        self.runs: list[Run] = []
        for number in range(runs):
            self.runs.append(self._run(f"run-{number:03d}"))

    def _run(self, name: str) -> Run:
        draw = self._random.uniform
        truth = TrueRun(name, self._random.choice(SIZES), self._random.choice(TEAMS))
        self.truth.append(truth)
        begin, until = BEGAN + draw(0, DAY), BEGAN + draw(1.5 * DAY, 4 * DAY)
        interval, saved, attempt = self._random.choice((1200.0, 3600.0)), 0, 0
        before: dict[str, Any] = {}
        sessions: list[Any] = []
        while True:
            attempt += 1
            host = self._random.choice(HOSTS)
            session = self._trainer(f"{name}-{attempt}", begin, heartbeat_secs=0.0, attempt=attempt)
            session.file.path = f"/{name}/events.out.tfevents.{int(begin)}.{host}.1.{attempt:04d}"
            sessions.append(session)
            end, saved_at, saved = self._session(truth, session, host, saved, interval, until, before)
            truth.alive.append((begin, session.now))
            did_fail, had_failed = end in ("lost", "error"), before.get("previous_outcome") in ("lost", "error")
            if did_fail and (session.steps or not had_failed):  # a loop of crashes without a step counts once
                truth.failures.append((session.now, host))
            is_over = end in ("completed", "running") or self._random.random() < 0.05
            gap = draw(60, 3600)
            if is_over or session.now + gap >= self.now:
                if end in ("lost", "error"):
                    truth.take_back(saved_at, "at_risk")
                    if self.now - session.now <= DAY:  # then it is given up
                        truth.spans.append(Span(session.now, self.now, DOWN))
                break
            if end in ("lost", "error"):
                truth.take_back(saved_at, WASTED)
            truth.spans.append(Span(session.now, session.now + gap, DOWN))
            before = {
                "previous_outcome": end,
                "previous_step": session.step,
                "previous_step_exact": True,
                "previous_elapsed_secs": session.elapsed_secs,
                "previous_seen_at": session.now,
            }
            begin = session.now + gap
        fold = RunFold(name)
        for session in sessions:
            fold.update(session.file.chunks())
        return fold.run(self.now)

    def _session(
        self,
        truth: TrueRun,
        session: Any,
        host: str,
        saved: int,
        interval: float,
        until: float,
        before: dict[str, Any],
    ) -> tuple[str, float, int]:
        """Return how it ended, since when steps were not saved, and the step of the last save."""
        draw = self._random.uniform

        def spend(secs: float, bucket: str, **how: bool) -> None:
            truth.spans.append(Span(session.now, session.now + secs, bucket))
            session.spend(secs, **how)

        spend(draw(20, 200), "program_startup")
        session.enter("restoring")
        spend(draw(5, 60), "checkpoint_restore")
        session.ready(
            saved,
            host=host,
            device_count=truth.devices,
            labels={"team": truth.team},
            checkpoint_interval_secs=interval,
            **before,
        )
        dies_at = session.now + self._random.expovariate(1 / (18 * HOUR) * (1 + truth.devices / 64))
        hangs_at = session.now + self._random.expovariate(1 / (30 * HOUR))
        preempted_at = session.now + self._random.expovariate(1 / (40 * HOUR))
        pace, saved_at = draw(0.5, 5.0), session.now
        while True:
            stop_at = min(dies_at, hangs_at, preempted_at, until, self.now)
            chunk = max(0.0, min(interval, stop_at - session.now))  # below 0 after a stall
            steps = int(chunk / pace)
            spend(steps * pace, "productive")
            session.step += steps
            session.steps += steps
            if chunk == interval:
                pass
            elif stop_at == dies_at:
                spend(draw(0, pace), "productive")
                session.beat()
                if self._random.random() < 0.5:
                    session.stop("error", error="RuntimeError: NCCL")
                    return "error", saved_at, saved
                return "lost", saved_at, saved
            elif stop_at == hangs_at:
                since, hangs_at = session.now, float("inf")
                session.beat()
                spend(draw(400, 4000), "stall", moving=False)
                session.stall("begin", since)
                session.beat().stall("end", since)
                continue
            elif stop_at == self.now:
                spend(max(0.0, self.now - session.now), "productive")
                session.beat()
                return "running", saved_at, saved
            blocked = draw(0.5, 20.0)
            session.save(blocked_secs=blocked)
            spend(blocked, SAVING)
            session.beat()
            saved, saved_at = session.step, session.now
            if chunk != interval:
                reason = "completed" if stop_at == until else "signal"
                session.stop(reason)
                return reason, saved_at, saved


def sessions_on_hosts(seed: int, bad: str | None = BAD_HOST, runs: int = 500, factor: float = 10.0) -> list[Run]:
    """Return runs of a week whose sessions fail by chance, in proportion to their size, and more often on one host.

    A tenth of the failures is a program's: the run fails again and again, wherever it is, without progress.

    Args:
        seed: of the random numbers.
        bad: the host that fails more often; None for none.
        runs: their number.
        factor: by how much.
    """
    draw = random.Random(seed)
    until, template = BEGAN + 7 * DAY, RunFold("template").run(BEGAN)
    found = []
    for number in range(runs):
        name, devices, now, step = f"run-{number:03d}", draw.choice(SIZES), BEGAN + draw.uniform(0, 5 * DAY), 0
        end = now + draw.expovariate(1 / (3 * DAY))
        sessions: list[Session] = []
        while now < min(end, until):
            host = draw.choice(HOSTS)
            rate = (1 + devices / 32) / (8 * DAY) * (factor if host == bad else 1.0)
            dies_at = now + draw.expovariate(rate)
            ended_at = min(dies_at, end, until)
            died = ended_at == dies_at
            steps = int(ended_at - now)
            is_open = not died and ended_at == until
            sessions.append(_session(name, len(sessions) + 1, host, devices, now, ended_at, step, steps, died, is_open))
            step, now = step + steps, ended_at + draw.uniform(60, 1800)
            while died and draw.random() < 0.1 and now < until:  # a loop of crashes
                sessions.append(_session(name, len(sessions) + 1, host, devices, now, now + 30, step, 0, True, False))
                now += 90.0
        spent = sum((each.ended_at or 0.0) - (each.started_at or 0.0) for each in sessions)
        goodput = Goodput(
            wall_secs=spent,
            secs={**dict.fromkeys(BUCKETS, 0.0), "productive": spent, "at_risk": 0.0},
            booked_secs={},
            ratio=1.0,
            inferred=False,
            by_session=tuple(SessionTime(share=1.0) for _ in sessions),
        )
        if sessions:
            found.append(replace(template, name=name, sessions=tuple(sessions), goodput=goodput, state="completed"))
    return found


def _session(
    run: str,
    attempt: int,
    host: str,
    devices: int,
    begin: float,
    end: float,
    step: int,
    steps: int,
    died: bool,
    is_open: bool,
) -> Session:
    return Session(
        session=f"{run}-{attempt}",
        attempt=attempt,
        host=host,
        device_count=devices,
        started_at=begin,
        ended_at=end,
        outcome="lost" if died else "running" if is_open else "completed",
        inferred=False,
        first_step=step,
        last_step=step + steps,
        activity_secs={"productive": end - begin},
    )
