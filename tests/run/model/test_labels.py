"""Labels of a run: those of its newest session that has any, and of them what can be shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from supervisor_core.base.session_labels import MAX_LABELS
from supervisor_core.events.telemetry import SessionRecord, from_json
from supervisor_core.metrics.page import run_status, write_run
from supervisor_core.run.model.run import Run

RunOf = Callable[..., Run]


def info_of(run: Run) -> str:
    """The line of `supervisor_run_info` that an exporter serves."""
    status = run_status(run, 1_700_000_100.0)
    (line,) = write_run(status).fragments["supervisor_run_info"].decode().splitlines()
    return line


def test_a_session_that_has_not_said_keeps_those_before(trainer: Any, run_of: RunOf) -> None:
    """It may be starting, or have died before its record."""
    first = trainer("a").ready(labels={"team": "vision", "user": "ada"}).train(10)
    second = trainer("b", first.now + 60, attempt=2).spend(10)
    assert run_of(first, second).labels == {"team": "vision", "user": "ada"}
    second.ready(0, labels={"team": "speech"}, world_size=4, device_kind="H100", device_count=8).train(10)
    run = run_of(first, second)
    assert run.labels == {"team": "speech"}
    assert 'device_count="8",device_kind="H100"' in info_of(run) and 'team="speech",world_size="4"' in info_of(run)


def test_forged_labels(trainer: Any, run_of: RunOf) -> None:
    """None of them takes the place of what the reader knows, or breaks a line; there are no more than others have."""
    forged: dict[str, Any] = {
        "run": "other", "host": "other", "job": "x", "__name__": "up", "a-b": "x", "": "x", "new\nline": "x",
        "control": "\x1b[2J", "rtl": "\u202e", "quote": '"} 1\n', "team": 'a"b\\',
    }  # fmt: skip
    record = from_json("session", json.dumps({"v": 1, "session": "a", "started_at": 1_700_000_000.0, "labels": forged}))
    assert isinstance(record, SessionRecord) and len(record.labels) <= MAX_LABELS
    session = trainer("a").ready(labels=record.labels)
    run = run_of(session)
    assert run.labels == {"team": 'a"b\\'}
    assert 'run="run"' in info_of(run) and 'host="host"' in info_of(run) and r'team="a\"b\\"' in info_of(run)


def test_labels_are_bounded() -> None:
    """Whatever a file holds: the first are kept, and names and values are cut."""
    for labels, kept in (
        ({f"{n:03}": "v" for n in range(999)}, MAX_LABELS),
        ({"n" * 999: "v"}, 1),
        ({"n": "v" * 999}, 1),
    ):
        record = from_json("session", json.dumps({"v": 1, "session": "a", "labels": labels}))
        assert isinstance(record, SessionRecord) and len(record.labels) == kept
