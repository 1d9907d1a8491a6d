"""`NoticeRecord`: the telemetry record of what a program said of its run with ``notify``; for `events.telemetry`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from supervisor_core.events.record_fields import Name, Number, Whole

Severity = Literal["page", "warn", "info"]
"""``page``: work is being lost, act now. ``warn``: today. ``info``: when there is time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """A program has said something of its run. Of the records with the same severity, text, worker and `since` the last
    one counts."""

    kind: ClassVar[str] = "notice"

    session: Name
    severity: Severity = "warn"
    text: Name = ""
    """One line."""
    count: Whole = 1
    """How often it was said since `since`."""
    since: Number | None = None
    """Wall time at which it was said first. Said again an hour after the last time, it begins again."""
    at: Number | None = None
    """When it was said last."""
    step: Whole | None = None
    """The step at which that was recorded."""
    worker: Name | None = None
    """The other process of the cluster that said it; None of the session's own."""
