"""The parts of a run as plain values for JSON, with the names of docs/inspect.md, which has their JSON Schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from supervisor_core.events.telemetry import ResumeRecord
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.fleet_report import Usage
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import (
    Goodput,
    Recovery,
    Run,
    Session,
    Silence,
    Stall,
    ThreadHistory,
    WorkerHistory,
    WorkerSpan,
)
from supervisor_core.run.model.snapshot import WatchedRun

_LEFT_OUT: Mapping[type[Any], str] = {
    Checkpoint: "data_position",
    Finding: "until",
    Goodput: "booked_secs lost_process_secs weight by_session",
    ProgramLaunch: "launch state host command progress_timeout_secs stall stderr seen_at",
    Run: "tag_values loss_finite loss_nonfinite_at rates speed dropped",
    Session: "boot pid_namespace process_started_ticks uid run logdir restored_step state_problem "
    "previous_outcome previous_step previous_step_exact "
    "previous_seen_at previous_elapsed_secs previous_seen_secs run_started_at services heartbeat_secs "
    "recorded_beat_secs versions steps_per_sec beat activity_secs reported_secs saves save_failures "
    "usual_gap_secs save_failures_in_a_row save_error events_error save_secs blocked_secs recoveries files",
    ResumeRecord: "session",
    Stall: "state",
    ThreadHistory: "last_failure_at ticking_secs spans seen_ticks",
    WorkerHistory: "started_at spans",
}
"""Fields that are not shown: internal to the model, or large."""
_RENAMED: Mapping[type[Any], Mapping[str, str]] = {
    Checkpoint: {"secs": "save_secs"},
    Recovery: {"step": "from_step", "restored_step": "to_step"},
    Run: {"name": "run", "last_good": "last_good_checkpoint"},
    Session: {"session": "id", "skipped": "skipped_checkpoints"},
    WorkerSpan: {"started_at": "process_started"},
}
_ADDED: Mapping[type[Any], Mapping[str, str]] = {
    Usage: {
        name: name
        for name in (
            *("device_secs", "lost_device_secs", "goodput"),
            *("failures", "mttf_secs", "per_1000_device_days"),
        )
    },
    Checkpoint: {"ok": "ok", "status": "status"},
    Finding: {"sentence": "sentence", "alert": "alert"},
    ProgramLaunch: {"text": "text"},
    Recovery: {"rewind_steps": "rewind_steps"},
    ResumeRecord: {"text": "text"},
    Run: {"versions": "versions", "failure": "failure"},
    Silence: {"why": "why"},
}
"""Properties that are shown, by their names in JSON."""
OF_READING: Mapping[str, str] = {
    "files": "read_files",
    "bytes": "bytes",
    "records": "records",
    "corrupt_records": "corrupt_records",
    "truncated_files": "torn_files",
    "skipped_files": "skipped_files",
    "dropped": "dropped",
    "copy_of": "copy_of",
    "problems": "file_problems",
}
"""What `WatchedRun` adds to a run, by the names in JSON."""


def as_json(item: Any) -> Any:
    """Return a part of a run: each field under its name, without the ``_at`` of a time; see `_LEFT_OUT`.

    Example:
        >>> as_json(AtRisk(steps=3, secs=1.5, saved_step=None))
        {'steps': 3, 'secs': 1.5, 'saved_step': None}
    """
    if is_dataclass(item):
        return {name: as_json(getattr(item, attribute)) for name, attribute in shown(cast("Any", type(item))).items()}
    if isinstance(item, (tuple, list)):
        return [as_json(each) for each in item]
    return {key: as_json(each) for key, each in item.items()} if isinstance(item, Mapping) else item


@cache
def shown(cls: type[Any]) -> Mapping[str, str]:
    """Return the names in JSON of what is shown of a class -> the names of its fields and properties."""
    left_out, renamed = _LEFT_OUT.get(cls, "").split(), _RENAMED.get(cls, {})
    names = [item.name for item in fields(cls) if item.name not in left_out]
    return {**{renamed.get(name, name.removesuffix("_at")): name for name in names}, **_ADDED.get(cls, {})}


def run_json(watched: WatchedRun, names: str | None = None) -> dict[str, Any]:
    """Return what is known of a run and of its reading. Numbers may be some that JSON cannot hold.

    Args:
        watched: the run.
        names: what of it, by the names in JSON, with spaces between them. Default: all.
    """
    wanted = None if names is None else names.split()
    parts = ((watched.run, shown(Run)), (watched, OF_READING))
    return {
        name: as_json(getattr(part, attribute))
        for part, attributes in parts
        for name, attribute in attributes.items()
        if wanted is None or name in wanted
    }


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: numbers that it cannot become None, bytes that are no text escapes."""
    if value is None or type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):  # file names may be bytes that are no text
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, (dict, Mapping)):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


_AS_THEY_ARE = (int, bool)
