"""The parts of a run as plain values for JSON, with the names of docs/inspect.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor_core.events.chunk import FileFacts
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.model import (
    Advice,
    AtRisk,
    Goodput,
    NonFinite,
    ProgramLaunch,
    Recovery,
    Restart,
    Session,
    Silence,
    Stall,
    ThreadHistory,
    WorkerHistory,
    WorkerSpan,
)
from supervisor_core.run.restarter_launches import launch_text


def session_json(item: Session) -> dict[str, Any]:
    """Return a session."""
    return {
        "id": item.id,
        "attempt": item.attempt,
        "started": item.started_at,
        "ended": item.ended_at,
        "first_step": item.first_step,
        "last_step": item.last_step,
        "outcome": item.outcome,
        "inferred": item.inferred,
        "gone": item.gone,
        "error": item.error,
        "signal": item.signal,
        "phase": item.phase,
        "host": item.host,
        "pid": item.pid,
        "facade": item.facade,
        "restored_checkpoint": item.restored_checkpoint,
        "adopted": item.adopted,
        "resume_exact": item.resume_exact,
        "resume_reasons": list(item.resume_reasons),
        "skipped_checkpoints": [dict(skipped) for skipped in item.skipped],
    }


def restart_json(item: Restart) -> dict[str, Any]:
    """Return a restart boundary."""
    return {
        "at": item.at,
        "from_step": item.from_step,
        "to_step": item.to_step,
        "rewind_steps": item.rewind_steps,
        "rewind_steps_most": item.rewind_steps_most,
        "downtime_secs": item.downtime_secs,
        "reason": item.reason,
        "inferred": item.inferred,
        "launch": None if item.launch is None else launch_json(item.launch),
    }


def launch_json(item: ProgramLaunch) -> dict[str, Any]:
    """Return a launch of the program by a restarter, without its last words."""
    return {
        "attempt": item.attempt,
        "started": item.started_at,
        "ended": item.ended_at,
        "pid": item.pid,
        "session": item.session,
        "cause": item.cause,
        "exit_code": item.exit_code,
        "signal": item.signal,
        "core_dumped": item.core_dumped,
        "oom_kills": item.oom_kills,
        "decided_by": item.decided_by,
        "error": item.error,
        "step": item.step,
        "saved_step": item.saved_step,
        "progress": item.progress,
        "action": item.action,
        "reason": item.reason,
        "counted": item.counted,
        "backoff_secs": item.backoff_secs,
        "stacks": item.stacks,
        "text": None if item.ended_at is None else launch_text(item),
    }


def recovery_json(item: Recovery) -> dict[str, Any]:
    """Return a restart within a session."""
    return {
        "session": item.session,
        "at": item.at,
        "secs": item.secs,
        "error": item.error,
        "losses": item.losses,
        "from_step": item.from_step,
        "to_step": item.to_step,
        "rewind_steps": item.rewind_steps,
        "restored_checkpoint": item.restored_checkpoint,
    }


def checkpoint_json(item: Checkpoint) -> dict[str, Any]:
    """Return a save."""
    return {
        "step": item.step,
        "path": item.path,
        "at": item.at,
        "ok": item.ok,
        "on_disk": item.on_disk,
        "bytes": item.bytes,
        "save_secs": item.secs,
        "blocked_secs": item.blocked_secs,
        "trigger": item.trigger,
        "error": item.error,
        "status": item.status,
        "doubt": item.doubt,
        "damage": item.damage,
        "moved_to": item.moved_to,
    }


def thread_json(item: ThreadHistory) -> dict[str, Any]:
    """Return a service thread, as last reported."""
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


def worker_json(item: WorkerHistory) -> dict[str, Any]:
    """Return another process of the cluster, as last reported, without its spans."""
    return {
        "name": item.name,
        "session": item.session,
        "state": item.state,
        "phase": item.phase,
        "waiting_for": item.waiting_for,
        "last_seen": item.last_seen_at,
        "step": item.step,
        "steps": item.steps,
        "starts": item.starts,
        "host": item.host,
        "pid": item.pid,
        "error": item.error,
    }


def worker_span_json(item: WorkerSpan) -> dict[str, Any]:
    """Return a stretch of time in which a worker was in one state."""
    return {
        "state": item.state,
        "since": item.since,
        "until": item.until,
        "process_started": item.started_at,
        "error": item.error,
    }


def stall_json(item: Stall) -> dict[str, Any]:
    """Return a stall."""
    return {
        "session": item.session,
        "service": item.service,
        "phase": item.phase,
        "since": item.since,
        "until": item.until,
        "step": item.step,
        "secs": item.secs,
        "timeout_secs": item.timeout_secs,
        "thread": item.thread,
        "location": item.location,
        "same_frames": item.same_frames,
        "activity": item.activity,
        "blocked_since": item.blocked_since,
        "stacks": {thread: list(frames) for thread, frames in item.stacks.items()},
    }


def silence_json(item: Silence) -> dict[str, Any]:
    """Return a stretch in which a session's process did not run."""
    return {"session": item.session, "since": item.since, "until": item.until, "secs": item.secs, "cause": item.cause}


def goodput_json(item: Goodput) -> dict[str, Any]:
    """Return the use of the wall time."""
    return {
        "wall_secs": item.wall_secs,
        "ratio": item.ratio,
        "inferred": item.inferred,
        "secs": dict(item.secs),
    }


def nonfinite_json(item: NonFinite) -> dict[str, Any]:
    """Return the NaN or infinite values of a tag."""
    return {"tag": item.tag, "values": item.values, "first_step": item.first_step, "last_step": item.last_step}


def at_risk_json(item: AtRisk | None) -> dict[str, Any] | None:
    """Return the steps at risk; None where none are."""
    return None if item is None else {"steps": item.steps, "secs": item.secs, "saved_step": item.saved_step}


def advice_json(item: Advice) -> dict[str, Any]:
    """Return the recommended checkpoint interval."""
    return {
        "save_cost_secs": item.save_cost_secs,
        "mtbf_secs": item.mtbf_secs,
        "failures": item.failures,
        "present_interval_secs": item.present_interval_secs,
        "recommended_interval_secs": item.recommended_interval_secs,
        "recommended_low_secs": item.recommended_low_secs,
        "recommended_high_secs": item.recommended_high_secs,
        "present_cost_ratio": item.present_cost_ratio,
        "recommended_cost_ratio": item.recommended_cost_ratio,
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
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


_AS_THEY_ARE = (int, bool)
