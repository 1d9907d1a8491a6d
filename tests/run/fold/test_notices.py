"""What a program has said is folded as it was recorded, and is a finding for an hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.events.telemetry import NoticeRecord
from supervisor_core.history.rows import NOTICES, rows_of
from supervisor_core.run.fold import bounds
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import findings, standing
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun

RunOf = Callable[..., Run]


def says(session: Any, text: str = "accuracy fell", **fields: Any) -> Any:
    """The program says something now."""
    record = NoticeRecord(**{"session": session.id, "text": text, "at": session.now, "since": session.now} | fields)
    session.file.record(record, session.step or 0, session.now)
    return session


def said(run: Run, now: float) -> list[Finding]:
    """What is found of it."""
    watched = WatchedRun(run=run, files=(), directory="/runs/a b")
    return [each for each in findings(watched, now) if each.kind == "notice"]


def test_the_last_record_of_a_notice_counts(trainer: Any, run_of: RunOf) -> None:
    """It has the count; what was said with another severity, by another process or at another time is another one."""
    session = says(trainer().spend(1).ready().train(10), step=10)
    since = session.now
    says(session.train(10), count=5, since=since)
    says(session.train(10), severity="page")
    says(session.train(10), worker="rank:3")
    says(session.train(10), since=since - 9000)
    assert [(each.severity, each.worker, each.count, each.since) for each in run_of(session).notices] == [
        ("warn", None, 5, since),
        ("page", None, 1, since + 20),
        ("warn", "rank:3", 1, since + 30),
        ("warn", None, 1, since - 9000),
    ]


def test_what_a_worker_said_is_there_once(trainer: Any, run_of: RunOf) -> None:
    """Though two chiefs have recorded it, the later one more often."""
    first = trainer("a").spend(1).ready().train(10)
    since = first.now
    says(first, worker="rank:3", count=2)
    second = trainer("b", first.now + 5, attempt=2).spend(1).ready(5, previous_outcome="lost").train(10)
    says(second, worker="rank:3", count=3, since=since)
    assert [(each.session, each.count) for each in run_of(first, second).notices] == [("b", 3)]


def test_a_record_without_times_was_said_when_it_was_written(trainer: Any, run_of: RunOf) -> None:
    """As one that another program wrote."""
    session = says(trainer().spend(1).ready().train(10), at=None, since=None)
    (notice,) = run_of(session).notices
    assert (notice.at, notice.since) == (session.now, session.now)


def test_the_newest_notices_are_kept(trainer: Any, run_of: RunOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dropped is counted as history; a notice that is said again is not the oldest."""
    monkeypatch.setattr(bounds, "MAX_NOTICES", 3)
    session = trainer().spend(1).ready().train(1)
    since = session.now
    for number in range(3):
        says(session.train(1), f"number {number}", since=since)
    says(session.train(1), "number 0", since=since, count=2)
    says(session.train(1), "number 3")
    run = run_of(session)
    assert [each.text for each in run.notices] == ["number 2", "number 0", "number 3"]
    assert run.dropped == {"history": 1}


def test_it_is_a_finding_for_an_hour_after_the_last_time(trainer: Any, run_of: RunOf) -> None:
    """Whatever became of the run; with its text, and a command that shows the rest."""
    session = says(trainer().spend(1).ready().train(10), severity="page", count=3, step=10).train(5).stop()
    at = session.now - 5
    run = run_of(session)
    (found,) = said(run, at + 3599)
    assert (found.severity, found.text, found.cost, found.since) == ("page", "accuracy fell.", "Said 3 times.", at)
    assert found.action == "tb-supervisor inspect --run=. -- '/runs/a b'" and found.is_command
    assert found.evidence == {"host": "host", "pid": 1, "session": session.id, "step": 10, "count": 3}
    assert standing(run.state, [found]) == "needs_you" and found.alert == "SupervisorNotice"
    assert said(run, at + 3601) == []


def test_of_each_severity_the_newest_is_said(trainer: Any, run_of: RunOf) -> None:
    """One finding each, the worst first, with how many others there are; a worker's with its name."""
    session = trainer().spend(1).ready()
    for severity in ("info", "warn", "page"):
        says(says(session.train(9), f"old {severity}", severity=severity), f"new {severity}", severity=severity)
    says(session.train(9), "disk is slow", worker="rank:3")
    assert [each.sentence for each in said(run_of(session), session.now + 1)] == [
        "new page. 1 other notice within 1 h.",
        "rank 3: disk is slow. 2 other notices within 1 h.",
        "new info. 1 other notice within 1 h.",
    ]


def test_notices_are_rows_of_a_table(trainer: Any, run_of: RunOf) -> None:
    """For `export`: each as its last record has it."""
    session = says(trainer().spend(1).ready().train(10), count=3, step=10, worker="rank:3")
    rows = [row for table, row in rows_of("/runs", WatchedRun(run=run_of(session), files=()), ()) if table is NOTICES]
    named = [dict(zip((column.name for column in NOTICES.columns), row, strict=True)) for row in rows]
    assert [(each["session"], each["text"], each["count"], each["step"], each["worker"]) for each in named] == [
        (session.id, "accuracy fell", 3, 10, "rank:3")
    ]
