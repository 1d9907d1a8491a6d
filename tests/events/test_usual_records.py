"""What is read in the usual layouts is what the general decoder reads of the same bytes."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.events import scan
from supervisor_core.events.chunk import Chunk
from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.events.telemetry import HeartbeatRecord, StopRecord, summary_bytes
from supervisor_core.wire import delimited

AT = 1_700_000_000.25


def scalar(tag: str, step: int, value: float, at: float = AT) -> bytes:
    """An event with one scalar."""
    return event_prefix(at, step, 5, 0)[:-2] + scalar_prefix(tag) + struct.pack("<f", value)


def telemetry(text: str, kind: str = "heartbeat", at: float = AT) -> bytes:
    """An event with a record as our writer lays it out once the tag is known."""
    tensor = b"\x08\x07" + delimited(2, b"") + delimited(8, text.encode())
    summary = delimited(1, delimited(1, f"supervisor/{kind}".encode()) + delimited(8, tensor))
    return event_prefix(at, 7, 5, len(summary)) + summary


def as_own(record: Any) -> bytes:
    """An event with a record and its metadata."""
    summary = summary_bytes(record)
    return event_prefix(AT, 3, 5, len(summary)) + summary


EVENTS = (
    version_event(AT),
    as_own(HeartbeatRecord(session="s", step=3)),  # with metadata, as the first of its tag
    *(scalar(tag, step, value) for step in (0, 5, 127, 128, 1 << 40, -1) for tag, value in (("loss", 0.5), ("a/ü", 1))),
    scalar("loss", 9, math.nan),
    scalar("loss", 10, math.inf, at=1.7e18),
    scalar("loss", 11, 1.0, at=math.nan),
    scalar("", 12, 2.0),
    telemetry('{"v": 1, "session": "s", "step": 4, "phase": "training"}'),
    telemetry('{"v": 1, "session": "s", "step": 4, "v": 2}'),
    telemetry('{"v": 1, "session": "s", "step": 5, "\\u0076": 2}'),
    telemetry('{"session": "s", "v": 1, "step": 6}'),
    telemetry('{"v": 1, "session": "s", "phase": "é' + "x" * 300 + '"}'),
    telemetry("no JSON"),
    telemetry("{}", kind="future"),
    telemetry('{"v": 1, "session": "s", "reason": "completed"}', kind="stop"),
    scalar("supervisor/loss", 13, 3.0),
    as_own(StopRecord(session="s", reason="completed")),
)


def read(path: Path) -> list[Any]:
    """The fields of the chunk of a file, in a form that compares."""
    chunk = EventsFileReader(str(path)).read()
    assert chunk is not None
    return [
        {tag: [column.tolist() for column in _columns(points)] for tag, points in chunk.scalars.items()}
        if each.name == "scalars"
        else getattr(chunk, each.name)
        for each in fields(Chunk)
    ]


def _columns(points: Any) -> list[np.ndarray[Any, Any]]:
    return [points.offsets, points.steps, points.walls, np.nan_to_num(points.values, nan=-1.0, posinf=-2.0)]


@pytest.mark.parametrize("damaged", [None, 5, 14], ids=["whole", "a damaged scalar", "a damaged header"])
def test_the_usual_layouts_are_read_as_the_general_decoder_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int | None
) -> None:
    """Whatever the texts, the steps and the times in them are, and also around a damaged record."""
    records = [frame(event) for event in EVENTS]
    if damaged is not None:
        place = 20 if damaged == 5 else 9
        records[damaged] = bytes(byte ^ (index == place) for index, byte in enumerate(records[damaged]))
    path = tmp_path / "events.out.tfevents.1700000000.h"
    path.write_bytes(b"".join(records))
    found = read(path)
    monkeypatch.setattr(scan, "read_usual", lambda data, index, *others: index)
    monkeypatch.setattr("supervisor_core.events.payload._own", lambda data, at, end: None)
    monkeypatch.setattr("supervisor_core.events.telemetry._is_plainly_known", lambda text: False)
    assert found == read(path)


def test_a_second_version_in_a_record_counts(tmp_path: Path) -> None:
    """The last field of a name is the one that holds."""
    path = tmp_path / "events.out.tfevents.1700000000.h"
    text = json.dumps({"v": 1, "session": "s"})[:-1] + ', "v": 2}'
    path.write_bytes(frame(version_event(AT)) + frame(telemetry(text)))
    chunk = EventsFileReader(str(path)).read()
    assert chunk is not None and not chunk.marks
    assert ["version 2" in problem.text for problem in chunk.problems] == [True]
