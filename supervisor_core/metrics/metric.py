"""`Metric`: what stands about a metric, and the ways in which one is read from a `RunStatus`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from supervisor_core.events.telemetry import ThreadStatus, WorkerStatus
from supervisor_core.run.status import Distribution, RunStatus

MetricType = Literal["gauge", "counter", "histogram", "info"]
ServedBy = Literal["both", "trainer", "exporter"]
"""Whose page has a metric: the training process's own, an exporter's, or both."""


class Sample(NamedTuple):
    """One value of a metric: ``name + suffix`` with these labels."""

    labels: dict[str, str]
    value: float
    suffix: str = ""
    """Empty but for histograms: ``_bucket``, ``_sum``, ``_count``."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_P = TypeVar("_P", bound=_Named)

Read = Callable[[RunStatus, float], Iterable[Sample]]
"""Reads one metric's samples from a run's status and the wall time (seconds since the epoch) of the scrape."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What stands about a metric in its ``HELP``, ``TYPE`` and ``UNIT`` lines."""

    name: str
    """As Prometheus shows it: ``_total`` and ``_info`` included, a histogram's suffixes not."""
    type: MetricType
    help: str
    unit: str = ""
    """The base unit that the name ends in (before ``_total``); empty for counts, steps and states."""
    labels: tuple[str, ...] = ("run",)
    """An ``info`` metric has one more label per fact."""
    served_by: ServedBy = "both"


@dataclass(frozen=True, kw_only=True)
class RunMetric(Metric):
    """A metric of a run."""

    read: Read
    timed: bool = False
    """Whether its samples depend on when the scrape is; those of all others are the status's alone."""


def gauge(
    name: str,
    help: str,
    value: Callable[[RunStatus], float | None],
    *,
    unit: str = "",
    type: MetricType = "gauge",
    served_by: ServedBy = "both",
) -> RunMetric:
    """Return a metric that is one value of a run; a gauge where nothing else is said. None yields no sample."""

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = value(status)
        if known is not None:
            yield Sample({"run": status.run}, known)

    return RunMetric(name=name, type=type, help=help, unit=unit, served_by=served_by, read=read)


def counter(name: str, help: str, value: Callable[[RunStatus], float | None]) -> RunMetric:
    """Return a counter that is one value of a run."""
    return gauge(name, help, value, type="counter")


def age(name: str, help: str, since: Callable[[RunStatus], float | None]) -> RunMetric:
    """Return a gauge of the seconds since a time, computed at each scrape."""

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        then = since(status)
        if then is not None:
            yield Sample({"run": status.run}, max(0.0, now - then))  # below 0 when the machine's clock was set back

    return RunMetric(name=name, type="gauge", help=help, unit="seconds", read=read, timed=True)


def per_key(
    name: str,
    help: str,
    label: str,
    values: Callable[[RunStatus], Mapping[Any, float]],
    *,
    unit: str = "",
    served_by: ServedBy = "both",
) -> RunMetric:
    """Return a counter with one sample for each key of a mapping."""

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        for key, value in values(status).items():
            yield Sample({"run": status.run, label: key}, value)

    return RunMetric(
        name=name, type="counter", help=help, unit=unit, labels=("run", label), served_by=served_by, read=read
    )


def per_thread(
    name: str,
    help: str,
    value: Callable[[ThreadStatus], float | None],
    *,
    unit: str = "",
    type: MetricType = "gauge",
) -> RunMetric:
    """Return a metric with one sample for each service thread."""
    return _per_part(name, help, "thread", lambda status: status.threads, value, unit=unit, type=type)


def per_worker(
    name: str,
    help: str,
    value: Callable[[WorkerStatus], float | None],
    *,
    unit: str = "",
    type: MetricType = "gauge",
) -> RunMetric:
    """Return a metric with one sample for each other process of the cluster."""
    return _per_part(name, help, "worker", lambda status: status.workers, value, unit=unit, type=type)


def _per_part(
    name: str,
    help: str,
    label: str,
    parts: Callable[[RunStatus], Iterable[_P]],
    value: Callable[[_P], float | None],
    *,
    unit: str,
    type: MetricType,
) -> RunMetric:
    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        for part in parts(status):
            known = value(part)
            if known is not None:
                yield Sample({"run": status.run, label: part.name}, known)

    return RunMetric(name=name, type=type, help=help, unit=unit, labels=("run", label), read=read)


def histogram(
    name: str, help: str, values: Callable[[RunStatus], Distribution | None], *, served_by: ServedBy = "both"
) -> RunMetric:
    """Return a histogram of durations."""

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = values(status)
        if known is None:
            return
        total = 0
        for bound, count in zip((*map(repr, map(float, known.bounds)), "+Inf"), known.counts, strict=True):
            total += count
            yield Sample({"run": status.run, "le": bound}, total, "_bucket")
        yield Sample({"run": status.run}, known.sum, "_sum")
        yield Sample({"run": status.run}, total, "_count")

    return RunMetric(name=name, type="histogram", help=help, unit="seconds", served_by=served_by, read=read)


def facts_metric(name: str, help: str, facts: Callable[[RunStatus], Mapping[str, str]]) -> RunMetric:
    """Return an info metric: 1, with a label for each fact."""

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = facts(status)
        if known:
            labels = {_label_name(fact): value for fact, value in known.items()}
            yield Sample({**labels, "run": status.run}, 1)

    return RunMetric(name=name, type="info", help=help, read=read)


def _label_name(fact: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", fact).lstrip("_")  # names that begin with two are Prometheus's own
    return name if name and not name[0].isdigit() else f"fact_{name}"
