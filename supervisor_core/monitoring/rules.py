"""The rule file: what Prometheus records and when it alerts, as plain data and as YAML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from supervisor_core.monitoring.alerts import alerts
from supervisor_core.monitoring.recordings import recordings
from supervisor_core.monitoring.thresholds import DEFAULT_RUNBOOK_BASE, Thresholds, duration

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
    limits = limits or Thresholds()
    key = rf"\1 ({', '.join(by)}"
    selected = f"{{{','.join(f'{label}=%q' for label in by)}}}` {' '.join(f'$labels.{label}' for label in by)}"
    rules: list[dict[str, Any]] = [
        {"record": rule.record, "expr": _KEY.sub(key, rule.expr)} for rule in recordings(limits)
    ]
    for alert in alerts(limits):
        rule: dict[str, Any] = {"alert": alert.name, "expr": _KEY.sub(key, alert.expr)}
        if alert.hold_secs:
            rule["for"] = duration(alert.hold_secs)
        rule["labels"] = {"severity": alert.severity}
        rule["annotations"] = {
            "summary": alert.summary.replace(_SELECTED, selected),
            "description": alert.description.replace(_SELECTED, selected),
            "runbook_url": f"{runbook_base}#{alert.name.lower()}",
        }
        rules.append(rule)
    # One group: its rules are evaluated one after the other, so each sees what those before it have just recorded.
    return {"groups": [{"name": "supervisor", "interval": duration(limits.interval_secs), "rules": rules}]}
