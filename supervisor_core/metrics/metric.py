"""`Metric`: what stands about a metric, and the ways in which one is read from a `RunStatus`.

The functions that make a metric of a run take its name without ``supervisor_``, which all of them begin with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from supervisor_core.run.model.distribution import Distribution
from supervisor_core.run.status import RunStatus

MetricType = Literal["gauge", "counter", "histogram", "info"]
ServedBy = Literal["both", "trainer", "exporter"]
"""Whose page has a metric: the training process's own, an exporter's, or both."""
_TYPES: Mapping[str, MetricType] = {"total": "counter", "info": "info"}
_UNITS = ("seconds", "bytes", "ratio")


class Sample(NamedTuple):
    """One value of a metric: ``name + suffix`` with these labels."""

    labels: dict[str, str]
    value: float
    suffix: str = ""
    """Empty but for histograms: ``_bucket``, ``_sum``, ``_count``."""


class Stage(IntEnum):
    """How much an exporter serves of a run: the metrics of this stage, and of those before it."""

    AT_REST = 0
    """It ended a while ago, or was given up: no alert speaks of it."""
    DEAD = 1
    """It is lost or has failed: what alerts say of that."""
    LIVE = 2
    """It is alive, or was a moment ago: what alerts and panels of many runs need."""
    DETAIL = 3
    """Everything: a training's own page."""


Read = Callable[[RunStatus, float], Iterable[Sample]]
"""Reads one metric's samples from a run's status and the wall time (seconds since the epoch) of the scrape."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What stands about a metric in its ``HELP``, ``TYPE`` and ``UNIT`` lines. Its name says its type and its unit."""

    name: str
    """As Prometheus shows it: ``_total`` and ``_info`` included, a histogram's suffixes not."""
    help: str
    labels: tuple[str, ...] = ("run",)
    """An ``info`` metric has one more label per fact."""
    served_by: ServedBy = "both"
    stage: Stage = Stage.LIVE
    """From which stage of a run on an exporter serves it."""
    is_histogram: bool = False

    @property
    def type(self) -> MetricType:
        """The type, as the exposition formats name it."""
        last = self.name.rpartition("_")[2]
        return "histogram" if self.is_histogram else _TYPES.get(last, "gauge")

    @property
    def unit(self) -> str:
        """The base unit that the name ends in (before ``_total``); empty for counts, steps and states, and for what
        every Prometheus client serves of its process, which has no ``UNIT`` lines."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in _UNITS and self.name.startswith("supervisor_") else ""


@dataclass(frozen=True, kw_only=True)
class RunMetric(Metric):
    """A metric of a run."""

    read: Read
    timed: bool = False
    """Whether its samples depend on when the scrape is; those of all others are the status's alone."""
    brief: Callable[[Sample], bool] | None = None
    """Which samples an exporter serves below `Stage.DETAIL`; None: all. Of many threads few are in trouble."""

    def samples(self, status: RunStatus, now: float, stage: Stage = Stage.DETAIL) -> Iterable[Sample]:
        """Return what an exporter serves of it for a run in a stage in which it is served."""
        read = self.read(status, now)
        return read if self.brief is None or stage is Stage.DETAIL else filter(self.brief, read)


@dataclass(frozen=True, kw_only=True)
class LogdirMetric(Metric):
    """A metric of an exporter's logdir, of which it is one value. None yields no sample."""

    read: Callable[[Any], float | None]


Field = str | Callable[[Any], Any]
"""What is read of a status: the name of a field, dotted within a part of it (``session.steps``), or a function.
Where there is no such part (``session.started_at`` without a session) the value is None."""


def is_true(sample: Sample) -> bool:
    """Whether a sample is not 0: for what is trouble if it is so."""
    return bool(sample.value)


def is_false(sample: Sample) -> bool:
    """Whether a sample is 0: for what is trouble if it is not so."""
    return not sample.value


def single(name: str, help: str, field: Field, **more: Any) -> RunMetric:
    """Return a metric that is one value of a run. None yields no sample."""
    read_one = _reader(field)

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = read_one(status)
        if known is not None:
            yield Sample({"run": status.run}, known)

    return _of_run(name, help, read, **more)


def age(name: str, help: str, field: Field, **more: Any) -> RunMetric:
    """Return a gauge of the seconds since a time, computed at each scrape."""
    since = _reader(field)

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        then = since(status)
        if then is not None:
            yield Sample({"run": status.run}, max(0.0, now - then))  # below 0 when the machine's clock was set back

    return _of_run(name, help, read, timed=True, **more)


def one_of(name: str, help: str, label: str, field: Field, **more: Any) -> RunMetric:
    """Return a gauge that is 1, with a label for the present one of some names. None yields no sample."""
    now_is = _reader(field)

    def rows(status: RunStatus) -> Iterable[tuple[str, float]]:
        present = now_is(status)
        return [] if present is None else [(present, 1)]

    return _labelled(name, help, label, rows, **more)


def per_key(name: str, help: str, label: str, field: Field, **more: Any) -> RunMetric:
    """Return a counter with one sample for each key of a mapping."""
    values = _reader(field)
    return _labelled(name, help, label, lambda status: (values(status) or {}).items(), **more)


def per_thread(name: str, help: str, field: Field, **more: Any) -> RunMetric:
    """Return a metric with one sample for each service thread, of which the field is."""
    read_one = _reader(field)

    def rows(status: RunStatus) -> list[tuple[str, float | None]]:
        return [(each.name, read_one(each)) for each in status.threads]

    return _labelled(name, help, "thread", rows, **more)


def per_worker(name: str, help: str, field: Field, **more: Any) -> RunMetric:
    """Return a metric with one sample for each other process of the cluster, of which the field is."""
    read_one = _reader(field)

    def rows(status: RunStatus) -> list[tuple[str, float | None]]:
        return [(each.name, read_one(each)) for each in status.workers]

    return _labelled(name, help, "worker", rows, **more)


def histogram(name: str, help: str, field: Field, **more: Any) -> RunMetric:
    """Return a histogram of durations, from a `Distribution`."""
    values = _reader(field)

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known: Distribution | None = values(status)
        if known is None:
            return
        total = 0
        for bound, count in zip((*map(repr, map(float, known.bounds)), "+Inf"), known.counts, strict=True):
            total += count
            yield Sample({"run": status.run, "le": bound}, total, "_bucket")
        yield Sample({"run": status.run}, known.sum, "_sum")
        yield Sample({"run": status.run}, total, "_count")

    return _of_run(name, help, read, is_histogram=True, stage=Stage.DETAIL, **more)


def facts_metric(name: str, help: str, field: Field, **more: Any) -> RunMetric:
    """Return an info metric: 1, with a label for each fact of a mapping."""
    facts = _reader(field)

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        known = facts(status)
        if known:
            labels = {_label_name(fact): value for fact, value in known.items()}
            yield Sample({**labels, "run": status.run}, 1)

    return _of_run(name, help, read, **more)


def of_logdir(name: str, help: str, field: Field) -> LogdirMetric:
    """Return a metric of each logdir of an exporter, whose names begin with ``supervisor_exporter_``."""
    read = _reader(field)
    return LogdirMetric(
        name=f"supervisor_exporter_{name}", help=help, labels=("logdir",), served_by="exporter", read=read
    )


def _reader(field: Field) -> Callable[[Any], Any]:
    if not isinstance(field, str):
        return field
    if "." not in field:
        return attrgetter(field)
    part, _, rest = field.partition(".")
    read_part, read_rest = attrgetter(part), _reader(rest)
    return lambda status: None if (known := read_part(status)) is None else read_rest(known)


def _of_run(name: str, help: str, read: Read, **more: Any) -> RunMetric:
    return RunMetric(name=f"supervisor_{name}", help=help, read=read, **more)


def _labelled(
    name: str, help: str, label: str, rows: Callable[[RunStatus], Iterable[tuple[str, float | None]]], **more: Any
) -> RunMetric:
    """Return a metric with one sample for each row: what the label is, and the value; None yields no sample."""

    def read(status: RunStatus, now: float) -> Iterator[Sample]:
        for key, known in rows(status):
            if known is not None:
                yield Sample({"run": status.run, label: key}, known)

    return _of_run(name, help, read, labels=("run", label), **more)


def _label_name(fact: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", fact).lstrip("_")  # names that begin with two are Prometheus's own
    return name if name and not name[0].isdigit() else f"fact_{name}"
