"""The fleet of `benchmarks.fleet`: what is measured is what its generator says that it makes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.fleet.logdir import STEPS_PER_BEAT, make
from supervisor_core.run.watch.logdir_watch import LogdirWatch


def test_a_fleet_is_what_it_says(tmp_path: Path) -> None:
    """Each run has the state that the generator gives it, a host and steps; none is a copy of another."""
    make(tmp_path, runs=220, live=20, beats=3)
    runs = LogdirWatch(str(tmp_path)).refresh().runs.values()
    assert Counter(run.run.state for run in runs) == {"running": 20, "completed": 180, "failed": 10, "lost": 10}
    assert {run.run.step for run in runs} == {3 * STEPS_PER_BEAT}
    assert len({run.run.sessions[-1].host for run in runs}) == 64
    assert not any(run.copy_of or run.problem or run.corrupt_records for run in runs)


def test_live_runs_go_on(tmp_path: Path) -> None:
    """`grow` appends one heartbeat to each live run, and nothing to those that have ended."""
    fleet = make(tmp_path, runs=4, live=2, beats=3)
    watch = LogdirWatch(str(tmp_path))
    before = watch.refresh().runs
    due = fleet.next_at
    fleet.grow()
    after = watch.refresh().runs
    assert fleet.next_at == due + 10.0
    assert sorted(name for name in after if after[name] is not before[name]) == ["team-0/run-00000", "team-1/run-00001"]
    assert after["team-0/run-00000"].run.step == 4 * STEPS_PER_BEAT
