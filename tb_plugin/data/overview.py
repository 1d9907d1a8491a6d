"""The overview: one line for each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor_core.run.plain import plain
from supervisor_core.watch.snapshot import WatchedRun
from tb_plugin.data.workers import is_present, is_sick
from tb_plugin.view import View

SICK = ("overdue", "failed")
"""States of a service thread that somebody should look at."""

GOODPUT_DIGITS = 4
"""A running run's changes with every second: a line that is sent again must differ in what can be seen."""


def overview_row(name: str, watched: WatchedRun) -> Mapping[str, Any]:
    """Return a run's line, with nothing in it that JSON cannot hold."""
    run = watched.run
    session = run.sessions[-1] if run.sessions else None
    newest = run.checkpoints[-1] if run.checkpoints else None
    good = next((item for item in reversed(run.checkpoints) if item.ok), None)
    newest_threads = [thread for thread in run.threads if session is not None and thread.session == session.id]
    stall = run.stalls[-1] if run.stalls else None
    row: Mapping[str, Any] = plain(
        {
            "run": name,
            "state": run.state,
            "inferred": run.inferred,
            "phase": session.phase if session is not None else None,
            "step": run.step,
            "steps_per_sec": run.steps_per_sec,
            "rates": list(run.rates),
            "started": run.sessions[0].started_at if run.sessions else None,
            "last_event": run.last_event_at,
            "checkpoint_at": good.at if good is not None else None,
            "checkpoint_step": good.step if good is not None else None,
            "checkpoint_interval_secs": session.checkpoint_interval_secs if session is not None else None,
            "checkpoints_failing": newest is not None and not newest.ok,
            "restarts": len(run.restarts),
            "recoveries": len(run.recoveries),
            "goodput": None if run.goodput.ratio is None else round(run.goodput.ratio, GOODPUT_DIGITS),
            "at_risk_steps": None if run.at_risk is None else run.at_risk.steps,
            "sick_threads": sum(thread.state in SICK for thread in newest_threads),
            "workers": sum(is_present(run, worker) for worker in run.workers),
            "sick_workers": sum(is_sick(run, worker) for worker in run.workers),
            "stalled_since": stall.since if stall is not None and stall.until is None else None,
            "problem": watched.problem,
        }
    )
    return row


def overview(view: View, since: int | None) -> dict[str, Any]:
    """Return the lines of all runs, or of those that changed after a generation, if so much is remembered."""
    full = since is None or since < view.oldest or since > view.generation
    base = 0 if full or since is None else since
    return {
        "v": 1,
        "at": view.at,
        "generation": view.generation,
        "full": full,
        "logdir": plain(view.logdir),
        "reading": None if view.reading is None else {"done": view.reading[0], "total": view.reading[1]},
        "problems": plain(list(view.problems)),
        "removed": [] if full else sorted({name for gone, name in view.removed if gone > base} - view.runs.keys()),
        "runs": [run.row for run in view.runs.values() if run.generation > base],
    }
