"""The exporter's first look, which may take minutes: what it shows meanwhile, and what it does not claim."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.model.snapshot import LogdirSnapshot
from supervisor_core.run.watch.logdir_watch import LogdirWatch


@contextmanager
def during_the_first_look(exporter: Any, storage: Any, run: str) -> Iterator[None]:
    """Within it the first look is about to read a run, whose first records it has seen; after it, it is over."""
    opened, free = [0], threading.Event()

    def hang(operation: str, path: str) -> None:
        exporter.clock.now += operation == "open"  # so that each run is shown
        if operation == "open" and os.path.join(run, "events") in path:
            opened[0] += 1
            if opened[0] == 2:
                storage.hanging.set()
                assert free.wait(60)

    storage.fault = hang
    look = threading.Thread(target=exporter.refresh)
    look.start()
    try:
        assert storage.hanging.wait(60)
        yield
    finally:
        free.set()
        look.join()


def written(file: Any, at: float) -> Any:
    """An events file that was written at a time."""
    os.utime(file.path, (at, at))
    return file


def filled(file: Any, now: float) -> Any:
    """An events file that is too long to be read whole when its first records are."""
    for step in range(200):
        file.scalar("loss", step, now - 60)
    return file


def test_the_first_look_shows_what_it_has_read(
    tmp_path: Path, writing, clock, storage, samples_of, caplog: pytest.LogCaptureFixture
) -> None:
    """While the first look goes on, runs are served that it has read to the end, whole, and it claims to be no more."""
    for age, name in enumerate(("one/a", "one/b", "two/c")):
        written(filled(writing.RunFile(tmp_path / name).ready(), clock.now).beat(clock.now, steps=5), clock.now - age)
    watches = [LogdirWatch(str(tmp_path / name), filesystem=storage, clock=clock) for name in ("one", "two")]
    exporter = Exporter(watches, clock=clock)
    one = tmp_path / "one"
    with caplog.at_level(logging.INFO), during_the_first_look(exporter, storage, "b"):
        samples = samples_of(exporter.scrape(TEXT))
        assert samples['supervisor_global_step{run="a"}'] == 5
        assert samples[f'supervisor_exporter_run_read_success{{logdir="{one}",run="a"}}'] == 1
        assert {name for name in samples if 'run="b"' in name or 'run="c"' in name} == set()
        assert not exporter.ready
        assert samples["supervisor_scrape_success"] == 1
        assert {series for series in samples if series.startswith("supervisor_exporter_") and "run=" not in series} == {
            f'supervisor_exporter_refresh_failures_total{{logdir="{tmp_path / name}"}}' for name in ("one", "two")
        } | {f'supervisor_exporter_first_look_timestamp_seconds{{logdir="{one}"}}'} | {
            series for series in samples if "scrape_duration" in series or "build_info" in series
        }
        assert samples[f'supervisor_exporter_first_look_timestamp_seconds{{logdir="{one}"}}'] > 1.7e9
    assert exporter.ready
    samples = samples_of(exporter.scrape(TEXT))
    assert [samples[f'supervisor_exporter_runs{{logdir="{tmp_path / name}"}}'] for name in ("one", "two")] == [2, 1]
    assert not [name for name in samples if name.startswith("supervisor_exporter_first_look")]
    assert "Looked at 3 runs" in caplog.text


@pytest.mark.parametrize("how", ["another run", "its original"])
def test_a_run_whose_name_may_be_another_one_s(tmp_path: Path, writing, clock, storage, samples_of, how: str) -> None:
    """A run that calls itself as an unread one does is served once that is read, under the name that it keeps: nothing
    is ever said of the one under the name of the other."""
    session = "s1" if how == "its original" else None
    for age, name in enumerate(("x/copy", "y/run")):
        file = filled(writing.RunFile(tmp_path / name, session=session).ready(run="digits"), clock.now)
        written(file.beat(clock.now - 40 + 40 * age, steps=5 + age), clock.now - age)
    letters = filled(writing.RunFile(tmp_path / "z").ready(run="letters"), clock.now)
    written(letters.beat(clock.now, steps=5), clock.now)
    exporter = Exporter([LogdirWatch(str(tmp_path), filesystem=storage, clock=clock)], clock=clock)
    with during_the_first_look(exporter, storage, "run"):
        samples = samples_of(exporter.scrape(TEXT))
        assert {name for name in samples if name.startswith("supervisor_exporter_run_read")} == {
            f'supervisor_exporter_run_read_success{{logdir="{tmp_path}",run="letters"}}'
        }
    samples = samples_of(exporter.scrape(TEXT))
    of_original = "y/run" if how == "another run" else "digits"
    assert samples[f'supervisor_active{{run="{of_original}"}}'] == 1
    assert ('supervisor_active{run="x/copy"}' in samples) == (how == "another run")


def test_a_live_run_is_followed_through_a_long_first_look(tmp_path: Path, writing, clock) -> None:
    """What a run writes after it was read is read too before it is shown: it is not lost because a look takes long."""
    live = written(writing.RunFile(tmp_path / "live").ready().beat(clock.now, steps=5), clock.now)
    written(
        writing.RunFile(tmp_path / "old").ready().beat(clock.now - 80, steps=5).stop(clock.now - 70), clock.now - 70
    )
    watch = LogdirWatch(str(tmp_path), clock=clock)
    states = []

    def progressed(done: int, total: int) -> None:
        clock.now += 3600.0
        live.beat(clock.now, steps=100 * done)
        found = watch.so_far()
        states.append((found.runs["live"].run.state, found.runs["live"].run.step, dict(found.unread or {})))

    watch.refresh(progressed)
    assert states == [("running", 100, {"old": None}), ("running", 200, {})]


class Slow:
    """A watch of many runs, each of which takes half a second to read; making a page of them takes some time too."""

    def __init__(self, watch: LogdirWatch, clock, runs: int, page_secs: float) -> None:
        self.logdir = watch.logdir
        self._watch = watch
        self._clock = clock
        self._runs = runs
        self._page_secs = page_secs
        self._began = 0.0
        self.shown: list[float] = []

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        self._began = self._clock.now
        for done in range(1, self._runs + 1):
            self._clock.now += 0.5
            if on_progress is not None:
                on_progress(done, self._runs)
        return self._watch.refresh()

    def so_far(self) -> LogdirSnapshot:
        self.shown.append(self._clock.now - self._began)
        self._clock.now += self._page_secs
        return self._watch.so_far()


@pytest.mark.parametrize(("page_secs", "shown"), [(0.0, [0.5, 1.5, 2.5, 3.5]), (0.25, [0.5, 3.25, 6.0])])
def test_showing_costs_the_first_look_little(
    tmp_path: Path, writing, clock, page_secs: float, shown: list[float]
) -> None:
    """What was read is shown every second at most, and rarer where that takes long; by the first look alone."""
    writing.RunFile(tmp_path / "a")
    watch = Slow(LogdirWatch(str(tmp_path), clock=clock), clock, 8 if not page_secs else 14, page_secs)
    exporter = Exporter([watch], clock=clock)
    exporter.refresh()
    assert watch.shown == shown
    exporter.refresh()
    assert watch.shown == shown
