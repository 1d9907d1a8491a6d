"""`Page`: all that a scrape consists of, as of one refresh, ready to be sent but for what depends on the time.

Written once per refresh, in the background; and of a run that has not changed, not even then. A scrape adds the ages
and what the exporter says of itself, which therefore come last.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from supervisor_core.metrics.metric import Metric, RunMetric, Sample
from supervisor_core.metrics.render import END, Format, header, lines
from supervisor_core.metrics.table import (
    EXPORTER_CORRUPT_RECORDS,
    EXPORTER_DROPPED,
    EXPORTER_LAST_EVENT,
    EXPORTER_RUN_READ_SUCCESS,
    RUN_METRICS,
)
from supervisor_core.run.status import RunStatus

_LASTING = tuple(metric for metric in RUN_METRICS if not metric.timed)
_TIMED = tuple(metric for metric in RUN_METRICS if metric.timed)
_OF_READING = (EXPORTER_RUN_READ_SUCCESS, EXPORTER_LAST_EVENT, EXPORTER_CORRUPT_RECORDS, EXPORTER_DROPPED)
_PREPARED: tuple[Metric, ...] = (*_LASTING, *_OF_READING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How well a run's events files could be read."""

    logdir: str
    """The label of the logdir that they are below."""
    success: bool
    last_event_at: float | None
    corrupt_records: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What was beyond a bound, by kind."""


@dataclass(frozen=True, slots=True)
class RunText:
    """One run, written."""

    status: RunStatus
    fragments: tuple[bytes, ...]
    """The lines of each metric that does not depend on the time, in the order of the page."""
    problems: tuple[str, ...]
    """What could not be written, and why."""


def write_run(status: RunStatus, reading: Reading) -> RunText:
    """Return a run, written. A value that cannot be written is left out, and named among the problems."""
    problems: list[str] = []
    fragments = [_written(metric, status, 0.0, problems) for metric in _LASTING]
    label = {"run": status.run}
    fragments.append(lines(EXPORTER_RUN_READ_SUCCESS, [Sample({**label, "logdir": reading.logdir}, reading.success)]))
    known = reading.last_event_at is not None
    fragments.append(lines(EXPORTER_LAST_EVENT, [Sample(label, reading.last_event_at or 0.0)] if known else []))
    fragments.append(lines(EXPORTER_CORRUPT_RECORDS, [Sample(label, reading.corrupt_records)]))
    dropped = [Sample({**label, "kind": kind}, count) for kind, count in sorted(reading.dropped.items())]
    fragments.append(lines(EXPORTER_DROPPED, dropped))
    return RunText(status, tuple(fragments), tuple(problems))


class Page:
    """See the module's docstring. Never changes, so any number of scrapes may read it at once.

    Args:
        runs: the runs, no two of which have the same label.
    """

    def __init__(self, runs: Sequence[RunText]) -> None:
        self._statuses = [run.status for run in runs]
        self._families = [
            (metric, fragments)
            for index, metric in enumerate(_PREPARED)
            if (fragments := [run.fragments[index] for run in runs if run.fragments[index]])
        ]
        self._packed = {False: GzipStream(), True: GzipStream()}
        for metric, fragments in self._families:
            body = b"".join(fragments)
            packed = deflate(body)
            for openmetrics, stream in self._packed.items():
                above = header(metric, openmetrics)
                stream.add(above, deflate(above))
                stream.add(body, packed)
        self._packed = {openmetrics: stream.copy() for openmetrics, stream in self._packed.items()}
        self.problems = tuple(text for run in runs for text in run.problems)
        """What could not be written, and why."""

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self._statuses)

    def render(
        self,
        format: Format,
        *,
        now: float,
        about: Callable[[bool], Iterable[tuple[Metric, Iterable[Sample]]]],
        gzip: bool = False,
    ) -> bytes:
        """Return a whole scrape.

        Args:
            format: which of the formats.
            now: wall time in seconds, for the ages.
            about: what the exporter says of itself, called last, with whether everything could be written.
            gzip: whether to compress it.
        """
        openmetrics = format.openmetrics
        last: list[bytes] = []
        problems: list[str] = list(self.problems)
        for metric in _TIMED:
            text = b"".join([_written(metric, status, now, problems) for status in self._statuses])
            if text:
                last += (header(metric, openmetrics), text)
        first: list[bytes] = []
        if not gzip:
            for prepared, fragments in self._families:
                first.append(header(prepared, openmetrics))
                first += fragments
        for about_metric, samples in about(not problems):
            text = lines(about_metric, samples)
            if text:
                last += (header(about_metric, openmetrics), text)
        if openmetrics:
            last.append(END)
        if not gzip:
            return b"".join(first + last)
        stream, rest = self._packed[openmetrics].copy(), b"".join(last)
        stream.add(rest, deflate(rest))
        return stream.finish()


def _written(metric: RunMetric, status: RunStatus, now: float, problems: list[str]) -> bytes:
    try:
        return lines(metric, metric.read(status, now))
    except Exception as error:  # one unreadable value must not cost the others
        problems.append(f"{metric.name} of run {status.run!r} could not be read: {error!r}")
        return b""


_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_LEVEL = 1
"""The fastest: metrics repeat themselves so much that it makes a tenth of them or less."""


def deflate(data: bytes) -> bytes:
    """Return a part of a stream: data compressed on its own."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


class GzipStream:
    """Gathers parts; not to be changed by several threads at once, but copied by any of them.

    Example:
        >>> import gzip
        >>> stream = GzipStream()
        >>> stream.add(b"one ", deflate(b"one "))
        >>> stream.add(b"two", deflate(b"two"))
        >>> gzip.decompress(stream.finish())
        b'one two'
    """

    def __init__(self) -> None:
        self._parts = [_HEADER]
        self._crc = 0
        self._size = 0

    def add(self, data: bytes, packed: bytes) -> None:
        """Append data, given also as `deflate` returned it."""
        self._parts.append(packed)
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)

    def copy(self) -> GzipStream:
        """Return a stream that begins with all that is in this one."""
        other = GzipStream()
        other._parts, other._crc, other._size = [b"".join(self._parts)], self._crc, self._size
        return other

    def finish(self) -> bytes:
        """Return the whole file."""
        return b"".join([*self._parts, _LAST_BLOCK, struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)])
