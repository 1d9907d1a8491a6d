"""`Reading`: what the trainer says of itself over HTTP, and how it is asked."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urljoin

from prometheus_client.parser import text_string_to_metric_families

HTTP_SECS = 5.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The run's metrics at one moment; None where the run does not know."""

    phase: str | None = None
    step: int | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    """The step of the newest good checkpoint."""
    checkpoint_age_secs: float | None = None
    page: str = ""
    """The page itself."""


def read_metrics(text: str) -> Reading:
    """Return what a page of metrics in Prometheus's text format says."""
    values: dict[str, float] = {}
    phase = None
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name] = sample.value
            if sample.name == "supervisor_phase" and sample.value:
                phase = sample.labels["phase"]
    return Reading(
        phase=phase,
        step=_whole(values.get("supervisor_global_step")),
        steps_per_second=values.get("supervisor_steps_per_second"),
        checkpoint_step=_whole(values.get("supervisor_checkpoint_last_success_step")),
        checkpoint_age_secs=values.get("supervisor_checkpoint_age_seconds"),
        page=text,
    )


def scrape(url: str) -> Reading | None:
    """Ask for the metrics; return None where there is no answer."""
    page = _get(url)
    return None if page is None else read_metrics(page)


def is_ready(url: str) -> bool:
    """Ask whether the run is training, as a load balancer or an orchestrator would."""
    return _get(urljoin(url, "/-/ready")) is not None


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=HTTP_SECS) as answer:
            text: str = answer.read().decode()
            return text
    except (OSError, HTTPException):  # refused, timed out, 503, hung up in the middle: the process comes or goes
        return None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
