"""`Alert`: an alert rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
"""``critical``: work is being lost, somebody must act now. ``warning``: today. ``info``: when there is time."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert rule. The texts are templates of Prometheus."""

    name: str
    severity: Severity
    expr: str
    hold_secs: float
    """For how long the expression must be true without a break (``for``)."""
    summary: str
    description: str


def number(value: float) -> str:
    """Return a threshold as it stands in an expression."""
    return f"{value:.10g}"


def more(series: str, window: str) -> str:
    """Return by how much a series has risen within a window, exactly: no rate is guessed from it."""
    return f"{series} - min_over_time({series}[{window}])"


def more_lately(series: str, window: str) -> str:
    """Return the same, also while no source reports the series."""
    return f"last_over_time({series}[{window}]) - min_over_time({series}[{window}])"
