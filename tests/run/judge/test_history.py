"""What went wrong in runs, with begin and end: of one run, and of several together as sentences."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from supervisor_core.events.telemetry import LaunchRecord
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.history import history, lane_items
from supervisor_core.run.judge.together import Happened, Stay, sentences, sentences_of
from supervisor_core.run.model.run import Run
from tests.cases import each

T0 = 1_700_000_000.0
DAY = 86_400.0


def test_a_killed_run_that_was_resumed(killed: Any, resumed: Any, run_of: Callable[..., Run]) -> None:
    """The end, the downtime and what had to be done again are one finding; all of it is drawn, as goodput has it."""
    run = run_of(killed, resumed)
    (found,) = history(run)
    assert found.text == "lost at step 1,187 on host; restarted after 1 min, at least 187 steps recomputed"
    assert (found.kind, found.since, found.until) == ("lost", killed.now, killed.now + 60)
    items = lane_items(run)
    assert [item.kind for item in items] == ["session", "session", "downtime", "restart", "lost"]
    assert items[1].until == math.inf and (items[2].since, items[2].until) == (found.since, found.until)
    ahead = replace(run, clock_skew_secs=500.0)  # machines whose clocks differ are compared
    assert history(ahead)[0].since == killed.now - 500
    assert [item.since for item in lane_items(ahead)] == [item.since - 500 for item in items]


def test_a_run_that_is_down_until_it_is_given_up(killed: Any, run_of: Callable[..., Run]) -> None:
    """For a day it is down, however late it is looked at."""
    (down,) = history(run_of(killed, now=killed.now + 3600))
    assert (down.text, down.until) == ("lost at step 1,187 on host; not restarted", killed.now + DAY)
    assert history(run_of(killed, now=killed.now + 9 * DAY)) == [down]


def test_planned_ends_and_stops_by_a_signal(trainer: Any, run_of: Callable[..., Run]) -> None:
    """A stop by a signal is a finding if the run was started again; otherwise, and of a completed run, it is none."""
    first = trainer().ready().train(50).save().stop("signal", signal="SIGTERM")
    second = trainer("b", first.now + 90, attempt=2).ready(50).train(10).stop()
    run = run_of(first, second)
    (found,) = history(run)
    assert found.text == "stopped by a signal at step 50 on host: SIGTERM; restarted after 1 min 30 s"
    assert [item.kind for item in lane_items(run)][-2:] == ["stopped", "completed"]
    assert history(run_of(first)) == []


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
        (found,) = [each for each in history(run_of(first, restarter, second)) if each.kind == "hang"]
        where = verdict or "MainThread at train.py:8 in load"
        assert found.text == f"hung and was killed at step 50 on host: {where}; restarted after 8 s"


def test_stalls_and_errors(trainer: Any, run_of: Callable[..., Run]) -> None:
    """A stall lasts until there is progress; an error is one line."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(400, moving=False).stall("begin", since)
    (lasts,) = history(run_of(session))
    assert (lasts.text, lasts.until) == ("made no progress on host; none since", None)
    session.stall("end", since).train(10).stop("error", error="ValueError:\nno data.")
    over, failed = history(run_of(session))
    assert (over.text, over.until) == ("made no progress for 6 min 40 s on host", since + 400)
    assert failed.text == "failed at step 110 on host: ValueError: no data; not restarted"


def test_failed_saves_in_a_row_are_one_finding(trainer: Any, run_of: Callable[..., Run]) -> None:
    """From the first failure to the next good save, or the end of the run."""
    session = trainer().ready().train(100).save(error="OSError: no space")
    at = session.now
    session.train(60).save(error="OSError: no space").train(60)
    (lasts,) = history(run_of(session))
    assert lasts.text == "could not save (2 saves failed) on host: OSError: no space; none has succeeded since"
    session.save().train(10).save(error="OSError: again").stop()
    first, second = history(run_of(session))
    assert (first.since, first.until) == (at, at + 120) and first.text.endswith("; saved again after 2 min")
    assert second.text.startswith("could not save (a save failed)") and second.until == session.now


def lost(run: str, at: float, host: str = "gpu-7", kind: str = "lost", secs: float | None = 60, **how: Any) -> Happened:
    """A run that was lost, a minute long."""
    evidence = {"host": host, **how}
    until = None if secs is None else at + secs
    return Happened(run, Finding(kind=kind, since=at, until=until, text=f"{kind} on {host}", evidence=evidence))


def texts(found: list[Happened], since: float = T0, until: float = T0 + DAY, stays: Sequence[Stay] = ()) -> list[str]:
    """What is said of a stretch."""
    return [each.text for each in sentences_of(found, stays, since, until, until)]


def test_an_outage_is_one_sentence() -> None:
    """With the host, how long it took, the run that is still down, the cause of most; others stay apart."""
    outage = [lost(f"sweep/{n}", T0 + 3600 + 3 * n, secs=None if n == 9 else 300, error="E: no") for n in range(14)]
    other = lost("alone", T0 + 3700, "gpu-9")
    assert texts([*outage, other]) == [
        "14 runs were lost within 39 s, all on gpu-7: E: no. Still down: sweep/9. "
        "Runs: sweep/0, sweep/1, sweep/2, sweep/3, sweep/4 and 9 more.",
        "alone: lost on gpu-9.",
    ]
    mixed = [lost(f"r{n}", T0 + n, kind="failed" if n > 2 else "lost") for n in range(5)]
    assert texts(mixed) == ["5 runs went down within 4 s, all on gpu-7. Runs: r0, r1, r2, r3, r4."]
    saves = [lost(f"r{n}", T0 + 9 * n, f"h{n}", "saves_failing", None) for n in range(5)]
    assert texts(saves)[0].startswith("5 runs began to fail to save within 36 s, on 5 hosts. All still failing to save")


@each("live, down, is_group", [(20, 5, True), (500, 5, True), (20, 4, False), (501, 5, False), (501, 6, True),
                               (5000, 24, False), (5000, 25, True)])  # fmt: skip
def test_an_outage_is_of_a_hundredth_of_the_live_runs_and_of_5_to_25(live: int, down: int, is_group: bool) -> None:
    """Within a minute, on any hosts."""
    found = [lost(f"r{n}", T0 + 2 * n, f"h{n}") for n in range(down)]
    stays = [Stay(f"r{n}", f"h{n}", T0 - DAY, found[n].at if n < down else math.inf) for n in range(live)]
    stays += [Stay(f"old{n}", "h", T0 - DAY, T0 - 1) for n in range(1000)]
    assert (len(texts(found, stays=stays)) == 1) == is_group
    later = [lost(f"r{n}", T0 + 61 * n, f"h{n}") for n in range(down)]
    assert len(texts(later, stays=stays)) == down


@each("outage", [0, 25, 200])
def test_a_fleet_has_no_outage_by_chance(outage: int) -> None:
    """5,000 runs, 8 on a host, with 1,667 independent failures a day: in 20 of 20 days the outage is found, as one
    sentence with all of its runs and next to no others, and nothing else is."""
    stays = [Stay(f"r{n}", f"h{n // 8}", T0 - DAY, math.inf) for n in range(5000)]
    draw = random.Random(37)
    for _ in range(20):
        found = [lost(f"r{n}", T0 + draw.uniform(0, DAY), f"h{n // 8}") for n in draw.choices(range(5000), k=1667)]
        at, down = T0 + draw.uniform(0, DAY - 60), draw.sample(range(5000), outage)
        found += [lost(f"r{n}", at + draw.uniform(0, 30), f"h{n // 8}") for n in down]
        groups = [each for each in sentences_of(found, stays, T0, T0 + DAY, T0 + DAY) if each.is_group]
        assert len(groups) == bool(outage)
        for group in groups:
            others = set(group.runs).difference(f"r{n}" for n in down)
            assert len(group.runs) - len(others) == outage and len(others) <= 5


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
    found = [lost("a", T0 + 30 * n, kind="failed", secs=10, error="ValueError: x") for n in range(6)]
    assert texts(found) == ["a went down 6 times within 2 min 30 s: ValueError: x. Last: failed on gpu-7."]


def test_a_stretch_has_what_touches_it() -> None:
    """What began before it and lasts into it counts, what came before or after it does not."""
    found = [lost("before", T0, "a"), lost("into", T0 + 100, "b"), lost("after", T0 + 500, "c")]
    assert texts(found, T0 + 120, T0 + 300) == ["into: lost on b."]


def test_what_happened_long_before_changes_no_sentence(trainer: Any, run_of: Callable[..., Run]) -> None:
    """Whoever asks for some hours reads the same, however long the runs have been going wrong."""

    def ended(name: str, at: float) -> Run:
        session = trainer(name, at).ready(host=f"host-{name}").train(1).stop("error", error="E: no")
        return replace(run_of(session, now=session.now), name=name)

    group = [ended(f"new{number}", T0 + 10 * DAY) for number in range(5)]
    before = [ended(f"old{number}", T0 + number * 2_000.0) for number in range(300)]
    since, until = T0 + 9.9 * DAY, T0 + 11 * DAY
    (alone,) = sentences(group, since, until, until)
    assert alone.is_group and alone.is_open
    assert sentences([*before, *group], since, until, until)[0] == alone
    assert not sentences(group, since, until, until + 2 * DAY)[0].is_open
