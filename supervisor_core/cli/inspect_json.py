"""What ``tb-supervisor inspect --json`` prints; published as a contract in docs/inspect.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor_core.events.chunk import FileFacts
from supervisor_core.run.model import Checkpoint, Restart, Run, Session, Stall, ThreadHistory

SCHEMA_VERSION = 1


def run_json(run: Run, files: Sequence[FileFacts], now: float) -> dict[str, Any]:
    """Return one run as plain values, with nothing in it that JSON cannot hold."""
    read = [file for file in files if file.skipped is None]
    good = [item for item in run.checkpoints if item.ok and item.at]
    values = {
        "run": run.name,
        "state": run.state,
        "inferred": run.inferred,
        "files": len(read),
        "bytes": sum(file.size_bytes or 0 for file in read),
        "records": sum(file.records for file in read),
        "truncated_files": sum(file.torn_bytes > 0 for file in read),
        "corrupt_records": sum(file.corrupt_records for file in read),
        "skipped_files": len(files) - len(read),
        "session_logs": {status: run.session_logs.get(status, 0) for status in ("START", "CHECKPOINT", "STOP")},
        "first_step": run.first_step,
        "last_step": run.last_step,
        "max_step": run.max_step,
        "step": run.step,
        "steps_per_sec": run.steps_per_sec,
        "steps_lost": run.steps_lost,
        "scalar_tags": run.scalar_tags,
        "nonfinite": run.nonfinite,
        "last_event": run.last_event_at,
        "checkpoint_age_secs": max(0.0, now - (good[-1].at or 0.0)) if good else None,
        "sessions": [_session(item) for item in run.sessions],
        "restarts": [_restart(item) for item in run.restarts],
        "checkpoints": [_checkpoint(item) for item in run.checkpoints],
        "threads": [_thread(item) for item in run.threads],
        "stalls": [_stall(item) for item in run.stalls],
        "goodput": {
            "wall_secs": run.goodput.wall_secs,
            "ratio": run.goodput.ratio,
            "inferred": run.goodput.inferred,
            "secs": dict(run.goodput.secs),
        },
        "advice": {
            "save_cost_secs": run.advice.save_cost_secs,
            "mtbf_secs": run.advice.mtbf_secs,
            "present_interval_secs": run.advice.present_interval_secs,
            "recommended_interval_secs": run.advice.recommended_interval_secs,
            "present_cost_ratio": run.advice.present_cost_ratio,
            "recommended_cost_ratio": run.advice.recommended_cost_ratio,
        },
        "problems": [
            {"path": file.path, "offset": None, "kind": "skipped", "text": file.skipped}
            for file in files
            if file.skipped is not None
        ]
        + [
            {"path": file.path, "offset": problem.offset, "kind": problem.kind, "text": problem.text}
            for file in files
            for problem in file.problems
        ],
    }
    plain: dict[str, Any] = _plain(values)
    return plain


def _session(item: Session) -> dict[str, Any]:
    return {
        "id": item.id,
        "attempt": item.attempt,
        "started": item.started_at,
        "ended": item.ended_at,
        "first_step": item.first_step,
        "last_step": item.last_step,
        "outcome": item.outcome,
        "inferred": item.inferred,
        "error": item.error,
        "signal": item.signal,
        "phase": item.phase,
        "host": item.host,
        "pid": item.pid,
        "facade": item.facade,
        "restored_checkpoint": item.restored_checkpoint,
        "skipped_checkpoints": [dict(skipped) for skipped in item.skipped],
    }


def _restart(item: Restart) -> dict[str, Any]:
    return {
        "at": item.at,
        "from_step": item.from_step,
        "to_step": item.to_step,
        "rewind_steps": item.rewind_steps,
        "downtime_secs": item.downtime_secs,
        "reason": item.reason,
        "inferred": item.inferred,
    }


def _checkpoint(item: Checkpoint) -> dict[str, Any]:
    return {
        "step": item.step,
        "path": item.path,
        "at": item.at,
        "ok": item.ok,
        "on_disk": item.on_disk,
        "bytes": item.bytes,
        "save_secs": item.save_secs,
        "blocked_secs": item.blocked_secs,
        "trigger": item.trigger,
        "error": item.error,
    }


def _thread(item: ThreadHistory) -> dict[str, Any]:
    return {
        "name": item.name,
        "session": item.session,
        "state": item.state,
        "interval_secs": item.interval_secs,
        "ticks": item.ticks,
        "failures": item.failures,
        "overdue_secs": item.overdue_secs,
        "last_tick": item.last_tick_at,
        "last_tick_secs": item.last_tick_secs,
        "last_error": item.last_error,
    }


def _stall(item: Stall) -> dict[str, Any]:
    return {
        "session": item.session,
        "phase": item.phase,
        "since": item.since,
        "until": item.until,
        "step": item.step,
        "secs": item.secs,
        "timeout_secs": item.timeout_secs,
        "stacks": {thread: list(frames) for thread, frames in item.stacks.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):  # file names may be bytes that are no text
        return value.encode("utf-8", "backslashreplace").decode()
    return value
