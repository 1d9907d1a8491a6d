"""What ``tb-supervisor inspect --json`` prints; published as a contract in docs/inspect.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervisor_core.events.chunk import FileFacts
from supervisor_core.run.model import Run
from supervisor_core.run.plain import (
    advice_json,
    checkpoint_json,
    goodput_json,
    plain,
    problems_json,
    recovery_json,
    restart_json,
    session_json,
    stall_json,
    thread_json,
    worker_json,
    worker_span_json,
)

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
        "sessions": [session_json(item) for item in run.sessions],
        "restarts": [restart_json(item) for item in run.restarts],
        "recoveries": [recovery_json(item) for item in run.recoveries],
        "workers": [
            {**worker_json(item), "spans": [worker_span_json(span) for span in item.spans]} for item in run.workers
        ],
        "checkpoints": [checkpoint_json(item) for item in run.checkpoints],
        "threads": [thread_json(item) for item in run.threads],
        "stalls": [stall_json(item) for item in run.stalls],
        "goodput": goodput_json(run.goodput),
        "advice": advice_json(run.advice),
        "problems": problems_json(files),
    }
    described: dict[str, Any] = plain(values)
    return described
