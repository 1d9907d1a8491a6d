"""``tb-supervisor export``: what is written of a logdir, and what is said of it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from supervisor_core.cli import export as command
from supervisor_core.events.telemetry import CheckpointRecord, SessionRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from supervisor_core.history.rows import TABLES
from tests.conftest import StillClock

Command = Callable[..., Result]
START = 1_795_222_244.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="works on Linux and macOS")


def write(run: Path, session: str = "a1", reason: str = "completed", attempt: int = 1) -> None:
    """A session that saved once and ended."""
    started_at = START + 100 * attempt
    with EventsWriter(run, clock=StillClock(started_at + 50)) as writer:
        record = SessionRecord(
            session=session,
            attempt=attempt,
            host=f"node-{attempt}",
            started_at=started_at,
            labels={"team": "vision", "user": "ada"},
            world_size=8,
            device_count=8,
            restored_step=3 if attempt > 1 else None,
        )
        writer.summary(summary_bytes(record), 0)
        writer.summary(summary_bytes(CheckpointRecord(session=session, trigger="timer", path="m-3", step=3)), 3)
        writer.summary(summary_bytes(StopRecord(session=session, reason=reason, step=4)), 4)


def stored(directory: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in JSON lines."""
    files = sorted((directory / table).glob("day=*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_logdir_becomes_tables(run: Command, tmp_path: Path) -> None:
    """Sessions with host and labels, the restart with the host on which the earlier one ended, saves, findings."""
    write(tmp_path / "logs" / "r", reason="error")
    write(tmp_path / "logs" / "r", "a2", "error", attempt=2)
    done = run("export", tmp_path / "logs", "-o", tmp_path / "out", "--format", "jsonl")
    said = f"{tmp_path}/out: 2 sessions, 2 session_days, 1 restarts, 2 checkpoints, 1 findings\n"
    assert (done.exit_code, done.output) == (0, said)
    sessions = stored(tmp_path / "out", "sessions")
    assert [(row["run"], row["session"], row["host"], row["outcome"], row["team"]) for row in sessions] == [
        ("r", "a1", "node-1", "error", "vision"),
        ("r", "a2", "node-2", "error", "vision"),
    ]
    assert sessions[0]["labels"] == {"team": "vision", "user": "ada"} and sessions[0]["device_count"] == 8
    assert sessions[0]["started_at"] == "2026-11-21T00:52:24.000000Z" and sessions[0]["logdir"] == f"{tmp_path}/logs"
    (restart,) = stored(tmp_path / "out", "restarts")
    assert (restart["host"], restart["to_host"], restart["reason"]) == ("node-1", "node-2", "error")
    assert [row["step"] for row in stored(tmp_path / "out", "checkpoints")] == [3, 3]
    assert [row["kind"] for row in stored(tmp_path / "out", "findings")] == ["failed"]


def test_again_adds_what_is_new(run: Command, tmp_path: Path) -> None:
    """Nothing, where nothing happened; a new session; and a run that was deleted stays. A slash at the end of the
    logdir makes no difference."""
    arguments = ("-o", tmp_path / "out", "--format", "jsonl")
    write(tmp_path / "logs" / "r", reason="error")
    write(tmp_path / "logs" / "gone", "b1")
    assert run("export", tmp_path / "logs", *arguments).exit_code == 0
    assert run("export", f"{tmp_path}/logs/", *arguments).output == ""
    shutil.rmtree(tmp_path / "logs" / "gone")
    write(tmp_path / "logs" / "r", "a2", attempt=2)
    assert (
        "1 sessions, 2 session_days, 1 restarts, 1 checkpoints" in run("export", tmp_path / "logs", *arguments).output
    )
    assert sorted(row["run"] for row in stored(tmp_path / "out", "sessions")) == ["gone", "r", "r"]


def test_parquet_has_the_same_rows(run: Command, tmp_path: Path) -> None:
    """DuckDB reads the partitions; the day is a column."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    write(tmp_path / "logs" / "r")
    assert run("export", tmp_path / "logs", "-o", tmp_path / "out").exit_code == 0
    query = f"SELECT run, labels['user'], day::VARCHAR, epoch(started_at) FROM '{tmp_path}/out/sessions/*/*.parquet'"
    assert duckdb.sql(query).fetchall() == [("r", "ada", "2026-11-21", START + 100)]


def test_a_copy_is_not_counted_twice(run: Command, tmp_path: Path) -> None:
    """A run that was copied to another directory has its rows once."""
    write(tmp_path / "logs" / "r")
    shutil.copytree(tmp_path / "logs" / "r", tmp_path / "logs" / "copy of r")
    assert run("export", tmp_path / "logs", "-o", tmp_path / "out", "--format", "jsonl").exit_code == 0
    assert len(stored(tmp_path / "out", "sessions")) == 1


def test_following_stores_what_comes(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Ctrl-C, at the interval; a full disk is one warning, and what could not be stored comes with the next."""
    arguments = ("--follow", "--interval", "1m", "-o", tmp_path / "out", "--format", "jsonl")
    write(tmp_path / "logs" / "r", reason="error")
    replace, waits = os.replace, []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def wait(secs: float) -> None:
        waits.append(secs)
        if len(waits) == 1:
            write(tmp_path / "logs" / "r", "a2", attempt=2)
            monkeypatch.setattr(os, "replace", full)
        elif len(waits) == 3:
            monkeypatch.setattr(os, "replace", replace)
        elif len(waits) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "wait", wait)
    done = run("export", tmp_path / "logs", *arguments)
    assert (done.exit_code, waits) == (0, [60.0] * 4)
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == [
        "1 sessions, 1 session_days, 1 checkpoints, 1 findings",
        "1 sessions, 2 session_days, 1 restarts, 1 checkpoints",
    ]
    assert len(stored(tmp_path / "out", "sessions")) == 2


def test_the_columns_can_be_asked_for(run: Command) -> None:
    """Every table with its key and what each column holds, as JSON; no logdir is needed."""
    done = run("export", "--schema")
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert list(found) == [*(table.name for table in TABLES), "scalars"]
    assert [*found["scalars"]["columns"]][2:4] == ["step", "wall_time"]
    assert found["sessions"]["key"] == ["logdir", "run", "session"]
    assert found["restarts"]["columns"]["downtime_secs"] == {"type": "number", "text": "Seconds between the two."}


def test_wrong_calls(run: Command, tmp_path: Path) -> None:
    """One line each: no output, an address, a file in its place; a full disk has a status of its own."""
    write(tmp_path / "logs")
    (tmp_path / "file").write_text("")
    for given, status, text in (
        ((), 2, "--output"),
        (("-o", "s3://bucket/x"), 2, "--output is 's3://bucket/x'; expected a local directory"),
        (("-o", tmp_path / "file"), 2, f"{tmp_path}/file cannot be written: File exists."),
    ):
        done = run("export", tmp_path / "logs", *given, "--format", "jsonl")
        assert done.exit_code == status and text in done.stderr


def test_old_saves_are_rows(run: Command, tmp_path: Path) -> None:
    """Saves whose files are gone have rows as the newest have."""
    with EventsWriter(tmp_path / "logs" / "r", clock=StillClock(START)) as writer:
        writer.summary(summary_bytes(SessionRecord(session="a1", attempt=1, started_at=START)), 0)
        for step in range(40):
            saved = CheckpointRecord(session="a1", trigger="timer", path=f"m-{step}", step=step)
            writer.summary(summary_bytes(saved), step)
    assert run("export", tmp_path / "logs", "-o", tmp_path / "out", "--format", "jsonl").exit_code == 0
    assert {row["step"] for row in stored(tmp_path / "out", "checkpoints")} == {*range(40)}
