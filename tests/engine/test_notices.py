"""What a program says of its run is recorded, however often it says it, and costs it nothing."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor_core.engine import notices as module
from supervisor_core.engine.notices import AT_ONCE, MOST_TEXTS, Notices
from supervisor_core.events.telemetry import NoticeRecord
from tests.conftest import StillClock

NOW = 1_800_000_000.0


def progress_at(step: int | None) -> Any:
    """What returns a session's progress at a step."""
    return lambda: SimpleNamespace(global_step=step)


class Said:
    """Notices whose thread is the test, and what they have written."""

    def __init__(self, step: int | None = 7) -> None:
        self.clock = StillClock(NOW)
        self.records: list[NoticeRecord] = []
        self.loops: list[Callable[[], None]] = []
        self.notices = Notices("s", self.write, progress_at(step), self.clock, self.loops.append)

    def write(self, record: NoticeRecord, step: int | None) -> None:
        assert record.step == step
        self.records.append(record)

    def later(self, secs: float) -> None:
        self.clock.now += secs


def test_what_is_said_is_a_record() -> None:
    """With its text in one line, its severity, when and where; ``warn`` where nothing is given."""
    said = Said()
    said.notices.say("validation\naccuracy  fell")
    said.notices.say("the end is near", "page")
    assert not said.notices.write_due()
    assert said.records == [
        NoticeRecord(session="s", text="validation accuracy fell", since=NOW, at=NOW, step=7),
        NoticeRecord(session="s", severity="page", text="the end is near", since=NOW, at=NOW, step=7),
    ]
    assert len(said.loops) == 1


def test_the_same_text_is_counted() -> None:
    """Each thousand times is one record, with the time of the last."""
    said = Said()
    for _ in range(2):
        for _ in range(1000):
            said.notices.say("loss is high")
        said.later(1)
        said.notices.say("loss is high")
        said.notices.write_due()
    assert [(each.count, each.since, each.at) for each in said.records] == [(1001, NOW, NOW + 1), (2002, NOW, NOW + 2)]


def test_after_an_hour_it_begins_again() -> None:
    """What was not said for longer is over: it is another notice then."""
    said = Said()
    said.notices.say("loss is high")
    said.notices.write_due()
    said.later(3601)
    said.notices.say("loss is high")
    said.notices.write_due()
    assert [(each.count, each.since) for each in said.records] == [(1, NOW), (1, NOW + 3601)]


def test_many_texts_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Twenty at once, then one in a second; of the rest the newest hundred are kept. One line says that."""
    said = Said()
    for number in range(1000):
        said.notices.say(f"loss is {number}")
    assert said.notices.write_due()
    assert len(said.records) == AT_ONCE
    for _ in range(5):
        said.later(1)
        assert said.notices.write_due()
    assert len(said.records) == AT_ONCE + 5
    said.notices.end()
    assert [each.text for each in said.records] == [f"loss is {number}" for number in range(1000 - MOST_TEXTS, 1000)]
    assert [each.message for each in caplog.records].count(caplog.records[0].message) == 1
    assert "not all are recorded" in caplog.records[0].message


def test_a_text_is_cut() -> None:
    """However long it is; what is no text is shown as one."""
    said = Said()
    said.notices.say("x" * 1_000_000)
    said.notices.say("")
    said.notices.say(ValueError("lost"))  # type: ignore[arg-type]
    said.notices.write_due()
    assert [each.text for each in said.records] == [f"{'x' * 200} ...", "(no text)", "lost"]


@pytest.mark.parametrize("severity", ["critical", "", None, "PAGE"])
def test_a_wrong_severity_is_refused_at_once(severity: str) -> None:
    """And says what there is."""
    said = Said()
    with pytest.raises(ValueError, match="expected 'page', 'warn' or 'info'"):
        said.notices.say("hello", severity)
    assert not said.notices.newest() and not said.loops


def test_a_new_text_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """At the level of its severity."""
    caplog.set_level(logging.INFO)
    said = Said()
    for _ in range(3):
        for severity in ("info", "warn", "page"):
            said.notices.say("hello", severity)
        said.notices.write_due()
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("INFO", "notify: hello"),
        ("WARNING", "notify: hello"),
        ("ERROR", "notify: hello"),
    ]


def test_the_end_waits_for_what_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that the thread has taken is written before the session's last one."""
    monkeypatch.setattr(module, "END_SECS", 60.0)
    begun, may_go_on, order = threading.Event(), threading.Event(), []

    def write(record: NoticeRecord, step: int | None) -> None:
        begun.set()
        may_go_on.wait()
        order.append(record.text)

    said = Notices("s", write, progress_at(None))
    said.say("before")
    begun.wait()
    ends = threading.Thread(target=lambda: (said.end(), order.append("ended")))
    ends.start()
    ends.join(0.05)
    assert ends.is_alive()
    may_go_on.set()
    ends.join()
    assert order == ["before", "ended"]


def test_after_the_end_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What was said before is written; what comes later is in the log, with the reason."""
    said = Said()
    said.notices.say("before")
    said.notices.end()
    said.notices.say("after")
    said.notices.end()
    assert [each.text for each in said.records] == ["before"]
    assert caplog.records[-1].message == "notify: after (not recorded: the session has ended)"


def test_the_end_never_waits_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may take the next record, and hang with it, at any moment in which it is not kept from that."""

    class Lock:
        def acquire(self, blocking: bool = True, timeout: float = -1.0) -> bool:
            assert 0 < timeout < 60
            return True

        __enter__ = acquire

        def release(self, *_: object) -> None: ...

        __exit__ = release

    records: list[str] = []
    notices = Notices("s", lambda record, step: records.append(record.text), progress_at(None), spawn=lambda loop: None)
    notices.say("before")
    monkeypatch.setattr(notices, "_writing", Lock())
    notices.end()
    assert records == ["before"]


def test_without_a_thread_it_is_written_at_once() -> None:
    """As where the interpreter ends."""
    records: list[NoticeRecord] = []

    def refuse(loop: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    Notices("s", lambda record, step: records.append(record), progress_at(None), StillClock(NOW), refuse).say("the end")
    assert [each.text for each in records] == ["the end"]


def test_a_forked_child_only_logs() -> None:
    """Its parent's lock may be held for good: nothing waits for it there, and nothing is written twice."""
    said = Said()
    said.notices.say("of the parent")
    said.notices._lock.acquire()
    child = os.fork()
    if not child:
        thread = threading.Thread(target=lambda: (said.notices.say("of the child"), said.notices.end()))
        thread.start()
        thread.join(10)
        os._exit(0 if not thread.is_alive() and not said.records else 1)
    assert os.waitpid(child, 0)[1] == 0
