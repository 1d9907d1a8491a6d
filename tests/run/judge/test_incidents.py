"""What went wrong in runs, as sentences: one run, several together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.events.telemetry import LaunchRecord
from supervisor_core.run.judge.incidents import Stay, incident_sentences, sentences
from supervisor_core.run.judge.run_incidents import Incident, incidents, lane_items
from supervisor_core.run.model.run import Run
from tests.cases import each

T0 = 1_700_000_000.0
DAY = 86_400.0


def lost(run: str, at: float, **how: Any) -> Incident:
    """A run that was lost, a minute long."""
    return Incident(**{"run": run, "kind": "lost", "at": at, "until": at + 60, "host": "gpu-7", **how})


def texts(found: list[Incident], since: float = T0, until: float = T0 + DAY, stays: Sequence[Stay] = ()) -> list[str]:
    """What is said of a stretch."""
    return [each.text for each in incident_sentences(found, stays, since, until)]


@pytest.fixture
def renamed(run_of: Callable[..., Run]) -> Callable[..., Run]:
    """Returns a function that returns the run of some sessions under a name."""
    return lambda name, *sessions, **how: replace(run_of(*sessions, **how), name=name)


def test_a_killed_run_that_was_resumed(killed: Any, resumed: Any, run_of: Callable[..., Run]) -> None:
    """The end, the downtime and what had to be done again are one sentence; its time is when it went down."""
    run = run_of(killed, resumed)
    (found,) = incidents(run, resumed.now)
    assert found.text == (
        "run was lost on host. It was started again after 1 min at step 1,000; at least 187 steps done again."
    )
    assert (found.at, found.until) == (killed.now, killed.now + 60)


def test_a_run_that_is_down_and_one_that_is_given_up(killed: Any, run_of: Callable[..., Run]) -> None:
    """For a day it is down, and touches every stretch since; then it is over."""
    down, over = (incidents(run_of(killed, now=killed.now + secs), killed.now + secs)[0] for secs in (3600, 2 * DAY))
    assert down.text == "run was lost on host. It is still down."
    assert down.touches(killed.now + 600, killed.now + 700)
    assert over.text == "run was lost on host. It was not started again."
    assert not over.touches(killed.now + 600, killed.now + 700)


def test_what_happened_long_before_changes_no_sentence(trainer: Any, renamed: Callable[..., Run]) -> None:
    """Whoever asks for some hours reads the same, however long the runs have been going wrong."""

    def ended(name: str, at: float) -> Run:
        session = trainer(name, at).ready(host=f"host-{name}").train(1).stop("error", error="E: no")
        return renamed(name, session, now=session.now)

    group = [ended(f"new{number}", T0 + 10 * DAY) for number in range(3)]
    before = [ended(f"old{number}", T0 + number * 2_000.0) for number in range(300)]
    since, until = T0 + 9.9 * DAY, T0 + 11 * DAY
    (alone,) = sentences(group, since, until, until)[:1]
    assert alone.is_group
    assert sentences([*before, *group], since, until, until)[0] == alone


def test_an_error_is_in_the_sentence(trainer: Any, run_of: Callable[..., Run]) -> None:
    """With one full stop, in one line, and without the end of a text that is long."""
    session = trainer().ready().train(10).stop("error", error="ValueError:\nno data.")
    (found,) = incidents(run_of(session), session.now)
    assert found.text == "run failed on host: ValueError: no data. It is still down."


def test_a_stop_by_a_signal_is_an_incident_if_the_run_was_started_again(
    trainer: Any, run_of: Callable[..., Run]
) -> None:
    """A planned stop is none; nor is a run that was completed."""
    first = trainer().ready().train(50).save().stop("signal", signal="SIGTERM")
    second = trainer("b", first.now + 90, attempt=2).ready(50).train(10).stop()
    (found,) = incidents(run_of(first, second), second.now)
    assert found.text.startswith("run was stopped by a signal on host: SIGTERM. It was started again after 1 min 30 s")
    assert incidents(run_of(first), first.now) == []


def test_a_hang_is_said_once_with_the_rank_that_it_is_of(
    trainer: Any, events_file: Any, run_of: Callable[..., Run]
) -> None:
    """What the restarter has recorded is where one process hung; of several ranks the session knows more."""
    for verdict in (None, "Rank 1 hangs at train.py:8 in load; rank 0 waits for it"):
        first = trainer().ready().train(50)
        first.stall("begin", first.now - 6, verdict=verdict).stop("signal", signal="SIGTERM")
        about = {"launch": "l1", "attempt": 1, "started_at": T0, "session": first.id, "action": "restart"}
        error = "hang at MainThread at train.py:8 in load"
        end = LaunchRecord(state="end", cause="hang", error=error, **about)
        restarter = events_file("restarter", created_at=T0).record(end, 0, first.now + 1)
        second = trainer("b", first.now + 8, attempt=2).ready(50).train(10).stop()
        (found,) = [each for each in incidents(run_of(first, restarter, second), second.now) if each.kind == "hang"]
        where = verdict or "MainThread at train.py:8 in load"
        assert found.change == f"hung and was killed at step 50 on host: {where}; restarted after 8 s"


def test_stalls(trainer: Any, run_of: Callable[..., Run]) -> None:
    """One that is over, and one that lasts: there it says so."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(400, moving=False).stall("begin", since)
    (lasts,) = incidents(run_of(session), session.now)
    assert lasts.text == "run made no progress on host. It still makes none."
    session.stall("end", since).train(10)
    (over,) = incidents(run_of(session), session.now)
    assert over.text == "run made no progress for 6 min 40 s on host."


def test_failed_saves_in_a_row_are_one_incident(trainer: Any, run_of: Callable[..., Run]) -> None:
    """From the first failure to the next good save."""
    session = trainer().ready().train(100).save(error="OSError: no space")
    at = session.now
    session.train(60).save(error="OSError: no space").train(60)
    (lasts,) = incidents(run_of(session), session.now)
    assert lasts.text == "2 saves of run failed on host: OSError: no space. No save has succeeded since."
    session.save().train(10).save(error="OSError: again").stop()
    first, second = incidents(run_of(session), session.now)
    assert (first.at, first.until, first.count) == (at, at + 120, 2)
    assert first.text.endswith("The next good one came 2 min after the first failure.")
    assert second.text == "A save of run failed on host: OSError: again. No save has succeeded since."
    assert second.is_over


def test_times_are_by_the_readers_clock(killed: Any, run_of: Callable[..., Run]) -> None:
    """Machines whose clocks differ are compared."""
    run = run_of(killed, now=killed.now + 600)
    ahead = replace(run, clock_skew_secs=500.0)
    assert incidents(ahead, killed.now + 100)[0].at == incidents(run, killed.now + 600)[0].at - 500
    assert [item.since for item in lane_items(ahead)] == [item.since - 500 for item in lane_items(run)]


def test_what_is_drawn(killed: Any, resumed: Any, run_of: Callable[..., Run]) -> None:
    """Sessions, and the downtime between them as goodput has it; the open session has no end."""
    run = run_of(killed, resumed)
    items = lane_items(run)
    assert [item.kind for item in items] == ["session", "downtime", "session", "restart", "lost"]
    down = items[1].until - items[1].since
    assert down == pytest.approx(run.goodput.secs["infrastructure_recovery_from_disruption"])
    assert items[2].until == float("inf")


def test_a_node_outage_is_one_sentence() -> None:
    """With the host, how long it took, what came of it, and the run that is still down; others stay apart."""
    outage = [lost(f"sweep/{n}", T0 + 3600 + 3 * n, until=T0 + 3900 + 10 * n) for n in range(14)]
    outage[9] = replace(outage[9], until=None)
    other = lost("alone", T0 + 3610, host="gpu-9")
    assert texts([*outage, other]) == [
        "14 runs were lost within 39 s, all on gpu-7. 13 were started again after 5 min to 6 min 31 s. "
        "1 is still down: sweep/9. Runs: sweep/0, sweep/1, sweep/2, sweep/3, sweep/4 and 9 more.",
        "alone was lost on gpu-9. It was started again after 1 min.",
    ]


def test_a_storage_outage_is_one_sentence() -> None:
    """Runs on several hosts whose saves fail within minutes, with the error that they have in common."""
    found = [
        Incident(run=f"r{n}", kind="saves", at=T0 + 40 * n, until=None, host=f"h{n}", why="OSError: stale")
        for n in range(8)
    ]
    assert texts(found)[0].startswith(
        "Saves of 8 runs began to fail within 4 min 40 s, on 8 hosts: OSError: stale. All are still failing to save."
    )


def test_different_ends_are_named_together() -> None:
    """Some were lost, some failed: they went down."""
    found = [lost(f"r{n}", T0 + n) for n in range(5)]
    found[2] = replace(found[2], kind="error", why="RuntimeError: NCCL")
    found[3] = replace(found[3], kind="error", why="RuntimeError: NCCL")
    found[4] = replace(found[4], kind="error", why="RuntimeError: NCCL")
    assert texts(found)[0].startswith("5 runs went down within 4 s, all on gpu-7; 3 of them: RuntimeError: NCCL. All ")


@each("live, down, is_group", [(1000, 5, True), (1000, 4, False), (80, 4, True), (20, 2, False)])
def test_an_outage_is_of_five_runs_or_of_a_twentieth_of_the_live_ones(live: int, down: int, is_group: bool) -> None:
    """Within a minute, on any hosts; never of fewer than three."""
    found = [lost(f"r{n}", T0 + 14 * n, host=f"h{n}") for n in range(down)]
    stays = [Stay(f"r{n}", f"h{n}", T0 - DAY, found[n].at if n < down else math.inf) for n in range(live)]
    stays += [Stay(f"old{n}", "h", T0 - DAY, T0 - 1) for n in range(1000)]
    assert (len(texts(found, stays=stays)) == 1) == is_group
    later = [replace(item, at=T0 + 61 * n) for n, item in enumerate(found)]
    assert len(texts(later, stays=stays)) == down


@each("others", [0, 1])
def test_a_host_is_down_if_all_of_its_runs_are(others: int) -> None:
    """At least three of them; a run that was there and goes on shows that it is not the host."""
    found = [lost(f"r{n}", T0 + n) for n in range(3)]
    stays = [Stay(item.run, "gpu-7", T0 - DAY, item.at) for item in found]
    stays += [Stay(f"other{n}", "gpu-7", T0 - DAY, math.inf) for n in range(others)]
    stays += [Stay("later", "gpu-7", T0 + 100, math.inf), *(Stay(f"x{n}", "gpu-8", T0, math.inf) for n in range(100))]
    assert len(texts(found, stays=stays)) == (3 if others else 1)


def test_a_run_that_goes_down_again_and_again_is_one_sentence() -> None:
    """It is no outage, however soon it fails again; the last end is told in full."""
    found = [lost("a", T0 + 30 * n, until=T0 + 30 * n + 10, kind="error", why="ValueError: x") for n in range(6)]
    assert texts(found) == [
        "a went down 6 times within 2 min 30 s: ValueError: x. Last: a failed on gpu-7: ValueError: x. "
        "It was started again after 10 s."
    ]


def test_a_stretch_has_what_touches_it() -> None:
    """What began before it and lasts into it counts, what came before or after it does not."""
    found = [lost("before", T0, host="a"), lost("into", T0 + 100, host="b"), lost("after", T0 + 500, host="c")]
    assert [text.split()[0] for text in texts(found, T0 + 120, T0 + 300)] == ["into"]


def test_what_was_planned_is_counted(trainer: Any, renamed: Callable[..., Run]) -> None:
    """Runs that began and were completed in the stretch are a sentence each, without a time."""
    sessions = [trainer(f"s{n}", T0 + n).ready().train(100).stop() for n in range(7)]
    runs = [renamed(f"r{n}", session) for n, session in enumerate(sessions)]
    said = sentences(runs, T0 + 3, T0 + DAY, T0 + DAY)
    assert [(each.at, each.text) for each in said] == [
        (None, "4 runs started: r3, r4, r5, r6."),
        (None, "7 runs completed: r0, r1, r2, r3, r4 and 2 more."),
    ]
    assert said[1].runs == tuple(f"r{n}" for n in range(7))


def test_a_run_that_was_started_again_is_not_counted_as_stopped(trainer: Any, renamed: Callable[..., Run]) -> None:
    """Its stop by a signal is an incident; that of a run that nobody started again is only counted."""
    first = trainer().ready().train(50).save().stop("signal", signal="SIGTERM")
    again = trainer("b", first.now + 90, attempt=2).ready(50).train(10)
    runs = [renamed("again", first, again), renamed("left", first)]
    said = [each.text for each in sentences(runs, T0, T0 + DAY, again.now)]
    assert said[0].startswith("again was stopped by a signal on host: SIGTERM. It was started again")
    assert said[1:] == ["2 runs started: again, left.", "1 run was stopped: left."]
