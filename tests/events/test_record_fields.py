"""What a record keeps of JSON that anybody may have written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from supervisor_core.events.record_fields import (
    LARGEST,
    MAX_MENDED,
    MAX_NAME_CHARS,
    MAX_TEXT,
    Name,
    Number,
    Text,
    Whole,
    decode,
)
from supervisor_core.events.telemetry import CheckpointRecord, from_json
from tests.cases import each


@dataclass(frozen=True, kw_only=True)
class Part:
    """A record within another."""

    name: Name
    state: Literal["idle", "busy"]


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A field of each kind."""

    secs: Number | None = None
    steps: Whole = 7
    is_good: bool | None = None
    text: Text | None = None
    name: Name | None = None
    last: Annotated[str, Meta(max_length=3)] | None = None
    state: Literal["idle", "busy"] | None = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    reasons: Annotated[tuple[Text, ...], Meta(max_length=2)] = ()
    by_name: Annotated[Mapping[Name, Number], Meta(max_length=2)] = field(default_factory=dict)
    by_state: Mapping[Literal["idle", "busy"], Whole] = field(default_factory=dict)
    stacks: Mapping[Name, tuple[Text, ...]] = field(default_factory=dict)


@each("name, value, kept", [
        *[("secs", odd, None) for odd in ("1", True, -1, float("nan"), float("inf"), LARGEST, 10**400, [], {}, None)],
        ("secs", 2, 2.0),
        *[("steps", odd, 7) for odd in ("1", False, -3, None)],
        ("steps", 2.9, None),
        *[("is_good", odd, None) for odd in (0, 1, "true")],
        ("is_good", False, False),
        *[("text", odd, None) for odd in (1, ["x"])],
        ("text", "x" * (MAX_TEXT + 1), "x" * MAX_TEXT),
        ("name", "x" * (MAX_NAME_CHARS + 1), "x" * MAX_NAME_CHARS),
        ("last", "abcd", "abc"),
        *[("state", odd, None) for odd in ("asleep", ["idle"], 1)],
        ("state", "idle", "idle"),
        *[("parts", odd, ()) for odd in ("x", {"name": "a"}, [None, 3, {}], [{"name": "a", "state": "x"}])],
        ("parts", [{"name": "a", "state": "busy", "later": 1}], (Part(name="a", state="busy"),)),
        ("reasons", ["a", 1], ("a",)),
        ("reasons", ["a", "b", "c"], ("a", "b")),
        ("by_name", {"a": 1, "b": 2, "c": 3}, {"a": 1.0, "b": 2.0}),
        ("by_name", {"a": 1, "b": "x"}, {}),
        ("by_name", [1], {}),
        ("stacks", {"Main": ["a.py:1", 2]}, {}),
        ("stacks", {"M" * 300: ["a" * 9_000, "b"]}, {"M" * 256: ("a" * 4_096, "b")}),
        ("by_state", {"idle": 1, "asleep": 2}, {}),
        *[("part", odd, None) for odd in (7, [], {"name": "a"})],
    ])  # fmt: skip
def test_a_value_that_its_field_cannot_hold_costs_nothing_else(name: str, value: Any, kept: Any) -> None:
    """The field has its default, as has a mapping with one wrong value; texts and collections are cut."""
    assert decode(Odd, json.dumps({name: value, "unknown": 1})) == Odd(**({} if kept is None else {name: kept}))


def test_an_error_that_is_no_text_stays_an_error() -> None:
    """A failed save must not look like a good one."""
    record = from_json("checkpoint", '{"v": 1, "session": "a", "error": ["disk full"]}')
    assert isinstance(record, CheckpointRecord) and record.error == '["disk full"]'


def test_a_number_of_any_length_costs_nothing_else() -> None:
    """Python itself refuses to read one of more than 4,300 digits."""
    assert decode(Odd, f'{{"text": "x", "steps": {"9" * 5_000}, "later": {"9" * 5_000}}}') == Odd(text="x")


def test_a_record_with_many_wrong_values_is_refused() -> None:
    """It would be looked at as often."""
    parts = [{"name": "a"}] * (MAX_MENDED - 1)
    assert decode(Odd, json.dumps({"parts": parts})) == Odd()
    with pytest.raises(ValueError, match="more than 32 of its values are wrong"):
        decode(Odd, json.dumps({"parts": parts * 2}))


def test_a_field_without_a_default_is_needed() -> None:
    """One that is wrong is one that is missing."""
    with pytest.raises(TypeError, match="state"):
        decode(Part, '{"name": "a", "state": "asleep"}')


@each("text", ["[1]", "1", "{", ""])
def test_what_is_no_object_is_refused(text: str) -> None:
    """Whatever it is instead."""
    with pytest.raises(ValueError, match=r"JSON object|Expecting"):
        decode(Odd, text)


BY_SEVERAL_THREADS = """
import sys, threading
from dataclasses import make_dataclass
from supervisor_core.base.json_records import record_of
from supervisor_core.events.record_fields import decode

READS = {
    "decode": lambda cls: decode(cls, '{"g1": {"f1": "x"}}'),
    "record_of": lambda cls: record_of(cls, {"g1": {"f1": "x"}}),
}
sys.setswitchinterval(1e-6)
for _ in range(200):
    part = make_dataclass("Part", [(f"f{number}", str, "") for number in range(8)])
    cls = make_dataclass("Whole", [(f"g{number}", part | None, None) for number in range(8)])
    barrier = threading.Barrier(3)

    def read():
        barrier.wait()
        assert READS[sys.argv[1]](cls).g1.f1 == "x"

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@each("read", ["decode", "record_of"])
def test_threads_may_read_the_first_record_of_a_class_at_the_same_time(read: str) -> None:
    """As an exporter's threads do, one for each logdir."""
    done = subprocess.run([sys.executable, "-c", BY_SEVERAL_THREADS, read], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
