"""Runs, and whole logdirs, that are gone or cannot be listed: what had not ended stays served, as unreachable."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics import vanished
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.model.run import Run

Samples = Callable[[bytes], dict[str, float]]
DAY = 86_400.0


def state_of(samples: dict[str, float], run: str) -> str | None:
    """The state of a run as it is served; None where it is not."""
    states = [
        series.partition('state="')[2].rstrip('"}')
        for series, value in samples.items()
        if series.startswith("supervisor_run_state{") and f'run="{run}"' in series and value
    ]
    assert len(states) <= 1
    return states[0] if states else None


@pytest.fixture
def logs(tmp_path: Path, writing: Any, clock: Any) -> Path:
    """A logdir with a run that trains, one that was lost, one that failed and one that was completed."""
    logs = tmp_path / "logs"
    writing.RunFile(logs / "trains").ready().beat(clock.now - 5, steps=5)
    writing.RunFile(logs / "lost").ready().beat(clock.now - 60, steps=5)
    writing.RunFile(logs / "failed").ready().stop(clock.now - 5, "error")
    writing.RunFile(logs / "completed").ready().stop(clock.now - 5)
    return logs


def test_what_had_not_ended_is_unreachable(logs: Path, exporter_of: Any, samples_of: Samples, clock: Any) -> None:
    """A logdir that vanishes keeps its runs, says that it is gone, and is not looked at any more; it comes back."""
    exporter: Exporter = exporter_of(logs)
    looked_at = clock.now
    logdir = f'{{logdir="{logs}"}}'
    before = samples_of(exporter.scrape(TEXT))
    assert [state_of(before, name) for name in ("trains", "lost", "failed", "completed")] == [
        *("running", "lost", "failed", "completed")
    ]
    assert before["supervisor_exporter_logdir_up" + logdir] == 1 and exporter.ready

    away = logs.rename(logs.with_name("away"))
    clock.now += 5
    exporter.refresh()
    gone = samples_of(exporter.scrape(TEXT))
    assert [state_of(gone, name) for name in ("trains", "lost", "failed", "completed")] == [*["unreachable"] * 3, None]
    assert gone[f'supervisor_exporter_run_read_success{{logdir="{logs}",run="trains"}}'] == 0
    assert gone["supervisor_exporter_logdir_up" + logdir] == 0
    assert gone["supervisor_exporter_runs" + logdir] == 0
    assert gone["supervisor_exporter_last_refresh_timestamp_seconds" + logdir] == looked_at
    assert (exporter.ready, exporter.unreachable) == (False, (str(logs),))

    away.rename(logs)
    clock.now += 5
    exporter.refresh()
    back = samples_of(exporter.scrape(TEXT))
    assert [state_of(back, name) for name in ("trains", "lost", "failed", "completed")] == [
        *("running", "lost", "failed", "completed")
    ]
    assert exporter.ready and exporter.unreachable == ()


def test_an_empty_mount_point_hides_no_run(logs: Path, exporter_of: Any, samples_of: Samples, clock: Any) -> None:
    """The logdir is there, and nothing is in it: what had not ended is unreachable all the same."""
    exporter: Exporter = exporter_of(logs)
    logs.rename(logs.with_name("away"))
    logs.mkdir()
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert [state_of(samples, name) for name in ("trains", "completed")] == ["unreachable", None]
    assert samples[f'supervisor_exporter_logdir_up{{logdir="{logs}"}}'] == 0


def test_a_logdir_whose_runs_someone_deletes_is_up(logs: Path, exporter_of: Any, samples_of: Samples) -> None:
    """It is the same directory, though there are no runs; once another is in its place, it is not."""
    for name in ("trains", "lost", "failed"):
        shutil.rmtree(logs / name)
    exporter: Exporter = exporter_of(logs)
    shutil.rmtree(logs / "completed")
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert samples[f'supervisor_exporter_runs{{logdir="{logs}"}}'] == 0
    assert samples[f'supervisor_exporter_logdir_up{{logdir="{logs}"}}'] == 1 and exporter.ready
    logs.rename(logs.with_name("away"))
    logs.mkdir()
    exporter.refresh()
    assert samples_of(exporter.scrape(TEXT))[f'supervisor_exporter_logdir_up{{logdir="{logs}"}}'] == 0
    assert exporter.unreachable == (str(logs),)


def test_a_live_run_that_is_gone_is_said_and_forgotten(
    logs: Path, exporter_of: Any, samples_of: Samples, clock: Any
) -> None:
    """Its finding is held after half a minute, and it is forgotten after an hour; not while its logdir is away."""
    exporter: Exporter = exporter_of(logs)
    shutil.rmtree(logs / "trains")
    held = f'supervisor_finding{{host="trainer-0",kind="unreachable",logdir="{logs / "trains"}",run="trains"'
    for later, state, is_said in ((0, "unreachable", False), (40, "unreachable", True), (3600, None, False)):
        clock.now += later
        exporter.refresh()
        samples = samples_of(exporter.scrape(TEXT))
        assert state_of(samples, "trains") == state
        assert any(name.startswith(held) for name in samples) == is_said
    logs.rename(logs.with_name("away"))
    for later, state in ((0, "unreachable"), (6 * DAY, "unreachable"), (2 * DAY, None)):
        clock.now += later
        exporter.refresh()
        samples = samples_of(exporter.scrape(TEXT))
        assert state_of(samples, "failed") == state
        assert not [name for name in samples if 'kind="unreachable"' in name], "it is said of the logdir"


def test_dead_runs_that_someone_deletes_are_no_trouble(
    logs: Path, exporter_of: Any, samples_of: Samples, clock: Any, caplog: Any
) -> None:
    """Nothing is left of them with the next look, and the log says so once; but while a live run is missed, too, they
    stay."""
    caplog.set_level("INFO", "supervisor_core")
    exporter: Exporter = exporter_of(logs)
    shutil.rmtree(logs / "lost")
    clock.now += 15
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert not [name for name in samples if 'run="lost"' in name]
    assert samples[f'supervisor_exporter_refresh_failures_total{{logdir="{logs}"}}'] == 0
    for name in ("trains", "failed", "completed"):
        shutil.rmtree(logs / name)
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    states = {name: state_of(samples, name) for name in ("trains", "lost", "failed")}
    assert states == {"trains": "unreachable", "lost": None, "failed": "unreachable"}
    assert caplog.text.count("were deleted: 'lost'") == 1


def test_dead_runs_stay_until_their_logdir_is_back(
    logs: Path, exporter_of: Any, samples_of: Samples, clock: Any
) -> None:
    """The alerts for them stay while the logdir is away; what is missing when it is back was deleted."""
    exporter: Exporter = exporter_of(logs)
    away = logs.rename(logs.with_name("away"))
    logs.mkdir()
    exporter.refresh()
    assert state_of(samples_of(exporter.scrape(TEXT)), "failed") == "unreachable"
    shutil.rmtree(away / "failed")
    logs.rmdir()
    away.rename(logs)
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert [state_of(samples, name) for name in ("trains", "lost", "failed")] == ["running", "lost", None]


def test_a_renamed_directory_is_one_run(logs: Path, exporter_of: Any, samples_of: Samples, clock: Any) -> None:
    """A run whose directory gets another name, in this look or a later one, is served under that name alone; a new
    directory with the inode of one that is gone is another run."""
    exporter: Exporter = exporter_of(logs)
    (logs / "trains").rename(logs / "moved")
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert [state_of(samples, name) for name in ("trains", "moved")] == [None, "running"]
    (logs / "moved").rename(logs.parent / "outside")
    exporter.refresh()
    assert state_of(samples_of(exporter.scrape(TEXT)), "moved") == "unreachable"
    (logs.parent / "outside").rename(logs / "back")
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert [state_of(samples, name) for name in ("moved", "back")] == [None, "running"]

    (logs / "back").rename(logs / "again")
    for file in (logs / "again").iterdir():
        file.rename(file.with_name("events.out.tfevents.1600000000.other"))
    exporter.refresh()
    samples = samples_of(exporter.scrape(TEXT))
    assert [state_of(samples, name) for name in ("back", "again")] == ["unreachable", "running"]


def test_a_renamed_run_keeps_its_label(
    logs: Path, writing: Any, exporter_of: Any, samples_of: Samples, clock: Any
) -> None:
    """Under the name that it has given itself, although another run claims that too."""
    writing.RunFile(logs / "named").ready(run="digits").beat(clock.now - 5, steps=5)
    exporter: Exporter = exporter_of(logs)
    writing.RunFile(logs / "rival").ready(run="digits").beat(clock.now - 5, steps=7)
    exporter.refresh()
    (logs / "named").rename(logs / "moved")
    exporter.refresh()
    assert samples_of(exporter.scrape(TEXT))['supervisor_global_step{run="digits"}'] == 5


def test_the_number_of_vanished_runs_is_bounded(
    tmp_path: Path,
    writing: Any,
    exporter_of: Any,
    samples_of: Samples,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    """The newest of each top-level directory in turn: whoever has thousands of runs vanish
    costs the others nothing. How many are not kept is logged."""
    monkeypatch.setattr(vanished, "MAX_RUNS", 3)
    names = ["honest/run", *(f"neighbour/{number}" for number in range(6))]

    def write(name: str) -> None:
        file = Path(writing.RunFile(tmp_path / "logs" / name).ready().beat(clock.now, steps=5).path)
        file.rename(file.with_name(f"events.out.tfevents.1700000000.{names.index(name)}"))  # inodes are used again

    write(names[0])
    exporter: Exporter = exporter_of(tmp_path / "logs")
    shutil.rmtree(tmp_path / "logs" / "honest")
    for name in names[1:]:
        clock.now += 1
        write(name)
        exporter.refresh()
        shutil.rmtree(tmp_path / "logs" / "neighbour")
    clock.now += 1
    exporter.refresh()

    def unreachable() -> list[str]:
        samples = samples_of(exporter.scrape(TEXT))
        return [name for name in names if state_of(samples, name) == "unreachable"]

    assert unreachable() == ["honest/run", "neighbour/4", "neighbour/5"]
    assert f"{tmp_path / 'logs'}: 1 runs whose directories are gone are not served any more" in caplog.text


def test_little_is_kept_of_a_vanished_run(logs: Path, exporter_of: Any, samples_of: Samples, clock: Any) -> None:
    """What is served of it but its threads; its model is let go of."""
    exporter: Exporter = exporter_of(logs)
    before = samples_of(exporter.scrape(TEXT))
    shutil.rmtree(logs)
    exporter.refresh()
    kept: list[object] = list(exporter._vanished.runs.values())
    for thing in kept:
        kept += [each for each in gc.get_referents(thing) if not isinstance(each, type | str | bytes | int | float)]
        assert not isinstance(thing, Run)
    after = samples_of(exporter.scrape(TEXT))
    assert after['supervisor_global_step{run="trains"}'] == before['supervisor_global_step{run="trains"}'] == 5
    assert len(exporter._vanished.runs) == 3
    assert all(not run.text.status.threads for run in exporter._vanished.runs.values())


def test_a_mistyped_logdir_is_not_ready(tmp_path: Path, exporter_of: Any, samples_of: Samples) -> None:
    """It has never been looked at, and its metrics say that it is not there."""
    exporter: Exporter = exporter_of(tmp_path / "mistyped")
    samples = samples_of(exporter.scrape(TEXT))
    logdir = f'{{logdir="{tmp_path / "mistyped"}"}}'
    assert samples["supervisor_exporter_logdir_up" + logdir] == 0
    assert "supervisor_exporter_last_refresh_timestamp_seconds" + logdir not in samples
    assert (exporter.ready, exporter.unreachable) == (False, (str(tmp_path / "mistyped"),))
