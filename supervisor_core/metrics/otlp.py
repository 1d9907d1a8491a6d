"""OTLP: a collector's metrics as OpenTelemetry has them, and `OtlpSender`, which sends these to a receiver over HTTP.

A metric keeps its name and its labels when Prometheus translates it back: a counter is a cumulative, monotonic sum that
has ``_total`` in its name already, a gauge and an info metric are gauges, a histogram has explicit buckets, and nothing
has a unit, which would be added to the name. A scraper sees when a series is no longer served; to a receiver that is
said once, by the value that Prometheus ends series with.

OpenTelemetry's own exporter encodes, and takes headers, certificates and compression from its standard variables,
``OTEL_EXPORTER_OTLP_HEADERS`` ... What it logs, and what the library of HTTP logs, holds URLs and headers: nothing of
that is let through, and what is said of a failure is made here, of a status or of the system's own words.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample as FamilySample

from supervisor_core.base.install import DISTRIBUTION
from supervisor_core.base.log import answer_text, errors_within

DEFAULT_JOB = "training"
"""The job of what is pushed, where ``OTEL_SERVICE_NAME`` does not say another."""

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_EARLIEST, _LATEST = 1e9, 9e9
"""Wall times that a clock may show, from 2001 to 2255: the format has none of long before or after."""
_FAILED = 400
"""The answer that the exporter neither takes for success nor tries again."""
_QUIET = ("opentelemetry", "urllib3", "requests")


class OtlpSender:
    """Sends metrics to an OTLP receiver; for one thread, which logs nothing else of these libraries.

    Args:
        url: of the receiver's metrics.
        instance: the label ``instance`` of all that is sent.
        timeout_secs: how long it may take to connect, and to answer.
    """

    def __init__(self, url: str, instance: str, *, timeout_secs: float) -> None:
        self._session = _Session()
        _hush()
        self._exporter = OTLPMetricExporter(
            endpoint=url,
            timeout=timeout_secs,
            compression=None if os.environ.get("OTEL_EXPORTER_OTLP_COMPRESSION") else Compression.Gzip,
            session=self._session,
        )
        _hush()  # what was imported for that
        name = os.environ.get("OTEL_SERVICE_NAME") or DEFAULT_JOB
        self._resource = Resource({"service.name": name, "service.instance.id": instance})
        self._shown: dict[_Series, Family] = {}

    def send(self, families: Iterable[Family], *, at: float, since: float) -> str | None:
        """Send what a collector yields. Return why the receiver did not take it, None if it did: a text that holds
        nothing of the URL, of headers, of the answer's body. Raises nothing.

        Args:
            families: what to send; nothing at all, too, is a request that the receiver answers.
            at: the wall time of all values.
            since: the wall time from which counters count.
        """
        self._session.forget()
        try:
            now = [family for family in families if family.samples]
            shown = {series: family for family in now for series in _series_of(family)}
            gone = [_ended(family, series) for series, family in self._shown.items() if series not in shown]
            metrics = [as_otlp(family, at, since) for family in (*now, *gone)]
            scope = ScopeMetrics(scope=InstrumentationScope(DISTRIBUTION), metrics=metrics, schema_url="")
            whole = ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")
            self._exporter.export(MetricsData(resource_metrics=[whole] if metrics else []))
        except Exception as error:  # no push ends those after it
            return type(error).__name__
        if self._session.why is None:
            self._shown = shown
        return self._session.why

    @property
    def receiver_time(self) -> float | None:
        """The receiver's wall time, in whole seconds, as its last answer said; None if it did not."""
        return self._session.receiver_time


def as_otlp(family: Family, at: float, since: float) -> Metric:
    """Return a metric as OpenTelemetry has it.

    Args:
        family: a gauge, a counter, a histogram or an info metric, with samples.
        at: the wall time of its values.
        since: the wall time from which counters count.
    """
    start, now = (round(secs * 1e9) for secs in (since, at))
    name = family.samples[0].name
    data: Gauge | Sum | Histogram
    if family.type == "histogram":
        name = family.name
        data = Histogram([_of_buckets(each, start, now) for each in _by_labels(family.samples)], _CUMULATIVE)
    else:
        points = [NumberDataPoint(each.labels, start, now, each.value) for each in family.samples]
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    return Metric(name=name, description=family.documentation, unit="", data=data)


_Series = tuple[str, tuple[tuple[str, str], ...]]
"""A gauge's or a counter's name, and its labels."""

_STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
"""Of the numbers that are none the one that Prometheus marks the end of a series with."""


def _series_of(family: Family) -> list[_Series]:
    if family.type == "histogram":
        return []
    return [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]


def _ended(family: Family, series: _Series) -> Family:
    """Return what ends a series, as that of a phase that is over: else its last value is shown for minutes."""
    ended = Family(family.name, family.documentation, family.type)
    ended.samples.append(FamilySample(series[0], dict(series[1]), _STALE))
    return ended


def _by_labels(samples: Sequence[FamilySample]) -> list[list[FamilySample]]:
    """Return a histogram's samples, those of each of its series together."""
    found: dict[tuple[tuple[str, str], ...], list[FamilySample]] = {}
    for sample in samples:
        labels = tuple(item for item in sorted(sample.labels.items()) if item[0] != "le")
        found.setdefault(labels, []).append(sample)
    return list(found.values())


def _of_buckets(samples: list[FamilySample], start: int, now: int) -> HistogramDataPoint:
    buckets = [(float(each.labels["le"]), int(each.value)) for each in samples if each.name.endswith("_bucket")]
    (total,) = (each for each in samples if each.name.endswith("_sum"))
    counts = [count for _, count in buckets]
    nothing: Any = None  # the extremes are optional in the format, and not in the library's types
    return HistogramDataPoint(
        attributes=total.labels,
        start_time_unix_nano=start,
        time_unix_nano=now,
        count=counts[-1],
        sum=total.value,
        bucket_counts=[count - before for count, before in zip(counts, [0, *counts], strict=False)],
        explicit_bounds=[bound for bound, _ in buckets[:-1]],
        min=nothing,
        max=nothing,
    )


class _Session(requests.Session):
    """Sends one request and remembers how it went; never raises, follows no redirect, reads no answer's body."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Forget the last request."""
        self.why: str | None = "it could not be encoded"
        self.receiver_time: float | None = None

    def request(self, method: str, url: str, **more: Any) -> requests.Response:  # type: ignore[override]
        """Send a request. Return an answer that says no more than whether it was taken, and is not tried again."""
        shown = requests.Response()
        shown.status_code = _FAILED
        try:
            # A redirect would take headers with tokens elsewhere; an answer may be endless.
            with super().request(method, url, **{**more, "allow_redirects": False, "stream": True}) as answer:
                self.receiver_time = _seconds(answer.headers.get("Date"))
                self.why = None if 200 <= answer.status_code < 300 else _refusal(answer.status_code)
        except Exception as error:
            self.why = _cause(error)
        if self.why is None:
            shown.status_code = HTTPStatus.OK
        return shown


def _refusal(status: int) -> str:
    text = answer_text(status)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"{text}: credentials go into OTEL_EXPORTER_OTLP_HEADERS, as Authorization=Bearer%20TOKEN"
    if status == HTTPStatus.NOT_FOUND:
        return f"{text}: check its path, and that it takes OTLP (of Prometheus: --web.enable-otlp-receiver)"
    if 300 <= status < 400:
        return f"{text}: redirects are not followed; give the address that it redirects to"
    return text


def _cause(error: BaseException) -> str:
    """Return what the system says of a failed request; the libraries' own texts hold the URL."""
    if isinstance(error, requests.exceptions.Timeout):
        return "it does not answer in time"
    found = errors_within(error)
    for each in found:
        if isinstance(each, OSError) and not isinstance(each, requests.exceptions.RequestException) and each.strerror:
            return str(each.strerror)
    return type(found[0]).__name__


def _seconds(date: str | None) -> float | None:
    try:
        secs = None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
    return secs if secs is not None and _EARLIEST < secs < _LATEST else None


_HERE = threading.local()


def _is_of_others(record: logging.LogRecord) -> bool:
    return not getattr(_HERE, "is_sending", False)


def _hush() -> None:
    """Let through nothing that these libraries log in this thread: it holds URLs and headers."""
    _HERE.is_sending = True
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _QUIET:
            logging.getLogger(name).addFilter(_is_of_others)
