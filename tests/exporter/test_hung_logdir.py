"""A logdir whose storage hangs: the others are looked at all the same, and only it is behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.model.snapshot import LogdirSnapshot
from supervisor_core.run.watch.logdir_watch import LogdirWatch


class Announced(LogdirWatch):
    """A watch that signals the beginning of each look; by then the look before it is on the page."""

    def __init__(self, logdir: Path, **how) -> None:
        super().__init__(str(logdir), **how)
        self.began = threading.Semaphore(0)

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        self.began.release()
        return super().refresh(on_progress)

    def wait_for_scan(self) -> None:
        """Wait until a look that begins now is on the page."""
        while self.began.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self.began.acquire(timeout=60)


@pytest.fixture
def served(tmp_path: Path, writing, storage, clock, samples_of):
    """An exporter of the logdirs good and bad, a run in each, its watch of the good one, and its samples by name."""
    for name in ("good", "bad"):
        writing.RunFile(tmp_path / name / f"a {name} run").ready().beat(clock.now, steps=5)
    good, bad = (Announced(tmp_path / name, filesystem=storage, clock=clock) for name in ("good", "bad"))
    exporter = Exporter([bad, good], interval_secs=0.0, clock=clock)

    def of(name: str) -> list[float | None]:
        samples = samples_of(exporter.scrape(TEXT))
        return [samples.get(f'supervisor_exporter_{name}{{logdir="{tmp_path / which}"}}') for which in ("good", "bad")]

    storage.hangs_at = str(tmp_path / "bad")
    yield exporter, good, bad, of
    storage.free.set()
    exporter.stop()


def test_the_other_logdirs_are_looked_at(tmp_path: Path, writing, storage, clock, samples_of, served) -> None:
    """While one logdir hangs the others' news is served, the hung one's runs stay, and only its age grows."""
    exporter, good, _, of = served
    exporter.refresh()
    before = clock.now
    storage.free.clear()
    exporter.start()
    assert storage.hanging.wait(60)
    clock.now += 600
    writing.RunFile(tmp_path / "good" / "new").ready().beat(clock.now, steps=7)
    good.wait_for_scan()
    samples = samples_of(exporter.scrape(TEXT))
    assert samples['supervisor_global_step{run="new"}'] == 7
    assert samples['supervisor_global_step{run="a bad run"}'] == 5
    assert of("last_refresh_timestamp_seconds") == [clock.now, before]
    assert of("runs") == [2, 1]
    assert of("refresh_failures_total") == [0, 0]


def test_it_is_caught_up_with(tmp_path: Path, writing, storage, clock, samples_of, served) -> None:
    """When the storage answers again the logdir is up to date again, without a restart."""
    exporter, good, bad, of = served
    exporter.refresh()
    storage.free.clear()
    exporter.start()
    assert storage.hanging.wait(60)
    clock.now += 600
    writing.RunFile(tmp_path / "bad" / "new").ready().beat(clock.now, steps=7)
    storage.free.set()
    for watch in (good, bad):
        watch.wait_for_scan()
    exporter.stop()
    assert samples_of(exporter.scrape(TEXT))['supervisor_global_step{run="new"}'] == 7
    assert of("last_refresh_timestamp_seconds") == [clock.now, clock.now]
    assert of("refresh_failures_total") == [0, 0]


def test_one_that_hangs_from_the_beginning(storage, samples_of, served) -> None:
    """A logdir that never answered is not ready, and has no last refresh; the others are served in full."""
    exporter, good, _, of = served
    storage.free.clear()
    exporter.start()
    assert storage.hanging.wait(60)
    good.wait_for_scan()
    assert not exporter.ready
    assert samples_of(exporter.scrape(TEXT))['supervisor_global_step{run="a good run"}'] == 5
    assert of("runs") == [1, None]
    assert of("refresh_failures_total") == [0, 0]
    for name in ("last_refresh_timestamp_seconds", "refresh_duration_seconds"):
        assert [value is None for value in of(name)] == [False, True]


def test_stopping_names_what_hangs(
    tmp_path: Path, storage, served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look that is left behind at the end is named by its logdir, and no other."""
    monkeypatch.setattr("supervisor_core.metrics.exporter._STOP_SECS", 0.01)
    exporter, good, _, _ = served
    storage.free.clear()
    exporter.start()
    assert storage.hanging.wait(60)
    good.wait_for_scan()
    exporter.stop()
    assert f"A refresh of {tmp_path / 'bad'} is still under way" in caplog.text


def test_a_page_is_not_lost_to_another_that_is_being_written(
    tmp_path: Path, writing, clock, samples_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that ends while a page is being written is on the next page, which the same thread writes at once."""
    from supervisor_core.metrics import exporter as module

    for name in ("one", "two"):
        writing.RunFile(tmp_path / name / name).ready().beat(clock.now, steps=5)
    pages: list[int] = []
    writer_at_it, other_done = threading.Event(), threading.Event()

    def page(texts: list[module.RunText]) -> module.Page:
        pages.append(len(texts))
        if len(pages) == 2:  # the first is the empty one of the beginning
            writer_at_it.set()
            assert other_done.wait(60)
        return real(texts)

    real = module.Page
    monkeypatch.setattr(module, "Page", page)
    one, two = (LogdirWatch(str(tmp_path / name), clock=clock) for name in ("one", "two"))
    exporter = Exporter([one, two], clock=clock)
    first = threading.Thread(target=lambda: (exporter._scan(0), exporter._publish()))
    first.start()
    assert writer_at_it.wait(60)
    exporter._scan(1)
    exporter._publish()
    other_done.set()
    first.join()
    assert (pages[-1], exporter.ready) == (2, True)
    assert samples_of(exporter.scrape(TEXT))['supervisor_global_step{run="two"}'] == 5
