"""The collector, judged by whole scrapes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from supervisor_core.events.telemetry import ThreadStatus
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.table import METRICS
from supervisor_core.run.status import RunStatus

DIRECTORY = Path(__file__).parent / "expected"
EXPECTED = (DIRECTORY / "running.prom").read_text()

HOSTILE = [
    'quo"te',
    "back\\slash",
    "new\nline",
    "tab\tand\rreturn",
    "{run=~'.*'} 1",
    "ümlaut/模型/🚂",
    os.fsdecode(b"no\xffutf8"),
    "",
    " # EOF",
]


def scrape(*runs: RunStatus, clock) -> str:
    """Return what a scrape of these runs shows."""
    return generate_latest(RunCollector(lambda: runs, clock=clock)).decode()


def test_a_scrape_of_a_running_session(running: RunStatus, clock, renewed: Callable[[Path, str], str]) -> None:
    """A scrape shows exactly this, byte for byte."""
    shown = scrape(running, clock=clock)
    assert shown == renewed(DIRECTORY / "running.prom", shown)


def test_a_scrape_at_the_start(starting: RunStatus, clock, renewed: Callable[[Path, str], str]) -> None:
    """Of what is not known yet there is no series, and no name either."""
    shown = scrape(starting, clock=clock)
    assert shown == renewed(DIRECTORY / "starting.prom", shown)


def test_promtool_has_nothing_to_say(running: RunStatus, starting: RunStatus, clock, promtool) -> None:
    """Prometheus's own linter finds neither an error nor a breach of its conventions."""
    assert promtool("check", "metrics", given=scrape(running, starting, clock=clock)) == ""


def test_openmetrics_can_be_read(running: RunStatus, starting: RunStatus, clock) -> None:
    """As OpenMetrics the same scrape parses strictly, with every metric, its type and its unit."""
    text = openmetrics_latest(RunCollector(lambda: [running, starting], clock=clock)).decode()
    families = {family.name: family for family in openmetrics_families(text)}
    found = {(family.name, family.type, family.unit) for family in families.values()}
    assert found == {
        (metric.name.removesuffix("_total").removesuffix("_info"), metric.type, metric.unit)
        for metric in METRICS
        if metric.name not in ("supervisor_run_error_info", "supervisor_stall_info")  # of failed and stalled runs
    }
    assert not [s for family in families.values() for s in family.samples if s.name.endswith("_created")]
    assert not [s for family in families.values() for s in family.samples if s.timestamp is not None]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_do_no_harm(running: RunStatus, clock, name: str, promtool) -> None:
    """Whatever a directory, a thread or a reason is called, the scrape parses and holds that name, and only there."""
    run = replace(running, run=name, threads=(ThreadStatus(name=name, state="idle"),), restarts={name: 1})
    collector = RunCollector(lambda: [run], clock=clock)
    shown = name.encode("utf-8", "backslashreplace").decode()
    texts = generate_latest(collector).decode(), openmetrics_latest(collector).decode()
    for text, parse in zip(texts, (text_string_to_metric_families, openmetrics_families), strict=True):
        samples = [sample for family in parse(text) for sample in family.samples]
        assert {sample.labels["run"] for sample in samples if "run" in sample.labels} == {shown}
        assert {sample.labels["thread"] for sample in samples if "thread" in sample.labels} == {shown}
        assert len(samples) == len([line for line in text.split("\n") if line and not line.startswith("# ")])
    assert promtool("check", "metrics", given=texts[0]) == ""


def test_one_snapshot_per_scrape(running: RunStatus, clock) -> None:
    """The source is asked once per scrape and never in between, nor to register the collector."""
    asked = []

    def source() -> list[RunStatus]:
        asked.append(True)
        return [running]

    registry = CollectorRegistry(auto_describe=True)
    registry.register(RunCollector(source, clock=clock))
    assert len(asked) == 0
    generate_latest(registry)
    generate_latest(registry)
    assert len(asked) == 2


def test_a_second_collector_in_a_registry_is_refused(running: RunStatus, clock) -> None:
    """A registry learns the names when the collector is registered, so two of them cannot double every series."""
    registry = CollectorRegistry()
    registry.register(RunCollector(lambda: [running], clock=clock))
    with pytest.raises(ValueError, match="supervisor_active"):
        registry.register(RunCollector(lambda: [running], clock=clock))


def test_it_lives_beside_others_in_a_registry(running: RunStatus, clock) -> None:
    """Registered in a user's registry, it adds its series and can be restricted to some of them."""
    registry = CollectorRegistry()
    registry.register(RunCollector(lambda: [running], clock=clock))
    assert registry.get_sample_value("supervisor_goodput_ratio", {"run": "mnist/train"}) == 0.875
    only = registry.restricted_registry(["supervisor_steps_lost_total"])
    assert [sample.value for family in only.collect() for sample in family.samples] == [130.0]


def test_a_failing_source_leaves_a_scrape(caplog: pytest.LogCaptureFixture, running: RunStatus, clock) -> None:
    """When the state cannot be read the scrape succeeds and says so; the log has the cause once, and the recovery."""
    broken = True

    def source() -> list[RunStatus]:
        if broken:
            raise RuntimeError("no state today")
        return [running]

    collector = RunCollector(source, clock=clock)
    with caplog.at_level(logging.INFO):
        texts = [generate_latest(collector).decode() for _ in range(3)]
        broken = False
        texts.append(generate_latest(collector).decode())
    unreadable = EXPECTED[EXPECTED.index("# HELP supervisor_scrape_success") :].replace("success 1.0", "success 0.0")
    assert texts == [unreadable, unreadable, unreadable, EXPECTED]
    assert [record.getMessage() for record in caplog.records] == [
        "Metrics: the state of the runs could not be read: RuntimeError('no state today')",
        "Metrics: everything can be read again",
    ]
    assert caplog.records[0].exc_info is not None


def test_what_came_before_the_failure_is_served(running: RunStatus, clock) -> None:
    """When a source fails half-way, the scrape has the runs that it gave before."""

    def source() -> Iterator[RunStatus]:
        yield running
        raise OSError("the second run's file is gone")

    assert generate_latest(RunCollector(source, clock=clock)).decode() == EXPECTED.replace("success 1.0", "success 0.0")


def test_one_unreadable_value_costs_no_other(running: RunStatus, starting: RunStatus, clock) -> None:
    """A value that is no number is left out and marks the scrape; every other series is there."""
    broken = replace(running, goodput="good")  # type: ignore[arg-type]
    expected = [
        line.replace("success 1.0", "success 0.0")
        for line in EXPECTED.splitlines()
        if "supervisor_goodput_ratio" not in line
    ]
    assert scrape(broken, clock=clock).splitlines() == expected
    both = scrape(broken, starting, replace(running, run="good"), clock=clock)
    assert 'supervisor_goodput_ratio{run="good"} 0.875' in both


def test_two_runs_of_one_name_make_no_double_series(
    caplog: pytest.LogCaptureFixture, running: RunStatus, starting: RunStatus, clock
) -> None:
    """Of two runs with one name the first is served, and the log says what to do."""
    text = scrape(running, replace(starting, run="mnist/train"), clock=clock)
    assert text == EXPECTED.replace("success 1.0", "success 0.0")
    assert "two runs are called 'mnist/train', one is served; set Options.run_name" in caplog.text
