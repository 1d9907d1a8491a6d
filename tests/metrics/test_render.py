"""The fast renderer against prometheus_client's encoders: not a byte of difference."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.samples import Sample as LibrarySample

from supervisor_core.events.telemetry import ThreadStatus
from supervisor_core.metrics.collector import OwnFindings, RunCollector
from supervisor_core.metrics.metric import Metric, Sample
from supervisor_core.metrics.render import END, TEXT, choose_format, header, label_text, lines
from supervisor_core.metrics.table import ALL_METRICS, RUN_METRICS, SCRAPE_SUCCESS
from supervisor_core.run.status import RunStatus


class Served:
    """What the library's encoders ask for: families, here of one metric with these samples."""

    def __init__(self, metric: Metric, samples: list[Sample]) -> None:
        name = metric.name.removesuffix("_total" if metric.type == "counter" else "_info")
        self.family = Family(name, metric.help, metric.type, metric.unit)
        self.family.samples = [
            LibrarySample(metric.name + suffix, {key: label_text(label) for key, label in labels.items()}, float(value))
            for labels, value, suffix in samples
        ]

    def collect(self) -> Iterator[Family]:
        yield self.family


def check(metric: Metric, samples: list[Sample]) -> None:
    """Fail unless both formats are what the library writes."""
    served = Served(metric, samples)
    written = lines(metric, samples)
    assert header(metric, False) + written == as_now(generate_latest(served))
    assert header(metric, True) + written + END == as_now(openmetrics_latest(served))


def as_now(text: bytes) -> bytes:
    """What the library wrote, with an exponent of two digits: before 0.26 it put a zero in front of them."""
    return re.sub(rb"e\+0(\d\d)$", rb"e+\1", text, flags=re.MULTILINE)


@given(st.floats())
def test_any_number(value: float) -> None:
    """Every float is written as the library writes it, infinities and NaN too."""
    check(SCRAPE_SUCCESS, [Sample({}, value)])


@given(st.dictionaries(st.sampled_from(["run", "thread", "activity"]), st.text(), min_size=1), st.integers())
def test_any_label(labels: dict[str, str], value: int) -> None:
    """Every text can be a label's value; labels are in the order of their names."""
    check(ALL_METRICS[0], [Sample(labels, value)])


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda metric: metric.name)
def test_every_metric_has_its_header(metric: Metric) -> None:
    """Type, unit and help of each metric are written as the library writes them, in either format."""
    check(metric, [Sample({"run": "a"}, 1.0)])


def test_a_help_is_escaped() -> None:
    """What would end a line, or looks like an escape, is escaped as each format wants it."""
    check(replace(SCRAPE_SUCCESS, help='Back\\slash, "quotes" and a\nline.'), [Sample({}, 1.0)])


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_whole_run(running: RunStatus, clock, openmetrics: bool) -> None:
    """All metrics of a run, put together, are the collector's scrape, byte for byte."""
    run = replace(running, run='quo"te', threads=(ThreadStatus(name=os.fsdecode(b"no\xffutf8"), state="idle"),))
    run = replace(run, findings=OwnFindings().held(run, clock.now))
    written = [(metric, lines(metric, metric.read(run, clock.now))) for metric in RUN_METRICS]
    parts = [header(metric, openmetrics) + text for metric, text in written if text]
    parts.append(header(SCRAPE_SUCCESS, openmetrics) + lines(SCRAPE_SUCCESS, [Sample({}, 1.0)]))
    encode: Callable[[RunCollector], bytes] = openmetrics_latest if openmetrics else generate_latest
    assert b"".join(parts) + (END if openmetrics else b"") == encode(RunCollector(lambda: [run], clock=clock))


def test_what_is_no_number_is_refused() -> None:
    """A value that is no number raises, rather than spoil a scrape."""
    with pytest.raises(ValueError, match="good"):
        lines(SCRAPE_SUCCESS, [Sample({}, "good")])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", False),
        ("application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,text/plain;q=0.4", True),
    ],
)
def test_the_client_chooses(accept: str, openmetrics: bool) -> None:
    """The format is the one that the library would choose, and is called as the library calls it."""
    chosen = choose_format(accept)
    assert (chosen.openmetrics, chosen.content_type) == (openmetrics, choose_encoder(accept)[1])


@pytest.mark.parametrize("version", ["2.0.\r\n Set-Cookie: a", "2.0.\x00", "2.0.\u00e9", "1.0.<b>"])
def test_no_header_repeats_what_no_header_can_hold(version: str) -> None:
    """A version with line breaks or controls in it, which the library would repeat in its content type, gets text."""
    assert choose_format(f"application/openmetrics-text;version={version}") == TEXT
