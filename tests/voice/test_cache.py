"""A reader that goes on from a cache says of every run what one says that has read all of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.model.rate_history import RateHistory
from supervisor_core.run.watch.logdir_watch import LogdirWatch

Told = tuple[Path, float, dict[str, Any]]


def looked_at(logdir: Path, clock: Any, **how: Any) -> dict[str, tuple[str, RateHistory | None]]:
    """What one watch finds: every field of each run but what is free on the disk, in a form in which NaN is NaN."""
    watch = LogdirWatch(str(logdir), clock=clock, **how)
    runs = watch.refresh().runs
    watch.close()
    return {
        name: (repr(replace(found, free_bytes=None, run=replace(found.run, speed=None))), found.run.speed)
        for name, found in runs.items()
    }


@pytest.mark.parametrize(
    ("share", "kept_ticks"),
    [(0.7, 1), *(pytest.param(share, kept, marks=pytest.mark.long) for share in (0.2, 1.0) for kept in (1, None))],
)
def test_what_was_kept_and_what_is_new(
    told: Told, tmp_path: Path, clock_at: Callable[[float], Any], share: float, kept_ticks: int | None
) -> None:
    """However much of each file was read by an earlier process, all runs are the same, field by field."""
    logdir, now, _ = told
    here = tmp_path / "logs"
    shutil.copytree(logdir, here, symlinks=True)
    rest = {}
    for path in here.rglob("*tfevents*"):
        data = path.read_bytes()
        length = int(len(data) * share)
        path.write_bytes(data[:length])
        rest[path] = data[length:]
    clock = clock_at(now)
    cache = str(tmp_path / "cache")
    looked_at(here, clock, kept_ticks=kept_ticks, cache=cache)
    for path, data in rest.items():
        with path.open("ab") as file:
            file.write(data)
    resumed = looked_at(here, clock, kept_ticks=kept_ticks, cache=cache)
    assert resumed == looked_at(here, clock, kept_ticks=kept_ticks)
    clock.now += 3600.0
    resumed = looked_at(here, clock, kept_ticks=kept_ticks, cache=cache)
    assert resumed == looked_at(here, clock, kept_ticks=kept_ticks)
