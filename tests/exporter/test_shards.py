"""Exporters that divide the runs of one logdir."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.shard import RunShard
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch

Samples = Callable[[bytes], dict[str, float]]
COUNT = 4


@pytest.fixture
def shards_of(clock: Any):
    """Returns a function that makes an exporter for each shard of some logdirs."""

    def make(*logdirs: Path) -> list[Exporter]:
        shards = [RunShard(index, COUNT) for index in range(COUNT)]
        return [
            Exporter(
                [LogdirWatch(str(logdir), shard=shard, clock=clock) for logdir in logdirs], clock=clock, shard=shard
            )
            for shard in shards
        ]

    return make


def served(exporters: list[Exporter], samples_of: Samples) -> dict[str, set[str]]:
    """Each run that is served, with its states."""
    found: dict[str, set[str]] = {}
    for exporter in exporters:
        exporter.refresh()
        for series, value in samples_of(exporter.scrape(TEXT)).items():
            if series.startswith("supervisor_run_state{") and value == 1:
                name = series.partition('run="')[2].partition('"')[0]
                found.setdefault(name, set()).add(series.partition('state="')[2].partition('"')[0])
    return found


def test_each_run_is_served_once(tmp_path: Path, writing: Any, clock: Any, shards_of: Any, samples_of: Samples) -> None:
    """All runs are served, none by two; each shard says which one it is, and of how many."""
    for number in range(24):
        writing.RunFile(tmp_path / f"run-{number}").ready().beat(clock.now - 5, steps=5)
    exporters = shards_of(tmp_path)
    found = served(exporters, samples_of)
    assert found == {f"run-{number}": {"running"} for number in range(24)}
    pages = [samples_of(exporter.scrape(TEXT)) for exporter in exporters]
    assert sum(page[f'supervisor_exporter_runs{{logdir="{tmp_path}"}}'] for page in pages) == 24
    assert [page[f'supervisor_exporter_shards{{shard="{index}"}}'] for index, page in enumerate(pages)] == [COUNT] * 4


def test_without_shards_there_is_no_number_of_them(tmp_path: Path, exporter_of: Any, samples_of: Samples) -> None:
    """An exporter of all runs has no series that a shard could be missed by."""
    assert not [
        name for name in samples_of(exporter_of(tmp_path).scrape(TEXT)) if name.startswith("supervisor_exporter_shard")
    ]


def test_a_copy_is_recognized(tmp_path: Path, writing: Any, clock: Any, shards_of: Any, samples_of: Samples) -> None:
    """A copy of a live run is in the original's shard, where it is a copy and not a second run, or a dead one."""
    for number in range(8):
        writing.RunFile(tmp_path / f"run-{number}").ready(logdir=str(tmp_path / f"run-{number}")).beat(
            clock.now - 5, steps=5
        )
        shutil.copytree(tmp_path / f"run-{number}", tmp_path / "backup" / f"run-{number}")
    found = served(shards_of(tmp_path), samples_of)
    assert found == {f"run-{number}": {"running"} for number in range(8)} | {
        f"backup/run-{number}": {"copy"} for number in range(8)
    }


def test_no_two_runs_are_called_the_same(
    tmp_path: Path, writing: Any, clock: Any, shards_of: Any, samples_of: Samples
) -> None:
    """Runs of one name in two logdirs have the names that one exporter would give them, in any shards."""
    for number in range(8):
        for logs in ("old", "new"):
            writing.RunFile(tmp_path / logs / f"run-{number}").ready().beat(clock.now - 5, steps=5)
    found = served(shards_of(tmp_path / "old", tmp_path / "new"), samples_of)
    assert sorted(found) == sorted(f"{logs}/run-{number}" for logs in ("old", "new") for number in range(8))


def test_a_run_that_changes_its_shard_has_not_vanished(
    tmp_path: Path, writing: Any, clock: Any, shards_of: Any, samples_of: Samples
) -> None:
    """Its first events file is deleted: another shard serves it, and to none it is unreachable."""
    firsts = []
    for number in range(8):
        firsts.append(writing.RunFile(tmp_path / f"run-{number}", started_at=writing.T0 - 9_000 - number).path)
        writing.RunFile(tmp_path / f"run-{number}").ready().beat(clock.now - 5, steps=5)
    exporters = shards_of(tmp_path)
    assert set(served(exporters, samples_of)) == {f"run-{number}" for number in range(8)}
    before = [set(exporter.watches[0].refresh().runs) for exporter in exporters]
    for first in firsts:
        first.unlink()
    clock.now += 120
    after = served(exporters, samples_of)
    assert [set(exporter.watches[0].refresh().runs) for exporter in exporters] != before
    assert all("unreachable" not in states and "deleted" not in states for states in after.values())
    assert set(after) == {f"run-{number}" for number in range(8)}


def test_a_renamed_run_keeps_its_shard(
    tmp_path: Path, writing: Any, clock: Any, shards_of: Any, samples_of: Samples
) -> None:
    """So it is one run, and none is unreachable or deleted."""
    for number in range(8):
        writing.RunFile(tmp_path / f"run-{number}").ready().beat(clock.now - 5, steps=5)
    exporters = shards_of(tmp_path)
    served(exporters, samples_of)
    for number in range(8):
        (tmp_path / f"run-{number}").rename(tmp_path / f"other-{number}")
    clock.now += 5
    assert served(exporters, samples_of) == {f"other-{number}": {"running"} for number in range(8)}
