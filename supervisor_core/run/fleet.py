"""`FleetReport`: what the runs of a fleet did with their time in a window, what failed, and what that cost.

Goodput is the effective training time ratio, ETTR, of Kokolis et al., "Revisiting Reliability in Large-Scale Machine
Learning Research Clusters" (arXiv 2410.21680), and of Wan et al., "Robust LLM Training Infrastructure at ByteDance"
(arXiv 2509.16293): productive time divided by wall time, here summed over runs, each weighted by its devices. Time in a
scheduler's queue counts as far as it lies between two sessions of a run. MTTF is that of the first paper: time in which
runs ran, divided by their failures, by the size of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Unplanned ends, and the mean time to failure."""

    failures: int
    by_reason: Mapping[str, int] = field(default_factory=dict)
    """``lost``, ``error``, ``oom`` or ``hang``."""
    alive_secs: float
    """The time in which sessions with telemetry ran, each session once, whatever its size."""
    alive_device_secs: float
    mttf_secs: float | None
    """None without a failure."""
    per_1000_device_days: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Where the time of some sessions went. A device second is a second of wall time of a run, times its devices."""

    key: str | None = None
    """What they have in common; None of all, and of those of which it is unknown."""
    runs: int
    sessions: int
    wall_secs: float
    device_secs: float
    """With telemetry."""
    unknown_device_secs: float
    """Of sessions without telemetry, which no other figure counts."""
    goodput: float | None
    """Productive device seconds divided by `device_secs`: the ETTR."""
    secs: Mapping[str, float]
    """Device seconds by `BUCKETS` and ``at_risk``; they sum to `device_secs`."""
    lost_device_secs: float
    """All but the productive ones."""
    failures: Failures


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """Runs whose numbers of devices are within a factor of two."""

    devices_low: int
    devices_high: int
    runs: int
    failures: Failures


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailures:
    """The failures on one host, and those to expect."""

    host: str
    alive_secs: float
    """Its exposure: how long sessions with telemetry ran on it."""
    failures: int
    """Of sessions that did a step: without one, the program is the likelier cause."""
    expected: float
    """As many as it would have if each run failed as often as all of its size, wherever it runs."""
    runs: int
    """Runs that failed there."""
    is_suspect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What one run lost."""

    run: str
    labels: Mapping[str, str]
    devices: int
    device_secs: float
    lost_device_secs: float
    goodput: float | None
    cause: str
    """The bucket that most of it went to."""
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCost:
    """What another checkpoint interval is expected to save one run, by Young's formula."""

    run: str
    present_interval_secs: float
    recommended_interval_secs: float
    save_cost_secs: float
    mtbf_secs: float
    is_pooled: bool
    """Whether `mtbf_secs` is the MTTF of all runs of its size: it has failed too rarely itself."""
    present_cost_ratio: float
    recommended_cost_ratio: float
    avoidable_device_secs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCosts:
    """What checkpoints cost: saving, and repeating what was not saved. Those expected are by Young's formula, of runs
    of which the save cost and a mean time between failures are known."""

    save_device_secs: float
    recomputed_device_secs: float
    runs: int
    """Of which the costs are known."""
    present_device_secs: float
    recommended_device_secs: float
    """Expected at the present intervals, and at the recommended ones."""
    worst: tuple[CheckpointCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRoute:
    """What a Prometheus says of the alerts of a fleet."""

    rules: int
    """Alert rules of this project that it evaluates."""
    alertmanagers: int
    """To which it sends."""
    scraped: frozenset[str]
    """Runs that it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched:
    """A run that seems to be unwatched."""

    run: str
    why: str
    """``no_telemetry``: it has written within a day, and no alert can say that it died. ``given_up``: it is lost or has
    failed, and was not started again for a day, so its alert has ended. ``not_scraped``: it is live, and the Prometheus
    that was asked does not know it."""
    since: float | None
    """When it ended, or wrote its last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """A fleet in one window."""

    since: float | None
    """The begin of the window; without one, of the first session."""
    until: float
    by: str | None
    unsized_runs: int
    """Runs that record neither devices nor processes: they count as one device."""
    total: Usage
    groups: tuple[Usage, ...]
    """By `by`, what lost most first."""
    sizes: tuple[SizeClass, ...]
    hosts_tested: int
    hosts: tuple[HostFailures, ...]
    """Those with failures, those with the most beyond the expected first."""
    costliest: tuple[RunCost, ...]
    checkpoints: CheckpointCosts
    alert_rules: int | None
    alertmanagers: int | None
    """As in `AlertRoute`; None where no Prometheus was asked."""
    unwatched: tuple[Unwatched, ...]
