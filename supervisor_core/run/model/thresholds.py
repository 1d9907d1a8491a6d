"""`Thresholds`: from when on an alert is true, and durations as Prometheus writes them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

DEFAULT_RUNBOOK_BASE = "http://127.0.0.1:10988/alerts"
"""The page of alerts that the exporter serves, at the exporter's default address."""

RUN_LABELS = ("run", "cluster")
"""The labels that identify a run for the rules, where nothing else is said. Trainers and exporters do not serve
``cluster``: a scraper adds it to both. Where it does not, it is empty."""

KUBERNETES_RUN_LABELS = ("run", "namespace", "cluster")
"""The same where the Prometheus operator adds ``namespace`` to trainers, and to an exporter in their namespace."""

PUSH_SECS = 15.0
"""How often a training pushes its metrics, where it does. The rules do not count what is older than two pushes."""

LEAST_SHARE = 0.25
"""Of a step: what a process must need more than the others to be a straggler. The share measured in one minute is off
by up to half of this by chance."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(?:[0-9]+w)?(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m(?!s))?(?:[0-9]+s)?(?:[0-9]+ms)?")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration: ``90s``, ``1h30m`` or ``500ms`` as in Prometheus, or plain seconds, ``90``.

    Raises:
        ValueError: if it is not a duration above 0.
    """
    parts = re.findall(r"([0-9]+)(ms|[smhdw])", text) if _DURATION.fullmatch(text) else []
    secs = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        secs = float(text)
    if not secs:
        raise ValueError(f"{text!r} is not a duration above 0; write 15, 15s, 2m or 1h30m")
    return secs


def duration(secs: float) -> str:
    """Return seconds as a duration of one unit: 90 -> ``90s``, 3600 -> ``1h``. Rounds to a millisecond."""
    millis = round(secs * 1000)
    for unit in ("d", "h", "m", "s"):
        size = round(_UNITS[unit] * 1000)
        if millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What the rules compare with. Durations are in seconds.

    Raises:
        ValueError: if a value makes no sense; the text says which, what came and what was expected.
    """

    interval_secs: float = 15.0
    """How often the rules are evaluated. The scrape interval is a good one."""

    hold_secs: float = 600.0
    """For how long something must be so before it is an alert, other than a stall."""

    stall_hold_secs: float = 30.0
    """For how long a run must be past the hang timeout before that is an alert."""

    dead_hold_secs: float = 45.0
    """For how long a run must be down, lost or failed, before that is an alert: it may be started again."""

    many: int = 5
    """How many runs that die within `many_window_secs` are one alert."""

    many_window_secs: float = 300.0

    unanswered_secs: float = 60.0
    """For how long a training process may not answer, where no exporter reports the run, before it counts as lost."""

    forget_secs: float = 86400.0
    """After how long without a report a dead run, or an exporter that is gone, counts as known or given up."""

    checkpoint_intervals: float = 3.0
    """How many checkpoint intervals the newest checkpoint may be old."""

    restarts: int = 3
    """How many unplanned restarts within `restart_window_secs` are a loop."""

    restart_window_secs: float = 3600.0

    recoveries: int = 3
    """How many lost sessions of TensorFlow's within `recovery_window_secs` are a loop."""

    recovery_window_secs: float = 1800.0

    worker_hold_secs: float = 120.0
    """For how long another process of a cluster must be lost before that is an alert: it may be started again."""

    worker_wait_secs: float = 900.0
    """For how long another process of a cluster may wait, or not move, while its chief trains."""

    slow_below: float = 0.5
    """The share of its own past speed below which a training is slow."""

    slow_window_secs: float = 900.0
    """The time over which the present speed is averaged; the past is 24 times as long."""

    goodput_below: float = 0.5
    """The share of the sessions' time that must go into steps which are kept."""

    goodput_window_secs: float = 21600.0

    silent_secs: float = 21600.0
    """For how long a run of another writer that has ceased to write is an alert: it may have ended, and cannot say."""

    save_failures: int = 2
    """How many saves in a row must have failed."""

    save_hold_secs: float = 60.0
    """For how long saves, or events, must fail before that is an alert. A failed save is repeated within a minute."""

    start_grace_secs: float = 1800.0
    """What a session is given to start and restore before its first checkpoint is waited for."""

    overdue_secs: float = 1800.0
    """By how much a service thread may be late; a save may take this long."""

    interval_factor: float = 3.0
    """How many times longer, or shorter, than the recommended one a checkpoint interval may be."""

    failures_to_judge: int = 3
    """After how many unplanned restarts the mean time between them says anything."""

    notice_secs: float = 3600.0
    """For how long what a program says with `notify` holds, after it was said last."""

    behind_secs: float = 300.0
    """How old what the exporter serves may be before nothing is concluded from it."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("slow_below", "goodput_below"):
                is_usable, expected = 0 < value < 1, "a share above 0 and below 1"
            elif name in ("restarts", "recoveries", "save_failures"):
                is_usable, expected = value >= 1, "at least 1"
            elif name == "many":
                is_usable, expected = value >= 2, "at least 2"
            elif name in ("checkpoint_intervals", "interval_factor"):
                is_usable, expected = 1 < value < math.inf, "a number above 1"
            elif name.endswith("_secs"):
                is_usable, expected = 0 < value < math.inf, "a number of seconds above 0"
            else:
                continue
            if not is_usable:
                raise ValueError(f"{name} is {value}; expected {expected}")
