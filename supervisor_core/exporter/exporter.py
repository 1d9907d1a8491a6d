"""`Exporter`: the runs below some logdirs, looked at again and again in one thread, served from the last look alone.

    refresh (background)   look at every logdir -> name the runs -> write those that have changed -> put up a new page
    scrape (any thread)    the page that is up, the ages at this moment, and how the exporter itself is

Nothing that a scrape does waits for a refresh, or for storage: a refresh that hangs leaves the last page up, and its
age in ``supervisor_exporter_last_refresh_timestamp_seconds``. Only the first look, which may take minutes, puts up
pages on its way, of the runs that it has read to their ends; there is no last refresh until it is through.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from supervisor_core.checkpoint.filesystem import local_path
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.exporter.labels import RunPlace, run_labels
from supervisor_core.exporter.page import Page, Reading, RunText, write_run
from supervisor_core.metrics.metric import Metric, Sample
from supervisor_core.metrics.render import Format
from supervisor_core.metrics.table import (
    EXPORTER_BUILD_INFO,
    EXPORTER_LAST_REFRESH,
    EXPORTER_REFRESH_DURATION,
    EXPORTER_REFRESH_FAILURES,
    EXPORTER_RUNS,
    EXPORTER_SCRAPE_DURATION,
    SCRAPE_SUCCESS,
)
from supervisor_core.run.run_status import run_status
from supervisor_core.watch.snapshot import Snapshot, WatchedRun

_LOG = logging.getLogger(__name__)

DEFAULT_INTERVAL_SECS = 15.0
_STOP_SECS = 2.0
_SHOW_SECS = 1.0
_SHOW_SHARE = 0.1
"""Of the first look, how much may go into showing what it has read so far."""


class Watch(Protocol):
    """What is asked of a `LogdirWatch`."""

    @property
    def logdir(self) -> str:
        """The logdir, as it was given."""

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """Return what is there now; call something after each run that was read."""

    def so_far(self) -> Snapshot:
        """Return the runs that have been read, while a refresh is under way."""


@dataclass(frozen=True, kw_only=True)
class _Refreshed:
    """What is shown, and what the last whole refresh has left."""

    page: Page
    at: float | None = None
    secs: float | None = None
    failures: int = 0


class Exporter:
    """See the module's docstring.

    Args:
        watches: the logdirs; from `start` on only the exporter's own thread refreshes them.
        interval_secs: seconds from the beginning of one refresh to that of the next; a refresh that takes longer is
            followed by the next at once.
        clock: the time.
    """

    def __init__(
        self,
        watches: Sequence[Watch],
        *,
        interval_secs: float = DEFAULT_INTERVAL_SECS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._watches = watches
        self._interval_secs = interval_secs
        self._clock = clock
        self._up = _Refreshed(page=Page([]))
        self._written: dict[tuple[int, str], tuple[WatchedRun, RunText]] = {}
        self._told: frozenset[str] = frozenset()
        self._versions = _versions()
        self._show_next = clock.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._refresh_again_and_again, name="exporter-refresh", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether the runs have been looked at, once at least."""
        return self._up.at is not None

    def start(self) -> None:
        """Begin to refresh, in a daemon thread."""
        self._thread.start()

    def stop(self) -> None:
        """Refresh no more; a refresh under way is given two seconds to end. What is up stays up."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECS)
            if self._thread.is_alive():
                _LOG.warning("A refresh is still under way, or waits for the storage; it is left behind.")

    def refresh(self) -> None:
        """Look at every logdir and put up a new page. Called by the exporter's own thread once it is started."""
        began = self._clock.monotonic()
        snapshots: list[Snapshot] = []
        for watch in self._watches:
            snapshots.append(watch.refresh(None if self.ready else self._showing(tuple(snapshots), watch)))
        page, problems = self._write(snapshots)
        self._put_up(page, problems, self._clock.wall(), self._clock.monotonic() - began)

    def _showing(self, before: Sequence[Snapshot], watch: Watch) -> Callable[[int, int], None]:
        """Return what shows the runs of the logdirs before, and those of this one that have been read so far."""

        def progressed(done: int, total: int) -> None:
            began = self._clock.monotonic()
            if began < self._show_next:
                return
            page, _ = self._write([*before, watch.so_far()])
            self._up = replace(self._up, page=page)
            ended = self._clock.monotonic()
            self._show_next = ended + max(_SHOW_SECS, (ended - began) / _SHOW_SHARE)

        return progressed

    def show(self, snapshots: Sequence[Snapshot], *, at: float, secs: float) -> None:
        """Put up a new page of what somebody else has found, instead of a `refresh`.

        Args:
            snapshots: one for each logdir, in the same order each time.
            at: when they were taken, as wall time.
            secs: how long that took.
        """
        page, problems = self._write(snapshots)
        self._put_up(page, problems, at, secs)

    def _put_up(self, page: Page, problems: Sequence[str], at: float, secs: float) -> None:
        before = self._up
        self._up = _Refreshed(page=page, at=at, secs=secs, failures=before.failures + bool(problems))
        self._tell([*problems, *page.problems])
        if before.at is None:
            _LOG.info("Looked at %d runs in %.1f s; ready", page.runs, secs)

    def scrape(self, format: Format, *, gzip: bool = False) -> bytes:
        """Return a scrape. Reads no file and waits for nothing."""
        began = self._clock.monotonic()
        up = self._up

        def about(complete: bool) -> Iterator[tuple[Metric, list[Sample]]]:
            yield SCRAPE_SUCCESS, _single(float(complete))
            yield EXPORTER_RUNS, _single(None if up.at is None else up.page.runs)
            yield EXPORTER_LAST_REFRESH, _single(up.at)
            yield EXPORTER_REFRESH_DURATION, _single(up.secs)
            yield EXPORTER_REFRESH_FAILURES, _single(up.failures)
            yield EXPORTER_SCRAPE_DURATION, _single(self._clock.monotonic() - began)
            yield EXPORTER_BUILD_INFO, [Sample(self._versions, 1)]

        return up.page.render(format, now=self._clock.wall(), about=about, gzip=gzip)

    def _refresh_again_and_again(self) -> None:
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                self.refresh()
            except Exception:  # the next one may do better; until then the last page stays up
                _LOG.exception("A refresh has failed")
                up = self._up
                self._up = _Refreshed(page=up.page, at=up.at, secs=up.secs, failures=up.failures + 1)
            self._stopping.wait(max(0.0, self._interval_secs - (self._clock.monotonic() - began)))

    def _write(self, snapshots: Sequence[Snapshot]) -> tuple[Page, list[str]]:
        found = [
            (index, name, watched)
            for index, snapshot in enumerate(snapshots)
            for name, watched in sorted(snapshot.runs.items())
        ]
        labels = run_labels(
            [RunPlace(_shown(snapshots[index].logdir), name, watched.own_name) for index, name, watched in found]
        )
        now = self._clock.wall()
        written: dict[tuple[int, str], tuple[WatchedRun, RunText]] = {}
        problems = [text for snapshot in snapshots for text in snapshot.problems]
        for (index, name, watched), label in zip(found, labels, strict=True):
            known = self._written.get((index, name))
            if watched.problem is not None:
                problems.append(f"Run {label!r}: {watched.problem}")
            if known is not None and known[0] is watched and known[1].status.run == label:
                written[index, name] = known
                continue
            try:
                written[index, name] = watched, _write_run(watched, label, now)
            except Exception as error:  # a fault of ours; it must not cost the other runs
                _LOG.debug("Run %r cannot be shown", label, exc_info=True)
                problems.append(f"Run {label!r} cannot be shown: {error!r}")
        self._written = written
        return Page([text for _, text in written.values()]), problems

    def _tell(self, problems: Sequence[str]) -> None:
        known, self._told = self._told, frozenset(problems)
        for text in dict.fromkeys(problems):
            if text not in known:
                _LOG.warning("%s", text)
        if known and not problems:
            _LOG.info("Everything can be read again")


def _write_run(watched: WatchedRun, label: str, now: float) -> RunText:
    reading = Reading(
        success=watched.read_ok,
        last_event_at=watched.run.last_event_at or None,  # some writers have all their events happen in 1970
        corrupt_records=watched.corrupt_records,
    )
    return write_run(run_status(watched.run, now, label=label), reading)


def _single(value: float | None) -> list[Sample]:
    return [] if value is None else [Sample({}, value)]


def _shown(logdir: str) -> str:
    local = local_path(logdir)
    return logdir if local is None else os.path.abspath(local)


def _versions() -> dict[str, str]:
    try:
        own = version("tensorboard-plugin-supervisor")
    except PackageNotFoundError:  # running from the sources
        own = "unknown"
    return {"version": own, "python": platform.python_version()}
