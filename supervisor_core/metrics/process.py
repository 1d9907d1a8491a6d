"""What this process takes: CPU time, memory, file descriptors."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector

from supervisor_core.metrics.metric import Metric, Sample

PROCESS = ProcessCollector(registry=CollectorRegistry())
"""What every Prometheus client serves of its process."""


def process_samples() -> Iterator[tuple[Metric, list[Sample]]]:
    """Yield the same as samples of our own; nothing where the system does not report it."""
    for family in PROCESS.collect():
        counts = family.type == "counter"
        metric = Metric(
            name=f"{family.name}_total" if counts else family.name,
            type="counter" if counts else "gauge",
            help=family.documentation,
            labels=(),
        )
        yield metric, [Sample({}, sample.value) for sample in family.samples if not sample.name.endswith("_created")]
