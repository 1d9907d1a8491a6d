"""Telemetry, from its text to the run and the metrics that are made of it.

Each line of an input is a record: a letter for its kind (or for one that there is not), and its JSON.
"""

from __future__ import annotations

from supervisor_core.base.errors import EventsError
from supervisor_core.events.chunk import Chunk, TelemetryMark
from supervisor_core.events.telemetry import KINDS, from_json
from supervisor_core.metrics.page import run_status, write_run
from supervisor_core.run.fold.run_fold import RunFold

LETTERS = {kind[:2]: kind for kind in KINDS} | {"xx": "unknown"}
"""The first two letters of a kind -> the kind."""
NOW = 1.7e9


def check_telemetry(data: bytes) -> None:
    """Decode records, fold those that are accepted into a run, and write its metrics."""
    marks = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n")):
        kind, text = LETTERS.get(line[:2], "heartbeat"), line[2:]
        try:
            record = from_json(kind, text)
        except EventsError:
            continue
        marks.append(TelemetryMark(offset=number, at=NOW - 100 + number, step=number, record=record))
    fold = RunFold("run", kept_ticks=10)
    for number, mark in enumerate(marks):
        fold.update([Chunk(path="events", from_start=number == 0, records=1, marks=(mark,))])
    run = fold.run(now=NOW)
    status = run_status(run, NOW, label="run", forget_after_secs=3600.0)
    written = write_run(status)
    assert written.problems == (), written.problems
