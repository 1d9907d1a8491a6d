"""``tb-supervisor inspect``: every run in a logdir, on a terminal, in a pipe, as JSON, once or until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result
from forked import Forked, ForkServer

from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    LaunchRecord,
    NoticeRecord,
    Record,
    RecoveryRecord,
    SessionRecord,
    StallRecord,
    StopRecord,
    summary_bytes,
)
from supervisor_core.events.writer import EventsWriter

DOCS = Path(__file__).parents[2] / "docs" / "inspect.md"
REAL = Path(__file__).parents[2].parent / "shared" / "logdirs"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Returns a function that writes a session's events file: records at seconds after a start that all of a test's
    sessions count from. A session starts with its first record."""
    start = time.time() - 1000.0

    class AtItsStart:
        def __init__(self, at: float) -> None:
            self.at = at

        def wall(self) -> float:
            return self.at

        def monotonic(self) -> float:
            return time.monotonic()

    def session(name: str, *records: tuple[float, int, Record]) -> Path:
        with EventsWriter(tmp_path / "logs" / name, clock=AtItsStart(start + records[0][0])) as writer:
            for at, step, record in records:
                if isinstance(record, SessionRecord):
                    record = replace(record, started_at=start + at)
                writer.summary(summary_bytes(record), step, start + at)
                writer.scalar("loss", 1.0 / (step + 1), step, start + at)
        os.utime(writer.path, (start + records[-1][0],) * 2)  # as if it had been written then
        return tmp_path / "logs"

    return session


def first_session(name: str = "a") -> list[tuple[float, int, Record]]:
    """A session that was killed after step 130, its newest checkpoint of step 100."""
    id = f"{name}1"
    return [
        (
            0.0,
            0,
            SessionRecord(
                session=id, attempt=1, host="h", pid=1, facade="Supervisor", started_at=0.0, heartbeat_secs=10
            ),
        ),
        (100.0, 100, CheckpointRecord(session=id, trigger="timer", path="m-100", step=100, secs=0.5)),
        (130.0, 130, HeartbeatRecord(session=id, phase="training", step=130, activity_secs={"productive": 130.0})),
    ]


def second_session(name: str = "a") -> list[tuple[float, int, Record]]:
    """The session after it, which goes on from step 100 and completes."""
    return [
        (
            150.0,
            100,
            SessionRecord(
                session=f"{name}2",
                attempt=2,
                host="h",
                pid=2,
                facade="Supervisor",
                started_at=0.0,
                restored_checkpoint="m-100",
                restored_step=100,
                previous_outcome="lost",
            ),
        ),
        (300.0, 250, StopRecord(session=f"{name}2", reason="completed", step=250, activity_secs={"productive": 150.0})),
    ]


def test_a_restart_is_seen(run: Callable[..., Result], write: Write) -> None:
    """Sessions, the boundary with what it cost, the checkpoint that is gone, the state: as JSON, exactly."""
    write("a", *first_session())
    logdir = write("a", *second_session())
    (seen,) = json.loads(run("inspect", logdir, "--json").stdout)["runs"]
    assert (seen["run"], seen["state"], seen["inferred"], seen["files"]) == ("a", "completed", False, 2)
    assert [item["outcome"] for item in seen["sessions"]] == ["lost", "completed"]
    (restart,) = seen["restarts"]
    assert (restart["from_step"], restart["to_step"], restart["rewind_steps"]) == (130, 100, 30)
    assert restart["downtime_secs"] == pytest.approx(20.0, abs=1.0)
    assert [(item["step"], item["on_disk"]) for item in seen["checkpoints"]] == [(100, False)]
    assert sum(seen["goodput"]["secs"].values()) == pytest.approx(seen["goodput"]["wall_secs"])


def test_the_table_and_one_run(run: Callable[..., Result], write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each run; with --run its timeline; names that look like markup stay what they are."""
    monkeypatch.setenv("COLUMNS", "160")
    write("a/[bold]", *first_session())
    logdir = write("b", *first_session("b"), *second_session("b"))
    table = run("inspect", logdir)
    assert table.exit_code == 0, table.output
    assert re.search(r"^a/\[bold\] +✗ lost +130 ", table.stdout, re.MULTILINE)
    assert re.search(r"^b +✓ completed +[-\d]+ [:\d]+ .* 250 ", table.stdout, re.MULTILINE)
    assert table.stdout.splitlines()[0] == "1 needs you · 1 over"
    one = run("inspect", logdir, "--run", "b").stdout
    assert "30 steps recomputed" in one and "m-100" in one and "a/[bold]" not in one


def test_a_row_has_the_reason_and_the_run_what_to_do(
    run: Callable[..., Result], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of a run stands in its row, in a pipe in one line, cut, whatever an error's text is; with --run and
    --json there is all of it, and the command can be pasted."""
    monkeypatch.setenv("COLUMNS", "80")
    write("a", *first_session())
    logdir = write("a", *second_session())
    end = {"launch": "l1", "attempt": 1, "started_at": 0.0, "state": "end", "action": "end"}
    why = {"cause": "error", "error": "ImportError at train.py:3", "reason": "ImportError before the first step"}
    write("b", (990.0, 0, LaunchRecord(**end, **why)))
    stop = StopRecord(session="c1", reason="error", error="E: [x]\n" + "y" * 999)
    write("c", *first_session("c"), (130.5, 130, stop))
    text = run("inspect", logdir).stdout
    assert text.startswith("2 need you · 1 over\n")
    reason = "ImportError at train.py:3"
    given_up = "tb-supervisor does not start it again: ImportError before the first step"
    assert re.search(rf"^b +✗ failed .*  The training has failed: {reason}\. {given_up}\. \(for ", text, re.MULTILINE)
    assert re.search(r"^c +✗ failed .*  The training has failed: E: \[x\] y{193} \.\.\. \(for ", text, re.MULTILINE)
    objects = {item["run"]: item for item in json.loads(run("inspect", logdir, "--json").stdout)["runs"]}
    assert {name: item["failure"] for name, item in objects.items() if name != "c"} == {"a": None, "b": reason}
    for name in ("b", "c"):
        (said,) = objects[name]["findings"]
        assert (said["kind"], said["severity"], said["alert"]) == ("failed", "page", "SupervisorTrainingFailed")
        shown = " ".join(run("inspect", logdir, "--run", name).stdout.split())
        assert said["text"] in shown and f"do: {said['action']}" in shown


def test_ages_are_by_the_clock_of_the_run(run: Callable[..., Result], write: Write) -> None:
    """A file whose newest event is a quarter of an hour old is written just now: so late is its machine's clock."""
    logdir = write("a", *first_session())
    (file,) = (logdir / "a").iterdir()
    os.utime(file)
    (seen,) = json.loads(run("inspect", logdir, "--json").stdout)["runs"]
    assert (seen["state"], seen["clock_skew_secs"]) == ("running", pytest.approx(-870.0, abs=10.0))
    assert seen["checkpoint_age_secs"] == pytest.approx(30.0, abs=10.0)
    assert re.search(r" last event [.\d]+ s ago", run("inspect", logdir, "--run", "a").stdout)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real logdirs are not there (../shared/logdirs)")
def test_what_real_runs_of_others_show(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns: when each began, how long it lasted, its step, its loss. Nothing is said of what is not known."""
    for name, value in {"COLUMNS": "80", "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}.items():
        monkeypatch.setenv(name, value)
    lines = run("inspect", REAL).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split("  ")[0] or line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["tf1-hooks-captcha"][1:] == ["-", "2021-03-01", "7", "min", "3,000", "0.021"]
    assert "  log-base/train        -      2020-05-16  36 min 11 s        3       0.1838" in lines
    assert rows["growing/snapshot-1"][1] == "copy", "an earlier state of the same file"
    whole = "\n".join(lines)
    for truth in json.loads((REAL / "manifest.json").read_text()):
        whole += run("inspect", REAL, "--run", truth["dir"]).stdout
    for words in ("· unknown", "deleted", "at least 0", "goodput", "not known)", "recovery", "0 steps/s"):
        assert words not in whole


def documented(section: str) -> set[str]:
    """The fields that a section of docs/inspect.md describes."""
    text = DOCS.read_text("utf-8")
    parts = re.split(r"^## `?([\w ]+)`?$", text, flags=re.MULTILINE)
    sections = {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
    return set(re.findall(r"^\| `([a-z_]+)` \|", sections[section], re.MULTILINE))


def test_every_field_is_documented(run: Callable[..., Result], write: Write) -> None:
    """docs/inspect.md describes each field of the object, and no other; docs/inspect.schema.json allows what is printed
    and no other field."""
    thread: dict[str, Any] = {"name": "summary", "state": "idle", "ticks": 1}
    worker: dict[str, Any] = {"name": "worker:1", "state": "running", "started_at": 1.0}
    write("a", *first_session())
    logdir = write(
        "a",
        *second_session()[:1],
        (200.0, 150, HeartbeatRecord(session="a2", phase="training", step=150, threads=(thread,), workers=(worker,))),
        (205.0, 150, RecoveryRecord(session="a2", error="UnavailableError: gone", step=150, restored_step=100)),
        (206.0, 150, NoticeRecord(session="a2", text="accuracy fell")),
        (210.0, 150, StallRecord(session="a2", state="begin", phase="training", since=1.0, stacks={"M": ("f", "g")})),
    )
    whole = json.loads(run("inspect", logdir, "--json").stdout)
    schema = json.loads(DOCS.with_suffix(".schema.json").read_text())
    closed = {name: {**part, "additionalProperties": False} for name, part in schema["$defs"].items()}
    jsonschema.validate(whole, {**schema, "$defs": closed, "additionalProperties": False})
    (seen,) = whole["runs"]
    assert set(whole) == documented("")
    assert set(seen) == documented("A run")
    parts = "findings last_values sessions restarts recoveries workers checkpoints threads stalls notices"
    for part in parts.split():
        assert seen[part], part
        assert {key for item in seen[part] for key in item} == documented(part)
    for part in ("goodput", "advice"):
        assert set(seen[part]) == documented(part)
    spans = re.search(r"^\| `spans` \|.*`\{(.*)\}`", DOCS.read_text("utf-8"), re.MULTILINE)
    assert spans is not None and set(seen["workers"][0]["spans"][0]) == set(re.findall(r'"(\w+)"', spans[1]))


@pytest.fixture
def follow(command_server: ForkServer) -> Iterator[Callable[..., Forked]]:
    """Returns a function that starts ``tb-supervisor inspect --follow`` in a pipe, which looks again after 0.1 s."""
    main = "from supervisor_core.cli import inspect, main; inspect.FOLLOW_SECS = 0.1; main()"
    started: list[Forked] = []

    def start(*arguments: object) -> Forked:
        started.append(command_server.start(["-c", main, "inspect", "--follow", *map(str, arguments)]))
        return started[-1]

    yield start
    for process in started:
        process.close()


def test_following_shows_each_change(write: Write, tmp_path: Path, follow: Callable[..., Forked]) -> None:
    """One JSON object a line: at once, and again when the run has gone on; Ctrl-C ends it with status 0."""
    logdir = write("a", *first_session())
    write("../elsewhere", *second_session())
    (second,) = (tmp_path / "elsewhere").iterdir()
    process = follow(logdir, "--json")
    assert json.loads(process.stdout.readline())["runs"][0]["state"] == "lost"
    second.rename(logdir / "a" / second.name)  # all of it at once: no look finds a part
    assert json.loads(process.stdout.readline())["runs"][0]["state"] == "completed"
    process.send_signal(signal.SIGINT)
    assert (process.stdout.read(), process.wait()) == ("", 0)
