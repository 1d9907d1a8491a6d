"""The outbox with its threads: nothing holds up the caller, and one service does not hold up another."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.clock import SystemClock
from supervisor_core.notify import delivery
from supervisor_core.notify.claims import Claims, Owner
from supervisor_core.notify.event import Topic
from supervisor_core.notify.message import Message
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.services import AppriseService, Service
from supervisor_core.notify.settings import NotifySettings
from tests.notify.receivers import WAIT_SECS, web_receiver
from tests.notify.samples import Kept, event, restart

ROOT = Path(__file__).parents[2]


class Hangs(Service):
    """Hangs in each send until it is freed."""

    name = "hangs"

    def __init__(self) -> None:
        self.free = threading.Event()
        self.entered = threading.Event()

    def send(self, message: Message) -> None:
        self.entered.set()
        self.free.wait(WAIT_SECS)


class Each(Kept):
    """Takes each event for itself."""

    takes_each = True


def outbox(*services: Service, **changed: Any) -> Outbox:
    """An outbox that sends at once."""
    topics: tuple[Topic, ...] = ("page", "end", "restart")
    values: dict[str, Any] = {"topics": topics, "limit_per_hour": 20, "gather_secs": 0.0, **changed}
    return Outbox(services, **values)


def test_each_service_gets_the_message() -> None:
    """What is put is sent to all."""
    services = [Kept("a"), Kept("b")]
    sent = outbox(*services)
    sent.put([event()])
    for each in services:
        each.wait(1)
    assert sent.close(WAIT_SECS)
    assert [each.runs for each in services] == [["tuning"], ["tuning"]]


def test_only_the_topics_that_were_chosen() -> None:
    """Other events are left out."""
    service = Kept()
    sent = outbox(service, topics=["restart"])
    sent.put([event("a"), restart("b")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["b"]


def test_an_event_that_came_before_is_left_out() -> None:
    """The same id is sent once."""
    service = Kept()
    sent = outbox(service)
    sent.put([event()])
    service.wait(1)
    sent.put([event(), event("other")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["tuning", "other"]


def test_a_service_that_hangs_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """`put` returns, the other service gets its message, and the end does not wait longer than it may."""
    hangs, well = Hangs(), Kept()
    sent = outbox(hangs, well, limit_per_hour=10_000)
    sent.put([event("a")])
    assert hangs.entered.wait(WAIT_SECS)
    arrived = well.wait(1)
    for number in range(5000):
        sent.put([event(f"r{number}")])
    while sum(len(message.events) for message in arrived) <= 1000:
        arrived = well.wait(len(arrived) + 1)
    assert not sent.close(0.2)
    assert "hangs: 1,000 changes not sent in time; the first: r0: lost" in caplog.text
    hangs.free.set()


def test_an_end_that_is_under_way_is_made_shorter(caplog: pytest.LogCaptureFixture) -> None:
    """It may wait for an hour, and a signal comes meanwhile: it waits no longer, and says once what was not sent."""
    waits, closed = threading.Event(), list[bool]()

    class Watched(SystemClock):
        calls = 0

        def monotonic(self) -> float:
            if threading.current_thread().name == "closes":
                self.calls += 1
                if self.calls == 2:  # after the first the time is set, after this one it is waited for
                    waits.set()
            return super().monotonic()

    hangs = Hangs()
    sent = outbox(hangs, clock=Watched())
    thread = threading.Thread(target=lambda: closed.append(sent.close(3600.0)), name="closes", daemon=True)
    sent.put([event()])
    assert hangs.entered.wait(WAIT_SECS)
    thread.start()
    assert waits.wait(WAIT_SECS)
    sent.begin_closing(0.0)
    thread.join(WAIT_SECS)
    assert closed == [False]
    assert caplog.messages == ["hangs: the last message may not have been sent in time"]
    hangs.free.set()


def test_a_service_that_raises_anything_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    """An error of a library is logged by its type: its text may hold a secret."""

    class Raises(Kept):
        def send(self, message: Message) -> None:
            if self.attempts == 0:
                self.attempts += 1
                raise RuntimeError("https://hooks.example/hunter2")
            super().send(message)

    service = Raises()
    sent = outbox(service)
    sent.put([event()])
    service.wait(1)
    assert sent.close(WAIT_SECS)
    assert "an error of the type RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


def test_an_error_of_our_own_does_not_end_a_services_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes after it is sent."""

    failed = threading.Event()

    def fail(*_: object, **__: object) -> Message:
        monkeypatch.undo()
        failed.set()
        raise AssertionError("hunter2")

    monkeypatch.setattr(delivery, "message_of", fail)
    service = Kept("notify 1 (json)")
    sent = outbox(service)
    sent.put([event("a")])
    assert failed.wait(WAIT_SECS)
    sent.put([event("b")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["b"]
    assert "notify 1 (json): an error of the type AssertionError" in caplog.text and "hunter2" not in caplog.text


def test_the_end_sends_what_waits() -> None:
    """Neither the time to gather nor the limit keeps back the last message."""
    service = Kept()
    sent = outbox(service, gather_secs=3600.0, limit_per_hour=1)
    sent.put([event("a")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["a"]


def test_the_end_tries_again_and_says_what_was_not_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A service that fails at the end is tried again for as long as there is time; then other watchers may send it."""
    service = Kept("notify 1 (json)", identity="json://h")
    service.fails = "it answers 500"
    sent = outbox(service, claims=Claims(tmp_path))
    sent.put([event()])
    service.wait_for_attempts(1)
    assert not sent.close(1.5)
    assert service.attempts >= 2
    assert "notify 1 (json): 1 change not sent in time; the first: tuning: lost" in caplog.text
    assert Claims(tmp_path).take(event().id, Claims(tmp_path).key(service.identity)) == "mine"


def test_a_directory_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """The claims' disk may be one of a network that is gone."""
    free, entered = threading.Event(), threading.Event()

    class HangingClaims(Claims):
        def take(self, event_id: str, service: str) -> Owner:
            entered.set()
            free.wait(WAIT_SECS)
            return super().take(event_id, service)

        def give_back(self, event_id: str, service: str) -> None:
            free.wait(WAIT_SECS)

    sent = outbox(Kept(identity="json://h"), claims=HangingClaims(tmp_path))
    sent.put([event("a")])
    assert entered.wait(WAIT_SECS)
    sent.put([event("b")])
    assert not sent.close(0.3)
    free.set()


def test_a_service_that_takes_each_gets_each_once(caplog: pytest.LogCaptureFixture) -> None:
    """For a command nothing is merged, limited or tried again; what fails is one line."""
    service = Each()
    sent = outbox(service, limit_per_hour=1, gather_secs=3600.0)
    sent.put([event(f"r{number}") for number in range(10)])
    service.wait(10)
    service.fails = "it ended with status 3"
    sent.put([event("bad")])
    service.wait_for_attempts(11)
    service.fails = None
    assert sent.close(WAIT_SECS)
    assert service.runs == [f"r{number}" for number in range(10)] and service.attempts == 11
    assert caplog.text.count("not done: it ended with status 3: bad: lost") == 1


def test_another_watcher_does_not_repeat_a_command_that_failed(tmp_path: Path) -> None:
    """It is done once, by one of the watchers, whether it works or not."""
    services = [Each(identity="logger"), Each(identity="logger")]
    services[0].fails = "it ended with status 1"
    for service in services:
        sent = outbox(service, claims=Claims(tmp_path))
        sent.put([event()])
        assert sent.close(WAIT_SECS)
    assert [service.attempts for service in services] == [1, 0]


def test_two_outboxes_send_each_event_once(tmp_path: Path) -> None:
    """Two watchers of one directory, in threads: no event is missing, none comes twice."""
    services = [Kept(identity="json://h"), Kept(identity="json://h")]
    boxes = [outbox(service, claims=Claims(tmp_path), limit_per_hour=1000) for service in services]
    runs = [f"r{number}" for number in range(60)]
    start = threading.Barrier(2)

    def put(box: Outbox) -> None:
        start.wait()
        for run in runs:
            box.put([event(run)])

    threads = [threading.Thread(target=put, args=(box,)) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [box.close(WAIT_SECS) for box in boxes] == [True, True]
    assert sorted(services[0].runs + services[1].runs) == sorted(runs)


def test_what_is_sent_is_logged_with_the_services_name(
    caplog: pytest.LogCaptureFixture, begun_threads: Callable[[str], list[threading.Thread]]
) -> None:
    """One line a message; the threads end with the outbox."""
    caplog.set_level(logging.INFO, "supervisor_core")
    sent = outbox(Kept("notify 1 (slack)"))
    sent.put([event()])
    assert sent.close(WAIT_SECS)
    assert caplog.messages == ["notify 1 (slack): sent: tuning: lost at step 2,500 on gpu-7"]
    assert begun_threads("notify 1") == []


_WATCHER = """
import sys
from pathlib import Path
from supervisor_core.notify.claims import Claims
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.settings import NotifySettings
from tests.notify.samples import event
settings = NotifySettings.decode(sys.stdin.readline())
box = Outbox(settings.services, topics=["page"], limit_per_hour=20, gather_secs=0.5, claims=Claims(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
box.put([event(f"r{number:02}") for number in range(50)])
sys.stdin.readline()
sys.exit(0 if box.close(60.0) else 1)
"""


def test_fifty_deaths_seen_by_two_watchers_are_one_message(tmp_path: Path) -> None:
    """Two processes with the same service see the same deaths at the same moment: one message comes, with all."""
    with web_receiver() as server:
        settings = NotifySettings(notify=(AppriseService("notify 1 (json)", Secret(server.url("hunter2"))),))
        command = [sys.executable, "-c", _WATCHER, str(tmp_path)]
        watchers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(2)
        ]
        for line in (f"{settings.encode()}\n", "put\n"):
            for watcher in watchers:
                assert watcher.stdin is not None and watcher.stdout is not None
                watcher.stdin.write(line)
                watcher.stdin.flush()
                assert line == "put\n" or watcher.stdout.readline() == "ready\n"
        server.wait(1)
        for watcher in watchers:
            watcher.communicate("end\n")
        assert [watcher.returncode for watcher in watchers] == [0, 0]
        assert server.titles == [
            "50 runs were lost within 1 s, all on gpu-7. Runs: r00, r01, r02, r03, r04 and 45 more."
        ]
