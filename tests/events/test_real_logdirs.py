"""Twenty public logdirs, byte for byte, against what was counted in them by other means."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.events.chunk import Chunk, SessionMark
from supervisor_core.events.columns import ColumnStore
from supervisor_core.events.index import LogdirIndex, RunIndex
from tests.cases import each

LOGDIRS = Path(__file__).parents[3] / "shared" / "logdirs"
MANIFEST = LOGDIRS / "manifest.json"
ENTRIES: list[dict[str, Any]] = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else []

if not ENTRIES:
    pytest.skip(f"there are no logdirs at {LOGDIRS}", allow_module_level=True)


def read(directory: str) -> tuple[RunIndex, list[Chunk]]:
    """Read one run."""
    index = RunIndex(directory, str(LOGDIRS / directory))
    return index, index.refresh()


@each("entry", ENTRIES)
def test_a_run_is_what_its_manifest_says(entry: dict[str, Any]) -> None:
    """Files, bytes, records, steps, tags, session logs, regressions, what is not finite."""
    index, chunks = read(entry["dir"])
    store = ColumnStore()
    for chunk in chunks:
        store.add(chunk)
    columns = [store.columns(tag) for tag in store.tags]
    found = {
        "files": len(index.files),
        "bytes": sum(facts.size_bytes or 0 for facts in index.files),
        "records": sum(facts.records for facts in index.files),
        "session_log": Counter(
            mark.status for chunk in chunks for mark in chunk.marks if isinstance(mark, SessionMark)
        ),
        "max_step": max((chunk.max_step for chunk in chunks if chunk.max_step is not None), default=None),
        "scalar_tags": len(store.tags),
        "nonfinite": sum(int(np.count_nonzero(~np.isfinite(column.values))) for column in columns),
        "per_tag_step_regressions": regressions(chunks),
    }
    assert found == {name: entry[name] for name in found}
    assert [facts.skipped for facts in index.files] == [None] * len(index.files)
    assert [(facts.corrupt_records, facts.torn_bytes) for facts in index.files] == [(0, 0)] * len(index.files)


def regressions(chunks: list[Chunk]) -> int:
    """How often a tag's step goes down within a file."""
    return sum(
        int(np.count_nonzero(np.diff(points.steps) < 0)) for chunk in chunks for points in chunk.scalars.values()
    )


def test_every_run_is_found_by_its_name() -> None:
    """One index over all of them: brackets, spaces and nested runs included."""
    index = LogdirIndex(str(LOGDIRS))
    index.refresh()
    assert set(index.runs) == {entry["dir"] for entry in ENTRIES}
    assert index.problems == ()


def test_a_file_that_grew_gives_what_is_new() -> None:
    """Two copies of one live file, taken at different times: the second begins with the first."""
    _, (first,) = read("growing/snapshot-1")
    _, (second,) = read("growing/snapshot-2")
    for tag, points in first.scalars.items():
        assert (second.scalars[tag].steps[: len(points)] == points.steps).all()
        assert (second.scalars[tag].values[: len(points)] == points.values).all()
    assert (first.records, second.records) == (3700, 4225)


def test_a_wall_time_of_zero_stays_zero() -> None:
    """It is the writer's word; whoever shows it decides what it means."""
    _, (chunk,) = read("wall-time-zero")
    assert (chunk.first_at, chunk.last_at, chunk.scalars["loss"].walls.tolist()) == (0.0, 0.0, [0.0])
