"""What ``tb-supervisor inspect --json`` prints; published as a contract in docs/inspect.md."""

from __future__ import annotations

from typing import Any

from supervisor_core.run.plain import (
    advice_json,
    at_risk_json,
    checkpoint_json,
    goodput_json,
    nonfinite_json,
    plain,
    problems_json,
    recovery_json,
    restart_json,
    session_json,
    silence_json,
    stall_json,
    thread_json,
    worker_json,
    worker_span_json,
)
from supervisor_core.watch.snapshot import WatchedRun

SCHEMA_VERSION = 1


def run_json(watched: WatchedRun, now: float) -> dict[str, Any]:
    """Return one run as plain values, with nothing in it that JSON cannot hold."""
    run, files = watched.run, watched.files
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
        "steps_lost_most": run.steps_lost_most,
        "scalar_tags": run.scalar_tags,
        "nonfinite": run.nonfinite,
        "nonfinite_tags": [nonfinite_json(item) for item in run.nonfinite_tags],
        "last_event": run.last_event_at,
        "checkpoint_age_secs": max(0.0, now - (good[-1].at or 0.0)) if good else None,
        "sessions": [session_json(item) for item in run.sessions],
        "restarts": [restart_json(item) for item in run.restarts],
        "recoveries": [recovery_json(item) for item in run.recoveries],
        "workers": [
            {**worker_json(item), "spans": [worker_span_json(span) for span in item.spans]} for item in run.workers
        ],
        "checkpoints": [checkpoint_json(item) for item in run.checkpoints],
        "threads": [thread_json(item) for item in run.threads],
        "stalls": [stall_json(item) for item in run.stalls],
        "silences": [silence_json(item) for item in run.silences],
        "goodput": goodput_json(run.goodput),
        "at_risk": at_risk_json(run.at_risk),
        "advice": advice_json(run.advice),
        "dropped": dict(watched.dropped),
        "problems": _problems(watched),
    }
    described: dict[str, Any] = plain(values)
    return described


def _problems(watched: WatchedRun) -> list[dict[str, Any]]:
    found = problems_json(watched.files)
    about_a_file = {f"{problem['path']}: {problem['text']}" for problem in found}
    if watched.problem is not None and watched.problem not in about_a_file:
        found.insert(0, {"path": None, "offset": None, "kind": "run", "text": watched.problem})
    return found
