"""What a program says of its run is said once, in its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.event import Event
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock
from tests.story import session as scripted_run

NOW, HOUR = 1_700_000_000.0, 3600.0


class Looks:
    """A watcher of a logdir."""

    def __init__(self, logdir: Path) -> None:
        self.clock, self.changes = StillClock(NOW), Changes(runbook_base="http://runbook")
        self.watch = LogdirWatch(str(logdir), clock=self.clock)

    def at(self, secs: float) -> list[Event]:
        """Look at a time after the beginning."""
        self.clock.now = NOW + secs
        snapshot = self.watch.refresh()
        return self.changes.of(snapshot.runs, snapshot.at)


def told(events: list[Event]) -> list[tuple[str, str, str]]:
    """Topic and words of notices."""
    assert all(each.severity == each.topic and each.what == "happened" for each in events if each.kind == "notice")
    return [(each.kind, each.topic, each.text) for each in events]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A session that trains since the beginning."""
    return scripted_run.Scripted(tmp_path / "tuning", NOW)


def test_each_notice_is_told_once(run: Any, tmp_path: Path) -> None:
    """When it begins; not each time that it is said, and nothing when it is over. Another watcher gives it the same
    id, whenever it looks."""
    one, other = Looks(tmp_path), Looks(tmp_path)
    run.train(60.0).flush()
    assert told(one.at(60)) == []
    since = run.at
    run.say("accuracy fell", "page").train(30.0).say("lr is 0.1", "info").flush()
    first = one.at(90)
    assert told(first) == [
        ("notice", "page", "tuning: accuracy fell"),
        ("notice", "info", "tuning: lr is 0.1"),
    ]
    assert first[0].runbook_url == "http://runbook#supervisornotice" and first[0].at == since
    for number in range(2, 11):
        run.train(500.0).say("accuracy fell", "page", since=since, count=number).flush()
        assert told(one.at(run.at - NOW)) == []
    assert [each.id for each in other.at(run.at - NOW)] == [first[0].id]
    run.train(HOUR + 60).flush()
    assert told(one.at(run.at - NOW)) == []


def test_said_again_after_an_hour_it_is_told_again(run: Any, tmp_path: Path) -> None:
    """It is another one; so is the same text with another severity, and of another process."""
    looks = Looks(tmp_path)
    run.train(10.0).say("accuracy fell").flush()
    assert len(looks.at(10)) == 1
    run.train(HOUR + 60).say("accuracy fell").say("accuracy fell", "page").say("accuracy fell", worker="rank:3").flush()
    assert told(looks.at(run.at - NOW)) == [
        ("notice", "warn", "tuning: accuracy fell"),
        ("notice", "page", "tuning: accuracy fell"),
        ("notice", "warn", "tuning: rank 3: accuracy fell"),
    ]


def test_what_a_completed_run_has_said_is_told(run: Any, tmp_path: Path) -> None:
    """Though the watcher first sees it when it is over; what was said more than an hour ago is not."""
    looks = Looks(tmp_path)
    looks.at(0)
    run.train(10.0).say("long ago").train(2 * HOUR).say("accuracy fell").train(5.0).stop()
    assert [each for each in told(looks.at(run.at + 10 - NOW)) if each[0] == "notice"] == [
        ("notice", "warn", "tuning: accuracy fell")
    ]
