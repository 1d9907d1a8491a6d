"""What the tests of the monitoring share: Prometheus's own tools, as far as they are installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

# Modules that only tests of this directory import, under names that no other module has.
for name in (
    "served",
    "happenings",
    "scenarios",
    "state_scenarios",
    "cluster_scenarios",
    "exporter_scenarios",
    "writing_scenarios",
    "silent_scenarios",
    "servers",
    "end_to_end",
):
    if f"monitoring_{name}" not in sys.modules:
        spec = importlib.util.spec_from_file_location(f"monitoring_{name}", Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

exporter, prometheus, trainer, webhook = (
    getattr(sys.modules["monitoring_end_to_end"], name) for name in ("exporter", "prometheus", "trainer", "webhook")
)


@pytest.fixture(scope="session")
def rules_test(promtool: Callable[..., str]) -> Callable[..., str]:
    """Returns a function that puts series through rules and queries, by promtool's own clock."""

    def run(
        directory: Path,
        series: Mapping[str, str],
        step: int,
        *,
        rules: Mapping[str, Any] | None = None,
        queries: Iterable[tuple[str, float, Mapping[str, float]]] = (),
        alerts: Iterable[tuple[str, float, Sequence[tuple[Mapping[str, str], Mapping[str, str]]]]] = (),
        check: bool = True,
    ) -> str:
        """Run it; return what promtool prints.

        Args:
            directory: for its files.
            series: name and labels -> values, one each ``step`` seconds.
            step: how often the rules are evaluated, too.
            rules: the file of rules.
            queries: each with its time and what it returns: labels -> value.
            alerts: each with its time and what fires of it: labels and annotations.
            check: whether what is not as expected fails the test.
        """
        test = {
            "interval": f"{step}s",
            "input_series": [{"series": name, "values": text} for name, text in series.items()],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": f"{int(at)}s",
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
                }
                for expr, at, samples in queries
            ],
            "alert_rule_test": [
                {
                    "alertname": name,
                    "eval_time": f"{int(at)}s",
                    "exp_alerts": [{"exp_labels": labels, "exp_annotations": texts} for labels, texts in firing],
                }
                for name, at, firing in alerts
            ],
        }
        # In C: in Python this takes as long as promtool itself.
        dump = partial(yaml.dump, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        (directory / "rules.yaml").write_text(dump(rules or {"groups": []}))
        asked = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{step}s", "tests": [test]}
        (directory / "test.yaml").write_text(dump(asked))
        return promtool("test", "rules", directory / "test.yaml", check=check)

    return run
