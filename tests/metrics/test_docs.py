"""docs/metrics.md says what the code does."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import textwrap
from pathlib import Path

import pytest

from supervisor_core.base.options import OPTION_NAMES, PHASES
from supervisor_core.metrics.metric import Metric, RunMetric, Stage, is_false, is_true
from supervisor_core.metrics.table import ALL_METRICS, EXPORTER_METRICS, RUN_METRICS

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
TEXT = DOCS.read_text(encoding="utf-8") if DOCS.parent.is_dir() else ""
QUERIES = re.findall(r"```promql\n(.*?)```", TEXT, re.DOTALL)

pytestmark = pytest.mark.skipif(not TEXT, reason="the documentation is not part of what is tested here")


def stage_of(metric: Metric) -> str:
    """How far an exporter serves a metric, as the table has it: empty for what is about no run, or of live ones."""
    is_of_runs = "run" in metric.labels and metric.served_by != "trainer"
    if isinstance(metric, RunMetric) and metric.brief in (is_true, is_false):
        assert metric.stage is Stage.LIVE
        return "trouble"
    return {Stage.AT_REST: "always", Stage.DEAD: "dead", Stage.DETAIL: "detail"}.get(metric.stage, "") * is_of_runs


def test_every_metric_is_documented() -> None:
    """The table in the documentation is the table in the code, row for row."""
    rows = re.findall(r"^\| `(supervisor_\w+)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert rows == [
        (
            metric.name,
            " | ".join(
                (
                    metric.type,
                    ", ".join(f"`{label}`" for label in metric.labels if label != "run" or metric not in RUN_METRICS),
                    "" if metric.served_by == "both" or metric in EXPORTER_METRICS else metric.served_by,
                    stage_of(metric),
                    metric.help,
                )
            ),
        )
        for metric in ALL_METRICS
    ]


def test_every_name_exists() -> None:
    """No metric is named in the documentation that is not served."""
    served = {metric.name for metric in ALL_METRICS}
    served |= {f"{metric.name}_bucket" for metric in ALL_METRICS if metric.type == "histogram"}
    assert set(re.findall(r"\bsupervisor_(?!core\b)\w+", TEXT)) <= served


def test_every_phase_is_documented() -> None:
    """The phases are listed as they are."""
    assert f"`phase` is one of {', '.join(f'`{phase}`' for phase in PHASES)}." in TEXT


def test_every_option_exists() -> None:
    """Options are called what they are called."""
    named = re.findall(r"Options\.(\w+)", TEXT) + re.findall(r"Options\((\w+)=", TEXT)
    assert named and set(named) <= set(OPTION_NAMES)


def test_the_scrape_configuration_is_valid(tmp_path: Path, promtool) -> None:
    """Prometheus takes the configuration shown."""
    (block,) = re.findall(r"^    scrape_configs:\n(?:    .*\n)+", TEXT, re.MULTILINE)
    path = tmp_path / "prometheus.yml"
    path.write_text(textwrap.dedent(block))
    promtool("check", "config", path)


def test_every_query_is_valid(tmp_path: Path, promtool) -> None:
    """Prometheus takes each query shown as a rule."""
    rules = [{"record": f"docs:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "docs", "rules": rules}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", path)


@pytest.mark.parametrize(
    "module",
    [
        "base.address",
        *("metrics.collector", "metrics.config_files"),
        *("metrics.labels", "metrics.render", "metrics.server"),
        *("restarter.failure", "cli"),
    ],
)
def test_the_examples_in_the_code_work(module: str) -> None:
    """What the docstrings show is what happens."""
    result = doctest.testmod(importlib.import_module(f"supervisor_core.{module}"))
    assert result.failed == 0
    assert result.attempted > 0
