"""The exporter's first look, which may take minutes: what it shows meanwhile, and what it does not claim."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.logdir_watch import LogdirWatch
from supervisor_core.run.snapshot import LogdirSnapshot


def test_the_first_look_shows_what_it_has_read(
    tmp_path: Path, writing, clock, storage, samples_of, caplog: pytest.LogCaptureFixture
) -> None:
    """While the first look goes on, runs are served that it has read to the end, whole, and it claims to be no more."""
    for name in ("one/a", "one/b", "two/c"):
        writing.RunFile(tmp_path / name).ready().beat(clock.now, steps=5)
    storage.hangs_at = os.path.join("one", "b", "events")
    storage.free.clear()
    watches = [LogdirWatch(str(tmp_path / name), filesystem=storage, clock=clock) for name in ("one", "two")]
    exporter = Exporter(watches, clock=clock)
    look = threading.Thread(target=exporter.refresh)
    look.start()
    assert storage.hanging.wait(60)
    samples = samples_of(exporter.scrape(TEXT))
    assert samples['supervisor_global_step{run="a"}'] == 5
    one = tmp_path / "one"
    assert samples[f'supervisor_exporter_run_read_success{{logdir="{one}",run="a"}}'] == 1
    assert {name for name in samples if 'run="b"' in name or 'run="c"' in name} == set()
    assert not exporter.ready
    assert samples["supervisor_scrape_success"] == 1
    assert {series for series in samples if series.startswith("supervisor_exporter_") and "run=" not in series} == {
        f'supervisor_exporter_refresh_failures_total{{logdir="{tmp_path / name}"}}' for name in ("one", "two")
    } | {series for series in samples if "scrape_duration" in series or "build_info" in series}
    with caplog.at_level(logging.INFO):
        storage.free.set()
        look.join()
    assert exporter.ready
    assert [
        samples_of(exporter.scrape(TEXT))[f'supervisor_exporter_runs{{logdir="{tmp_path / name}"}}']
        for name in ("one", "two")
    ] == [2, 1]
    assert "Looked at 3 runs" in caplog.text


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
