"""Counters that an exporter serves of a run: what was counted once stays, and nothing is counted of another run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch

LOST = 'supervisor_failures_total{host="trainer-0",reason="lost",run="a"}'
DOWN = 'activity="infrastructure_recovery_from_disruption",run="a"}'
LOST_SECS = 'supervisor_lost_process_seconds_total{cause="infrastructure_recovery_from_disruption",run="a"}'


def test_a_run_that_was_taken_for_dead(tmp_path: Path, clock: Any, writing: Any, samples_of: Any) -> None:
    """It is silent for too long, then goes on: a lower value would be taken for a counter that began again."""
    run = writing.RunFile(tmp_path / "a", clock.now - 100).ready(device_count=8).beat(clock.now, steps=5)
    exporter = Exporter([LogdirWatch(str(tmp_path), clock=clock)], clock=clock)
    exporter.refresh()
    before = samples_of(exporter.scrape(TEXT))
    assert before[LOST] == 0
    clock.now += 100
    exporter.refresh()
    dead = samples_of(exporter.scrape(TEXT))
    down = dead[f"supervisor_run_time_seconds_total{{{DOWN}"]
    assert dead[LOST] == 1 and dead[LOST_SECS] == 8 * down and down == pytest.approx(89)
    run.beat(clock.now, steps=6)
    exporter.refresh()
    alive = samples_of(exporter.scrape(TEXT))
    assert alive['supervisor_run_state{run="a",state="running"}'] == 1
    assert (alive[LOST], alive[LOST_SECS]) == (1, dead[LOST_SECS])


def test_another_run_in_its_place(tmp_path: Path, clock: Any, writing: Any, samples_of: Any) -> None:
    """Begins at 0, whatever was counted of the one before."""
    writing.RunFile(tmp_path / "a", clock.now - 500, "first").ready().beat(clock.now - 400, steps=5)
    exporter = Exporter([LogdirWatch(str(tmp_path), clock=clock)], clock=clock)
    exporter.refresh()
    assert samples_of(exporter.scrape(TEXT))[LOST] == 1
    shutil.rmtree(tmp_path / "a")
    writing.RunFile(tmp_path / "a", clock.now - 10, "second").ready().beat(clock.now, steps=1)
    exporter.refresh()
    assert samples_of(exporter.scrape(TEXT))[LOST] == 0
