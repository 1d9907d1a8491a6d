"""Stalls, with the stacks that were taken when they were noticed."""

from __future__ import annotations

from typing import Any

from supervisor_core.run.model import Run
from supervisor_core.run.plain import plain, stall_json


def stall_list(run: Run) -> dict[str, Any]:
    """Return every stall of the run, oldest first."""
    return {"v": 1, "stalls": [plain(stall_json(item)) for item in run.stalls]}
