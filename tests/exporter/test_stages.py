"""How much is served of a run: much of a live one, little of a dead one, least of one at rest, the rest on request."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.metric import Stage
from supervisor_core.metrics.page import MOMENT_SECS, stage_of
from supervisor_core.metrics.render import TEXT
from supervisor_core.metrics.table import ALL_METRICS
from supervisor_core.run.status import Reading, RunStatus
from supervisor_core.run.watch.logdir_watch import LogdirWatch

Samples = Callable[[bytes], dict[str, float]]
DAY = 86_400.0
FORGET = 7 * DAY
WEEKS = 2 * FORGET


def of_run(samples: dict[str, float], run: str) -> set[str]:
    """The names of what is served of a run."""
    return {series.partition("{")[0] for series in samples if f'run="{run}"' in series}


@pytest.fixture
def logs(tmp_path: Path, writing: Any, clock: Any) -> Path:
    """A run that trains, with services and processes in good health, and three that end or die now."""
    threads = tuple({"name": name, "state": "idle", "ticks": 1, "last_tick_at": clock.now} for name in "abcdefgh")
    workers = tuple({"name": f"worker:{n}", "state": "running", "last_seen_at": clock.now} for n in range(16))
    labels = {"team": "vision"}
    trains = writing.RunFile(tmp_path / "trains").ready(labels=labels)
    trains.beat(clock.now - 20, threads=threads, workers=workers).saved(clock.now - 12, "/x/model.ckpt-5")
    trains.beat(clock.now - 5, steps=5, threads=threads, workers=workers, steps_per_sec=0.5, loss_finite=True)
    writing.RunFile(tmp_path / "completed").ready(labels=labels).beat(clock.now - 6, steps=5).stop(clock.now - 5)
    writing.RunFile(tmp_path / "failed").ready().beat(clock.now - 6, steps=5).stop(clock.now - 5, "error")
    writing.RunFile(tmp_path / "lost").ready().beat(clock.now - 5, steps=5)
    return tmp_path


def test_of_a_run_at_rest_there_are_three_series(logs: Path, exporter_of: Any, samples_of: Samples, clock: Any) -> None:
    """An hour after its end: how it ended, when, and whose it was; until then what Prometheus may not have seen yet."""
    exporter: Exporter = exporter_of(logs)
    assert {"supervisor_active", "supervisor_goodput_ratio"} <= of_run(samples_of(exporter.scrape(TEXT)), "completed")
    clock.now += MOMENT_SECS - 10
    exporter.refresh()
    assert samples_of(exporter.scrape(TEXT))['supervisor_active{run="completed"}'] == 0
    clock.now += 20
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert {series: value for series, value in samples.items() if 'run="completed"' in series} == {
        'supervisor_run_state{run="completed",state="completed"}': 1,
        'supervisor_run_end_timestamp_seconds{run="completed"}': 1_700_000_095,
        'supervisor_run_info{host="trainer-0",run="completed",team="vision"}': 1,
    }


def test_a_dead_run_keeps_what_alerts_say_of_it(logs: Path, exporter_of: Any, samples_of: Samples, clock: Any) -> None:
    """Until it is given up; then it is at rest, as one that has ended, in the state in which it died."""
    exporter: Exporter = exporter_of(logs)
    clock.now += 2 * MOMENT_SECS
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    for name in ("lost", "failed"):
        served = of_run(samples, name)
        assert {"supervisor_active", "supervisor_exporter_run_read_success"} <= served
        assert not served & {"supervisor_phase", "supervisor_global_step", "supervisor_progress_timeout_seconds"}
    [facts] = [series for series in samples if series.startswith("supervisor_run_info") and 'run="lost"' in series]
    assert f'logdir="{logs / "lost"}",pid="1",run="lost",session_id="' in facts
    clock.now += FORGET
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    for name in ("lost", "failed"):
        assert len(of_run(samples, name)) == 3
        assert samples[f'supervisor_run_state{{run="{name}",state="{name}"}}'] == 1
        assert samples[f'supervisor_run_end_timestamp_seconds{{run="{name}"}}'] == 1_700_000_095


def test_a_live_run_has_at_most_sixty_series(logs: Path, exporter_of: Any, samples_of: Samples) -> None:
    """However many processes it has, as long as they are well; each in trouble adds some."""
    samples = samples_of(exporter_of(logs).scrape(TEXT))
    of_live = [series for series in samples if 'run="trains"' in series]
    assert 20 <= len(of_live) <= 60
    assert not [series for series in of_live if series.startswith("supervisor_worker")]


def test_what_is_in_trouble_is_served(
    tmp_path: Path, writing: Any, exporter_of: Any, samples_of: Samples, clock: Any
) -> None:
    """Of other processes those that are lost, stalled or wait."""
    threads = ({"name": "well", "state": "idle"}, {"name": "down", "state": "failed"})
    threads += ({"name": "late", "state": "overdue", "overdue_secs": 30.0},)
    workers = tuple({"name": state, "state": state} for state in ("running", "lost", "waiting", "stalled"))
    run = writing.RunFile(tmp_path / "r").ready().beat(clock.now - 20, workers=workers)
    run.saved(clock.now - 12, "/x/m", error="OSError: full")
    run.beat(clock.now - 5, threads=threads, workers=workers, loss_finite=False)
    samples = samples_of(exporter_of(tmp_path).scrape(TEXT))
    bad = r"supervisor_worker_(?!last)"
    assert {series: value for series, value in samples.items() if re.match(bad, series)} == {
        'supervisor_worker_up{run="r",worker="lost"}': 0,
        'supervisor_worker_waiting{run="r",worker="waiting"}': 1,
        'supervisor_worker_stalled{run="r",worker="stalled"}': 1,
    }


def test_time_that_comes_at_once_is_served_from_0(logs: Path, exporter_of: Any, samples_of: Samples) -> None:
    """Prometheus sees no growth of a series that was not there: wasted time comes in one piece, with a restart."""
    samples = samples_of(exporter_of(logs).scrape(TEXT))
    wasted = 'wasted_progress_from_disruption",run="trains"}'
    assert samples[f'supervisor_run_time_seconds_total{{activity="{wasted}'] == 0
    assert samples[f'supervisor_lost_process_seconds_total{{cause="{wasted}'] == 0
    assert 'supervisor_run_time_seconds_total{activity="stall",run="trains"}' not in samples


def test_a_run_at_rest_comes_to_life(
    logs: Path, writing: Any, exporter_of: Any, samples_of: Samples, clock: Any
) -> None:
    """Its next session is served from the next look on."""
    exporter: Exporter = exporter_of(logs)
    clock.now += WEEKS
    exporter.refresh()
    assert len(of_run(samples_of(exporter.scrape(TEXT)), "completed")) == 3
    again = writing.RunFile(logs / "completed", started_at=clock.now - 10, session="again")
    again.ready(attempt=2).beat(clock.now - 1, steps=9)
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert samples['supervisor_active{run="completed"}'] == 1
    assert samples['supervisor_sessions_total{run="completed"}'] == 2
    assert 'supervisor_run_end_timestamp_seconds{run="completed"}' not in samples


def test_a_run_at_rest_that_cannot_be_read_says_so(logs: Path, storage: Any, samples_of: Samples, clock: Any) -> None:
    """Rest is no reason to hide that a file is not read; a run that is deleted at rest is not missed."""
    exporter = Exporter([LogdirWatch(str(logs), filesystem=storage, clock=clock)], clock=clock)
    exporter.refresh()

    def broken(operation: str, path: str) -> None:
        if "/lost/" in path:
            raise OSError(errno.EIO, "Input/output error")

    storage.fault = broken
    [file] = (logs / "lost").iterdir()
    file.write_bytes(file.read_bytes() + b"more")
    clock.now += WEEKS
    exporter.refresh()
    read = 'supervisor_exporter_run_read_success{logdir="%s",run="%s"}'
    samples = samples_of(exporter.scrape(TEXT))
    assert samples.get(read % (logs, "lost")) == 0
    assert read % (logs, "failed") not in samples
    shutil.rmtree(logs / "failed")
    exporter.refresh()
    assert of_run(samples_of(exporter.scrape(TEXT)), "failed") == set()


@pytest.mark.parametrize(
    ("state", "secs", "stage"),
    [
        ("running", 10 * WEEKS, Stage.LIVE),
        ("unreachable", 10 * WEEKS, Stage.LIVE),
        ("completed", MOMENT_SECS, Stage.LIVE),
        ("completed", MOMENT_SECS + 1, Stage.AT_REST),
        ("stopped", MOMENT_SECS + 1, Stage.AT_REST),
        ("copy", MOMENT_SECS + 1, Stage.AT_REST),
        ("failed", MOMENT_SECS, Stage.LIVE),
        ("failed", MOMENT_SECS + 1, Stage.DEAD),
        ("lost", FORGET + MOMENT_SECS, Stage.DEAD),
        ("lost", FORGET + MOMENT_SECS + 1, Stage.AT_REST),
        ("unknown", FORGET + MOMENT_SECS, Stage.LIVE),
        ("unknown", FORGET + MOMENT_SECS + 1, Stage.AT_REST),
        ("completed", -DAY, Stage.LIVE),
        ("completed", None, Stage.LIVE),
    ],
)
def test_when_a_run_is_at_rest(state: Any, secs: float | None, stage: Stage) -> None:
    """By its state and its newest event; one whose times are not known, or lie in the future, is not."""
    reading = Reading(last_event_at=None if secs is None else 1e9 - secs)
    status = RunStatus(run="r", active=None, state=state, reading=reading)
    assert stage_of(status, 1e9, FORGET) is stage


def test_no_rule_goes_by_details() -> None:
    """What only details have is asked for by no expression and no text of an alert."""
    rules = str(rule_groups())
    detailed = {metric.name for metric in ALL_METRICS if metric.stage is Stage.DETAIL}
    assert {name for name in detailed if re.search(rf"(?<![:\w]){name}(?![:\w])", rules)} == set()
