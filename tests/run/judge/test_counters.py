"""Counters of a run that survive it: they count a death when it is found, on its host, and never fall."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.events.telemetry import LaunchRecord
from supervisor_core.run.fold.goodput import GIVEN_UP_SECS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.judge.counters import (
    AWAITED_SECS,
    MAX_PLACES,
    OTHER_HOSTS,
    dead_secs,
    failures,
    lost_process_secs,
    time_secs,
)
from supervisor_core.run.judge.fleet_report import session_rows
from supervisor_core.run.model.run import DOWNTIME, WASTED, Run
from supervisor_core.run.status import RunStatus
from tests.cases import each

RunOf = Callable[..., Run]


def counted(run: Run, now: float) -> dict[tuple[str, str], int]:
    """What has failed, without what has not."""
    return {place: count for place, count in failures(run, now).items() if count}


def test_a_death_counts_when_it_is_found(trainer: Any, run_of: RunOf) -> None:
    """On the host where it happened, whichever host the run goes on at; the restart adds nothing."""
    first = trainer("a").ready(host="node-1").train(100)
    assert failures(run_of(first), first.now + 1) == {("node-1", "error"): 0, ("node-1", "lost"): 0}
    dead = run_of(first, now=first.now + 60)
    assert dead.state == "lost" and failures(dead, first.now + 60) == {("node-1", "lost"): 1}
    second = trainer("b", first.now + 600, attempt=2).ready(50, host="node-2", previous_outcome="lost").train(10)
    live = run_of(first, second)
    assert failures(live, second.now) == {("node-1", "lost"): 1, ("node-2", "error"): 0, ("node-2", "lost"): 0}
    second.stop("error", error="ValueError: no")
    assert failures(run_of(first, second), second.now) == {("node-1", "lost"): 1, ("node-2", "error"): 1}


@each("reason", ["completed", "exhausted", "requested", "signal"])
def test_a_planned_end_is_no_failure(trainer: Any, run_of: RunOf, reason: str) -> None:
    """Nor is a preemption: nothing was wrong with the host."""
    ended = trainer("a").ready().train(10).stop(reason)
    assert not counted(run_of(ended), ended.now + 1)


def test_hosts_are_bounded(trainer: Any, run_of: RunOf) -> None:
    """What comes after the first pairs of host and reason is counted together; none of them changes its place."""
    sessions = []
    for number in range(MAX_PLACES + 3):
        began = 1_700_000_000.0 + 100 * number
        session = trainer(f"s{number:02}", began, attempt=number + 1).ready(0, host=f"node-{number}").train(5)
        sessions.append(session.stop("error"))
        found = counted(run_of(*sessions), session.now + 1)
        assert sum(found.values()) == number + 1 and len(found) <= MAX_PLACES + 1
    assert found[OTHER_HOSTS, "error"] == 3 and found["node-0", "error"] == 1


class Restarter:
    """A restarter that records what it sees of a session."""

    def __init__(self, events_file: Any, session: Any) -> None:
        self.file = events_file("/run/events.out.tfevents.1.host.1.1.restarter", created_at=session.started_at - 1)
        self.about = {"launch": "l1", "attempt": 1, "host": "node-1", "started_at": session.started_at - 1}
        self.file.record(LaunchRecord(state="begin", **self.about), 0, session.started_at - 1)

    def ended(self, at: float, **end: Any) -> Any:
        """Record the end."""
        return self.file.record(LaunchRecord(state="end", **{"action": "end", **self.about, **end}), 0, at)


def test_what_the_restarter_says_counts_once(trainer: Any, events_file: Any, run_of: RunOf) -> None:
    """The session's own record comes first: it waits for the restarter's, which knows why; not for ever."""
    session = trainer("a").ready(host="node-1").train(10)
    restarter = Restarter(events_file, session)
    session.stop("error")
    run = run_of(session, restarter.file)
    assert not counted(run, session.now + 1)
    assert counted(run, session.now + AWAITED_SECS) == {("node-1", "error"): 1}
    run = run_of(session, restarter.ended(session.now + 20, session="a", cause="oom"))
    assert counted(run, session.now + 30) == {("node-1", "oom"): 1}


def test_a_hang_that_the_restarter_ended(trainer: Any, events_file: Any, run_of: RunOf) -> None:
    """The session's own record has the signal only."""
    session = trainer("a").ready(host="node-1").train(10).stop("signal", signal="SIGTERM")
    end = Restarter(events_file, session).ended(session.now + 1, session="a", cause="hang")
    assert counted(run_of(session, end), session.now + 2) == {("node-1", "hang"): 1}


def test_a_program_that_never_had_a_session(trainer: Any, events_file: Any, run_of: RunOf) -> None:
    """Has failed on the restarter's host; a session that the launch had is not counted again."""
    nothing = Restarter(events_file, trainer("a"))
    run = run_of(nothing.ended(1_700_000_020.0, cause="error", error="ImportError at train.py:1"))
    assert counted(run, 1_700_000_030.0) == {("node-1", "error"): 1}
    session = trainer("a").ready(host="node-1").train(10)
    end = Restarter(events_file, session).ended(session.now + 1, cause="signal", signal="SIGKILL")
    assert counted(run_of(session, end), session.now + 2) == {("node-1", "lost"): 1}


def test_downtime_counts_while_a_run_is_dead(trainer: Any, run_of: RunOf) -> None:
    """From its death on, for certain; until it is given up. The clock of a counter does not run back then."""
    failed = trainer("a").ready().train(100).stop("error")
    lost = trainer("a").ready().train(100)
    for session, unseen in ((failed, 0.0), (lost, 11.0)):
        for secs in (600.0, GIVEN_UP_SECS, 5 * GIVEN_UP_SECS):
            run = run_of(session, now=session.now + secs)
            expected = min(secs, GIVEN_UP_SECS) - unseen
            assert time_secs(run, session.now + secs)[DOWNTIME] == pytest.approx(expected)
    live = run_of(lost)
    assert dead_secs(live, lost.now + 1) == 0.0


def test_process_seconds_are_weighted(trainer: Any, run_of: RunOf) -> None:
    """With the devices of the session that lost them; with its processes where devices are not known; else once."""
    first = trainer("a").spend(12).ready(device_count=8, world_size=2).train(100).beat()
    dead = run_of(first, now=first.now + 611)
    assert lost_process_secs(dead, first.now + 611)[DOWNTIME] == pytest.approx(8 * 600)
    assert lost_process_secs(dead, first.now + 611)["program_startup"] == pytest.approx(8 * 12)
    second = trainer("b", first.now + 600, attempt=2).spend(10).ready(60, previous_outcome="lost", world_size=2)
    run = run_of(first, second.train(100))
    lost, own = lost_process_secs(run, second.now), time_secs(run, second.now)
    assert lost[WASTED] == pytest.approx(8 * own[WASTED]) and own[WASTED] > 35
    assert lost[DOWNTIME] == pytest.approx(8 * own[DOWNTIME]) and own[DOWNTIME] > 580
    assert lost["program_startup"] == pytest.approx(8 * 12 + 2 * 10)
    assert "productive" not in lost
    starting = trainer("b", first.now + 600, attempt=2).spend(10)
    assert lost_process_secs(run_of(first, starting), starting.now)["program_startup"] == pytest.approx(8 * 12 + 10)
    alone = trainer("a").spend(12).ready().train(10)
    assert lost_process_secs(run_of(alone), alone.now)["program_startup"] == pytest.approx(12)


def test_one_weight_for_counters_and_report(trainer: Any, run_of: RunOf) -> None:
    """A session that failed before it knew its devices counts with those of the one before, in both."""
    first = trainer("a").spend(12).ready(device_count=8).train(100).stop("error")
    second = trainer("b", first.now + 60, attempt=2).spend(30).ready(previous_outcome="error").stop("error")
    run = run_of(first, second)
    assert [row.devices for row in session_rows(run)] == [8, 8]
    assert lost_process_secs(run, second.now)["program_startup"] == pytest.approx(8 * (12 + 30))
    assert run.goodput.weight == 8


def looks(sessions: list[Any], until: float) -> Iterator[tuple[Run, float]]:
    """A run as it is seen every five seconds, then every hour."""
    now, last = sessions[0].started_at, max(session.now for session in sessions)
    while now < until:
        fold = RunFold("run")
        for session in sessions:
            events = [(at, event) for at, event in session.file.events if at <= now]
            if events:
                fold.update(replace(session.file, events=events).chunks())
        yield fold.run(now), now
        now += 5.0 if now < last + 300 else 3600.0


def test_no_counter_ever_falls(trainer: Any) -> None:
    """While a run is killed, starts for minutes, is restored, fails, and is given up."""
    first = trainer("a").spend(12).ready(host="node-1", device_count=4).train(100).save().train(43)
    second = trainer("b", first.now + 200, attempt=2).spend(95)
    second.ready(100, host="node-2", previous_outcome="lost").train(150).stop("error")
    third = trainer("c", second.now + 120, attempt=3).spend(31)
    third.ready(100, host="node-1", previous_outcome="error", device_count=2).train(100)
    before: Mapping[Any, float] = {}
    states = []
    for run, now in looks([first, second, third], third.now + 3 * GIVEN_UP_SECS):
        lost = {f"lost {name}": secs for name, secs in lost_process_secs(run, now).items()}
        values: dict[Any, float] = {**failures(run, now), **time_secs(run, now), **lost}
        for key, value in before.items():
            assert values.get(key, 0) >= value - 1e-6, (key, now - first.started_at, run.state)
        before = {key: value for key, value in values.items() if value}
        states.append(run.state)
    kinds = [state for state, _ in itertools.groupby(states)]
    assert kinds == ["running", "lost", "running", "failed", "running", "lost"]
    assert before["node-1", "lost"] == 2 and before["node-2", "error"] == 1
    assert before[DOWNTIME] == pytest.approx(GIVEN_UP_SECS + 200 + 120, abs=30)


def test_a_run_that_was_taken_for_dead(trainer: Any) -> None:
    """Keeps what was counted: a scraper would take a lower value for a counter that began again."""
    dead = RunStatus(
        run="a", active=True, failures={("n", "lost"): 3, ("n", "error"): 0},
        run_activity_secs={DOWNTIME: 60.0, "productive": 5.0}, lost_process_secs={DOWNTIME: 480.0},
    )  # fmt: skip
    alive = replace(
        dead, failures={("n", "lost"): 2}, run_activity_secs={DOWNTIME: 0.0, "productive": 70.0}, lost_process_secs={}
    )
    kept = alive.not_below(dead)
    assert kept.failures == {("n", "lost"): 3}
    assert kept.run_activity_secs == {DOWNTIME: 60.0, "productive": 70.0}
    assert kept.lost_process_secs == {DOWNTIME: 480.0}
