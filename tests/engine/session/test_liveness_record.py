"""What a process says of itself, as bytes: strict in what is taken, tolerant of what is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor_core.run.watch.liveness import MAX_BYTES, LivenessRecord, decode, encode, file_name

RECORD = LivenessRecord(
    task="worker:1",
    session="6f1d3c0a9b7e4d21",
    host="gpu-7",
    pid=4711,
    started_at=1_700_000_000.5,
    written_at=1_700_000_010.5,
    beats=2,
    interval_secs=10.0,
    phase="training",
)


def test_a_record_comes_back() -> None:
    """All its fields, from one line of ASCII."""
    record = LivenessRecord(**{**vars(RECORD), "waiting_for": "die Gewichte ⏳", "ended": "error", "stalled": True})
    data = encode(record)
    assert decode(data) == record
    assert data.isascii()
    assert data.index(b"\n") == len(data) - 1


def test_fields_that_are_not_known_or_not_needed() -> None:
    """A later version's are left out; those with a default need not be there."""
    raw = {name: value for name, value in json.loads(encode(RECORD)).items() if value is not None}
    assert decode(json.dumps({**raw, "mood": "fine"}).encode()) == RECORD


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": 2}, "version 1"),
        ({"v": True}, "version 1"),
        ({"v": None}, "version 1"),
        ({"pid": "4711"}, "pid is '4711'"),
        ({"pid": True}, "pid is True"),
        ({"stalled": 1}, "stalled is 1"),
        ({"beats": 1.5}, "beats is 1.5"),
        ({"beats": 1 << 64}, "beats is"),
        ({"task": ""}, "task is ''"),
        ({"written_at": float("inf")}, "not JSON"),
        ({"written_at": 1e300}, "written_at is 1e"),
        ({"phase": None}, "phase is None"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=message):
        decode(json.dumps({**json.loads(encode(RECORD)), **changes}).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (encode(RECORD)[:40], "not JSON"),
        ("é".encode(), "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[1]", "version"),
        (b'{"v": 1, "task": "worker:1"}', "missing"),
        (encode(RECORD).ljust(MAX_BYTES + 1), "more than 65,536 bytes"),
    ],
)
def test_what_is_no_record_is_refused(data: bytes, message: str) -> None:
    """Torn, foreign, incomplete, huge."""
    with pytest.raises(ValueError, match=message):
        decode(data)


def test_names_of_files() -> None:
    """A task's is plain to read, and safe whatever the name."""
    assert file_name("worker:1") == "worker-1.json"
    assert file_name("gpu-box.example-17") == "gpu%2Dbox.example%2D17.json"
    assert file_name("../etc/passwd") == "%2E.%2Fetc%2Fpasswd.json"
    assert file_name("é\ud800") == "%C3%A9%ED%A0%80.json"


def test_no_two_tasks_share_a_file() -> None:
    """However alike their names, and however long: a name fits into any file system."""
    long = "x" * 400
    names = ["a:1", "a-1", "a%2D1", "a.1", "a_1", ".a:1", "%2Ea:1", long, long + "y", "é" * 400, file_name(long)[:-5]]
    assert len({file_name(name) for name in names}) == len(names)
    assert all(len(file_name(name)) <= 255 for name in names)
