"""Records survive the way to the disk and back."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from tensorboard.compat.proto import summary_pb2, types_pb2

from supervisor_core.base.errors import EventsError
from supervisor_core.events.telemetry import (
    KINDS,
    MAX_BYTES,
    CheckpointRecord,
    DeathRecord,
    DigestRecord,
    HeartbeatRecord,
    LaunchRecord,
    NoticeRecord,
    OpenStall,
    Record,
    RecoveryRecord,
    ResumeRecord,
    ServiceInterval,
    SessionRecord,
    SkippedCheckpoint,
    StallRecord,
    StopRecord,
    ThreadStatus,
    from_json,
    summary_bytes,
    to_json,
)
from tests.cases import each

RECORDS: list[Record] = [
    SessionRecord(
        session="s", attempt=2, host="hôte", pid=1, facade="Supervisor", started_at=1.5,
        skipped=(SkippedCheckpoint(path="模型.ckpt-1", reason="cut"),), versions={"python": "3.11"},
        services=(ServiceInterval(name="summary", interval_secs=120),),
    ),
    CheckpointRecord(session="s", trigger="signal", path="/a/model.ckpt-7", step=7, bytes=9, secs=1.0, consistent=True),
    HeartbeatRecord(session="s", phase="training", step=1, threads=(ThreadStatus(name="x", state="idle"),)),
    StallRecord(session="s", state="begin", phase="training", since=1.0, stacks={"Main": ("a.py:1 f", "b.py:2 g")}),
    DeathRecord(
        session="s", step=7, step_exact=True, elapsed_secs=9.5,
        stall=OpenStall(since=1.0, step=7, blocked_since=2.0, stacks={"Main": ("a.py:1 f",)}),
    ),
    RecoveryRecord(session="s", error="UnavailableError: gone", losses=2, step=9, restored_step=7, secs=0.5),
    DigestRecord(session="s", step=3, states={"model": "0123456789ab"}),
    NoticeRecord(session="s", severity="page", text="précision", count=3, since=1.5, at=2.5, step=7, worker="w:1"),
    ResumeRecord(session="s", what="losses", compared=3, equal=2, tag="loss", step=15, before="0.4", now="nan"),
    LaunchRecord(
        launch="h-1-2", state="end", attempt=2, started_at=1.5, session="s", cause="oom", signal="SIGKILL", oom_kills=1,
        action="restart", reason="progress", progress=True, backoff_secs=0.5, stderr="Fehlschläge\n",
    ),
    StopRecord(session="s", reason="error", error="ValueError: \"quoted\"\nand broken", activity_secs={"stall": 0.5}),
]  # fmt: skip


@each("record", RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    """Through JSON, field by field, whatever script it is in."""
    assert from_json(record.kind, to_json(record)) == record


def test_every_kind_is_tried() -> None:
    """No kind of record goes untested."""
    assert {record.kind for record in RECORDS} == set(KINDS)


@each("record", RECORDS)
def test_tensorboard_reads_the_summary_as_written(record: Record) -> None:
    """One value, the plugin's name, a rank-0 string tensor, and nothing that TensorBoard does not know."""
    summary = summary_pb2.Summary.FromString(summary_bytes(record))
    assert summary.SerializeToString(deterministic=True) == summary_bytes(record)
    (value,) = summary.value
    assert value.tag == f"supervisor/{record.kind}"
    assert value.metadata.plugin_data.plugin_name == "supervisor"
    assert value.metadata.data_class == summary_pb2.DATA_CLASS_TENSOR
    assert (value.tensor.dtype, list(value.tensor.tensor_shape.dim)) == (types_pb2.DT_STRING, [])
    assert from_json(record.kind, value.tensor.string_val[0].decode()) == record


def test_numbers_that_json_cannot_hold_become_null() -> None:
    """A rate that is infinite does not make the record unreadable."""
    text = to_json(
        HeartbeatRecord(session="s", phase="training", steps_per_sec=math.inf, activity_secs={"stall": math.nan})
    )
    assert from_json("heartbeat", text) == HeartbeatRecord(
        session="s", phase="training", steps_per_sec=None, activity_secs={}
    )


def test_fields_from_the_future_are_left_out() -> None:
    """A reader of today understands a record of tomorrow, as long as its version is the same."""
    text = to_json(RECORDS[1]).replace('{"v"', '{"added_later": [1], "v"')
    assert from_json("checkpoint", text) == RECORDS[1]


@each(
    "kind, text, said",
    [
        ("unheard", "{}", "'unheard'"),
        ("stop", "no json", "no JSON object"),
        ("stop", "[1]", "holds list"),
        ("stop", '{"v": 2}', "version 2"),
        ("stop", '{"v": "2", "session": "s"}', "version None"),
        ("stop", "{}", "version None"),
        ("stop", '{"v": 1}', "session"),
    ],
)
def test_what_is_no_record_is_refused_and_said(kind: str, text: str, said: str) -> None:
    """Each text says what came."""
    with pytest.raises(EventsError, match=said):
        from_json(kind, text)


@each("depth", [17, 1_200, 100_000])
def test_a_record_that_is_nested_too_deep_is_refused_or_read_without_that(depth: int) -> None:
    """However deep: past Python's stack, and where only the parser's stack is meant."""
    with pytest.raises(EventsError):
        from_json("heartbeat", "[" * depth)
    text = '{"v":1,"session":"s","phase":"x","threads":' + "[" * depth + "]" * depth + "}"
    with suppress(EventsError):  # how deep is too deep depends on the version of Python
        assert from_json("heartbeat", text) == HeartbeatRecord(session="s", phase="x")


def test_a_record_that_is_too_long_is_refused_unparsed() -> None:
    """The bound is far above what any session writes."""
    with pytest.raises(EventsError, match="more than"):
        from_json("heartbeat", " " * (MAX_BYTES + 1))
