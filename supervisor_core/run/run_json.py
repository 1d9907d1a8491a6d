"""The parts of a run as plain values for JSON, with the names of docs/inspect.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from supervisor_core.events.chunk import FileFacts
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.ended_launches import failure_text
from supervisor_core.run.model import (
    Goodput,
    ProgramLaunch,
    Recovery,
    Session,
    Stall,
    ThreadHistory,
    WorkerHistory,
    WorkerSpan,
)
from supervisor_core.run.restarter_launches import launch_text
from supervisor_core.run.snapshot import WatchedRun

_LEFT_OUT: Mapping[type[Any], str] = {
    Checkpoint: "data_position",
    Goodput: "booked_secs",
    ProgramLaunch: "launch state host command stderr",
    Session: "run restored_step state_problem previous_outcome previous_step previous_step_exact previous_seen_at "
    "previous_elapsed_secs previous_seen_secs run_started_at services heartbeat_secs versions steps_per_sec "
    "events_dropped watchdog_would_act watchdog_acted activity_secs reported_secs saves save_failures "
    "save_failures_in_a_row save_error loss_finite events_error save_secs blocked_secs recoveries files",
    Stall: "state",
    ThreadHistory: "last_failure_at ticking_secs spans seen_ticks",
    WorkerHistory: "started_at spans",
}
"""Fields that are not shown: internal to the model, or large."""
_RENAMED: Mapping[type[Any], Mapping[str, str]] = {
    Checkpoint: {"secs": "save_secs"},
    Recovery: {"step": "from_step", "restored_step": "to_step"},
    Session: {"session": "id", "skipped": "skipped_checkpoints"},
    WorkerSpan: {"started_at": "process_started"},
}
_ADDED: Mapping[type[Any], Mapping[str, Callable[[Any], Any]]] = {
    Checkpoint: {"ok": lambda item: item.ok, "status": lambda item: item.status},
    ProgramLaunch: {"text": lambda item: None if item.ended_at is None else launch_text(item)},
    Recovery: {"rewind_steps": lambda item: item.rewind_steps},
}


def as_json(item: Any) -> Any:
    """Return a part of a run: each field under its name, without the ``_at`` of a time; see `_LEFT_OUT`.

    Example:
        >>> as_json(AtRisk(steps=3, secs=1.5, saved_step=None))
        {'steps': 3, 'secs': 1.5, 'saved_step': None}
    """
    if is_dataclass(item):
        found = {name: as_json(getattr(item, attribute)) for name, attribute in _names(cast("Any", type(item)))}
        return found | {name: value(item) for name, value in _ADDED.get(type(item), {}).items()}
    if isinstance(item, (tuple, list)):
        return [as_json(each) for each in item]
    return {key: as_json(each) for key, each in item.items()} if isinstance(item, Mapping) else item


@cache
def _names(cls: Any) -> list[tuple[str, str]]:
    left_out, renamed = _LEFT_OUT.get(cls, "").split(), _RENAMED.get(cls, {})
    shown = [item.name for item in fields(cls) if item.name not in left_out]
    return [(renamed.get(name, name.removesuffix("_at")), name) for name in shown]


def described(watched: WatchedRun) -> dict[str, Any]:
    """Return what ``inspect --json`` and the tab both say of a run. Numbers may be some that JSON cannot hold."""
    run = watched.run
    return {
        "state": run.state,
        "failure": failure_text(run),
        "inferred": run.inferred,
        "files": len(watched.files) - watched.skipped_files,
        "bytes": watched.bytes,
        "first_step": run.first_step,
        "max_step": run.max_step,
        "step": run.step,
        "steps_per_sec": run.steps_per_sec,
        "steps_lost": run.steps_lost,
        "steps_lost_most": run.steps_lost_most,
        "last_event": run.last_event_at,
        "sessions": as_json(run.sessions),
        "restarts": as_json(run.restarts),
        "recoveries": as_json(run.recoveries),
        "goodput": as_json(run.goodput),
        "at_risk": as_json(run.at_risk),
        "advice": as_json(run.advice),
        "dropped": dict(watched.dropped),
    }


def problems_json(files: Sequence[FileFacts]) -> list[dict[str, Any]]:
    """Return the problems met in reading a run's files."""
    return [
        {"path": file.path, "offset": None, "kind": "skipped", "text": file.skipped}
        for file in files
        if file.skipped is not None
    ] + [
        {"path": file.path, "offset": problem.offset, "kind": problem.kind, "text": problem.text}
        for file in files
        for problem in file.problems
    ]


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
