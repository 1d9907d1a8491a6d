"""The table of metrics: conventions that hold for every row, and what each row reads."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor_core.metrics import table
from supervisor_core.metrics.metric import Metric, Sample
from supervisor_core.metrics.table import ALL_METRICS, RUN_METRICS
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.status import RunStatus, StallStatus


def read(name: str, status: RunStatus, now: float) -> list[Sample]:
    """Return the samples of one metric."""
    (metric,) = [metric for metric in RUN_METRICS if metric.name == name]
    return list(metric.read(status, now))


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda metric: metric.name)
def test_a_metric_keeps_the_conventions(metric: Metric) -> None:
    """One prefix; `_total` on counters only, `_info` on infos only; the unit ends the name; the help is a sentence."""
    base = metric.name.removesuffix("_total").removesuffix("_info")
    assert metric.name.startswith("supervisor_")
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.name.endswith("_info") == (metric.type == "info")
    assert base.endswith(f"_{metric.unit}") if metric.unit else not base.endswith(("_seconds", "_bytes", "_ratio"))
    assert metric.help.endswith(".")
    assert "\n" not in metric.help


def test_a_name_stands_for_one_metric() -> None:
    """No name is there twice."""
    names = [metric.name for metric in ALL_METRICS]
    assert sorted(names) == sorted(set(names))


def test_labels_are_those_of_the_table(running: RunStatus, clock) -> None:
    """Every sample of a metric has the labels that the table names; a histogram's buckets have `le` besides."""
    found = Finding(kind="failed", severity="page", since=1.0, text="It has failed.")
    stall = StallStatus(phase="training")
    failed = replace(running, state="failed", error="ValueError: nan", stall=stall, findings=(found,))
    for metric in RUN_METRICS:
        samples = [*metric.read(failed, clock.now)] or [*metric.read(running, clock.now)]  # a failed run has no speed
        assert samples, metric.name
        for sample in samples:
            if metric.name == "supervisor_finding":
                assert {*sample.labels} == {*metric.labels, "host", "logdir", "team", "user"}
            elif metric.type != "info":
                assert {*sample.labels} - {"le"} == {*metric.labels}
            assert sample.labels["run"] == "mnist/train"


def test_a_finding_has_a_bounded_text_and_no_cost(running: RunStatus) -> None:
    """What changes with each step would be another series each time; control characters are shown."""
    found = Finding(kind="stalled", severity="page", text="hangs\n" + "x" * 900, cost="12 steps", action="look")
    status = replace(running, findings=(found,))
    [value] = read("supervisor_finding", status, 0.0)
    about = {"run": "mnist/train", "kind": "stalled", "severity": "page"}
    whose = {"host": "trainer-0", "logdir": "/data/mnist", "team": "vision", "user": "ada"}
    assert value == ({**about, **whose}, 1, "")
    [sample] = read("supervisor_finding_text_info", status, 0.0)
    text = sample.labels.pop("text")
    assert text.startswith("hangs\\nxxx") and len(text) == 500
    assert sample.labels == {**about, "action": "look"}


def test_a_stalled_run_has_one_series_of_its_place(running: RunStatus) -> None:
    """What is not known has no label; a place is bounded, and in one line; without a stall there is no series."""
    assert read("supervisor_stall_info", running, 0.0) == []
    place = StallStatus(phase="training", thread="MainThread", location="a\n.py:1 in f" + "x" * 500, activity="busy")
    [sample] = read("supervisor_stall_info", replace(running, stall=place), 0.0)
    location = sample.labels.pop("location")
    assert location.startswith("a\\n.py:1 in fxxx") and len(location) == 120
    assert sample.labels == {"run": "mnist/train", "phase": "training", "thread": "MainThread", "activity": "busy"}
    of_rank = replace(place, verdict="rank 2 hangs", culprit="rank 2", culprit_location="train.py:14 in stuck")
    [sample] = read("supervisor_stall_info", replace(running, stall=of_rank), 0.0)
    known = {"culprit": "rank 2", "location": "train.py:14 in stuck", "phase": "training", "verdict": "rank 2 hangs"}
    assert sample.labels == {"run": "mnist/train", **known}
    undecided = replace(place, verdict="undecided: two groups: ...")
    [sample] = read("supervisor_stall_info", replace(running, stall=undecided), 0.0)
    assert sample.labels == {"run": "mnist/train", "phase": "training", "verdict": "undecided: two groups: ..."}
    [sample] = read("supervisor_stall_info", replace(running, stall=StallStatus(phase="saving")), 0.0)
    assert sample == Sample({"run": "mnist/train", "phase": "saving"}, 1)


def test_only_timed_metrics_depend_on_the_time(running: RunStatus, clock) -> None:
    """Whoever writes a run's metrics beforehand has to write again for a scrape only those that are marked so."""
    for metric in RUN_METRICS:
        early, late = (list(metric.read(running, clock.now + secs)) for secs in (0.0, 1000.0))
        assert (early != late) == metric.timed, metric.name


def test_a_clock_set_back_makes_no_negative_age(running: RunStatus, clock) -> None:
    """An age is never below 0."""
    assert read("supervisor_checkpoint_age_seconds", running, clock.now - 3600)[0].value == 0.0


@pytest.mark.parametrize(
    ("fact", "label"),
    [
        ("google-crc32c", "google_crc32c"),
        ("__name__", "name__"),
        ("3d", "fact_3d"),
        ("", "fact_"),
        ("größe", "gr__e"),
        ("run", "run"),
    ],
)
def test_a_fact_becomes_a_label_that_prometheus_takes(running: RunStatus, clock, fact: str, label: str) -> None:
    """Whatever a fact is called, its label is a valid name that Prometheus does not keep for itself."""
    (sample,) = read(
        "supervisor_build_info", replace(running, session=replace(running.session, versions={fact: "1"})), clock.now
    )
    assert sample.labels == {label: "1", "run": "mnist/train"}  # the label of the run is the run's own


def test_the_table_needs_no_metrics_library() -> None:
    """Whoever reads the table, a page or an exporter, needs nothing but it."""
    tree = ast.parse(Path(table.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if name and name.startswith("prometheus_client")]


def test_one_state_is_served(running: RunStatus) -> None:
    """The present state has a series, which is 1; no other has one."""
    [sample] = read("supervisor_run_state", replace(running, state="lost"), 0)
    assert sample == Sample({"run": "mnist/train", "state": "lost"}, 1)
    assert read("supervisor_run_state", replace(running, state=None), 0) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ValueError: loss is NaN at step 7", "ValueError"),
        ("torch.cuda.OutOfMemoryError: 3 MiB", "torch.cuda.OutOfMemoryError"),
        ("KeyError", "KeyError"),
        ("ValueError at train.py:27 in step: no such class", "ValueError"),
        ("ImportError at train.py:3 in <module>", "ImportError"),
        ("SIGKILL on rank 1", "SIGKILL"),
        ("something went wrong", "unknown"),
        (None, "unknown"),
    ],
)
def test_of_an_error_only_the_type_is_a_label(running: RunStatus, text: str | None, error: str) -> None:
    """Its text may be another one each time, and would be another series."""
    (sample,) = read("supervisor_run_error_info", replace(running, state="failed", error=text), 0)
    assert sample.labels == {"run": "mnist/train", "error": error}
    assert read("supervisor_run_error_info", replace(running, state="running", error=text), 0) == []
