"""`Exporter`: the runs below some logdirs, looked at again and again, each logdir in a thread of its own.

    look (a logdir's thread)   look at the logdir -> with the newest of all the others: name the runs, write those that
                               have changed, publish a new page
    scrape (any thread)        the page that is up, the ages at this moment, and how the exporter itself is

Nothing that a scrape does waits for a look, or for storage. A look that hangs holds up no other logdir: of that one the
page has what was found last, and its age in ``supervisor_exporter_last_refresh_timestamp_seconds``. The first look,
which may take minutes, publishes nothing before its end: the label of a run depends on what the others call themselves,
and a copy is known by its original.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.fair_share import fair_turns
from supervisor_core.base.install import DISTRIBUTION
from supervisor_core.base.shard import RunShard
from supervisor_core.metrics.collector import process_samples
from supervisor_core.metrics.labels import RunLocation, logdir_labels, run_labels
from supervisor_core.metrics.metric import Metric, Sample, Stage
from supervisor_core.metrics.page import (
    FORGET_AFTER_SECS,
    Page,
    RunText,
    copy_status,
    run_status,
    stage_of,
    write_run,
)
from supervisor_core.metrics.render import Format
from supervisor_core.metrics.table import BUILD_INFO, LOGDIR_METRICS, SCRAPE_DURATION, SCRAPE_SUCCESS, SHARDS
from supervisor_core.metrics.vanished import Key, VanishedRun, VanishedRuns
from supervisor_core.run.judge.counters import is_same_run
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.held import HeldRun
from supervisor_core.run.model.run import LIVE
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.status import Reading, RunStatus
from supervisor_core.run.watch.copies import CopyMarks
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.problem_log import ProblemLog
from supervisor_core.storage.local import join, local_path

HeldRuns: TypeAlias = Mapping[str, Mapping[str, Mapping[str, tuple[str, float]]]]
"""`HeldRun.state` by the label of the logdir and the name of the run."""

_LOG = logging.getLogger("supervisor_core")

DEFAULT_INTERVAL_SECS = 15.0
MOST_BYTES = 64 << 20
"""Of the runs' metrics in a scrape, which Prometheus gives 10 seconds."""
MAX_NAMED = 10
"""How many deleted runs are named in one line of the log."""
_STOP_SECS = 2.0


@dataclass(frozen=True, kw_only=True)
class _CurrentPage:
    """The page that scrapes get, and the state of each logdir at its time."""

    page: Page
    logdirs: tuple[_LogdirFacts, ...]


@dataclass(eq=False)
class Exporter:
    """See the module's docstring."""

    watches: Sequence[LogdirWatch]
    """The logdirs; from `start` on only the exporter's own threads refresh them, each its own."""
    _: KW_ONLY
    interval_secs: float = DEFAULT_INTERVAL_SECS
    """Seconds from the beginning of one look at a logdir to that of the next; one that takes longer is followed by the
    next at once."""
    forget_after_secs: float = FORGET_AFTER_SECS
    """How long after its last record a lost run is at rest, and how long a run that is gone from the disk is served as
    unreachable."""
    shard: RunShard | None = None
    """Which part of the runs the watches read, to be served; None: all."""
    on_page: Sequence[Callable[[Exporter], object]] = ()
    """Called with this exporter after each page that it has published, by one thread at a time."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """From when on something is a finding, and for how long it must last."""
    held_before: HeldRuns = field(default_factory=dict)
    """What the exporter before held."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        labels = logdir_labels([_shown_logdir(watch.logdir) for watch in self.watches])
        self._current = _CurrentPage(page=Page([]), logdirs=tuple(_LogdirFacts(label=label) for label in labels))
        self._scans: list[_Scan | None] = [None] * len(self.watches)
        self._read = [(0, 0)] * len(self.watches)
        self._on_progress: Callable[[int, int], None] = lambda done, total: None
        self._faults = [0] * len(self.watches)
        self._writing = threading.Lock()
        self._unwritten = False
        self._written: dict[Key, tuple[WatchedRun, RunText]] = {}
        self._held: dict[Key, HeldRun] = {}
        self._labels: dict[Key, str] = {}
        self._copies = CopyMarks[Key]()
        self._left_out: Counter[int] = Counter()
        """How many runs of each logdir are not on the page, for its length."""
        self._problems = ProblemLog()
        self._vanished = VanishedRuns(self.forget_after_secs)
        self._announced = False
        self._versions = _versions()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._scan_repeatedly, args=(index,), name="exporter-refresh", daemon=True)
            for index in range(len(self.watches))
        ]

    @property
    def ready(self) -> bool:
        """Whether every logdir has been scanned at least once, and could be listed at its last scan."""
        logdirs = self._current.logdirs
        return bool(logdirs) and all(facts.scanned and facts.reachable for facts in logdirs)

    @property
    def unreachable(self) -> tuple[str, ...]:
        """The logdirs that were missing or could not be listed at their last scan."""
        return tuple(facts.label for facts in self._current.logdirs if not facts.reachable)

    @property
    def statuses(self) -> Sequence[RunStatus]:
        """The runs of the current page."""
        return self._current.page.statuses

    def findings(self) -> list[tuple[str, Finding]]:
        """Return what is held of the runs of the current page: the label of a run, and a finding."""
        return [(status.run, found) for status in self.statuses for found in status.findings]

    @property
    def held(self) -> HeldRuns:
        """What another exporter of these logdirs needs, to hold what this one holds."""
        found: dict[str, dict[str, Mapping[str, tuple[str, float]]]] = {}
        for (index, name), run in list(self._held.items()):
            if state := run.state:
                found.setdefault(self._current.logdirs[index].label, {})[name] = state
        return found

    @property
    def has_looked(self) -> bool:
        """Whether the first look at each logdir is over."""
        return all(scan is not None for scan in self._scans)

    def start(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Start scanning, in daemon threads.

        Args:
            on_progress: called by them during the first looks, with the number of runs read, and of all runs found so
                far.
        """
        self._on_progress = on_progress or self._on_progress
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop scanning; a scan under way has two seconds to end. The current page stays."""
        self._stopping.set()
        deadline = self.clock.monotonic() + _STOP_SECS
        for watch, thread in zip(self.watches, self._threads, strict=True):
            if thread.ident is None:
                continue
            thread.join(max(0.0, deadline - self.clock.monotonic()))
            if thread.is_alive():
                _LOG.warning(
                    "A refresh of %s is still under way, or waits for the storage; it is left behind.", watch.logdir
                )

    def refresh(self) -> None:
        """Scan every logdir in turn, and publish a new page of all; without `start`."""
        for index in range(len(self.watches)):
            self._scan(index)
        self._publish()

    def show(self, snapshots: Sequence[LogdirSnapshot], *, at: float, secs: float) -> None:
        """Publish a page of snapshots that the caller took, instead of a `refresh`.

        Args:
            snapshots: one for each logdir, in the same order each time.
            at: when they were taken, as wall time.
            secs: how long that took.
        """
        labels = logdir_labels([_shown_logdir(snapshot.logdir) for snapshot in snapshots])
        if labels != [facts.label for facts in self._current.logdirs]:
            self._current = replace(self._current, logdirs=tuple(_LogdirFacts(label=label) for label in labels))
            self._faults = [0] * len(labels)
            self._written, self._labels, self._held = {}, {}, {}
            self._vanished.clear()
        self._scans = [_Scan(snapshot=found, at=at, secs=secs) for found in snapshots]
        self._publish()

    def scrape(self, format: Format, *, gzip: bool = False, process: bool = True) -> bytes:
        """Return a scrape, with what this process takes or without. Reads no file and waits for nothing."""
        began = self.clock.monotonic()
        up = self._current

        def about(complete: bool) -> Iterator[tuple[Metric, list[Sample]]]:
            complete &= not any(facts.left_out for facts in up.logdirs)
            yield SCRAPE_SUCCESS, [Sample({}, float(complete))]
            pairs = zip(up.logdirs, self._faults, strict=True)
            logdirs = [replace(facts, failures=facts.failures + faults) for facts, faults in pairs]
            for metric in LOGDIR_METRICS:
                values = [(facts.label, metric.read(facts)) for facts in logdirs]
                yield metric, [Sample({"logdir": label}, value) for label, value in values if value is not None]
            if self.shard is not None:
                yield SHARDS, [Sample({"shard": str(self.shard.index)}, self.shard.count)]
            yield SCRAPE_DURATION, [Sample({}, self.clock.monotonic() - began)]
            yield BUILD_INFO, [Sample(self._versions, 1)]
            yield from process_samples() if process else ()

        return up.page.render(format, about=about, gzip=gzip)

    def _scan_repeatedly(self, index: int) -> None:
        due = self.clock.monotonic()  # about the same for all, and later too: looks that end together share a page
        while not self._stopping.is_set():
            try:
                self._scan(index)
                self._publish()
            except Exception:  # the next one may do better; until then the current page stays
                _LOG.exception("A refresh of %s has failed", self.watches[index].logdir)
                self._faults[index] += 1
            due = max(due + self.interval_secs, self.clock.monotonic())
            self._stopping.wait(due - self.clock.monotonic())
        self.watches[index].close()

    def _scan(self, index: int) -> None:
        watch, known, began = self.watches[index], self._scans[index], self.clock.monotonic()
        snapshot = watch.refresh(self._counting(index) if known is None else None)
        secs = self.clock.monotonic() - began
        at = self.clock.wall() if snapshot.reachable else None if known is None else known.at
        self._scans[index] = _Scan(snapshot=snapshot, at=at, secs=secs)

    def _counting(self, index: int) -> Callable[[int, int], None]:
        """Return what counts the runs of a logdir that have been read so far."""

        def progressed(done: int, total: int) -> None:
            self._read[index] = done, total
            self._on_progress(sum(read for read, _ in self._read), sum(found for _, found in self._read))

        return progressed

    def _publish(self) -> None:
        """Publish a page of the newest scan of each logdir; a page that is being written is followed by another."""
        self._unwritten = True
        while self._unwritten and self._writing.acquire(blocking=False):
            try:
                self._unwritten = False
                self._write()
                for call in self.on_page:
                    call(self)
            finally:
                self._writing.release()

    def _write(self) -> None:
        scans = {index: scan for index, scan in enumerate(self._scans) if scan is not None}
        now = self.clock.wall()
        found = {
            (index, name): watched
            for index, scan in scans.items()
            for name, watched in sorted(scan.snapshot.runs.items())
        }
        live = self._copies.marked(found)
        problems = {index: list(scan.snapshot.problems) for index, scan in scans.items()}
        gone = self._missed(scans, problems, now)
        own_names = {key: run.own_name for key, run in live.items()}
        own_names |= {key: run.own_name for key, run in gone.items()}
        labels = self._labels_of(own_names, scans)
        written = self._write_live(live, labels, problems, now)
        texts = [text for _, text in written.values()]
        for key, run in gone.items():
            texts.append(run.written(labels[key], now, self.thresholds.stall_hold_secs))
            problems[key[0]].append(f"Run {labels[key]!r}: its directory is gone, and it had not ended.")
        self._written = written
        self._held = {key: held for key, held in self._held.items() if key in written or key in gone}
        if self.has_looked:  # not before: a rival of another logdir may not have been read yet
            self._labels = labels
        self._show(Page(texts), scans, problems)

    def _labels_of(self, own_names: Mapping[Key, str | None], scans: Mapping[int, _Scan]) -> dict[Key, str]:
        """Return the label of each run: one that no run of another shard can have by its directory."""
        logdirs = {index: _shown_logdir(scan.snapshot.logdir) for index, scan in scans.items()}
        locations = [
            RunLocation(logdirs[index], name, own_name, self._labels.get((index, name)))
            for (index, name), own_name in own_names.items()
        ]
        for index, scan in scans.items():
            locations += [RunLocation(logdirs[index], name, None) for name in scan.snapshot.elsewhere]
        return dict(zip(own_names, run_labels(locations), strict=False))

    def _write_live(
        self,
        live: Mapping[Key, WatchedRun],
        labels: Mapping[Key, str],
        problems: Mapping[int, list[str]],
        now: float,
    ) -> dict[Key, tuple[WatchedRun, RunText]]:
        """Return the runs that are there as text: as before, where neither the run nor its label has changed. Those
        beyond `MOST_BYTES` are not written: live ones come first, about as much of each owner, and of one owner's each
        directory in a logdir."""
        written: dict[Key, tuple[WatchedRun, RunText]] = {}

        def size_of(key: Key) -> int:
            if key not in written and (text := self._text_of(key, live[key], labels[key], problems, now)) is not None:
                written[key] = live[key], text
            return written[key][1].size if key in written else 0

        if not self._left_out:  # else it is too much again, most likely
            total = 0
            for key in live:
                total += size_of(key)
                if total > MOST_BYTES:
                    break
            else:
                return written
        ranked = sorted(live, key=lambda key: (live[key].run.state not in LIVE, -(live[key].run.last_event_at or 0.0)))
        turns = fair_turns(ranked, lambda key: (key[0], live[key].owner), lambda key: key[1].partition("/")[0])
        total, in_vain, kept = 0, 0, set()
        try:
            key = next(turns)
            while in_vain <= MOST_BYTES // 8:
                size = size_of(key)
                if total + size <= MOST_BYTES:
                    total += size
                    kept.add(key)
                else:
                    in_vain += size
                key = turns.send(size)
        except StopIteration:
            pass
        self._left_out = Counter(key[0] for key in live if key not in kept)
        return {key: written[key] for key in live if key in kept and key in written}

    def _text_of(
        self, key: Key, watched: WatchedRun, label: str, problems: Mapping[int, list[str]], now: float
    ) -> RunText | None:
        """Return a run as text; None, and a problem of its logdir, if it cannot be shown."""
        last = self._written.get(key)
        if watched.problem is not None:
            problems[key[0]].append(f"Run {label!r}: {watched.problem}")
        try:
            held = () if _is_at_rest(last, watched) else self._held_of(key, watched, now)
            text = self._unchanged(last, watched, label, now, held)
            if text is None:
                status = self._status_of(key, watched, label, now, held)
                text = write_run(status, self._stage(status, now))
            return text
        except Exception as error:  # a fault of ours; it must not cost the other runs
            _LOG.debug("Run %r cannot be shown", label, exc_info=True)
            problems[key[0]].append(f"Run {label!r} cannot be shown: {error!r}")
            return None

    def _show(self, page: Page, scans: Mapping[int, _Scan], problems: Mapping[int, list[str]]) -> None:
        """Let scrapes have a page from now on; log what is new among its problems."""
        counts = Counter(index for index, _ in self._written)
        alive = Counter(index for (index, _), (watched, _) in self._written.items() if watched.run.state in LIVE)
        logdirs = list(self._current.logdirs)
        for index, scan in scans.items():
            new = scan is not logdirs[index].scan
            failures = logdirs[index].failures + (new and bool(problems[index]))
            displaced = not scan.snapshot.runs and self._vanished.is_displaced(index, scan.snapshot.identity)
            logdirs[index] = replace(
                logdirs[index],
                runs=counts[index],
                live=alive[index],
                left_out=scan.snapshot.left_out + self._left_out[index],
                scan=scan,
                failures=failures,
                displaced=displaced,
            )
        self._current = _CurrentPage(page=page, logdirs=tuple(logdirs))
        found = [text for index in scans for text in problems[index]]
        self._problems.look_had([*found, *page.problems])
        if self.ready and not self._announced:
            self._announced = True
            _LOG.info("Looked at %d runs in %.1f s; ready", page.runs, max(scan.secs or 0.0 for scan in scans.values()))

    def _missed(
        self, scans: Mapping[int, _Scan], problems: Mapping[int, list[str]], now: float
    ) -> Mapping[Key, VanishedRun]:
        """Return the runs that are gone; one whose directory was renamed keeps its label, and is not among them."""
        found = {index: scan.snapshot.runs for index, scan in scans.items()}
        logdirs = {index: self._current.logdirs[index].label for index in scans}
        identities = {index: scan.snapshot.identity for index, scan in scans.items()}
        elsewhere = {(index, name) for index, scan in scans.items() for name in scan.snapshot.elsewhere}
        missed = self._vanished.update(self._written, found, now, identities, elsewhere)
        self._labels.update(missed.labels)
        for new, old in missed.renamed.items():
            if old in self._held:
                self._held[new] = self._held.pop(old)
        for index, deleted in missed.deleted.items():
            more = f" and {len(deleted) - MAX_NAMED:,} more" if len(deleted) > MAX_NAMED else ""
            names = ", ".join(map(repr, deleted[:MAX_NAMED]))
            _LOG.info("%s: runs that were lost or had failed were deleted: %s%s", logdirs[index], names, more)
        for index, count in missed.dropped.items():
            problems[index].append(
                f"{logdirs[index]}: {count:,} runs whose directories are gone are not served any more (docs/limits.md)."
            )
        return self._vanished.runs

    def _held_of(self, key: Key, watched: WatchedRun, now: float) -> tuple[Finding, ...]:
        run = self._held.get(key)
        if run is None:
            before = self.held_before.get(self._current.logdirs[key[0]].label, {}).get(key[1], {})
            run = self._held[key] = HeldRun(before)
        run.update(watched, now, self.thresholds)
        return run.findings

    def _unchanged(
        self,
        last: tuple[WatchedRun, RunText] | None,
        watched: WatchedRun,
        label: str,
        now: float,
        held: tuple[Finding, ...],
    ) -> RunText | None:
        """Return the text of a run if it is what would be written now."""
        if last is None or last[0] is not watched or last[1].status.run != label:
            return None
        text = last[1]
        if text.stage is Stage.AT_REST:  # nothing changes it but its records
            return text
        return text if text.stage is self._stage(text.status, now) and text.status.findings == held else None

    def _stage(self, status: RunStatus, now: float) -> Stage:
        return stage_of(status, now, self.forget_after_secs)

    def _status_of(self, key: Key, watched: WatchedRun, label: str, now: float, held: tuple[Finding, ...]) -> RunStatus:
        scan = self._scans[key[0]]
        assert scan is not None
        logdir = _shown_logdir(scan.snapshot.logdir)
        directory = logdir if key[1] == "." else join(logdir, key[1])
        directory = watched.directory if watched.directory == directory else directory  # one object instead of two
        run = watched.run
        reading = Reading(
            logdir=self._current.logdirs[key[0]].label,
            success=watched.read_ok,
            # Some writers have all their events happen in 1970.
            last_event_at=run.last_event_at - (run.clock_skew_secs or 0.0) if run.last_event_at else None,
            corrupt_records=watched.corrupt_records,
            dropped=dict(watched.dropped),
        )
        if watched.copy_of is not None:
            info = {"logdir": directory, "copy_of": watched.copy_of}
            return replace(copy_status(run, label), info=info, reading=reading)
        status = run_status(run, now, label=label, forget_after_secs=self.forget_after_secs)
        status = replace(status, info={"logdir": directory, **status.info}, findings=held, reading=reading)
        if (last := self._written.get(key)) is not None and is_same_run(last[0].run, run):
            status = status.not_below(last[1].status)
        if watched.unreachable and run.state in LIVE:
            status = replace(status, state="unreachable")
        return status


def _is_at_rest(last: tuple[WatchedRun, RunText] | None, watched: WatchedRun) -> bool:
    return last is not None and last[0] is watched and last[1].stage is Stage.AT_REST


def _versions() -> dict[str, str]:
    try:
        own = version(DISTRIBUTION)
    except PackageNotFoundError:  # running from the sources
        own = "unknown"
    return {"version": own, "python": platform.python_version()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """The result of scanning a logdir."""

    snapshot: LogdirSnapshot
    at: float | None = None
    """Wall time at which the last scan that reached the logdir ended; None before the first."""
    secs: float | None = None
    """Duration of that scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogdirFacts:
    """One logdir, as of the current page."""

    label: str
    runs: int = 0
    """Number of its runs on the page."""
    live: int = 0
    """How many of them are alive."""
    scan: _Scan | None = None
    left_out: int = 0
    """How many of its runs are not, because there are too many."""
    failures: int = 0
    """Number of scans with something that could not be read or written."""
    displaced: bool = False
    """Whether its runs are gone, and another directory is in its place: an empty mount point."""

    @property
    def scanned(self) -> bool:
        """Whether a scan of it has ended."""
        return self.last_scan is not None

    @property
    def last_scan(self) -> _Scan | None:
        """Its newest scan, once one has reached it."""
        return None if self.scan is None or self.scan.at is None else self.scan

    @property
    def reachable(self) -> bool:
        """Whether it was there and could be listed at the last scan."""
        return self.scan is None or (self.scan.snapshot.reachable and not self.displaced)


def _shown_logdir(logdir: str) -> str:
    """Return the ``logdir`` label: an absolute path, or the address of a remote logdir."""
    local = local_path(logdir)
    return logdir if local is None else os.path.abspath(local)
