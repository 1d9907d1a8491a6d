"""The files beside this one that Prometheus and Grafana are configured with.

``rules.yaml`` is what Prometheus records, and when it alerts; thresholds are filled in.

``dashboard.json`` is the Grafana dashboard: the fleet, one run and its cluster, the exporter. It asks for what is
served, not for what the rules record, so it works without them. Trainer and exporter serve the same names: every query
takes the maximum by run, or it would show both. To change it, import the file into Grafana, edit it there, and export
it as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from supervisor_core.monitoring.thresholds import DEFAULT_RUNBOOK_BASE, Thresholds, duration

_PLACE = re.compile(r"\$\{(\w+)\}")
_KEY = re.compile(r"\b(by|on) \(run\b")
"""Where a rule names the labels that identify a run."""
_SELECTED = "{run=%q}` $labels.run"
"""Where an alert's text asks for a series of the run."""


def rule_groups(
    limits: Thresholds | None = None, *, runbook_base: str = DEFAULT_RUNBOOK_BASE, by: Sequence[str] = ("run",)
) -> dict[str, Any]:
    """Return the rule file as Prometheus and the operator's ``PrometheusRule`` know it: ``{"groups": [...]}``.

    Args:
        limits: what is compared with. Default: `Thresholds()`.
        runbook_base: where docs/alerts.md is published; each alert's ``runbook_url`` is this, ``#``, and its name in
            lower case.
        by: the labels that identify a run, ``run`` first. Every recorded series and every alert of a run has them.

    Example:
        >>> [group["name"] for group in rule_groups()["groups"]]
        ['supervisor']
    """
    text = files(__package__).joinpath("rules.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = _filled(
        yaml.safe_load(text), {**_values(limits or Thresholds()), "runbook_base": runbook_base}
    )
    key = rf"\1 ({', '.join(by)}"
    selected = f"{{{','.join(f'{label}=%q' for label in by)}}}` {' '.join(f'$labels.{label}' for label in by)}"
    for rule in content["groups"][0]["rules"]:
        rule["expr"] = _KEY.sub(key, rule["expr"])
        for name in rule.get("annotations", ()):
            rule["annotations"][name] = rule["annotations"][name].replace(_SELECTED, selected)
    return content


def to_yaml(*documents: Any) -> str:
    """Return one YAML text that holds the documents, in order; keys stay as given, long expressions are blocks."""
    text: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True, explicit_start=len(documents) > 1
    )
    return text


def _values(limits: Thresholds) -> dict[str, str]:
    """Return what stands for each ``${name}``: ``hold_secs`` is a number, ``hold`` a duration of Prometheus."""
    values = {name: f"{value:.10g}" for name, value in vars(limits).items()}
    values |= {
        name.removesuffix("_secs"): duration(value) for name, value in vars(limits).items() if name.endswith("_secs")
    }
    return values | {
        "slow_past": duration(24 * limits.slow_window_secs),
        "slow_gap": duration(4 * limits.slow_window_secs),
        "slow_points": f"{max(1.0, limits.slow_window_secs / limits.interval_secs / 2):.10g}",
        "goodput_least_secs": f"{limits.goodput_window_secs / 3:.10g}",
    }


def _filled(part: Any, values: Mapping[str, str]) -> Any:
    if isinstance(part, dict):
        return {key: _filled(value, values) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    return _PLACE.sub(lambda place: values[place[1]], part)


class _Dumper(yaml.SafeDumper):
    """A dumper of its own, so that other users of PyYAML in the process keep theirs as it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dashboard() -> dict[str, Any]:
    """Return the dashboard, as Grafana imports it (11 and later).

    Example:
        >>> dashboard()["title"]
        'Supervised training'
    """
    content: dict[str, Any] = json.loads(files(__package__).joinpath("dashboard.json").read_text(encoding="utf-8"))
    return content
