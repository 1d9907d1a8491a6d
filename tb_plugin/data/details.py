"""One run, apart from what grows without bound."""

from __future__ import annotations

from typing import Any

from supervisor_core.run.model import Restart, Session
from supervisor_core.run.plain import (
    advice_json,
    at_risk_json,
    checkpoint_json,
    goodput_json,
    plain,
    problems_json,
    recovery_json,
    restart_json,
    session_json,
    silence_json,
)
from tb_plugin.view import RunView, View

MOST_SILENCES = 1000
"""How many are sent, the newest."""


def details(view: View, shown: RunView) -> dict[str, Any]:
    """Return the run as ``run`` answers it."""
    run, watched = shown.run, shown.watched
    good = next((item for item in reversed(run.checkpoints) if item.ok), None)
    values = {
        "v": 1,
        "at": view.at,
        "generation": shown.generation,
        "run": shown.name,
        "state": run.state,
        "inferred": run.inferred,
        "problem": watched.problem,
        "step": run.step,
        "steps_per_sec": run.steps_per_sec,
        "first_step": run.first_step,
        "max_step": run.max_step,
        "steps_lost": run.steps_lost,
        "steps_lost_most": run.steps_lost_most,
        "last_event": run.last_event_at,
        "files": len(watched.files) - watched.skipped_files,
        "bytes": watched.bytes,
        "records": watched.records,
        "corrupt_records": watched.corrupt_records,
        "sessions": [_session(item) for item in run.sessions],
        "restarts": [_restart(item) for item in run.restarts],
        "recoveries": [recovery_json(item) for item in run.recoveries],
        "goodput": goodput_json(run.goodput),
        "at_risk": at_risk_json(run.at_risk),
        "advice": advice_json(run.advice),
        "dropped": dict(watched.dropped),
        "problems": problems_json(watched.files),
        "checkpoints": {
            "count": len(run.checkpoints),
            "failed": sum(not item.ok for item in run.checkpoints),
            "newest_good": checkpoint_json(good) if good is not None else None,
            "on_disk": sum(item.on_disk is True for item in run.checkpoints),
        },
        "stalls": len(run.stalls),
        "silences": [silence_json(item) for item in run.silences[-MOST_SILENCES:]],
        "threads": list(dict.fromkeys(thread.name for thread in run.threads)),
        "workers": len(run.workers),
    }
    described: dict[str, Any] = plain(values)
    return described


def _restart(item: Restart) -> dict[str, Any]:
    return {**restart_json(item), "from_session": item.from_session, "to_session": item.to_session}


def _session(item: Session) -> dict[str, Any]:
    return {
        **session_json(item),
        "steps": item.steps,
        "starting_secs": item.starting_secs,
        "restoring_secs": item.restoring_secs,
        "checkpoint_interval_secs": item.checkpoint_interval_secs,
        "progress_timeout_secs": item.progress_timeout_secs,
        "last_progress": item.last_progress_at,
    }
