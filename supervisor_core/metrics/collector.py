"""`RunCollector`: the metrics table as a prometheus_client collector; `process_samples`: what this process takes.

Nothing is counted here and nothing happens between scrapes: each scrape takes one snapshot of every run and folds it
through the table, so all values of a scrape belong to one moment and training pays nothing for being watched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample as FamilySample

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.metrics.metric import Metric, RunMetric, Sample
from supervisor_core.metrics.own_findings import OwnFindings
from supervisor_core.metrics.render import label_text
from supervisor_core.metrics.table import METRICS, RUN_METRICS, SCRAPE_SUCCESS
from supervisor_core.run.status import RunStatus

_LOG = logging.getLogger("supervisor_core")


class RunCollector:
    """Collects the metrics of a source's runs for each scrape of a registry.

    Args:
        source: returns the present status of each run. Called once per scrape, from the thread that scrapes and
            possibly from several at once. Run names identify runs: of two with the same name one is served.
        clock: measures ages; the statuses' times must come from its wall clock.

    A source that raises fails no scrape: that scrape holds ``supervisor_scrape_success 0`` and what could be read, and
    the cause is logged, once until it has changed.

    Example:
        >>> from prometheus_client import CollectorRegistry
        >>> registry = CollectorRegistry()  # or the default one, prometheus_client.REGISTRY, if that is served already
        >>> registry.register(RunCollector(lambda: []))
        >>> registry.get_sample_value("supervisor_scrape_success")
        1.0
    """

    def __init__(self, source: Callable[[], Iterable[RunStatus]], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._source = source
        self._clock = clock
        self._problems: frozenset[str] = frozenset()
        self._own = OwnFindings()

    def describe(self) -> list[Family]:
        """Return every metric without samples, so that a registry can refuse names which clash; calls no source."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield every metric that has samples, from one snapshot. Raises nothing."""
        problems: dict[str, BaseException | None] = {}
        now = self._clock.wall()
        runs = [replace(run, findings=self._own.held(run, now)) for run in self._snapshot(problems)]
        for metric in RUN_METRICS:
            family = _family(metric)
            for run in runs:
                try:
                    family.samples.extend(_samples(metric, run, now))
                except Exception as error:  # one unreadable value must not cost the others
                    problems[f"{metric.name} of run {run.run!r} could not be read: {error!r}"] = error
            if family.samples:
                yield family
        self._log(problems)
        family = _family(SCRAPE_SUCCESS)
        family.samples.append(FamilySample(SCRAPE_SUCCESS.name, {}, float(not problems)))
        yield family

    def _snapshot(self, problems: dict[str, BaseException | None]) -> list[RunStatus]:
        runs: dict[str, RunStatus] = {}
        try:
            for run in self._source():
                if runs.setdefault(run.run, run) is not run:
                    problems[f"two runs are called {run.run!r}, one is served; set Options.run_name"] = None
        except Exception as error:  # whatever the source knows already is served
            problems[f"the state of the runs could not be read: {error!r}"] = error
        return list(runs.values())

    def _log(self, problems: dict[str, BaseException | None]) -> None:
        known, self._problems = self._problems, frozenset(problems)
        for text, error in problems.items():
            if text not in known:
                _LOG.error("Metrics: %s", text, exc_info=error)
        if known and not problems:
            _LOG.info("Metrics: everything can be read again")


def _family(metric: Metric) -> Family:
    name = metric.name
    if metric.type in ("counter", "info"):
        name = name.removesuffix("_total" if metric.type == "counter" else "_info")
    return Family(name, metric.help, metric.type, metric.unit)


def _samples(metric: RunMetric, run: RunStatus, now: float) -> list[FamilySample]:
    return [
        FamilySample(metric.name + suffix, {name: label_text(label) for name, label in labels.items()}, float(value))
        for labels, value, suffix in metric.read(run, now)
    ]


PROCESS = ProcessCollector(registry=CollectorRegistry())
"""What every Prometheus client serves of its process."""


def process_samples() -> Iterator[tuple[Metric, list[Sample]]]:
    """Yield this process's CPU time, memory and file descriptors; nothing where the system does not report them."""
    for family in PROCESS.collect():
        counts = family.type == "counter"
        metric = Metric(
            name=f"{family.name}_total" if counts else family.name,
            help=family.documentation,
            labels=(),
        )
        yield metric, [Sample({}, sample.value) for sample in family.samples if not sample.name.endswith("_created")]
