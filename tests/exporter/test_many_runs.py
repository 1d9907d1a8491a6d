"""More runs than an exporter serves: whose are served, and that the others are missed aloud."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.shard import RunShard
from supervisor_core.events.telemetry import WorkerStatus
from supervisor_core.metrics import exporter as exporters
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch

MALLORY = 4002
Samples = Callable[[bytes], dict[str, float]]


@pytest.fixture
def flooded(tmp_path: Path, writing: Any, clock: Any) -> Path:
    """A logdir with two runs of one user and nine of another, which were written later."""
    for name in ("alice/a", "alice/b"):
        file = writing.RunFile(tmp_path / name).ready().beat(clock.now - 5, steps=5)
        os.utime(file.path, (clock.now - 9, clock.now - 9))
    for number in range(9):
        writing.RunFile(tmp_path / "mallory" / str(number)).ready().beat(clock.now - 1, steps=5)
    return tmp_path


def states(exporter: Exporter, samples_of: Samples) -> dict[str, str]:
    """The state of each run that is served."""
    exporter.refresh()
    rows = [series for series, value in samples_of(exporter.scrape(TEXT)).items() if "_run_state{" in series and value]
    return {row.split('run="')[1].split('"')[0]: row.split('state="')[1].split('"')[0] for row in rows}


def own(directory: Path, uid: int) -> None:
    """Give the runs in a directory to a user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to others")
    for path in directory.iterdir():
        os.chown(path, uid, uid)


@pytest.mark.parametrize("by", ["owner", "directory"])
@pytest.mark.parametrize("shard", [None, RunShard(0, 1)])
def test_a_flood_of_runs_displaces_no_other_owners(
    flooded: Path, clock: Any, samples_of: Samples, shard: RunShard | None, by: str
) -> None:
    """Of each owner, and of one owner's each directory in the logdir, as many are read; those beyond are counted, and
    did not vanish."""
    if by == "owner":
        for path in (flooded / "mallory").iterdir():
            path.rename(flooded / path.name)
            os.chown(flooded / path.name, MALLORY, MALLORY)
    watch = LogdirWatch(str(flooded), clock=clock, max_runs=5, shard=shard)
    exporter = Exporter([watch], clock=clock, shard=shard)
    served = states(exporter, samples_of)
    assert {"alice/a", "alice/b"} < served.keys() and len(served) == 5
    samples = samples_of(exporter.scrape(TEXT))
    about = f'{{logdir="{flooded}"}}'
    assert samples[f"supervisor_exporter_left_out_runs{about}"] == 6
    assert samples["supervisor_scrape_success"] == 0
    left = next(path for path in flooded.rglob("events*") if path.parent.name not in (*served, "a", "b"))
    os.utime(left, (clock.now + 9, clock.now + 9))
    assert set(states(exporter, samples_of).values()) == {"running"}, "none is unreachable"
    shutil.rmtree(flooded / "alice" / "a")
    assert states(exporter, samples_of)["alice/a"] == "unreachable"


def test_a_page_has_a_length(
    flooded: Path, clock: Any, samples_of: Samples, monkeypatch: pytest.MonkeyPatch, writing: Any
) -> None:
    """Beyond it runs are left out: of each owner the live ones are served first."""
    own(flooded / "alice", 4001)
    own(flooded / "mallory", MALLORY)
    writing.RunFile(flooded / "alice" / "0", clock.now - 1e6).ready().beat(clock.now - 1e6, steps=5).stop(
        clock.now - 1e6
    )
    exporter = Exporter([LogdirWatch(str(flooded), clock=clock)], clock=clock)
    assert len(states(exporter, samples_of)) == 12
    size = exporter._written[0, "alice/a"][1].size
    monkeypatch.setattr(exporters, "MOST_BYTES", 4 * size + size // 8)
    served = states(exporter, samples_of)
    assert {"alice/a", "alice/b"} < served.keys() and len(served) <= 5
    samples, about = samples_of(exporter.scrape(TEXT)), f'{{logdir="{flooded}"}}'
    assert samples[f"supervisor_exporter_runs{about}"] == len(served)
    assert samples[f"supervisor_exporter_left_out_runs{about}"] == 12 - len(served)
    assert samples["supervisor_scrape_success"] == 0
    monkeypatch.undo()
    assert len(states(exporter, samples_of)) == 12
    assert samples_of(exporter.scrape(TEXT))["supervisor_scrape_success"] == 1


@pytest.fixture
def forged(tmp_path: Path, writing: Any, clock: Any) -> Iterator[Path]:
    """A run with as many waiting workers of as long names as there may be."""
    workers = tuple(WorkerStatus(name=f"{number:04}".ljust(256, "w"), state="waiting") for number in range(1000))
    writing.RunFile(tmp_path / "mallory" / "0").ready().beat(clock.now - 1, steps=5, workers=workers)
    writing.RunFile(tmp_path / "run").ready().beat(clock.now - 5, steps=5)
    yield tmp_path


def test_one_scrape_of_a_flood(forged: Path, clock: Any, samples_of: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of a MiB of each run, as often as it is there: the page is as long as it may be."""
    watch = LogdirWatch(str(forged), clock=clock)
    found = watch.refresh()
    flood = {f"mallory/{number}": found.runs["mallory/0"] for number in range(200)} | {"run": found.runs["run"]}
    exporter = Exporter([watch], clock=clock)
    monkeypatch.setattr(exporters, "MOST_BYTES", 8 << 20)
    monkeypatch.setattr(exporter._copies, "marked", dict)
    monkeypatch.setattr(exporters, "write_run", lambda *given, write=exporters.write_run: written(write, *given))
    kept: dict[str, Any] = {}
    calls: list[str] = []

    def written(write: Any, status: Any, stage: Any) -> Any:
        name = "run" if status.run == "run" else "flood"
        calls.append(name)
        if name not in kept:
            kept[name] = write(status, stage)
        return kept[name]

    for _ in range(2):
        calls.clear()
        exporter.show([exporters.replace(found, runs=flood)], at=clock.now, secs=0.0)
    page = exporter.scrape(TEXT)
    assert len(calls) < 3 * exporters.MOST_BYTES // kept["flood"].size, "what is left out costs no time"
    assert kept["flood"].size > 300_000 and len(page) <= exporters.MOST_BYTES + (1 << 20)
    assert b'supervisor_run_state{run="run"' in page
