"""``tb-supervisor export``: one table of all runs in one file."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from supervisor_core.events.telemetry import CheckpointRecord, SessionRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from supervisor_core.history.rows import TABLES
from tests.conftest import StillClock

Command = Callable[..., Result]
START = 1_795_222_244.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="works on Linux and macOS")


def write(run: Path, session: str, attempt: int, steps: range, at: float) -> None:
    """A session that wrote its loss and ended, or died, a minute after its last step."""
    with EventsWriter(run, clock=StillClock(at)) as writer:
        record = SessionRecord(
            session=session, attempt=attempt, started_at=at, restored_step=steps.start if attempt > 1 else None
        )
        writer.summary(summary_bytes(record), steps.start)
        for step in steps:
            writer.scalar("loss", step / 4, step)
        writer.summary(summary_bytes(StopRecord(session=session, reason="error", step=steps[-1])), steps[-1])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A run of two sessions, of which the second went back by two steps; and one of another writer."""
    write(tmp_path / "logs" / "a", "a1", 1, range(5), START)
    write(tmp_path / "logs" / "a", "a2", 2, range(3, 6), START + 1000)
    with EventsWriter(tmp_path / "logs" / "b", clock=StillClock(START)) as writer:
        writer.scalar("acc", float("nan"), 7)
    return tmp_path / "logs"


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_scalars_are_what_a_file_holds(run: Command, logs: Path, tmp_path: Path) -> None:
    """All points of all runs, those too that were done again; each with its session, and whether it was kept."""
    done = run("export", logs, "-o", tmp_path / "runs.jsonl")
    assert (done.exit_code, done.output) == (0, f"{tmp_path}/runs.jsonl: 9 scalars of 2 runs.\n")
    rows = lines(tmp_path / "runs.jsonl")
    assert [(row["run"], row["tag"], row["step"], row["session"], row["kept"]) for row in rows] == [
        *(("a", "loss", step, "a1", step <= 3) for step in range(5)),
        *(("a", "loss", step, "a2", True) for step in range(3, 6)),
        ("b", "acc", 7, "inferred-1", True),
    ]
    assert [row["value"] for row in rows] == [*(step / 4 for step in (0, 1, 2, 3, 4, 3, 4, 5)), None]
    assert rows[0]["wall_time"] == START and rows[0]["running_time"] == rows[5]["running_time"] == 0.0


def test_several_logdirs_are_one_table(run: Command, logs: Path, tmp_path: Path) -> None:
    """Names are relative to what the logdirs have in common; filters choose runs by their names in their logdirs."""
    assert run("export", logs / "a", logs / "b", "-o", tmp_path / "runs.jsonl").exit_code == 0
    assert [row["run"] for row in lines(tmp_path / "runs.jsonl")] == ["a"] * 8 + ["b"]
    assert run("export", logs, "--exclude", "a", "-o", tmp_path / "runs.jsonl").exit_code == 0
    assert [row["run"] for row in lines(tmp_path / "runs.jsonl")] == ["b"]


@pytest.mark.parametrize("table", ["scalars", "sessions"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_long_path_is_not_in_each_row(run: Command, tmp_path: Path, table: str, ending: str) -> None:
    """A path of kilobytes beside each value would be most of the file. Two runs keep two names."""
    names = [os.path.join(*["d" * 250] * 6, *[letter * 250] * 2, *["e" * 250] * 3) for letter in "xy"]
    for name in names:
        (tmp_path / "logs" / name).mkdir(parents=True)
        write(tmp_path / "logs" / name, f"s{name[1600]}", 1, range(500), START)
    file = tmp_path / f"runs.{ending}"
    assert run("export", tmp_path / "logs", "--table", table, "-o", file).exit_code == 0
    rows = list(csv.DictReader(io.StringIO(file.read_text()))) if ending == "csv" else lines(file)
    found = {row["run"] for row in rows}
    assert len(found) == 2 and all(len(name) <= 256 and name.startswith("ddd") for name in found)
    assert len(rows) == (1000 if table == "scalars" else 2) and file.stat().st_size < 600 * len(rows) + 4000


def test_what_cannot_be_read_is_said(run: Command, logs: Path, tmp_path: Path) -> None:
    """The rest is there, and the exit status is 1. The end of a file that a kill has left is no fault."""
    (file,) = (logs / "b").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    done = run("export", logs, "-o", tmp_path / "runs.jsonl")
    assert (done.exit_code, len(lines(tmp_path / "runs.jsonl")), done.stderr) == (0, 8, "")
    file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    done = run("export", logs, "-o", tmp_path / "runs.jsonl")
    assert (done.exit_code, len(lines(tmp_path / "runs.jsonl"))) == (1, 8)
    assert done.stderr.startswith(f"b: {file} at byte ") and done.stderr.count("\n") == 1


def test_without_runs_nothing_is_replaced(run: Command, logs: Path, tmp_path: Path) -> None:
    """An error says that there are none, as that of every command."""
    (tmp_path / "runs.csv").write_text("before")
    for more in ((), ("--table", "sessions")):
        done = run("export", logs, "--include", "c", "-o", tmp_path / "runs.csv", *more)
        assert done.exit_code == 2 and "There are no events files in" in done.stderr and "'c'" in done.stderr
    assert (tmp_path / "runs.csv").read_text() == "before"


def test_the_other_tables(run: Command, logs: Path, tmp_path: Path) -> None:
    """Sessions with labels, the restart with the host on which the earlier one ended, each save, findings. A copy of a
    run has no rows."""
    with EventsWriter(logs / "c", clock=StillClock(START)) as writer:
        labels = {"team": "vision", "user": "ada"}
        writer.summary(summary_bytes(SessionRecord(session="c1", attempt=1, started_at=START, labels=labels)), 0)
        for step in range(40):
            saved = CheckpointRecord(session="c1", trigger="timer", path=f"m-{step}", step=step)
            writer.summary(summary_bytes(saved), step)
    shutil.copytree(logs / "c", logs / "copy of c")
    found = {}
    for table, count in (("sessions", 4), ("restarts", 1), ("checkpoints", 40), ("findings", 3)):
        done = run("export", logs, "-o", tmp_path / f"{table}.jsonl", "--table", table)
        assert (done.exit_code, done.output) == (0, f"{tmp_path}/{table}.jsonl: {count} {table} of 4 runs.\n")
        found[table] = lines(tmp_path / f"{table}.jsonl")
    (restart,) = found["restarts"]
    assert (restart["run"], restart["rewind_steps"], restart["at"]) == ("a", 1, "2026-11-21T01:07:24.000000Z")
    assert (restart["logdir"], restart["reason"]) == (str(logs), "error")
    assert {row["step"] for row in found["checkpoints"]} == {*range(40)}
    assert (found["sessions"][3]["labels"], found["sessions"][3]["team"]) == (labels, "vision")


def test_the_columns_can_be_asked_for(run: Command) -> None:
    """Every table with what each column holds, as JSON; no logdir is needed."""
    done = run("export", "--schema")
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert list(found) == [*(table.name for table in TABLES), "scalars"]
    assert found["restarts"]["columns"]["downtime_secs"] == {"type": "number", "text": "Seconds between the two."}


def test_wrong_calls(run: Command, logs: Path, tmp_path: Path) -> None:
    """Each says what is wrong, and what is right."""
    for given, text in (
        ((), "--output"),
        (("-o", "s3://bucket/x"), "--output is 's3://bucket/x'; expected a local file"),
        (("-o", tmp_path / "x.csv", "--table", "loss"), "'loss' is not one of 'scalars', 'sessions'"),
        (("-o", tmp_path), "expected a file that ends in .parquet, .csv, .jsonl."),
        (("-o", tmp_path / "no" / "x.csv"), f"The directory {tmp_path}/no does not exist; create it first."),
    ):
        done = run("export", logs, *given)
        assert done.exit_code == 2 and text in done.stderr, done.stderr


def test_a_full_disk_leaves_what_was_there(
    run: Command, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit status of every command; nothing half is left."""
    (tmp_path / "runs.csv").write_text("before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("export", logs, "-o", tmp_path / "runs.csv")
    assert (done.exit_code, done.stderr) == (74, "Error: Cannot write the output: No space left on device.\n")
    assert (tmp_path / "runs.csv").read_text() == "before" and sorted(os.listdir(tmp_path)) == ["logs", "runs.csv"]
