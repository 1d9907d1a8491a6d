"""What a program's texts pass through: the restarter, py-spy's answers, the cache, and every view of a run."""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from fuzz.telemetry import NOW
from supervisor_core.base.log import printable
from supervisor_core.cli.look import Look, SeenRun
from supervisor_core.cli.mcp import CLOSING, OPENING, Answers
from supervisor_core.cli.overview import overview
from supervisor_core.cli.text import Output
from supervisor_core.cli.timeline import timeline
from supervisor_core.events import telemetry
from supervisor_core.events.chunk import Chunk, TelemetryMark
from supervisor_core.events.record_fields import MAX_TEXT
from supervisor_core.events.telemetry import from_json, to_json
from supervisor_core.history.formats import FORMATS
from supervisor_core.history.rows import TABLES, rows_of
from supervisor_core.metrics.page import run_status, write_run
from supervisor_core.notify.event import Event
from supervisor_core.notify.message import JOINER, message_of
from supervisor_core.process import outside
from supervisor_core.process.stacks import MAX_FRAMES
from supervisor_core.restarter.failure import cause_of, failure_of, has_lost_another
from supervisor_core.restarter.launch import LaunchFacts, describe
from supervisor_core.restarter.policy import ChildEnd, Limits, RestartState, decide
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.run_cache import RunCache

_MEMORY = Path("/dev/shm")


def check_output(data: bytes) -> None:
    """Examine the end of a program's standard error, and decide about its launch."""
    text = data[1:].decode("utf-8", "replace")
    signal = data[0] % 32 if data[:1] > b"\x80" else None
    end = ChildEnd(exit_code=None, signal=signal) if signal else ChildEnd(exit_code=1)
    facts = LaunchFacts(attempt=1, started_at=0.0, directory="/", cause="error", end=replace(end, stderr=text))
    facts.failure = failure_of(text, signal, 3)
    facts.cause = cause_of(facts, asked_to_stop=False, is_hung=False, never=())
    assert isinstance(has_lost_another(text), bool) and describe(facts)
    failure = facts.failure
    assert failure is None or (failure.type and len(failure.type) <= 201 and len(failure.where or "") <= MAX_TEXT)
    decide(RestartState(attempt=1), facts, Limits(), chance=0.5)


def check_pyspy(data: bytes) -> None:
    """Read what py-spy has printed, and its errors."""
    found = outside.parse(data)
    assert bool(found.stacks) != bool(found.problem)
    assert len(found.stacks) <= outside.MAX_THREADS and set(found.threads) <= set(found.stacks)
    assert found.holds_lock is None or found.holds_lock in found.stacks
    for name, frames in found.stacks.items():
        assert isinstance(name, str) and len(frames) <= MAX_FRAMES and all(isinstance(each, str) for each in frames)
    assert outside.loader_workers(0, found.stacks) == {}


@cache
def _cache() -> RunCache:
    directory = tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None)
    return RunCache(directory, "/runs", 1)


def check_cache(data: bytes) -> None:
    """Read a file of the cache, as it is and with its checksum put right; keep and read again what was accepted."""
    runs = _cache()
    for content in (data, zlib.compress(data, 1)):
        Path(runs._path("run")).write_bytes(content)
        kept = runs.kept("run")
        if kept is not None:
            runs.keep([("again", kept)])
            first = runs.kept("again")
            assert first is not None
            runs.keep([("again", first)])
            assert repr(runs.kept("again")) == repr(first)


class _Looked:
    """Stands for what looks at logdirs."""

    def __init__(self, look: Look) -> None:
        self.look = lambda _: look


def check_shapes(data: bytes) -> None:
    """Show a text as the name, the host, a label and every text of a run, in each view."""
    text, name = data.decode("utf-8", "replace"), data.decode("utf-8", "surrogateescape")[:100] or "x"
    one = text[:100] or "x"
    records: list[telemetry.Record] = [
        telemetry.SessionRecord(
            session=one, attempt=1, host=one, facade=one, run=one, started_at=NOW - 90, labels={"team": one},
            skipped=({"path": one, "reason": text},), versions={one: one},
        ),
        telemetry.StallRecord(
            session=one, state="begin", phase="training", since=NOW - 60, step=8, secs=5.0, timeout_secs=9.0,
            stacks={one: (f"{one}:1 {one}",)},
        ),
        telemetry.NoticeRecord(session=one, severity="page", text=text, count=2, since=NOW - 50, at=NOW - 50, step=8),
        telemetry.CheckpointRecord(session=one, trigger="timer", path=text, step=7, bytes=9, secs=0.2, error=text),
        telemetry.StopRecord(session=one, reason="error", error=text, step=9, steps=6, elapsed_secs=60.0),
    ]  # fmt: skip
    marks = tuple(
        TelemetryMark(offset=at, at=NOW - 40 + at, step=at, record=from_json(record.kind, to_json(record)))
        for at, record in enumerate(records)
    )
    fold = RunFold(name, kept_ticks=10)
    fold.update([Chunk(path="events", from_start=True, records=1, marks=marks)])
    run = fold.run(now=NOW)
    watched = WatchedRun(run=run, directory=f"/runs/{name}", files=(), problem=text)
    said = findings(watched, NOW)
    seen = SeenRun(watched, said, name)
    shown = io.StringIO()
    output = Output(file=shown, width=100)
    output.print(*overview([seen], NOW), timeline(run, NOW, 40, said, label=name), sep="\n")
    assert all(printable(line) == line for line in shown.getvalue().split("\n")), shown.getvalue()

    answers = Answers(cast("Any", _Looked(Look(at=NOW, runs={run.name: seen}))))
    for answered in (answers.runs(hours=24), answers.findings(), answers.why(name), answers.compare([name])):
        assert answered.count(OPENING) == answered.count(CLOSING) and printable(answered) == answered, answered
        json.loads(answered)
    written = write_run(run_status(run, NOW, label=name, forget_after_secs=3600.0))
    assert written.problems == (), written.problems
    for finding in said:
        event = Event(
            id="1", what="begins", topic="page", kind=finding.kind, severity=finding.severity, run=name, logdir=name,
            text=f"{name}: {finding.text}", action=finding.action, at=NOW, host=one, labels=run.labels,
        )  # fmt: skip
        message = message_of([event])
        plain = f"{message.title}\n{message.body}"
        assert all(printable(line) == line for line in plain.replace(JOINER, "").split("\n")), plain
        assert "@" not in plain.replace(f"@{JOINER}", "").replace("@''", ""), plain
    for table in TABLES:
        rows = [row for each, row in rows_of("/runs", watched, said) if each is table]
        file = io.BytesIO()
        writer = FORMATS[".csv"](file, table)
        writer.write(list(zip(*rows, strict=True)) or [[] for _ in table.columns])
        writer.close()
        file.getvalue().decode()
